//! A purgatory for one thread: [`LocalPurgatory`]. The same room as the shared one's, without a
//! lock.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    hash::Hash,
    marker::PhantomData,
    rc::Rc,
};

use timer_core::{TickLength, WheelSize};

use super::core::{Core, Settings};
use crate::{
    face::boxed::LocalBoxed,
    words::{
        operation::{
            CancelReason, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Refused,
            Timeout,
        },
        stats::Stats,
        watches::{WatchKey, Watches},
    },
};

/// A [`Purgatory`](crate::Purgatory) for one thread: operations `O`, which need not be `Send`,
/// parked under keys `K`. For a runtime with a thread a core (compio, glommio, monoio) or an event
/// loop of your own.
///
/// It has no lock, clock or thread. Its owner turns it: [`advance`](Self::advance) tells it what
/// time it is and ends what has expired, [`next_deadline`](Self::next_deadline) says until when to
/// sleep. Otherwise it promises what a shared one does: one outcome, no missed event, never early
/// by the time it was told, nothing stays, panics stay inside. Several of them on a thread know
/// nothing of each other.
///
/// A handle: clones are the same purgatory. Dropping the last one ends whatever is parked as
/// [`Dropped`](CancelReason::Dropped), there and then; it may be dropped inside a callback.
///
/// # Calls from inside a check or callback
/// All are allowed: nothing is borrowed while a check, a callback, or a drop of an operation or a
/// key runs. What they end is told when the outermost call on this purgatory returns; a nested
/// event returns 0, and what waits for its key is checked then, too; a nested `advance` only moves
/// the clock. So a chain of completions needs no stack. One call runs at most 1024 queued pieces of
/// work, an event or a callback each. The rest waits, in order, for the next call;
/// [`next_deadline`](Self::next_deadline) says now until it is done.
///
/// A key's `Hash` may call back, too. Its `Eq` and `Clone` must not: the purgatory is borrowed
/// meanwhile, and the call panics.
///
/// ```
/// use std::{cell::Cell, rc::Rc, time::Duration};
/// use purgatory::{LocalPurgatory, Outcome, when};
///
/// let fetches = LocalPurgatory::new();
/// let log_end = Rc::new(Cell::new(0));
/// for min_bytes in [100, 200] {
///     let seen = log_end.clone();
///     let fetch = when(move || seen.get() >= min_bytes, move |outcome| {
///         assert_eq!(outcome == Outcome::Completed, min_bytes == 100);
///     });
///     fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_millis(500))?;
/// }
/// log_end.set(150); // the condition first ...
/// assert_eq!(fetches.check_and_complete(&"orders-0"), 1); // ... then its event
///
/// assert!(fetches.next_deadline() <= Some(500_000_000)); // so long an event loop may sleep
/// fetches.advance(500_000_000); // nanoseconds of its clock
/// assert!(fetches.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail
/// let fetches = purgatory::LocalPurgatory::<&str, purgatory::LocalBoxed>::new();
/// std::thread::spawn(move || fetches.len());
/// ```
pub struct LocalPurgatory<K, O = LocalBoxed>
where
    K: WatchKey,
    O: DelayedOperation,
{
    pub(super) core: Rc<Core<K, O>>,
}

impl<K, O> LocalPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    /// A purgatory at time 0 with a tick of 1 ms.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A purgatory to be configured.
    pub fn builder() -> LocalBuilder<K, O> {
        LocalBuilder {
            tick: TickLength::default(),
            wheel_size: WheelSize::default(),
            max_parked: usize::MAX,
            builds: PhantomData,
        }
    }

    /// Checks the operation; if it must wait, parks it under each key of `watches` until an event
    /// on one of them completes it, its time runs out, or it is cancelled. Repeated keys count
    /// once.
    ///
    /// A `timeout` counts from the moment last told to [`advance`](Self::advance): tell it before a
    /// batch of requests is handled, or give a [`Timeout::At`]. The check runs here once, and the
    /// callback too when that was enough or there is no time.
    ///
    /// O(keys), and for a watermark the log of how many others wait for the same key.
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
    ) -> Result<ParkResult, Refused<O>>
    where
        K: 'a,
    {
        self.core.park(operation, watches.into(), timeout.into())
    }

    /// The event: something that operations parked under `key` wait for may have come true. Checks
    /// them, one after the other in the order they were parked, and returns how many this call
    /// completed. What their callbacks park is not checked.
    ///
    /// Watermark watches of the key are [`complete_up_to`](Self::complete_up_to)'s. Inside a check
    /// or callback this returns 0, and what waits for the key now is checked when the outermost
    /// call returns. `key` is any borrowed form of the keys, as in a `HashMap`. O(plain waiters of
    /// the key).
    ///
    /// # Panics
    /// Only with a panic of the key's own `Hash`, `Eq` or `Clone`.
    pub fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.check_and_complete(key)
    }

    /// The event of a watermark: the key's value, which only rises, is now at least `value`.
    /// Completes the operations whose last watermark that meets, checks those that it meets
    /// otherwise (and those met before that still wait for their check), and returns how many this
    /// call completed. In the order, and with the nesting, of
    /// [`Purgatory::complete_up_to`](crate::Purgatory::complete_up_to).
    ///
    /// O(met × log watermark watches of the key).
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_up_to<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.complete_up_to(key, value)
    }

    /// Ends whatever is parked under `key` as Cancelled with this reason, each through its own
    /// callback; returns how many this call ended. (The one that is under check, when called from
    /// its check, is left a note: it ends as Completed if that check comes true.) Plain watches and
    /// watermarks alike.
    ///
    /// All are claimed before the first is called back, so what their callbacks park stays parked.
    /// O(waiters of the key), times the log of the watermark watches.
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
        let reason = CancelReason::Requested(reason.into());
        self.core.end_for_key(key, &Outcome::Cancelled(reason))
    }

    /// Ends whatever is parked under `key` as Completed, whatever its check would say, each through
    /// its own callback; returns how many this call ended. Otherwise as
    /// [`cancel_for_key`](Self::cancel_for_key).
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.end_for_key(key, &Outcome::Completed)
    }

    /// Ends whatever is parked as Cancelled with this reason, each through its own callback;
    /// returns how many this call ended. The purgatory stays open, and what the callbacks park
    /// stays parked. O(parked).
    pub fn cancel_all(&self, reason: impl Into<Cow<'static, str>>) -> usize {
        self.core.cancel_all(CancelReason::Requested(reason.into()))
    }

    /// Ends one operation as Cancelled with this reason, unless it is over. O(its keys), and for a
    /// watermark the log of how many wait for the same key. See [`EndResult`].
    pub fn cancel(&self, id: OperationId, reason: impl Into<Cow<'static, str>>) -> EndResult {
        self.core.end(id, Outcome::Cancelled(CancelReason::Requested(reason.into())))
    }

    /// Ends one operation as Completed, whatever its check would say, unless it is over. O(its
    /// keys), as [`cancel`](Self::cancel). See [`EndResult`].
    pub fn complete(&self, id: OperationId) -> EndResult {
        self.core.end(id, Outcome::Completed)
    }

    /// Gives one operation another timeout, counted from the moment last told to
    /// [`advance`](Self::advance). False when it is over, or its end is decided. Zero, or a moment
    /// that has passed: it expires at the next tick, without another check. O(levels of the wheel).
    pub fn reschedule(&self, id: OperationId, timeout: impl Into<Timeout>) -> bool {
        self.core.reschedule(id, timeout.into())
    }

    /// Lets time pass until `now_ns`, in nanoseconds since any origin that the owner keeps to, such
    /// as [`Clock::now_ns`](timer_core::Clock::now_ns); an earlier moment than before changes
    /// nothing. Ends what has expired, in the order of the ticks, and runs queued work that was
    /// beyond the budget of earlier calls.
    ///
    /// Deadlines round up to a tick and the present rounds down, so nothing expires early. One call
    /// takes at most 1024 steps of the wheel: an operation that expires, or one that moves to a
    /// finer level. What is left is for the next call, as [`next_deadline`](Self::next_deadline)
    /// says.
    ///
    /// Callbacks run here. Inside a check or callback it only moves the clock. O(steps + levels).
    pub fn advance(&self, now_ns: u64) {
        self.core.advance(now_ns);
    }

    /// When [`advance`](Self::advance) has work next, in nanoseconds: sleep until then at most.
    /// `None` when nothing that is parked has a deadline. A moment that has passed means now.
    ///
    /// Never later than the first deadline, and earlier only when tasks have to move to a finer
    /// level of the wheel first, a few times for a distant deadline. O(levels).
    pub fn next_deadline(&self) -> Option<u64> {
        self.core.next_deadline()
    }

    /// The moment last told to [`advance`](Self::advance), in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns()
    }

    /// Operations parked now. O(1).
    pub fn len(&self) -> usize {
        self.core.with(|room| room.len())
    }

    /// True when nothing is parked. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Watches of what is parked now: an operation has one for each of its keys and one for each of
    /// its watermarks. (One that was met counts until its operation ends.) O(1).
    pub fn watched(&self) -> usize {
        self.core.with(|room| room.watched)
    }

    /// Watches of a key now: as many as operations wait for it, but that one which waits for it
    /// both plainly and for a watermark, or for two of its watermarks, has a watch for each. O(1).
    pub fn waiters<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.waiters(key)
    }

    /// Keys that have waiters now. O(1).
    pub fn keys(&self) -> usize {
        self.core.with(|room| room.key_count())
    }

    /// What the purgatory holds and has done. `callbacks_waiting` and `deferred` are the callbacks
    /// and the events that are queued. O(queued).
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Ends whatever is parked as Cancelled ([`Shutdown`](CancelReason::Shutdown)) and refuses what
    /// would have to wait from now on. What is queued is run without a budget from here on, by this
    /// call or the outermost one. Again: nothing.
    pub fn shutdown(&self) {
        self.core.close(CancelReason::Shutdown);
    }
}

impl<K, O> Default for LocalPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K, O> Clone for LocalPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    fn clone(&self) -> Self {
        self.core.handles.set(self.core.handles.get() + 1);
        LocalPurgatory { core: self.core.clone() }
    }
}

impl<K, O> Drop for LocalPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    fn drop(&mut self) {
        let handles = self.core.handles.get() - 1;
        self.core.handles.set(handles);
        if handles == 0 {
            self.core.close(CancelReason::Dropped);
        }
    }
}

impl<K, O> fmt::Debug for LocalPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPurgatory").finish_non_exhaustive()
    }
}

/// Configures a [`LocalPurgatory`].
///
/// ```
/// use std::time::Duration;
/// use purgatory::{LocalBoxed, LocalPurgatory, timer_core::TickLength};
///
/// let fetches: LocalPurgatory<u32, LocalBoxed> = LocalPurgatory::builder()
///     .tick(TickLength::new(Duration::from_millis(10))?)
///     .max_parked(10_000)
///     .build();
/// assert!(fetches.is_empty());
/// # Ok::<(), purgatory::timer_core::TickError>(())
/// ```
#[must_use = "it builds nothing by itself"]
pub struct LocalBuilder<K, O = LocalBoxed> {
    tick: TickLength,
    wheel_size: WheelSize,
    max_parked: usize,
    builds: PhantomData<fn() -> (K, O)>,
}

impl<K, O> LocalBuilder<K, O>
where
    K: WatchKey,
    O: DelayedOperation,
{
    /// How finely it tells times apart. 1 ms by default.
    pub fn tick(mut self, tick: TickLength) -> Self {
        self.tick = tick;
        self
    }

    /// Buckets in each level of its wheel.
    pub fn wheel_size(mut self, size: WheelSize) -> Self {
        self.wheel_size = size;
        self
    }

    /// How many operations may be parked at most. One more that would have to wait is refused and
    /// handed back (its first check runs before). No limit by default.
    pub fn max_parked(mut self, max: usize) -> Self {
        self.max_parked = max;
        self
    }

    /// Builds the purgatory.
    pub fn build(self) -> LocalPurgatory<K, O> {
        let LocalBuilder { tick, wheel_size, max_parked, .. } = self;
        LocalPurgatory { core: Rc::new(Core::new(Settings { tick, wheel_size, max_parked })) }
    }
}

impl<K, O> fmt::Debug for LocalBuilder<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBuilder").finish_non_exhaustive()
    }
}
