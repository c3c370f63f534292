//! The keys of one shard, each with an engine's record. The hash table has half of each hash beside
//! a record's number, so it grows without a look at the records, and runs no user code but the `Eq`
//! of a search.
//!
//! - **Gone**: the engine that empties a record removes it, so a key used once leaves nothing
//!   behind.

use std::iter;

use hashbrown::HashTable;
use timer_core::driver::{PageSlot, Pages};

use crate::watches::KeyRef;

/// The capacity up to which a table keeps its memory.
const KEPT: usize = 512;

/// Numbers by hash.
#[derive(Debug, Default)]
pub(crate) struct Numbers(HashTable<Hashed>);

#[derive(Debug)]
struct Hashed {
    hash: u32,
    number: u32,
}

/// Returns the hash of an entry that has 32 bits of one: its place in the table, and its tag.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Numbers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn has_peak(&self) -> bool {
        self.0.capacity() > KEPT
    }

    /// Finds the number of this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let is_it = |hashed: &Hashed| hashed.hash == hash && is_it(hashed.number);
        Some(self.0.find(spread(hash), is_it)?.number)
    }

    /// Adds a number.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, number: u32) {
        let hashed = Hashed { hash, number };
        self.0
            .insert_unique(spread(hash), hashed, |hashed| spread(hashed.hash));
    }

    /// Finds the number of this hash that `is_it` accepts, and removes it in the same search if
    /// `goes` says so.
    #[inline]
    pub(crate) fn take_if(
        &mut self,
        hash: u32,
        is_it: impl Fn(u32) -> bool,
        goes: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        let is_it = |hashed: &Hashed| hashed.hash == hash && is_it(hashed.number);
        let entry = self.0.find_entry(spread(hash), is_it).ok()?;
        let number = entry.get().number;
        if goes(number) {
            entry.remove();
            self.shrink();
        }
        Some(number)
    }

    /// Removes a number. Runs no user code.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, number: u32) {
        self.take_if(hash, |other| other == number, |_| true);
    }

    /// Frees the memory of a peak.
    #[inline]
    fn shrink(&mut self) {
        let capacity = self.0.capacity();
        if capacity > KEPT && self.0.len() < capacity / 4 {
            self.0
                .shrink_to(2 * self.0.len(), |hashed| spread(hashed.hash));
        }
    }
}

/// A key with an engine's record.
#[derive(Debug)]
struct Record<K, R> {
    key: K,
    hash: u32,
    /// Distinguishes it from the records that had its number before.
    serial: u32,
    of: R,
}

/// Names a record for longer than a lock hold: its number may be another key's then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordId {
    number: u32,
    serial: u32,
}

#[derive(Debug)]
struct Slot<K, R>(Option<Record<K, R>>);

impl<K, R> PageSlot for Slot<K, R> {
    const MAX: u32 = 1 << 28;

    fn vacant() -> Self {
        Slot(None)
    }
}

/// The keys of one shard, by number and by key.
#[derive(Debug)]
pub(crate) struct Keys<K, R> {
    numbers: Numbers,
    records: Pages<Slot<K, R>, 16>,
    next_serial: u32,
}

impl<K, R> Default for Keys<K, R> {
    fn default() -> Self {
        Keys {
            numbers: Numbers::default(),
            records: Pages::default(),
            next_serial: 0,
        }
    }
}

const IN_USE: &str = "Gone: a record that is named is there";

impl<K, R> Keys<K, R> {
    /// Finds a key's record. Runs the key's `Eq`. O(1).
    #[inline]
    pub(crate) fn find<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        self.numbers
            .find(hash as u32, |number| key.is(&self.record(number).key))
    }

    /// Adds a key that has no record. O(1).
    pub(crate) fn add(&mut self, key: K, hash: u64, of: R) -> u32 {
        let hash = hash as u32;
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let (number, slot) = self.records.claim_slot().expect("fewer keys than slots");
        slot.0 = Some(Record {
            key,
            hash,
            serial,
            of,
        });
        self.numbers.insert(hash, number);
        number
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Removes a record; returns its key, to be dropped unlocked. O(1).
    pub(crate) fn remove(&mut self, number: u32) -> K {
        let record = self.records.at_mut(number).0.take().expect(IN_USE);
        self.records.release(number);
        self.numbers.remove(record.hash, number);
        record.key
    }

    #[inline]
    fn record(&self, number: u32) -> &Record<K, R> {
        self.records.at(number).0.as_ref().expect(IN_USE)
    }

    /// Returns a name of a record that no later one has.
    #[inline]
    pub(crate) fn name(&self, number: u32) -> RecordId {
        let serial = self.record(number).serial;
        RecordId { number, serial }
    }

    /// Returns the number of the record of this name, unless it is gone.
    pub(crate) fn named(&self, name: RecordId) -> Option<u32> {
        let record = self.records.get(name.number)?.0.as_ref()?;
        (record.serial == name.serial).then_some(name.number)
    }

    /// Returns the key of a record.
    pub(crate) fn key(&self, number: u32) -> &K {
        &self.record(number).key
    }

    /// Returns a record.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> &R {
        &self.record(number).of
    }

    /// Returns a record, to be changed.
    #[inline]
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut R {
        &mut self.records.at_mut(number).0.as_mut().expect(IN_USE).of
    }

    /// Returns the first record whose number is `number` or above. O(pages passed over).
    pub(crate) fn first_from(&self, number: u32) -> Option<u32> {
        self.records.first_from(number)
    }

    /// Returns the keys with their records. O(slots).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &R)> {
        let next = |&number: &u32| self.records.first_from(number + 1);
        let numbers = iter::successors(self.records.first_from(0), next);
        numbers.map(|number| (self.key(number), self.at(number)))
    }
}
