//! [`Config`]: the settings of a timer, which its builder changes and which are fixed once its
//! threads run. [`Panics`] counts contained panics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    driver::tick::TickLength, observe::opaque, panics::contain, wheel::geometry::WheelSize,
};

/// A function for the message of each contained panic.
type Hook = dyn Fn(&str) + Send + Sync;

/// Counts the panics of a timer's reaper, of its tasks, of its executors and of their jobs, and reports
/// them to the program's hook, if it has set one.
#[derive(Default)]
pub(crate) struct Panics {
    count: AtomicU64,
    hook: Option<Box<Hook>>,
}

impl Panics {
    pub(crate) fn new(hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Panics {
            count: AtomicU64::new(0),
            hook: Some(Box::new(hook)),
        }
    }

    /// Calls the hook. A panic in it is contained.
    pub(super) fn report(&self, message: &str) {
        if let Some(hook) = &self.hook {
            let _ = contain(|| hook(message));
        }
    }

    /// Calls `work`; `None` if it panics. The panic is contained, counted and reported.
    pub(super) fn contain<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        match contain(work) {
            Ok(value) => Some(value),
            Err(message) => {
                self.count_and_report(&message);
                None
            }
        }
    }

    /// Calls `work` for a caller that may hold a lock: a panic is contained and counted, and the hook is
    /// not called.
    pub(super) fn contain_locked<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let contained = contain(work);
        if contained.is_err() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        contained.ok()
    }

    /// Counts a panic that was contained elsewhere, and reports it.
    pub(crate) fn count_and_report(&self, message: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.report(message);
    }

    /// Returns the number of panics.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

opaque!([] Panics, count: count);

/// The settings of a timer.
pub struct Config {
    /// The length of a tick.
    pub tick: TickLength,
    /// The size of each wheel.
    pub wheel_size: WheelSize,
    /// The number of shards of a [`TaskTimer`](crate::TaskTimer): a power of two, at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub shard_count: usize,
    /// A [`ManualTimer`](crate::ManualTimer) advances the wheels. Tasks of one tick are handed over
    /// in the order of insertion. A task that is overdue when it is inserted waits for the next
    /// advance.
    pub manual: bool,
    /// The prefix of the threads' names, and the label of the timer's metrics.
    pub name: String,
    /// See [`SystemTimerBuilder::grace`](crate::SystemTimerBuilder::grace).
    pub(crate) grace: Option<Duration>,
}
