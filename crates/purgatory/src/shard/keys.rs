//! The keys of one shard that have waiters, a *record* each. Most records are *near*: in the first
//! page, at the place that their key's hash names. A hash table finds the others. And the *links*,
//! which tie a watch to its key's record and tell where in it the watch is: only their form; the
//! lists that they make up are in [`watchers`](super::watchers) and
//! [`watermark_queue`](super::watermark_queue).
//!
//! - **Gone**: a record without waiters does not exist, so a key used once leaves nothing behind.

use std::num::NonZeroU32;

use hashbrown::HashTable;
use timer_core::{
    TimerHandle,
    driver::{PageSlot, Pages},
};

use super::watermark_queue::{Ends, NONE, WatermarkList, shrinks_to};
use hashbrown::Equivalent;

/// A table for more keys than this gives a peak back. Fewer in tests, which get there.
pub(super) const KEPT_KEYS: usize = if cfg!(test) { 64 } else { 512 };

/// A key that has waiters.
#[derive(Debug)]
pub(super) struct Record<K> {
    pub(super) key: K,
    hash: u64,
    pub(super) waiters: u32,
    /// The first look since its last event; 0 before that.
    pub(super) quiet_since_ms: u32,
    pub(super) plain: Ends,
    /// Made when the first watermark watch comes.
    pub(super) watermarks: Option<Box<WatermarkList>>,
}

/// A record's place; none is there while the slot is free.
#[derive(Debug)]
struct RecordSlot<K>(Option<Record<K>>);

impl<K> PageSlot for RecordSlot<K> {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        RecordSlot(None)
    }
}

/// Of the keys of one hash modulo this the first is near: the places of a page.
pub(super) const NEAR: usize = 1 << RecordSlot::<()>::PAGE_BITS;

#[derive(Debug)]
pub(super) struct Keys<K> {
    records: Pages<RecordSlot<K>>,
    far: Box<DistantKeys>,
}

/// What most keys do not touch.
#[derive(Debug, Default)]
struct DistantKeys {
    /// The numbers of the records that are not near.
    table: HashTable<u32>,
    /// Of the last record that had watermark watches: the next one takes it over.
    spare: Option<Box<WatermarkList>>,
}

impl DistantKeys {
    fn remove<K>(&mut self, records: &Pages<RecordSlot<K>>, hash: u64, number: u32) {
        let table = &mut self.table;
        if let Ok(entry) = table.find_entry(hash, |&other| other == number) {
            entry.remove();
        }
        if let Some(capacity) = shrinks_to(table.capacity(), table.len(), KEPT_KEYS) {
            table.shrink_to(capacity, |&number| hash_of(records, number));
        }
    }
}

impl<K: Eq> Keys<K> {
    pub(super) fn new() -> Self {
        Keys {
            records: Pages::default(),
            far: Box::default(),
        }
    }

    /// The number of a key's record.
    #[inline]
    pub(super) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        let is = |record: &Record<K>| record.hash == hash && key.equivalent(&record.key);
        let near = near(hash);
        if self
            .records
            .get(near)
            .and_then(|slot| slot.0.as_ref())
            .is_some_and(is)
        {
            return Some(near);
        }
        if self.far.table.is_empty() {
            return None;
        }
        self.far
            .table
            .find(hash, |&number| is(self.at(number)))
            .copied()
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

    /// The watermark watches of a key, to be added to or taken from.
    pub(super) fn watermarks_mut(&mut self, number: u32) -> &mut WatermarkList {
        let Keys { records, far, .. } = self;
        let record = records
            .at_mut(number)
            .0
            .as_mut()
            .expect("Linked: a link names a record");
        record
            .watermarks
            .get_or_insert_with(|| far.spare.take().unwrap_or_default())
    }

    /// A record for a key that has none.
    #[inline]
    pub(super) fn add(&mut self, key: K, hash: u64) -> u32 {
        let Keys { records, far } = self;
        let (plain, watermarks, near) = (Ends::EMPTY, None, near(hash));
        let record = Record {
            key,
            hash,
            waiters: 0,
            quiet_since_ms: 0,
            plain,
            watermarks,
        };
        if records.claim_near(near) {
            records.at_mut(near).0 = Some(record);
            return near;
        }
        let number = records
            .claim()
            .expect("as many keys as waiters at most, and a waiter has its slot");
        records.at_mut(number).0 = Some(record);
        far.table
            .insert_unique(hash, number, |&number| hash_of(records, number));
        number
    }

    /// Counts one waiter less; with the last the record goes, and the key is returned.
    #[inline]
    pub(super) fn remove_waiter(&mut self, number: u32) -> Option<K> {
        let Keys { records, far } = self;
        let slot = records.at_mut(number);
        let record = slot.0.as_mut()?;
        record.waiters -= 1;
        if record.waiters > 0 {
            return None;
        }
        let record = slot.0.take()?;
        records.release(number);
        if number != near(record.hash) {
            far.remove(records, record.hash, number);
        }
        if let Some(mut watermarks) = record.watermarks {
            watermarks.clear();
            far.spare = Some(watermarks);
        }
        Some(record.key)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Every record, in no order, with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record<K>)> {
        let next = |&number: &u32| self.records.first_from(number + 1);
        let numbers = std::iter::successors(self.records.first_from(0), next);
        numbers.map(|number| (number, self.at(number)))
    }

    /// Applies `act` to every record, in no order.
    pub(super) fn each_mut(&mut self, mut act: impl FnMut(&mut Record<K>)) {
        let mut next = self.records.first_from(0);
        while let Some(number) = next {
            act(self.at_mut(number));
            next = self.records.first_from(number + 1);
        }
    }

    /// Every record is found by its key, and has waiters. For tests.
    #[cfg(test)]
    pub(super) fn assert_valid(&self) {
        for (number, record) in self.iter() {
            assert_eq!(self.find(&record.key, record.hash), Some(number));
            assert!(record.waiters > 0, "Gone");
        }
        let near = self
            .iter()
            .filter(|(number, record)| *number == near(record.hash))
            .count();
        assert_eq!(
            (self.iter().count(), near + self.far.table.len()),
            (self.len(), self.len())
        );
        let spare = self
            .far
            .spare
            .as_ref()
            .map(|spare| (spare.assert_valid(|_| true), spare.met));
        assert!(spare.is_none_or(|(unmet, met)| unmet.is_empty() && met.is_empty()));
    }

    /// Room in the table and pages of records, for tests.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.far.table.capacity(), self.records.pages_with_memory())
    }
}

/// The place near for a key of this hash: not by the bits that tell its shard.
#[inline]
fn near(hash: u64) -> u32 {
    hash as u32 % NEAR as u32
}

fn hash_of<K>(records: &Pages<RecordSlot<K>>, number: u32) -> u64 {
    records
        .at(number)
        .0
        .as_ref()
        .map_or(0, |record| record.hash)
}

/// How many further keys are watched in one shard at most.
pub(crate) const WAITERS_MAX: usize = 1 << 30;

/// Set in the number of a slot's link; without it the number is an entry's index.
pub(super) const SLOT: u32 = 1 << 31;

/// A watch's place among others of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The one before on the list, and the one after.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The record's number above, the [`WatchList`] in the two lowest bits; or [`NONE`].
    pub(super) of: u32,
}

/// Where in its record a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchList {
    Plain,
    Met,
    Unmet,
}

impl Link {
    /// Of a watch that is nowhere.
    pub(crate) const NOWHERE: Link = Link {
        prev: NONE,
        next: NONE,
        of: NONE,
    };

    pub(super) fn new(place: WatchList, record: u32) -> Self {
        Link {
            of: record << 2 | place as u32,
            ..Link::NOWHERE
        }
    }

    pub(super) fn record(&self) -> u32 {
        self.of >> 2
    }

    pub(super) fn place(&self) -> WatchList {
        match self.of & 3 {
            0 => WatchList::Plain,
            1 => WatchList::Met,
            _ => WatchList::Unmet,
        }
    }
}

/// The watch slot of an operation in the shard of a key that is not its first: gives it back without
/// hashing or comparing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondaryId {
    pub(crate) shard: u32,
    /// One above the slot: so an `Option` of a ticket costs nothing.
    above: NonZeroU32,
}

impl SecondaryId {
    #[inline]
    pub(super) fn new(shard: u32, slot: u32) -> Self {
        SecondaryId {
            shard,
            above: NonZeroU32::MIN.saturating_add(slot),
        }
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.above.get() - 1
    }
}

/// The watch of an operation under a key that is not its first. It keeps its slot until the
/// operation has ended, also when it was taken off its key.
#[derive(Debug)]
pub(super) struct SecondaryWatch {
    pub(super) id: Option<TimerHandle>,
    pub(super) link: Link,
    /// The watch that was set before, unless that is the first key's.
    pub(super) before: Option<SecondaryId>,
}

impl PageSlot for SecondaryWatch {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        SecondaryWatch {
            id: None,
            link: Link::NOWHERE,
            before: None,
        }
    }
}

/// A walk that did not get to the end of its list in one go.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) number: u64,
    pub(super) next: u32,
    pub(super) last: u32,
}

/// What taking met watermark watches came to.
#[derive(Debug)]
pub(crate) struct Popped<K> {
    /// None at or below the value is left.
    pub(crate) all: bool,
    /// The key, if nobody waits for it any more.
    pub(crate) left: Option<K>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_hash_are_apart_and_their_peak_goes() {
        let mut keys = Keys::new();
        for key in 0..300 {
            let record = keys.add(key, 7);
            keys.at_mut(record).waiters = 1;
        }
        for key in 0..300 {
            keys.assert_valid();
            let record = keys.find(&key, 7).unwrap();
            assert_eq!(keys.remove_waiter(record), Some(key));
            assert_eq!(keys.find(&key, 7), None);
        }
        let (table, pages) = keys.kept();
        assert!(
            keys.len() == 0 && table <= KEPT_KEYS && pages <= 2,
            "{table}, {pages}"
        );
    }

    #[test]
    fn the_first_key_in_each_place_needs_no_table() {
        let mut keys = Keys::new();
        (0..NEAR as u64).for_each(|key| _ = keys.add(key, 7 * key));
        assert_eq!(keys.kept().0, 0);
        keys.add(16, 16);
        assert_ne!(keys.kept().0, 0);
    }

    #[test]
    fn a_further_watch_costs_32_bytes() {
        assert_eq!(size_of::<SecondaryWatch>(), 32);
    }
}
