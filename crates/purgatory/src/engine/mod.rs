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
//! mod < finish < check < walk < signal, park, end < sweep, timer
//! ```
//!
//! [`versions`] and [`sweep_plan`] do not know the purgatory. The parts that every form has are in
//! the [table](crate::table); the [`Kernel`] is the inside of one.

pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod finish;
mod park;
pub(crate) mod signal;
mod sweep;
mod sweep_plan;
pub(crate) mod timer;
pub(crate) mod versions;
mod walk;

use std::sync::{Arc, OnceLock, atomic::AtomicU64 as Count};

use timer_core::{BuildError, TimerHandle, driver::ShardGuard};

use crate::{
    engine::{sweep_plan::Sweeps, versions::Versions},
    operation::DelayedOperation,
    settings::Settings,
    shard::{Shard, expire::CallbackJob},
    table::{TableOf, trace::Checking},
    watches::WatchKey,
};

pub(crate) type LockedShard<'a, K, O> = ShardGuard<'a, Shard<K, O>>;

/// The settings that only a purgatory has. Those that are code are `dyn`, so that a program's
/// binary has only the code that it asks for.
pub struct Rules<K: WatchKey, O: DelayedOperation> {
    /// True if every callback runs on the executor, not only those of expired operations.
    pub(crate) callbacks_on_executor: bool,
    /// Plans the sweeps; `None` for none.
    pub(crate) sweeps: Option<PlanSweeps<K, O>>,
    /// If set, operations of the program's own have a last check when their time is up, as waits
    /// with a condition always have. Called for each operation that a last check or a sweep completes.
    pub(crate) on_missed: Option<OnMissed<K, O>>,
}

/// Plans the sweeps of a new purgatory.
type PlanSweeps<K, O> = Box<dyn FnOnce(&Arc<Core<K, O>>) -> Arc<dyn Sweeps> + Send + Sync>;

/// Called for an operation that a check without an event completed.
type OnMissed<K, O> = Box<dyn Fn(&Arc<Core<K, O>>, TimerHandle) + Send + Sync>;

/// State that all handles of a purgatory share.
pub(crate) type Core<K, O> = TableOf<Kernel<K, O>, Shard<K, O>, CallbackJob<K, O>>;

/// The part of that state that only a purgatory has.
pub(crate) struct Kernel<K: WatchKey, O: DelayedOperation> {
    rules: Rules<K, O>,
    versions: Versions,
    /// The plan of the sweeps, if the purgatory was built with them.
    sweeps: OnceLock<Arc<dyn Sweeps>>,
    /// Operations that ended without being parked. Not the model's atomic: nothing depends on it.
    ended_at_once: Count,
    /// The checks that run now, in debug builds.
    checking: OnceLock<Box<Checking>>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Creates a purgatory and attaches it to its timer.
    pub(crate) fn of(common: Settings, mut rules: Rules<K, O>) -> Result<Arc<Self>, BuildError> {
        let plan = rules.sweeps.take();
        let core = TableOf::new(common, |shards| Kernel {
            rules,
            versions: Versions::new(shards),
            sweeps: OnceLock::new(),
            ended_at_once: Count::new(0),
            checking: OnceLock::new(),
        })?;
        if let Some(plan) = plan {
            core.engine.sweeps.get_or_init(|| plan(&core));
        }
        Ok(core)
    }

    /// Returns true if each operation is checked once more when its time is up.
    pub(crate) fn has_last_checks(&self) -> bool {
        self.engine.rules.on_missed.is_some()
    }

    /// Locks the shard of an operation's first key.
    pub(crate) fn first_shard_of(&self, handle: TimerHandle) -> LockedShard<'_, K, O> {
        self.lock(handle.shard())
    }

    /// Calls `act` for each item under the lock of its operation's first shard. Consecutive items
    /// of one shard share a lock hold; `locked` serves the first items if they are in that shard.
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
            // Unlock this shard before locking another: never two at once.
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

    /// After an operation was parked, makes sure that a sweep is planned, if the purgatory has
    /// sweeps.
    pub(super) fn sweep_after(&self, parked_ns: u64) {
        if let Some(sweeps) = self.engine.sweeps.get() {
            sweeps.parked_at(parked_ns);
        }
    }
}
