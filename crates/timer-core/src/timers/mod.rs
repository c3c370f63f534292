//! The timers that users hold: one with a thread, one that the program advances. Then the tasks,
//! sleeps and queues on them, and their errors.

use std::{error::Error, fmt, io};

use crate::{
    driver::shards::MAX_SHARDS, observe::opaque, sync::HandedBack, wheel::node::MAX_TASKS,
};

pub(crate) mod delay_queue;
pub(crate) mod interval;
pub(crate) mod manual;
#[cfg(feature = "tokio")]
pub(crate) mod of_runtime;
pub(crate) mod periodic;
pub(crate) mod shared;
pub(crate) mod sleep;
pub(crate) mod system;
pub(crate) mod task_timer;
pub(crate) mod timer;

/// The message of [`BuildError::Forked`] and [`TimerError::Forked`].
const FORKED: &str = "the timer's threads are in the process that this one was forked from";

/// A task that runs when its time has come. Every `FnOnce()` is one.
///
/// The task runs on the timer's executor, under no lock of the timer, so it may schedule and cancel
/// tasks, itself included. A panic in it is contained.
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

/// The error of a timer, or of an owner of wheels, that could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The operating system did not start a thread.
    Thread(io::Error),
    /// The number of shards is not a power of two from 1 to [`MAX_SHARDS`](crate::MAX_SHARDS).
    Shards(usize),
    /// The timer, or the runtime that it is on, has been shut down.
    Closed,
    /// The timer was built before this process was forked, and has no threads in it.
    Forked,
    /// The tokio runtime of the timer was built without time (`enable_time`). tokio panics in that
    /// case; the panic is contained, but the program's panic hook sees it.
    #[cfg(feature = "tokio")]
    NoTime,
    /// [`Timer::tokio`](crate::Timer::tokio) was called outside a tokio runtime.
    #[cfg(feature = "tokio")]
    NoRuntime,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Thread(_) => f.write_str("no thread for the timer"),
            BuildError::Shards(count) => {
                write!(f, "{count} shards: not a power of two in 1..={MAX_SHARDS}")
            }
            BuildError::Closed => f.write_str("the timer or its runtime has been shut down"),
            BuildError::Forked => f.write_str(FORKED),
            #[cfg(feature = "tokio")]
            BuildError::NoTime => f.write_str("the tokio runtime was built without `enable_time`"),
            #[cfg(feature = "tokio")]
            BuildError::NoRuntime => f.write_str("called outside a tokio runtime"),
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

/// The error of a task that could not be scheduled. It hands the task back.
///
/// The error is `Send` and `Sync` for every task that is `Send`, so `?` converts it into
/// `anyhow::Error`, with the task inside. [`TimerError`] is the same error without the task.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{ManualTimer, TimerError};
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
    task: HandedBack<T>,
    /// The reason.
    pub reason: TimerError,
}

impl<T> ScheduleError<T> {
    pub(crate) fn new(task: T, reason: TimerError) -> Self {
        ScheduleError {
            task: HandedBack::new(task),
            reason,
        }
    }

    /// Hands back a task for which the wheel has no place.
    pub(crate) fn full(task: T) -> Self {
        let limit = MAX_TASKS as usize;
        ScheduleError::new(task, TimerError::Full { limit })
    }

    /// Returns the task.
    pub fn into_task(self) -> T {
        self.task.into_inner()
    }
}

impl<T> From<ScheduleError<T>> for TimerError {
    fn from(refused: ScheduleError<T>) -> Self {
        refused.reason
    }
}

/// The reason why a task could not be scheduled, a sleep did not sleep, or a future was too late. A
/// [`ScheduleError`] holds it together with the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerError {
    /// The timer has been shut down.
    Closed,
    /// The timer was built before this process was forked, and has no threads in it: build another
    /// timer here. The timer notices this when a task or sleep would have to wake a thread, and
    /// returns this error from then on. Until then, a task or sleep that is due after others that
    /// were pending at the fork is accepted, and never fires.
    Forked,
    /// A shard of the timer, or the queue, holds `limit` pending tasks, and takes no more.
    Full {
        /// The number of those tasks.
        limit: usize,
    },
    /// The period is zero: the task would run without end.
    ZeroPeriod,
    /// The time of a [`timeout`](crate::timeout) is up.
    Elapsed,
}

opaque!([T] ScheduleError<T>, reason: reason);

impl<T> fmt::Display for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not scheduled: {}", self.reason)
    }
}

impl fmt::Display for TimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimerError::Closed => f.write_str("the timer has been shut down"),
            TimerError::Forked => f.write_str(FORKED),
            TimerError::Full { limit } => write!(f, "{limit} tasks are pending already"),
            TimerError::ZeroPeriod => f.write_str("a period must be above zero"),
            TimerError::Elapsed => f.write_str("the time is up"),
        }
    }
}

impl<T> Error for ScheduleError<T> {}

impl Error for TimerError {}
