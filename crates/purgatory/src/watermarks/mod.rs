//! Values by key that only rise, and waits for them: [`Watermarks`].
//!
//! The [engine] keeps a key's value beside the [queue] of its waits. Waits are [parked](park), and
//! values [changed](change). A wait for [each] of several keys is a single wait for each of them. A
//! caller may name an [epoch](in_epoch) together with the key.

mod change;
mod each;
mod engine;
mod in_epoch;
mod park;
mod queue;
mod value;

use std::marker::PhantomData;

use timer_core::{BuildError, Timer};

pub use self::value::WatermarkValue;
pub(crate) use self::{
    change::Begins,
    engine::{Beside, Callback, Mark, Values},
    value::rank,
};

use self::{
    each::Each,
    engine::{Observed, Tells, Wants},
};
use crate::{
    builder::Builder,
    error::{Refused, WaitError},
    operation::{CancelReason, OperationId, Outcome, Timeout, opaque},
    reason::Reason,
    settings::{Form, Settings},
    table::handle::Handle,
    wait::WaitFuture,
    waits::Waits,
    watches::{KeyRef, ToKey, WatchKey},
};

/// Keeps, for each key, a value that only rises, and the waits for it: the high watermarks of
/// partitions, the index that was applied. For a single value, use the key `()`.
///
/// A value stays until [`remove`](Self::remove); a key without a value counts as the lowest, 0.
/// Values are `u64`; for another type, call [`with_values`](Self::with_values) right after the
/// constructor.
///
/// *A wait belongs to an [epoch](Self::begin_epoch)* of its key: a value of another epoch does not
/// meet it. For a value that several replicas have to report, use a
/// [replica set](crate::ReplicaSets).
///
/// This is a handle: clones share the values. Dropping the last handle cancels all waits.
///
/// ```
/// use std::time::Duration;
/// use purgatory::Watermarks;
///
/// let log_ends = Watermarks::new("log ends")?;
/// let timeout = Duration::from_secs(30);
/// let orders = log_ends.wait_for(&"orders-0", 7, timeout);
/// let both = log_ends.wait_for_each(&[("orders-0", 8), ("orders-1", 3)], timeout);
///
/// assert_eq!(log_ends.advance(&"orders-0", 9)?, 2);
/// assert_eq!(log_ends.advance(&"orders-1", 3)?, 1);
/// assert_eq!(orders.wait_blocking()?, 9);
/// assert_eq!(both.wait_blocking()?, [("orders-0", 9), ("orders-1", 3)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Locks
/// A key's `Eq` and `Clone` run under its shard's lock and must not call back. Callbacks and wakers
/// run with nothing locked, on the thread that ends the wait; for a wait that is over at once, that
/// is the thread that parks it. The executor calls back waits that expire later, and waits that a
/// [shutdown](Waits::shutdown) cancels.
#[derive(Clone)]
pub struct Watermarks<K: WatchKey, V: WatermarkValue = u64> {
    pub(crate) handle: Handle<Values<K>>,
    /// No value of this type is kept or shared: the table keeps ranks.
    values: PhantomData<fn() -> V>,
}

// The constructors give `u64` alone. So a plain program names no type of value, and its literals
// are `u64`.
impl<K: WatchKey> Watermarks<K> {
    /// Makes `Watermarks` on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels their metrics.
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes `Watermarks` on `timer`, as [`new`](Self::new) does on the shared one. O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::Watermarks;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let log_ends: Watermarks<&str> = Watermarks::on(&timer, "log ends")?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).timer(timer).build()
    }

    /// Returns a builder with the default settings.
    ///
    /// ```
    /// use purgatory::Watermarks;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let log_ends: Watermarks<&str> =
    ///     Watermarks::builder("produce").timer(&timer).max_parked(100_000).build()?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        Builder::new(name, usize::MAX)
    }

    /// Changes the type of the values: to a signed integer, or a [`WatermarkValue`] of your own.
    /// Call it right after the constructor, and name the type: existing values are not converted,
    /// and literals alone would make it `i32`. All clones have the same type of value.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// // Event times, in milliseconds since 1970.
    /// let times = Watermarks::new("times")?.with_values::<i64>();
    /// let second = Duration::from_secs(1);
    /// let window = times.wait_for(&"clicks", -60_000, second);
    /// assert_eq!(times.value(&"clicks"), None); // as `i64::MIN`
    /// assert_eq!(times.advance(&"clicks", -90_000)?, 0);
    /// assert_eq!(times.advance(&"clicks", 5)?, 1);
    /// assert_eq!(window.wait_blocking()?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_values<V: WatermarkValue>(self) -> Watermarks<K, V> {
        Watermarks {
            handle: self.handle,
            values: PhantomData,
        }
    }
}

/// Returns the reason for which waits are cancelled when their key is removed.
pub(crate) fn removed() -> CancelReason {
    CancelReason::Requested("its key was removed".into())
}

impl<K: WatchKey> Form for Watermarks<K> {
    /// The maximum number of keys that have a value at a time.
    type Own = usize;

    fn build(settings: Settings, keys_max: usize) -> Result<Self, BuildError> {
        Ok(Watermarks {
            handle: Handle::new(settings, Values::new(keys_max))?,
            values: PhantomData,
        })
    }
}

/// Settings of [`Watermarks`].
impl<K: WatchKey> Builder<Watermarks<K>> {
    /// Limits the number of keys that have a value at a time. Waits under a key without a value do
    /// not count; [`max_parked`](Self::max_parked) limits those. A key that was
    /// [closed](Watermarks::close) before it had a value does not count, either. There is no limit
    /// by default.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.own = keys_max;
        self
    }
}

/// Values.
impl<K: WatchKey, V: WatermarkValue> Watermarks<K, V> {
    /// Returns the waits, for metrics and snapshots, to cancel some, or to
    /// [shut down](Waits::shutdown). O(1).
    pub fn waits(&self) -> Waits<K> {
        self.handle.waits()
    }

    /// Returns the key's value; `None` if it was never advanced, or was removed. O(1).
    pub fn value<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        let value = self.handle.table.look(key, |mark| mark.value());
        value.map(V::from_rank)
    }

    /// Returns the epoch of the key's value: 0 until [one begins](Self::begin_epoch). `None` if the
    /// key has no value. O(1).
    pub fn epoch<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> Option<u64> {
        self.handle.table.look(key, |mark| mark.epoch())
    }

    /// Returns the lowest threshold that an operation waits for and that the key has not reached;
    /// `None` if no operation does. A source that makes values on demand can start here. O(1)
    /// amortised, or O(n) for the key's n waits while an advance is completing some.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let log_ends = Watermarks::new("log ends")?;
    /// let second = Duration::from_secs(1);
    /// let nine = log_ends.wait_for(&"orders-0", 9, second);
    /// let seven = log_ends.wait_for(&"orders-0", 7, second);
    /// assert_eq!(log_ends.lowest_waiting(&"orders-0"), Some(7));
    /// log_ends.advance(&"orders-0", 8)?;
    /// assert_eq!(log_ends.lowest_waiting(&"orders-0"), Some(9));
    /// drop(nine);
    /// assert_eq!(log_ends.lowest_waiting(&"orders-0"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lowest_waiting<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        let lowest = self.handle.table.look(key, |mark| mark.lowest_waiting());
        lowest.map(V::from_rank)
    }

    /// Returns the number of keys that have a value. Exact when idle. O(1).
    pub fn keys(&self) -> usize {
        self.handle.table.engine.valued_keys.taken()
    }

    /// Advances the key's value and completes the waits that it reaches, lowest threshold first;
    /// returns how many this call completed. A value lower than before changes nothing.
    ///
    /// `key` can be a borrowed form of the key type: `&str` for `String` keys. A key whose borrowed
    /// form is not its `ToOwned`, such as `Arc<str>`, is passed as `&key`.
    ///
    /// Inside a callback, this advances the value and returns 0; completing the waits is left to
    /// the [outermost call](crate::guide::your_code).
    ///
    /// One lock for each 64 waits that it reaches, and O(r log n) if it reaches r of the key's n
    /// waits. Until the advance comes to a wait, the wait may still expire, or be cancelled by
    /// [`waits`](Self::waits). A new epoch, a removal or a close of the key completes such a wait
    /// first, and counts it.
    ///
    /// # Errors
    /// - [`WaitError::TooManyKeys`] if the key would be one more than
    ///   [`keys_max`](Builder::keys_max) allows,
    /// - [`WaitError::KeyClosed`] if the key was [closed](Self::close).
    ///
    /// In either case, nothing was changed.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `ToOwned` panics, or the value's
    /// [`to_rank`](WatermarkValue::to_rank). Then nothing was changed: the key is looked up once,
    /// and the waits that the value reaches are found without it.
    pub fn advance<Q: ToKey<K> + ?Sized>(&self, key: &Q, value: V) -> Result<usize, WaitError> {
        let to = rank(value);
        let table = &self.handle.table;
        table.change(key, None, |before| before.max(to))
    }

    /// Begins an epoch of the key with this value, which may be lower than before, as when a log
    /// was truncated after a change of its leader. Returns how many waits this ended; inside a
    /// callback, telling them is left to the [outermost call](crate::guide::your_code).
    ///
    /// *A wait belongs to one epoch*: the key's present epoch when the wait was parked, or the
    /// epoch that it [names](Self::in_epoch). In one step, the value and its epoch change, and all
    /// waits are cancelled ([`EpochOver`](CancelReason::EpochOver)), even those for less than the
    /// new value: the record that they wait for may be gone, and a record of the new epoch in its
    /// place is not theirs. A late [advance in](Self::in_epoch) an earlier epoch changes nothing.
    ///
    /// The caller chooses the epoch numbers, such as leader epochs or terms, since every server
    /// that advances the key has to know them; they only rise. A key is in epoch 0 from the start:
    /// the first epoch that begins is 1 or above. [`remove`](Self::remove) forgets the epoch.
    ///
    /// O(n) under the lock for n waits of the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, WaitError, Watermarks};
    ///
    /// let ends = Watermarks::new("log ends")?;
    /// ends.advance(&"orders-0", 100)?;
    /// let timeout = Duration::from_secs(30);
    /// let old = ends.wait_for(&"orders-0", 101, timeout);
    /// ends.begin_epoch(&"orders-0", 1, 80)?; // the new leader has no more
    /// let over = CancelReason::EpochOver { epoch: 0, present: 1 };
    /// assert_eq!(old.wait_blocking(), Err(WaitError::Cancelled(over)));
    ///
    /// let fetch = ends.wait_for(&"orders-0", 90, timeout);
    /// // From the old leader:
    /// let late = ends.in_epoch(&"orders-0", 0).advance(101);
    /// assert_eq!(late, Err(WaitError::OtherEpoch { named: 0, present: 1 }));
    /// assert_eq!(ends.in_epoch(&"orders-0", 1).advance(90)?, 1);
    /// assert_eq!(fetch.wait_blocking(), Ok(90));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WaitError::OtherEpoch`] unless the epoch is above the key's. Otherwise as
    /// [`advance`](Self::advance). In each case, nothing was changed.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn begin_epoch<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        epoch: u64,
        value: V,
    ) -> Result<usize, WaitError> {
        let value = rank(value);
        let table = &self.handle.table;
        table.begin_epoch(key, epoch, Begins::Anew, (), |(), _, _| Ok(value))
    }

    /// Begins an epoch as [`begin_epoch`](Self::begin_epoch) does, but the waits go on in the new
    /// epoch, even those that [named](Self::in_epoch) the last one; returns how many waits its
    /// value completed.
    ///
    /// *The risk*: such a wait is met by a value of the new epoch, though the record that it waits
    /// for may have been taken back. Use this only where a value means the same in each epoch: a
    /// fetch of any record at that offset, not the acknowledgement of one record.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let ends = Watermarks::new("log ends")?;
    /// let fetch = ends.wait_for(&"orders-0", 90, Duration::from_secs(30));
    /// ends.begin_epoch_and_keep(&"orders-0", 1, 80)?;
    /// assert_eq!(ends.in_epoch(&"orders-0", 1).advance(90)?, 1);
    /// assert_eq!(fetch.wait_blocking(), Ok(90));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`begin_epoch`](Self::begin_epoch) does.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn begin_epoch_and_keep<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        epoch: u64,
        value: V,
    ) -> Result<usize, WaitError> {
        let value = rank(value);
        let table = &self.handle.table;
        table.begin_epoch(key, epoch, Begins::KeepsWaits, (), |(), _, _| Ok(value))
    }

    /// Removes the key's value and its epoch, and cancels its waits. Returns how many waits this
    /// ended. A later [`advance`](Self::advance) starts anew, even for a key that was
    /// [closed](Self::close).
    ///
    /// O(n log n) under the lock for n waits of the key, so that no later value meets one of them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let replicas = Watermarks::builder("replicas").keys_max(1).build()?;
    /// replicas.advance(&1, 70)?;
    /// assert!(replicas.advance(&2, 70).is_err()); // it has no place
    /// let wait = replicas.wait_for(&1, 71, Duration::from_secs(30));
    /// assert_eq!(replicas.remove(&1), 1); // it has left the cluster
    /// let error = wait.wait_blocking().unwrap_err().to_string();
    /// assert_eq!(error, "cancelled: its key was removed");
    /// assert_eq!(replicas.value(&1), None);
    /// assert_eq!(replicas.advance(&2, 70), Ok(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. Then nothing was changed.
    pub fn remove<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> usize {
        self.handle.table.remove_key(key, &removed())
    }

    /// Closes the key: its waits are cancelled ([`Closed`](CancelReason::Closed)), and later waits
    /// end at once with the same reason, whatever the key's value. Returns how many waits this
    /// ended. Futures of [`wanted`](Self::wanted) end in the same way, but are not counted; futures
    /// of [`unwanted`](Self::unwanted) complete, since the key is unwanted now. Advances are
    /// refused from now on. [`remove`](Self::remove) forgets the key, and that it was closed.
    ///
    /// O(n log n) for n waits of the key, 64 in one lock hold.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let applied = Watermarks::new("applied")?;
    /// let waits = applied.wait_for(&"timeline", 9, Duration::from_secs(30));
    /// assert_eq!(applied.close(&"timeline", "the timeline stops"), 1);
    /// let comes = applied.wait_for(&"timeline", 1, Duration::from_secs(30));
    /// let error = waits.wait_blocking().unwrap_err();
    /// assert!(error.is_shutdown());
    /// assert_eq!(comes.wait_blocking(), Err(error)); // one event, one error
    /// assert!(applied.advance(&"timeline", 9).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `ToOwned` panics. Then nothing was changed.
    pub fn close<Q: ToKey<K> + ?Sized>(&self, key: &Q, reason: impl Into<Reason>) -> usize {
        self.handle.table.close_key(key, &reason.into())
    }

    /// Returns true if the key was [closed](Self::close). O(1).
    pub fn is_closed<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> bool {
        let closed = |mark: &mut Mark<()>| mark.closed().cloned();
        self.handle.table.look(key, closed).is_some()
    }
}

/// Waits.
impl<K: WatchKey, V: WatermarkValue> Watermarks<K, V> {
    /// Returns a future of the key's value, ready once the value is at least `threshold`. O(log n)
    /// for n waits of the key.
    ///
    /// `key` can be a borrowed form of the key type, as in [`advance`](Self::advance): `&str` for
    /// `String` keys, but `&key` for `Arc<str>`. The key is copied if it has neither a value nor a
    /// wait.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError).
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `ToOwned` panics, or the value's
    /// [`to_rank`](WatermarkValue::to_rank). Then nothing was parked.
    pub fn wait_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        threshold: V,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<V> {
        self.handle.wait_for(key, None, threshold, timeout.into())
    }

    /// Returns a future that is ready once an operation waits for more than the key's value; it
    /// yields the lowest such threshold. A source that makes values on demand starts there. The
    /// future is ready at once if an operation waits already. One lock to park it; O(log n) to
    /// leave, for n such futures of the key. The wait that comes, or the last that leaves, tells
    /// all of these futures under the lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let received = Watermarks::new("received")?;
    /// let second = Duration::from_secs(1);
    /// let connect = received.wanted(&"timeline", second);
    /// let wait = received.wait_for(&"timeline", 9, second);
    /// assert_eq!(connect.wait_blocking(), Ok(9)); // the first waiter came
    /// let disconnect = received.unwanted(&"timeline", second);
    /// drop(wait);
    /// assert_eq!(disconnect.wait_blocking(), Ok(())); // the last one left
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. By the time the future is polled, the wait may be over.
    ///
    /// # Errors
    /// The future yields a [`WaitError`]: [`Closed`](CancelReason::Closed) if the key is
    /// [closed](Self::close), so that a loop over `wanted` and [`unwanted`](Self::unwanted) ends.
    ///
    /// # Panics
    /// Panics as [`wait_for`](Self::wait_for) does.
    pub fn wanted<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<V> {
        let table = &self.handle.table;
        let wants = Wants::Observed(Observed::Wanted);
        let parked = table.wait(key, None, wants, timeout.into(), Tells::Future);
        self.handle.future_of(parked, V::from_rank)
    }

    /// Returns a future that is ready once no operation waits for more than the key's value. See
    /// [`wanted`](Self::wanted).
    ///
    /// Go on making values until it is ready: another wait may arrive between a look at
    /// [`lowest_waiting`](Self::lowest_waiting) and this call.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. By the time the future is polled, another wait may have come.
    ///
    /// # Errors
    /// The future yields a [`WaitError`].
    ///
    /// # Panics
    /// Panics as [`wait_for`](Self::wait_for) does.
    pub fn unwanted<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<()> {
        let table = &self.handle.table;
        let wants = Wants::Observed(Observed::Unwanted);
        let parked = table.wait(key, None, wants, timeout.into(), Tells::Future);
        self.handle.future_of(parked, drop)
    }

    /// Calls `then` once the key's value is at least `threshold`, or the wait has ended otherwise.
    /// Returns the wait's id; `None` if it has ended. O(log n) for n waits of the key.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, Watermarks};
    ///
    /// let log_ends = Watermarks::new("log ends")?;
    /// let (sender, outcomes) = mpsc::channel();
    /// let reply = move |outcome| sender.send(outcome).unwrap();
    /// log_ends.park(&"orders-0", 7, Duration::from_secs(30), reply)?;
    /// assert_eq!(log_ends.advance(&"orders-0", 9)?, 1);
    /// assert_eq!(outcomes.recv()?, Outcome::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as
    /// [`Purgatory::try_complete_else_watch`](crate::Purgatory::try_complete_else_watch) does;
    /// `then` is not called.
    ///
    /// # Panics
    /// Panics as [`wait_for`](Self::wait_for) does; `then` is dropped without a call. A panic of
    /// `then` is contained and counted.
    #[inline]
    pub fn park<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Option<OperationId>, Refused<Callback>> {
        let then = Box::new(then);
        self.handle
            .call_at(key, None, threshold, timeout.into(), then)
    }

    /// Returns a future of several keys, ready once each has reached its threshold at some moment
    /// since the call. It yields the keys with the values that reached the thresholds, in the order
    /// given.
    ///
    /// The future has a single wait for each key, in the key's present epoch; the first wait that
    /// ends otherwise ends the whole with its error. The keys are not read together: a key may have
    /// begun an epoch below its threshold since it reached that. For the acknowledgement of a
    /// record by a set of replicas, use [`ReplicaSets`](crate::ReplicaSets) instead. Each key takes
    /// a place of [`max_parked`](Builder::max_parked).
    ///
    /// The future's [id](WaitFuture::id) is the id of one wait: that for the first key that had to
    /// wait. The id is gone once that key is reached, though the others wait on, and a new deadline
    /// set by it is for that wait alone. The future's own [`reschedule`](WaitFuture::reschedule)
    /// moves all deadlines.
    ///
    /// O(log n) for each key, two locks each, and four allocations.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let flushed = Watermarks::new("flushed")?;
    /// let segments = [("a", 7), ("b", 9)];
    /// let checkpoint = flushed.wait_for_each(&segments, Duration::from_secs(30));
    /// flushed.advance(&"b", 9)?;
    /// flushed.advance(&"a", 8)?;
    /// assert_eq!(checkpoint.wait_blocking()?, [("a", 8), ("b", 9)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`]; if there are no keys, [`NoKeys`](WaitError::NoKeys) at
    /// once.
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics, or a value's
    /// [`to_rank`](WatermarkValue::to_rank). Then nothing stays parked.
    pub fn wait_for_each(
        &self,
        watermarks: &[(K, V)],
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Vec<(K, V)>> {
        let table = &self.handle.table;
        if let Some(reason) = table.refuses_keys(watermarks) {
            table.frame.report_refusal(&reason);
            return WaitFuture::ready(Err(reason));
        }
        // 1. Make the cell first: if a key panics, the cell is dropped and gives up the parts.
        let timeout = table.counted_from_now(timeout.into());
        let keys = watermarks.iter().map(|(key, _)| key.clone()).collect();
        let cell = Each::new(self.handle.share(), keys);
        // 2. Park a part for each key, until one has ended the whole. The first parked part gives
        //    the id.
        let mut first = None;
        for (number, (key, threshold)) in watermarks.iter().enumerate() {
            let part = cell.part(number);
            let wants = Wants::Value(rank(*threshold));
            let is_over = match table.wait(key, None, wants, timeout, part) {
                Ok(handle) => {
                    first.get_or_insert(handle);
                    cell.parked(handle)
                }
                Err((at_once, _part)) => cell.record(number, at_once),
            };
            if is_over {
                break;
            }
        }
        // 3. The whole may be over, or it waits.
        if let Some(result) = cell.take() {
            return WaitFuture::ready(result);
        }
        match first {
            Some(first) => WaitFuture::at(cell, table.frame.id(first)),
            None => WaitFuture::ready(Err(WaitError::NoKeys)),
        }
    }
}

/// Counting.
impl<K: WatchKey> Watermarks<K> {
    /// Adds `by` to the key's value, for a value that counts. Otherwise like
    /// [`advance`](Self::advance). The value stops at [`u64::MAX`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let votes: Watermarks<String> = Watermarks::new("votes")?;
    /// let second = Duration::from_secs(1);
    /// let elected = votes.wait_for("term 7", 2, second);
    /// assert_eq!(votes.add("term 7", 1)?, 0);
    /// assert_eq!(votes.add("term 7", 1)?, 1);
    /// assert_eq!(elected.wait_blocking()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`advance`](Self::advance) does.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn add<Q: ToKey<K> + ?Sized>(&self, key: &Q, by: u64) -> Result<usize, WaitError> {
        let table = &self.handle.table;
        table.change(key, None, |before| before.saturating_add(by))
    }
}

opaque!([K: WatchKey, V: WatermarkValue] Watermarks<K, V>, name: handle.table.frame.name);
