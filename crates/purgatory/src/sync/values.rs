//! A value for each key that only rises, in a concurrent map.

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use dashmap::{DashMap, Entry};
use rapidhash::fast::RandomState;

use crate::sync::limit::Limit;

/// A map for fewer keys than this keeps its memory.
const KEPT_KEYS: usize = 1024;

pub(crate) struct Values<K> {
    of: DashMap<K, u64, RandomState>,
    keys: Limit,
    /// At least as many keys as the map has had since it last gave memory back.
    peak: AtomicUsize,
}

impl<K: Hash + Eq + Clone> Values<K> {
    /// Without values; for at most this many keys.
    pub(crate) fn new(keys: Limit) -> Self {
        Values { of: DashMap::default(), keys, peak: AtomicUsize::new(0) }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.of.get(key).map(|value| *value)
    }

    /// Changes a value, which begins at 0, as `to` says; returns what it is then, or how many keys
    /// there may be when this would be one more.
    pub(crate) fn raise<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<u64, usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let raised = |before: &mut u64| {
            *before = to(*before);
            *before
        };
        if let Some(mut before) = self.of.get_mut(key) {
            return Ok(raised(&mut before));
        }
        match self.of.entry(key.to_owned()) {
            Entry::Occupied(mut before) => Ok(raised(before.get_mut())), // another thread was first
            Entry::Vacant(free) => {
                if !self.keys.acquire(1) {
                    drop(free.into_key()); // with nothing locked
                    return Err(self.keys.max());
                }
                self.peak.fetch_max(self.keys.taken(), Relaxed);
                Ok(*free.insert(to(0)))
            }
        }
    }

    /// Forgets a value; a peak is given back when an eighth of the keys is left.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if self.of.remove(key).is_none() {
            return;
        }
        self.keys.release(1);
        let (left, peak) = (self.keys.taken(), self.peak.load(Relaxed));
        let shrinks = peak > KEPT_KEYS && left < peak / 8;
        if shrinks && self.peak.compare_exchange(peak, 2 * left, Relaxed, Relaxed).is_ok() {
            self.of.shrink_to_fit();
        }
    }

    /// How many keys have a value.
    pub(crate) fn len(&self) -> usize {
        self.keys.taken()
    }

    /// How many keys the map has memory for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.of.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_keys_gives_a_peak_back() {
        let values = Values::new(Limit::new(usize::MAX));
        (0..100_000_u32).for_each(|key| _ = values.raise(&key, |_| 1));
        let peak = values.capacity();
        (10..100_000_u32).for_each(|key| values.remove(&key));
        assert_eq!((values.len(), values.get(&5)), (10, Some(1)));
        assert!(values.capacity() * 50 < peak, "{} of {peak}", values.capacity());
    }
}
