//! `tracing` events (feature `tracing`): nothing on the path of an operation that is parked and
//! completed. A subscriber is user code: it is called with nothing locked, and its panics stay
//! here.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::sync::atomic::Ordering::Relaxed;

    use timer_core::{Panicked, driver::contain};

    use crate::{paths::counts::SharedCounts, words::operation::RefusedReason};

    /// A callback on the executor that takes so long is told of.
    const SLOW_NS: u64 = 100_000_000;

    pub(crate) fn refused(purgatory: &str, reason: RefusedReason) {
        let _ = contain(|| tracing::debug!(purgatory, %reason, "an operation was not parked"));
    }

    pub(crate) fn panicked(purgatory: &str, panicked: &Panicked) {
        let panic = panicked.message();
        let _ = contain(|| tracing::error!(purgatory, panic, "a check or callback panicked"));
    }

    /// `keys` as text, if the builder knew how.
    pub(crate) fn missed(purgatory: &str, keys: impl FnOnce() -> Option<String>) {
        let _ = contain(|| {
            let keys = keys(); // runs the key's `Debug`
            tracing::warn!(purgatory, keys, "a condition came true without an event");
        });
    }

    /// Told by whoever shuts down first, and by others only if they cancelled something meanwhile.
    pub(crate) fn closed(purgatory: &str, counts: &SharedCounts, cancelled: usize) {
        if counts.told_closed.swap(true, Relaxed) && cancelled == 0 {
            return;
        }
        let _ = contain(|| tracing::info!(purgatory, cancelled, "shut down"));
    }

    /// Runs a callback, and tells of it if that took long by the timer's clock.
    pub(crate) fn slow(purgatory: &str, now_ns: impl Fn() -> u64, callback: impl FnOnce()) {
        let began_ns = now_ns();
        callback();
        let took_ns = now_ns().saturating_sub(began_ns);
        if took_ns >= SLOW_NS {
            let seconds = took_ns as f64 / 1e9;
            let _ = contain(|| {
                tracing::warn!(purgatory, seconds, "a callback kept the executor");
            });
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use timer_core::Panicked;

    use crate::{paths::counts::SharedCounts, words::operation::RefusedReason};

    #[inline(always)]
    pub(crate) fn refused(_: &str, _: RefusedReason) {}

    #[inline(always)]
    pub(crate) fn panicked(_: &str, _: &Panicked) {}

    #[inline(always)]
    pub(crate) fn missed(_: &str, _: impl FnOnce() -> Option<String>) {}

    #[inline(always)]
    pub(crate) fn closed(_: &str, _: &SharedCounts, _: usize) {}

    #[inline(always)]
    pub(crate) fn slow(_: &str, _: impl Fn() -> u64, callback: impl FnOnce()) {
        callback();
    }
}
