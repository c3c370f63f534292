//! The keys of one stripe that have waiters, a *record* each.
//!
//! Most stripes hold one key or none, so the first key's record lies in the stripe itself; further
//! keys go into a hash table made for them.
//!
//! - **Gone**: a record without waiters does not exist, so a key used once leaves nothing behind.

use hashbrown::HashTable;
use timer_core::pages::{Pages, Slot};

use super::{heap::Heap, stripe::WAITERS_MAX};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A table for more keys than this shrinks when three quarters of it are empty.
pub(super) const KEPT_KEYS: usize = 64;

/// The ends of a list of watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends { head: NONE, tail: NONE };
}

/// The watermark watches of a key.
#[derive(Debug)]
pub(super) struct Levels {
    /// Those not met yet.
    pub(super) heap: Heap,
    /// Those met that wait for their check to come true.
    pub(super) met: Ends,
}

/// A key that has waiters.
#[derive(Debug)]
pub(super) struct Record<K> {
    key: K,
    hash: u64,
    pub(super) waiters: u32,
    pub(super) plain: Ends,
    /// Made when the first watermark watch comes.
    pub(super) levels: Option<Box<Levels>>,
}

impl<K> Record<K> {
    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// The watermark watches, to be added to or taken from.
    pub(super) fn levels_mut(&mut self) -> &mut Levels {
        self.levels
            .get_or_insert_with(|| Box::new(Levels { heap: Heap::default(), met: Ends::EMPTY }))
    }
}

/// A slot for a further key's record.
#[derive(Debug)]
struct RecordSlot<K>(Option<Record<K>>);

impl<K> Slot for RecordSlot<K> {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant(_: u32) -> Self {
        RecordSlot(None)
    }

    fn floor(&self) -> u32 {
        0
    }
}

/// The keys beyond the first.
#[derive(Debug)]
struct Further<K> {
    records: Pages<RecordSlot<K>>,
    table: HashTable<u32>,
}

impl<K: Eq> Further<K> {
    fn find(&self, key: &K, hash: u64) -> Option<u32> {
        let is = |record: &Record<K>| record.hash == hash && record.key == *key;
        let found = self.table.find(hash, |&at| self.records.at(at).0.as_ref().is_some_and(is));
        found.map(|at| at + 1)
    }

    fn add(&mut self, record: Record<K>) -> u32 {
        let Further { records, table } = self;
        let at =
            records.claim().expect("as many keys as waiters at most, and a waiter has its slot");
        let hash = record.hash;
        records.at_mut(at).0 = Some(record);
        table.insert_unique(hash, at, |&at| hash_of(records, at));
        at + 1
    }

    fn remove(&mut self, number: u32) -> Option<K> {
        let Further { records, table } = self;
        let at = number - 1;
        let record = records.at_mut(at).0.take()?;
        records.release(at);
        if let Ok(entry) = table.find_entry(record.hash, |&other| other == at) {
            entry.remove();
        }
        if table.capacity() > KEPT_KEYS && table.len() < table.capacity() / 4 {
            table.shrink_to(table.len() * 2, |&at| hash_of(records, at)); // a peak is given back
        }
        Some(record.key)
    }
}

#[derive(Debug)]
pub(super) struct Records<K> {
    first: Option<Record<K>>,
    further: Option<Box<Further<K>>>,
}

impl<K: Eq> Records<K> {
    pub(super) const fn new() -> Self {
        Records { first: None, further: None }
    }

    /// The number of a key's record: 0 for the one in the stripe, above for the table's.
    #[inline]
    pub(super) fn find(&self, key: &K, hash: u64) -> Option<u32> {
        let is = |record: &Record<K>| record.hash == hash && record.key == *key;
        if self.first.as_ref().is_some_and(is) {
            return Some(0);
        }
        self.further.as_ref()?.find(key, hash)
    }

    #[inline]
    pub(super) fn at(&self, number: u32) -> &Record<K> {
        let further = || self.further.as_ref()?.records.at(number - 1).0.as_ref();
        let record = if number == 0 { self.first.as_ref() } else { further() };
        record.expect("Linked: a slot in use names a record")
    }

    #[inline]
    pub(super) fn at_mut(&mut self, number: u32) -> &mut Record<K> {
        let record = match number {
            0 => self.first.as_mut(),
            _ => self.further.as_mut().and_then(|more| more.records.at_mut(number - 1).0.as_mut()),
        };
        record.expect("Linked: a slot in use names a record")
    }

    /// A record for a key that has none.
    #[inline]
    pub(super) fn add(&mut self, key: K, hash: u64) -> u32 {
        let record = Record { key, hash, waiters: 0, plain: Ends::EMPTY, levels: None };
        if self.first.is_none() {
            self.first = Some(record);
            return 0;
        }
        let further = self.further.get_or_insert_with(|| {
            Box::new(Further { records: Pages::new(), table: HashTable::new() })
        });
        further.add(record)
    }

    /// Counts one waiter less; with the last the record goes, and the key is returned.
    #[inline]
    pub(super) fn let_go(&mut self, number: u32) -> Option<K> {
        let record = self.at_mut(number);
        record.waiters -= 1;
        if record.waiters > 0 {
            return None;
        }
        match number {
            0 => self.first.take().map(|record| record.key),
            _ => self.further.as_mut()?.remove(number),
        }
    }

    pub(super) fn len(&self) -> usize {
        let further = self.further.as_ref().map_or(0, |further| further.table.len());
        usize::from(self.first.is_some()) + further
    }

    /// Every record, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record<K>> {
        let further = self.further.iter().flat_map(|further| {
            further.table.iter().filter_map(|&at| further.records.at(at).0.as_ref())
        });
        self.first.iter().chain(further)
    }

    /// Room in the table and pages of records, for tests.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let further = self.further.as_ref();
        further.map_or((0, 0), |more| (more.table.capacity(), more.records.pages_with_memory()))
    }
}

fn hash_of<K>(records: &Pages<RecordSlot<K>>, at: u32) -> u64 {
    records.at(at).0.as_ref().map_or(0, |record| record.hash)
}
