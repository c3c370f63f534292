//! `SystemTimer`: a clock, a reaper thread that turns the wheels, and workers that run what fell
//! due.

use std::sync::Arc;

#[cfg(feature = "metrics")]
use crate::observe::publish;
use crate::{
    driver::{
        clock::{Clock, TickLength},
        driver::Driver,
        executor::{Executor, Inline, Workers},
        shards::MAX_SHARDS,
    },
    timers::{BuildError, task_timer::Inside, timer::Timer},
    wheel::geometry::WheelSize,
};

/// The timer for programs: one reaper thread that sleeps until the next task is due, any number of
/// owners of wheels, and worker threads that run what expired. A handle: clones are the same timer.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{SystemTimer, Timer};
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
/// Schedule: a clock read, one lock that no other thread wants, and a place in the wheel; cancel:
/// one lock. Both O(1) for what a timeout usually is. No thread wakes while nothing is due.
///
/// # When the last handle is dropped
/// The threads end by themselves, after the workers have run what had already expired. Nobody
/// waits for them; [`shutdown`](Timer::shutdown) does. Tasks still pending are dropped unrun. A
/// [`Sleep`](crate::Sleep) counts as a handle.
#[derive(Clone, Debug)]
#[must_use = "when the last handle is dropped, its threads end and its tasks are dropped unrun"]
pub struct SystemTimer {
    inside: Arc<Inside>,
}

impl SystemTimer {
    /// A timer with the defaults: tick 1 ms, 64 slots a level, the machine's monotonic clock, one
    /// worker.
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system gives no thread.
    pub fn new() -> Result<SystemTimer, BuildError> {
        SystemTimer::builder().build()
    }

    fn of(driver: Driver) -> SystemTimer {
        SystemTimer {
            inside: Inside::new(driver),
        }
    }

    /// A timer to be configured.
    pub fn builder() -> SystemTimerBuilder {
        let mut driver = Driver::new();
        driver.shard_count = default_shards();
        SystemTimerBuilder {
            driver,
            workers: Some(1),
            #[cfg(feature = "tokio")]
            runtime: None,
        }
    }

    /// The name it was built with.
    pub fn name(&self) -> &str {
        &self.inside.driver.name
    }

    /// The length of its tick.
    pub fn tick(&self) -> TickLength {
        self.inside.driver.tick
    }

    /// (Feature `metrics`.) Hands the [`stats`](Timer::stats) to the installed `metrics` recorder,
    /// labelled with the timer's [name](SystemTimerBuilder::name). Call it before each scrape:
    /// nothing is published otherwise, and nothing on a task's path touches a shared metric. What
    /// `docs/METRICS.md` lists; cost as `stats`.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        // Read under the lock: what was read before it may be older than what was published
        // meanwhile.
        let published = self.inside.driver.published_turns.try_lock();
        publish(self.name(), self.stats(), published);
    }
}

impl Timer for SystemTimer {
    fn inside(&self) -> &Inside {
        &self.inside
    }
}

/// Configures a [`SystemTimer`].
#[derive(Debug)]
#[must_use = "starts nothing until it is built"]
pub struct SystemTimerBuilder {
    driver: Driver,
    /// None when jobs run elsewhere.
    workers: Option<usize>,
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

impl SystemTimerBuilder {
    /// The tick; 1 ms by default.
    pub fn tick(mut self, tick: TickLength) -> Self {
        self.driver.tick = tick;
        self
    }

    /// Slots a level; 64 by default, [`WheelSize::KAFKA`] for Kafka's 20.
    pub fn wheel_size(mut self, size: WheelSize) -> Self {
        self.driver.wheel_size = size;
        self
    }

    /// Shards of each set of tasks' wheels: a power of two up to [`MAX_SHARDS`]. By default eight
    /// for each processor, at least 8 and at most 256.
    pub fn shards(mut self, count: usize) -> Self {
        self.driver.shard_count = count;
        self
    }

    /// Another clock. The reaper sleeps in real time: a clock that is turned by hand does not wake
    /// it, and belongs into a [`ManualTimer`](crate::ManualTimer).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.driver.clock = Arc::new(clock);
        self
    }

    /// How many worker threads run what expired; one by default, none becomes one. What falls due
    /// together is parted among them. (Of this, [`executor`](Self::executor) and
    /// [`inline`](Self::inline) the last one called counts.)
    pub fn workers(mut self, count: usize) -> Self {
        (self.driver.inline, self.workers) = (false, Some(count));
        self
    }

    /// Runs what expired on `executor` instead of worker threads of the timer's own.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.driver.executor = Arc::new(executor);
        (self.driver.inline, self.workers) = (false, None);
        self
    }

    /// Runs what expired on the reaper thread itself. A slow task then delays all others: only for
    /// a timer that nobody else shares.
    pub fn inline(mut self) -> Self {
        self = self.executor(Inline);
        self.driver.inline = true;
        self
    }

    /// Is told what each panic said that was contained, on the thread that it happened on. (The
    /// program's panic hook has been told before.)
    pub fn on_panic(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.driver.on_panic = Some(Box::new(hook));
        self
    }

    /// The start of the threads' names, and the label of the timer's metrics; `timer` by default.
    /// Give each timer that publishes its own. A NUL character becomes a question mark.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.driver.name = name.into().replace('\0', "?");
        self
    }

    /// (Feature `tokio`.) On a tokio runtime, without a thread. The reaper is a task of it, which
    /// waits by tokio's clock, and what expired runs as tasks of it. So a test with a paused clock
    /// just works. Tasks may be scheduled from anywhere. (Another [clock](Self::clock)
    /// or [executor](Self::executor) may be set after this.)
    ///
    /// tokio waits in steps of a millisecond, so expiry is up to one later than on a thread of the
    /// timer's own, and as late as other tasks make it. On a runtime that is not driven, or whose
    /// only thread is blocked, nothing expires: block, and wait in a shutdown with a limit, on
    /// `spawn_blocking`. When the runtime goes, the timer is shut down, on the thread that drops
    /// it. [`shutdown`](Timer::shutdown) waits for no task.
    ///
    /// A paused clock goes on by itself when all tasks wait. A timer that was cancelled since the
    /// reaper looked counts there as one to come, so a task that waits for a thread outside may
    /// find its time passed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{SystemTimer, Timer};
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
        self.driver.clock = Arc::new(crate::driver::tokio::TokioClock::new(runtime.clone()));
        self.runtime = Some(runtime.clone());
        self.executor(runtime)
    }

    /// Starts the timer.
    ///
    /// # Errors
    /// [`BuildError`] when a thread cannot be had, the shard count is out of bounds, or a tokio
    /// runtime has no time.
    pub fn build(self) -> Result<SystemTimer, BuildError> {
        let SystemTimerBuilder {
            mut driver,
            workers,
            ..
        } = self;
        if !driver.shard_count.is_power_of_two() || driver.shard_count > MAX_SHARDS {
            return Err(BuildError::Shards(driver.shard_count));
        }
        if let Some(count) = workers {
            let name = format!("{}-worker", driver.name);
            let workers = Workers::start(&name, count).map_err(BuildError::Thread)?;
            driver.executor = driver.workers.insert(Arc::new(workers)).clone();
        }
        #[cfg(feature = "tokio")]
        if let Some(runtime) = self.runtime {
            let started = crate::driver::tokio::start_reaper(&mut driver, &runtime);
            return started
                .then(|| SystemTimer::of(driver))
                .ok_or(BuildError::NoTime);
        }
        driver.start_reaper().map_err(BuildError::Thread)?;
        Ok(SystemTimer::of(driver))
    }
}

fn default_shards() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors * 8).next_power_of_two().clamp(8, MAX_SHARDS)
}
