//! In a model: what hashes alike in each run, and a map that loom and shuttle see into.

use std::{borrow::Borrow, hash::Hash};

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
    of: Mutex<Vec<(K, u64)>>,
    keys: Limit,
}

impl<K: Hash + Eq + Clone> Values<K> {
    pub(crate) fn new(keys: Limit) -> Self {
        Values { of: Mutex::new(Vec::new()), keys }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        let of = self.of.lock();
        of.iter().find(|(held, _)| held.borrow() == key).map(|(_, value)| *value)
    }

    pub(crate) fn raise<Q>(&self, key: &Q, to: impl Fn(u64) -> u64) -> Result<u64, usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut of = self.of.lock();
        if let Some((_, before)) = of.iter_mut().find(|(held, _)| held.borrow() == key) {
            *before = to(*before);
            return Ok(*before);
        }
        if !self.keys.acquire() {
            return Err(self.keys.max());
        }
        let value = to(0);
        of.push((key.to_owned(), value));
        Ok(value)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let mut of = self.of.lock();
        let before = of.len();
        of.retain(|(held, _)| held.borrow() != key);
        self.keys.release(before - of.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.of.lock().len()
    }
}
