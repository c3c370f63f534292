//! What is counted where no room's lock is held.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::words::{operation::RefusedReason, stats::Stats};

/// Counts that no room's lock goes with. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    /// Operations that ended without being parked.
    pub(crate) ended_at_once: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) callbacks_waiting: AtomicU64,
    /// Further checks by threads that park while events come by.
    pub(crate) looks: AtomicU64,
    no_keys: AtomicU64,
    closed: AtomicU64,
    full: AtomicU64,
    too_many_watermarks: AtomicU64,
    /// The subscriber was told of the shutdown.
    pub(crate) told_closed: std::sync::atomic::AtomicBool,
}

impl SharedCounts {
    /// Counts an operation that was not parked.
    pub(crate) fn refused(&self, reason: RefusedReason) {
        let count = match reason {
            RefusedReason::NoKeys => &self.no_keys,
            RefusedReason::Closed => &self.closed,
            RefusedReason::Full { .. } => &self.full,
            RefusedReason::TooManyWatermarks { .. } => &self.too_many_watermarks,
            _ => return, // of what no operation was made for
        };
        count.fetch_add(1, Relaxed);
    }

    /// Adds what it has counted.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.ended_at_once = self.ended_at_once.load(Relaxed);
        stats.panics = self.panics.load(Relaxed);
        stats.missed_events = self.missed.load(Relaxed);
        stats.callbacks_waiting = self.callbacks_waiting.load(Relaxed);
        stats.refused_no_keys = self.no_keys.load(Relaxed);
        stats.refused_closed = self.closed.load(Relaxed);
        stats.refused_full = self.full.load(Relaxed);
        stats.refused_too_many_watermarks = self.too_many_watermarks.load(Relaxed);
    }
}
