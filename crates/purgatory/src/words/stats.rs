//! What is counted of a purgatory, as numbers to look at.

use super::operation::RefusedReason;

/// What a purgatory holds and has done. Exact when nothing moves.
///
/// A field is called as its metric or that metric's label is, so it does not end in `_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Operations parked now, those under check included.
    pub parked: u64,
    /// Watches of what is parked now: an operation has one for each of its keys and one for each of
    /// its watermarks, met or not.
    pub watched: u64,
    /// Operations ever parked: the sum of `parked` and the three ends below.
    pub parked_total: u64,
    /// Parked operations that ended as Completed.
    pub completed: u64,
    /// Parked operations that ended as Expired.
    pub expired: u64,
    /// Parked operations that ended as Cancelled, for whatever reason.
    pub cancelled: u64,
    /// Those of them that a shutdown ended.
    pub cancelled_by_shutdown: u64,
    /// Those of them that ended as the last handle was dropped.
    pub cancelled_by_drop: u64,
    /// Those of them whose check panicked.
    pub cancelled_by_panic: u64,
    /// Operations that ended without being parked: their first check came true (nearly always),
    /// or panicked, or their timeout was zero.
    pub ended_at_once: u64,
    /// Checks and callbacks that panicked.
    pub panics: u64,
    /// Checks: the first of each operation, and those for events.
    pub checks: u64,
    /// Operations whose condition had come true without an event: found by their
    /// [last check](crate::Builder::check_at_expiry), so 0 without one.
    pub missed_events: u64,
    /// Events, raised by anybody: plain ones and rises of watermarks, those on keys without waiters
    /// too.
    pub events: u64,
    /// Operations that were handed back instead of being parked.
    pub refused: Refusals,
    /// Callbacks handed to the executor that have not begun: of what expired, or all
    /// ([`callbacks_on_executor`](crate::Builder::callbacks_on_executor)). Not those beyond the
    /// first 1024 that were queued behind one call.
    pub callbacks_waiting: u64,
    /// Deferred events that have not been raised: each key's at most once, and its rise once.
    pub deferred: u64,
}

/// How many operations were refused, by [reason](crate::RefusedReason).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Refusals {
    /// For want of a key.
    pub no_keys: u64,
    /// After shutdown.
    pub closed: u64,
    /// As many were parked as may be.
    pub full: u64,
    /// For more watermarks to be counted than one operation can have.
    pub too_many_watermarks: u64,
}

impl Stats {
    /// Adds the first checks of what was not parked.
    pub(crate) fn add_first_checks(&mut self) {
        let Refusals { closed, full, too_many_watermarks, .. } = self.refused; // after a check each
        self.checks += self.ended_at_once + closed + full + too_many_watermarks;
    }
}

impl Refusals {
    /// Counts one.
    pub(crate) fn count(&mut self, reason: RefusedReason) {
        let count = match reason {
            RefusedReason::NoKeys => &mut self.no_keys,
            RefusedReason::Closed => &mut self.closed,
            RefusedReason::Full { .. } => &mut self.full,
            RefusedReason::TooManyWatermarks { .. } => &mut self.too_many_watermarks,
        };
        *count += 1;
    }
}
