//! async-io's `Timer`: a future that registers with the process's one reactor when it is first
//! polled and is cancelled by dropping it. Where it fires, its waker tells (no task is run: kind to
//! async-io).

use std::{
    pin::{Pin, pin},
    task::Waker,
    time::Duration,
};

use async_io::Timer as IoTimer;

use super::{
    first_poll::{answer, at_once, register},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

pub(crate) struct AsyncIo {
    sink: &'static Sink,
}

fn registered(delay: Duration, waker: &Waker) -> IoTimer {
    let mut timer = IoTimer::after(delay);
    register(Pin::new(&mut timer), waker);
    timer
}

impl Timer for AsyncIo {
    const NAME: &'static str = "async-io";
    type Handle = IoTimer;
    type Local<'a> = &'static Sink;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(AsyncIo { sink })
    }

    fn local(&self) -> &'static Sink {
        self.sink
    }

    fn schedule(_: &mut &'static Sink, delay: Duration) -> IoTimer {
        registered(delay, Waker::noop())
    }

    fn schedule_firing(sink: &mut &'static Sink, delay: Duration, due_ns: u64) -> IoTimer {
        registered(delay, &TellsSink::waker(sink, due_ns))
    }

    /// A pending timer will fire again, one that has fired will not.
    fn cancel(_: &mut &'static Sink, handle: IoTimer) -> bool {
        handle.will_fire()
    }

    /// It has no time-out; one is made of it as others do, the other future polled first.
    fn timeout_ready(_: &mut &'static Sink, limit: Duration) -> bool {
        let _limit = IoTimer::after(limit);
        at_once(pin!(answer()))
    }
}
