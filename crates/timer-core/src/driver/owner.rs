//! [`WheelOwner`]: the methods that a timer calls on an owner of wheels.

use std::sync::Arc;

#[cfg(feature = "metrics")]
use crate::observe::metrics::Publishes;
use crate::{observe::TimerStats, wheel::timing_wheel::Advanced};

/// An owner of sharded wheels, as a timer calls it.
pub trait WheelOwner: Send + Sync + 'static {
    /// Advances one shard's wheel to `now_tick` within a bounded amount of work, and keeps the due
    /// tasks until the round is over. Returns the work done and when to call again. Called with
    /// nothing locked, by one thread at a time.
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced;

    /// Hands the due tasks over, after the last [`advance`](Self::advance) of a round over the
    /// shards. Called with nothing locked.
    fn round_over(self: Arc<Self>);

    /// Looks at a shard ([`Shards::look`](super::Shards::look)), for a manual timer. Called under a
    /// lock of the timer's, so it must not call the timer.
    fn look(&self, shard: usize) -> ShardLook;

    /// Adds the counts of pending and of cancelled tasks; nothing by default. O(shards).
    fn add_to(&self, _stats: &mut TimerStats) {}

    /// Returns the source that is published with the timer; none by default.
    #[cfg(feature = "metrics")]
    fn publishes(&self) -> Option<&dyn Publishes> {
        None
    }

    /// Closes the wheels after the timer's shutdown: nothing expires any more. User code that the
    /// closing calls runs where jobs do. Called with nothing locked.
    fn timer_closed(self: Arc<Self>);
}

/// A shard's answer to a manual timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLook {
    /// The tick at which the wheel next has work.
    pub next_due: Option<u64>,
    /// Grows as tasks are scheduled and cancelled.
    pub(super) changes: u64,
}
