//! The words of this crate as traits: [`TimerTask`] is what runs, [`Timer`] what it is scheduled
//! on, [`Driver`] what turns wheels (a reaper thread in [`SystemTimer`](crate::SystemTimer), a hand
//! in [`ManualTimer`](crate::ManualTimer)), [`Turns`] an owner of wheels to be turned; and the errors.

use std::{
    error::Error,
    fmt, io,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    executor::{Job, Panicked},
    geometry::WheelSize,
    periodic::{self, Pace, Periodic, PeriodicError},
    shards::{Bell, TimerHandle},
    stats::{TimerStats, WheelTally},
    sync::planted,
    tasks::TaskTimer,
    tick::TickLength,
    wheel::Turn,
};

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

impl TimerTask for Arc<dyn SharedTask> {
    fn run(self: Box<Self>) {
        SharedTask::run(&**self);
    }
}

/// A task that several may hold: scheduled as an `Arc<dyn SharedTask>`, any number of times.
pub trait SharedTask: Send + Sync + 'static {
    /// Runs the task.
    fn run(&self);
}

/// A timer: tasks are scheduled on it, and others' wheels can be driven by it.
///
/// A handle, cheap to clone. The same timer may serve a whole process: whatever keeps wheels of
/// its own, such as a [`TaskTimer`] or a purgatory, takes the [driver](Self::driver) and shares the
/// reaper.
///
/// Nothing of the timer is locked while a task runs, so a task may schedule and cancel, itself
/// included.
pub trait Timer: Clone + Send + Sync + fmt::Debug + 'static {
    /// The timer's own tasks: what `schedule` schedules on.
    fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>>;

    /// What turns the wheels, for those who keep their own.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Ends the timer: later tasks are refused, every owner of wheels is told, the tasks that
    /// never fired are handed back, and the timer's threads are waited for (but not from a thread
    /// of any timer), after they have run what had expired.
    fn shutdown(&self) -> Vec<Box<dyn TimerTask>>;

    /// Runs `task` once `delay` has passed: never before, and when the machine keeps up within
    /// one tick after. [`Duration::MAX`] and the like mean "practically never". O(1) for what a
    /// timeout usually is: a clock read, one lock that no other thread wants, a place in the wheel.
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full.
    fn schedule(
        &self,
        delay: Duration,
        task: impl TimerTask,
    ) -> Result<TimerHandle, ScheduleError> {
        self.tasks().schedule(delay, Box::new(task))
    }

    /// As [`schedule`](Self::schedule), at a moment of the timer's clock instead of after a delay;
    /// one in the past is due at once. Reads no clock.
    ///
    /// # Errors
    /// As there.
    fn schedule_at(
        &self,
        deadline_ns: u64,
        task: impl TimerTask,
    ) -> Result<TimerHandle, ScheduleError> {
        self.tasks().schedule_at(deadline_ns, Box::new(task))
    }

    /// Cancels a task: out of the wheel at once, dropped on this thread. True if that kept it from
    /// running. O(1).
    fn cancel(&self, handle: TimerHandle) -> bool {
        if planted("cancel looks, then acts") {
            return self.is_pending(handle) && (self.tasks().cancel(handle), true).1;
        }
        self.tasks().cancel(handle).is_some()
    }

    /// Gives a pending task `delay` from now, earlier or later than before; it keeps its handle,
    /// and nothing is allocated. False if it is pending no more. O(1).
    fn reschedule(&self, handle: TimerHandle, delay: Duration) -> bool {
        self.tasks().reschedule(handle, delay)
    }

    /// True until the task falls due or is cancelled. O(1).
    fn is_pending(&self, handle: TimerHandle) -> bool {
        self.tasks().is_pending(handle)
    }

    /// Runs `task` again and again, `period` from one *start* to the next. A run that takes longer
    /// than that makes the starts it missed fall out; they do not pile up. See [`Periodic`].
    ///
    /// # Errors
    /// [`PeriodicError`] when the period is zero, or the timer is shut down or full.
    fn schedule_at_fixed_rate(
        &self,
        first: Duration,
        period: Duration,
        task: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, PeriodicError> {
        periodic::start(self.tasks(), first, Pace::Rate(period), task)
    }

    /// Runs `task` again and again, `delay` from the *end* of one run to the start of the next. See
    /// [`Periodic`].
    ///
    /// # Errors
    /// As [`schedule_at_fixed_rate`](Self::schedule_at_fixed_rate).
    fn schedule_with_fixed_delay(
        &self,
        first: Duration,
        delay: Duration,
        task: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, PeriodicError> {
        periodic::start(self.tasks(), first, Pace::Delay(delay), task)
    }

    /// Wheels for tasks of one type, each run by `handler`: no box a task, and a pending one can be
    /// reached by its handle.
    ///
    /// # Errors
    /// [`TimerClosed`] after shutdown.
    fn with_handler<T: Send + 'static>(
        &self,
        handler: impl Fn(T) + Send + Sync + 'static,
    ) -> Result<TaskTimer<T>, TimerClosed> {
        TaskTimer::on(self.driver(), handler)
    }

    /// Tasks scheduled here and not yet due. O(shards).
    fn len(&self) -> usize {
        self.tasks().len()
    }

    /// True when no task is scheduled here. O(shards).
    fn is_empty(&self) -> bool {
        self.tasks().is_empty()
    }

    /// The earliest deadline of the tasks scheduled here, on the timer's clock, rounded up to its
    /// tick. O(shards × (levels + the tasks of one bucket a level)).
    fn next_deadline_ns(&self) -> Option<u64> {
        self.tasks().next_deadline_ns()
    }

    /// What the timer holds and has done, over all wheels that it turns. O(wheels × shards × buckets), each
    /// shard locked for a moment, one after the other.
    fn stats(&self) -> TimerStats;

    /// How many tasks scheduled here panicked. Each panic was contained.
    fn panicked(&self) -> u64 {
        self.tasks().panicked()
    }
}

/// What turns wheels: a clock, a tick, and whoever wakes when the next bucket is due.
///
/// One driver serves any number of owners of wheels ([`Turns`]), each with its own kind of task.
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// The present, in nanoseconds since its clock's origin.
    fn now_ns(&self) -> u64;

    /// The length of a tick.
    fn tick(&self) -> TickLength;

    /// The size of each wheel.
    fn wheel_size(&self) -> WheelSize;

    /// Into how many shards an owner should part its wheels: a power of two, at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    fn shards(&self) -> usize;

    /// True when tasks of one tick are to be handed over in the order they were inserted.
    fn in_order(&self) -> bool;

    /// A bell by which wheels say that they have work earlier than the timer knows of.
    fn bell(&self) -> Arc<Bell>;

    /// Has `wheels` turned from now on, until they are dropped.
    ///
    /// # Errors
    /// [`TimerClosed`] after shutdown.
    fn attach(&self, bell: &Arc<Bell>, wheels: Weak<dyn Turns>) -> Result<(), TimerClosed>;

    /// Runs a job where expired tasks run.
    fn execute(&self, job: Job);

    /// True when [`execute`](Self::execute) runs jobs on the calling thread.
    fn executes_inline(&self) -> bool;

    /// How many tasks each [`TaskTimer`] takes at most.
    fn pending_max(&self) -> Option<usize>;

    /// Tells whoever wants to know of a contained panic.
    fn report_panic(&self, panicked: &Panicked);
}

/// An owner of sharded wheels, as a timer sees it.
pub trait Turns: Send + Sync + 'static {
    /// Turns one shard's wheel to `now` (in ticks) within a bounded amount of work, and hands
    /// over what fell due. Returns what that was and when to call again. Called with nothing locked.
    fn turn(self: Arc<Self>, shard: usize, now: u64) -> Turn;

    /// The tick at which a shard next has work.
    fn next_due(&self, shard: usize) -> Option<u64>;

    /// Adds what the wheels hold at `now` (in ticks), and have cancelled.
    /// By default nothing.
    fn tally(&self, now: u64, tally: &mut WheelTally) {
        let _ = (now, tally);
    }

    /// The timer has been shut down: nothing will expire any more. Called with nothing locked.
    fn timer_closed(self: Arc<Self>);
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

/// A timer, or something with a timer of its own, could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The operating system gave no thread.
    Thread(io::Error),
    /// The name cannot name a thread: it holds a NUL character.
    Name(String),
    /// The shard count is no power of two in `1..=64`.
    Shards(usize),
    /// The timer to be shared has been shut down.
    Closed(TimerClosed),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Thread(_) => f.write_str("no thread for the timer"),
            BuildError::Name(name) => write!(f, "{name:?} cannot name a thread"),
            BuildError::Shards(count) => {
                let max = crate::MAX_SHARDS;
                write!(f, "{count} shards: not a power of two in 1..={max}")
            }
            BuildError::Closed(_) => f.write_str("the timer cannot be shared"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BuildError::Thread(error) => Some(error),
            BuildError::Name(_) | BuildError::Shards(_) => None,
            BuildError::Closed(error) => Some(error),
        }
    }
}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> Self {
        BuildError::Thread(error)
    }
}

impl From<TimerClosed> for BuildError {
    fn from(error: TimerClosed) -> Self {
        BuildError::Closed(error)
    }
}

/// A task could not be scheduled; it comes back.
#[non_exhaustive]
pub struct ScheduleError<T = Box<dyn TimerTask>> {
    /// The task.
    pub task: T,
    /// Why.
    pub reason: ScheduleErrorReason,
}

/// Why a task could not be scheduled. An error by itself, for those to whom the task is no error to carry
/// around: it is `Send` and `Sync` whatever the task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleErrorReason {
    /// The timer has been shut down.
    Closed,
    /// As many tasks are pending as the timer was built to take, or as one shard can take.
    Full {
        /// How many those are.
        limit: usize,
    },
}

impl<T> fmt::Debug for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for ScheduleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not scheduled: {}", self.reason)
    }
}

impl fmt::Display for ScheduleErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleErrorReason::Closed => f.write_str("the timer has been shut down"),
            ScheduleErrorReason::Full { limit } => write!(f, "{limit} tasks are pending already"),
        }
    }
}

impl<T> Error for ScheduleError<T> {}

impl Error for ScheduleErrorReason {}
