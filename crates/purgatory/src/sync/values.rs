//! A value for each key that only rises, in a concurrent map.

use std::{borrow::Borrow, hash::Hash};

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;
use timer_core::driver::Limit;

pub(crate) struct Values<K> {
    of: DashMap<K, u64, RandomState>,
    keys: Option<Limit>,
}

impl<K: Hash + Eq + Clone> Values<K> {
    /// Without values; for at most so many keys.
    pub(crate) fn new(keys: Option<Limit>) -> Self {
        Values { of: DashMap::default(), keys }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.of.get(key).map(|value| *value)
    }

    /// Raises a value, unless it is higher already; returns what it is then, or how many keys there
    /// may be when this would be one more.
    pub(crate) fn raise(&self, key: &K, value: u64) -> Result<u64, usize> {
        let raised = |before: &mut u64| {
            *before = value.max(*before);
            *before
        };
        if let Some(mut before) = self.of.get_mut(key) {
            return Ok(raised(&mut before));
        }
        match self.of.entry(key.clone()) {
            Entry::Occupied(mut before) => Ok(raised(before.get_mut())), // another thread was first
            Entry::Vacant(free) => {
                if let Some(keys) = self.keys.as_ref().filter(|keys| !keys.acquire()) {
                    drop(free.into_key()); // with nothing locked
                    return Err(keys.max());
                }
                Ok(*free.insert(value))
            }
        }
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let (Some(_), Some(keys)) = (self.of.remove(key), &self.keys) {
            keys.release(1);
        }
    }

    /// How many keys have a value.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }
}
