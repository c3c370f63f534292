//! What is counted where no room's lock is held.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::words::{operation::RefusedReason, stats::Refusals};

/// Counts that no room's lock goes with. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    pub(crate) panics: AtomicU64,
    pub(crate) callbacks_waiting: AtomicU64,
    /// Further checks by threads that park while events come by.
    pub(crate) looks: AtomicU64,
    no_keys: AtomicU64,
    closed: AtomicU64,
    full: AtomicU64,
    too_many_watermarks: AtomicU64,
    /// The subscriber was told of the shutdown.
    #[cfg(feature = "tracing")]
    pub(crate) told_closed: std::sync::atomic::AtomicBool,
}

impl SharedCounts {
    pub(crate) fn refused(&self, reason: RefusedReason) {
        let count = match reason {
            RefusedReason::NoKeys => &self.no_keys,
            RefusedReason::Closed => &self.closed,
            RefusedReason::Full { .. } => &self.full,
            RefusedReason::TooManyWatermarks { .. } => &self.too_many_watermarks,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn refusals(&self) -> Refusals {
        Refusals {
            no_keys: self.no_keys.load(Relaxed),
            closed: self.closed.load(Relaxed),
            full: self.full.load(Relaxed),
            too_many_watermarks: self.too_many_watermarks.load(Relaxed),
        }
    }
}
