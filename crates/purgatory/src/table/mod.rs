//! The table: the part that all forms share. It has shards under locks, each with a wheel; places,
//! expiry as jobs, closing, counts, snapshots, metrics. Forms differ in their [`Inside`]: the
//! kernel, or an engine. The entries and ends that all engines have in common are here as well.
//!
//! | Trait | implemented by | called by |
//! |---|---|---|
//! | [`Inside`] | the kernel; once for all engines ([expire]) | the table: rounds of the timer, ends by id, the end of all |
//! | [`FormShard`] | the kernel's shard; the one of all engines ([shard]) | the table: counts, snapshots, closing |
//! | [`Engine`] | an engine: watermarks, permits, replies | the shard and table of engines, as waits end |
//! | [`Yields`](future::Yields) | an engine, for each type that its futures yield | a future's poll that has the answer |
//! | [`AnyForm`](form::AnyForm) | the table | users' handles, whose types do not name the inside |
//! | [`Closes`](handle::Closes) | the table | its last handle |
//!
//! An [`Engine`] compares under a shard's lock, with no user code but a key's `Eq` and `Clone`. So
//! nothing is ever checked out of an entry, and an entry is in one of two states:
//!
//! ```text
//!  park ──▶ Waits { wait, waker } ── answered ──▶ Answered ── its future: polled, dropped ──▶ gone
//!               ├── ended, and no future takes an answer ──────────────────────────────────▶ gone
//!               └── its future is dropped ─────────────────────────────────────────────────▶ gone
//! ```
//!
//! A wait may move to another shard, any number of times. Its entry there holds the wait. The entry
//! that its future names holds a [forwarding], until the future has the answer or is dropped. A
//! move leaves no other entry behind.
//!
//! - **One outcome**: an entry leaves *Waits* once, under its shard's lock.
//! - **Listed**: the engine's records name the entries that wait, and no others. A wait leaves the
//!   records in the lock hold in which it ends: the engine that answers it takes it off, or
//!   [`Engine::leave`] does if the table ends it.
//! - **Place**: a wait returns its place among `max_parked` in that lock hold: on each way out, the
//!   [shard] returns it as it counts the end. A callback that is queued, behind a call or for the
//!   executor, takes a place until it begins.
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

/// The inside of a form: its shards, how a wait there ends, and the jobs that an end leaves. The
/// kernel is one, with operations as its waits, and so is each [`Engine`].
pub(crate) trait Inside: Sized + Send + Sync + 'static {
    /// The key of a wait, as snapshots show it.
    type Key: WatchKey;
    type Shard: FormShard<Self::Key>;
    /// Waits that have ended together, to be finished with nothing locked.
    type Batch: IntoIterator<Item: Into<Self::Job>>;
    /// Work that the executor does.
    type Job: Send;

    /// True if threads check the waits: then one may be under check.
    #[cfg(feature = "metrics")]
    const HAS_CHECKS: bool;

    /// Makes a shard.
    fn make_shard(common: &Common, plan: ShardPlan) -> Self::Shard;

    /// Advances the wheel of a shard and keeps the waits that are due.
    fn advance(table: &AnyTable<Self>, shard: usize, now_tick: u64) -> Advanced;

    /// Returns false for a job that ends no wait.
    fn ends_wait(_job: &Self::Job) -> bool {
        true
    }

    /// Leaves jobs to the executor, as one job. `under_way` has a mark for each job that a shutdown
    /// waits for, kept until that job is done.
    fn queue(table: &Arc<AnyTable<Self>>, jobs: Vec<Self::Job>, under_way: Vec<UnderWay>);

    /// Ends all waits; returns how many this ended: a wait under check ends later, and does not
    /// count. An entry that is no wait outlives a cancel.
    fn end_all(table: &AnyTable<Self>, outcome: &Outcome) -> (Self::Batch, usize);

    /// Finishes waits that have ended, in order, with nothing locked.
    fn finish_all(table: &Arc<AnyTable<Self>>, call: &Call<'_>, batch: Self::Batch);

    /// Ends one wait.
    fn end(table: &Arc<AnyTable<Self>>, handle: TimerHandle, outcome: Outcome) -> ReachResult;

    /// Sets a wait's new deadline, counted from now; false if it has ended.
    fn reschedule(table: &AnyTable<Self>, handle: TimerHandle, timeout: Timeout) -> bool;

    /// Returns the keys of a wait, as they were given; `None` if it has ended.
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
    /// Closes the shard: from then on it takes no wait.
    fn close(&mut self);

    /// Returns the number of waits.
    fn waiting(&self) -> usize;

    /// Adds the shard's counts, and the waits in it, to the totals.
    fn add_to(&self, stats: &mut Stats);

    /// Returns the times that the shard has recorded, if there are any.
    fn times(&self) -> Option<&Times>;

    /// Returns the number of keys that have waiters.
    fn key_count(&self) -> usize;

    /// Visits the keys that have waiters, each with their number.
    fn each_key(&self, visit: &mut dyn FnMut(&K, usize));

    /// Looks at a wait; `None` if it has ended.
    fn look(&mut self, id: TaskId, now_ns: u64, tick: TickLength) -> Option<Look>;

    /// Notes that the check found by a look at `found_ns` is known since `since_ns`, in a shard
    /// with checks.
    fn note_check(&mut self, _id: TaskId, _found_ns: u64, _since_ns: u64) {}
}

/// A look at a wait.
pub(crate) struct Look {
    /// The time since the wait was parked, in nanoseconds.
    pub(crate) age_ns: u64,
    /// The time at which it expires, in nanoseconds, even if that has passed; `None` for never.
    pub(crate) due_ns: Option<u64>,
    /// The time for which its check is known to be under way.
    pub(crate) check_ns: Option<u64>,
    pub(crate) label: Option<&'static str>,
}

/// The types that an engine adds to the table's.
///
/// Engines implement it for keys and values of every type, without a bound. If a task holds a guard
/// or a handle across an await, the compiler asks whether that is `Send` for keys of any lifetime.
/// With a bound by [`WatchKey`] the answer would be no, since `&'a str` has no such impl.
pub(crate) trait Parts {
    /// The records that lie beside the wheel, under each shard's lock.
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

    /// Returns false for a wait without a future: its entry is removed as it ends.
    fn is_awaited(_wait: &Self::Wait) -> bool {
        true
    }

    /// Returns false for an entry that is no wait: it holds the grant of an earlier wait until a
    /// deadline. It is not [awaited](Self::is_awaited). It counts nowhere, takes no place, and
    /// outlives cancels; a shutdown ends it.
    fn is_wait(_wait: &Self::Wait) -> bool {
        true
    }

    /// Returns false if `left` comes from an entry that was no wait, or from a key alone.
    fn is_of_wait(_left: &Self::Left) -> bool {
        true
    }

    /// Returns true if `left` comes from a wait that is called back.
    fn is_called_back(_left: &Self::Left) -> bool {
        false
    }

    /// Takes a wait that the table ended out of the records; returns its rest. Other waits that
    /// this ends go to `also`. Runs under the shard's lock; the entry is answered or gone.
    fn leave(
        &self,
        shard: &mut Shard<Self>,
        id: TaskId,
        wait: Self::Wait,
        outcome: &Outcome,
        also: &mut Batch<Self>,
    ) -> Self::Left;

    /// Deals with the consequences of waits that [left](Self::leave). Runs under the shard's lock:
    /// after each wait that expires, but only once after a cancel, so that no wait that the cancel
    /// ends is given what another one leaves.
    fn settle(&self, _shard: &mut Shard<Self>, _also: &mut Batch<Self>) {}

    /// Deals with the rest of a wait, with nothing locked, in the outermost call of its thread.
    #[inline]
    fn finish(table: &Arc<Table<Self>>, left: Self::Left) {
        if std::mem::needs_drop::<Self::Left>() {
            table.frame.call(|| drop(left));
        }
    }

    /// Takes back an answer whose future was dropped; returns it if the caller is to drop it,
    /// unlocked. Runs under the shard's lock.
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
    /// The waker of the last poll.
    pub(crate) waker: Option<Waker>,
    pub(crate) left: E::Left,
}

/// Waits that end together.
pub(crate) struct Batch<E: Parts> {
    /// The present time, if ends are timed. Read before the lock is taken.
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

/// The times of a wait that is about to be parked.
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
    /// The bound on the number of waits.
    max_parked: Option<Arc<Limit>>,
    /// Numbers the entries where their order across shards matters: on a manual timer. Not the
    /// model's atomic, since nothing depends on it.
    sequence: Option<Arc<Count>>,
}

impl Common {
    /// Takes a place for a wait; returns an error if none is free.
    #[inline]
    pub(crate) fn take_place(&self) -> Option<WaitError> {
        let max_parked = self.max_parked.as_ref()?;
        if max_parked.acquire() {
            return None;
        }
        let limit = max_parked.max();
        Some(WaitError::Full { limit })
    }

    /// Takes a place for a queued callback, even if none is free: its wait had one, or has ended at
    /// once.
    pub(crate) fn take_callbacks_place(&self) {
        if let Some(max_parked) = &self.max_parked {
            max_parked.acquire_beyond();
        }
    }

    /// Gives back the place of a wait that has ended.
    pub(crate) fn return_place(&self) {
        if let Some(max_parked) = &self.max_parked {
            max_parked.release();
        }
    }

    /// Returns the number that the next entry follows, where the order matters.
    pub(crate) fn follows(&self) -> Option<u64> {
        let sequence = self.sequence.as_ref();
        sequence.map(|sequence| sequence.fetch_add(1, Relaxed))
    }
}

/// State that all handles and futures of a form share.
///
/// Its type has the parts as parameters, not the inside: an operation may own a handle of its own
/// form, and the compiler then asks whether the operation is `Send`.
pub(crate) struct TableOf<E, S: ShardState, J> {
    pub(crate) frame: Frame,
    pub(crate) engine: E,
    pub(crate) shards: Shards<S, Common>,
    hasher: KeyHasher,
    pub(crate) common: Common,
    /// Work that this round of the timer found due.
    pub(crate) due: DueQueue<J>,
    /// Publishes the counts since the last time, as the table is dropped. A function pointer, since
    /// it needs the inside, which this type does not name.
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
        // On a manual timer, runs must be repeatable.
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

    /// Sums `count` over the shards, locking one at a time.
    pub(crate) fn sum(&self, count: impl Fn(&E::Shard) -> usize) -> usize {
        must_be_unlocked();
        self.shards.sum(count)
    }

    /// Returns why a wait for these keys is refused unchecked; `None` if it is not.
    pub(crate) fn refuses_keys<T>(&self, keys: &[T]) -> Option<WaitError> {
        if self.shards.is_closed() {
            Some(WaitError::Closed)
        } else {
            keys.is_empty().then_some(WaitError::NoKeys)
        }
    }

    /// Reads the clock for a wait that is about to be parked. The deadline counts from here.
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

/// Returns the number of a hash's shard; numbers beyond the last wrap around.
fn shard_number(hash: u64) -> usize {
    mixed(hash, MAX_SHARDS)
}

/// The most entries of one shard.
pub(crate) const SHARD_MAX: usize = MAX_TASKS as usize;

/// Returns why a shard with this many entries takes no more; `None` if it takes one.
#[inline]
pub(crate) fn full(entries: usize) -> Option<WaitError> {
    (entries >= SHARD_MAX).then_some(WaitError::Full { limit: SHARD_MAX })
}
