//! [`WheelOwner`]: an owner of wheels to be turned.

use std::{error::Error, fmt, iter::Sum, sync::Arc};

use crate::wheel::timing_wheel::{Advanced, TimingWheel};

/// An owner of sharded wheels, as a timer sees it.
pub trait WheelOwner: Send + Sync + 'static {
    /// Advances one shard's wheel to `now_tick` within a bounded amount of work, and keeps what
    /// fell due until the round is over. Returns what that was and when to call again. Called with
    /// nothing locked, by one thread at a time.
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced;

    /// Hands over what fell due, after the last [`advance`](Self::advance) of a round over the
    /// shards. Called with nothing locked.
    fn round_over(self: Arc<Self>);

    /// The tick at which a shard next has work.
    fn next_due(&self, shard: usize) -> Option<u64>;

    /// The sum over the wheels; nothing by default. O(shards).
    fn counts(&self) -> WheelCounts {
        WheelCounts::default()
    }

    /// The timer has been shut down: nothing will expire any more. Closes the wheels here; user
    /// code that follows from it runs where jobs do. Called with nothing locked.
    fn timer_closed(self: Arc<Self>);
}

/// Counts of a wheel, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelCounts {
    /// As [`TimerStats::pending`](crate::TimerStats::pending).
    pub pending: u64,
    /// As [`TimerStats::cancelled`](crate::TimerStats::cancelled).
    pub cancelled: u64,
}

impl WheelCounts {
    /// The counts of a wheel. O(1).
    pub fn of<T>(wheel: &TimingWheel<T>) -> Self {
        let pending = wheel.scheduled_count() as u64;
        WheelCounts { pending, cancelled: wheel.cancelled_count() }
    }
}

impl Sum for WheelCounts {
    fn sum<I: Iterator<Item = WheelCounts>>(all: I) -> WheelCounts {
        all.fold(WheelCounts::default(), |sum, one| WheelCounts {
            pending: sum.pending + one.pending,
            cancelled: sum.cancelled + one.cancelled,
        })
    }
}

/// The timer has been shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerClosed;

impl fmt::Display for TimerClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the timer has been shut down")
    }
}

impl Error for TimerClosed {}
