//! [`Timer`]: schedules tasks, makes sleeps and intervals, and advances the wheels of other owners.
//! The kinds of timer differ in how they are built and in what advances their wheels; each derefs
//! to `Timer`.

use std::{any::Any, mem, sync::Arc, time::Duration};

use crate::{
    driver::{clock::Moment, driver::Driver, handle::TimerHandle, tick::TickLength},
    observe::{TimerStats, opaque},
    timers::{
        ScheduleError, TimerError, TimerTask,
        interval::Interval,
        periodic::{self, Pace, Periodic},
        sleep::Sleep,
        task_timer::{TaskTimer, TimerInner},
    },
};

/// A timer of any kind: tasks are scheduled on it, and sleeps, queues and other crates' wheels
/// share its reaper. A [`SystemTimer`](crate::SystemTimer) and a
/// [`ManualTimer`](crate::ManualTimer) deref to one, so every function that takes a `&Timer` takes
/// them.
///
/// A `Timer` is a handle, cheap to clone. It is the same timer as its clones, and as the
/// `SystemTimer` or `ManualTimer` that it was made of; one timer may serve a whole process. A
/// struct that holds a `Timer` needs no type parameter, and its tests can advance its time.
///
/// No lock of the timer is held while a task runs, so a task may schedule and cancel tasks, itself
/// included.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{ManualTimer, ScheduleError, SystemTimer, Timer};
///
/// struct Sessions {
///     timer: Timer,
///     expired: mpsc::Sender<u32>,
/// }
///
/// impl Sessions {
///     fn open(&self, id: u32) -> Result<(), ScheduleError> {
///         let expired = self.expired.clone();
///         let expire = move || drop(expired.send(id));
///         self.timer.schedule(Duration::from_secs(30), expire)?;
///         Ok(())
///     }
/// }
///
/// // In production:
/// let (send, _) = mpsc::channel();
/// let sessions = Sessions { timer: SystemTimer::new()?.into(), expired: send };
/// sessions.open(7)?;
///
/// // In a test:
/// let timer = ManualTimer::new();
/// let (send, expired) = mpsc::channel();
/// let sessions = Sessions { timer: timer.clone().into(), expired: send };
/// sessions.open(7)?;
/// timer.advance(Duration::from_secs(30));
/// assert_eq!(expired.try_recv(), Ok(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct Timer {
    inner: Arc<TimerInner>,
}

opaque!([] Timer);

impl Driver {
    /// Returns the timer whose inside this is: one more of its handles or, if none is left, a new
    /// one with its own tasks and sleeps.
    pub fn timer(self: &Arc<Self>) -> Timer {
        let mut handles = self.handles.lock();
        let known = handles.upgrade().map(Arc::downcast::<TimerInner>);
        if let Some(Ok(inner)) = known {
            return Timer { inner };
        }
        let inner = TimerInner::new(self.clone());
        let made: Arc<dyn Any + Send + Sync> = inner.clone();
        *handles = Arc::downgrade(&made);
        Timer { inner }
    }
}

impl Timer {
    /// Drops a handle that this process has replaced. A handle from the process that forked this
    /// one is forgotten: a thread that is not here may hold its locks, and its tasks are not ours
    /// to drop.
    pub(super) fn let_go(self) {
        if self.inner.driver.is_inherited() {
            mem::forget(self);
        }
    }

    /// Returns the inside of the timer, which is the same for all kinds.
    pub(super) fn inner(&self) -> &TimerInner {
        &self.inner
    }

    /// Returns the name it was built with; `timer` unless one was set.
    pub fn name(&self) -> &str {
        &self.inner.driver.config.name
    }

    /// Returns the length of its tick.
    pub fn tick(&self) -> TickLength {
        self.inner.driver.config.tick
    }

    /// (Feature `metrics`.) Hands the [`stats`](Self::stats) to the installed `metrics` recorder,
    /// labelled with the timer's [name](crate::SystemTimerBuilder::name), and publishes each
    /// purgatory that was built on this timer and has a handle left. Call it before each scrape:
    /// nothing is published otherwise, and nothing on a task's path touches a shared metric.
    /// `docs/METRICS.md` lists the metrics. Costs as much as `stats` plus the publishing of each
    /// purgatory. A [`ManualTimer`](crate::ManualTimer) has no metrics of its own.
    ///
    /// Timers with the same name share their series, so counters and gauges add up. When the last
    /// handle is dropped, the timer's part of the gauges is removed. It comes back if a purgatory
    /// on the timer gives out another handle, and that handle publishes.
    ///
    /// ```
    /// use timer_core::{SystemTimer, Timer};
    ///
    /// struct Sessions {
    ///     timer: Timer,
    /// }
    ///
    /// let timer = SystemTimer::builder().name("sessions").build()?;
    /// let sessions = Sessions { timer: timer.into() };
    /// let scrape = || {
    ///     sessions.timer.publish();
    ///     // ... and render the recorder's page.
    /// };
    /// scrape();
    /// # Ok::<(), timer_core::BuildError>(())
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        if !self.inner.driver.config.manual {
            self.inner.publish();
        }
        self.inner.driver.publish_owners();
    }

    /// Returns the inside of the timer, for owners of wheels.
    pub fn driver(&self) -> Arc<Driver> {
        self.inner.driver.clone()
    }

    /// Returns the present on the timer's clock. Deadlines for [`schedule_at`](Self::schedule_at)
    /// and [`sleep_until`](Self::sleep_until) are moments after it.
    pub fn now(&self) -> Moment {
        Moment::from_nanos(self.inner.driver.now_ns())
    }

    /// Shuts the timer down and returns the tasks that never fired. Later tasks are refused, sleeps
    /// are woken, and owners of wheels on the timer are shut down.
    ///
    /// The call waits, for at most `limit` in all, until the timer's threads have run the tasks
    /// that fired and those that the closing ended. Tasks that are left then still run, and their
    /// thread ends after them. With [`Duration::MAX`] none are left.
    ///
    /// On a thread of a timer, and in a child of `fork`, which has none of the timer's threads, the
    /// call does not wait. A timer on a tokio runtime, or with an
    /// [executor](crate::SystemTimerBuilder::executor) of yours, has no worker to wait for. Where
    /// jobs run in place ([`inline`](crate::SystemTimerBuilder::inline), a
    /// [`ManualTimer`](crate::ManualTimer)), those of the closing run before the call returns,
    /// whatever the limit. A shutdown on another thread waits for them, within its own limit; it
    /// also waits for the closing by a runtime that is dropped meanwhile. Tasks that another
    /// thread's [`advance`](crate::ManualTimer::advance) is running are not waited for.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use timer_core::SystemTimer;
    ///
    /// let timer = SystemTimer::new()?;
    /// let (begun, running) = mpsc::channel();
    /// let (release, blocked) = mpsc::channel::<()>();
    /// timer.schedule(Duration::ZERO, move || {
    ///     begun.send(()).unwrap();
    ///     let _ = blocked.recv();
    /// })?;
    /// running.recv()?;
    /// assert!(timer.shutdown(Duration::from_millis(10)).threads >= 1);
    /// release.send(())?;
    /// assert_eq!(timer.shutdown(Duration::MAX).threads, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> TimerLeft {
        let mut unfired = Vec::new();
        let take = || {
            if let Some(tasks) = self.inner.tasks.get() {
                unfired = tasks.shutdown();
            }
        };
        let threads = self.inner.driver.shutdown(limit, take);
        TimerLeft { unfired, threads }
    }

    /// Runs `task` once `delay` has passed: never early, and at most one tick late on a machine
    /// that keeps up. [`Duration::MAX`] and the like mean "practically never". O(1) for common
    /// timeouts: a clock read, one uncontended lock, a place in the wheel.
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full.
    pub fn schedule(
        &self,
        delay: Duration,
        task: impl TimerTask,
    ) -> Result<TimerHandle, ScheduleError> {
        self.inner.tasks().schedule(delay, Box::new(task))
    }

    /// Schedules a task as [`schedule`](Self::schedule) does, but at a moment of the timer's clock.
    /// A moment in the past is due at once, [`Moment::NEVER`] never. Reads no clock. O(1) for
    /// common timeouts.
    ///
    /// # Errors
    /// Returns an error as [`schedule`](Self::schedule) does.
    pub fn schedule_at(
        &self,
        deadline: Moment,
        task: impl TimerTask,
    ) -> Result<TimerHandle, ScheduleError> {
        self.inner.tasks().schedule_at(deadline, Box::new(task))
    }

    /// Cancels a task, which leaves the wheel at once and is dropped on this thread. Returns true
    /// if this call kept the task from running. O(1).
    pub fn cancel(&self, handle: TimerHandle) -> bool {
        self.inner.tasks().cancel(handle).is_some()
    }

    /// Reschedules a pending task to `delay` from now, earlier or later; it keeps its handle and its
    /// memory. Returns false if it is no longer pending. O(1).
    ///
    /// The new delay counts from the start of the call. If several threads call, the last one to
    /// take the lock wins. So a thread that stalls before the lock may shorten a delay that another
    /// thread has set meanwhile.
    pub fn reschedule(&self, handle: TimerHandle, delay: Duration) -> bool {
        self.inner.tasks().reschedule(handle, delay)
    }

    /// Returns true until the task falls due or is cancelled. O(1).
    pub fn is_pending(&self, handle: TimerHandle) -> bool {
        self.inner.tasks().is_pending(handle)
    }

    /// Runs `task` again and again, `period` from one *start* to the next. Starts that a long run
    /// misses are skipped; they do not pile up. See [`Periodic`], and for many such tasks
    /// [`Periodic::first_after`].
    ///
    /// The task is boxed here, once. This call and the end of each run cost as much as
    /// [`schedule`](Self::schedule): O(1) for common periods.
    ///
    /// # Errors
    /// [`TimerError`] when the period is zero, or the timer is shut down or full.
    pub fn schedule_at_fixed_rate(
        &self,
        first: Duration,
        period: Duration,
        task: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, TimerError> {
        periodic::start(self.inner.tasks(), first, Pace::Rate(period), task)
    }

    /// Runs `task` again and again, `delay` from the *end* of one run to the start of the next. See
    /// [`Periodic`]. Costs as much as [`schedule_at_fixed_rate`](Self::schedule_at_fixed_rate).
    ///
    /// # Errors
    /// Returns an error as [`schedule_at_fixed_rate`](Self::schedule_at_fixed_rate) does.
    pub fn schedule_with_fixed_delay(
        &self,
        first: Duration,
        delay: Duration,
        task: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, TimerError> {
        periodic::start(self.inner.tasks(), first, Pace::Delay(delay), task)
    }

    /// Returns a future that is ready once `delay` has passed from this call. [`Duration::MAX`] and
    /// the like mean "practically never". Works on any runtime; see [`Sleep`], and
    /// [`timeout`](crate::timeout) for a limit on another future. O(1): a clock read; the first
    /// poll registers the sleep.
    pub fn sleep(&self, delay: Duration) -> Sleep {
        Sleep::after(&self.inner, delay)
    }

    /// Returns a future as [`sleep`](Self::sleep) does, but for a moment of the timer's clock. A
    /// moment in the past is due at once, [`Moment::NEVER`] never. O(1); reads no clock.
    pub fn sleep_until(&self, deadline: Moment) -> Sleep {
        Sleep::until(&self.inner, deadline)
    }

    /// Returns an interval that ticks once each `period`, first a period after this call (tokio's
    /// ticks at once). See [`Interval`]. O(1): a clock read; the first poll registers the interval.
    ///
    /// # Errors
    /// [`TimerError::ZeroPeriod`].
    pub fn interval(&self, period: Duration) -> Result<Interval, TimerError> {
        Interval::new(&self.inner, period)
    }

    /// Makes a timer for tasks of one type, each run by `handler`. A task needs no box, and a
    /// pending task can be reached by its handle. After shutdown each task is refused. O(1).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let (send, expired) = mpsc::channel();
    /// let requests = timer.with_handler(move |request: u32| send.send(request).unwrap());
    ///
    /// let second = Duration::from_secs(1);
    /// let answered = requests.schedule(second, 1)?;
    /// requests.schedule(second, 2)?;
    /// assert_eq!(requests.cancel(answered), Some(1)); // it is ours again
    /// timer.advance(second);
    /// assert_eq!(expired.try_iter().collect::<Vec<_>>(), [2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_handler<T: Send + 'static>(
        &self,
        handler: impl Fn(T) + Send + Sync + 'static,
    ) -> TaskTimer<T> {
        TaskTimer::on(self.driver(), handler, None)
    }

    /// Returns the number of tasks scheduled here and not yet due. O(shards).
    pub fn len(&self) -> usize {
        self.inner.tasks().len()
    }

    /// Returns true when no task is scheduled here. O(shards).
    pub fn is_empty(&self) -> bool {
        self.inner.tasks().is_empty()
    }

    /// Returns the timer's counts, over all wheels that it advances. O(wheels × shards), each shard
    /// locked for a moment, one after the other.
    pub fn stats(&self) -> TimerStats {
        self.inner.driver.stats()
    }

    /// Returns the number of registered sleeps: polled, not yet due and not dropped. Exact when
    /// idle. O(shards).
    pub fn sleepers(&self) -> usize {
        self.inner.sleepers().map_or(0, TaskTimer::len)
    }
}

/// Tasks and threads that a [`shutdown`](Timer::shutdown) left.
#[derive(Debug)]
#[non_exhaustive]
pub struct TimerLeft {
    /// The timer's own tasks that never fired.
    pub unfired: Vec<Box<dyn TimerTask>>,
    /// The number of the timer's threads that have not ended: each is in a task or callback, has
    /// some to run, or was not given the time to end. If one of them calls the shutdown, it is
    /// counted as well. A thread that is still closing the timer, in another shutdown or in the
    /// drop of a runtime, is also counted.
    pub threads: usize,
}
