//! [`Driver`]: the inside of every timer. It has the clock, the reaper that advances all wheels as
//! that clock goes on, and the executors that run due tasks; it ends them at shutdown.
//!
//! A timer's handles, its sleeps, and each owner of wheels on it hold the driver. A builder makes
//! one, changes its parts, and only then starts the reaper.

use std::{
    any::Any,
    io,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use crate::{
    driver::{
        clock::{Clock, DriverClock, SystemClock},
        config::Config,
        executor::{Job, Threads, Workers, on_timer_thread},
        executors::Executors,
        owner::WheelOwner,
        owners::{Attached, Shared},
        reaper::Rounds,
        shards::{Layout, MakeShard, ShardState, Shards, Wake},
        tick::{TickLength, Ticks},
    },
    observe::{TimerStats, opaque},
    sync::{Parker, plain},
    wheel::geometry::WheelSize,
};

/// The inside of [`SystemTimer`](crate::SystemTimer) and [`ManualTimer`](crate::ManualTimer): a
/// clock, the reaper that advances wheels, and the executor of the tasks that fall due.
///
/// One driver serves any number of owners of wheels ([`WheelOwner`]), each with its own kind of
/// task. Dropping the driver ends its threads, or its task, without waiting for them.
pub struct Driver {
    /// The settings that the timer was built with.
    pub config: Config,
    pub(crate) clock: DriverClock,
    pub(crate) shared: Arc<Shared>,
    /// Wakes the thread or task that advances the wheels.
    pub(crate) wake: Wake,
    /// The thread that advances the wheels; none if a task or the program does.
    threads: Option<Threads>,
    /// The timer's executors, for owners of wheels that have none of their own.
    pub executors: Arc<Executors>,
    /// The timer's executor again, if the timer is to close it.
    pub(crate) workers: Option<Arc<Workers>>,
    /// The state that the timer's handles share, while there are any.
    pub(crate) handles: plain::Mutex<Weak<dyn Any + Send + Sync>>,
    #[cfg(feature = "metrics")]
    pub(crate) published: crate::observe::metrics::Published,
}

opaque!([] Driver, clock: clock);

impl Driver {
    /// Makes a driver of one shard on the machine's clock, without a reaper, whose jobs run in
    /// place.
    pub(crate) fn new() -> Self {
        Driver {
            // Builders change these before the threads start.
            config: Config {
                tick: TickLength::default(),
                wheel_size: WheelSize::default(),
                shard_count: 1,
                manual: false,
                name: "timer".to_owned(),
                grace: None,
            },
            clock: DriverClock::Machine(SystemClock::new()),
            shared: Shared::new(),
            wake: None,
            threads: None,
            executors: Arc::new(Executors::in_place()),
            workers: None,
            handles: plain::Mutex::new(Weak::<()>::new()),
            #[cfg(feature = "metrics")]
            published: Default::default(),
        }
    }

    /// Returns the executors, to be changed before an owner of wheels has them.
    pub(crate) fn executors_mut(&mut self) -> &mut Executors {
        Arc::make_mut(&mut self.executors)
    }

    /// Makes the rounds for a reaper's thread or task.
    pub(super) fn rounds(&self) -> Rounds {
        let panics = self.executors.panics.clone();
        let shared = self.shared.clone();
        Rounds::new(shared, self.clock.clone(), panics, &self.config)
    }

    /// Makes the function that wakes the reaper. With a grace it notes when the reaper was called,
    /// so that a pause of the process before the reaper comes is noticed.
    pub(crate) fn waker(&self, wake: impl Fn() + Send + Sync + 'static) -> Wake {
        if self.config.grace.is_none() {
            return Some(Arc::new(wake));
        }
        // Capture only the fields it needs: the shared state has the wake signals, which hold this
        // closure, so capturing it would be a cycle.
        let called_ns = self.shared.called_ns.clone();
        let clock = self.clock.clone();
        let panics = self.executors.panics.clone();
        Some(Arc::new(move || {
            // If the clock panics there is no time to note, and the reaper is only woken.
            if let Some(now_ns) = panics.contain_locked(|| clock.now_ns()) {
                called_ns.fetch_min(now_ns, Ordering::AcqRel);
            }
            wake();
        }))
    }

    /// Starts a thread that advances the wheels.
    pub(crate) fn start_reaper(&mut self) -> io::Result<()> {
        // A signal unparks the thread.
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        self.wake = self.waker(move || unparker.unpark());
        let rounds = self.rounds();
        let name = format!("{}-reaper", self.config.name);
        let threads = Threads::new();
        threads.start(&name, Box::new(move || rounds.run(parker)))?;
        self.threads = Some(threads);
        Ok(())
    }

    /// Returns true if the clock is this crate's, so that reading it runs no code of the user's.
    pub fn has_own_clock(&self) -> bool {
        !matches!(self.clock, DriverClock::User(_))
    }

    /// Returns the present, in nanoseconds since its clock's origin.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Reads the clock once, for the deadline `delay` from now and for the present.
    #[inline]
    pub(crate) fn ticks_after(&self, delay: Duration) -> Ticks {
        let now_ns = self.now_ns();
        let tick = self.config.tick;
        Ticks {
            now: tick.round_down(now_ns),
            deadline: tick.deadline(now_ns, delay),
        }
    }

    /// Returns true in a child of `fork`, which has none of the timer's threads. Costs a system
    /// call, except on a manual timer.
    pub fn is_inherited(&self) -> bool {
        self.executors.home.is_elsewhere()
    }

    /// Returns true after shutdown.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Counts a poll that is pending with more to do. A manual timer that settles waits for it,
    /// though nothing of the timer has changed.
    pub(crate) fn count_yield(&self) {
        if self.config.manual {
            self.shared.yields.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns true while threads of this process advance the wheels, until the timer is shut down.
    pub(crate) fn is_served(&self) -> bool {
        !self.is_closed() && !self.is_inherited()
    }

    /// Plans `count` shards (a power of two), still to be [attached](Self::attach). Each is made
    /// from the seed when it is first locked.
    ///
    /// The shards' coarse buckets are shifted by a fraction of a bucket of levels 1 to 3 each (at 1
    /// ms and 64 slots: of 64 ms, 4 s and 4 min), so that the shards hand them down one after the
    /// other. On a manual timer, where order matters, they are not shifted.
    pub fn shards<S: ShardState, Seed>(
        &self,
        count: usize,
        seed: Seed,
        make: MakeShard<S, Seed>,
    ) -> Shards<S, Seed> {
        // All wheels begin at the present.
        let layout = Layout {
            count,
            size: self.config.wheel_size,
            start: self.config.tick.round_down(self.now_ns()),
            manual: self.config.manual,
        };
        // The shards' signal wakes this driver's reaper.
        let cancelled = self.shared.cancelled.clone();
        let wake = self.wake.clone();
        Shards::new(layout, seed, make, wake, cancelled)
    }

    /// Attaches an owner, whose `shards` are advanced from now on, until it is dropped. The shards
    /// must not hold a task yet. Returns false after shutdown, and in a child of `fork`. O(1) on
    /// average.
    #[must_use = "after shutdown nothing is attached"]
    pub fn attach<S: ShardState, Seed>(
        &self,
        owner: &Arc<impl WheelOwner>,
        shards: &Shards<S, Seed>,
    ) -> bool {
        if self.is_inherited() {
            return false;
        }
        let wheels: Weak<dyn WheelOwner> = Arc::downgrade(owner) as _;
        // A reaper learns of the owner by its first signal.
        self.shared.attach(Attached {
            wheels,
            shard_count: shards.count(),
            signal: shards.signal.clone(),
        })
    }

    /// Drops a reference to an owner after a round.
    ///
    /// If the last handle went during the round, this is the last reference, and the pending tasks go
    /// with the owner. Their drop runs user code, so a job drops the owner, not the reaper.
    pub fn release<T: Send + Sync + 'static>(&self, owner: Arc<T>) {
        if let Some(owner) = Arc::into_inner(owner) {
            self.executors.execute(Job::new(move || drop(owner)));
        }
    }

    /// Calls the timer's hook with the message of a contained panic.
    pub fn report_panic(&self, message: &str) {
        self.executors.panics.report(message);
    }

    /// Returns the counts of all wheels and of the reaper.
    pub(crate) fn stats(&self) -> TimerStats {
        let mut stats = self.shared.stats();
        stats.panics = self.executors.panics.count();
        stats.executor_queue = self.executors.queued();
        stats
    }

    /// Publishes the owners of wheels that have something to be published, with nothing locked.
    #[cfg(feature = "metrics")]
    pub(crate) fn publish_owners(&self) {
        for owner in self.shared.owners() {
            if let Some(source) = owner.publishes() {
                source.publish(false);
            }
        }
    }

    /// Ends the rounds of the reaper, and attaches no more owners.
    fn close(&self) {
        self.shared.close();
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// Attaches no more owners, closes all owners, calls `take` before the workers are closed, and
    /// waits for the threads and for other callers that close the owners, for at most `limit` in
    /// all. Returns how many of them have not ended.
    pub(crate) fn shutdown(&self, limit: Duration, take: impl FnOnce()) -> usize {
        // A timer's thread may be one of those to wait for. Threads that were running at a fork do
        // not exist in the child.
        let limit = if on_timer_thread() || self.is_inherited() {
            Duration::ZERO
        } else {
            limit
        };
        let clock = SystemClock::new();
        let end = clock.now() + limit;
        let remaining = || end.since(clock.now());
        // 1. No owner is attached any more, the rounds end, and the owners close.
        self.close();
        self.shared.close_owners(&self.executors.panics);
        // The jobs that the closing made are queued by now; the workers finish them.
        take();
        if let Some(workers) = &self.workers {
            workers.close();
        }
        // 2. Wait for the threads, the reaper first: it may still hand jobs over.
        let mut left = 0;
        if let Some(threads) = &self.threads {
            left += threads.join(remaining());
        }
        if let Some(workers) = &self.workers {
            left += workers.join(remaining());
        }
        // 3. Wait for other threads that close the owners: they end tasks that this one did not.
        left + self.shared.closing.wait(remaining())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}
