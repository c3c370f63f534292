//! What one room counts: plain numbers under its lock.

use crate::operation::{
    CancelReason, Outcome,
    stats::{Stats, Times},
};

/// The part of the counting that one room does.
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)] // what each operation counts comes first
pub(crate) struct Counts {
    pub(crate) parked: u64,
    pub(crate) completed: u64,
    /// Checks of what was parked, the first of each included.
    pub(crate) checks: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) cancelled_by_shutdown: u64,
    pub(crate) cancelled_by_drop: u64,
    pub(crate) cancelled_by_panic: u64,
}

impl Counts {
    /// Adds what it has counted.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        stats.parked_total += self.parked;
        stats.completed += self.completed;
        stats.expired += self.expired;
        stats.cancelled += self.cancelled;
        stats.cancelled_by_shutdown += self.cancelled_by_shutdown;
        stats.cancelled_by_drop += self.cancelled_by_drop;
        stats.cancelled_by_panic += self.cancelled_by_panic;
        stats.checks += self.checks;
    }

    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Expired => self.expired += 1,
            Outcome::Cancelled(reason) => {
                self.cancelled += 1;
                match reason {
                    CancelReason::Requested(_) => {}
                    CancelReason::Shutdown => self.cancelled_by_shutdown += 1,
                    CancelReason::Dropped => self.cancelled_by_drop += 1,
                    CancelReason::Panicked => self.cancelled_by_panic += 1,
                }
            }
        }
    }
}

impl Times {
    /// Records how long one waited that has ended.
    #[inline]
    pub(crate) fn ended(&mut self, outcome: &Outcome, waited_us: u64) {
        let times = match outcome {
            Outcome::Completed => &mut self.completed,
            Outcome::Cancelled(_) => &mut self.cancelled,
            Outcome::Expired => &mut self.expired,
        };
        times.record(waited_us * 1000);
    }

    /// Adds what another has recorded.
    pub(crate) fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}
