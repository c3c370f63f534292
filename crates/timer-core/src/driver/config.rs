//! [`Config`]: the settings of a timer, which its builder changes and which stay as they are once
//! its threads run. One of them is the program's hook for contained panics.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{driver::clock::TickLength, panics::contain, wheel::geometry::WheelSize};

/// A function for the message of each contained panic.
type Hook = dyn Fn(&str) + Send + Sync;

/// The program's function for contained panics, if it has set one.
#[derive(Clone, Default)]
pub(crate) struct PanicHook(Option<Arc<Hook>>);

impl PanicHook {
    pub(crate) fn new(hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        PanicHook(Some(Arc::new(hook)))
    }

    /// Calls the hook. A panic in it is contained.
    pub(super) fn report(&self, message: &str) {
        if let Some(hook) = &self.0 {
            let _ = contain(|| hook(message));
        }
    }
}

/// Counts the panics of a timer's executors and jobs, and reports them to the program's hook.
#[derive(Default)]
pub(crate) struct Panics {
    count: AtomicU64,
    hook: PanicHook,
}

impl Panics {
    pub(crate) fn new(hook: PanicHook) -> Self {
        Panics {
            count: AtomicU64::new(0),
            hook,
        }
    }

    /// Calls `work`; `None` if it panics, which is contained, counted and reported.
    pub(super) fn contain<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        match contain(work) {
            Ok(value) => Some(value),
            Err(message) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                self.hook.report(&message);
                None
            }
        }
    }

    /// Returns the number of panics.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panics")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// The settings of a timer.
pub struct Config {
    /// The length of a tick.
    pub tick: TickLength,
    /// The size of each wheel.
    pub wheel_size: WheelSize,
    /// The number of shards of a [`TaskTimer`](crate::TaskTimer): a power of two, at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub shard_count: usize,
    /// The wheels are advanced by a [`ManualTimer`](crate::ManualTimer). Tasks of one tick are
    /// handed over in the order of insertion. A task that is overdue as it is inserted waits for
    /// the next advance.
    pub manual: bool,
    /// The start of the threads' names, and the label of the timer's metrics.
    pub name: String,
    /// See [`SystemTimerBuilder::grace`](crate::SystemTimerBuilder::grace).
    pub(crate) grace: Option<Duration>,
    pub(crate) on_panic: PanicHook,
}
