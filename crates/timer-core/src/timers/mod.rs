//! The timers that users hold: one with a thread, one turned by hand, and what is scheduled on
//! them; why one could not be built, or a task not scheduled.

use std::{error::Error, fmt, io};

use crate::{driver::shards::MAX_SHARDS, sync::plain::Mutex};

pub(crate) mod manual;
pub(crate) mod periodic;
pub(crate) mod sleep;
pub(crate) mod system;
pub(crate) mod task_timer;
pub(crate) mod timer;

/// Something that runs when its time has come. Every `FnOnce()` is one.
///
/// It runs on the timer's executor, with nothing of the timer locked, so it may schedule and
/// cancel, itself included. A panic in it is contained.
pub trait TimerTask: Send + 'static {
    /// Runs the task.
    fn run(self: Box<Self>);
}

impl<F: FnOnce() + Send + 'static> TimerTask for F {
    fn run(self: Box<Self>) {
        self();
    }
}

impl fmt::Debug for dyn TimerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerTask")
    }
}

/// A timer, or something with a timer of its own, could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The operating system gave no thread.
    Thread(io::Error),
    /// The count of a timer's shards, or of a purgatory's shards, is no power of two from 1 to
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    Shards(usize),
    /// The timer, or the runtime that it is on, has been shut down.
    Closed,
    /// The tokio runtime of the timer has no time (`enable_time`), so it cannot wait for it to
    /// pass. Found by a panic of tokio's, which is contained; the program's panic hook is told of
    /// it.
    #[cfg(feature = "tokio")]
    NoTime,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Thread(_) => f.write_str("no thread for the timer"),
            BuildError::Shards(count) => {
                write!(
                    f,
                    "{count} shards or shards: not a power of two in 1..={MAX_SHARDS}"
                )
            }
            BuildError::Closed => f.write_str("the timer has been shut down"),
            #[cfg(feature = "tokio")]
            BuildError::NoTime => f.write_str("the tokio runtime was built without `enable_time`"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// A task could not be scheduled; it comes back.
///
/// It is `Send` and `Sync` for every task that is `Send`, so `?` takes it into `anyhow::Error` as
/// it is, the task inside; and [`TimerError`] is the same without the task.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{ManualTimer, TimerError, Timer};
///
/// let timer = ManualTimer::new();
/// let names = timer.with_handler(|name: &str| println!("{name}"));
/// timer.shutdown(Duration::MAX);
/// let refused = names.schedule(Duration::ZERO, "late").unwrap_err();
/// assert_eq!(refused.reason, TimerError::Closed);
/// assert_eq!(refused.into_task(), "late"); // it is ours again
/// ```
#[must_use = "the task is in it"]
#[non_exhaustive]
pub struct ScheduleError<T = Box<dyn TimerTask>> {
    /// Never locked: so it is `Sync` for a task that is not.
    task: Mutex<T>,
    /// Why.
    pub reason: TimerError,
}

impl<T> ScheduleError<T> {
    pub(crate) fn new(task: T, reason: TimerError) -> Self {
        ScheduleError {
            task: Mutex::new(task),
            reason,
        }
    }

    /// The task.
    pub fn into_task(self) -> T {
        self.task.into_inner()
    }
}

impl<T> From<ScheduleError<T>> for TimerError {
    fn from(refused: ScheduleError<T>) -> Self {
        refused.reason
    }
}

/// Why a task could not be scheduled, a sleep did not sleep, or a future was too late. In a
/// [`ScheduleError`] the task is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerError {
    /// The timer has been shut down.
    Closed,
    /// As many tasks are pending as the timer was built to take, or as one shard can take.
    Full {
        /// How many those are.
        limit: usize,
    },
    /// A period of zero would run without end.
    ZeroPeriod,
    /// A [`timeout`](crate::timeout): the time is up.
    Elapsed,
}

impl<T> fmt::Debug for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not scheduled: {}", self.reason)
    }
}

impl fmt::Display for TimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimerError::Closed => f.write_str("the timer has been shut down"),
            TimerError::Full { limit } => write!(f, "{limit} tasks are pending already"),
            TimerError::ZeroPeriod => f.write_str("a period must be above zero"),
            TimerError::Elapsed => f.write_str("the time is up"),
        }
    }
}

impl<T> Error for ScheduleError<T> {}

impl Error for TimerError {}
