//! The plan of when sweeps begin: the next sweep is a task on a wheel of its own. This file does
//! not know the purgatory.
//!
//! - **One sweep**: from the moment a thread sets `planned` until a sweep finds nothing parked,
//!   there is one task on the wheel or one sweep under way, which plans the next as it ends. So no
//!   two sweeps run at once.
//! - **Idle**: a sweep that finds nothing parked does not plan the next. It clears `planned` and
//!   then looks into each shard made so far; a thread that has parked reads `planned` after it
//!   unlocked the shard. So one of the two sees the other, even in a shard that is made meanwhile
//!   (Seen, in timer-core's `driver/shards`).

use std::{sync::Arc, time::Duration};

use timer_core::{
    Advanced, TickLength, TimingWheel,
    driver::{Driver, ShardLook, Shards, WheelOwner},
};

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// No sweep is due.
const NOT_DUE: u64 = u64::MAX;

/// The plan of the sweeps, as the purgatory sees it.
pub(crate) trait Sweeps: Send + Sync {
    /// Returns the interval.
    fn every(&self) -> Duration;

    /// Makes sure that a sweep is planned, after an operation was parked at `now_ns`.
    fn parked_at(&self, now_ns: u64);

    /// Plans the next sweep as the one that was due at `due_tick` ends, unless nothing is parked.
    /// `now_ns` is `None` if the clock panics.
    fn ended(&self, due_tick: u64, now_ns: Option<u64>, is_idle: &dyn Fn() -> bool);
}

/// The plan of when sweeps begin.
pub(super) struct SweepPlan {
    every: Duration,
    tick: TickLength,
    /// A single wheel, with the next sweep.
    wheel: Shards<TimingWheel<()>>,
    /// True while a sweep is on the wheel or under way.
    planned: AtomicBool,
    /// The tick of the sweep that this round of the timer begins.
    due_tick: AtomicU64,
    /// Begins a sweep, on the executor.
    begin: Box<dyn Fn(u64) + Send + Sync>,
}

impl SweepPlan {
    /// Makes a plan and attaches it. Sweeps are at least a tick apart. `begin` begins the sweep
    /// that was due at a tick.
    pub(super) fn new(
        driver: &Driver,
        every: Duration,
        begin: impl Fn(u64) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let tick = driver.config.tick;
        let plan = Arc::new(SweepPlan {
            every: every.max(tick.length()),
            tick,
            wheel: driver.shards(1, (), |(), plan| plan.wheel()),
            planned: AtomicBool::new(false),
            due_tick: AtomicU64::new(NOT_DUE),
            begin: Box::new(begin),
        });
        // If the timer was shut down meanwhile, it closes the purgatory as well.
        let _ = driver.attach(&plan, &plan.wheel);
        plan
    }

    /// Puts the next sweep on the wheel. The caller has set `planned`.
    fn plan(&self, now_tick: u64, due_tick: u64) {
        let mut wheel = self.wheel.lock(0);
        wheel.catch_up(now_tick);
        if let Ok(scheduled) = wheel.insert(due_tick, ()) {
            wheel.work_at(scheduled.due);
        }
    }
}

impl Sweeps for SweepPlan {
    fn every(&self) -> Duration {
        self.every
    }

    fn parked_at(&self, now_ns: u64) {
        // The first thread plans a sweep; the others only read the flag.
        if !self.planned.load(Ordering::Relaxed) && !self.planned.swap(true, Ordering::AcqRel) {
            let due_tick = self.tick.deadline(now_ns, self.every);
            self.plan(self.tick.round_down(now_ns), due_tick);
        }
    }

    fn ended(&self, due_tick: u64, now_ns: Option<u64>, is_idle: &dyn Fn() -> bool) {
        // 1. Idle: a thread that parks from here on plans a sweep itself.
        if is_idle() {
            self.planned.store(false, Ordering::Release);
            if failpoint!(IdleSweepLooksOnce)
                || is_idle()
                || self.planned.swap(true, Ordering::AcqRel)
            {
                return;
            }
        }
        // 2. Plan the next one an interval after this one was due, or after its end if it took
        //    longer.
        let ticks = self.tick.deadline(0, self.every);
        let now_tick = now_ns.map_or(due_tick, |now_ns| self.tick.round_down(now_ns));
        let mut next = due_tick.saturating_add(ticks);
        if next <= now_tick {
            next = now_tick.saturating_add(ticks);
        }
        self.plan(now_tick, next);
    }
}

impl WheelOwner for SweepPlan {
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced {
        let mut wheel = self.wheel.lock(shard);
        let mut advanced = wheel.advance(now_tick, usize::MAX, |task| {
            task.take();
            self.due_tick.store(now_tick, Ordering::Release);
        });
        // Count the sweep as handed down, since no task of the program's fired.
        advanced.cascaded += advanced.fired;
        advanced.fired = 0;
        wheel.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        let due_tick = self.due_tick.swap(NOT_DUE, Ordering::AcqRel);
        if due_tick != NOT_DUE {
            (self.begin)(due_tick);
        }
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.wheel.look(shard)
    }

    /// Does nothing: the purgatory's own wheels close, and no sweep becomes due any more.
    fn timer_closed(self: Arc<Self>) {}
}
