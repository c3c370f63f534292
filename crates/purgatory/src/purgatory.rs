//! What most programs hold: [`Purgatory`].

use std::{
    borrow::{Borrow, Cow},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use crossbeam_utils::CachePadded;
use timer_core::{SystemTimer, Timer};

use crate::{
    boxed::BoxedOperation,
    engine::{Core, signal::Event},
    operation::{
        CancelReason, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Refused,
        Timeout, opaque,
    },
    stats::{Snapshot, Stats, Times},
    sync::thread_slot,
    watches::{WatchKey, Watches},
};

/// Parks operations `O` under keys `K` until they can be answered. The default `O` takes any
/// operation, boxed, and futures and blocking waits.
///
/// Park with [`try_complete_else_watch`](Self::try_complete_else_watch). The code that makes a
/// condition true calls [`check_and_complete`](Self::check_and_complete) with its key. An operation
/// that is not completed in time expires. Each ends exactly once.
///
/// A handle: clones are the same purgatory. Dropping the last one ends all parked operations as
/// [`Dropped`](CancelReason::Dropped), without waiting for a thread. It may be dropped inside a
/// callback.
///
/// # The one rule
/// Make the condition true *first*, then raise the event; and hold no lock of yours that a check
/// needs while you do. Then no event is missed: when `check_and_complete` returns, every operation
/// parked under the key before the call has ended, was seen unsatisfied, or is checked again by the
/// thread that has it under check.
///
/// # Locks
/// Checks and callbacks run with nothing of the purgatory locked, on the thread that parks, raises
/// the event or cancels; expired callbacks on the executor
/// ([all](crate::Builder::callbacks_on_executor), if you choose). No thread waits for another's
/// check or callback. A key's `Eq` and `Clone` run under a lock and must not call back.
///
/// # Calls from inside a check or callback
/// All are allowed. What they end is told when the outermost call on the thread returns; a nested
/// event returns 0, and what waits for its key is checked then, too. (It stands for what was
/// changed before it; what the callback changes after it needs another event.) So a chain of
/// completions, however long, needs no stack.
///
/// # Cost
/// Parking and completing under one key takes three locks and a clock read. Up to four keys need no
/// allocation, but for what the shards keep. Threads meet only where their keys have the same shard
/// ([`Builder::shards`](crate::Builder::shards)).
pub struct Purgatory<K: WatchKey, O: DelayedOperation = BoxedOperation> {
    pub(crate) core: Arc<Core<K, O>>,
    handle: Arc<Handle<K, O>>,
}

/// What the handles share. Closes the purgatory when the last one goes.
struct Handle<K: WatchKey, O: DelayedOperation> {
    /// For the futures: those of different threads do not count on the same word.
    shares: Box<[Arc<Share<K, O>>]>,
}

/// A share in the inside, on cache lines of its own.
type Share<K, O> = CachePadded<Arc<Core<K, O>>>;

impl<K: WatchKey, O: DelayedOperation> Drop for Handle<K, O> {
    fn drop(&mut self) {
        let core = &self.shares[0];
        core.close(CancelReason::Dropped);
        if let Some(timer) = &core.own_timer {
            timer.shutdown(Duration::ZERO); // a future still held keeps the inside, but no threads
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// The first handle of what was built.
    pub(crate) fn handle_of(core: Arc<Core<K, O>>) -> Self {
        let share = || Arc::new(CachePadded::new(core.clone()));
        let count = core.driver().shard_count.min(core.shards.count());
        let shares = std::iter::repeat_with(share).take(count).collect();
        Purgatory {
            handle: Arc::new(Handle { shares }),
            core,
        }
    }

    /// This thread's share in the inside.
    pub(crate) fn share(&self) -> Arc<Share<K, O>> {
        self.handle.shares[thread_slot() & (self.handle.shares.len() - 1)].clone()
    }

    /// Checks the operation; if it must wait, parks it under each key of `watches` until an event
    /// on one of them completes it, its time runs out, or it is cancelled. Repeated keys count
    /// once.
    ///
    /// `watches` is a slice or array of keys, or a [`Watches`] with watermarks.
    ///
    /// `timeout` is a `Duration` from now or a [`Timeout`]. The check runs here once, and again for
    /// each event that falls in between. The callback may have run before this returns.
    ///
    /// O(keys): nothing depends on how many others wait, but for a watermark below others of its
    /// key, which costs the log of how many such there are.
    ///
    /// # Errors
    /// [`Refused`] hands the operation back, its callback uncalled, when there are no keys, or when
    /// it would have to wait and the purgatory is shut down or full.
    ///
    /// # Panics
    /// Only with a panic of the keys' own `Hash`, `Eq` or `Clone`; then nothing was parked and the
    /// operation is dropped.
    pub fn try_complete_else_watch<'a>(
        &self,
        operation: O,
        watches: impl Into<Watches<'a, K>>,
        timeout: impl Into<Timeout>,
    ) -> Result<ParkResult, Refused<O>> {
        self.core.park(operation, watches.into(), timeout.into())
    }

    /// Ends whatever is parked under `key` as Cancelled with this reason, each through its own
    /// callback; returns how many this call ended. (One under check right now is left a note: it
    /// ends as Completed if that check comes true.) Plain watches and watermarks alike.
    ///
    /// All are claimed before the first is told, so what their callbacks park stays parked. Not an
    /// event: what others park meanwhile may stay, too. O(waiters of the key), times the log of the
    /// watermark watches.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{CancelReason, Outcome, Purgatory, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let (told, outcomes) = mpsc::channel();
    /// for keys in [["orders-0", "orders-1"], ["orders-1", "orders-2"]] {
    ///     let told = told.clone();
    ///     let fetch = when(|| false, move |outcome| told.send(outcome).unwrap());
    ///     fetches.try_complete_else_watch(fetch, &keys, Duration::from_secs(30))?;
    /// }
    /// assert_eq!(fetches.cancel_for_key(&"orders-2", "no longer the leader"), 1);
    /// let reason = CancelReason::Requested("no longer the leader".into());
    /// assert_eq!(outcomes.recv()?, Outcome::Cancelled(reason));
    /// assert_eq!((fetches.len(), fetches.waiters(&"orders-1")), (1, 1)); // off its other key, too
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn cancel_for_key<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        reason: impl Into<Cow<'static, str>>,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.end_for_key(
            key,
            Outcome::Cancelled(CancelReason::Requested(reason.into())),
        )
    }

    /// Ends whatever is parked under `key` as Completed, whatever its check would say, each through
    /// its own callback; returns how many this call ended. For an event that *is* the condition: a
    /// file was closed, a lock let go. (One under check right now is left a note, and ends as
    /// Completed.) Plain watches and watermarks alike.
    ///
    /// Claimed, and of the same cost, as by [`cancel_for_key`](Self::cancel_for_key): not an event,
    /// so one that is being parked by another thread meanwhile may stay, unless its check sees the
    /// condition. A [`wait`](Purgatory::wait) that is completed so asks its condition once more for
    /// the value, and without one ends as Cancelled.
    ///
    /// ```
    /// use purgatory::{Purgatory, Timeout, when};
    ///
    /// let openings = Purgatory::<&str>::new("openings")?;
    /// for door in ["front", "front", "back"] {
    ///     let waits = when(|| false, |outcome| println!("go in: {outcome}"));
    ///     openings.try_complete_else_watch(waits, &[door], Timeout::Never)?;
    /// }
    /// assert_eq!((openings.complete_for_key(&"front"), openings.len()), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.end_for_key(key, Outcome::Completed)
    }

    /// Ends whatever is parked as Cancelled with this reason, each through its own callback;
    /// returns how many this call ended. The purgatory stays open, as it does not with
    /// [`shutdown`](Self::shutdown). (One under check right now is left a note: it ends as
    /// Completed if that check comes true.)
    ///
    /// All are claimed before the first is told, so what their callbacks park stays parked; what
    /// other threads park meanwhile may stay, too. O(parked + shards), and memory for all of them
    /// until they are told; shards are locked one after the other, for 64 operations each time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, Outcome, Purgatory, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let gone = Outcome::Cancelled(CancelReason::Requested("not the leader".into()));
    /// let fetch = when(|| false, move |outcome| assert_eq!(outcome, gone));
    /// fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_secs(30))?;
    /// assert_eq!((fetches.cancel_all("not the leader"), fetches.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_all(&self, reason: impl Into<Cow<'static, str>>) -> usize {
        self.core.cancel_all(CancelReason::Requested(reason.into()))
    }

    /// Ends one operation as Cancelled with this reason, unless it is over. O(its keys), and for a
    /// watermark the log of how many wait for the same key. See [`EndResult`].
    pub fn cancel(&self, id: OperationId, reason: impl Into<Cow<'static, str>>) -> EndResult {
        self.core.end(
            id,
            Outcome::Cancelled(CancelReason::Requested(reason.into())),
        )
    }

    /// Ends one operation as Completed, whatever its check would say, unless it is over. O(its
    /// keys), as [`cancel`](Self::cancel). See [`EndResult`].
    ///
    /// A [`wait`](Purgatory::wait) that is completed so asks its condition once more for the value,
    /// and without one ends as Cancelled.
    pub fn complete(&self, id: OperationId) -> EndResult {
        self.core.end(id, Outcome::Completed)
    }

    /// Gives one operation another timeout, counted from now: longer, shorter, or none. False when
    /// it is over, or its end is decided. Zero, or a moment that has passed: it expires at the next
    /// tick, without another check (but a [last one](crate::Builder::check_at_expiry)). O(levels of
    /// the wheel).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, ParkResult, Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
    /// let (told, outcomes) = mpsc::channel();
    /// let session = when(|| false, move |outcome| told.send(outcome).unwrap());
    /// let timeout = Duration::from_secs(30);
    /// let parked = sessions.try_complete_else_watch(session, &["alice"], timeout)?;
    /// let ParkResult::Parked(id) = parked else { unreachable!("its check is never true") };
    ///
    /// timer.advance(Duration::from_secs(20));
    /// assert!(sessions.reschedule(id, Duration::from_secs(30))); // a heartbeat: until second 50
    /// timer.advance(Duration::from_secs(29));
    /// assert!(outcomes.try_recv().is_err());
    /// timer.advance(Duration::from_secs(1));
    /// assert_eq!(outcomes.try_recv(), Ok(Outcome::Expired));
    /// assert!(!sessions.reschedule(id, Duration::from_secs(30))); // too late
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reschedule(&self, id: OperationId, timeout: impl Into<Timeout>) -> bool {
        self.core.reschedule(id, timeout.into())
    }

    /// Operations parked now. Exact when nothing moves. O(shards).
    pub fn len(&self) -> usize {
        self.core.shards.sum(|shard| shard.len())
    }

    /// True when nothing is parked. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Watches of what is parked now: an operation has one for each of its keys and one for each of
    /// its watermarks. (One that was met counts until its operation ends.) Exact when nothing
    /// moves. O(shards).
    pub fn watched(&self) -> usize {
        self.core.shards.sum(|shard| shard.watched())
    }

    /// Watches of a key now: as many as operations wait for it, but that one which waits for it
    /// both plainly and for a watermark, or in the count form for two watermarks of it, counts
    /// twice. O(1).
    pub fn waiters<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let hash = self.core.versions.hash(key);
        let shard = self.core.shard_of(hash);
        shard
            .find(key, hash)
            .map_or(0, |record| shard.waiters(record))
    }

    /// Keys that have waiters now. Exact when nothing moves. O(shards).
    pub fn keys(&self) -> usize {
        self.core.keys()
    }

    /// What the purgatory holds and has done. O(shards), which are locked one after the other.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Tells what is parked now: the `limit` keys with the most waiters, as many without an event
    /// for longest, the `limit` operations parked for longest, and up to as many under check. For a
    /// debug page, a health check, a test that hangs.
    ///
    /// Nothing stands still for it: shards are locked one after the other, for up to 256 operations
    /// or the keys of one shard. So counts may disagree by what moves meanwhile. How long a check
    /// has been under way is known only from the first snapshot that found it; two of them a second
    /// apart tell a stuck check from one that happens to run. Clones keys under a lock.
    ///
    /// O(parked + keys).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watches, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let waits = when(|| false, drop);
    /// let timeout = Duration::from_secs(30);
    /// purgatory.try_complete_else_watch(waits, &["orders-0", "orders-1"], timeout)?;
    ///
    /// let snapshot = purgatory.snapshot(10);
    /// assert_eq!((snapshot.stats.parked, snapshot.key_count), (1, 2));
    /// assert_eq!(snapshot.busiest[0].1, 1);
    /// assert_eq!(snapshot.oldest[0].keys, ["orders-0", "orders-1"]);
    /// assert!(snapshot.oldest[0].expires_in > Some(Duration::from_secs(29)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, limit: usize) -> Snapshot<K> {
        self.core.snapshot(limit)
    }

    /// How long operations waited, by how they ended, and how late those were that expired. Counted
    /// from the first call on (or the first [`snapshot`](Self::snapshot) or `publish`). O(shards).
    pub fn times(&self) -> Times {
        self.core.times()
    }

    /// The timer that [`new`](Self::new) started; `None` when it is shared.
    pub fn own_timer(&self) -> Option<&SystemTimer> {
        self.core.own_timer.as_ref()
    }

    /// (Feature `metrics`.) Hands counts and times to the installed `metrics` recorder, labelled
    /// with the purgatory's name, and its [own timer](Self::own_timer)'s. `docs/METRICS.md` lists
    /// them.
    ///
    /// Call it once at the start, from when on waits are timed, and then before each scrape, from
    /// one place. Nothing is published otherwise, and nothing on an operation's path touches a
    /// shared metric. A wait is handed to a recorder's histogram once, and so to whichever is
    /// installed then.
    ///
    /// O(parked + keys + shards + endings since the last call): it looks for the oldest operation
    /// and the quietest key, and so clones keys under a lock.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.core.publish();
        if let Some(timer) = &self.core.own_timer {
            timer.publish();
        }
    }
}

/// Raising events.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// The event: something that operations parked under `key` wait for may have come true. Checks
    /// them in the order they were parked and returns how many this call completed. (One that
    /// another thread is checking right now is left to that thread, which checks it again.) An
    /// operation whose deadline has passed completes, too, until the reaper has come by.
    ///
    /// Checks and callbacks run here, with nothing locked: do not hold a lock that a check needs. A
    /// thread that holds one [collects the keys and raises them
    /// after](crate::guide::recipes#raise-after-unlock). Inside a check or callback this returns 0,
    /// and what waits for the key now is checked when the outermost call returns.
    ///
    /// Watermark watches of the key are not touched: those are
    /// [`complete_up_to`](Self::complete_up_to)'s.
    ///
    /// `key` is any borrowed form of the keys, as in a `HashMap`: no `String` is made to raise an
    /// event. So it is wherever a key is only looked up.
    ///
    /// ```
    /// use purgatory::{Purgatory, Timeout, when};
    ///
    /// let fetches = Purgatory::<String>::new("fetch")?;
    /// let fetch = when(|| false, drop);
    /// fetches.try_complete_else_watch(fetch, &["orders-0".to_owned()], Timeout::Never)?;
    /// assert_eq!((fetches.check_and_complete("orders-0"), fetches.waiters("orders-0")), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// O(plain waiters of the key); without them one lock.
    ///
    /// # Panics
    /// Only with a panic of the key's own `Hash`, `Eq` or `Clone`. Those of checks and callbacks
    /// are contained, and the walk goes on.
    pub fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.signal(key, Event::All)
    }

    /// As [`check_and_complete`](Self::check_and_complete), for a change that can complete one
    /// operation only: one more job, one lease that is free again. Checks what waits, in the order
    /// it was parked, one after the other, until a check comes true; true if one did. (What another
    /// thread is checking right now is left to that thread, and the next is checked.)
    ///
    /// So of many that wait for the same thing one is checked and not all. That is right for
    /// operations that wait under this key alone, whose checks *take* what they wait for, and which
    /// nothing else completes; for others raise the event for all: an operation that is not checked
    /// waits on, until the next event or the end of its time. A future that is dropped while it
    /// waits or is checked passes its turn on. It may be dropped with what it took: make that a
    /// [guard that gives itself back](crate::guide::recipes#leases) and raises the event again.
    /// Inside a check or callback this returns false, and the first is completed when the outermost
    /// call returns.
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use purgatory::Purgatory;
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("jobs")?;
    /// let jobs = Arc::new(Mutex::new(Vec::new()));
    /// let take = || {
    ///     let jobs = jobs.clone();
    ///     waits.wait(&["job"], Duration::from_secs(30), move || jobs.lock().unwrap().pop())
    /// };
    /// let (first, second) = (take(), take());
    /// jobs.lock().unwrap().push("a job");
    /// assert!(waits.check_and_complete_one(&"job"));
    /// assert_eq!((first.wait_blocking(), waits.len()), (Ok("a job"), 1));
    /// # drop(second);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// O(the waiters it checks); without waiters one lock.
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn check_and_complete_one<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.core.signal(key, Event::One) > 0
    }

    /// The event of a watermark: the key's value, which only rises, is now at least `value`.
    /// Completes the operations whose last watermark that meets, checks those that it meets
    /// otherwise (and those met before that still wait for their check), and returns how many this
    /// call completed. What waits for a higher value is not looked at, and a value lower than
    /// before meets nothing new.
    ///
    /// First come those that complete, then those to be checked that wait for other watermarks,
    /// too, then the met ones in the check form; within each, those newly met go by (threshold,
    /// order of parking). As with every event, the value that the operations' own checks read
    /// changes first, and inside a check or callback this returns 0, and what waits for the key now
    /// is taken when the outermost call returns.
    ///
    /// O(met), times the log of how many came below others of the key for those that did; when none
    /// is met one lock. It goes on for as long as other threads keep parking at or below `value`;
    /// what the callbacks park is not taken.
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_up_to<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.signal(key, Event::Advance(value))
    }
}

impl<K: WatchKey, O: DelayedOperation> Clone for Purgatory<K, O> {
    fn clone(&self) -> Self {
        Purgatory {
            core: self.core.clone(),
            handle: self.handle.clone(),
        }
    }
}

opaque!([K: WatchKey, O: DelayedOperation] Purgatory<K, O>, name: core.settings.name);
