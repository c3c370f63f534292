//! What is asked of a timer: [`Timer`], which each contender is in its own way.

use std::{hint::black_box, sync::Arc, time::Duration};

use crate::sink::Sink;

/// A timer that any thread may use.
///
/// `schedule` is what a timeout costs that will be cancelled; `schedule_firing` also tells the sink
/// when the timer fires, with the moment it was due. Both return what `cancel` needs.
pub(crate) trait Timer: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;
    /// Names a pending timer, or is it.
    type Handle: Send + 'static;
    /// What a thread holds while it uses the timer.
    type Local<'a>;

    fn start(sink: &'static Sink) -> anyhow::Result<Self>;

    /// Runs a thread that uses the timer.
    fn inside(
        _: Arc<Self>,
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        work()
    }

    fn local(&self) -> Self::Local<'_>;

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        Self::schedule_firing(local, delay, 0)
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle;

    /// True when the timer was pending, as far as the peer can tell.
    fn cancel(local: &mut Self::Local<'_>, handle: Self::Handle) -> bool;

    /// One timeout that did not come to pass.
    fn schedule_cancel(local: &mut Self::Local<'_>, delay: Duration) -> bool {
        let handle = Self::schedule(local, delay);
        Self::cancel(local, black_box(handle))
    }

    /// A time-out around a future that is ready at once. True if it yielded what that did.
    fn timeout_ready(_: &mut Self::Local<'_>, _: Duration) -> bool {
        false
    }

    /// Puts a new timer in the place of a pending one.
    fn replace(local: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let old = std::mem::replace(place, Self::schedule(local, delay));
        Self::cancel(local, old)
    }

    /// Returns once everything asked for so far has been done: at once, unless requests queue.
    fn settle(_: &mut Self::Local<'_>) {}

    /// How many timers are pending, where the peer can tell.
    fn pending(&self) -> Option<usize> {
        None
    }
}
