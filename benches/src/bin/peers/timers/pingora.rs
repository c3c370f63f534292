//! pingora-timeout's `fast_sleep`, for time-outs that rarely fire: registered when it is polled, in
//! steps of 10 ms, those of a thread and step together; one that is dropped leaves its step behind.
//! Its longer sleeps are tokio's by default; here all are its own.

use std::{
    pin::{Pin, pin},
    task::Waker,
    time::Duration,
};

use pingora_timeout::fast_timeout::{
    fast_sleep, fast_timeout, set_fast_timeout_to_tokio_threshold,
};

use super::{
    first_poll::{answer, at_once, register},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

pub(crate) struct Pingora {
    sink: &'static Sink,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

fn registered(delay: Duration, waker: &Waker) -> Sleep {
    let mut sleep: Sleep = Box::pin(fast_sleep(delay));
    register(sleep.as_mut(), waker);
    sleep
}

impl Timer for Pingora {
    const NAME: &'static str = "pingora-timeout";
    type Handle = Sleep;
    type Local<'a> = &'static Sink;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        set_fast_timeout_to_tokio_threshold(None);
        Ok(Pingora { sink })
    }

    fn local(&self) -> &'static Sink {
        self.sink
    }

    fn schedule(_: &mut &'static Sink, delay: Duration) -> Sleep {
        registered(delay, Waker::noop())
    }

    fn schedule_firing(sink: &mut &'static Sink, delay: Duration, due_ns: u64) -> Sleep {
        registered(delay, &TellsSink::waker(sink, due_ns))
    }

    fn cancel(_: &mut &'static Sink, handle: Sleep) -> bool {
        drop(handle);
        true
    }

    /// On the stack.
    fn schedule_cancel(_: &mut &'static Sink, delay: Duration) -> bool {
        register(pin!(fast_sleep(delay)), Waker::noop());
        true
    }

    fn timeout_ready(_: &mut &'static Sink, limit: Duration) -> bool {
        at_once(pin!(fast_timeout(limit, answer())))
    }
}
