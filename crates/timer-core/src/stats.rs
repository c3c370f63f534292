//! What a timer has done and how full its wheels are: plain counts, added up when somebody asks.

use std::sync::{Arc, atomic::Ordering};

use crate::{histogram::TimeHistogram, shards::Count, timer::Turns};

/// What a timer holds and has done, over all wheels that it turns: its own tasks, those of each
/// [`TaskTimer`](crate::TaskTimer) on it, each purgatory's. Exact when nothing moves.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimerStats {
    /// Tasks that will fall due.
    pub pending: u64,
    /// Tasks that fell due.
    pub fired: u64,
    /// Tasks that were taken off before they fell due.
    pub cancelled: u64,
    /// Times that a task was handed down to a lower level.
    pub cascaded: u64,
    /// Times that the reaper woke up.
    pub wake_ups: u64,
    /// Those of them for nothing: nothing was due any more, and nobody had rung.
    pub spurious_wake_ups: u64,
    /// Panics of tasks scheduled on the timer itself.
    pub panics: u64,
    /// Jobs that wait for a worker, each a batch of what fell due; `None` when the executor does not tell.
    pub executor_queue: Option<u64>,
    /// How long the reaper's rounds took: one goes over all shards that are due.
    pub turns: TimeHistogram,
    /// The levels of the wheels, the finest first.
    pub levels: Vec<LevelStats>,
}

/// How full a level is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// The ticks that one bucket spans.
    pub bucket_ticks: u64,
    /// Tasks by how many buckets ahead they are: the first is the present one.
    pub buckets: Vec<u64>,
}

/// What owners of wheels report of them.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct WheelTally {
    /// As [`TimerStats::pending`].
    pub pending: u64,
    /// As [`TimerStats::cancelled`].
    pub cancelled: u64,
    /// As [`TimerStats::levels`].
    pub levels: Vec<LevelStats>,
}

/// Tasks cancelled on wheels that are gone.
#[derive(Debug, Default)]
pub(crate) struct CancelledOnGone {
    /// Added to by wheels that are dropped.
    pub(crate) count: Arc<Count>,
    /// The most that was told of all wheels: one that is just being dropped is neither among the living nor
    /// in the count.
    told: Count,
}

impl CancelledOnGone {
    /// Together with what wheels that are there have `cancelled`; does not go down.
    fn and(&self, cancelled: u64) -> u64 {
        let all = cancelled + self.count.load(Ordering::Relaxed);
        self.told.fetch_max(all, Ordering::Relaxed).max(all)
    }
}

/// What whoever turns the wheels counts himself.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnCounts {
    fired: u64,
    cascaded: u64,
    pub(crate) wake_ups: u64,
    pub(crate) spurious_wake_ups: u64,
    pub(crate) rounds: TimeHistogram,
}

impl TurnCounts {
    pub(crate) fn turned(&mut self, fired: u64, cascaded: u64) {
        self.fired += fired;
        self.cascaded += cascaded;
    }

    /// Together with what the wheels of `owners` hold at `now`, and those that are gone had cancelled.
    pub(crate) fn stats(
        self,
        now: u64,
        owners: &[Arc<dyn Turns>],
        gone: &CancelledOnGone,
        panics: u64,
    ) -> TimerStats {
        let mut tally = WheelTally::default();
        owners.iter().for_each(|owner| owner.tally(now, &mut tally));
        TimerStats {
            pending: tally.pending,
            fired: self.fired,
            cancelled: gone.and(tally.cancelled),
            cascaded: self.cascaded,
            wake_ups: self.wake_ups,
            spurious_wake_ups: self.spurious_wake_ups,
            panics,
            executor_queue: None,
            turns: self.rounds,
            levels: tally.levels,
        }
    }
}
