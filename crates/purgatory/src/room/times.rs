//! How long operations waited, by room: plain numbers under its lock.
//!
//! A timed ending reads the clock, so nothing is timed before somebody asks for the times.

use crate::words::{operation::Outcome, stats::Times};

/// From when on an ending is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    pub(crate) parked_us: u64,
    /// In ticks.
    pub(crate) deadline: u64,
}

impl Times {
    /// Records an ending.
    pub(crate) fn ended(&mut self, outcome: &Outcome, waited_us: u64, late_ns: u64) {
        let waited_ns = waited_us * 1000;
        match outcome {
            Outcome::Completed => self.completed.record(waited_ns),
            Outcome::Cancelled(_) => self.cancelled.record(waited_ns),
            Outcome::Expired => {
                self.expired.record(waited_ns);
                self.lateness.record(late_ns);
            }
        }
    }

    /// Adds what another has recorded.
    pub(crate) fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}
