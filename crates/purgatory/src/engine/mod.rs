//! What all handles of a purgatory share: the shards, the versions, the timer.
//!
//! A key's *shard* is told by its hash; an operation's *first shard* is that of its first key. Its
//! entry there is the task of the shard's wheel, so that parking it and starting its timer are one
//! insertion, ending it and stopping its timer one removal.
//!
//! The paths are told in the files beside this one: [`park`](super::park), [`event`](super::event)
//! and [`complete`](super::complete).

pub(crate) mod finish;
mod inspect;
pub(crate) mod nested;
pub(crate) mod park;
#[cfg(feature = "metrics")]
mod publish;
pub(crate) mod signal;
pub(crate) mod timer;
pub(crate) mod trace;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
    iter::successors,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64 as Count},
    },
    time::Duration,
};

use smallvec::SmallVec;
use timer_core::{
    BuildError, Executor, SystemTimer, TimeHistogram, Timer, TimerHandle,
    driver::{Driver, Due, ShardGuard, Shards, contain, sync::Latch},
};

use crate::{
    engine::nested::Executors,
    operation::{DelayedOperation, OperationId, Verdict},
    shard::{CallbackJob, Shard, Watch, Watermark},
    stats::{Parked, Stats},
    sync::{AtomicU64, KeyHasher, Limit, Mutex, Ordering, VERSIONS_PER_SHARD, plain},
    watches::WatchKey,
};

pub(crate) type LockedShard<'a, K, O> = ShardGuard<'a, Shard<K, O>>;

/// Operations that expire, or are looked at or emptied out, under one lock hold: events of their
/// keys wait meanwhile.
pub(crate) const BUDGET: usize = 64;

/// Some operations of a shard.
pub(crate) type Ids = SmallVec<[TimerHandle; BUDGET]>;

/// What a purgatory is built from.
pub(crate) struct Settings<K> {
    pub(crate) name: Arc<str>,
    /// Without one it gets a timer of its own.
    pub(crate) driver: Option<Arc<Driver>>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    /// Every callback runs on the executor, not only those of what expired.
    pub(crate) offload_all: bool,
    /// How many may be parked.
    pub(crate) permits: Option<Limit>,
    /// How heavy all that is parked may be together.
    pub(crate) weights: Option<Limit>,
    pub(crate) shards: usize,
    /// How often an operation is checked without an event; `None` for never.
    pub(crate) recheck_every: Option<Duration>,
    /// There is a last check when time is up, and what it or a recheck completes is told.
    pub(crate) on_missed: Option<OnMissed<K>>,
}

/// The hook that is told of an operation that a check without an event completed.
pub(crate) type OnMissed<K> = Box<dyn Fn(&Parked<K>) + Send + Sync>;

pub(crate) struct Core<K, O> {
    /// Tells its operations' ids from those of other purgatories.
    pub(crate) number: u32,
    pub(crate) settings: Settings<K>,
    pub(crate) shards: Shards<Shard<K, O>>,
    pub(crate) versions: Versions,
    /// Counts what is parked, where order matters over the shards.
    pub(crate) sequence: Option<AtomicU64>,
    /// What this round of the timer came by.
    pub(crate) fired: Mutex<Due<CallbackJob<K, O>>>,
    /// Somebody asked for times.
    pub(crate) timed: AtomicBool,
    pub(crate) offload: Arc<Executors>,
    /// The driver's timer, when it is not shared.
    pub(crate) own_timer: Option<SystemTimer>,
    pub(crate) counts: SharedCounts,
    checking: trace::Checking,
    /// Callbacks of what a shutdown with a limit ended.
    pub(crate) closing: Latch,
    /// The number of `fail_all` calls: see [`take_all`](Self::take_all).
    pub(super) generation: AtomicU64,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// A purgatory attached to its timer.
    pub(crate) fn new(mut settings: Settings<K>) -> Result<Arc<Self>, BuildError> {
        static PURGATORIES: AtomicU32 = AtomicU32::new(0);
        let (driver, own_timer) = match settings.driver.take() {
            Some(driver) => (driver, None),
            None => {
                let timer = SystemTimer::builder().name(&*settings.name).build()?;
                (timer.driver(), Some(timer))
            }
        };
        let every = settings.recheck_every.filter(|_| O::CHECKED);
        settings.recheck_every = every.map(|every| every.max(driver.tick.length()));
        let core = Arc::new(Core {
            number: PURGATORIES.fetch_add(1, Ordering::Relaxed),
            shards: driver.shards(settings.shards, Shard::new),
            versions: Versions::new(settings.shards),
            sequence: driver.by_hand.then(|| AtomicU64::new(0)),
            fired: Mutex::new(Due::default()),
            timed: AtomicBool::new(false),
            offload: Arc::new(Executors {
                driver,
                executor: settings.executor.take(),
            }),
            own_timer,
            settings,
            counts: SharedCounts::default(),
            checking: trace::Checking::default(),
            closing: Latch::default(),
            generation: AtomicU64::new(0),
        });
        let attached = core.driver().attach(&core, &core.shards);
        attached.then_some(core).ok_or(BuildError::Closed)
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
        &self.offload.driver
    }

    /// Locks the shard of the keys of this hash.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> LockedShard<'_, K, O> {
        self.shards.lock(self.versions.shard(hash))
    }

    /// Locks the shard of its first key.
    #[inline]
    pub(crate) fn first_shard_of(&self, id: TimerHandle) -> LockedShard<'_, K, O> {
        self.shards.lock(id.shard())
    }

    /// Gives back the place and weight of an operation that has ended, if it was parked.
    #[inline]
    pub(crate) fn release_permit(&self, permit: Option<u64>) {
        let Some(weight) = permit else { return };
        self.settings
            .permits
            .iter()
            .for_each(|permits| permits.release(1));
        self.settings
            .weights
            .iter()
            .for_each(|weights| weights.release(weight));
    }

    /// Counts a contained panic of a check or callback, and tells the timer's hook.
    fn report(&self, panicked: &str) {
        self.counts.rare.lock().panics += 1;
        trace::panicked(&self.settings.name, panicked);
        self.driver().report_panic(panicked);
    }

    /// Runs the user's code, with nothing locked; a panic in it is contained, and reported.
    #[inline]
    pub(crate) fn call(&self, code: impl FnOnce()) {
        if let Err(panicked) = contain(code) {
            self.report(&panicked);
        }
    }

    /// Runs an operation's check, with nothing locked.
    pub(crate) fn check(&self, operation: &mut O) -> Verdict {
        self.check_by(operation, O::try_complete)
    }

    /// Runs this check of an operation. A panic in it is contained, and reported.
    #[inline]
    pub(crate) fn check_by(
        &self,
        operation: &mut O,
        check: impl FnOnce(&mut O) -> bool,
    ) -> Verdict {
        if !O::CHECKED {
            return Verdict::Unsatisfied;
        }
        let mut satisfied = false;
        let checked = self.checking.run(
            || self.driver().now_ns(),
            || contain(|| satisfied = check(operation)),
        );
        if let Err(panicked) = checked {
            self.report(&panicked);
            Verdict::Panicked
        } else if satisfied {
            Verdict::Satisfied
        } else {
            Verdict::Unsatisfied
        }
    }

    /// In debug builds, tells of checks that keep their threads for more than a second.
    pub(super) fn warn_stuck_checks(&self) {
        self.checking
            .warn_stuck_checks(&self.settings.name, || self.driver().now_ns());
    }

    /// The next operations on a tour of all shards, a bounded number under one lock hold, with their
    /// shard; `at`, a shard and an index there, goes on behind them.
    pub(crate) fn next_parked(
        &self,
        at: &mut (usize, u32),
    ) -> Option<(LockedShard<'_, K, O>, Ids)> {
        while at.0 < self.shards.count() {
            let shard = self.shards.lock(at.0);
            let next = |id: &TimerHandle| shard.first_from(id.id().index() + 1);
            let ids: Ids = successors(shard.first_from(at.1), next)
                .take(BUDGET)
                .collect();
            if let Some(last) = ids.last() {
                at.1 = last.id().index() + 1;
                return Some((shard, ids));
            }
            *at = (at.0 + 1, 0);
        }
        None
    }

    /// Calls `act` for each item under the lock of its first shard, which is kept for as long as the
    /// next item has the same.
    pub(crate) fn each_in_first_shard<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        id: impl Fn(&T) -> TimerHandle,
        mut act: impl FnMut(&mut Shard<K, O>, T),
    ) {
        let mut first_shard: Option<LockedShard<'_, K, O>> = None;
        for item in items {
            let id = id(&item);
            if first_shard
                .as_ref()
                .is_some_and(|first_shard| first_shard.number() != id.shard())
            {
                first_shard = None;
            }
            act(
                first_shard.get_or_insert_with(|| self.first_shard_of(id)),
                item,
            );
        }
    }
}

/// Counts that no shard's lock goes with. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    /// Operations that ended without being parked.
    pub(crate) ended_at_once: Count,
    pub(crate) callbacks_waiting: Count,
    /// How long callbacks waited for the executor, if that is timed.
    pub(crate) callback_delay: plain::Mutex<TimeHistogram>,
    /// Rare counts: panics, missed events, refusals.
    pub(crate) rare: plain::Mutex<Stats>,
    /// What snapshots have seen.
    pub(crate) seen: plain::Mutex<Seen>,
    /// What has been handed to a recorder's histograms.
    #[cfg(feature = "metrics")]
    pub(crate) published: plain::Mutex<crate::stats::Times>,
}

/// What snapshots remember from one to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Checks that the last one found under way, each with the nanosecond since when at least.
    pub(crate) checks: HashMap<TimerHandle, u64>,
    /// Every label so far, with how many are parked with it: a gauge that was set is set again.
    pub(crate) labels: BTreeMap<&'static str, usize>,
}

/// How many events there have been on the keys of each hash, and which shard a key is in.
///
/// An event raises its key's version under the lock of the key's shard, after its condition came
/// true and before it walks. A thread that parks reads the version, checks, and compares under the
/// lock as it watches. Equal: no event fell in between. Raised: check again. Versions are never
/// made anew, moved or reset; keys that share one cost each other a needless check now and then.
/// Those of one shard are neighbours, so that events in different shards seldom write to one cache
/// line.
#[derive(Debug)]
pub(crate) struct Versions {
    versions: Box<[AtomicU64]>,
    hasher: KeyHasher,
}

impl Versions {
    /// For this many shards: a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let version = || AtomicU64::new(0);
        Versions {
            versions: std::iter::repeat_with(version)
                .take(shards * VERSIONS_PER_SHARD)
                .collect(),
            hasher: KeyHasher::default(),
        }
    }

    /// Runs the key's `Hash`, with nothing locked.
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// A watch to be set, with the version of its key: to be made before the check whose result is
    /// to be relied on.
    #[inline]
    pub(crate) fn watch<'a, K: Hash>(
        &self,
        key: &'a K,
        watermark: Option<Watermark>,
    ) -> Watch<'a, K> {
        let hash = self.hash(key);
        Watch {
            key,
            hash,
            version: self.of(hash).load(Ordering::Acquire),
            watermark,
        }
    }

    /// True when an event came by since. Under the lock of the key's shard.
    #[inline]
    pub(crate) fn moved<K>(&self, watch: &Watch<'_, K>) -> bool {
        let version = self.of(watch.hash).load(Ordering::Relaxed);
        version != watch.version && !failpoint!(ParkSkipsVersionCheck)
    }

    /// Raises the version for an event. Under the lock of the key's shard, which no key of the same
    /// version is outside of.
    #[inline]
    pub(crate) fn raise(&self, hash: u64) {
        if !failpoint!(EventLeavesVersion) {
            let version = self.of(hash).load(Ordering::Relaxed);
            self.of(hash).store(version + 1, Ordering::Release);
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU64 {
        &self.versions[self.number(hash)]
    }

    /// The shard of a key of this hash.
    #[inline]
    pub(crate) fn shard(&self, hash: u64) -> usize {
        self.number(hash) / VERSIONS_PER_SHARD
    }

    /// How many events there have been: what the versions count. O(versions), without a lock.
    pub(crate) fn events(&self) -> u64 {
        self.versions
            .iter()
            .map(|version| version.load(Ordering::Relaxed))
            .sum()
    }

    /// Which version a key of this hash has. The upper bits of that are the shard's number.
    #[inline]
    fn number(&self, hash: u64) -> usize {
        // The bits above those by which a hash table places, below those it tags with.
        (hash >> 32) as usize & (self.versions.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_shard_are_neighbours() {
        for shards in [1, 8, 256] {
            let versions = Versions::new(shards);
            let hash_of = |number: usize| (number as u64) << 32;
            let all = 0..shards * VERSIONS_PER_SHARD;
            assert!(
                all.into_iter()
                    .all(|at| versions.shard(hash_of(at)) == at / VERSIONS_PER_SHARD)
            );
        }
    }
}
