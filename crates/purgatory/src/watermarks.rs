//! Values by key that only rise, and waits for them: [`Watermarks`].
//!
//! The map holds the truth: an advance changes the value first, and the waits that it reaches are
//! checked against the map. So an advance that comes late, after a removal, completes nothing.

use std::{
    borrow::Borrow,
    collections::HashSet,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use dashmap::{DashMap, Entry};
use rapidhash::fast::RandomState;
use timer_core::BuildError;

use crate::{
    boxed::{BoxedOperation, when},
    engine::signal::Event,
    error::{Refused, RefusedReason},
    operation::{DelayedOperation, Outcome, ParkResult, Timeout, opaque},
    purgatory::Purgatory,
    sync::{Limit, ModelLock},
    wait::WaitFuture,
    watches::{WatchKey, Watches},
};

/// The number of keys below which a map keeps its memory.
const KEPT_KEYS: u64 = 1024;

/// (Feature `keyed`.) Keeps a value for each key that only rises, and waits for values: the high
/// watermarks of partitions, the progress of replicas. A single value has the key `()`.
///
/// It holds the values, so there is no condition to write and no order of steps to get wrong. A key
/// without a value counts as 0. A value stays until [`remove`](Self::remove).
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
/// let two_of_three = [("replica 1", 7), ("replica 2", 7), ("replica 3", 7)];
/// let committed = log_ends.wait_for_k(2, &two_of_three, timeout);
///
/// assert_eq!(log_ends.advance(&"orders-0", 9)?, 1);
/// assert_eq!(log_ends.advance(&"replica 3", 8)?, 0);
/// assert_eq!(log_ends.advance(&"replica 1", 7)?, 1);
/// assert_eq!(orders.wait_blocking()?, 9);
/// assert_eq!(committed.wait_blocking()?, [("replica 1", 7), ("replica 3", 8)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Locks
/// A key's `Hash`, `Eq` and `Clone` run under locks and must not call back. Callbacks and wakers
/// run with nothing locked, on the threads where those of any [`Purgatory`] run.
#[derive(Clone)]
pub struct Watermarks<K: WatchKey + Sync> {
    purgatory: Purgatory<K, WatermarkWait>,
    values: Arc<Values<K>>,
}

/// An operation that [`Watermarks`] parks.
#[doc(hidden)]
pub struct WatermarkWait(BoxedOperation);

impl DelayedOperation for WatermarkWait {
    const SIGNALLED_BY_CALLERS: bool = false;

    fn try_complete(&mut self) -> bool {
        self.0.try_complete()
    }

    fn completes_by_call(&self) -> bool {
        self.0.completes_by_call()
    }

    fn check_without_event(&mut self) -> bool {
        self.0.check_without_event()
    }

    fn on_complete(self, outcome: Outcome) {
        self.0.on_complete(outcome);
    }
}

opaque!([] WatermarkWait);

/// Returns the key's value if it is at least the threshold.
fn reached<K: WatchKey>(values: &Values<K>, key: &K, threshold: u64) -> Option<u64> {
    let value = values.get(key).unwrap_or(0);
    if value >= threshold {
        Some(value)
    } else {
        None
    }
}

/// Returns the keys that have reached their thresholds, with their values, if there are at least
/// `k`.
fn quorum<K: WatchKey>(
    values: &Values<K>,
    k: usize,
    watermarks: &[(K, u64)],
) -> Option<Vec<(K, u64)>> {
    let mut met = Vec::new();
    for (key, threshold) in watermarks {
        if let Some(value) = reached(values, key, *threshold) {
            met.push((key.clone(), value));
        }
    }
    if met.len() >= k { Some(met) } else { None }
}

impl<K: WatchKey + Sync> From<Purgatory<K, WatermarkWait>> for Watermarks<K> {
    /// Makes `Watermarks` over a purgatory with other settings, such as a shared timer, an executor
    /// or a bound.
    fn from(purgatory: Purgatory<K, WatermarkWait>) -> Self {
        Watermarks::with_keys_max(purgatory, usize::MAX)
    }
}

impl<K: WatchKey + Sync> Watermarks<K> {
    /// Makes `Watermarks` with its own timer; `name` labels its metrics.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::from)
    }

    /// Makes `Watermarks` over a purgatory, with values for at most `keys_max` keys at a time.
    /// Waits under a key without a value do not count; [`max_parked`](crate::Builder::max_parked)
    /// limits those.
    pub fn with_keys_max(purgatory: Purgatory<K, WatermarkWait>, keys_max: usize) -> Self {
        Watermarks {
            purgatory,
            values: Arc::new(Values::new(Limit::new(keys_max as u64))),
        }
    }

    /// Returns the purgatory of the waits, for metrics and snapshots, to cancel waits, or to
    /// [shut down](Purgatory::shutdown).
    ///
    /// Only [`advance`](Self::advance) and [`add`](Self::add) signal its keys. Calls of the
    /// purgatory that do so advance no value, so they do not compile:
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
    pub fn value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.values.get(key)
    }

    /// Returns the number of keys that have a value. Exact when idle. O(1).
    pub fn keys(&self) -> usize {
        self.values.len()
    }

    /// Advances the key's value and completes the waits that it reaches, lowest threshold first;
    /// returns how many this call completed. A value lower than before changes nothing.
    ///
    /// Inside a callback this advances the value and returns 0; the waits complete when the
    /// outermost call returns.
    ///
    /// O(r log n + q) for r reached of the key's n waits, and q quorums that the key has reached
    /// and that still wait for other keys.
    ///
    /// # Errors
    /// [`RefusedReason::TooManyKeys`] if this would be one more key than
    /// [`with_keys_max`](Self::with_keys_max) allows. Nothing was changed.
    pub fn advance<Q>(&self, key: &Q, value: u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |before| value.max(before))
    }

    /// Adds `by` to the key's value, for a value that counts. Otherwise like
    /// [`advance`](Self::advance). The value stops at [`u64::MAX`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let votes: Watermarks<String> = Watermarks::new("votes")?;
    /// let elected = votes.wait_for(&"term 7".to_owned(), 2, Duration::from_secs(1));
    /// assert_eq!((votes.add("term 7", 1)?, votes.add("term 7", 1)?), (0, 1));
    /// assert_eq!(elected.wait_blocking()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`advance`](Self::advance) does.
    pub fn add<Q>(&self, key: &Q, by: u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |before| before.saturating_add(by))
    }

    /// Changes the value first, then completes the waits that it reaches.
    fn change<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if failpoint!(EventBeforeItsAdvance) {
            let early = to(self.values.get(key).unwrap_or(0));
            let completed = self.signal(key, early);
            self.values.change(key, to)?;
            return Ok(completed);
        }
        let value = self.values.change(key, to)?;
        Ok(self.signal(key, value))
    }

    /// Completes the waits that the key's value reaches.
    fn signal<Q>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.purgatory.core.signal(key, Event::Advance(value))
    }

    /// Parks a wait for the future of what `condition` gives.
    fn wait<T: Send + 'static>(
        &self,
        watermarks: &[(K, u64)],
        timeout: Timeout,
        condition: impl FnMut() -> Option<T> + Send + 'static,
    ) -> WaitFuture<T> {
        let watches = Watches::up_to(watermarks).checked();
        self.purgatory
            .await_end(watches, timeout, condition, true, WatermarkWait)
    }

    /// Removes the key's value and cancels the waits for it; returns how many waits this call
    /// ended. A later [`advance`](Self::advance) starts anew. O(n log n) for n waits of the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watermarks};
    ///
    /// let replicas = Watermarks::with_keys_max(Purgatory::new("replicas")?, 1);
    /// replicas.advance(&1, 70)?;
    /// assert!(replicas.advance(&2, 70).is_err()); // no place for another
    /// let waits = replicas.wait_for(&1, 71, Duration::from_secs(30));
    /// assert_eq!(replicas.remove(&1), 1); // it has left the cluster
    /// let removed = waits.wait_blocking().unwrap_err();
    /// assert_eq!(removed.to_string(), "cancelled: its key was removed");
    /// assert_eq!((replicas.value(&1), replicas.advance(&2, 70)), (None, Ok(0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.values.remove(key);
        self.purgatory.cancel_for_key(key, "its key was removed")
    }

    /// Returns a future of the key's value, ready once the value is at least `threshold`. O(log n)
    /// for n waits of the key.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError).
    pub fn wait_for(
        &self,
        key: &K,
        threshold: u64,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<u64> {
        let watermark = [(key.clone(), threshold)];
        let values = self.values.clone();
        let key = key.clone();
        let condition = move || reached(&values, &key, threshold);
        self.wait(&watermark, timeout.into(), condition)
    }

    /// Calls `then` once the key's value is at least `threshold`, or the wait has ended otherwise.
    /// O(log n) for n waits of the key.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::try_complete_else_watch`] does; `then` is not called.
    pub fn park(
        &self,
        key: &K,
        threshold: u64,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<BoxedOperation>> {
        let watermark = [(key.clone(), threshold)];
        let values = self.values.clone();
        let key = key.clone();
        let operation = when(move || reached(&values, &key, threshold).is_some(), then);
        let mut watches = Watches::up_to(&watermark).checked();
        watches.last_check = true; // as a wait for a future has
        self.purgatory
            .try_complete_else_watch(WatermarkWait(operation), watches, timeout)
            .map_err(|refused| refused.map(|wait| wait.0))
    }

    /// Returns a future of a quorum, ready once at least `k` of the keys have reached their
    /// thresholds. It yields those keys with their values, in the order given. Keys that have
    /// reached their threshold before count.
    ///
    /// O(keys) to park, and O(keys) for each check: one for each advance of a key that has reached
    /// its threshold.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError). It is Cancelled when one of the keys is
    /// [removed](Self::remove). It is [Refused](crate::WaitError::Refused), at once, if `k` is 0 or
    /// above the number of keys ([`NoQuorum`](RefusedReason::NoQuorum)), or if a key comes twice
    /// ([`RepeatedKey`](RefusedReason::RepeatedKey)).
    pub fn wait_for_k(
        &self,
        k: usize,
        watermarks: &[(K, u64)],
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Vec<(K, u64)>> {
        // Refuse what is no quorum.
        let n = watermarks.len();
        if k == 0 || k > n {
            return self.purgatory.refused(RefusedReason::NoQuorum { k, n });
        }
        let distinct: HashSet<&K> = watermarks.iter().map(|(key, _)| key).collect();
        if distinct.len() < n {
            return self.purgatory.refused(RefusedReason::RepeatedKey);
        }

        // Each advance of a key that has reached its threshold counts the quorum again.
        let values = self.values.clone();
        let members = watermarks.to_vec();
        let condition = move || quorum(&values, k, &members);
        self.wait(watermarks, timeout.into(), condition)
    }
}

opaque!([K: WatchKey + Sync] Watermarks<K>, purgatory: purgatory);

/// The values by key, in a concurrent map.
struct Values<K> {
    of: DashMap<K, u64, RandomState>,
    /// Limits and counts the keys.
    keys: Limit,
    /// An upper bound of the keys that the map has had since it last returned memory.
    peak: AtomicU64,
    /// Held around each step in models, which do not see the map's own locks.
    step: ModelLock,
}

impl<K: Hash + Eq + Clone> Values<K> {
    /// Makes an empty map with this limit of keys.
    fn new(keys: Limit) -> Self {
        Values {
            of: DashMap::default(),
            keys,
            peak: AtomicU64::new(0),
            step: ModelLock::new(),
        }
    }

    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        let _step = self.step.lock();
        self.of.get(key).map(|value| *value)
    }

    /// Replaces the key's value by `to` of it; a missing value is 0. Returns the new value.
    ///
    /// # Errors
    /// [`RefusedReason::TooManyKeys`] if this would be one more key than the limit allows.
    fn change<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<u64, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let _step = self.step.lock();

        // A known key needs no copy.
        if let Some(mut value) = self.of.get_mut(key) {
            *value = to(*value);
            return Ok(*value);
        }

        match self.of.entry(key.to_owned()) {
            // Another thread was first.
            Entry::Occupied(mut entry) => {
                let value = entry.get_mut();
                *value = to(*value);
                Ok(*value)
            }
            Entry::Vacant(entry) => {
                if !self.keys.acquire(1) {
                    drop(entry.into_key()); // with nothing locked
                    let limit = self.keys.max() as usize;
                    return Err(RefusedReason::TooManyKeys { limit });
                }
                self.peak.fetch_max(self.keys.taken(), Relaxed);
                Ok(*entry.insert(to(0)))
            }
        }
    }

    /// Removes a value. Returns memory once an eighth of the peak number of keys is left.
    fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let _step = self.step.lock();
        if self.of.remove(key).is_none() {
            return;
        }
        self.keys.release(1);

        let remaining = self.keys.taken();
        let peak = self.peak.load(Relaxed);
        if peak <= KEPT_KEYS || remaining >= peak / 8 {
            return;
        }
        // The thread that lowers the peak shrinks the map.
        let lowered = self
            .peak
            .compare_exchange(peak, 2 * remaining, Relaxed, Relaxed);
        if lowered.is_ok() {
            self.of.shrink_to_fit();
        }
    }

    /// Returns the number of keys that have a value.
    fn len(&self) -> usize {
        self.keys.taken() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_keys_gives_a_peak_back() {
        let values = Values::new(Limit::new(u64::MAX));
        for key in 0..100_000_u32 {
            values.change(&key, |_| 1).unwrap();
        }
        let peak = values.of.capacity();
        for key in 10..100_000_u32 {
            values.remove(&key);
        }
        assert_eq!((values.len(), values.get(&5)), (10, Some(1)));
        assert!(
            values.of.capacity() * 50 < peak,
            "{} of {peak}",
            values.of.capacity()
        );
    }
}
