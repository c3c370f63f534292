//! The engine: what threads do with locked shards.
//!
//! A key's *shard* follows from its hash; an operation's *first shard* is that of its first key.
//! Its entry there is also the task of that shard's wheel: parking it and starting its timer are
//! one insertion, ending it and stopping its timer one removal.
//!
//! ```text
//!        try_complete_else_watch
//!                 │ check                 came true, or the timeout is zero
//!                 ├──────────────────────────────────────────────────────────┐
//!                 ▼ park                                                     │
//!    ┌──────── Parked ◀────────────────────────────────────┐                 │
//!    │   the entry has the payload      check in:          │                 │
//!    │            │                     unsatisfied, and   │                 │
//!    │ claim:     │ check out:          nothing is pending │                 │
//!    │ a cancel,  │ an event, a sweep,                     │                 │
//!    │ an expiry  ▼ the last check                         │                 │
//!    │          Held ──────────────────────────────────────┤                 │
//!    │            │   a thread has the payload             │                 │
//!    │            │                     check in:          │                 │
//!    │ check in:  │                     a check is asked for: check again    │
//!    │ satisfied, │                                                          │
//!    │ panicked,  │                                                          │
//!    │ or an end  │                                                          │
//!    │ is pending │                                                          │
//!    ▼            ▼                                                          ▼
//!  Ended: the outcome is decided, the entry is off the wheel and off its first key's list
//!    │  finish: release the secondary watches, with nothing locked
//!    ▼
//!  on_complete(outcome), here or on the executor
//! ```
//!
//! These are the only states. An entry queued for its last check counts as held.
//!
//! Files call only files further left:
//!
//! ```text
//! mod < inspect < finish < check < walk < signal, park, end < sweep, timer < publish
//! ```
//!
//! [`versions`] and [`sweep_plan`] know no purgatory. What every form has is its
//! [`Frame`]; tours, callbacks that call back and `tracing` are the [`table`](crate::table)'s, too.

pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod finish;
mod inspect;
mod park;
#[cfg(feature = "metrics")]
mod publish;
pub(crate) mod signal;
mod sweep;
mod sweep_plan;
pub(crate) mod timer;
pub(crate) mod versions;
mod walk;

use std::sync::{Arc, OnceLock, Weak, atomic::AtomicU64 as Count};

use timer_core::{
    BuildError, TimerHandle,
    driver::{Driver, DueQueue, ShardGuard, Shards, sync::Latch},
};

use crate::{
    engine::{sweep_plan::Sweeps, under_lock::must_be_unlocked, versions::Versions},
    operation::{DelayedOperation, Timeout},
    settings::Settings,
    shard::{ParkOptions, Shard, expire::CallbackJob},
    stats::Labels,
    sync::{AtomicU64, Limit, default_shards, plain},
    table::frame::Frame,
    watches::{UnaskedChecks, WatchKey},
};

// The parts that know no purgatory are the table's.
pub(crate) use crate::table::{BUDGET, call as trampoline, tour::Tour, trace, under_lock};

pub(crate) type LockedShard<'a, K, O> = ShardGuard<'a, Shard<K, O>>;

/// The settings that a purgatory alone has. Those that are code are `dyn`: what a program does not
/// ask for is not in its binary.
pub struct Rules<K, O> {
    /// Every callback runs on the executor, not only those of expired operations.
    pub(crate) callbacks_on_executor: bool,
    /// Plans the sweeps; `None` for none.
    pub(crate) sweeps: Option<PlanSweeps<K, O>>,
    /// There is a last check when time is up. Called for each operation that this check or a sweep
    /// completes.
    pub(crate) on_missed: Option<OnMissed<K, O>>,
}

/// Plans the sweeps of a purgatory that is being made.
type PlanSweeps<K, O> =
    Box<dyn FnOnce(&Driver, &Weak<Core<K, O>>) -> Arc<dyn Sweeps> + Send + Sync>;

/// Is called for an operation that a check without an event completed.
type OnMissed<K, O> = Box<dyn Fn(&Core<K, O>, TimerHandle) + Send + Sync>;

/// State that all handles of a purgatory share.
pub(crate) struct Core<K, O> {
    pub(crate) frame: Frame,
    rules: Rules<K, O>,
    /// The bound on the number of parked operations.
    pub(crate) max_parked: Option<Limit>,
    pub(crate) shards: Shards<Shard<K, O>>,
    pub(crate) versions: Versions,
    /// When everything is checked without an event, if the purgatory was built so.
    sweeps: Option<Arc<dyn Sweeps>>,
    /// Numbers the parked operations, where their order matters over the shards.
    pub(crate) sequence: Option<AtomicU64>,
    /// Work that this round of the timer found due.
    pub(crate) due: DueQueue<CallbackJob<K, O>>,
    /// Operations that ended without being parked. Not the model's atomic: nothing depends on it.
    ended_at_once: Count,
    /// Closed shards that still have operations, which other threads check.
    pub(crate) under_check: Latch,
    cold: OnceLock<Box<ColdParts>>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Creates a purgatory and attaches it to its timer.
    pub(crate) fn new(common: Settings, mut rules: Rules<K, O>) -> Result<Arc<Self>, BuildError> {
        let shards = common.shard_count(default_shards)?;
        let driver = common.driver()?;
        let core = Arc::new_cyclic(|core: &Weak<Self>| Core {
            max_parked: common.max_parked,
            shards: driver.shards(shards, Shard::new),
            versions: Versions::new(shards),
            sweeps: rules.sweeps.take().map(|plan| plan(&driver, core)),
            sequence: driver.config.manual.then(|| AtomicU64::new(0)),
            due: DueQueue::new(&driver.config),
            frame: Frame::new(common.name, driver, common.executor),
            rules,
            ended_at_once: Count::new(0),
            under_check: Latch::default(),
            cold: OnceLock::new(),
        });
        let driver = core.frame.driver();
        let has_sweeps = |sweeps: &Arc<dyn Sweeps>| sweeps.clone().attach(driver);
        if driver.attach(&core, &core.shards) && core.sweeps.as_ref().is_none_or(has_sweeps) {
            return Ok(core);
        }
        Err(core.frame.not_attached())
    }

    /// Locks the shard of the keys of this hash.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> LockedShard<'_, K, O> {
        must_be_unlocked();
        self.shards.lock(self.versions.shard(hash))
    }

    /// Locks the shard of an operation's first key.
    #[inline]
    pub(crate) fn first_shard_of(&self, handle: TimerHandle) -> LockedShard<'_, K, O> {
        must_be_unlocked();
        self.shards.lock(handle.shard())
    }

    /// Sums `count` over the shards, locking one after the other.
    pub(crate) fn sum_over_shards(&self, count: impl Fn(&Shard<K, O>) -> usize) -> usize {
        must_be_unlocked();
        self.shards.sum(count)
    }

    /// Calls `act` for each item under the lock of its operation's first shard. Consecutive items
    /// of one shard share a lock hold, which may be that of a shard that is locked already.
    #[inline]
    fn each_in_first_shard<'a, T>(
        &'a self,
        mut locked: Option<LockedShard<'a, K, O>>,
        items: impl IntoIterator<Item = T>,
        handle_of: impl Fn(&T) -> TimerHandle,
        mut act: impl FnMut(&mut LockedShard<'a, K, O>, T),
    ) {
        for item in items {
            let handle = handle_of(&item);
            // Unlock before locking another: never two at once.
            if locked
                .as_ref()
                .is_some_and(|shard| shard.number() != handle.shard())
            {
                locked = None;
            }
            let first_shard = locked.get_or_insert_with(|| self.first_shard_of(handle));
            act(first_shard, item);
        }
    }

    /// Returns the cold parts, to be used.
    #[cold]
    fn cold(&self) -> &ColdParts {
        self.cold.get_or_init(Box::default)
    }

    /// The options of an operation that is parked at `now_ns`: its times, in ticks.
    #[inline]
    pub(crate) fn park_options(&self, now_ns: u64, timeout: Timeout) -> ParkOptions {
        let tick = self.frame.driver().config.tick;
        let deadline_tick = timeout.deadline(tick, now_ns);
        ParkOptions {
            now_tick: tick.round_down(now_ns),
            deadline_tick,
            parked_ns: now_ns,
            label: None,
            unasked: UnaskedChecks::AsBuilt,
        }
    }

    /// Sees to it that a sweep comes, if the purgatory has them, after an operation was parked.
    #[inline]
    pub(super) fn sweep_after(&self, parked_ns: u64) {
        if let Some(sweeps) = &self.sweeps {
            sweeps.parked_at(parked_ns);
        }
    }

    /// Reports to the timer that a shard has work at tick `due`, unless that is never.
    #[inline]
    pub(super) fn work_at(shard: &mut LockedShard<'_, K, O>, options: &ParkOptions, due: u64) {
        if options.deadline_tick.is_some() {
            shard.work_at(due);
        }
    }
}

/// The parts that most purgatories do not use, made when the first one is.
#[derive(Debug, Default)]
struct ColdParts {
    /// Every label that a snapshot has seen.
    labels: plain::Mutex<Labels>,
    checking: trace::Checking,
}
