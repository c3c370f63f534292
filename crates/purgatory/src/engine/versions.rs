//! Versions: a count of events for each hash, by which a thread that parks notices an event that
//! came between its check and its watch.
//!
//! - **Versions**: an event raises a version before it walks, and a park compares the version as it
//!   watches, both under the shard's lock. So no event between check and watch is lost.

use std::{iter, sync::OnceLock};

use timer_core::MAX_SHARDS;

use crate::sync::{AtomicU64, MODEL, Ordering, VERSIONS_PER_SHARD, mixed};

/// The counts of events on keys, by hash.
///
/// An event raises its key's version under the lock of the key's shard, after the condition came
/// true and before it walks. A thread that parks reads the version, checks, and compares the
/// version under the lock as it watches. If it is equal, no event came in between; if not, the
/// thread checks again.
///
/// All versions are made when the first is read, and are never moved or reset. Keys that share a
/// version cost each other a needless check now and then. The versions of one shard are neighbours,
/// so that events in different shards seldom write to one cache line.
#[derive(Debug)]
pub(crate) struct Versions {
    versions: OnceLock<Box<[AtomicU64]>>,
    /// The number of the last version.
    last: usize,
}

/// A watch to be set, with the version of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch<'a, K> {
    pub(super) key: &'a K,
    pub(super) hash: u64,
    /// The version before the check.
    version: u64,
    /// The present version.
    present: &'a AtomicU64,
}

impl Versions {
    /// Plans the versions of this many shards, a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let versions = Versions {
            versions: OnceLock::new(),
            last: shards * VERSIONS_PER_SHARD - 1,
        };
        // loom does not see the `OnceLock`: fill it first.
        if MODEL {
            versions.made();
        }
        versions
    }

    /// Returns all versions, made on first use.
    #[inline]
    fn made(&self) -> &[AtomicU64] {
        match self.versions.get() {
            Some(versions) => versions,
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> &[AtomicU64] {
        let version = || AtomicU64::new(0);
        let all = || iter::repeat_with(version).take(self.last + 1);
        self.versions.get_or_init(|| all().collect())
    }

    /// Reads the key's version. Call this before the check; a later mismatch means that an event
    /// came in between.
    #[inline]
    pub(super) fn watch<'a, K>(&'a self, key: &'a K, hash: u64) -> Watch<'a, K> {
        let present = self.of(hash);
        Watch {
            key,
            hash,
            version: present.load(Ordering::Acquire),
            present,
        }
    }

    /// Counts an event. The caller holds the shard's lock. Keys that share a version share a shard,
    /// so a load and a store suffice.
    #[inline]
    pub(super) fn count_event(&self, hash: u64) {
        if !failpoint!(EventLeavesVersion) {
            let version = self.of(hash);
            version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU64 {
        &self.made()[self.number(hash)]
    }

    /// Returns the number of events so far. O(versions), without a lock.
    pub(super) fn events(&self) -> u64 {
        let made = self.versions.get().into_iter().flatten();
        made.map(|version| version.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of the version for this hash. Its upper bits are the shard's number.
    fn number(&self, hash: u64) -> usize {
        mixed(hash, MAX_SHARDS * VERSIONS_PER_SHARD) & self.last
    }
}

impl<K> Watch<'_, K> {
    /// Returns true if an event came since the watch was made. The caller holds the lock of the
    /// key's shard.
    pub(super) fn has_changed(&self) -> bool {
        let version = self.present.load(Ordering::Relaxed);
        version != self.version && !failpoint!(ParkSkipsVersionCheck)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn versions_of_a_shard_are_neighbours() {
        for shards in [1, 8, 256] {
            let versions = Versions::new(shards);
            for hash in (0..1000).map(|number: u64| number << 54 | number << 20) {
                let shard = versions.number(hash) / VERSIONS_PER_SHARD;
                assert_eq!(mixed(hash, MAX_SHARDS) & (shards - 1), shard);
                assert!(shard < shards);
            }
        }
    }

    /// In whichever bits the hashes differ.
    #[test]
    fn hashes_that_are_alike_lie_in_many_shards() {
        for shift in 0..=u64::BITS - 6 {
            let hashes = (0..64).map(|number: u64| 0x5bd1_e995_u64.wrapping_add(number << shift));
            let shards: HashSet<_> = hashes.map(|hash| mixed(hash, 128)).collect();
            assert!(shards.len() >= 16, "{shift}: {}", shards.len());
            assert!(shards.iter().all(|&shard| shard < 128), "{shift}");
        }
    }
}
