//! Values by key that only rise, and waits for them: [`Watermarks`].
//!
//! The value of a key lies in the key's shard, beside the waits for it: the engine's
//! [`values`](crate::engine::values) compares, parks and completes under that lock.

use std::{borrow::Borrow, collections::HashSet, hash::Hash, marker::PhantomData};

use smallvec::SmallVec;
use timer_core::BuildError;

use crate::{
    engine::{answer::Yields, values::ForValue},
    error::{Refused, RefusedReason},
    operation::{CancelReason, DelayedOperation, Outcome, ParkResult, Timeout, opaque},
    purgatory::Purgatory,
    wait::WaitFuture,
    watches::WatchKey,
    watermark_value::{WatermarkValue, rank},
    watermark_wait::{Callback, Needed, QuorumOf, Wait, WatermarkWait},
};

/// Keeps a value for each key that only rises, and waits for values: the high
/// watermarks of partitions, the progress of replicas. A single value has the key `()`.
///
/// It holds the values, so there is no condition to write and no order of steps to get wrong. A key
/// without a value counts as 0. A value stays until [`remove`](Self::remove).
///
/// Values are `u64`, or [another type](Self::with_values): `i64`, or one of your own. A key without
/// a value then counts as the lowest of all.
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
/// let replicas = [("first", 7), ("second", 7), ("third", 7)];
/// let committed = log_ends.wait_for_k(2, &replicas, timeout);
///
/// assert_eq!(log_ends.advance(&"orders-0", 9)?, 1);
/// assert_eq!(log_ends.advance(&"third", 8)?, 0);
/// assert_eq!(log_ends.advance(&"first", 7)?, 1);
/// assert_eq!(orders.wait_blocking()?, 9);
/// assert_eq!(committed.wait_blocking()?, [("first", 7), ("third", 8)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Locks
/// A key's `Eq` and `Clone` run under its shard's lock and must not call back. Callbacks and wakers
/// run with nothing locked, on the threads where those of any [`Purgatory`] run.
#[derive(Clone)]
pub struct Watermarks<K: WatchKey + Sync, V: WatermarkValue = u64> {
    purgatory: Purgatory<K, WatermarkWait>,
    /// The most keys that have a value at a time.
    keys_max: usize,
    /// It is neither kept nor shared: the shards keep ranks.
    values: PhantomData<fn() -> V>,
}

// The constructors give `u64` alone. So a plain program names no type of value, and its literals
// have that one.
impl<K: WatchKey + Sync> Watermarks<K> {
    /// Makes `Watermarks` with its own timer; `name` labels its metrics.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::over)
    }

    /// Makes `Watermarks` over a purgatory with other settings, such as a shared timer, an executor
    /// or a bound. Leave the type of the purgatory to be inferred.
    ///
    /// ```
    /// use purgatory::{Purgatory, Watermarks};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let waits = Purgatory::builder("produce").timer(&timer).build()?;
    /// let log_ends: Watermarks<&str> = Watermarks::over(waits);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn over(purgatory: Purgatory<K, WatermarkWait>) -> Self {
        Watermarks::with_keys_max(purgatory, usize::MAX)
    }

    /// Makes `Watermarks` [over](Self::over) a purgatory, with values for at most `keys_max` keys
    /// at a time. Keys of other `Watermarks` over it count, too. Waits under a key without a value
    /// do not; [`max_parked`](crate::Builder::max_parked) limits those.
    pub fn with_keys_max(purgatory: Purgatory<K, WatermarkWait>, keys_max: usize) -> Self {
        Watermarks {
            purgatory,
            keys_max,
            values: PhantomData,
        }
    }

    /// Takes values of another type: a signed integer, or a [`WatermarkValue`] of your own. Call it
    /// right after the constructor, and name the type: values that are there are not converted, and
    /// literals alone would make it `i32`. All `Watermarks` over one purgatory have one type of
    /// value.
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
            purgatory: self.purgatory,
            keys_max: self.keys_max,
            values: PhantomData,
        }
    }
}

impl<K: WatchKey + Sync, V: WatermarkValue> Watermarks<K, V> {
    /// Returns the purgatory of the waits, for metrics and snapshots, to cancel waits, or to
    /// [shut down](Purgatory::shutdown).
    ///
    /// Only calls of `Watermarks` signal its keys. Calls of the purgatory that would do so advance
    /// no value, so they do not compile:
    ///
    /// ```compile_fail
    /// let log_ends = purgatory::Watermarks::<&str>::new("log ends")?;
    /// log_ends.purgatory().complete_up_to(&"orders-0", 7);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn purgatory(&self) -> &Purgatory<K, WatermarkWait> {
        &self.purgatory
    }

    /// Returns the key's value; `None` if it was never advanced, or was removed. O(1).
    pub fn value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.purgatory.core.value(key).map(V::from_rank)
    }

    /// Returns the epoch of the key's value: 0 until it was [reset](Self::reset). `None` without a
    /// value. O(1).
    pub fn epoch<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.purgatory.core.epoch(key)
    }

    /// Returns the lowest threshold that an operation waits for and that the key has not reached;
    /// `None` if none waits for more. A source that makes values on demand can start here. O(1)
    /// amortised.
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
    pub fn lowest_waiting<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.purgatory.core.lowest_waiting(key).map(V::from_rank)
    }

    /// Returns the number of keys that have a value. Exact when idle. O(1).
    pub fn keys(&self) -> usize {
        self.purgatory.core.valued_keys.taken() as usize
    }

    /// Advances the key's value and completes the waits that it reaches, lowest threshold first;
    /// returns how many this call completed. A value lower than before changes nothing.
    ///
    /// `key` can be a borrowed form of the key type: `&str` for `String` keys. A key whose borrowed
    /// form is not its `ToOwned`, such as `Arc<str>`, is passed as `&key`.
    ///
    /// Inside a callback this advances the value and returns 0; the waits complete when the
    /// outermost call returns.
    ///
    /// One lock, and O(r log n) for r reached of the key's n waits. For each quorum among the
    /// reached ones O(keys) more.
    ///
    /// # Errors
    /// [`RefusedReason::TooManyKeys`] if this would be one more key than
    /// [`with_keys_max`](Self::with_keys_max) allows. Nothing was changed.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `ToOwned` panics, or the value's
    /// [`to_rank`](WatermarkValue::to_rank). Then nothing was changed: the key is looked up once,
    /// and the waits that the value reaches are found without it.
    pub fn advance<Q>(&self, key: &Q, value: V) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let to = rank(value);
        self.purgatory
            .core
            .change_value(key, self.keys_max, None, |before| to.max(before))
    }

    /// Advances the key's value if it is in this epoch, which [`reset`](Self::reset) began; 0 is
    /// the epoch of a key that was not reset. Otherwise like [`advance`](Self::advance), which
    /// takes the value for one of the present epoch.
    ///
    /// # Errors
    /// [`RefusedReason::OtherEpoch`] if the key is in another epoch: this advance is late, or its
    /// epoch has not begun here. Otherwise as [`advance`](Self::advance). Nothing was changed.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn advance_in<Q>(&self, key: &Q, epoch: u64, value: V) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let to = rank(value);
        self.purgatory
            .core
            .change_value(key, self.keys_max, Some(epoch), |before| to.max(before))
    }

    /// Begins an epoch of the key with this value, which may be lower than before: a log that was
    /// truncated after a change of its leader. Returns how many waits this completed.
    ///
    /// The value and its epoch change in one step. Waits for more than the value go on, under the
    /// new epoch; a quorum that had counted this key above the value counts it no more. A late
    /// [`advance_in`](Self::advance_in) of an earlier epoch changes nothing. Epochs are numbers of
    /// the caller's, such as leader epochs or terms, since every server that advances the key has
    /// to know them; they only rise. [`remove`](Self::remove) forgets the epoch.
    ///
    /// O(r log n) as for [`advance`](Self::advance), and O(q log n) under the lock for q quorums
    /// that had counted the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{RefusedReason, Watermarks};
    ///
    /// let ends = Watermarks::new("log ends")?;
    /// ends.advance_in(&"orders-0", 0, 100)?;
    /// ends.reset(&"orders-0", 1, 80)?; // the new leader has no more
    /// let timeout = Duration::from_secs(30);
    /// let fetch = ends.wait_for(&"orders-0", 90, timeout);
    /// // From the old leader:
    /// let late = ends.advance_in(&"orders-0", 0, 101);
    /// assert_eq!(late, Err(RefusedReason::OtherEpoch { present: 1 }));
    /// assert_eq!(ends.advance_in(&"orders-0", 1, 90)?, 1);
    /// assert_eq!(fetch.wait_blocking(), Ok(90));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RefusedReason::OtherEpoch`] unless the epoch is above the key's.
    /// [`RefusedReason::TooManyKeys`] as for [`advance`](Self::advance). Nothing was changed.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn reset<Q>(&self, key: &Q, epoch: u64, value: V) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let core = &self.purgatory.core;
        core.begin_epoch(key, self.keys_max, epoch, rank(value), None)
    }

    /// Begins an epoch as [`reset`](Self::reset) does, and cancels the waits for more than the
    /// value in the same step; returns how many waits this call ended. A quorum that needs more of
    /// this key is cancelled as a whole. O(n log n) under the lock for n waits of the key.
    ///
    /// # Errors
    /// Returns an error as [`reset`](Self::reset) does.
    ///
    /// # Panics
    /// Panics as [`advance`](Self::advance) does.
    pub fn reset_and_cancel<Q>(&self, key: &Q, epoch: u64, value: V) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let reason = CancelReason::Requested("its key was reset".into());
        let core = &self.purgatory.core;
        core.begin_epoch(key, self.keys_max, epoch, rank(value), Some(&reason))
    }

    /// Removes the key's value and cancels the waits for it; returns how many waits this call
    /// ended. A later [`advance`](Self::advance) starts anew.
    ///
    /// The key leaves the quorums that wait for it: [`wait_for_all`](Self::wait_for_all) may
    /// complete by that, [`wait_for_k`](Self::wait_for_k) may fail.
    ///
    /// O(n log n) for n waits of the key, and O(keys) for each quorum. The waits leave 64 at a
    /// time; nothing is locked in between. So waits that other threads park meanwhile may be
    /// cancelled, too, and quorums lose the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watermarks};
    ///
    /// let purgatory = Purgatory::new("replicas")?;
    /// let replicas = Watermarks::with_keys_max(purgatory, 1);
    /// replicas.advance(&1, 70)?;
    /// assert!(replicas.advance(&2, 70).is_err()); // it has no place
    /// let timeout = Duration::from_secs(30);
    /// let wait = replicas.wait_for(&1, 71, timeout);
    /// assert_eq!(replicas.remove(&1), 1); // it has left the cluster
    /// let error = wait.wait_blocking().unwrap_err().to_string();
    /// assert_eq!(error, "cancelled: its key was removed");
    /// assert_eq!(replicas.value(&1), None);
    /// assert_eq!(replicas.advance(&2, 70), Ok(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. If that is at once, nothing was changed.
    /// The key is looked up again for each 64 waits: if that panics, the value is gone, the waits
    /// taken so far have ended, and the others wait on.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let reason = CancelReason::Requested("its key was removed".into());
        self.purgatory.core.remove_value(key, &reason)
    }

    /// Returns a future of the key's value, ready once the value is at least `threshold`. O(log n)
    /// for n waits of the key.
    ///
    /// `key` can be a borrowed form of the key type, as in [`advance`](Self::advance): `&str` for
    /// `String` keys, but `&key` for `Arc<str>`. It is copied if the key has neither a value nor a
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
    pub fn wait_for<Q>(&self, key: &Q, threshold: V, timeout: impl Into<Timeout>) -> WaitFuture<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let core = &self.purgatory.core;
        let wait = WatermarkWait::awaited();
        match core.park_for_value(key, rank(threshold), timeout.into(), wait) {
            Ok(ForValue::Parked(id)) => self.purgatory.answer_of(id),
            Ok(ForValue::AtOnce(mut wait, outcome)) => {
                wait.answer(&outcome); // unless it was met: then it has its answer
                WaitFuture::ready(wait.into_answer())
            }
            Err(refused) => self.purgatory.refused(refused.reason),
        }
    }

    /// Calls `then` once the key's value is at least `threshold`, or the wait has ended otherwise.
    /// O(log n) for n waits of the key.
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
    /// Returns an error as [`Purgatory::try_complete_else_watch`] does; `then` is not called.
    ///
    /// # Panics
    /// Panics as [`wait_for`](Self::wait_for) does; `then` is dropped without a call. A panic of
    /// `then` is contained and counted.
    #[inline]
    pub fn park<Q>(
        &self,
        key: &Q,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<Callback>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let wait = WatermarkWait(Wait::Callback(Box::new(then)));
        let core = &self.purgatory.core;
        match core.park_for_value(key, rank(threshold), timeout.into(), wait) {
            Ok(ForValue::Parked(id)) => Ok(ParkResult::Parked(id)),
            Ok(ForValue::AtOnce(wait, outcome)) => Ok(core.call_at_once(wait, outcome)),
            Err(refused) => Err(refused.map(WatermarkWait::into_callback)),
        }
    }

    /// Returns a future of a quorum, ready once at least `k` of the keys have reached their
    /// thresholds. It yields those keys with their values, in the order given. Keys that have
    /// reached their threshold before count.
    ///
    /// A key that is [removed](Self::remove) leaves the quorum, whether it had reached its
    /// threshold or not; a later advance of that key is none of this quorum's. The wait ends at
    /// once when fewer than `k` keys are left.
    ///
    /// The keys are read one after another. If they complete the wait, and any key was reset or
    /// removed meanwhile, they are read again: so a value that was taken back before another one
    /// came does not count beside it.
    ///
    /// O(keys) to park, with two locks for each, and O(keys) each time that one of them reaches its
    /// threshold or is removed, for each reading.
    ///
    /// # What it does not do
    /// The set is fixed when the wait parks: a replica that joins later is not waited for, and a
    /// removed one that comes back is not, either. And a wait belongs to no epoch: one parked
    /// before a [reset](Self::reset), or after it, is met by the values of the next epoch, too.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError). It is Cancelled as
    /// [`QuorumLost`](CancelReason::QuorumLost) when fewer than `k` keys are left. It is
    /// [Refused](crate::WaitError::Refused), at once, if `k` is 0 or above the number of keys
    /// ([`NoQuorum`](RefusedReason::NoQuorum)), or if a key comes twice
    /// ([`RepeatedKey`](RefusedReason::RepeatedKey)).
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics, or a value's
    /// [`to_rank`](WatermarkValue::to_rank). Then nothing was parked.
    pub fn wait_for_k(
        &self,
        k: usize,
        watermarks: &[(K, V)],
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Vec<(K, V)>> {
        self.await_quorum(k, Needed::AtLeast(k), watermarks, timeout.into())
    }

    /// Returns a future of all keys, ready once each has reached its threshold. It yields them with
    /// their values, in the order given: the in-sync replicas of a produce with acks=all.
    ///
    /// A key that is [removed](Self::remove) leaves the set, so the wait goes on for those that are
    /// left. Otherwise like [`wait_for_k`](Self::wait_for_k).
    ///
    /// # What it does not do
    /// The set is fixed when the wait parks: a replica that joins later is not waited for. There is
    /// no floor: with all other keys removed, the leader alone acknowledges. And a wait belongs to
    /// no epoch: one parked before a [reset](Self::reset), or after it, is met by the values of the
    /// next epoch, too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let replicas = Watermarks::new("replicas")?;
    /// let in_sync = [("a", 7), ("b", 7), ("c", 7)];
    /// let timeout = Duration::from_secs(30);
    /// let produce = replicas.wait_for_all(&in_sync, timeout);
    /// replicas.advance(&"a", 7)?;
    /// replicas.advance(&"b", 9)?;
    /// // It falls out of the set: a and b suffice.
    /// assert_eq!(replicas.remove(&"c"), 1);
    /// assert_eq!(produce.wait_blocking()?, [("a", 7), ("b", 9)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError). It is Cancelled as
    /// [`QuorumLost`](CancelReason::QuorumLost) when no key is left. It is
    /// [Refused](crate::WaitError::Refused), at once, without a key or if a key comes twice.
    ///
    /// # Panics
    /// Panics as [`wait_for_k`](Self::wait_for_k) does.
    pub fn wait_for_all(
        &self,
        watermarks: &[(K, V)],
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Vec<(K, V)>> {
        self.await_quorum(watermarks.len(), Needed::All, watermarks, timeout.into())
    }

    /// Parks a quorum of `k` of these keys, or refuses it.
    fn await_quorum(
        &self,
        k: usize,
        needed: Needed,
        watermarks: &[(K, V)],
        timeout: Timeout,
    ) -> WaitFuture<Vec<(K, V)>> {
        // Refuse a set that has no quorum.
        let n = watermarks.len();
        if k == 0 || k > n {
            return self.purgatory.refused(RefusedReason::NoQuorum { k, n });
        }
        let distinct: HashSet<&K> = watermarks.iter().map(|(key, _)| key).collect();
        if distinct.len() < n {
            return self.purgatory.refused(RefusedReason::RepeatedKey);
        }

        // Park it, with the ranks of the thresholds.
        let mut ranked: SmallVec<[(&K, u64); 8]> = SmallVec::new();
        let mut kept = Vec::with_capacity(n);
        for (key, threshold) in watermarks {
            let threshold = rank(*threshold);
            ranked.push((key, threshold));
            kept.push((key.clone(), threshold));
        }
        let quorum = QuorumOf {
            needed,
            watermarks: kept.into(),
            met: vec![None; n].into(),
            waker: Some(None),
            answer: None::<Result<Vec<(K, V)>, _>>,
        };
        let wait = WatermarkWait(Wait::Quorum(Box::new(quorum)));
        let core = &self.purgatory.core;
        match core.park_quorum(&ranked, timeout, wait) {
            Ok(ForValue::Parked(id)) => self.purgatory.answer_of(id),
            Ok(ForValue::AtOnce(mut wait, outcome)) => {
                core.call(|| wait.make_answer(&outcome));
                WaitFuture::ready(wait.into_answer())
            }
            Err(refused) => self.purgatory.refused(refused.reason),
        }
    }
}

impl<K: WatchKey + Sync> Watermarks<K> {
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
    pub fn add<Q>(&self, key: &Q, by: u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.purgatory
            .core
            .change_value(key, self.keys_max, None, |before| before.saturating_add(by))
    }
}

opaque!([K: WatchKey + Sync, V: WatermarkValue] Watermarks<K, V>, purgatory: purgatory);
