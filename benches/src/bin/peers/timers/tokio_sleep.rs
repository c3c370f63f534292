//! tokio's `sleep` on a multi-thread runtime with its default timer: a future that registers when
//! it is first polled and is cancelled by dropping it. It is polled by the measured thread inside
//! the runtime's context; where it fires, its waker tells (no task is run: kind to tokio).
//!
//! And the same with tokio's alternative timer, `tokio-alt`, in a build with `--cfg
//! tokio_unstable`: measured on the runtime's own workers, where it is meant to be used. Those work
//! off what was cancelled when they next park, which is not measured (kind to tokio again).

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Sleep, sleep, timeout},
};

use super::{
    sleeps::{answer, at_once, register, registered},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

pub(crate) struct TokioSleep<const ALT: bool> {
    runtime: Runtime,
    sink: &'static Sink,
}

fn runtime(alternative: bool) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_time();
    #[cfg(tokio_unstable)]
    if alternative {
        builder.enable_alt_timer().worker_threads(4);
    }
    #[cfg(not(tokio_unstable))]
    anyhow::ensure!(!alternative, "tokio was built without its alternative timer");
    Ok(builder.build()?)
}

impl<const ALT: bool> Timer for TokioSleep<ALT> {
    const NAME: &'static str = if ALT { "tokio-alt" } else { "tokio-sleep" };
    type Handle = Pin<Box<Sleep>>;
    type Local<'a> = (EnterGuard<'a>, &'static Sink);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(TokioSleep { runtime: runtime(ALT)?, sink })
    }

    fn inside(
        timer: Arc<Self>,
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        if !ALT {
            return work();
        }
        let task = async move { work() };
        timer.runtime.block_on(timer.runtime.spawn(tokio::task::unconstrained(task)))?
    }

    fn local(&self) -> Self::Local<'_> {
        (self.runtime.enter(), self.sink)
    }

    fn schedule(_: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        registered(Box::pin(sleep(delay)), Waker::noop())
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle {
        registered(Box::pin(sleep(delay)), &TellsSink::waker(local.1, due_ns))
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

    fn timeout_ready(_: &mut Self::Local<'_>, limit: Duration) -> bool {
        at_once(pin!(timeout(limit, answer())))
    }

    /// In the same box.
    fn replace(_: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let pending = !place.is_elapsed();
        place.set(sleep(delay));
        register(place.as_mut(), Waker::noop());
        pending
    }
}
