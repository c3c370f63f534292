//! In a model: what hashes alike in each run, and a map that loom and shuttle see into.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::{BuildHasherDefault, Hash},
};

use timer_core::driver::sync::Mutex;

use crate::sync::limit::Limit;

/// Neighbouring numbers go to different rooms.
#[derive(Debug, Default)]
pub(crate) struct Number(u64);

impl std::hash::Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn finish(&self) -> u64 {
        self.0 << 32 | self.0 & u64::from(u32::MAX)
    }
}

/// As the one that ships, in one map behind a lock, where the one that ships has several.
pub(crate) struct Values<K> {
    of: Mutex<HashMap<K, u64, BuildHasherDefault<Number>>>,
    keys: Limit,
}

impl<K: Hash + Eq + Clone> Values<K> {
    pub(crate) fn new(keys: Limit) -> Self {
        Values { of: Mutex::new(HashMap::default()), keys }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.of.lock().get(key).copied()
    }

    pub(crate) fn raise<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<u64, usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut of = self.of.lock();
        if !of.contains_key(key) && !self.keys.acquire(1) {
            return Err(self.keys.max());
        }
        let value = of.entry(key.to_owned()).or_default();
        *value = to(*value);
        Ok(*value)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if self.of.lock().remove(key).is_some() {
            self.keys.release(1);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.taken()
    }
}
