//! Counting: plain numbers under each home shard's lock, added up when somebody asks.

use crate::operation::Outcome;

/// What a purgatory holds and has done. Exact when nothing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations parked now, those under check included.
    pub parked: u64,
    /// Pairs of a parked operation and one of its keys, now.
    pub watched: u64,
    /// Operations ever parked: the sum of `parked` and the three ends below.
    pub parked_total: u64,
    /// Parked operations that ended as Completed.
    pub completed: u64,
    /// Parked operations that ended as Expired.
    pub expired: u64,
    /// Parked operations that ended as Cancelled.
    pub cancelled: u64,
    /// Operations that ended without being parked: their first check came true (nearly always),
    /// or panicked, or their timeout was zero.
    pub ended_at_once: u64,
    /// Checks and callbacks that panicked.
    pub panics: u64,
}

/// The part of the counting that one home shard does.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) parked: u64,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
}

impl Counts {
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Expired => self.expired += 1,
            Outcome::Cancelled(_) => self.cancelled += 1,
        }
    }
}
