//! The interface for crates that keep wheels of their own on a timer's reaper, and the parts that
//! they share with timers.
//!
//! **Semantic versioning does not cover this module.** Anything in it may change in any release; a
//! crate that uses it depends on an exact version (`=0.1.0`). Semantic versioning does cover
//! [`Timer::schedule`](crate::Timer::schedule) and [`TaskTimer`](crate::TaskTimer), for tasks on a
//! timer, and [`TimingWheel`](crate::TimingWheel), for a wheel in an event loop.
//!
//! A [`WheelOwner`] keeps its wheels in [`Shards`], each under its own lock, and is attached to the
//! timer's [`Driver`]. The driver calls the owner, with nothing locked, when a bucket of one of its
//! wheels is due.
//!
//! ```
//! use std::{
//!     sync::{Arc, Mutex},
//!     time::Duration,
//! };
//! use timer_core::{
//!     Advanced, DueTask, ManualTimer, TimingWheel,
//!     driver::{ShardLook, Shards, WheelOwner},
//! };
//!
//! struct Numbers {
//!     wheels: Shards<TimingWheel<u32>>,
//!     due: Mutex<Vec<u32>>,
//! }
//!
//! impl WheelOwner for Numbers {
//!     fn advance(&self, shard: usize, now_tick: u64) -> Advanced {
//!         let mut shard = self.wheels.lock(shard);
//!         let keep = |task: DueTask<'_, u32>| self.due.lock().unwrap().push(task.take());
//!         let advanced = shard.advance(now_tick, 256, keep);
//!         shard.advanced(advanced.next_due);
//!         advanced
//!     }
//!     fn round_over(self: Arc<Self>) {} // what is due could go to the driver's executor here
//!     fn look(&self, shard: usize) -> ShardLook {
//!         self.wheels.look(shard)
//!     }
//!     fn timer_closed(self: Arc<Self>) {}
//! }
//!
//! let timer = ManualTimer::new();
//! let driver = timer.driver();
//! let wheels = driver.shards(1, (), |(), plan| plan.wheel());
//! let numbers = Arc::new(Numbers { wheels, due: Mutex::default() });
//! assert!(driver.attach(&numbers, &numbers.wheels)); // else the timer was shut down
//!
//! let mut shard = numbers.wheels.lock(0);
//! let scheduled = shard.insert(20, 7).unwrap(); // at tick 20
//! shard.work_at(scheduled.due);
//! drop(shard);
//! timer.advance(Duration::from_millis(20));
//! assert_eq!(*numbers.due.lock().unwrap(), [7]);
//! ```

pub(crate) mod agenda;
pub(crate) mod clock;
pub(crate) mod config;
#[expect(clippy::module_inception, reason = "the folder is named after it")]
pub(crate) mod driver;
pub(crate) mod executor;
pub(crate) mod executors;
pub(crate) mod grace;
pub(crate) mod handle;
pub(crate) mod home;
pub(crate) mod owner;
pub(crate) mod owners;
pub(crate) mod reaper;
pub(crate) mod shards;
pub(crate) mod tick;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;

pub use self::config::Config;
pub use self::driver::Driver;
pub use self::executor::on_timer_thread;
pub use self::executors::{Due, DueQueue, Executors};
pub use self::owner::{ShardLook, WheelOwner};
pub use self::shards::{MakeShard, ShardGuard, ShardPlan, ShardState, Shards, default_shards};
#[cfg(feature = "tokio")]
pub use self::tokio::{must_yield, runs_tasks_here, spend_budget};
#[cfg(feature = "metrics")]
pub use crate::observe::metrics::{Published, Publishes, Sample, SourceName};
pub use crate::panics::{contain, contain_here};
pub use crate::wheel::pages::{PageSlot, Pages};

/// Returns false: without the feature `tokio` no thread is known to run a runtime's tasks.
#[cfg(not(feature = "tokio"))]
pub fn runs_tasks_here() -> bool {
    false
}

/// Returns false: without the feature `tokio` no task has a budget.
#[cfg(not(feature = "tokio"))]
pub fn must_yield(_waker: &std::task::Waker) -> bool {
    false
}

/// Does nothing: without the feature `tokio` no task has a budget.
#[cfg(not(feature = "tokio"))]
pub fn spend_budget() {}

/// Locks, atomics and thread-locals: those that ship, or under `cfg(loom)` the model checker's;
/// failpoints, a count of work under way, and a few small containers.
pub mod sync {
    pub use crate::sync::*;
}
