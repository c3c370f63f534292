//! Counting: plain numbers under each home shard's lock, added up when somebody asks.

use std::{
    hash::Hash,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    inner::Inner,
    operation::{CancelReason, DelayedOperation, Outcome, RefusedReason},
    sync::Ordering,
};

/// What a purgatory holds and has done. Exact when nothing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Operations parked now, those under check included.
    pub parked: u64,
    /// Watches of what is parked now: an operation has one for each of its keys and one for each of its
    /// watermarks, met or not.
    pub watched: u64,
    /// Operations ever parked: the sum of `parked` and the three ends below.
    pub parked_total: u64,
    /// Parked operations that ended as Completed.
    pub completed: u64,
    /// Parked operations that ended as Expired.
    pub expired: u64,
    /// Parked operations that ended as Cancelled, for whatever reason.
    pub cancelled: u64,
    /// Those of them that ended with the purgatory.
    pub cancelled_by_shutdown: u64,
    /// Those of them whose check panicked.
    pub cancelled_by_panic: u64,
    /// Operations that ended without being parked: their first check came true (nearly always),
    /// or panicked, or their timeout was zero.
    pub ended_at_once: u64,
    /// Checks and callbacks that panicked.
    pub panics: u64,
    /// Checks: the first of each operation, and those for events.
    pub checks: u64,
    /// Events, raised by anybody: plain ones and rises of watermarks, those on keys without waiters too.
    pub events: u64,
    /// Operations that were handed back instead of being parked.
    pub refused: Refusals,
    /// Callbacks handed to the executor that have not begun: of what expired, or all
    /// ([`callbacks_on_executor`](crate::Builder::callbacks_on_executor)). Not those beyond the first 1024
    /// that were queued behind one call.
    pub callbacks_waiting: u64,
    /// Deferred events that have not been raised.
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

/// Counts that no home shard's lock goes with. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    pub(crate) panics: AtomicU64,
    pub(crate) callbacks_waiting: AtomicU64,
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

    fn refusals(&self) -> Refusals {
        Refusals {
            no_keys: self.no_keys.load(Relaxed),
            closed: self.closed.load(Relaxed),
            full: self.full.load(Relaxed),
            too_many_watermarks: self.too_many_watermarks.load(Relaxed),
        }
    }
}

/// The part of the counting that one home shard does.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) parked: u64,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) cancelled_by_shutdown: u64,
    pub(crate) cancelled_by_panic: u64,
    /// Checks of what was parked, the first of each included.
    pub(crate) checks: u64,
}

impl Counts {
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Expired => self.expired += 1,
            Outcome::Cancelled(reason) => {
                self.cancelled += 1;
                match reason {
                    CancelReason::Requested(_) => {}
                    CancelReason::Shutdown => self.cancelled_by_shutdown += 1,
                    CancelReason::Panicked => self.cancelled_by_panic += 1,
                }
            }
        }
    }
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Adds up what the shards counted.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in 0..self.homes.count() {
            let home = self.homes.lock(shard);
            stats.parked += home.wheel().len() as u64;
            stats.watched += home.state.watches as u64;
            stats.parked_total += home.state.counts.parked;
            stats.completed += home.state.counts.completed;
            stats.expired += home.state.counts.expired;
            stats.cancelled += home.state.counts.cancelled;
            stats.cancelled_by_shutdown += home.state.counts.cancelled_by_shutdown;
            stats.cancelled_by_panic += home.state.counts.cancelled_by_panic;
            stats.checks += home.state.counts.checks;
        }
        let at_once = self.at_once.iter();
        stats.ended_at_once = at_once.map(|count| count.load(Ordering::Relaxed)).sum();
        stats.panics = self.counts.panics.load(Relaxed);
        stats.refused = self.counts.refusals();
        let Refusals { closed, full, too_many_watermarks, .. } = stats.refused; // after a check each
        stats.checks += stats.ended_at_once + closed + full + too_many_watermarks;
        stats.events = self.watches.events();
        stats.callbacks_waiting = self.counts.callbacks_waiting.load(Relaxed);
        stats.deferred = self.deferred_len() as u64;
        stats
    }
}
