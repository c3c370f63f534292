//! The versions: how many events there have been on the keys of each hash, and which room a key is
//! in.
//!
//! - **Versions**: an event raises its key's version under the lock of the key's room, after its
//!   condition came true and before it walks. A thread that parks reads the version, checks, and
//!   compares under the lock as it watches. Equal: no event fell in between. Raised: check again.
//!   Versions are never made anew, moved or reset; keys that share one cost each other a needless
//!   check now and then. Those of one room
//!   are neighbours, so that events in different rooms seldom write to one cache line.

use std::hash::{BuildHasher, Hash};

use crate::sync::{AtomicU64, KeyHasher, Ordering, VERSIONS_A_ROOM};

/// A key's hash and its version, read before a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyVersion {
    pub(crate) hash: u64,
    version: u64,
}

#[derive(Debug)]
pub(crate) struct Versions {
    versions: Box<[AtomicU64]>,
    hasher: KeyHasher,
}

impl Versions {
    /// For this many rooms: a power of two.
    pub(crate) fn new(rooms: usize) -> Self {
        let version = || AtomicU64::new(0);
        Versions {
            versions: std::iter::repeat_with(version).take(rooms * VERSIONS_A_ROOM).collect(),
            hasher: KeyHasher::default(),
        }
    }

    /// Runs the key's `Hash`, with nothing locked.
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// To be called before the check whose result is to be relied on.
    #[inline]
    pub(crate) fn read<K: Hash>(&self, key: &K) -> KeyVersion {
        let hash = self.hash(key);
        KeyVersion { hash, version: self.of(hash).load(Ordering::Acquire) }
    }

    /// True when an event came by since. Under the lock of the key's room.
    #[inline]
    pub(crate) fn moved(&self, read: KeyVersion) -> bool {
        let version = self.of(read.hash).load(Ordering::Relaxed);
        version != read.version && !failpoint!(ParkSkipsVersionCheck)
    }

    /// Raises the version for an event. Under the lock of the key's room, which no key of the same
    /// version is outside of.
    #[inline]
    pub(crate) fn raise(&self, hash: u64) {
        if !failpoint!(EventRaisesNoVersion) {
            let version = self.of(hash).load(Ordering::Relaxed);
            self.of(hash).store(version + 1, Ordering::Release);
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU64 {
        &self.versions[self.number(hash)]
    }

    /// The room of a key of this hash.
    #[inline]
    pub(crate) fn room(&self, hash: u64) -> usize {
        self.number(hash) / VERSIONS_A_ROOM
    }

    /// How many events there have been: what the versions count. O(versions), without a lock.
    pub(crate) fn events(&self) -> u64 {
        self.versions.iter().map(|version| version.load(Ordering::Relaxed)).sum()
    }

    /// Which version a key of this hash has. The upper bits of that are the room's number.
    #[inline]
    fn number(&self, hash: u64) -> usize {
        // The bits above those by which a hash table places, below those it tags with.
        (hash >> 32) as usize & (self.versions.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_room_are_neighbours() {
        for rooms in [1, 8, 256] {
            let versions = Versions::new(rooms);
            let hash_of = |number: usize| (number as u64) << 32;
            let all = 0..rooms * VERSIONS_A_ROOM;
            assert!(all.into_iter().all(|at| versions.room(hash_of(at)) == at / VERSIONS_A_ROOM));
        }
    }
}
