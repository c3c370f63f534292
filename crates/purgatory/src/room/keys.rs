//! The keys of one room that have waiters, a *record* each: found in one of a few places by the
//! key's hash, where most are, or by a hash table.
//!
//! - **Gone**: a record without waiters does not exist, so a key used once leaves nothing behind.

use std::borrow::Borrow;

use hashbrown::HashTable;
use timer_core::driver::{PageSlot, Pages};

use super::{
    links::{Ends, WAITERS_MAX},
    watermark_queue::{WatermarkList, shrinks_to},
};

/// A table for more keys than this gives a peak back. Fewer in tests, which get there.
pub(super) const KEPT_KEYS: usize = if cfg!(test) { 64 } else { 512 };

/// A key that has waiters.
#[derive(Debug)]
pub(super) struct Record<K> {
    key: K,
    hash: u64,
    pub(super) waiters: u32,
    /// The first look since its last event; 0 before that.
    pub(super) quiet_since_ms: u32,
    pub(super) plain: Ends,
    /// Made when the first watermark watch comes.
    pub(super) watermarks: Option<Box<WatermarkList>>,
}

impl<K: Eq> Record<K> {
    #[inline]
    fn is<Q: Eq + ?Sized>(&self, key: &Q, hash: u64) -> bool
    where
        K: Borrow<Q>,
    {
        self.hash == hash && self.key.borrow() == key
    }
}

impl<K> Record<K> {
    pub(super) fn key(&self) -> &K {
        &self.key
    }
}

#[derive(Debug)]
struct RecordSlot<K>(Option<Record<K>>);

impl<K> PageSlot for RecordSlot<K> {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        RecordSlot(None)
    }
}

/// Of the keys of one hash modulo this the first has its record *near*, without a table.
pub(super) const NEAR: usize = 16;

/// A place near.
#[derive(Debug)]
#[repr(align(64))] // in one cache line
struct Near<K>(Option<Record<K>>);

#[derive(Debug)]
pub(super) struct Keys<K> {
    /// Empty until the first key comes, then [`NEAR`] places; the records with the lowest numbers.
    near: Box<[Near<K>]>,
    far: Box<Far<K>>,
    /// Of the last record that had watermark watches: the next one takes it over.
    spare: Option<Box<WatermarkList>>,
}

/// The records that found their place near taken.
#[derive(Debug)]
struct Far<K> {
    records: Pages<RecordSlot<K>>,
    table: HashTable<u32>,
}

impl<K: Eq> Far<K> {
    fn find<Q: Eq + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        if self.table.is_empty() {
            return None;
        }
        let is =
            |&at: &u32| self.records.at(at).0.as_ref().is_some_and(|record| record.is(key, hash));
        self.table.find(hash, is).copied()
    }

    fn add(&mut self, record: Record<K>) -> u32 {
        let Far { records, table } = self;
        let at =
            records.claim().expect("as many keys as waiters at most, and a waiter has its slot");
        let hash = record.hash;
        records.at_mut(at).0 = Some(record);
        table.insert_unique(hash, at, |&at| hash_of(records, at));
        at
    }

    fn remove(&mut self, at: u32) -> Option<Record<K>> {
        let Far { records, table } = self;
        let record = records.at_mut(at).0.take()?;
        records.release(at);
        if let Ok(entry) = table.find_entry(record.hash, |&other| other == at) {
            entry.remove();
        }
        if let Some(capacity) = shrinks_to(table.capacity(), table.len(), KEPT_KEYS) {
            table.shrink_to(capacity, |&at| hash_of(records, at));
        }
        Some(record)
    }
}

impl<K: Eq> Keys<K> {
    pub(super) fn new() -> Self {
        let far = Far { records: Pages::new(), table: HashTable::new() };
        Keys { near: Box::default(), far: Box::new(far), spare: None }
    }

    /// The number of a key's record.
    #[inline]
    pub(super) fn find<Q: Eq + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let near = near(hash);
        match &self.near.get(near)?.0 {
            Some(record) if record.is(key, hash) => Some(near as u32),
            _ => self.far.find(key, hash).map(|at| at + NEAR as u32),
        }
    }

    #[inline]
    pub(super) fn at(&self, number: u32) -> &Record<K> {
        let record = match (number as usize).checked_sub(NEAR) {
            None => self.near[number as usize].0.as_ref(),
            Some(at) => self.far.records.at(at as u32).0.as_ref(),
        };
        record.expect("Linked: a slot in use names a record")
    }

    #[inline]
    pub(super) fn at_mut(&mut self, number: u32) -> &mut Record<K> {
        self.at_and_spare(number).0
    }

    /// The watermark watches of a key, to be added to or taken from.
    #[inline]
    pub(super) fn watermarks_mut(&mut self, number: u32) -> &mut WatermarkList {
        let (record, spare) = self.at_and_spare(number);
        record.watermarks.get_or_insert_with(|| spare.take().unwrap_or_default())
    }

    #[inline]
    fn at_and_spare(&mut self, number: u32) -> (&mut Record<K>, &mut Option<Box<WatermarkList>>) {
        let record = match (number as usize).checked_sub(NEAR) {
            None => self.near[number as usize].0.as_mut(),
            Some(at) => self.far.records.at_mut(at as u32).0.as_mut(),
        };
        (record.expect("Linked: a slot in use names a record"), &mut self.spare)
    }

    /// A record for a key that has none.
    #[inline]
    pub(super) fn add(&mut self, key: K, hash: u64) -> u32 {
        let near = near(hash);
        let (plain, watermarks) = (Ends::EMPTY, None);
        let record = Record { key, hash, waiters: 0, quiet_since_ms: 0, plain, watermarks };
        if self.near.is_empty() {
            self.near = std::iter::repeat_with(|| Near(None)).take(NEAR).collect();
        }
        if self.near[near].0.is_none() {
            self.near[near].0 = Some(record);
            return near as u32;
        }
        self.far.add(record) + NEAR as u32
    }

    /// Counts one waiter less; with the last the record goes, and the key is returned.
    #[inline]
    pub(super) fn remove_waiter(&mut self, number: u32) -> Option<K> {
        let record = self.at_mut(number);
        record.waiters -= 1;
        if record.waiters > 0 {
            return None;
        }
        let record = match (number as usize).checked_sub(NEAR) {
            None => self.near[number as usize].0.take()?,
            Some(at) => self.far.remove(at as u32)?,
        };
        if let Some(watermarks) = record.watermarks {
            self.spare = Some(watermarks); // without watches, so it has given its peak back
        }
        Some(record.key)
    }

    pub(super) fn len(&self) -> usize {
        self.near.iter().filter_map(|near| near.0.as_ref()).count() + self.far.table.len()
    }

    /// Every record, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record<K>> {
        let Far { records, table } = &*self.far;
        let far = table.iter().filter_map(|&at| records.at(at).0.as_ref());
        self.near.iter().filter_map(|near| near.0.as_ref()).chain(far)
    }

    /// Applies `act` to every record, in no order.
    pub(super) fn each_mut(&mut self, mut act: impl FnMut(&mut Record<K>)) {
        let Far { records, table } = &mut *self.far;
        self.near.iter_mut().flat_map(|near| &mut near.0).for_each(&mut act);
        for &at in table.iter() {
            records.at_mut(at).0.iter_mut().for_each(&mut act);
        }
    }

    /// Every record with its number, for tests: each is found by its key, and has waiters.
    #[cfg(test)]
    pub(super) fn assert_valid(&self) -> Vec<(u32, &Record<K>)> {
        let next = |&at: &u32| self.far.records.first_from(at + 1);
        let far = std::iter::successors(self.far.records.first_from(0), next);
        let near = (0..self.near.len()).filter(|&at| self.near[at].0.is_some()).map(|at| at as u32);
        let numbers = near.chain(far.map(|at| at + NEAR as u32));
        let records: Vec<_> = numbers.map(|number| (number, self.at(number))).collect();
        for (number, record) in &records {
            assert_eq!(self.find(&record.key, record.hash), Some(*number));
            assert!(record.waiters > 0, "Gone");
        }
        assert_eq!(records.len(), self.len());
        let spare =
            self.spare.as_ref().map(|spare| (spare.assert_valid(|_| unreachable!()), spare));
        assert!(spare.is_none_or(|(items, spare)| items.is_empty() && spare.met.is_empty()));
        records
    }

    /// Room in the table and pages of records, for tests.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.far.table.capacity(), self.far.records.pages_with_memory())
    }
}

/// The place near for a key of this hash: not by the bits that tell its room.
#[inline]
fn near(hash: u64) -> usize {
    hash as usize % NEAR
}

fn hash_of<K>(records: &Pages<RecordSlot<K>>, at: u32) -> u64 {
    records.at(at).0.as_ref().map_or(0, |record| record.hash)
}
