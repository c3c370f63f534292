//! The keys of one shard that have waiters: how a key's *record* is found, and what it holds.
//!
//! Most records are *near*: they lie in the first page, at the place that the key's hash names among
//! those that are made: one at first, then 4, then all. A hash table finds the others, the *distant*
//! ones. A record keeps its number, so one that was near may be distant once there are more places.
//!
//! - **Gone**: a record without waiters does not exist, so a key used once leaves nothing behind.

use std::iter;

use timer_core::driver::{PageSlot, Pages};

use super::links::{Ends, WAITERS_MAX};
use crate::{
    table::keys::Numbers,
    watches::{KeyRef, WatchKey},
};

/// A key that has waiters.
#[derive(Debug)]
pub(super) struct Record<K> {
    pub(super) key: K,
    hash: u32,
    pub(super) waiters: u32,
    /// Its watches, in the order in which they were set.
    pub(super) watches: Ends,
}

impl<K> Record<K> {
    /// True if it is a key's. Runs the key's `Eq`.
    #[inline]
    fn is_of<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> bool {
        self.hash == hash as u32 && key.is(&self.key)
    }
}

/// A record's place; the slot is free without one.
#[derive(Debug)]
struct RecordSlot<K>(Option<Record<K>>);

impl<K> PageSlot for RecordSlot<K> {
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        RecordSlot(None)
    }
}

/// The most near places, of which each has the first key whose hash names it: as many as a page has
/// slots.
pub(super) const NEAR: usize = 16;

/// The records of a shard's keys.
type Records<K> = Pages<RecordSlot<K>, NEAR>;

#[derive(Debug)]
pub(super) struct Keys<K> {
    records: Records<K>,
    /// The numbers of distant records, made when the first one comes.
    distant: Option<Box<Numbers>>,
}

impl<K: WatchKey> Keys<K> {
    pub(super) fn new() -> Self {
        Keys {
            records: Records::default(),
            distant: None,
        }
    }

    /// Returns the number of a key's record. Runs the key's `Eq`.
    #[inline(always)]
    pub(super) fn find<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        // 1. The place that the hash names.
        let near = self.near(hash as u32);
        if let Some(RecordSlot(Some(record))) = self.records.get(near) {
            if record.is_of(key, hash) {
                return Some(near);
            }
        }
        // 2. The table, which few shards have.
        match &self.distant {
            Some(numbers) if !numbers.is_empty() => self.find_distant(numbers, key, hash),
            _ => None,
        }
    }

    #[inline(never)]
    fn find_distant<Q: KeyRef<K> + ?Sized>(
        &self,
        numbers: &Numbers,
        key: &Q,
        hash: u64,
    ) -> Option<u32> {
        numbers.find(hash as u32, |number| self.at(number).is_of(key, hash))
    }

    #[inline]
    pub(super) fn at(&self, number: u32) -> &Record<K> {
        self.records
            .at(number)
            .0
            .as_ref()
            .expect("Linked: a link names a record")
    }

    #[inline]
    pub(super) fn at_mut(&mut self, number: u32) -> &mut Record<K> {
        self.records
            .at_mut(number)
            .0
            .as_mut()
            .expect("Linked: a link names a record")
    }

    /// Adds a record for a key that has none. It gets a waiter in this lock hold. Returns its
    /// number.
    #[inline(always)]
    pub(super) fn add(&mut self, key: K, hash: u64) -> u32 {
        let record = Record {
            key,
            hash: hash as u32,
            waiters: 0,
            watches: Ends::EMPTY,
        };
        // The near place, if it is free.
        let near = self.near(record.hash);
        if let Some(slot) = self.records.claim_near(near) {
            slot.0 = Some(record);
            return near;
        }
        self.add_elsewhere(record)
    }

    /// Adds a record whose near place is not free: near after all, once there are more places, or
    /// distant.
    #[inline(never)]
    fn add_elsewhere(&mut self, record: Record<K>) -> u32 {
        while self.records.first_len() < NEAR {
            self.make_near_places();
            let near = self.near(record.hash);
            if let Some(slot) = self.records.claim_near(near) {
                slot.0 = Some(record);
                return near;
            }
        }
        self.add_distant(record)
    }

    /// Makes more near places.
    fn make_near_places(&mut self) {
        let places = match self.records.first_len() {
            0 => 1,
            1 => 4,
            _ => NEAR,
        };
        self.records.grow_first_to(places);
        // Some are distant from here on, and some not any more.
        self.distant = None;
        for number in 0..places as u32 {
            match self.records.at(number) {
                RecordSlot(Some(Record { hash, .. })) if self.near(*hash) != number => {
                    let hash = *hash;
                    self.distant.get_or_insert_default().insert(hash, number);
                }
                _ => {}
            }
        }
    }

    /// Returns the near place for a key of this hash, beyond all if there is none. The bits used are
    /// not those that name its shard.
    #[inline(always)]
    fn near(&self, hash: u32) -> u32 {
        // Their number is a power of two, or 0.
        hash & (self.records.first_len() as u32).wrapping_sub(1)
    }

    /// Adds a record at any other place, which the table then finds.
    fn add_distant(&mut self, record: Record<K>) -> u32 {
        let hash = record.hash;
        let (number, slot) = self.records.claim_slot().expect("fewer keys than slots");
        slot.0 = Some(record);
        self.distant.get_or_insert_default().insert(hash, number);
        number
    }

    /// Takes a waiter off a record: `take_off` takes its watch off the list. With the last one the
    /// record goes, and the key is returned.
    #[inline(always)]
    pub(super) fn remove_waiter(
        &mut self,
        number: u32,
        take_off: impl FnOnce(&mut Record<K>),
    ) -> Option<K> {
        let mut removed = None;
        // The record is looked up once.
        self.records.release_if(number, |slot| {
            let Some(record) = &mut slot.0 else {
                return false;
            };
            take_off(record);
            record.waiters -= 1;
            if record.waiters > 0 {
                return false;
            }
            removed = slot.0.take();
            true
        });
        // Gone: so is its number, if it was distant.
        let record: Record<K> = removed?;
        if number != self.near(record.hash) {
            if let Some(numbers) = &mut self.distant {
                numbers.remove(record.hash, number);
            }
        }
        Some(record.key)
    }

    /// Returns the number of keys that have waiters.
    pub(super) fn waited_count(&self) -> usize {
        self.records.len()
    }

    /// Returns every record with its number, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record<K>)> {
        let next = |&number: &u32| self.records.first_from(number + 1);
        let numbers = iter::successors(self.records.first_from(0), next);
        numbers.map(|number| (number, self.at(number)))
    }

    /// Asserts that every record is found by its key, and has waiters.
    pub(super) fn assert_valid(&self) {
        for (number, record) in self.iter() {
            assert_eq!(self.find(&record.key, record.hash.into()), Some(number));
            assert!(record.waiters > 0, "Gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_costs_32_bytes_with_its_slots_tag() {
        assert_eq!(size_of::<RecordSlot<u64>>(), 8 + 4 + 4 + 8 + 8);
    }

    #[test]
    fn keys_of_one_hash_are_apart_and_their_peak_goes() {
        let mut keys = Keys::new();
        for key in 0..1000 {
            let record = keys.add(key, 7);
            keys.at_mut(record).waiters = 1;
        }
        for key in 0..1000 {
            if key % 100 == 0 {
                keys.assert_valid();
            }
            let record = keys.find(&key, 7).unwrap();
            assert_eq!(keys.remove_waiter(record, |_| ()), Some(key));
            assert_eq!(keys.find(&key, 7), None);
        }
        let numbers = keys.distant.unwrap();
        assert!(keys.records.is_empty() && keys.records.pages_with_memory() <= 2);
        assert!(numbers.is_empty() && !numbers.has_peak());
    }

    #[test]
    fn the_first_key_in_each_place_needs_no_table() {
        let mut keys = Keys::new();
        assert_eq!(keys.find(&7, 7), None);
        let mut places = Vec::new();
        for key in [0_u64, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 5] {
            keys.add(key, key);
            places.push(keys.records.first_len());
        }
        assert_eq!(places[..5], [1, 4, 4, 4, NEAR]);
        assert!(keys.distant.is_none());
        keys.add(16, 16);
        assert!(keys.distant.is_some());
    }

    /// Keys that come and go while there are few are found, wherever their places are by then.
    #[test]
    fn keys_are_found_as_their_places_become_more() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2_000 {
            let mut keys = Keys::new();
            let mut there = Vec::new();
            for key in 0..12_u64 {
                let hash = random.u64(..32);
                let record = keys.add(key, hash);
                keys.at_mut(record).waiters = 1;
                there.push((key, hash, record));
                if random.bool() {
                    let (key, hash, record) = there.swap_remove(random.usize(..there.len()));
                    assert_eq!(keys.find(&key, hash), Some(record));
                    assert_eq!(keys.remove_waiter(record, |_| ()), Some(key));
                    assert_eq!(keys.find(&key, hash), None);
                }
                keys.assert_valid();
            }
            let is_found =
                |&(key, hash, record): &(u64, u64, u32)| keys.find(&key, hash) == Some(record);
            assert!(there.iter().all(is_found) && keys.waited_count() == there.len());
        }
    }
}
