//! [`Driver`], what turns wheels (a reaper thread in [`SystemTimer`](crate::SystemTimer), a hand in
//! [`ManualTimer`](crate::ManualTimer)), and [`WheelOwner`], an owner of wheels to be turned.

use std::{
    error::Error,
    fmt,
    iter::Sum,
    sync::{Arc, Weak},
};

use crate::{
    driver::{bell::Bell, executor::Job, panics::Panicked},
    wheel::{
        geometry::WheelSize,
        tick::TickLength,
        timing_wheel::{Advanced, TimingWheel},
    },
};

/// How a driver was built.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The length of a tick.
    pub tick: TickLength,
    /// The size of each wheel.
    pub wheel_size: WheelSize,
    /// Into how many shards a [`TaskTimer`](crate::TaskTimer) parts its tasks: a power of two, at
    /// most [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub shard_count: usize,
    /// Tasks of one tick are to be handed over in the order they were inserted.
    pub in_order: bool,
    /// What is overdue as it is put on a wheel is handed over soon, without anybody's doing. Not so
    /// for wheels that are turned by hand.
    pub finds_overdue: bool,
    /// [`execute`](Driver::execute) runs jobs on the calling thread.
    pub inline: bool,
    /// How many tasks each [`TaskTimer`](crate::TaskTimer) takes at most.
    pub pending_max: Option<usize>,
}

/// What turns wheels: a clock, a tick, and whoever wakes when the next bucket is due.
///
/// One driver serves any number of owners of wheels ([`WheelOwner`]), each with its own kind of
/// task. Only the timers of this crate are drivers.
pub trait Driver: Sealed + Send + Sync + fmt::Debug + 'static {
    /// The present, in nanoseconds since its clock's origin.
    fn now_ns(&self) -> u64;

    /// What stays as it is for as long as it lives.
    fn settings(&self) -> &Settings;

    /// A bell by which so many wheels say that they have work earlier than the timer knows of.
    fn bell(&self, shard_count: usize) -> Arc<Bell>;

    /// Has `wheels` turned from now on, until they are dropped.
    ///
    /// # Errors
    /// [`TimerClosed`] after shutdown.
    fn attach(&self, bell: &Arc<Bell>, wheels: Weak<dyn WheelOwner>) -> Result<(), TimerClosed>;

    /// Runs a job where expired tasks run.
    fn execute(&self, job: Job);

    /// How many threads run jobs, as far as that is known.
    fn parallelism(&self) -> usize;

    /// Tells whoever wants to know of a contained panic.
    fn report_panic(&self, panicked: &Panicked);
}

/// Keeps [`Driver`] to this crate: a driver has to ring, visit and count as its timer does.
pub trait Sealed {}

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
