//! The public face: [`Purgatory`] and its builder.

use std::{borrow::Cow, fmt, hash::Hash, marker::PhantomData, sync::Arc};

use crossbeam_utils::CachePadded;
use timer_core::{BuildError, Driver, Executor, SystemTimer, Timer};

use crate::{
    frame::Elsewhere,
    inner::{Inner, Settings},
    operation::{
        Attempt, CancelReason, DelayedOperation, OperationId, Outcome, Park, Refused, Timeout,
    },
    snapshot::Snapshot,
    stats::Stats,
    sync::thread_slot,
    times::Times,
    watches::Watches,
};

/// Where requests wait until they can be answered: operations `O`, parked under keys `K`.
///
/// Park with [`try_complete_else_watch`](Self::try_complete_else_watch); whoever makes a condition
/// true calls [`check_and_complete`](Self::check_and_complete) with its key; what nobody completes
/// in time, the timer expires. Each operation ends exactly once.
///
/// A handle: clones are the same purgatory. Dropping the last one ends whatever is parked as
/// Cancelled, without waiting for anybody; it may be dropped inside a callback.
///
/// # The one rule
/// Make the condition true *first*, then raise the event; and hold no lock of yours that a check
/// needs while you do. Then no event is missed: when `check_and_complete` returns, every operation
/// parked under the key before the call has ended, was seen unsatisfied, or is under check by a
/// thread that will look again.
///
/// # Locks
/// Checks and callbacks run with nothing of the purgatory locked, on the thread that parks, raises
/// the event or cancels; expired callbacks on the executor ([all](Builder::callbacks_on_executor), if
/// you choose). No thread waits for another's check or callback. A key's `Eq` and `Clone` run under a
/// lock and must not call back.
///
/// # Calls from inside a check or callback
/// All are allowed. What they end is told when the outermost call on the thread returns; a nested
/// event returns 0 and happens then, too. So a chain of completions, however long, needs no stack.
///
/// # Cost
/// Parking and completing under one key takes six uncontended locks, a clock read and no allocation.
/// Threads that use different keys share nothing, up to as many as there are groups of four shards.
pub struct Purgatory<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    inner: Arc<Inner<K, O>>,
    handle: Arc<Handle<K, O>>,
}

/// What the handles share. Closes the purgatory when the last one goes.
struct Handle<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// For the futures: those of different threads do not count on the same word.
    shares: Box<[Arc<Share<K, O>>]>,
    inner: Arc<Inner<K, O>>,
}

/// A share in the inside, on cache lines of its own.
type Share<K, O> = CachePadded<Arc<Inner<K, O>>>;

impl<K, O> Drop for Handle<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    fn drop(&mut self) {
        self.inner.close();
        if let Some(timer) = &self.inner.own_timer {
            timer.close(); // a future that is still held keeps the inside, but no threads
        }
    }
}

impl<K, O> Purgatory<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// A purgatory with a [`SystemTimer`] of its own (two threads). A program with several shares
    /// one timer: see [`builder`](Self::builder).
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system gives no thread.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// This thread's share in the inside.
    pub(crate) fn share(&self) -> Arc<Share<K, O>> {
        self.handle.shares[thread_slot() & (self.handle.shares.len() - 1)].clone()
    }

    /// A purgatory to be configured; `name` labels its metrics.
    pub fn builder(name: impl Into<String>) -> Builder<K, O> {
        Builder {
            name: name.into(),
            driver: None,
            executor: None,
            callbacks_on_executor: false,
            max_parked: None,
            builds: PhantomData,
        }
    }

    /// Checks the operation; if it must wait, parks it under each key of `watches` until an event on one
    /// of them completes it, its time runs out, or it is cancelled. Repeated keys count once.
    ///
    /// `watches` is a slice or array of keys, or a [`Watches`] with watermarks.
    ///
    /// `timeout` is a `Duration` from now or a [`Timeout`]. The check runs here once, and again for
    /// each event that falls in between (from the ninth time on, on the executor). The callback may
    /// have run before this returns.
    ///
    /// O(keys): nothing depends on how many others wait, but for the log of how many other watermarks
    /// wait for the same key.
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
    ) -> Result<Park, Refused<O>> {
        self.inner.park(operation, watches.into(), timeout.into())
    }

    /// The event: something that operations parked under `key` wait for may have come true. Checks
    /// them in the order they were parked and returns how many this call completed. (One that
    /// another thread is checking right now is left to that thread, which checks it again.)
    ///
    /// Checks and callbacks run here, with nothing locked: do not hold a lock that a check needs
    /// ([`defer`](Self::defer) is for those who must). Inside a check or callback this returns 0, and
    /// the event happens when the outermost call returns.
    ///
    /// Watermark watches of the key are not touched: those are
    /// [`complete_up_to`](Self::complete_up_to)'s.
    ///
    /// O(plain waiters of the key); without them one lock.
    ///
    /// # Panics
    /// Only with a panic of the key's own `Hash`, `Eq` or `Clone`. Those of checks and callbacks are
    /// contained, and the walk goes on.
    pub fn check_and_complete(&self, key: &K) -> usize {
        self.inner.check_and_complete(key)
    }

    /// The event of a watermark: the key's value, which only rises, is now at least `value`. Completes
    /// the operations whose last watermark that meets, checks those that it meets otherwise (and those
    /// met before that still wait for their check), and returns how many this call completed. What
    /// waits for a higher value is not looked at, and a value lower than before meets nothing new.
    ///
    /// First come those that complete, then those to be checked that wait for other watermarks, too, then
    /// the met ones in the check form; within each, those newly met go by (threshold, order of parking). As with every event, the value that the
    /// operations' own checks read changes first, and inside a check or callback this returns 0 and
    /// happens later.
    ///
    /// O(met × log watermark watches of the key); when none is met one lock. It goes on for as long as
    /// other threads keep parking at or below `value`; what the callbacks park is not taken.
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_up_to(&self, key: &K, value: u64) -> usize {
        self.inner.complete_up_to(key, value)
    }

    /// Ends whatever is parked under `key` as Cancelled with this reason, each through its own
    /// callback; returns how many this call ended. (One under check right now is left a note: it
    /// ends as Completed if that check comes true.) Plain watches and watermarks alike.
    ///
    /// All are claimed before the first is told, so what their callbacks park stays parked. Not an event:
    /// what others park meanwhile may stay, too. O(waiters of the key), times the log of the
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
    pub fn cancel_for_key(&self, key: &K, reason: impl Into<Cow<'static, str>>) -> usize {
        self.inner.cancel_for_key(key, reason.into())
    }

    /// The events of several keys, one after the other; returns how many this call completed. An
    /// operation that waits for several of them is checked for each, until it completes.
    pub fn check_and_complete_all(&self, keys: &[K]) -> usize {
        keys.iter().map(|key| self.check_and_complete(key)).sum()
    }

    /// The event, for a caller who holds a lock that checks need: nothing is checked here, and none of the
    /// key's code runs. The executor raises it soon, or whoever calls
    /// [`run_deferred`](Self::run_deferred) first; with a [`ManualTimer`](timer_core::ManualTimer), or a
    /// timer that runs tasks inline, only that (unless the purgatory has an
    /// [executor](Builder::executor) of its own). When the executor drops its job the event stays, for
    /// `run_deferred` or the next that is deferred. Kafka's action queue. O(1).
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use purgatory::{Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let fetches = Purgatory::builder("fetch").timer(&ManualTimer::new()).build()?;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let seen = log.clone();
    /// let fetch = when(move || !seen.lock().unwrap().is_empty(), drop);
    /// fetches.try_complete_else_watch(fetch, &["log"], Duration::from_secs(30))?;
    ///
    /// let mut locked = log.lock().unwrap();
    /// locked.push("record");
    /// fetches.defer("log"); // the check needs the lock
    /// drop(locked);
    /// assert_eq!(fetches.run_deferred(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn defer(&self, key: K) {
        self.inner.defer(key, None);
    }

    /// As [`defer`](Self::defer), for [`complete_up_to`](Self::complete_up_to).
    pub fn defer_up_to(&self, key: K, value: u64) {
        self.inner.defer(key, Some(value));
    }

    /// Raises the deferred events here and now, those of other threads too; returns how many operations
    /// that completed. To be called when the locks that checks need have been let go.
    ///
    /// It goes on until none is left, also of those that come meanwhile. A panic of a key's `Hash` or
    /// `Eq` is the caller's, and leaves the later ones deferred.
    pub fn run_deferred(&self) -> usize {
        self.inner.run_deferred()
    }

    /// Ends one operation as Cancelled with this reason, unless it is over. O(its keys), and for a
    /// watermark the log of how many wait for the same key. See [`Attempt`].
    pub fn cancel(&self, id: OperationId, reason: impl Into<Cow<'static, str>>) -> Attempt {
        let Some(handle) = self.inner.handle(id) else { return Attempt::Gone };
        self.inner.end(handle, Outcome::Cancelled(CancelReason::Requested(reason.into())))
    }

    /// Ends one operation as Completed, whatever its check would say, unless it is over. O(its keys), as
    /// [`cancel`](Self::cancel). See [`Attempt`].
    ///
    /// A [`wait`](Purgatory::wait) that is completed so asks its condition once more for the value, and
    /// without one ends as Cancelled.
    pub fn complete(&self, id: OperationId) -> Attempt {
        let Some(handle) = self.inner.handle(id) else { return Attempt::Gone };
        self.inner.end(handle, Outcome::Completed)
    }

    /// Gives one operation another timeout, counted from now: longer, shorter, or none. False when it
    /// is over, or its end is decided. Zero, or a moment that has passed: it expires at the next tick,
    /// without another check. O(levels of the wheel).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, Park, Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
    /// let (told, outcomes) = mpsc::channel();
    /// let session = when(|| false, move |outcome| told.send(outcome).unwrap());
    /// let parked = sessions.try_complete_else_watch(session, &["alice"], Duration::from_secs(30))?;
    /// let Park::Parked(id) = parked else { unreachable!("its check is never true") };
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
        let handle = self.inner.handle(id);
        handle.is_some_and(|handle| self.inner.reschedule(handle, timeout.into()))
    }

    /// Operations parked now. Exact when nothing moves. O(shards).
    pub fn len(&self) -> usize {
        self.inner.homes.sum(|home| home.wheel().len())
    }

    /// True when nothing is parked. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Watches of what is parked now: an operation has one for each of its keys and one for each of its
    /// watermarks. (One that was met counts until its operation ends.) Exact when nothing moves. O(shards).
    pub fn watched(&self) -> usize {
        self.inner.homes.sum(|home| home.state.watches)
    }

    /// Watches of a key now: as many as operations wait for it, but that one which waits for it both
    /// plainly and for a watermark, or for two watermarks of it, counts twice. O(1).
    pub fn waiters(&self, key: &K) -> usize {
        self.inner.watches.waiters(key)
    }

    /// Keys that have waiters now. Exact when nothing moves. Locks 4096 stripes, one by one.
    pub fn keys(&self) -> usize {
        self.inner.watches.keys()
    }

    /// What the purgatory holds and has done. O(shards), which are locked one after the other.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// What is parked right now: the `limit` keys with the most waiters, the `limit` operations parked
    /// for longest, and up to as many under check. For a debug page, a health check, a test that hangs.
    ///
    /// Nothing stands still for it: shards and stripes are locked one after the other, for up to 256
    /// operations or the keys of one stripe. So counts may disagree by what moves meanwhile. How long a
    /// check has been under way is known only from the first snapshot that found it; two of them a
    /// second apart tell a stuck check from one that happens to run. Clones keys under a lock.
    ///
    /// O(parked + keys).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watches, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let waits = when(|| false, drop);
    /// purgatory.try_complete_else_watch(waits, &["orders-0", "orders-1"], Duration::from_secs(30))?;
    ///
    /// let snapshot = purgatory.snapshot(10);
    /// assert_eq!((snapshot.stats.parked, snapshot.key_count), (1, 2));
    /// assert_eq!(snapshot.busiest[0].waiters, 1);
    /// assert_eq!(snapshot.oldest[0].keys, ["orders-0", "orders-1"]);
    /// assert!(snapshot.oldest[0].expires_in > Some(Duration::from_secs(29)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, limit: usize) -> Snapshot<K> {
        self.inner.snapshot(limit)
    }

    /// How long operations waited, by how they ended, and how late those were that expired. Counted
    /// from the first call on (or the first [`snapshot`](Self::snapshot) or `publish`). O(shards).
    pub fn times(&self) -> Times {
        self.inner.times()
    }

    /// The timer that [`new`](Self::new) started; `None` when it is shared.
    pub fn own_timer(&self) -> Option<&SystemTimer> {
        self.inner.own_timer.as_ref()
    }

    /// Hands counts and times to the installed `metrics` recorder, labelled with the purgatory's name,
    /// and its [own timer](Self::own_timer)'s. `docs/METRICS.md` lists them.
    ///
    /// Call it once at the start, from when on waits are timed, and then before each scrape, from one
    /// place. Nothing is published otherwise, and nothing on an operation's path touches a shared metric.
    /// A wait is handed to a recorder's histogram once, and so to whichever is installed then.
    ///
    /// O(parked + stripes + endings since the last call): it looks for the oldest operation.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.inner.publish();
        if let Some(timer) = &self.inner.own_timer {
            timer.publish();
        }
    }

    /// Ends whatever is parked as Cancelled ([`Shutdown`](crate::CancelReason::Shutdown)), here,
    /// and refuses what would have to wait from now on. One that is under check right now is ended
    /// by the thread that checks it. A timer of the purgatory's own is shut down too, and its
    /// threads waited for (but not from a thread of any timer); a shared one goes on. Again: nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{BoxedOperation, CancelReason, Purgatory, RefusedReason, WaitError};
    ///
    /// let waits: Purgatory<u32, BoxedOperation> = Purgatory::new("waits")?;
    /// let parked = waits.wait(&[1], Duration::from_secs(30), || None::<()>);
    /// waits.shutdown();
    /// assert_eq!(parked.block(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    /// let late = waits.wait_blocking(&[1], Duration::from_secs(30), || None::<()>);
    /// assert_eq!(late, Err(WaitError::Refused(RefusedReason::Closed)));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn shutdown(&self) {
        self.inner.close();
        if let Some(timer) = &self.inner.own_timer {
            timer.shutdown();
        }
    }
}

impl<K, O> Clone for Purgatory<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    fn clone(&self) -> Self {
        Purgatory { inner: self.inner.clone(), handle: self.handle.clone() }
    }
}

impl<K, O> fmt::Debug for Purgatory<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purgatory").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// Configures a [`Purgatory`].
///
/// ```
/// use std::time::Duration;
/// use purgatory::{DelayedOperation, Outcome, Purgatory};
/// use timer_core::ManualTimer;
/// # struct Request;
/// # impl DelayedOperation for Request {
/// #     fn try_complete(&mut self) -> bool { false }
/// #     fn on_complete(self, outcome: Outcome) { assert_eq!(outcome, Outcome::Expired) }
/// # }
///
/// let timer = ManualTimer::new(); // in a program: a SystemTimer, shared by all its purgatories
/// let fetches = Purgatory::builder("fetch").timer(&timer).build()?;
/// fetches.try_complete_else_watch(Request, &[1], Duration::from_millis(20))?;
/// timer.advance(Duration::from_millis(20));
/// assert!(fetches.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder<K, O> {
    name: String,
    driver: Option<Arc<dyn Driver>>,
    executor: Option<Arc<dyn Executor>>,
    callbacks_on_executor: bool,
    max_parked: Option<usize>,
    builds: PhantomData<fn() -> (K, O)>,
}

impl<K, O> Builder<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Shares a timer, instead of starting one: any number of purgatories, one reaper.
    pub fn timer(mut self, timer: &impl Timer) -> Self {
        self.driver = Some(timer.driver());
        self
    }

    /// Runs what this purgatory's expired operations call back, and whatever else is not for the calling
    /// thread, on this executor instead of the timer's: deferred events, looks at an operation that many
    /// events asked for, and what is beyond the first 1024 callbacks queued behind one call.
    ///
    /// [`Workers`](timer_core::Workers) is one. [`execute`](Executor::execute) is called with nothing
    /// locked; a panic in it is contained, and a job that it drops runs on the dropping thread.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Runs every callback on the executor: the timer's, or the purgatory's own. By default only those
    /// of expired operations run there, and the others on the thread that completed or cancelled. For
    /// callbacks too slow for the threads that raise events; costs a hand-over each.
    pub fn callbacks_on_executor(mut self) -> Self {
        self.callbacks_on_executor = true;
        self
    }

    /// How many operations may be parked at most. One more that would have to wait is refused and
    /// handed back (its first check runs before). The place of one that is over comes free just before its
    /// callback, so of several that one event ends the first callbacks may still find none. No limit by
    /// default; with one, all threads share a counter.
    pub fn max_parked(mut self, max: usize) -> Self {
        self.max_parked = Some(max);
        self
    }

    /// Builds the purgatory, with a timer of its own unless one is shared.
    ///
    /// # Errors
    /// [`BuildError`] when the shared timer was shut down, or no thread can be had for an own one.
    pub fn build(self) -> Result<Purgatory<K, O>, BuildError> {
        let (driver, own_timer) = match self.driver {
            Some(driver) => (driver, None),
            None => {
                let timer = SystemTimer::builder().name(&*self.name).build()?;
                (timer.driver(), Some(timer))
            }
        };
        let inner = Inner::new(Settings {
            name: self.name.into(),
            elsewhere: Elsewhere { driver, executor: self.executor },
            all_elsewhere: self.callbacks_on_executor,
            own_timer,
            max_parked: self.max_parked,
        })?;
        let share = || Arc::new(CachePadded::new(inner.clone()));
        let shares = std::iter::repeat_with(share).take(inner.homes.count()).collect();
        let handle = Arc::new(Handle { shares, inner: inner.clone() });
        Ok(Purgatory { inner, handle })
    }
}

impl<K, O> fmt::Debug for Builder<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
