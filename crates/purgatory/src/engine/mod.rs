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
//! mod < inspect, places < finish < check < walk < signal, park, end, reach < sweep, timer < publish
//! ```
//!
//! [`versions`], [`watch_set`] and [`sweep_plan`] know no purgatory. Callbacks that call back, the executor of jobs
//! and `tracing` are the [`table`]'s.

pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod finish;
mod inspect;
mod park;
mod places;
#[cfg(feature = "metrics")]
mod publish;
mod reach;
pub(crate) mod signal;
mod sweep;
mod sweep_plan;
pub(crate) mod timer;
pub(crate) mod versions;
mod walk;
mod watch_set;

use std::{
    collections::BTreeMap,
    iter::successors,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64 as Count},
    },
    time::Duration,
};

use smallvec::SmallVec;
use timer_core::{
    BuildError, TimeHistogram, TimerHandle,
    driver::{Driver, DueQueue, ShardGuard, Shards, contain, sync::Latch},
};

use crate::{
    engine::{
        job_executor::JobExecutor, sweep_plan::SweepPlan, under_lock::must_be_unlocked,
        versions::Versions,
    },
    operation::{DelayedOperation, OperationId, Timeout},
    settings::Settings,
    shard::{EndTime, EndedAt, ParkOptions, Shard, expire::CallbackJob},
    stats::{Parked, Stats},
    sync::{AtomicU64, Limit, Ordering, default_shards, plain},
    table,
    watches::{UnaskedChecks, WatchKey},
};

// The parts that know no purgatory are the table's.
pub(crate) use crate::table::{call as trampoline, executor as job_executor, trace, under_lock};

type LockedShard<'a, K, O> = ShardGuard<'a, Shard<K, O>>;

/// Operations that expire, are visited or are claimed under one lock hold. Events of the shard's
/// keys wait meanwhile.
const BUDGET: usize = 64;

/// Some operations of a shard.
type Handles = SmallVec<[TimerHandle; BUDGET]>;

/// The settings that a purgatory alone has.
pub struct Rules<K> {
    /// Every callback runs on the executor, not only those of expired operations.
    pub(crate) callbacks_on_executor: bool,
    /// The interval of sweeps; `None` for none.
    pub(crate) recheck_every: Option<Duration>,
    /// The hook of the last check when time is up; the hook is called for each operation
    /// that this check or a sweep completes.
    pub(crate) on_missed: Option<OnMissed<K>>,
}

/// The hook that is called for an operation that a check without an event completed.
type OnMissed<K> = Box<dyn Fn(&Parked<K>) + Send + Sync>;

/// State that all handles of a purgatory share.
pub(crate) struct Core<K, O> {
    /// Distinguishes the ids of its operations from those of other purgatories.
    number: u32,
    pub(crate) name: Box<str>,
    /// Every callback runs on the executor.
    callbacks_on_executor: bool,
    on_missed: Option<OnMissed<K>>,
    /// The bound on the number of parked operations.
    pub(crate) max_parked: Option<Limit>,
    pub(crate) shards: Shards<Shard<K, O>>,
    pub(crate) versions: Versions,
    /// When everything is checked without an event, if the purgatory was built so.
    sweeps: Option<Arc<SweepPlan>>,
    /// Numbers the parked operations, where their order matters over the shards.
    pub(crate) sequence: Option<AtomicU64>,
    /// Work that this round of the timer found due.
    pub(crate) due: DueQueue<CallbackJob<K, O>>,
    /// Set once the program has asked for times.
    pub(crate) timed: AtomicBool,
    pub(crate) job_executor: JobExecutor,
    pub(crate) counts: SharedCounts,
    /// Callbacks of operations that a shutdown with a limit ended.
    pub(crate) closing: Latch,
    /// Closed shards that still have operations, which other threads check.
    pub(crate) under_check: Latch,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Creates a purgatory and attaches it to its timer.
    pub(crate) fn new(common: Settings, rules: Rules<K>) -> Result<Arc<Self>, BuildError> {
        let shards = common.shard_count(default_shards)?;
        let driver = common.driver()?;
        let core = Arc::new_cyclic(|core: &Weak<Self>| Core {
            number: table::next_number(),
            name: common.name,
            max_parked: common.max_parked,
            shards: driver.shards(shards, Shard::new),
            versions: Versions::new(shards),
            sweeps: rules.recheck_every.map(|every| {
                let core = core.clone();
                SweepPlan::new(&driver, every, move |due_tick| {
                    if let Some(core) = core.upgrade() {
                        core.begin_sweep(due_tick);
                    }
                })
            }),
            sequence: driver.config.manual.then(|| AtomicU64::new(0)),
            due: DueQueue::new(&driver.config),
            timed: AtomicBool::new(false),
            job_executor: JobExecutor::new(driver, common.executor),
            callbacks_on_executor: rules.callbacks_on_executor,
            on_missed: rules.on_missed,
            counts: SharedCounts::default(),
            closing: Latch::default(),
            under_check: Latch::default(),
        });
        let has_sweeps = |sweeps: &Arc<SweepPlan>| sweeps.attach(core.driver());
        if core.driver().attach(&core, &core.shards) && core.sweeps.as_ref().is_none_or(has_sweeps)
        {
            return Ok(core);
        }
        // A shared timer that was shut down, or whose threads another process has.
        match core.driver().is_inherited() {
            true => Err(BuildError::Forked),
            false => Err(BuildError::Closed),
        }
    }

    /// The public name of an operation.
    pub(crate) fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId {
            handle,
            purgatory: self.number,
        }
    }

    /// The operation of a public name, unless it is another purgatory's.
    pub(super) fn handle(&self, id: OperationId) -> Option<TimerHandle> {
        (id.purgatory == self.number).then_some(id.handle)
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.job_executor.driver
    }

    /// Returns true once the purgatory or its timer was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.shards.is_closed()
    }

    /// Locks the shard of the keys of this hash.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> LockedShard<'_, K, O> {
        must_be_unlocked();
        self.shards.lock(self.versions.shard(hash))
    }

    /// Locks the shard of an operation's first key.
    #[inline]
    fn first_shard_of(&self, handle: TimerHandle) -> LockedShard<'_, K, O> {
        must_be_unlocked();
        self.shards.lock(handle.shard())
    }

    /// Sums `count` over the shards, locking one after the other.
    pub(crate) fn sum_over_shards(&self, count: impl Fn(&Shard<K, O>) -> usize) -> usize {
        must_be_unlocked();
        self.shards.sum(count)
    }

    /// Calls `act` for each item under the lock of its operation's first shard. Consecutive items
    /// of one shard share a lock hold.
    pub(super) fn each_in_first_shard<'a, T>(
        &'a self,
        items: impl IntoIterator<Item = T>,
        handle_of: impl Fn(&T) -> TimerHandle,
        act: impl FnMut(&mut LockedShard<'a, K, O>, T),
    ) {
        self.each_in_first_shard_from(None, items, handle_of, act);
    }

    /// Does as [`each_in_first_shard`](Self::each_in_first_shard), from a shard on that is locked.
    #[inline]
    fn each_in_first_shard_from<'a, T>(
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

    /// Returns the next operations on a tour of all shards, a bounded number under one lock hold,
    /// with their shard. `None` ends the tour.
    fn next_parked(&self, tour: &mut Tour) -> Option<(LockedShard<'_, K, O>, Handles)> {
        must_be_unlocked();
        while let Some(number) = self.shards.made_from(tour.shard) {
            tour.shard = number;
            let shard = self.shards.lock(number);
            let next = |handle: &TimerHandle| shard.first_from(handle.id().index() + 1);
            let handles: Handles = successors(shard.first_from(tour.index), next)
                .take(BUDGET)
                .collect();
            if let Some(last) = handles.last() {
                tour.index = last.id().index() + 1;
                return Some((shard, handles));
            }
            tour.shard += 1;
            tour.index = 0;
        }
        None
    }

    /// The options of an operation that is parked at `now_ns`: its times, in ticks.
    #[inline]
    pub(super) fn park_options(&self, now_ns: u64, timeout: Timeout) -> ParkOptions {
        let tick = self.driver().config.tick;
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

    /// The time of an end, if ends are timed. Read before the lock under which an operation ends.
    #[inline]
    fn ending_at(&self) -> EndedAt {
        let now_ns = self.timed_now()?;
        let tick = self.driver().config.tick;
        Some(EndTime { now_ns, tick })
    }

    /// The present, if ends are timed.
    #[inline]
    fn timed_now(&self) -> Option<u64> {
        if self.timed.load(Ordering::Relaxed) {
            self.timed_end()
        } else {
            None
        }
    }

    /// Reads the clock for an end or its callback. A panic of the clock is contained and reported,
    /// since a payload may be out: that end is not timed.
    #[cold]
    fn timed_end(&self) -> Option<u64> {
        let mut now_ns = None;
        self.call(|| now_ns = Some(self.driver().now_ns()));
        now_ns
    }

    /// Counts a contained panic of a check or callback, and calls the timer's hook.
    fn report(&self, panicked: &str) {
        self.counts.count_rare(|rare| rare.panics += 1);
        trace::panicked(&self.name, panicked);
        self.driver().report_panic(panicked);
    }

    /// Returns true where a blocking wait might wait for the calling thread. In debug builds, warns
    /// where it would block a runtime's tasks.
    pub(crate) fn wait_must_not_block(&self) -> bool {
        let must_not = self.job_executor.must_not_block();
        if cfg!(debug_assertions) && !must_not {
            self.counts.cold().warned.blocks_runtime(&self.name);
        }
        must_not
    }

    /// Runs the user's code, with nothing locked. A panic in it is contained and reported.
    #[inline(always)]
    pub(crate) fn call(&self, code: impl FnOnce()) {
        if let Err(panicked) = contain(code) {
            self.report(&panicked);
        }
    }
}

/// The position of a tour of all shards: a shard, and the index in it to go on from.
#[derive(Debug, Default)]
struct Tour {
    shard: usize,
    index: u32,
}

/// Counts that no shard's lock guards. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    /// Operations that ended without being parked.
    ended_at_once: Count,
    callbacks_waiting: Count,
    cold: OnceLock<Box<ColdParts>>,
}

/// The parts that most purgatories do not use, made when the first one is.
#[derive(Debug, Default)]
pub(crate) struct ColdParts {
    /// The times that callbacks waited for the executor.
    callback_delay: plain::Mutex<TimeHistogram>,
    /// Rare counts: panics, missed events, refusals.
    rare: plain::Mutex<Stats>,
    /// The memory of snapshots.
    seen: plain::Mutex<Seen>,
    /// The part of this purgatory in the recorder's series.
    #[cfg(feature = "metrics")]
    published: timer_core::driver::Published,
    checking: trace::Checking,
    pub(crate) warned: trace::Warned,
}

impl SharedCounts {
    /// Returns the cold parts, to be used.
    #[cold]
    pub(crate) fn cold(&self) -> &ColdParts {
        self.cold.get_or_init(Box::default)
    }

    /// Returns the cold parts, if they were ever used.
    fn cold_if_used(&self) -> Option<&ColdParts> {
        self.cold.get().map(|cold| &**cold)
    }

    /// Returns the checks that run now, of which only debug builds know.
    fn checking(&self) -> &trace::Checking {
        &self.cold().checking
    }

    /// Counts what is rare.
    #[cold]
    fn count_rare(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.cold().rare.lock());
    }

    /// Returns the rare counts.
    fn rare(&self) -> Stats {
        match self.cold_if_used() {
            Some(cold) => *cold.rare.lock(),
            None => Stats::default(),
        }
    }
}

/// The memory of snapshots, from one to the next.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Checks that the last snapshot found under way, each with a nanosecond at which it was.
    checks: BTreeMap<TimerHandle, u64>,
    /// Every label so far, with the number parked under it: a gauge that was set is set again.
    labels: BTreeMap<&'static str, usize>,
}
