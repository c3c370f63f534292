//! async-io's `Timer`: a future that registers with the process's one reactor when it is first
//! polled and is cancelled by dropping it. Where it fires, its waker tells (no task is run: kind to
//! async-io).

use std::{
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use async_io::Timer as IoTimer;

use super::Timer;
use crate::sink::{Sink, TellsSink};

pub(crate) struct AsyncIo {
    sink: &'static Sink,
}

fn register(delay: Duration, waker: &Waker) -> IoTimer {
    let mut timer = IoTimer::after(delay);
    let poll = Pin::new(&mut timer).poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending(), "a timer was over when first polled");
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
        register(delay, Waker::noop())
    }

    fn schedule_firing(sink: &mut &'static Sink, delay: Duration, due_ns: u64) -> IoTimer {
        register(delay, &TellsSink::waker(sink, due_ns))
    }

    /// A pending timer will fire again, one that has fired will not.
    fn cancel(_: &mut &'static Sink, handle: IoTimer) -> bool {
        handle.will_fire()
    }
}
