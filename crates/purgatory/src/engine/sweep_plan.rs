//! When sweeps begin: the next one is a task on a wheel of its own. Knows no purgatory.
//!
//! - **One sweep**: from the thread that sets `planned` until the sweep that finds nothing parked,
//!   there is one task on the wheel or one sweep under way, which plans the next as it ends. So none
//!   runs beside another.
//! - **Idle**: a sweep that finds nothing parked plans no other. It clears `planned` and then looks
//!   into each shard that is made; a thread that has parked looks at `planned` after it left the
//!   shard. So one of the two sees the other, also in a shard that is made meanwhile (Seen, in
//!   timer-core's `driver/shards`).

use std::{sync::Arc, time::Duration};

use timer_core::{
    Advanced, TickLength, TimingWheel,
    driver::{Driver, ShardLook, Shards, WheelOwner},
};

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// No sweep is due.
const NOT_DUE: u64 = u64::MAX;

/// The plan of a purgatory's sweeps, as it sees it.
pub(crate) trait Sweeps: Send + Sync {
    /// Returns the interval.
    fn every(&self) -> Duration;

    /// Sees to it that a sweep comes, after an operation was parked at `now_ns`.
    fn parked_at(&self, now_ns: u64);

    /// Plans the sweep after one that fell due at a tick, as that ends, unless nothing is parked.
    /// `now_ns` is `None` if the clock panics.
    fn ended(&self, due_tick: u64, now_ns: Option<u64>, is_idle: &dyn Fn() -> bool);
}

/// When sweeps begin.
pub(super) struct SweepPlan {
    every: Duration,
    tick: TickLength,
    /// One wheel, with the next sweep.
    wheel: Shards<TimingWheel<()>>,
    /// A sweep is on the wheel or under way.
    planned: AtomicBool,
    /// The tick of the sweep that this round of the timer is to begin.
    due_tick: AtomicU64,
    /// Begins a sweep, on the executor.
    begin: Box<dyn Fn(u64) + Send + Sync>,
}

impl SweepPlan {
    /// Makes a plan and attaches it. Sweeps are a tick apart at least; `begin` begins one that fell due
    /// at a tick.
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
        // A timer that was shut down meanwhile closes the purgatory, too.
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
        // The first to come plans one; the others only look.
        if !self.planned.load(Ordering::Relaxed) && !self.planned.swap(true, Ordering::AcqRel) {
            let due_tick = self.tick.deadline(now_ns, self.every);
            self.plan(self.tick.round_down(now_ns), due_tick);
        }
    }

    fn ended(&self, due_tick: u64, now_ns: Option<u64>, is_idle: &dyn Fn() -> bool) {
        // 1. Idle: a thread that parks from here on plans one itself.
        if is_idle() {
            self.planned.store(false, Ordering::Release);
            if failpoint!(IdleSweepLooksOnce)
                || is_idle()
                || self.planned.swap(true, Ordering::AcqRel)
            {
                return;
            }
        }
        // 2. An interval after this one fell due, or after its end, if that took longer.
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
        // It counts as handed down: no task of the program's fired.
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

    /// Nothing is left to do: the purgatory's own wheels close, and no sweep falls due any more.
    fn timer_closed(self: Arc<Self>) {}
}
