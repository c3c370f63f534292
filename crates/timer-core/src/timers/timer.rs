//! [`Timer`]: what tasks are scheduled on, and what the wheels of others are turned by.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    driver::{
        handle::TimerHandle,
        spi::{Driver, TimerClosed},
    },
    observe::stats::TimerStats,
    timers::{
        errors::ScheduleError,
        interval::Interval,
        periodic::{self, Pace, Periodic, PeriodicError},
        sleep::{Sleep, Sleeps},
        task::TimerTask,
        task_timer::TaskTimer,
        timeout::TimeoutFuture,
    },
};

/// A timer: tasks are scheduled on it, and others' wheels can be driven by it.
///
/// A handle, cheap to clone. The same timer may serve a whole process: whatever keeps wheels of
/// its own, such as a [`TaskTimer`] or a purgatory, takes the [driver](Self::driver) and shares the
/// reaper.
///
/// Nothing of the timer is locked while a task runs, so a task may schedule and cancel, itself
/// included. The trait is not dyn compatible: what takes any timer is generic over it.
pub trait Timer: Clone + Send + Sync + fmt::Debug + 'static {
    /// The timer's own tasks: what `schedule` schedules on.
    fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>>;

    /// Those who sleep on the timer: what [`sleep`](Self::sleep) registers with.
    fn sleeps(&self) -> &Sleeps;

    /// What turns the wheels, for those who keep their own.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Ends the timer: later tasks are refused, every owner of wheels is told, the tasks that never
    /// fired are handed back, those who sleep are woken, and the timer's threads are waited for
    /// (but not from a thread of any timer), after they have run what had expired. A timer on a
    /// tokio runtime has none.
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

    /// As [`schedule`](Self::schedule), but `task` may run up to `tolerance` after `delay`: at the
    /// first tick in between at which the coarsest bucket begins that does, if one does. Such a
    /// task is handed down fewer times, if at all, and runs with others, so that the timer wakes up
    /// less often. For what need not be exact, such as closing idle connections: of a minute, five
    /// seconds, with the default tick and wheel. The larger the tolerance, the later it may be:
    /// [`Duration::MAX`] is "practically never".
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{ManualTimer, Timer};
    ///
    /// let timer = ManualTimer::new();
    /// let (delay, tolerance) = (Duration::from_secs(60), Duration::from_secs(5));
    /// timer.schedule_within(delay, tolerance, || println!("closed")).unwrap();
    /// timer.advance(delay - Duration::from_millis(1));
    /// assert_eq!(timer.len(), 1);
    /// timer.advance(tolerance + Duration::from_millis(1));
    /// assert_eq!(timer.len(), 0);
    /// ```
    ///
    /// # Errors
    /// As there.
    fn schedule_within(
        &self,
        delay: Duration,
        tolerance: Duration,
        task: impl TimerTask,
    ) -> Result<TimerHandle, ScheduleError> {
        self.tasks().schedule_within(delay, tolerance, Box::new(task))
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
        self.tasks().drop_pending(handle)
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

    /// A future that is ready once `delay` has passed from this call. [`Duration::MAX`] and the
    /// like mean "practically never". On any runtime; see [`Sleep`].
    fn sleep(&self, delay: Duration) -> Sleep {
        self.sleeps().sleep(delay)
    }

    /// As [`sleep`](Self::sleep), until a moment of the timer's clock; one in the past is due at
    /// once, and `u64::MAX` never. Reads no clock.
    fn sleep_until_ns(&self, deadline_ns: u64) -> Sleep {
        self.sleeps().sleep_until_ns(deadline_ns)
    }

    /// A future that yields what `future` does, or an error when `limit` has passed from this call
    /// and it was not ready. See [`TimeoutFuture`].
    fn timeout<F: IntoFuture>(&self, limit: Duration, future: F) -> TimeoutFuture<F::IntoFuture> {
        TimeoutFuture::new(future.into_future(), self.sleep(limit))
    }

    /// Ticks to be awaited, one each `period`, the first a period from this call (not at once, as
    /// tokio's). See [`Interval`].
    ///
    /// # Errors
    /// [`PeriodicError::ZeroPeriod`].
    fn interval(&self, period: Duration) -> Result<Interval, PeriodicError> {
        self.interval_from(period, period)
    }

    /// As [`interval`](Self::interval), with the first tick after `first`, which may be zero.
    ///
    /// # Errors
    /// As there.
    fn interval_from(&self, first: Duration, period: Duration) -> Result<Interval, PeriodicError> {
        Interval::new(self.sleeps(), first, period)
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

    /// What the timer holds and has done, over all wheels that it turns. O(wheels × shards ×
    /// buckets), each shard locked for a moment, one after the other.
    fn stats(&self) -> TimerStats;

    /// How many tasks scheduled here panicked, and wakers of those who sleep. Each panic was
    /// contained.
    fn panicked(&self) -> u64 {
        self.tasks().panicked() + self.sleeps().panicked()
    }
}
