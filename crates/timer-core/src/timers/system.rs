//! `SystemTimer`: a clock, a reaper thread that advances the wheels, and workers that run the due
//! tasks. Its builder can replace each of the three.

use std::{ops::Deref, sync::Arc, time::Duration};

use crate::{
    driver::{
        clock::{Clock, DriverClock},
        config::Panics,
        driver::Driver,
        executor::{Executor, Workers},
        home::Home,
        shards::{MAX_SHARDS, default_shards},
        tick::TickLength,
    },
    observe::opaque,
    timers::{BuildError, timer::Timer},
    wheel::geometry::WheelSize,
};

/// The timer for programs: one reaper thread that sleeps until the next task is due, any number of
/// owners of wheels, and worker threads that run expired tasks. A handle: all clones refer to the
/// same timer. It derefs to [`Timer`], whose methods schedule, sleep and shut down.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::SystemTimer;
///
/// let timer = SystemTimer::new()?;
/// let (send, fired) = mpsc::channel();
/// timer.schedule(Duration::from_millis(5), move || send.send("five").unwrap())?;
/// let never = timer.schedule(Duration::from_secs(3600), || unreachable!())?;
/// assert!(timer.cancel(never));
/// assert_eq!(fired.recv()?, "five");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// Schedule: a clock read, one uncontended lock, and a place in the wheel; cancel: one lock. Both
/// are O(1) for common timeouts. No thread wakes while nothing is due.
///
/// # When the last handle is dropped
/// The threads end by themselves, after the workers have run the tasks that had already expired.
/// The drop does not wait for them; [`shutdown`](Timer::shutdown) does. Pending tasks are dropped
/// unrun. A [`Sleep`](crate::Sleep), a [`DelayQueue`](crate::DelayQueue) or a
/// [`TaskTimer`](crate::TaskTimer) keeps the threads running, but does not keep the timer's own
/// tasks.
#[derive(Clone)]
#[must_use = "when the last handle is dropped, its threads end and its tasks are dropped unrun"]
pub struct SystemTimer {
    timer: Timer,
}

impl SystemTimer {
    /// Makes a timer with the defaults: tick 1 ms, 64 slots a level, the machine's monotonic clock,
    /// one worker.
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system does not start a thread.
    pub fn new() -> Result<SystemTimer, BuildError> {
        SystemTimer::builder().build()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> SystemTimerBuilder {
        let mut driver = Driver::new();
        driver.config.shard_count = default_shards(8);
        SystemTimerBuilder {
            driver,
            workers: Some(1),
            #[cfg(feature = "tokio")]
            runtime: None,
        }
    }
}

opaque!([] SystemTimer);

impl Deref for SystemTimer {
    type Target = Timer;

    fn deref(&self) -> &Timer {
        &self.timer
    }
}

impl From<SystemTimer> for Timer {
    fn from(system: SystemTimer) -> Self {
        system.timer
    }
}

/// Configures a [`SystemTimer`].
#[derive(Debug)]
#[must_use = "starts nothing until it is built"]
pub struct SystemTimerBuilder {
    driver: Driver,
    /// `None` when jobs do not run on the timer's own workers.
    workers: Option<usize>,
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

impl SystemTimerBuilder {
    /// Sets the tick; 1 ms by default.
    pub fn tick(mut self, tick: TickLength) -> Self {
        self.driver.config.tick = tick;
        self
    }

    /// Sets the slots of a level: 64 by default; [`WheelSize::KAFKA`] is Kafka's 20. Each level of
    /// a timer has twice as many.
    pub fn wheel_size(mut self, size: WheelSize) -> Self {
        self.driver.config.wheel_size = size;
        self
    }

    /// Sets the number of shards of the timer's own tasks, of its sleeps, and of each
    /// [`TaskTimer`](crate::TaskTimer): a power of two up to [`MAX_SHARDS`]. By default eight for
    /// each processor, at least 8 and at most 256.
    pub fn shards(mut self, count: usize) -> Self {
        self.driver.config.shard_count = count;
        self
    }

    /// Replaces the clock. The reaper sleeps in real time: a clock that the program advances does
    /// not wake it. For such a clock use a [`ManualTimer`](crate::ManualTimer).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.driver.clock = DriverClock::User(Arc::new(clock));
        self
    }

    /// Sets the number of worker threads that run expired tasks; one by default, at least one.
    /// Tasks that fall due together are split among them. Of the calls to `workers`,
    /// [`executor`](Self::executor) and [`inline`](Self::inline) the last one counts.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count);
        self
    }

    /// Runs expired tasks on `executor` instead of worker threads of the timer's own.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.driver.executors_mut().of_timer = Some(Arc::new(executor));
        self.workers = None;
        self
    }

    /// Runs expired tasks on the reaper thread itself. A slow task then delays all others, so use
    /// this only for a timer with a single user.
    pub fn inline(mut self) -> Self {
        self.driver.executors_mut().of_timer = None;
        self.workers = None;
        self
    }

    /// Delays expiry by `bound` after a pause of the process, so that its threads can first read
    /// what arrived meanwhile. Off by default, and with a bound of zero.
    ///
    /// When a process that was stopped (SIGSTOP, a frozen container) goes on, many deadlines have
    /// passed, while heartbeats that came in time lie unread in its sockets. With a grace, the
    /// reaper notices that it wakes more than `bound` later than planned, or that a round of its
    /// own took longer than that. Everything that is due or falls due then waits for one more
    /// `bound`, the grace period. Events and cancels come as ever. A round that expires follows
    /// each period, so no load can put expiry off for ever, and a second pause within a period is
    /// not noticed.
    ///
    /// Choose `bound` well above the delays of a busy machine (100 ms to a few seconds), and above
    /// the duration of tasks that run [`inline`](Self::inline). While anything is pending the
    /// reaper wakes at least once each `bound`. So it notices every pause longer than twice the
    /// bound, and may notice one between once and twice.
    /// [`TimerStats::graces`](crate::TimerStats::graces) counts the periods.
    ///
    /// The grace holds for all that the reaper expires: tasks, registered sleeps, wheels of other
    /// owners. Code that compares the time itself does not wait: a [`Sleep`](crate::Sleep) by
    /// [`sleep_until`](Timer::sleep_until) that is first polled after its time is ready at once (a
    /// [`timeout`](crate::timeout) polls its future first). A [`DelayQueue`](crate::DelayQueue) has
    /// a [grace](crate::DelayQueue::grace) of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::SystemTimer;
    ///
    /// let timer = SystemTimer::builder().grace(Duration::from_secs(1)).build()?;
    /// assert_eq!(timer.stats().graces, 0);
    /// # Ok::<(), timer_core::BuildError>(())
    /// ```
    pub fn grace(mut self, bound: Duration) -> Self {
        self.driver.config.grace = Some(bound);
        self
    }

    /// Calls `hook` with the message of each panic of a task, a waker, an owner of wheels, an
    /// executor, or the clock on the reaper. The hook runs on the thread that panicked, after the
    /// program's panic hook. A panic of the clock while the reaper is being woken is only counted:
    /// the caller may hold a lock. When a periodic task ends because the timer is full
    /// ([`TimerError::Full`](crate::TimerError::Full)), the hook is called with that reason.
    pub fn on_panic(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.driver.executors_mut().panics = Arc::new(Panics::new(hook));
        self
    }

    /// Sets the prefix of the threads' names, and the label of the timer's metrics; `timer` by
    /// default. Timers with the same name share their metrics. A NUL character becomes a question
    /// mark.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.driver.config.name = name.into().replace('\0', "?");
        self
    }

    /// (Feature `tokio`.) Puts the timer on a tokio runtime, without a thread. The reaper is a task
    /// of the runtime that waits by tokio's clock, and expired tasks run as tasks of the runtime.
    /// So a test with a paused clock just works. Tasks may be scheduled from anywhere. (Another
    /// [clock](Self::clock) or [executor](Self::executor) may be set after this.)
    ///
    /// tokio waits in steps of a millisecond, so tasks expire up to a millisecond later, and later
    /// still when other tasks hold the runtime up. On a runtime that is not driven, or whose only
    /// thread is blocked, nothing expires: do work that blocks in `spawn_blocking`. When the
    /// runtime is dropped, the timer is shut down, on the thread that drops the runtime, or on a
    /// worker of a multi-thread runtime. [`shutdown`](Timer::shutdown) waits for no task.
    ///
    /// A paused clock advances by itself when all tasks wait. It may advance to the deadline of a
    /// timer that was cancelled since the reaper last looked, so a task that waits for a thread
    /// outside the runtime may find that its own time has passed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::SystemTimer;
    ///
    /// // In a test: #[tokio::test(start_paused = true)].
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let timer = SystemTimer::builder().tokio(tokio::runtime::Handle::current()).build()?;
    ///     let (send, fired) = tokio::sync::oneshot::channel();
    ///     let began = tokio::time::Instant::now();
    ///     timer.schedule(Duration::from_secs(3600), || send.send("an hour later").unwrap())?;
    ///     assert_eq!(fired.await?, "an hour later"); // at once
    ///     assert_eq!(began.elapsed().as_secs(), 3600);
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, runtime: tokio::runtime::Handle) -> Self {
        let clock = crate::driver::tokio::TokioClock::new(runtime.clone());
        self.driver.clock = DriverClock::Own(Arc::new(clock));
        self.runtime = Some(runtime.clone());
        self.executor(runtime)
    }

    /// Starts the timer.
    ///
    /// # Errors
    /// [`BuildError`] when a thread cannot be started, the shard count is out of bounds, or a tokio
    /// runtime has no time or has been shut down.
    pub fn build(self) -> Result<SystemTimer, BuildError> {
        let driver = Arc::new(self.start()?);
        Ok(SystemTimer {
            timer: driver.timer(),
        })
    }

    /// Starts the inside of the timer, as [`build`](Self::build) does.
    pub(super) fn start(self) -> Result<Driver, BuildError> {
        let SystemTimerBuilder {
            mut driver,
            workers,
            ..
        } = self;
        // A handle keeps its shard in 8 bits, and a mask maps a number to a shard.
        if !driver.config.shard_count.is_power_of_two() || driver.config.shard_count > MAX_SHARDS {
            return Err(BuildError::Shards(driver.config.shard_count));
        }
        // The executor comes first: the reaper hands jobs to it.
        if let Some(count) = workers {
            let name = format!("{}-worker", driver.config.name);
            let workers = Workers::start(&name, count).map_err(BuildError::Thread)?;
            let workers = Arc::new(workers);
            driver.workers = Some(workers.clone());
            driver.executors_mut().of_timer = Some(workers);
        }
        driver.executors_mut().home = Home::here();
        // The reaper is a task, or else a thread.
        #[cfg(feature = "tokio")]
        if let Some(runtime) = self.runtime {
            if !crate::driver::tokio::start_reaper(&mut driver, &runtime) {
                return Err(BuildError::NoTime);
            }
            // A runtime that has been shut down has closed the timer.
            if driver.is_closed() {
                return Err(BuildError::Closed);
            }
            return Ok(driver);
        }
        driver.start_reaper().map_err(BuildError::Thread)?;
        Ok(driver)
    }
}
