//! [`Driver`]: the inside of every timer.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    driver::{
        clock::{Clock, SystemClock, TickLength},
        executor::{Executor, Inline, Job, Threads, Workers, contain, on_timer_thread},
        reaper::{Rounds, Shared},
        shards::{Bell, ShardState, Shards, Wake, WheelOwner},
    },
    observe::TimerStats,
    sync::Parker,
    wheel::{geometry::WheelSize, timing_wheel::TimingWheel},
};

/// Told of each contained panic.
pub(crate) type PanicHook = Box<dyn Fn(&str) + Send + Sync>;

/// What turns wheels: a clock, a tick, and a thread, a task or a hand that comes when the next
/// bucket is due. The inside of [`SystemTimer`](crate::SystemTimer) and
/// [`ManualTimer`](crate::ManualTimer).
///
/// One driver serves any number of owners of wheels ([`WheelOwner`]), each with its own kind of
/// task. Dropping it ends its threads, or its task, without waiting for them.
pub struct Driver {
    /// The length of a tick.
    pub tick: TickLength,
    /// The size of each wheel.
    pub wheel_size: WheelSize,
    /// The number of shards of a [`TaskTimer`](crate::TaskTimer): a power of two, at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub shard_count: usize,
    /// The wheels are turned by hand: tasks of one tick are to be handed over in the order they
    /// were inserted, and a task that is overdue as it is inserted waits for the next turn.
    pub by_hand: bool,
    /// [`execute`](Driver::execute) runs jobs on the calling thread.
    pub inline: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wake: Wake,
    /// Whether the wheels are turned by the calling thread, between two of its tasks.
    pub(crate) turns_here: fn() -> bool,
    /// The reaper, unless that is a task, or a hand.
    reaper: Threads,
    pub(crate) executor: Arc<dyn Executor>,
    /// The executor again, when it is our own to close.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Told of each contained panic.
    pub(crate) on_panic: Option<PanicHook>,
    pub(crate) name: String,
    #[cfg(feature = "metrics")]
    pub(crate) published_turns: crate::sync::plain::Mutex<crate::observe::TimeHistogram>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// A driver of one shard by the machine's clock, turned by nobody, with jobs that run in place.
    pub(crate) fn new() -> Self {
        Driver {
            tick: TickLength::default(),
            wheel_size: WheelSize::default(),
            shard_count: 1,
            by_hand: false,
            inline: false,
            clock: Arc::new(SystemClock::new()),
            shared: Shared::new(),
            wake: None,
            turns_here: || false,
            reaper: Threads::new(),
            executor: Arc::new(Inline),
            workers: None,
            on_panic: None,
            name: "timer".to_owned(),
            #[cfg(feature = "metrics")]
            published_turns: Default::default(),
        }
    }

    /// The rounds of a thread or task.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds::new(self.shared.clone(), self.clock.clone(), self.tick)
    }

    /// Has a thread turn the wheels.
    pub(crate) fn start_reaper(&mut self) -> io::Result<()> {
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        self.wake = Some(Arc::new(move || unparker.unpark()));
        let rounds = self.rounds();
        self.reaper.start(
            &format!("{}-reaper", self.name),
            Job::new(move || rounds.run(parker)),
        )
    }

    /// The present, in nanoseconds since its clock's origin.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Makes `count` shards (a power of two), each from its number and a wheel, still to be
    /// [attached](Self::attach). Their coarse buckets are shifted by a fraction of a bucket of
    /// levels 1 to 3 each (at 1 ms and 64 slots: of 64 ms, 4 s and 4 min), so that the shards hand
    /// theirs down one after the other; but not where order matters.
    pub fn shards<S: ShardState>(
        &self,
        count: usize,
        make: impl Fn(usize, TimingWheel<S::Task>) -> S,
    ) -> Shards<S> {
        let now_tick = self.tick.round_down(self.now_ns());
        let make = |number: usize| {
            let phase = if self.by_hand {
                0
            } else {
                self.wheel_size.phase(number, count)
            };
            make(
                number,
                TimingWheel::with_phase(self.wheel_size, now_tick, phase),
            )
        };
        Shards::new(
            Bell::new(count, self.wake.clone(), self.shared.cancelled.clone()),
            make,
        )
    }

    /// Has an owner's `shards` turned from now on, until it is dropped: nothing may lie on them
    /// yet. False after shutdown. O(1) on average.
    #[must_use = "after shutdown nothing is attached"]
    pub fn attach<S: ShardState>(&self, owner: &Arc<impl WheelOwner>, shards: &Shards<S>) -> bool {
        let wheels: Weak<dyn WheelOwner> = Arc::downgrade(owner) as _;
        self.shared.attach(&shards.bell, wheels)
    }

    /// True on a reaper or worker of any timer, and in a runtime's task while it does their work:
    /// there nobody waits for such a thread, which may be waiting for this one.
    pub fn on_timer_thread() -> bool {
        on_timer_thread()
    }

    /// Runs a job where expired tasks run. An executor that panics has dropped the job, and so run
    /// it.
    pub fn execute(&self, job: Job) {
        let _ = contain(|| self.executor.execute(job));
    }

    /// How many threads run jobs, as far as that is known.
    pub fn parallelism(&self) -> usize {
        contain(|| self.executor.parallelism()).unwrap_or(1)
    }

    /// True when no wheel is turned, or no job run, while the calling thread blocks.
    pub fn needs_this_thread(&self) -> bool {
        (self.turns_here)() || contain(|| self.executor.needs_this_thread()).unwrap_or(false)
    }

    /// Tells the timer's hook what a contained panic said.
    pub fn report_panic(&self, message: &str) {
        self.on_panic
            .iter()
            .for_each(|hook| _ = contain(|| hook(message)));
    }

    /// Counts of all wheels and of the reaper.
    pub(crate) fn stats(&self, panics: u64) -> TimerStats {
        TimerStats {
            panics,
            executor_queue: self.executor.queued(),
            ..self.shared.stats()
        }
    }

    fn close(&self) {
        self.shared.close();
        self.wake.iter().for_each(|wake| wake());
    }

    /// Attaches no more, tells all owners, and waits for the threads, for at most `limit`; returns
    /// how many have not ended.
    pub(crate) fn shutdown<T>(&self, limit: Duration, take: impl FnOnce() -> T) -> (T, usize) {
        let clock = SystemClock::new();
        self.close();
        self.shared
            .owners()
            .into_iter()
            .for_each(|(owner, _)| owner.timer_closed());
        let taken = take();
        self.workers.iter().for_each(|workers| workers.close());
        let limit = if on_timer_thread() {
            Duration::ZERO
        } else {
            limit
        };
        let left = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));
        let workers = || {
            self.workers
                .as_ref()
                .map_or(0, |workers| workers.join(left()))
        };
        (taken, self.reaper.join(left()) + workers())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}
