//! `tracing` events (feature `tracing`): nothing on the path of an operation that is parked and
//! completed. A subscriber is user code: it is called with nothing locked, and its panics stay
//! here.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use timer_core::Panicked;

use crate::operation::RefusedReason;

/// A callback on the executor that takes so long is told of.
const SLOW_NS: u64 = 100_000_000;

/// Tells the subscriber, if the feature is on.
macro_rules! tell {
    ($level:ident, $($what:tt)*) => {
        #[cfg(feature = "tracing")]
        let _ = timer_core::driver::contain(|| tracing::$level!($($what)*));
    };
}

#[allow(unused_variables, reason = "without the feature nothing is told")]
pub(crate) fn refused(purgatory: &str, reason: RefusedReason) {
    tell!(debug, purgatory, %reason, "an operation was not parked");
}

#[allow(unused_variables, reason = "without the feature nothing is told")]
pub(crate) fn panicked(purgatory: &str, panicked: &Panicked) {
    tell!(error, purgatory, panic = panicked.message(), "a check or callback panicked");
}

#[allow(unused_variables, reason = "without the feature nothing is told")]
pub(crate) fn missed(purgatory: &str) {
    tell!(warn, purgatory, "a condition came true without an event");
}

/// Told by the first shutdown, and by a later one only if it cancelled something.
#[allow(unused_variables, reason = "without the feature nothing is told")]
pub(crate) fn closed(purgatory: &str, told: &AtomicBool, cancelled: usize) {
    let first = !told.swap(true, Relaxed);
    if first || cancelled > 0 {
        tell!(info, purgatory, cancelled, "shut down");
    }
}

/// Runs a callback, and tells of it if that took long by the timer's clock.
#[allow(unused_variables, reason = "without the feature nothing is told")]
pub(crate) fn slow(purgatory: &str, now_ns: impl Fn() -> u64, callback: impl FnOnce()) {
    if !cfg!(feature = "tracing") {
        return callback();
    }
    let began_ns = now_ns();
    callback();
    let took_ns = now_ns().saturating_sub(began_ns);
    if took_ns >= SLOW_NS {
        tell!(warn, purgatory, seconds = took_ns as f64 / 1e9, "a callback kept the executor");
    }
}
