//! Timing: how long operations waited, under each home shard's lock.
//!
//! An ending that is timed reads the clock, which alone costs a tenth of parking and completing (and the rest as much again). So
//! nothing is timed before somebody asks, and of what completes between two looks at the times each
//! shard times the first [`EXACT`] one by one, and after that one in [`STRIDE`], which stands for them
//! all. What expires and what is cancelled is always timed by itself.

use std::hash::Hash;

use timer_core::{TimeHistogram, TimerHandle};

use crate::{
    inner::{HomeGuard, Inner},
    operation::{DelayedOperation, Outcome},
};

/// Completions of a shard that are timed one by one after a look.
const EXACT: u32 = 1000;

/// After those, one in so many is timed. A prime: batches of completions are of rounder sizes.
const STRIDE: u32 = 17;

/// How long operations waited, by how they ended, and how late those were that expired. Counted from
/// the first time that anybody asked for it.
///
/// Each ending is counted, so counts are exact when nothing moves. Of what completes a busy purgatory times
/// only some: between two looks at the times each shard (eight for each processor) times the first 1000
/// completions one by one, and from then on each 17th stands for 17. What expires and what is cancelled is
/// always timed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// From being parked to ending as Completed.
    pub completed: TimeHistogram,
    /// From being parked to ending as Expired.
    pub expired: TimeHistogram,
    /// From being parked to ending as Cancelled.
    pub cancelled: TimeHistogram,
    /// From its deadline, rounded up to a tick, until what expired was taken off the wheel.
    pub lateness: TimeHistogram,
}

impl Times {
    fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}

/// The part of the timing that one home shard does.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Completions that are still timed one by one.
    exact: u32,
    /// Completions since the last one that was timed.
    untimed: u32,
    /// How long that one waited.
    last_ns: u64,
    times: Times,
}

impl Timed {
    /// Counts an ending; true when it is to be timed.
    #[inline]
    pub(crate) fn is_timed(&mut self, outcome: &Outcome) -> bool {
        if self.exact > 0 || !matches!(outcome, Outcome::Completed) {
            return true;
        }
        self.untimed += 1;
        self.untimed == STRIDE
    }

    /// Counts an ending that is timed, after `waited_us` since it was parked and `late_ns` since its
    /// deadline.
    pub(crate) fn ended(&mut self, outcome: &Outcome, waited_us: u64, late_ns: u64) {
        let waited_ns = waited_us * 1000;
        match outcome {
            Outcome::Completed => {
                let count = self.untimed.max(1);
                self.times.completed.record_many(waited_ns, u64::from(count));
                self.exact = self.exact.saturating_sub(1);
                self.untimed = 0;
                self.last_ns = waited_ns;
            }
            Outcome::Cancelled(_) => self.times.cancelled.record(waited_ns),
            Outcome::Expired => {
                self.times.expired.record(waited_ns);
                self.times.lateness.record(late_ns);
            }
        }
    }

    /// What was counted so far; starts to time one by one again.
    fn look(&mut self) -> &Times {
        self.times.completed.record_many(self.last_ns, u64::from(self.untimed));
        self.untimed = 0;
        self.exact = EXACT;
        &self.times
    }
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Times an operation that is about to depart.
    #[inline(never)]
    pub(crate) fn time(&self, home: &mut HomeGuard<'_, O>, id: TimerHandle, outcome: &Outcome) {
        let now_ns = self.driver().now_ns();
        let deadline = home.wheel().deadline(id.id()).unwrap_or(u64::MAX);
        let Some(entry) = home.get_mut(id) else { return };
        let waited_us = entry.age_us(now_ns / 1000);
        let late_ns = now_ns.saturating_sub(self.driver().tick().start_ns(deadline));
        if let Some(timed) = &mut home.state.timed {
            timed.ended(outcome, waited_us, late_ns);
        }
    }

    /// Adds up what the shards have timed; those that did not begin now.
    pub(crate) fn times(&self) -> Times {
        let mut times = Times::default();
        for shard in 0..self.homes.count() {
            times.add(self.homes.lock(shard).state.timed.get_or_insert_default().look());
        }
        times
    }
}
