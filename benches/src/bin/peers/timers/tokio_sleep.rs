//! tokio's `sleep` on a multi-thread runtime with its default timer: a future that registers when
//! it is first polled and is cancelled by dropping it. It is polled by the measured thread inside
//! the runtime's context; where it fires, its waker tells (no task is run: kind to tokio).

use std::{
    pin::{Pin, pin},
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Sleep, sleep},
};

use super::Timer;
use crate::sink::{Sink, TellsSink};

pub(crate) struct TokioSleep {
    runtime: Runtime,
    sink: &'static Sink,
}

/// Registers the sleep; it must not be over yet.
fn register(sleep: Pin<&mut Sleep>, waker: &Waker) {
    let poll = sleep.poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending(), "a sleep was over when first polled");
}

impl Timer for TokioSleep {
    const NAME: &'static str = "tokio-sleep";
    type Handle = Pin<Box<Sleep>>;
    type Local<'a> = (EnterGuard<'a>, &'static Sink);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().enable_time().build()?;
        Ok(TokioSleep { runtime, sink })
    }

    fn local(&self) -> Self::Local<'_> {
        (self.runtime.enter(), self.sink)
    }

    fn schedule(_: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        let mut handle = Box::pin(sleep(delay));
        register(handle.as_mut(), Waker::noop());
        handle
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle {
        let mut handle = Box::pin(sleep(delay));
        register(handle.as_mut(), &TellsSink::waker(local.1, due_ns));
        handle
    }

    fn cancel(_: &mut Self::Local<'_>, handle: Self::Handle) -> bool {
        !handle.is_elapsed()
    }

    /// On the stack, as in `select!` or `timeout`.
    fn schedule_cancel(_: &mut Self::Local<'_>, delay: Duration) -> bool {
        let mut handle = pin!(sleep(delay));
        register(handle.as_mut(), Waker::noop());
        !handle.is_elapsed()
    }

    /// In the same box.
    fn replace(_: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let pending = !place.is_elapsed();
        place.set(sleep(delay));
        register(place.as_mut(), Waker::noop());
        pending
    }
}
