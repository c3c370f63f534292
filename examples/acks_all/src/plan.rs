//! What a run does: the command line, checked and ready to use.

use std::time::Duration;

use crate::in_sync::{FOLLOWERS, Replica};

/// A part of the run in which one follower does not fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The follower.
    pub follower: Replica,
    /// From when, counted from the start of the run.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

impl Stall {
    /// How much of the stall is left at `now`; none when it has not begun or is over.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        (self.from..self.until).contains(&now).then(|| self.until - now)
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How long the producers produce.
    pub duration: Duration,
    /// How many producers.
    pub producers: u16,
    /// How many partitions.
    pub partitions: u32,
    /// How long a produce waits for its acknowledgement.
    pub timeout: Duration,
    /// How many of its records a producer lets wait at once.
    pub in_flight: usize,
    /// Records a second, all producers together; without it, as many as go.
    pub rate: Option<u64>,
    /// Each follower's pause between two rounds of fetches.
    pub follower_lag: [Duration; FOLLOWERS],
    /// The stall, if there is one.
    pub stall: Option<Stall>,
    /// When a follower that is not caught up leaves the in-sync set; without it, never.
    pub isr_shrink_after: Option<Duration>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            producers: 4,
            partitions: 8,
            timeout: Duration::from_secs(1),
            in_flight: 1000,
            rate: None,
            follower_lag: [Duration::from_millis(1); FOLLOWERS],
            stall: None,
            isr_shrink_after: None,
        }
    }
}
