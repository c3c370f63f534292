//! The keys of one shard that have waiters or a value: how a key's *record* is found, and what it
//! holds.
//!
//! Most records are *near*: they lie in the first page, at the place that the key's hash names. A
//! hash table finds the others, the *distant* ones.
//!
//! - **Gone**: a record without waiters and without a value does not exist, so a key used once
//!   leaves nothing behind.

use std::iter;

use hashbrown::{Equivalent, HashTable};
use timer_core::driver::{PageSlot, Pages};

use super::{
    key_extras::{KeyExtras, Watermark, shrinks_to},
    links::{Ends, Link, NONE, WAITERS_MAX, WatchList},
    quiet::QuietClock,
};

/// The capacity up to which the table keeps its memory; above, it shrinks after a peak. Smaller in
/// tests, so that they reach it.
pub(super) const KEPT_KEYS: usize = if cfg!(test) { 64 } else { 512 };

/// A key that has waiters or a value.
#[derive(Debug)]
pub(super) struct Record<K> {
    pub(super) key: K,
    hash: u64,
    pub(super) waiters: u32,
    /// The first look after its last event, if there was one.
    pub(super) quiet_since: Option<QuietClock>,
    pub(super) plain: Ends,
    /// Made when the first watermark watch comes, or watch in turn, or a value.
    pub(super) extras: Option<Box<KeyExtras>>,
}

impl<K> Record<K> {
    /// Returns the value of a key that keeps it here.
    #[inline]
    pub(super) fn value(&self) -> Option<u64> {
        self.extras.as_ref()?.value
    }

    /// True when its value meets watches, or watches that have left, which are still to be taken.
    fn has_met(&self) -> bool {
        match &self.extras {
            Some(extras) => extras.value.is_some_and(|value| extras.reaches(value)),
            None => false,
        }
    }

    /// True if it is a key's. Runs the key's `Eq`.
    #[inline]
    fn is_of<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> bool {
        self.hash == hash && key.equivalent(&self.key)
    }

    /// True when watches in turn are among its watches.
    #[inline]
    pub(super) fn has_in_turn(&self) -> bool {
        match &self.extras {
            Some(extras) => extras.in_turn.head != NONE,
            None => false,
        }
    }

    #[inline]
    fn extras_mut(&mut self, distant: &mut Distant) -> &mut KeyExtras {
        // The spare one keeps its memory, so a key that comes and goes does not allocate each time.
        self.extras
            .get_or_insert_with(|| distant.take_spare().unwrap_or_default())
    }
}

/// The list of a key to which a watch is being added.
pub(super) enum ListEnd<'a> {
    Plain(&'a mut Ends),
    /// Not met, or a member's.
    Watermarks(&'a mut KeyExtras, Watermark),
}

impl ListEnd<'_> {
    /// Returns the link of the watch.
    #[inline(always)]
    pub(super) fn link(&self, record: u32) -> Link {
        match self {
            ListEnd::Plain(plain) => Link {
                prev: plain.tail,
                ..Link::new(WatchList::Plain, record)
            },
            // The queue is no linked list: the link only says where the watch is.
            ListEnd::Watermarks(extras, watermark) if extras.is_met_member(*watermark) => {
                Link::new(WatchList::MemberMet, record)
            }
            ListEnd::Watermarks(..) => Link::new(WatchList::Unmet, record),
        }
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

/// The first key of each `hash % NEAR` is near: as many as a page has slots.
pub(super) const NEAR: usize = 16;

/// The records of a shard's keys.
type Records<K> = Pages<RecordSlot<K>, NEAR>;

#[derive(Debug)]
pub(super) struct Keys<K> {
    records: Records<K>,
    distant: Distant,
}

/// The parts that most keys do not touch, made when the first key does.
#[derive(Debug, Default)]
struct Distant(Option<Box<DistantKeys>>);

#[derive(Debug, Default)]
struct DistantKeys {
    /// The numbers of the records that are not near.
    table: HashTable<u32>,
    /// The extras of the last record that had any, emptied, kept for the next one.
    spare: Option<Box<KeyExtras>>,
    /// The number of records with a value and no waiters.
    unwaited: usize,
}

impl Distant {
    #[inline]
    fn made(&mut self) -> &mut DistantKeys {
        self.0.get_or_insert_default()
    }

    fn take_spare(&mut self) -> Option<Box<KeyExtras>> {
        self.0.as_mut()?.spare.take()
    }

    fn unwaited(&self) -> usize {
        self.0.as_ref().map_or(0, |made| made.unwaited)
    }

    /// Returns true for a record that stays without waiters, since it has a value. It is counted,
    /// and its queue is cleared.
    #[inline]
    fn keep_value<K>(&mut self, record: &mut Record<K>) -> bool {
        match &mut record.extras {
            Some(extras) if extras.value.is_some() => {
                // Nothing but its value stays: what its queue holds has left.
                extras.clear();
                record.quiet_since = None;
                self.made().unwaited += 1;
                true
            }
            _ => false,
        }
    }
}

impl DistantKeys {
    /// Keeps the extras of a record that is gone, for the next key.
    #[inline(never)]
    fn spare(&mut self, mut extras: Box<KeyExtras>) {
        // Its queue may hold watches that have left.
        extras.clear();
        extras.value = None;
        extras.epoch = 0;
        self.spare = Some(extras);
    }

    #[inline(never)]
    fn remove<K>(&mut self, records: &Records<K>, hash: u64, number: u32) {
        // 1. The table's entry. Numbers are compared, no keys: this runs no user code.
        let table = &mut self.table;
        if let Ok(entry) = table.find_entry(hash, |&other| other == number) {
            entry.remove();
        }
        // 2. A peak is given back. The hashes are in the records.
        if let Some(capacity) = shrinks_to(table.capacity(), table.len(), KEPT_KEYS) {
            table.shrink_to(capacity, |&number| hash_of(records, number));
        }
    }
}

impl<K: Eq> Keys<K> {
    pub(super) fn new() -> Self {
        Keys {
            records: Records::default(),
            distant: Distant::default(),
        }
    }

    /// Returns the number of a key's record. Runs the key's `Eq`.
    #[inline(always)]
    pub(super) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        let (number, _) = self.find_record(key, hash)?;
        Some(number)
    }

    /// Returns a key's record with its number. Runs the key's `Eq`.
    #[inline(always)]
    pub(super) fn find_record<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> Option<(u32, &Record<K>)> {
        self.find_where(hash, |record| record.is_of(key, hash))
    }

    /// Returns the number of a record of this hash whose value meets watches.
    pub(super) fn find_met(&self, hash: u64) -> Option<u32> {
        let has_met = |record: &Record<K>| record.hash == hash && record.has_met();
        let (number, _) = self.find_where(hash, has_met)?;
        Some(number)
    }

    /// Returns a record of this hash for which `is` is true, with its number.
    #[inline(always)]
    fn find_where(&self, hash: u64, is: impl Fn(&Record<K>) -> bool) -> Option<(u32, &Record<K>)> {
        // 1. The place that the hash names.
        let near = near(hash);
        if let Some(RecordSlot(Some(record))) = self.records.get(near) {
            if is(record) {
                return Some((near, record));
            }
        }
        // 2. The table, which few shards have.
        let number = match &self.distant.0 {
            Some(distant) if !distant.table.is_empty() => {
                self.find_distant(&distant.table, hash, is)?
            }
            _ => return None,
        };
        Some((number, self.at(number)))
    }

    #[inline(never)]
    fn find_distant(
        &self,
        table: &HashTable<u32>,
        hash: u64,
        is: impl Fn(&Record<K>) -> bool,
    ) -> Option<u32> {
        table.find(hash, |&number| is(self.at(number))).copied()
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
        linked_mut(&mut self.records, number)
    }

    /// Returns the extras of a key, to be added to or taken from.
    pub(super) fn extras_mut(&mut self, number: u32) -> &mut KeyExtras {
        let Keys { records, distant } = self;
        linked_mut(records, number).extras_mut(distant)
    }

    /// Adds a record for a key that has none. Returns its number.
    #[inline(always)]
    pub(super) fn add(&mut self, key: K, hash: u64) -> u32 {
        let record = Record {
            key,
            hash,
            waiters: 0,
            quiet_since: None,
            plain: Ends::EMPTY,
            extras: None,
        };
        // The near place, if it is free.
        let near = near(hash);
        if let Some(slot) = self.records.claim_near(near) {
            slot.0 = Some(record);
            return near;
        }
        self.add_distant(record)
    }

    /// Adds a record at any other place, which the table then finds.
    #[inline(never)]
    fn add_distant(&mut self, record: Record<K>) -> u32 {
        let Keys { records, distant } = self;
        let hash = record.hash;
        let number = records.claim().expect("fewer keys than slots");
        records.at_mut(number).0 = Some(record);
        distant
            .made()
            .table
            .insert_unique(hash, number, |&number| hash_of(records, number));
        number
    }

    /// Adds the only watch of a key, which lies in the entry at `index`.
    #[inline]
    pub(super) fn watch_alone(&mut self, number: u32, index: u32) {
        let record = self.at_mut(number);
        record.waiters = 1;
        record.plain = Ends {
            head: index,
            tail: index,
        };
    }

    /// Counts one waiter less. With the last one the record goes, unless it has a value, and the
    /// key is returned.
    #[inline]
    pub(super) fn remove_waiter(&mut self, number: u32) -> Option<K> {
        self.remove_waiters(number, 1)
    }

    /// Counts this many waiters less, as [`remove_waiter`](Self::remove_waiter) does for one.
    #[inline]
    pub(super) fn remove_waiters(&mut self, number: u32, count: u32) -> Option<K> {
        self.remove_from(number, |record| record.waiters -= count)
    }

    /// Takes waiters off a record: `take_off` lowers their number. With the last one the record
    /// goes, unless it has a value, and the key is returned.
    #[inline(always)]
    pub(super) fn remove_from(
        &mut self,
        number: u32,
        take_off: impl FnOnce(&mut Record<K>),
    ) -> Option<K> {
        let Keys { records, distant } = self;
        let mut removed = None;
        // The record is looked up once.
        records.release_if(number, |slot| {
            let Some(record) = &mut slot.0 else {
                return false;
            };
            take_off(record);
            if record.waiters > 0 || distant.keep_value(record) {
                return false;
            }
            removed = slot.0.take();
            true
        });
        self.removed(number, removed?)
    }

    /// Counts one waiter more, and returns the list to which its watch is added.
    #[inline(always)]
    pub(super) fn list_end(&mut self, number: u32, watermark: Option<Watermark>) -> ListEnd<'_> {
        if let Some(watermark) = watermark {
            return ListEnd::Watermarks(self.extras_end(number), watermark);
        }
        let record = self.at_mut(number);
        record.waiters += 1;
        ListEnd::Plain(&mut record.plain)
    }

    /// Counts one waiter more, and returns the extras to whose queue its watch is added.
    #[inline(always)]
    pub(super) fn extras_end(&mut self, number: u32) -> &mut KeyExtras {
        let Keys { records, distant } = self;
        let record = linked_mut(records, number);
        record.waiters += 1;
        let is_first = record.waiters == 1;
        let extras = record.extras_mut(distant);
        if is_first && extras.value.is_some() {
            distant.made().unwaited -= 1;
        }
        extras
    }

    /// Sets a key's value, and wipes its quiet time: that is an event, met or not. Returns its
    /// extras.
    pub(super) fn set_value(&mut self, number: u32, value: u64) -> &mut KeyExtras {
        let Keys { records, distant } = self;
        let record = linked_mut(records, number);
        record.quiet_since = None;
        let is_unwaited = record.waiters == 0;
        let extras = record.extras_mut(distant);
        if extras.value.replace(value).is_none() && is_unwaited {
            distant.made().unwaited += 1;
        }
        extras
    }

    /// Takes the value of a key. Returns it with the key, if that has no waiters and so goes.
    pub(super) fn take_value(&mut self, number: u32) -> (Option<u64>, Option<K>) {
        let Some(extras) = &mut self.at_mut(number).extras else {
            return (None, None);
        };
        let value = extras.value.take();
        extras.epoch = 0;
        if value.is_none() || self.at(number).waiters > 0 {
            return (value, None);
        }
        self.distant.made().unwaited -= 1;
        (value, self.remove(number))
    }

    /// Removes a record. Returns its key.
    fn remove(&mut self, number: u32) -> Option<K> {
        let record = self.records.at_mut(number).0.take()?;
        self.records.release(number);
        self.removed(number, record)
    }

    /// Forgets a record whose slot is free. Returns its key.
    #[inline(always)]
    fn removed(&mut self, number: u32, record: Record<K>) -> Option<K> {
        let Keys { records, distant } = self;
        // Gone: the table's entry is given back, too.
        if number != near(record.hash) {
            distant.made().remove(records, record.hash, number);
        }
        if let Some(extras) = record.extras {
            distant.made().spare(extras);
        }
        Some(record.key)
    }

    /// Returns the number of keys that have waiters.
    pub(super) fn waited_count(&self) -> usize {
        self.records.len() - self.distant.unwaited()
    }

    /// Returns every record with its number, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record<K>)> {
        let next = |&number: &u32| self.records.first_from(number + 1);
        let numbers = iter::successors(self.records.first_from(0), next);
        numbers.map(|number| (number, self.at(number)))
    }

    /// Applies `act` to every record, in no order.
    pub(super) fn each_mut(&mut self, mut act: impl FnMut(&mut Record<K>)) {
        // By number, not by an iterator: `act` has the record to itself.
        let mut next = self.records.first_from(0);
        while let Some(number) = next {
            act(self.at_mut(number));
            next = self.records.first_from(number + 1);
        }
    }

    /// Asserts that every record is found by its key, and has waiters or a value.
    #[cfg(test)]
    pub(super) fn assert_valid(&self) {
        for (number, record) in self.iter() {
            assert_eq!(self.find(&record.key, record.hash), Some(number));
            assert!(record.waiters > 0 || record.value().is_some(), "Gone");
        }
        let unwaited = self.iter().filter(|(_, record)| record.waiters == 0);
        assert_eq!(unwaited.count(), self.distant.unwaited());
        // Each is near or in the table.
        let is_near = |(number, record): &(u32, &Record<K>)| *number == near(record.hash);
        let near_count = self.iter().filter(is_near).count();
        assert_eq!(self.iter().count(), self.records.len());
        let distant = self.distant.0.as_ref();
        let distant_count = distant.map_or(0, |made| made.table.len());
        assert_eq!(near_count + distant_count, self.records.len());
        // The spare extras are empty.
        if let Some(spare) = distant.and_then(|made| made.spare.as_ref()) {
            assert!(spare.assert_valid(|_| true).is_empty() && spare.met.is_empty());
        }
    }

    /// Returns the table's capacity, and how many pages of records have memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let distant = self.distant.0.as_ref();
        let capacity = distant.map_or(0, |made| made.table.capacity());
        (capacity, self.records.pages_with_memory())
    }
}

/// Returns the near place for a key of this hash. The bits used are not those that name its shard.
#[inline]
fn near(hash: u64) -> u32 {
    hash as u32 % NEAR as u32
}

#[inline]
fn linked_mut<K>(records: &mut Records<K>, number: u32) -> &mut Record<K> {
    records
        .at_mut(number)
        .0
        .as_mut()
        .expect("Linked: a link names a record")
}

fn hash_of<K>(records: &Records<K>, number: u32) -> u64 {
    records
        .at(number)
        .0
        .as_ref()
        .map_or(0, |record| record.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_costs_40_bytes_beside_its_slots_tag() {
        assert_eq!(size_of::<RecordSlot<u64>>(), 8 + 8 + 4 + 4 + 8 + 8 + 8);
    }

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
            keys.records.is_empty() && table <= KEPT_KEYS && pages <= 2,
            "{table}, {pages}"
        );
    }

    #[test]
    fn the_first_key_in_each_place_needs_no_table() {
        let mut keys = Keys::new();
        for key in 0..NEAR as u64 {
            keys.add(key, 7 * key);
        }
        assert_eq!(keys.kept().0, 0);
        keys.add(16, 16);
        assert_ne!(keys.kept().0, 0);
    }
}
