//! futures-timer's `Delay`: registered with the process's one helper thread when it is made,
//! cancelled by dropping it. It has no time-out; one is made of it as others do, the other future
//! polled first.

use std::{pin::Pin, pin::pin, task::Waker, time::Duration};

use futures_timer::Delay;

use super::{
    first_poll::{answer, at_once, register},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

pub(crate) struct FuturesTimer {
    sink: &'static Sink,
}

fn registered(delay: Duration, waker: &Waker) -> Delay {
    let mut delay = Delay::new(delay);
    register(Pin::new(&mut delay), waker);
    delay
}

impl Timer for FuturesTimer {
    const NAME: &'static str = "futures-timer";
    type Handle = Delay;
    type Local<'a> = &'static Sink;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(FuturesTimer { sink })
    }

    fn local(&self) -> &'static Sink {
        self.sink
    }

    fn schedule(_: &mut &'static Sink, delay: Duration) -> Delay {
        registered(delay, Waker::noop())
    }

    fn schedule_firing(sink: &mut &'static Sink, delay: Duration, due_ns: u64) -> Delay {
        registered(delay, &TellsSink::waker(sink, due_ns))
    }

    fn cancel(_: &mut &'static Sink, handle: Delay) -> bool {
        drop(handle);
        true
    }

    fn timeout_ready(_: &mut &'static Sink, limit: Duration) -> bool {
        let _limit = Delay::new(limit);
        at_once(pin!(answer()))
    }
}
