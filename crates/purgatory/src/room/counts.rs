//! What one room counts: plain numbers under its lock.

use crate::words::operation::{CancelReason, Outcome};

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
