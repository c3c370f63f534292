//! The handle that most programs hold: [`Purgatory`], and its shutdown.

use std::{borrow::Borrow, hash::Hash, sync::Arc, time::Duration};

use timer_core::{Clock, SystemClock, SystemTimer, Timer};

use crate::{
    boxed::BoxedOperation,
    engine::{Core, signal::Event},
    error::Refused,
    operation::{
        CancelReason, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Timeout,
        opaque,
    },
    reason::Reason,
    stats::{Snapshot, Stats, Times},
    sync::{Share, Shares},
    watches::{IntoWatches, WatchKey},
};

/// Parks operations `O` under keys `K` until they complete, expire or are cancelled.
///
/// The default, `BoxedOperation`, accepts any operation; `wait` needs it.
///
/// Park an operation with [`try_complete_else_watch`](Self::try_complete_else_watch). Code that
/// makes a condition true calls [`check_and_complete`](Self::check_and_complete) with its key. An
/// operation that is not completed in time expires. Each operation ends exactly once.
///
/// A purgatory is a handle: clones share the same operations. Dropping the last handle ends all
/// parked operations as [`Dropped`](CancelReason::Dropped), without waiting for a thread. It may be
/// dropped inside a callback.
///
/// # The one rule
/// Make the condition true *first*, then signal the key, and hold no lock that a check needs while
/// you signal. Then no event is lost: when `check_and_complete` returns, every operation parked
/// under the key before the call has ended, was seen unsatisfied, or is checked again by the thread
/// that has it under check.
///
/// # Locks
/// Checks and callbacks run with nothing of the purgatory locked, on the thread that parks, signals
/// or cancels. Expiry callbacks run on the executor, and so do [all
/// callbacks](crate::Builder::callbacks_on_executor) if you choose. No thread blocks while another
/// runs a check or callback. A key's `Eq` and `Clone` run under a lock and must not call back.
///
/// # Calls from inside a check or callback
/// Re-entrant calls are allowed; their callbacks are queued. A nested event returns 0: its checks
/// are queued, too. Both run when the outermost call returns. Signal after the change, as always; a
/// change that follows needs another event. A chain of completions needs no stack, however long it
/// is.
///
/// # Cost
/// Parking and completing under one key takes three locks and a clock read. Up to four keys need no
/// allocation per operation. Threads contend only within a shard
/// ([`Builder::shards`](crate::Builder::shards)).
pub struct Purgatory<K: WatchKey, O: DelayedOperation = BoxedOperation> {
    pub(crate) core: Arc<Core<K, O>>,
    handle: Arc<Handle<K, O>>,
}

/// The part that all handles share. Closes the purgatory when the last handle is dropped.
struct Handle<K: WatchKey, O: DelayedOperation> {
    /// Shares for futures. Each thread takes one, so that threads count on different words.
    shares: Shares<Arc<Core<K, O>>>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for Handle<K, O> {
    fn drop(&mut self) {
        let core = self.shares.value();
        core.close(CancelReason::Dropped);
        #[cfg(feature = "metrics")]
        core.withdraw();
        if let Some(timer) = &core.own_timer {
            timer.shutdown(Duration::ZERO); // a future may keep the core, but keeps no threads
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Makes the first handle of a core.
    pub(crate) fn handle_of(core: Arc<Core<K, O>>) -> Self {
        let count = core.driver().config.shard_count.min(core.shards.count());
        let shares = Shares::new(&core, count);
        Purgatory {
            handle: Arc::new(Handle { shares }),
            core,
        }
    }

    /// Returns this thread's reference to the core.
    pub(crate) fn share(&self) -> Share<Arc<Core<K, O>>> {
        self.handle.shares.of_this_thread().clone()
    }

    /// Checks the operation and, if it must wait, parks it under each key of `watches`.
    ///
    /// The operation then waits until an event of one of its keys completes it, its timeout fires,
    /// or it is cancelled. The check runs here once, and again for each event that comes before the
    /// operation is parked. The callback may have run before this returns.
    ///
    /// - `watches`: a slice or array of keys, or [`Watches`](crate::Watches) with watermarks.
    ///   Repeated keys count once.
    /// - `timeout`: a `Duration` from now, or a [`Timeout`].
    ///
    /// O(k + w log n) for k keys and w watermarks, each with up to n higher thresholds waiting
    /// under its key.
    ///
    /// # Errors
    /// [`Refused`] hands the operation back without calling its callback: if it has no key, or if
    /// it would have to wait and the purgatory is shut down or full.
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics. Then nothing was parked, and the
    /// operation is dropped.
    pub fn try_complete_else_watch<'a>(
        &self,
        operation: O,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> Result<ParkResult, Refused<O>> {
        self.core
            .park(operation, watches.into_watches(), timeout.into())
    }

    /// Cancels all operations parked under `key` with this reason; returns how many this call
    /// ended. Operations with plain watches and with watermark watches are cancelled alike.
    ///
    /// The callback of each runs with [`Cancelled`](Outcome::Cancelled). An operation under check
    /// records the cancel; it still ends as Completed if that check comes true. The set is fixed
    /// before any callback runs, so operations parked by callbacks are not cancelled. This is not
    /// an event: operations that other threads park meanwhile may stay.
    ///
    /// An operation that has expired is not reached: its callback may still run after this returns,
    /// with [`Expired`](Outcome::Expired) ([a guard](crate::guide::recipes#sessions)).
    ///
    /// O(n log n) for n watches of the key.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{CancelReason, Outcome, Purgatory, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let (sender, outcomes) = mpsc::channel();
    /// for keys in [["orders-0", "orders-1"], ["orders-1", "orders-2"]] {
    ///     let sender = sender.clone();
    ///     let fetch = when(|| false, move |outcome| sender.send(outcome).unwrap());
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
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn cancel_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q, reason: impl Into<Reason>) -> usize
    where
        K: Borrow<Q>,
    {
        self.core
            .cancel_for_key(key, CancelReason::Requested(reason.into()))
    }

    /// Cancels all parked operations with this reason; returns how many this call ended. The
    /// purgatory is empty then, but for operations under check, and stays open to be used again,
    /// unlike after [`shutdown`](Self::shutdown).
    ///
    /// Each operation is cancelled as by [`cancel_for_key`](Self::cancel_for_key). An operation
    /// that has expired is not reached: its callback may still run after this returns, with
    /// [`Expired`](Outcome::Expired) ([a guard](crate::guide::recipes#sessions)).
    ///
    /// O(parked + shards), with memory for all operations until their callbacks run. Shards are
    /// locked one after another, for 64 operations each time.
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
    pub fn cancel_all(&self, reason: impl Into<Reason>) -> usize {
        self.core.cancel_all(CancelReason::Requested(reason.into()))
    }

    /// Cancels one operation with this reason, unless it has ended. See [`EndResult`].
    ///
    /// O(k + w log n) for its k keys and w watermarks with up to n waiters each.
    pub fn cancel(&self, id: OperationId, reason: impl Into<Reason>) -> EndResult {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.core.end(id, cancelled)
    }

    /// Completes one operation without a check, unless it has ended. See [`EndResult`].
    ///
    /// A [`wait`](Purgatory::wait) needs a value, so its condition is checked here. If that gives
    /// none, this returns [`NoValue`](EndResult::NoValue) and the wait goes on. Costs as much as
    /// [`cancel`](Self::cancel).
    pub fn complete(&self, id: OperationId) -> EndResult {
        self.core.end(id, Outcome::Completed)
    }

    /// Reschedules one operation: a new timeout from now, longer, shorter, or none. Returns
    /// false if it has ended or its end is decided.
    ///
    /// A timeout of zero, or a moment in the past, expires it at the next tick without another
    /// check, except for the [last check](crate::Builder::check_at_expiry). O(levels of the wheel).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
    /// let (sender, outcomes) = mpsc::channel();
    /// let session = when(|| false, move |outcome| sender.send(outcome).unwrap());
    /// let timeout = Duration::from_secs(30);
    /// let parked = sessions.try_complete_else_watch(session, &["alice"], timeout)?;
    /// let id = parked.id().expect("its check is never true");
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

    /// Returns the number of operations parked now. Exact when idle. O(shards). Do not use it to
    /// decide [whether to signal a key](Self::waiters).
    pub fn len(&self) -> usize {
        self.core.sum_over_shards(|shard| shard.len())
    }

    /// Returns true when no operation is parked. O(shards). Do not use it to decide [whether to
    /// signal a key](Self::waiters).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of watches of the operations parked now: one for each key and one for
    /// each watermark of an operation, until the operation ends. Exact when idle. O(shards).
    pub fn watched(&self) -> usize {
        self.core.sum_over_shards(|shard| shard.watched())
    }

    /// Returns the number of watches on `key`. An operation with two watches counts twice. O(1).
    ///
    /// Do not use it to decide whether to signal the key: a thread that has checked its operation
    /// and does not watch the key yet is not counted, and would miss the event.
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

    /// Returns the number of keys that have waiters now. Exact when idle. O(shards).
    pub fn keys(&self) -> usize {
        self.core.keys()
    }

    /// Returns the counts of the purgatory. O(shards); shards are locked one after another.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Takes a snapshot of the parked operations, for a debug page, a health check or a test that
    /// hangs.
    ///
    /// It holds up to `limit` of each: the keys with the most waiters, the keys without an event
    /// for longest, the operations parked for longest, and the operations under check.
    ///
    /// The snapshot is not atomic: shards are locked one after another, for up to 64 operations or
    /// the keys of one shard, so counts may disagree by what changes meanwhile. A check's duration
    /// counts from the first snapshot that found it: two snapshots a second apart distinguish a
    /// stuck check from a short one. Keys are cloned under a lock.
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

    /// Returns how long operations waited, by outcome, and how late they expired. O(shards).
    ///
    /// Timing begins with the first call of this, [`snapshot`](Self::snapshot) or `publish`.
    pub fn times(&self) -> Times {
        self.core.times()
    }

    /// Returns the timer that [`new`](Self::new) started; `None` when the timer is shared.
    pub fn own_timer(&self) -> Option<&SystemTimer> {
        self.core.own_timer.as_ref()
    }

    /// (Feature `metrics`.) Publishes counts and times to the installed `metrics` recorder,
    /// labelled with the purgatory's name, together with those of its [own timer](Self::own_timer).
    /// `docs/METRICS.md` lists them.
    ///
    /// Call it once at start-up, which enables timing, then before each scrape, always from one
    /// place. Nothing else publishes, and no operation touches a shared metric. Each wait is
    /// recorded in a histogram once, by the recorder that is installed then.
    ///
    /// O(parked + keys + shards + e) for e endings since the last call. It looks for the oldest
    /// operation and the quietest key, and clones keys under a lock.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.core.publish();
        if let Some(timer) = &self.core.own_timer {
            timer.publish();
        }
    }
}

/// Shutdown.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Cancels all parked operations ([`Shutdown`](CancelReason::Shutdown)), refuses later ones
    /// that would have to wait, and waits until checks and callbacks have returned, for at most
    /// `limit`. The rest still ends, once; the result counts it. To empty a purgatory and use it
    /// again, call [`cancel_all`](Self::cancel_all) or [`complete_all`](Self::complete_all)
    /// instead.
    ///
    /// `limit` may be [`Duration::MAX`]; with zero this does not wait. A second call only waits.
    ///
    /// An operation under check is ended by the thread that checks it. Callbacks run on the
    /// executor, or here if the executor runs jobs in place (a
    /// [`ManualTimer`](timer_core::ManualTimer), an inline timer, or one that was shut down); the
    /// limit does not apply to those. The purgatory's own timer is shut down, too; a shared one
    /// goes on. Inside a check, a callback or a timer's task this does not wait, nor in async code
    /// that it [would block](crate::WaitError::MustNotBlock).
    ///
    /// O(parked + shards). This blocks: in async code, call it from `spawn_blocking`.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Purgatory, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let (release, blocked) = mpsc::channel::<()>();
    /// let stuck = when(|| false, move |_| _ = blocked.recv());
    /// purgatory.try_complete_else_watch(stuck, &["orders-0"], Duration::from_secs(30))?;
    ///
    /// let left = purgatory.shutdown(Duration::from_millis(10));
    /// assert_eq!((left.callbacks, left.under_check), (1, 0));
    /// assert!(left.threads >= 1); // the one that runs it
    /// release.send(())?;
    /// assert!(purgatory.shutdown(Duration::from_secs(60)).is_nothing());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> ShutdownLeft {
        let core = &self.core;
        let clock = SystemClock::new();
        let limit = if core.job_executor.must_not_block() {
            Duration::ZERO
        } else {
            limit
        };
        let remaining = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));

        core.close_on_executor(CancelReason::Shutdown);

        // The last callback and the last thread with an operation under check end these waits.
        core.closing.wait(remaining());
        core.under_check.wait(remaining());

        let mut threads = 0;
        if let Some(timer) = &core.own_timer {
            threads = timer.shutdown(remaining()).threads;
        }
        ShutdownLeft {
            under_check: self.len(),
            callbacks: core.closing.wait(Duration::ZERO),
            threads,
        }
    }
}

/// Events.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Signals a key: checks the operations parked under it, in the order of parking, and returns
    /// how many this call completed.
    ///
    /// Call it after any change that may have made their conditions true. An operation that another
    /// thread is checking right now is checked again by that thread. An operation whose deadline
    /// has passed can still complete until the reaper expires it.
    ///
    /// Checks and callbacks run here, with nothing of the purgatory locked. Do not hold a lock that
    /// a check needs: [collect the keys and signal them
    /// later](crate::guide::recipes#signal-after-unlock). Inside a check or callback this returns
    /// 0, and the operations that wait now are checked when the outermost call returns.
    ///
    /// Watermark watches of the key are not touched; use [`complete_up_to`](Self::complete_up_to)
    /// for them. Debug builds warn, once a key, of a signal that reaches none of the key's watches.
    ///
    /// `key` can be any borrowed form of the key type, as in a `HashMap`, so signalling allocates
    /// no `String`. The same holds for every method that only looks a key up.
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
    /// O(n) for n plain watches of the key; one lock if there are none.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `Clone` panics. Panics of checks and callbacks
    /// are contained, and the remaining operations are checked.
    pub fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner signals these keys") };
        self.core.signal(key, Event::All)
    }

    /// Signals a key for a change that can complete one operation only, such as one more job or one
    /// free lease. Checks operations in the order of parking until a check comes true; returns true
    /// if one did.
    ///
    /// Like `notify_one`, it is right only if the operations wait under this key alone, their
    /// checks *take* what they wait for, and nothing else completes them. Otherwise signal all: an
    /// operation that is not checked waits for the next event or its timeout.
    ///
    /// An operation that another thread is checking right now is left to that thread, and the next
    /// one is checked. Of operations [in turn](crate::Watches::in_turn) the first alone is checked,
    /// and the next one after it has ended. A future that is dropped while it waits or is under
    /// check takes nothing: the next waiter is checked. A future may be dropped with the value that
    /// it took; make the value a [guard that is returned on drop](crate::guide::recipes#leases) and
    /// signals the key again.
    ///
    /// Inside a check or callback this returns false, and the first operation is completed when the
    /// outermost call returns.
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
    /// let first = take();
    /// let second = take();
    /// jobs.lock().unwrap().push("a job");
    /// assert!(waits.check_and_complete_one(&"job"));
    /// assert_eq!((first.wait_blocking(), waits.len()), (Ok("a job"), 1));
    /// # drop(second);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// O(c) for c checks; one lock if there are no waiters.
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn check_and_complete_one<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner signals these keys") };
        self.core.signal(key, Event::One) > 0
    }

    /// Advances a watermark: the key's value, which only rises, is now at least `value`. Returns
    /// how many operations this call completed.
    ///
    /// Only watches whose threshold is reached are touched; a value lower than before reaches
    /// nothing new. In this order:
    ///
    /// 1. operations whose last threshold watch is reached complete, without a check;
    /// 2. operations with further threshold watches are checked;
    /// 3. operations with a checked watch of the key that is reached, now or earlier, are checked.
    ///
    /// Within each group, newly reached watches come in the order of (threshold, parking).
    ///
    /// Change the value that the operations' checks read *first*, as with every event. Inside a
    /// check or callback this returns 0, and the operations that wait now are completed when the
    /// outermost call returns.
    ///
    /// O(r log n) for r reached of n waiters; one lock if none is reached. The call goes on while
    /// other threads keep parking at or below `value`, but not for operations that its own
    /// callbacks park.
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn complete_up_to<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
    {
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner signals these keys") };
        self.core.signal(key, Event::Advance(value))
    }
}

/// Operations, callbacks and threads that a [`shutdown`](Purgatory::shutdown) did not wait for.
///
/// They end by themselves, once the checks or callbacks that hold them up return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownLeft {
    /// Operations still under check. Each ends when its check returns, on the thread that runs it.
    pub under_check: usize,
    /// Callbacks of operations that shutdowns ended, and that have not returned. Callbacks of
    /// operations that had expired before are not among them; see
    /// [`Stats::callbacks_waiting`](crate::Stats::callbacks_waiting).
    pub callbacks: usize,
    /// Threads of the purgatory's own timer that have not ended.
    pub threads: usize,
}

impl ShutdownLeft {
    /// Returns true when nothing was left.
    pub fn is_nothing(&self) -> bool {
        *self == ShutdownLeft::default()
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
