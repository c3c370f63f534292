//! The keys of one shard: how a key's *record* is found.
//!
//! Most records are *near*: they lie in the first page, at the place that the key's hash names
//! among the places made so far. There is one at first, and the number doubles up to a page. A hash
//! table finds the other records, the *distant* ones. It stores half of each hash beside the
//! record's number, so it grows without reading records and runs no user code but the `Eq` of a
//! search. A record keeps its number, so a near record may become distant when there are more
//! places.
//!
//! - **Gone**: a record is removed by the step that empties it, so a key used once leaves nothing
//!   behind.

use std::iter;

use hashbrown::HashTable;
use timer_core::driver::{PageSlot, Pages};

use crate::{
    table::peak::shrunk,
    watches::{KeyRef, WatchKey},
};

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

/// Extends the 32 bits that an entry stores to a hash, which gives its place in the table and its
/// tag.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Numbers {
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
    /// `goes` returns true.
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
        if let Some(capacity) = shrunk(self.0.len(), self.0.capacity(), KEPT) {
            self.0.shrink_to(capacity, |hashed| spread(hashed.hash));
        }
    }
}

/// A key, with the data that a form keeps for it.
#[derive(Debug)]
struct Record<K, R> {
    key: K,
    hash: u32,
    of: R,
}

impl<K, R> Record<K, R> {
    /// Returns true if this is the record of `key`. Runs the key's `Eq`.
    #[inline]
    fn is_of<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> bool {
        self.hash == hash as u32 && key.is(&self.key)
    }
}

/// The slot of a record, free if there is none.
#[derive(Debug)]
struct Slot<K, R>(Option<Record<K, R>>);

impl<K, R> PageSlot for Slot<K, R> {
    const MAX: u32 = 1 << 28;

    fn vacant() -> Self {
        Slot(None)
    }
}

/// The most near places, as many as a page has slots. Each has the first key whose hash names it.
const NEAR: usize = 16;

/// The keys of one shard, by number and by key.
#[derive(Debug)]
pub(crate) struct Keys<K, R> {
    records: Pages<Slot<K, R>, NEAR>,
    /// The numbers of distant records, made with the first one.
    distant: Option<Box<Numbers>>,
}

impl<K, R> Default for Keys<K, R> {
    fn default() -> Self {
        Keys {
            records: Pages::default(),
            distant: None,
        }
    }
}

const IN_USE: &str = "Gone: a record that is named is there";

impl<K, R> Keys<K, R> {
    /// Returns the number of a key's record. Runs the key's `Eq`. O(1).
    #[inline(always)]
    pub(crate) fn find<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        // 1. Try the place that the hash names.
        let near = self.near(hash as u32);
        if let Some(Slot(Some(record))) = self.records.get(near) {
            if record.is_of(key, hash) {
                return Some(near);
            }
        }
        // 2. Try the table, which few shards have.
        match &self.distant {
            Some(numbers) if !numbers.0.is_empty() => self.find_distant(numbers, key, hash),
            _ => None, // a search in an empty table costs 28 instructions
        }
    }

    #[inline(never)]
    fn find_distant<Q: KeyRef<K> + ?Sized>(
        &self,
        numbers: &Numbers,
        key: &Q,
        hash: u64,
    ) -> Option<u32> {
        // When the last record of a peak is removed, the near places are freed. If its number was
        // its hash, the table names it until a record is added, which makes the places and the
        // table anew.
        numbers.find(hash as u32, |number| match self.records.get(number) {
            Some(Slot(Some(record))) => record.is_of(key, hash),
            _ => false,
        })
    }

    /// Adds a key that has no record; returns the number of its new record. O(1).
    #[inline(always)]
    pub(crate) fn add(&mut self, key: K, hash: u64, of: R) -> u32 {
        let hash = hash as u32;
        let record = Record { key, hash, of };
        // Take the near place if it is free.
        let near = self.near(hash);
        if let Some(slot) = self.records.claim_near(near) {
            slot.0 = Some(record);
            return near;
        }
        self.add_elsewhere(record)
    }

    /// Adds a record whose near place is not free. Makes more places while that is possible; the
    /// record is near if its place is then free, else distant.
    #[inline(never)]
    fn add_elsewhere(&mut self, record: Record<K, R>) -> u32 {
        if self.records.first_len() < NEAR {
            self.make_near_places();
            return self.add(record.key, record.hash.into(), record.of);
        }
        // Take any other place, where the table finds it.
        let hash = record.hash;
        let (number, slot) = self.records.claim_slot().expect("fewer keys than slots");
        slot.0 = Some(record);
        self.distant.get_or_insert_default().insert(hash, number);
        number
    }

    /// Makes more near places.
    fn make_near_places(&mut self) {
        let places = (2 * self.records.first_len()).max(1);
        self.records.grow_first_to(places);
        // With more places, some near records become distant, and some distant ones near.
        self.distant = None;
        for number in 0..places as u32 {
            match self.records.at(number) {
                Slot(Some(Record { hash, .. })) if self.near(*hash) != number => {
                    let hash = *hash;
                    self.distant.get_or_insert_default().insert(hash, number);
                }
                _ => {}
            }
        }
    }

    /// Returns the near place for a key of this hash, or a number beyond all if no places are made.
    /// It uses other bits than those that name the key's shard.
    #[inline(always)]
    fn near(&self, hash: u32) -> u32 {
        // Their number is a power of two, or 0.
        hash & (self.records.first_len() as u32).wrapping_sub(1)
    }

    /// Removes a record if it `is_over`; returns its key, to be dropped unlocked. O(1).
    #[inline(always)]
    pub(crate) fn remove_if(
        &mut self,
        number: u32,
        is_over: impl FnOnce(&mut R) -> bool,
    ) -> Option<K> {
        let mut removed = None;
        // The record is looked up once.
        self.records.release_if(number, |slot| {
            let Some(record) = &mut slot.0 else {
                return false;
            };
            if !is_over(&mut record.of) {
                return false;
            }
            removed = slot.0.take();
            true
        });
        // Gone: remove its number too if it was distant.
        let record: Record<K, R> = removed?;
        if number != self.near(record.hash) {
            if let Some(numbers) = &mut self.distant {
                numbers.remove(record.hash, number);
            }
        }
        Some(record.key)
    }

    /// Removes a record; returns its key, to be dropped unlocked. O(1).
    pub(crate) fn remove(&mut self, number: u32) -> K {
        self.remove_if(number, |_| true).expect(IN_USE)
    }

    #[inline]
    fn record(&self, number: u32) -> &Record<K, R> {
        self.records.at(number).0.as_ref().expect(IN_USE)
    }

    /// Returns the data under a number, if there is a record.
    pub(crate) fn get(&self, number: u32) -> Option<&R> {
        Some(&self.records.get(number)?.0.as_ref()?.of)
    }

    pub(crate) fn key(&self, number: u32) -> &K {
        &self.record(number).key
    }

    #[inline]
    pub(crate) fn at(&self, number: u32) -> &R {
        &self.record(number).of
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut R {
        &mut self.records.at_mut(number).0.as_mut().expect(IN_USE).of
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the first record at or after a number, for a walk over all records. O(pages).
    pub(crate) fn first_from(&self, number: u32) -> Option<u32> {
        self.records.first_from(number)
    }

    /// Returns the numbers of all records, in no order of their keys.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers_from(0)
    }

    /// Returns the numbers of the records at or after a number, in their order.
    pub(crate) fn numbers_from(&self, number: u32) -> impl Iterator<Item = u32> {
        let next = |&number: &u32| self.first_from(number + 1);
        iter::successors(self.first_from(number), next)
    }

    /// Returns all keys with their data, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &R)> {
        self.numbers()
            .map(|number| (self.key(number), self.at(number)))
    }

    /// Asserts that every record is found by its key.
    pub(crate) fn assert_valid(&self)
    where
        K: WatchKey,
    {
        for number in self.numbers() {
            let Record { key, hash, .. } = self.record(number);
            assert_eq!(self.find(key, (*hash).into()), Some(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table takes the place from the lower bits and the tag from the upper ones.
    #[test]
    fn both_halves_of_a_tables_hash_are_that_of_the_entry() {
        assert_eq!(spread(0x0123_4567), 0x0123_4567_0123_4567);
    }

    #[test]
    fn record_costs_32_bytes_with_its_slots_tag() {
        assert_eq!(size_of::<Slot<u64, [u32; 3]>>(), 8 + 4 + 12 + 8);
    }

    #[test]
    fn keys_of_one_hash_are_apart_and_their_peak_goes() {
        let mut keys = Keys::default();
        for key in 0..1000 {
            keys.add(key, 7, ());
        }
        for key in 0..1000 {
            if key % 100 == 0 {
                keys.assert_valid();
            }
            let record = keys.find(&key, 7).unwrap();
            assert_eq!(keys.remove_if(record, |()| true), Some(key));
            assert_eq!(keys.find(&key, 7), None);
        }
        let numbers = keys.distant.unwrap();
        assert!(keys.records.is_empty() && keys.records.pages_with_memory() <= 2);
        assert!(numbers.0.is_empty() && numbers.0.capacity() <= KEPT);
    }

    /// The models rely on this.
    #[test]
    #[should_panic = "None"]
    fn assert_valid_notices_a_key_that_is_not_found() {
        let mut keys = Keys::default();
        for key in 0..2 {
            keys.add(key, key, ());
        }
        keys.records.at_mut(0).0.as_mut().unwrap().hash = 1;
        keys.assert_valid();
    }

    /// The near places are freed with it. Its number is its hash, so it would seem near without
    /// them.
    #[test]
    fn the_last_key_of_a_peak_is_not_found_any_more() {
        let mut keys = Keys::default();
        for key in 0..2000_u64 {
            assert_eq!(keys.add(key, key & !15, ()), key as u32);
        }
        for number in (0..2000).filter(|&number| number != 1600) {
            keys.remove(number);
        }
        assert_eq!(keys.remove(1600), 1600);
        assert_eq!(keys.find(&1600_u64, 1600), None);
    }

    #[test]
    fn the_first_key_in_each_place_needs_no_table() {
        let mut keys = Keys::default();
        assert_eq!(keys.find(&7, 7), None);
        let mut places = Vec::new();
        for key in [0_u64, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 5] {
            keys.add(key, key, ());
            places.push(keys.records.first_len());
        }
        assert_eq!(places[..6], [1, 2, 4, 4, 8, 8]);
        assert!(keys.distant.is_none());
        keys.add(16, 16, ());
        assert!(keys.distant.is_some());
    }

    /// Keys that are added and removed while there are few are found, wherever their places are by
    /// then.
    #[test]
    fn keys_are_found_as_their_places_become_more() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2_000 {
            let mut keys = Keys::default();
            let mut there = Vec::new();
            for key in 0..12_u64 {
                let hash = random.u64(..32);
                let record = keys.add(key, hash, ());
                there.push((key, hash, record));
                if random.bool() {
                    let (key, hash, record) = there.swap_remove(random.usize(..there.len()));
                    assert_eq!(keys.find(&key, hash), Some(record));
                    assert_eq!(keys.remove_if(record, |()| true), Some(key));
                    assert_eq!(keys.find(&key, hash), None);
                }
                keys.assert_valid();
            }
            let is_found =
                |&(key, hash, record): &(u64, u64, u32)| keys.find(&key, hash) == Some(record);
            assert!(there.iter().all(is_found) && keys.len() == there.len());
        }
    }
}
