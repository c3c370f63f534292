//! `tracing` events (feature `tracing`): nothing on the path of an operation that is parked and
//! completed. A subscriber is user code: it is called with nothing locked, and its panics stay here.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::{hash::Hash, sync::atomic::Ordering::Relaxed};

    use timer_core::{Panicked, contain};

    use crate::{
        inner::Inner,
        operation::{DelayedOperation, RefusedReason},
    };

    /// A callback on the executor that takes so long is told of.
    const SLOW_NS: u64 = 100_000_000;

    pub(crate) fn refused(purgatory: &str, reason: RefusedReason) {
        let _ = contain(|| tracing::debug!(purgatory, %reason, "an operation was not parked"));
    }

    pub(crate) fn panicked(purgatory: &str, panicked: &Panicked) {
        let panic = panicked.message();
        let _ = contain(|| tracing::error!(purgatory, panic, "a check or callback panicked"));
    }

    /// Told by whoever shuts down first, and by others only if they cancelled something meanwhile.
    pub(crate) fn closed<K, O>(inner: &Inner<K, O>, cancelled: usize) {
        if inner.counts.told_closed.swap(true, Relaxed) && cancelled == 0 {
            return;
        }
        let purgatory = &*inner.name;
        let _ = contain(|| tracing::info!(purgatory, cancelled, "shut down"));
    }

    /// Runs a callback, and tells of it if that took long by the timer's clock.
    pub(crate) fn slow<K, O>(inner: &Inner<K, O>, callback: impl FnOnce())
    where
        K: Hash + Eq + Clone + Send + 'static,
        O: DelayedOperation,
    {
        let began_ns = inner.driver().now_ns();
        callback();
        let took_ns = inner.driver().now_ns().saturating_sub(began_ns);
        if took_ns >= SLOW_NS {
            let (purgatory, seconds) = (&*inner.name, took_ns as f64 / 1e9);
            let _ = contain(|| {
                tracing::warn!(purgatory, seconds, "a callback kept the executor");
            });
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use timer_core::Panicked;

    use crate::operation::RefusedReason;

    #[inline(always)]
    pub(crate) fn refused(_: &str, _: RefusedReason) {}

    #[inline(always)]
    pub(crate) fn panicked(_: &str, _: &Panicked) {}

    #[inline(always)]
    pub(crate) fn closed<I>(_: &I, _: usize) {}

    #[inline(always)]
    pub(crate) fn slow<I>(_: &I, callback: impl FnOnce()) {
        callback();
    }
}
