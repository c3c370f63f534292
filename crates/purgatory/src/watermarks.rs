//! Values by key that only rise, and waits for them: [`Watermarks`].
//!
//! The map's value is the truth: a rise changes it first, and what the rise reaches is checked
//! against it. So a rise that is late, behind a removal, completes nothing.

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
    operation::{Outcome, ParkResult, Refused, RefusedReason, Timeout, opaque},
    purgatory::Purgatory,
    sync::{Limit, MODEL, Mutex},
    wait::WaitFuture,
    watches::{WatchKey, Watches},
};

/// A map for fewer keys than this keeps its memory.
const KEPT_KEYS: u64 = 1024;

/// (Feature `keyed`.) A value for each key that only rises, and waits for it: the high watermarks
/// of partitions, how far each replica has come. One value alone has the key `()`.
///
/// It keeps the values, so there is no condition to write and no order of steps to get wrong. A key
/// that was never raised counts as 0. A value stays until [`remove`](Self::remove). A handle:
/// clones are the same, and dropping the last one ends what waits as Cancelled.
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
/// run with nothing locked, where those of any [`Purgatory`] run.
#[derive(Clone)]
pub struct Watermarks<K: WatchKey + Sync> {
    purgatory: Purgatory<K, BoxedOperation>,
    values: Arc<Values<K>>,
}

/// The value, if it is at least the threshold.
fn reached<K: WatchKey>(values: &Values<K>, key: &K, threshold: u64) -> Option<u64> {
    let value = values.get(key).unwrap_or(0);
    (value >= threshold).then_some(value)
}

impl<K: WatchKey + Sync> From<Purgatory<K, BoxedOperation>> for Watermarks<K> {
    /// Over a purgatory that was configured otherwise: a shared timer, an executor, a bound.
    fn from(purgatory: Purgatory<K, BoxedOperation>) -> Self {
        Watermarks::with_keys_max(purgatory, usize::MAX)
    }
}

impl<K: WatchKey + Sync> Watermarks<K> {
    /// With a timer of its own; `name` labels its metrics.
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::from)
    }

    /// Over a purgatory, with values for at most `keys_max` keys at a time. (What waits under a key
    /// without a value does not count; [`max_parked`](crate::Builder::max_parked) bounds that.)
    pub fn with_keys_max(purgatory: Purgatory<K, BoxedOperation>, keys_max: usize) -> Self {
        Watermarks {
            purgatory,
            values: Arc::new(Values::new(Limit::new(keys_max as u64))),
        }
    }

    /// Where the waits are parked: for metrics and snapshots, to cancel some, or to
    /// [shut down](Purgatory::shutdown). Its events raise no value.
    pub fn purgatory(&self) -> &Purgatory<K, BoxedOperation> {
        &self.purgatory
    }

    /// The key's value; `None` when it was never raised, or was removed. O(1).
    pub fn value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.values.get(key)
    }

    /// Keys that have a value. Exact when nothing moves. O(the map's shards).
    pub fn keys(&self) -> usize {
        self.values.len()
    }

    /// Advances the key's value (a lower one changes nothing), and completes what it reaches, lowest
    /// first; returns how many this call completed. Inside a callback it advances the value, returns
    /// 0, and completes when the outermost call returns. O(completed × log of the key's waits + the
    /// waits for k that it is one of and that still wait for others).
    ///
    /// # Errors
    /// [`RefusedReason::TooManyKeys`] for one more key than [`with_keys_max`](Self::with_keys_max)
    /// allows; nothing was changed.
    pub fn advance<Q>(&self, key: &Q, value: u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |before| value.max(before))
    }

    /// As [`advance`](Self::advance), by `by` above what the value is: for a value that counts. It
    /// stops at [`u64::MAX`].
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
    /// As [`advance`](Self::advance).
    pub fn add<Q>(&self, key: &Q, by: u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |before| before.saturating_add(by))
    }

    /// The value first, then its event.
    fn change<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<usize, RefusedReason>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let early = failpoint!(EventBeforeItsAdvance).then(|| {
            let value = to(self.values.get(key).unwrap_or(0));
            self.purgatory.complete_up_to(key, value)
        });
        let value = self
            .values
            .change(key, to)
            .map_err(|limit| RefusedReason::TooManyKeys { limit })?;
        Ok(early.unwrap_or_else(|| self.purgatory.complete_up_to(key, value)))
    }

    /// Removes the key's value, and ends what waits for it as Cancelled; returns how many waits
    /// this call ended. A later [`advance`](Self::advance) begins anew. O(the key's waits).
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

    /// A future of the key's value once it is at least `threshold`: at once if it is. Cancel
    /// safety: see [`WaitFuture`]. O(log of the key's waits).
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError).
    pub fn wait_for(
        &self,
        key: &K,
        threshold: u64,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<u64> {
        let watermarks = [(key.clone(), threshold)];
        let (values, key) = (self.values.clone(), key.clone());
        let watches = Watches::up_to(&watermarks).checked();
        let is_reached = move || reached(&values, &key, threshold);
        self.purgatory.wait(watches, timeout, is_reached)
    }

    /// Calls `then` once the key's value is at least `threshold`, or the wait ended otherwise.
    /// O(log of the key's waits).
    ///
    /// # Errors
    /// As [`Purgatory::try_complete_else_watch`]; `then` is not called.
    pub fn park(
        &self,
        key: &K,
        threshold: u64,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<BoxedOperation>> {
        let watermarks = [(key.clone(), threshold)];
        let (values, key) = (self.values.clone(), key.clone());
        let operation = when(move || reached(&values, &key, threshold).is_some(), then);
        let watches = Watches::up_to(&watermarks).checked();
        self.purgatory
            .try_complete_else_watch(operation, watches, timeout)
    }

    /// A future of those keys that have reached their thresholds, with their values, once those are
    /// at least `k`: a quorum. What has reached its own before counts. In the order given; O(keys),
    /// and each check of it, too: one for each rise of a key that has reached its threshold.
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError): Cancelled when one of its keys is
    /// [removed](Self::remove), and [Refused](crate::WaitError::Refused) at once when `k` is 0 or
    /// more than there are keys ([`NoQuorum`](RefusedReason::NoQuorum)), or a key comes twice
    /// ([`RepeatedKey`](RefusedReason::RepeatedKey)).
    pub fn wait_for_k(
        &self,
        k: usize,
        watermarks: &[(K, u64)],
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Vec<(K, u64)>> {
        if k == 0 || k > watermarks.len() {
            return self.purgatory.refused(RefusedReason::NoQuorum {
                k,
                n: watermarks.len(),
            });
        }
        let mut known = HashSet::with_capacity(watermarks.len());
        if !watermarks.iter().all(|(key, _)| known.insert(key)) {
            return self.purgatory.refused(RefusedReason::RepeatedKey);
        }
        let (values, of) = (self.values.clone(), watermarks.to_vec());
        let quorum = move || {
            let reached = of.iter().filter_map(|(key, threshold)| {
                let value = reached(&values, key, *threshold)?;
                Some((key.clone(), value))
            });
            Some(reached.collect::<Vec<_>>()).filter(|reached| reached.len() >= k)
        };
        let watches = Watches::up_to(watermarks).checked();
        self.purgatory.wait(watches, timeout, quorum)
    }
}

opaque!([K: WatchKey + Sync] Watermarks<K>, purgatory: purgatory);

/// The values, in a concurrent map.
struct Values<K> {
    of: DashMap<K, u64, RandomState>,
    keys: Limit,
    /// At least as many keys as the map has had since it last gave memory back.
    peak: AtomicU64,
    /// A model does not see the map's own locks: there this one is around each step.
    step: Mutex<()>,
}

impl<K: Hash + Eq + Clone> Values<K> {
    /// Without values; for at most this many keys.
    fn new(keys: Limit) -> Self {
        Values {
            of: DashMap::default(),
            keys,
            peak: AtomicU64::new(0),
            step: Mutex::new(()),
        }
    }

    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        let _step = MODEL.then(|| self.step.lock());
        self.of.get(key).map(|value| *value)
    }

    /// Changes a value, which begins at 0, as `to` says; returns what it is then, or how many keys
    /// there may be when this would be one more.
    fn change<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<u64, usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let _step = MODEL.then(|| self.step.lock());
        let changed = |before: &mut u64| {
            *before = to(*before);
            *before
        };
        if let Some(mut before) = self.of.get_mut(key) {
            return Ok(changed(&mut before));
        }
        match self.of.entry(key.to_owned()) {
            Entry::Occupied(mut before) => Ok(changed(before.get_mut())), // another thread was first
            Entry::Vacant(free) => {
                if !self.keys.acquire(1) {
                    drop(free.into_key()); // with nothing locked
                    return Err(self.keys.max() as usize);
                }
                self.peak.fetch_max(self.keys.taken(), Relaxed);
                Ok(*free.insert(to(0)))
            }
        }
    }

    /// Forgets a value; a peak is given back when an eighth of the keys is left.
    fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let _step = MODEL.then(|| self.step.lock());
        if self.of.remove(key).is_none() {
            return;
        }
        self.keys.release(1);
        let (left, peak) = (self.keys.taken(), self.peak.load(Relaxed));
        let shrinks = peak > KEPT_KEYS && left < peak / 8;
        if shrinks
            && self
                .peak
                .compare_exchange(peak, 2 * left, Relaxed, Relaxed)
                .is_ok()
        {
            self.of.shrink_to_fit();
        }
    }

    /// How many keys have a value.
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
        (0..100_000_u32).for_each(|key| _ = values.change(&key, |_| 1));
        let peak = values.of.capacity();
        (10..100_000_u32).for_each(|key| values.remove(&key));
        assert_eq!((values.len(), values.get(&5)), (10, Some(1)));
        assert!(
            values.of.capacity() * 50 < peak,
            "{} of {peak}",
            values.of.capacity()
        );
    }
}
