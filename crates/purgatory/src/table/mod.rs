//! The table: what all forms share, written once. Shards under locks, each with a wheel; places,
//! expiry to jobs, closing, counts, snapshots, metrics. What differs is the [`Inside`] of a form: the
//! kernel, or an engine. What all engines do is here, too, entries and ends.
//!
//! | Trait | implemented by | called by |
//! |---|---|---|
//! | [`Inside`] | the kernel; once for all engines ([expire]) | the table: rounds of the timer, ends by id, the end of all |
//! | [`FormShard`] | the kernel's shard; the one of all engines ([shard]) | the table: counts, snapshots, closing |
//! | [`Engine`] | an engine: watermarks, permits, replies | the shard and table of engines, as waits end |
//! | [`Yields`](future::Yields) | an engine, for each type that its futures yield | a future's poll that has the answer |
//! | [`AnyForm`](form::AnyForm) | the table | handles of users, who know no inside |
//! | [`Closes`](handle::Closes) | the table | its last handle |
//!
//! An [`Engine`] compares under a shard's lock, with no user code but a key's `Eq` and `Clone`. So
//! nothing is ever taken out of an entry to be looked at, and an entry is in one of two states:
//!
//! ```text
//!  park ──▶ Waits { wait, waker } ── answered ──▶ Answered ── its future: polled, dropped ──▶ gone
//!               ├── ended, and no future takes an answer ──────────────────────────────────▶ gone
//!               └── its future is dropped ─────────────────────────────────────────────────▶ gone
//! ```
//!
//! A wait may move to another shard, time and again. Its entry there is the wait, and the one that
//! its future names has a [forwarding] to it. That stays until the future has the answer or is
//! dropped; no other entry is left behind.
//!
//! - **One outcome**: an entry leaves *Waits* once, under its shard's lock.
//! - **Listed**: the engine's records name the entries that wait, and no others. As a wait ends, it
//!   leaves the records in the same lock hold: by the engine that answers it, by [`Engine::leave`]
//!   if the table ends it.
//! - **Place**: a wait returns its place among `max_parked` in that lock hold, too. The
//!   [shard] does it as it counts the end, on each way out. A callback that is queued, behind a call or
//!   for the executor, takes one until it begins.
//! - **After**: wakers, callbacks, keys and untaken answers are the user's. They go into an
//!   [`Ended`], which is finished with nothing locked; a panic there is contained and counted.

pub(crate) mod call;
pub(crate) mod close;
mod expire;
pub(crate) mod form;
pub(crate) mod forwarding;
pub(crate) mod frame;
pub(crate) mod future;
pub(crate) mod handle;
pub(crate) mod highest;
pub(crate) mod keys;
pub(crate) mod peak;
#[cfg(feature = "metrics")]
pub(crate) mod publish;
pub(crate) mod shard;
pub(crate) mod tour;
pub(crate) mod trace;
pub(crate) mod under_lock;
mod waits;

pub(crate) use frame::EndedAt;

use std::{
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicU64 as Count, Ordering::Relaxed},
    },
    task::Waker,
};

use smallvec::SmallVec;
use timer_core::{
    Advanced, BuildError, MAX_SHARDS, MAX_TASKS, TaskId, TickLength, Timer, TimerHandle,
    driver::{DueQueue, ShardGuard, ShardPlan, ShardState, Shards, sync::UnderWay},
};

use crate::{
    error::WaitError,
    operation::{Outcome, ReachResult, Timeout},
    settings::Settings,
    stats::{Stats, Times},
    sync::{KeyHasher, Limit, MODEL, default_shards, key_hasher, mixed},
    table::{call::Call, frame::Frame, shard::Shard, under_lock::must_be_unlocked},
    watches::WatchKey,
};

/// Waits that end, or are visited, under one lock hold.
pub(crate) const BUDGET: usize = if MODEL { 2 } else { 64 };

/// The inside of a form: what its shards are, how what waits there ends, and the jobs that this
/// leaves. The kernel is one, and so is each [`Engine`].
pub(crate) trait Inside: Sized + Send + Sync + 'static {
    /// The key of what waits, as snapshots show it.
    type Key: WatchKey;
    type Shard: FormShard<Self::Key>;
    /// What has ended together, to be finished with nothing locked.
    type Batch: IntoIterator<Item: Into<Self::Job>>;
    /// Work that the executor does.
    type Job: Send;

    /// True if threads check what waits: then it may be under check.
    #[cfg(feature = "metrics")]
    const HAS_CHECKS: bool;

    /// Makes a shard.
    fn make_shard(common: &Common, plan: ShardPlan) -> Self::Shard;

    /// Advances the wheel of a shard and keeps what is due.
    fn advance(table: &AnyTable<Self>, shard: usize, now_tick: u64) -> Advanced;

    /// Returns false for a job that ends none of what waits.
    fn ends_wait(_job: &Self::Job) -> bool {
        true
    }

    /// Leaves jobs to the executor, as one. Each that a shutdown waits for is under way until it is
    /// done.
    fn queue(table: &Arc<AnyTable<Self>>, jobs: Vec<Self::Job>, under_way: Vec<UnderWay>);

    /// Ends all that waits; returns how many did. An entry that is no wait outlives a cancel.
    fn end_all(table: &AnyTable<Self>, outcome: &Outcome) -> (Self::Batch, usize);

    /// Finishes what has ended, in order, with nothing locked.
    fn finish_all(table: &Arc<AnyTable<Self>>, call: &Call<'_>, batch: Self::Batch);

    /// Ends one of what waits.
    fn end(table: &Arc<AnyTable<Self>>, handle: TimerHandle, outcome: Outcome) -> ReachResult;

    /// Sets a new deadline, counted from now; false if it has ended.
    fn reschedule(table: &AnyTable<Self>, handle: TimerHandle, timeout: Timeout) -> bool;

    /// Returns the keys of what waits, as they were given; `None` if it has ended.
    fn keys_of(table: &AnyTable<Self>, handle: TimerHandle) -> Option<Vec<Self::Key>>;

    /// Adds the counts that no shard has.
    fn add_to(&self, _stats: &mut Stats) {}

    /// Returns the gauges that no other form has. Takes one lock after the other.
    #[cfg(feature = "metrics")]
    fn own_gauges(_table: &AnyTable<Self>) -> Vec<timer_core::driver::Sample> {
        Vec::new()
    }
}

/// A shard of a form, under its lock.
pub(crate) trait FormShard<K>: ShardState + Send + Sized + 'static {
    /// Closes the shard: it takes nothing any more.
    fn close(&mut self);

    /// Returns the number of what waits.
    fn waiting(&self) -> usize;

    /// Adds what the shard holds and has counted to the totals.
    fn add_to(&self, stats: &mut Stats);

    /// Returns the times that the shard has recorded, if there are any.
    fn times(&self) -> Option<&Times>;

    /// Returns the number of keys that have waiters.
    fn key_count(&self) -> usize;

    /// Visits the keys that have waiters, each with their number.
    fn each_key(&self, visit: &mut dyn FnMut(&K, usize));

    /// Looks at what waits; `None` if it has ended.
    fn look(&mut self, id: TaskId, now_ns: u64, tick: TickLength) -> Option<Look>;

    /// Notes since when the check that a look at `found_ns` has found is known, if there are checks.
    fn note_check(&mut self, _id: TaskId, _found_ns: u64, _since_ns: u64) {}
}

/// A look at what waits.
pub(crate) struct Look {
    /// The time since it was parked, in nanoseconds.
    pub(crate) age_ns: u64,
    /// The time at which it expires, in nanoseconds, also if that has passed; `None` for never.
    pub(crate) due_ns: Option<u64>,
    /// The time for which its check is known to be under way.
    pub(crate) check_ns: Option<u64>,
    pub(crate) label: Option<&'static str>,
}

/// The types that an engine adds to the table's.
///
/// Engines implement it for keys and values of every type, without a bound. A task that holds a guard
/// or a handle across an await is asked whether that is `Send` for keys of any lifetime: a bound by
/// [`WatchKey`] would say no, as `&'a str` is none.
pub(crate) trait Parts {
    /// Lies beside the wheel, under each shard's lock.
    type Records;
    /// The engine's part of a wait.
    type Wait;
    /// The answer that a future takes.
    type Answer;
    /// The rest of a wait that has ended: keys to be dropped, a callback to be called.
    type Left;
}

/// The part of a form that the table does not have: its records in each shard, its part of a wait,
/// and how a wait leaves the records.
pub(crate) trait Engine:
    Parts<Records: Default + Send, Wait: Send, Answer: Send, Left: Send> + Sized + Send + Sync + 'static
{
    /// The key of a wait, as snapshots show it.
    type Key: WatchKey;

    /// Returns false for a wait that no future waits for: its entry goes as it ends.
    fn is_awaited(_wait: &Self::Wait) -> bool {
        true
    }

    /// Returns false for an entry that is no wait: it holds what a wait was given, until its
    /// deadline. It is not [awaited](Self::is_awaited). It counts nowhere, takes no place, and
    /// outlives cancels; a shutdown ends it.
    fn is_wait(_wait: &Self::Wait) -> bool {
        true
    }

    /// Returns false for what is left of an entry that was no wait, or of a key alone.
    fn is_of_wait(_left: &Self::Left) -> bool {
        true
    }

    /// Returns true for what is left of a wait that is called back.
    fn is_called_back(_left: &Self::Left) -> bool {
        false
    }

    /// Takes a wait that the table ended out of the records; returns what is left of it. Others
    /// that this ends go to `also`. Runs under the shard's lock; the entry is answered or gone.
    fn leave(
        &self,
        shard: &mut Shard<Self>,
        id: TaskId,
        wait: Self::Wait,
        outcome: &Outcome,
        also: &mut Batch<Self>,
    ) -> Self::Left;

    /// Does what follows from waits that [left](Self::leave): behind each that expires, and behind all
    /// that one cancel ends, of which none is given what another leaves. Runs under the shard's lock.
    fn settle(&self, _shard: &mut Shard<Self>, _also: &mut Batch<Self>) {}

    /// Deals with what is left of a wait, with nothing locked, in the outermost call of its thread.
    #[inline]
    fn finish(table: &Arc<Table<Self>>, left: Self::Left) {
        if std::mem::needs_drop::<Self::Left>() {
            table.frame.call(|| drop(left));
        }
    }

    /// Takes back an answer whose future was dropped; returns what is to be dropped unlocked. Runs
    /// under the shard's lock.
    fn put_back(
        &self,
        _shard: &mut Shard<Self>,
        answer: Self::Answer,
        _also: &mut Batch<Self>,
    ) -> Option<Self::Answer> {
        Some(answer)
    }

    /// Returns the key of a wait.
    fn key_of(records: &Self::Records, wait: &Self::Wait) -> Self::Key;

    /// Returns the number of keys that have waiters.
    fn key_count(shard: &Shard<Self>) -> usize {
        let mut count = 0;
        Self::each_key(&shard.records, &mut |_, _| count += 1);
        count
    }

    /// Visits the keys that have waiters, each with their number.
    fn each_key(records: &Self::Records, visit: &mut dyn FnMut(&Self::Key, usize));

    /// Returns the gauges that no other form has. Takes one lock after the other.
    #[cfg(feature = "metrics")]
    fn own_gauges(_table: &Table<Self>) -> Vec<timer_core::driver::Sample> {
        Vec::new()
    }
}

/// A wait that has ended, to be finished with nothing locked.
pub(crate) struct Ended<E: Parts> {
    /// That of the last poll.
    pub(crate) waker: Option<Waker>,
    pub(crate) left: E::Left,
}

/// Waits that end together.
pub(crate) struct Batch<E: Parts> {
    /// The present, if ends are timed. Read before the lock is taken.
    pub(crate) ended_at: EndedAt,
    pub(crate) ended: SmallVec<[Ended<E>; 2]>,
}

impl<E: Engine> Batch<E> {
    #[inline]
    pub(crate) fn at(ended_at: EndedAt) -> Self {
        Batch {
            ended_at,
            ended: SmallVec::new(),
        }
    }
}

impl<E: Engine> IntoIterator for Batch<E> {
    type Item = Ended<E>;
    type IntoIter = smallvec::IntoIter<[Ended<E>; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.ended.into_iter()
    }
}

/// A shard, under its lock.
pub(crate) type LockedShard<'a, E> = ShardGuard<'a, Shard<E>>;

/// The times of a wait that comes to be parked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now_ns: u64,
    pub(crate) now_tick: u64,
    /// `None` for never.
    pub(crate) deadline_tick: Option<u64>,
    /// True if there is no time to wait.
    pub(crate) is_over: bool,
}

/// The parts that all shards of a form have in common.
#[derive(Clone)]
pub(crate) struct Common {
    /// The bound on what waits.
    max_parked: Option<Arc<Limit>>,
    /// Numbers the entries, where their order matters over the shards: on a manual timer. Not the
    /// model's atomic: nothing depends on it.
    sequence: Option<Arc<Count>>,
}

impl Common {
    /// Takes one of the places of what waits; returns why not, if there is none.
    #[inline]
    pub(crate) fn take_place(&self) -> Option<WaitError> {
        let max_parked = self.max_parked.as_ref()?;
        if max_parked.acquire() {
            return None;
        }
        let limit = max_parked.max();
        Some(WaitError::Full { limit })
    }

    /// Takes a place for a callback that is queued, also if there is none: its wait had one, or has
    /// ended at once.
    pub(crate) fn take_callbacks_place(&self) {
        if let Some(max_parked) = &self.max_parked {
            max_parked.acquire_beyond();
        }
    }

    /// Returns the place of what waits no more.
    pub(crate) fn return_place(&self) {
        if let Some(max_parked) = &self.max_parked {
            max_parked.release();
        }
    }

    /// Returns the number that what is inserted next follows, where the order matters.
    pub(crate) fn follows(&self) -> Option<u64> {
        let sequence = self.sequence.as_ref();
        sequence.map(|sequence| sequence.fetch_add(1, Relaxed))
    }
}

/// State that all handles and futures of a form share.
///
/// It names its parts, not its inside's: an operation may own a handle of its own form, and is asked
/// then whether it is `Send`.
pub(crate) struct TableOf<E, S: ShardState, J> {
    pub(crate) frame: Frame,
    pub(crate) engine: E,
    pub(crate) shards: Shards<S, Common>,
    hasher: KeyHasher,
    pub(crate) common: Common,
    /// Work that this round of the timer found due.
    pub(crate) due: DueQueue<J>,
    /// Publishes what was counted since the last time, as the table goes. It names the inside that
    /// this type does not.
    #[cfg(feature = "metrics")]
    withdraw: fn(&Self),
}

/// The table of an engine.
pub(crate) type Table<E> = TableOf<E, Shard<E>, Ended<E>>;

/// A table, whatever its inside.
pub(crate) type AnyTable<E> = TableOf<E, <E as Inside>::Shard, <E as Inside>::Job>;

impl<E: Inside> AnyTable<E> {
    /// Makes a table and attaches it to its timer. `engine` makes the inside, for this number of
    /// shards.
    pub(crate) fn new(
        settings: Settings,
        engine: impl FnOnce(usize) -> E,
    ) -> Result<Arc<Self>, BuildError> {
        // What happens on a manual timer is to repeat.
        let driver = settings.driver.as_ref();
        let is_simulated = driver.is_some_and(|driver| driver.config.manual);
        let shard_count = settings.shard_count(|| default_shards(is_simulated))?;
        let driver = match settings.driver {
            Some(driver) => driver,
            None => Timer::shared_driver()?,
        };
        let common = Common {
            max_parked: settings.max_parked.map(Arc::new),
            sequence: is_simulated.then(Arc::default),
        };
        let table = Arc::new(TableOf {
            engine: engine(shard_count),
            shards: driver.shards(shard_count, common.clone(), E::make_shard),
            hasher: key_hasher(is_simulated),
            common,
            due: DueQueue::new(&driver.config),
            #[cfg(feature = "metrics")]
            withdraw: Self::withdraw,
            frame: Frame::new(settings.name, driver, settings.executor),
        });
        if table.frame.driver().attach(&table, &table.shards) {
            return Ok(table);
        }
        // The timer was shut down, or another process has its threads.
        match table.frame.driver().is_inherited() {
            true => Err(BuildError::Forked),
            false => Err(BuildError::Closed),
        }
    }

    /// Runs the key's `Hash`, with nothing locked.
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Locks the shard of the keys of this hash.
    pub(crate) fn shard_of(&self, hash: u64) -> ShardGuard<'_, E::Shard> {
        must_be_unlocked();
        self.shards.lock(shard_number(hash))
    }

    /// Locks a shard.
    pub(crate) fn lock(&self, number: usize) -> ShardGuard<'_, E::Shard> {
        must_be_unlocked();
        self.shards.lock(number)
    }

    /// Sums `count` over the shards, locking one after the other.
    pub(crate) fn sum(&self, count: impl Fn(&E::Shard) -> usize) -> usize {
        must_be_unlocked();
        self.shards.sum(count)
    }

    /// Returns why no wait comes for these keys, whatever holds of them; `None` if one may.
    pub(crate) fn refuses_keys<T>(&self, keys: &[T]) -> Option<WaitError> {
        if self.shards.is_closed() {
            Some(WaitError::Closed)
        } else {
            keys.is_empty().then_some(WaitError::NoKeys)
        }
    }

    /// Reads the clock for a wait that comes to be parked. The deadline counts from here.
    #[inline(always)] // a call costs 50 instructions
    pub(crate) fn arrival(&self, timeout: Timeout) -> Arrival {
        let driver = self.frame.driver();
        let now_ns = driver.now_ns();
        let tick = driver.config.tick;
        Arrival {
            now_ns,
            now_tick: tick.round_down(now_ns),
            deadline_tick: timeout.deadline(tick, now_ns),
            is_over: timeout.is_over(now_ns),
        }
    }
}

/// Returns the shard of a hash; numbers beyond the last wrap around.
fn shard_number(hash: u64) -> usize {
    mixed(hash, MAX_SHARDS)
}

/// The most entries of one shard.
pub(crate) const SHARD_MAX: usize = MAX_TASKS as usize;

/// Returns why a shard with this many entries takes no more; `None` if it does.
#[inline]
pub(crate) fn full(entries: usize) -> Option<WaitError> {
    (entries >= SHARD_MAX).then_some(WaitError::Full { limit: SHARD_MAX })
}
