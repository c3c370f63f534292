//! A map whose values are changed where they lie, each under a lock: a `DashMap`, and in a model a
//! map under the model's lock, since a model sees no other.

use std::{borrow::Borrow, hash::Hash, mem};

use crate::sync::hash::KeyHasher;

#[cfg(not(any(loom, shuttle)))]
type Inner<K, V> = dashmap::DashMap<K, V, KeyHasher>;

#[cfg(any(loom, shuttle))]
type Inner<K, V> = timer_core::driver::sync::Mutex<std::collections::HashMap<K, V, KeyHasher>>;

/// A map of values under locks.
pub(crate) struct Map<K, V>(Inner<K, V>);

#[cfg(not(any(loom, shuttle)))]
impl<K: Eq + Hash, V> Map<K, V> {
    pub(crate) fn new() -> Self {
        Map(Inner::default())
    }

    /// Calls `change` with the value of a key, under its lock. O(1).
    #[inline]
    pub(crate) fn get<Q, R>(&self, key: &Q, change: impl FnOnce(Option<&mut V>) -> R) -> R
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.0.get_mut(key) {
            Some(mut value) => change(Some(&mut value)),
            None => change(None),
        }
    }

    /// Replaces the value of a key by `value`, after `act`, which runs under the key's lock with both.
    /// `value` is what the key had before then, to be dropped unlocked. An error of `act` changes
    /// nothing. O(1).
    pub(crate) fn replace<R, E>(
        &self,
        key: K,
        value: &mut Option<V>,
        act: impl FnOnce(Option<&mut V>, Option<&V>) -> Result<R, E>,
    ) -> Result<R, E> {
        match self.0.entry(key) {
            dashmap::Entry::Occupied(mut occupied) => {
                let result = act(value.as_mut(), Some(occupied.get()))?;
                if let Some(value) = value {
                    mem::swap(occupied.get_mut(), value);
                }
                Ok(result)
            }
            dashmap::Entry::Vacant(vacant) => {
                let result = act(value.as_mut(), None)?;
                if let Some(value) = value.take() {
                    vacant.insert(value);
                }
                Ok(result)
            }
        }
    }

    /// Removes the value of a key, if it has one, after `act`, which runs under the key's lock. O(1).
    pub(crate) fn remove(&self, key: K, act: impl FnOnce()) {
        let mut removed = None;
        match self.0.entry(key) {
            dashmap::Entry::Occupied(occupied) => {
                act();
                removed = Some(occupied.remove_entry());
            }
            dashmap::Entry::Vacant(_vacant) => act(),
        }
        drop(removed); // unlocked
    }
}

#[cfg(any(loom, shuttle))]
impl<K: Eq + Hash, V> Map<K, V> {
    pub(crate) fn new() -> Self {
        Map(Inner::new(Default::default()))
    }

    pub(crate) fn get<Q, R>(&self, key: &Q, change: impl FnOnce(Option<&mut V>) -> R) -> R
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        change(self.0.lock().get_mut(key))
    }

    pub(crate) fn replace<R, E>(
        &self,
        key: K,
        value: &mut Option<V>,
        act: impl FnOnce(Option<&mut V>, Option<&V>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut map = self.0.lock();
        let result = act(value.as_mut(), map.get(&key))?;
        if let Some(new) = value.take() {
            *value = map.insert(key, new);
        }
        Ok(result)
    }

    pub(crate) fn remove(&self, key: K, act: impl FnOnce()) {
        let mut map = self.0.lock();
        act();
        let removed = map.remove(&key);
        drop(map);
        drop(removed);
    }
}
