//! What whoever turns wheels counts as it does, and how that becomes the timer's [`TimerStats`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    driver::spi::{WheelCounts, WheelOwner},
    observe::{histogram::TimeHistogram, stats::TimerStats},
};

/// Tasks cancelled on wheels that are gone.
#[derive(Debug, Default)]
pub(crate) struct CancelledOnDropped {
    /// Added to by wheels that are dropped.
    pub(crate) count: Arc<AtomicU64>,
    /// The most that was told of all wheels: one that is just being dropped is neither among the
    /// living nor in the count.
    told: AtomicU64,
}

impl CancelledOnDropped {
    /// Together with what wheels that are there have `cancelled`; does not go down.
    fn and(&self, cancelled: u64) -> u64 {
        let all = cancelled + self.count.load(Ordering::Relaxed);
        self.told.fetch_max(all, Ordering::Relaxed).max(all)
    }
}

/// What whoever turns the wheels counts himself.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdvanceCounts {
    fired: u64,
    cascaded: u64,
    pub(crate) wake_ups: u64,
    pub(crate) spurious_wake_ups: u64,
    pub(crate) rounds: TimeHistogram,
}

impl AdvanceCounts {
    pub(crate) fn add(&mut self, fired: u64, cascaded: u64) {
        self.fired += fired;
        self.cascaded += cascaded;
    }

    /// Together with the counts of `owners`, and of wheels that are gone.
    pub(crate) fn stats(
        self,
        owners: &[Arc<dyn WheelOwner>],
        gone: &CancelledOnDropped,
        panics: u64,
    ) -> TimerStats {
        let counts: WheelCounts = owners.iter().map(|owner| owner.counts()).sum();
        TimerStats {
            pending: counts.pending,
            fired: self.fired,
            cancelled: gone.and(counts.cancelled),
            cascaded: self.cascaded,
            wake_ups: self.wake_ups,
            spurious_wake_ups: self.spurious_wake_ups,
            panics,
            executor_queue: None,
            turns: self.rounds,
        }
    }
}
