//! One stripe of the registry: the keys that hash to it, and for each key its waiters in the order
//! they were parked. Plain data: the registry holds the lock.
//!
//! Most stripes hold one key or none, so the first key's record lies in the stripe itself; further
//! keys go into a hash table made for them. Waiters are slots with stable indices, linked in order,
//! so that a waiter leaves in O(1) by its slot alone: nothing is hashed or compared.
//!
//! - **Linked**: each slot in use is on the list of exactly one record.
//! - **Gone**: a record without waiters does not exist, so a key used once leaves nothing behind.
//! - **Place**: a walk's `next` and `last` name slots of its list; a waiter that leaves moves them
//!   along before its slot is given back.

use hashbrown::HashTable;
use timer_core::{
    TimerHandle,
    pages::{Pages, Slot},
};

/// How many wait in one stripe at most.
pub(crate) const WAITERS_MAX: usize = 1 << 31;

/// No slot.
const NONE: u32 = u32::MAX;

/// A waiter: an operation parked under a key.
#[derive(Debug)]
struct Watch {
    id: Option<TimerHandle>,
    prev: u32,
    next: u32,
    record: u32,
}

impl Slot for Watch {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant(_: u32) -> Self {
        Watch { id: None, prev: NONE, next: NONE, record: NONE }
    }

    fn floor(&self) -> u32 {
        0
    }
}

/// A key that has waiters.
#[derive(Debug)]
struct Record<K> {
    key: K,
    hash: u64,
    head: u32,
    tail: u32,
}

/// A walk that did not get to the end of its list in one go.
#[derive(Debug)]
struct Walk {
    number: u64,
    next: u32,
    last: u32,
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

/// What stripes seldom need: further keys, and walks under way.
#[derive(Debug)]
struct More<K> {
    records: Pages<RecordSlot<K>>,
    table: HashTable<u32>,
    walks: Vec<Walk>,
    walk_number: u64,
}

#[derive(Debug)]
pub(crate) struct Stripe<K> {
    watches: Pages<Watch>,
    first: Option<Record<K>>,
    more: Option<Box<More<K>>>,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkOn {
    /// The list's end was reached.
    Done,
    /// There is more: call `walk_on` with this number, or `end_walk`.
    Walk(u64),
}

impl<K: Eq + Clone> Stripe<K> {
    pub(crate) fn new() -> Self {
        Stripe { watches: Pages::new(), first: None, more: None }
    }

    /// Appends a waiter to the key's list; returns its slot, or `None` when 2^31 wait here. Runs
    /// the key's `Eq`, and `Clone` when the key is new; a panic in them changes nothing. O(1).
    pub(crate) fn watch(&mut self, key: &K, hash: u64, id: TimerHandle) -> Option<u32> {
        let found = self.find(key, hash);
        let new_key = found.is_none().then(|| key.clone());
        let slot = self.watches.claim()?;
        let record = match (found, new_key) {
            (Some(record), _) => record,
            (None, Some(key)) => self.add_record(key, hash),
            (None, None) => unreachable!("a key not found was cloned"),
        };
        let tail = std::mem::replace(&mut self.record_mut(record).tail, slot);
        *self.watches.at_mut(slot) = Watch { id: Some(id), prev: tail, next: NONE, record };
        match tail {
            NONE => self.record_mut(record).head = slot,
            tail => self.watches.at_mut(tail).next = slot,
        }
        Some(slot)
    }

    /// Takes a waiter off its list, if it is `id`; returns the key when that was its last. O(1).
    pub(crate) fn unwatch(&mut self, slot: u32, id: TimerHandle) -> Option<K> {
        let watch = self.watches.get_mut(slot).filter(|watch| watch.id == Some(id));
        debug_assert!(watch.is_some(), "a ticket is released once");
        let &mut Watch { prev, next, record, .. } = watch?;
        self.move_walks(slot, prev, next);
        match prev {
            NONE => self.record_mut(record).head = next,
            prev => self.watches.at_mut(prev).next = next,
        }
        match next {
            NONE => self.record_mut(record).tail = prev,
            next => self.watches.at_mut(next).prev = prev,
        }
        self.watches.at_mut(slot).id = None;
        self.watches.release(slot);
        (self.record(record).head == NONE).then(|| self.remove_record(record))
    }

    /// Starts a walk over those who wait for the key now, with its first `limit` waiters.
    pub(crate) fn walk(
        &mut self,
        key: &K,
        hash: u64,
        limit: usize,
        found: impl FnMut(TimerHandle),
    ) -> WalkOn {
        let Some(record) = self.find(key, hash) else { return WalkOn::Done };
        let &Record { head, tail, .. } = self.record(record);
        let next = self.visit(head, tail, limit, found);
        if next == NONE {
            return WalkOn::Done;
        }
        let more = self.more();
        more.walk_number += 1;
        let number = more.walk_number;
        more.walks.push(Walk { number, next, last: tail });
        WalkOn::Walk(number)
    }

    /// The next `limit` waiters of a walk.
    pub(crate) fn walk_on(
        &mut self,
        number: u64,
        limit: usize,
        found: impl FnMut(TimerHandle),
    ) -> WalkOn {
        let Some(at) = self.walk_at(number) else { return WalkOn::Done };
        let Walk { next, last, .. } = self.more().walks[at];
        let next = self.visit(next, last, limit, found);
        self.more().walks[at].next = next;
        if next == NONE { WalkOn::Done } else { WalkOn::Walk(number) }
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, number: u64) {
        if let Some(at) = self.walk_at(number) {
            self.more().walks.swap_remove(at);
        }
    }

    fn walk_at(&self, number: u64) -> Option<usize> {
        self.more.as_ref()?.walks.iter().position(|walk| walk.number == number)
    }

    /// Visits up to `limit` waiters from `slot` on, to `last` at most; returns where to go on.
    fn visit(
        &self,
        mut slot: u32,
        last: u32,
        limit: usize,
        mut found: impl FnMut(TimerHandle),
    ) -> u32 {
        for _ in 0..limit {
            if slot == NONE {
                return NONE;
            }
            let watch = self.watches.at(slot);
            watch.id.into_iter().for_each(&mut found);
            slot = if slot == last { NONE } else { watch.next };
        }
        slot
    }

    /// Keeps Place as the waiter in `slot` leaves.
    fn move_walks(&mut self, slot: u32, prev: u32, next: u32) {
        let Some(more) = &mut self.more else { return };
        for walk in &mut more.walks {
            match (walk.next == slot, walk.last == slot) {
                (true, true) => walk.next = NONE,
                (true, false) => walk.next = next,
                (false, true) => walk.last = prev,
                (false, false) => {}
            }
        }
    }

    fn more(&mut self) -> &mut More<K> {
        self.more.get_or_insert_with(|| {
            Box::new(More {
                records: Pages::new(),
                table: HashTable::new(),
                walks: Vec::new(),
                walk_number: 0,
            })
        })
    }

    /// The number of a key's record: 0 for the one in the stripe, above for the table's.
    fn find(&self, key: &K, hash: u64) -> Option<u32> {
        let is = |record: &Record<K>| record.hash == hash && record.key == *key;
        if self.first.as_ref().is_some_and(is) {
            return Some(0);
        }
        let more = self.more.as_ref()?;
        let found = more.table.find(hash, |&at| more.records.at(at).0.as_ref().is_some_and(is));
        found.map(|at| at + 1)
    }

    fn record(&self, number: u32) -> &Record<K> {
        let more = || self.more.as_ref()?.records.at(number - 1).0.as_ref();
        let record = if number == 0 { self.first.as_ref() } else { more() };
        record.expect("Linked: a slot in use names a record")
    }

    fn record_mut(&mut self, number: u32) -> &mut Record<K> {
        let record = match number {
            0 => self.first.as_mut(),
            _ => self.more.as_mut().and_then(|more| more.records.at_mut(number - 1).0.as_mut()),
        };
        record.expect("Linked: a slot in use names a record")
    }

    fn add_record(&mut self, key: K, hash: u64) -> u32 {
        let record = Record { key, hash, head: NONE, tail: NONE };
        if self.first.is_none() {
            self.first = Some(record);
            return 0;
        }
        let More { records, table, .. } = self.more();
        let at =
            records.claim().expect("as many keys as waiters at most, and a waiter has its slot");
        records.at_mut(at).0 = Some(record);
        table.insert_unique(hash, at, |&at| hash_of(records, at));
        at + 1
    }

    fn remove_record(&mut self, number: u32) -> K {
        if number == 0 {
            return self.first.take().expect("Linked: the record is there").key;
        }
        let More { records, table, .. } = self.more();
        let at = number - 1;
        let record = records.at_mut(at).0.take().expect("Linked: the record is there");
        records.release(at);
        if let Ok(entry) = table.find_entry(record.hash, |&other| other == at) {
            entry.remove();
        }
        if table.capacity() > KEPT_KEYS && table.len() < table.capacity() / 4 {
            table.shrink_to(table.len() * 2, |&at| hash_of(records, at)); // a peak is given back
        }
        record.key
    }

    /// Keys in this stripe.
    pub(crate) fn keys(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |more| more.table.len());
        usize::from(self.first.is_some()) + more
    }
}

/// A table for more keys than this shrinks when three quarters of it are empty.
const KEPT_KEYS: usize = 64;

fn hash_of<K>(records: &Pages<RecordSlot<K>>, at: u32) -> u64 {
    records.at(at).0.as_ref().map_or(0, |record| record.hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use timer_core::{ManualTimer, Timer};

    /// Distinct ids; what they name does not matter here.
    fn ids(count: usize) -> Vec<TimerHandle> {
        let timer = ManualTimer::new();
        let day = std::time::Duration::from_secs(86_400);
        (0..count).map(|_| timer.schedule(day, || ()).unwrap()).collect()
    }

    fn waiters(stripe: &mut Stripe<&str>, key: &'static str) -> Vec<TimerHandle> {
        let mut found = Vec::new();
        stripe.walk(&key, 7, usize::MAX, |id| found.push(id));
        found
    }

    #[test]
    fn waiters_keep_the_order_they_were_parked_in_whoever_leaves() {
        let ids = ids(6);
        let mut stripe = Stripe::new();
        let slots: Vec<_> = ids.iter().map(|&id| stripe.watch(&"k", 7, id).unwrap()).collect();
        for leaves in [2, 0, 5] {
            assert_eq!(stripe.unwatch(slots[leaves], ids[leaves]), None);
        }
        let late = stripe.watch(&"k", 7, ids[0]).unwrap();
        assert_eq!(waiters(&mut stripe, "k"), [ids[1], ids[3], ids[4], ids[0]]);
        for (slot, id) in [(slots[1], ids[1]), (slots[3], ids[3]), (slots[4], ids[4])] {
            assert_eq!(stripe.unwatch(slot, id), None);
        }
        assert_eq!(stripe.unwatch(late, ids[0]), Some("k"));
        assert_eq!((stripe.keys(), stripe.watches.len()), (0, 0));
    }

    #[test]
    fn keys_of_one_hash_are_kept_apart_and_a_left_key_is_gone() {
        let ids = ids(300);
        let names: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let mut stripe = Stripe::new();
        let watch = |(name, &id): (&String, _)| stripe.watch(name, 7, id).unwrap();
        let slots: Vec<_> = names.iter().zip(&ids).map(watch).collect();
        assert_eq!((stripe.keys(), stripe.watches.len()), (300, 300));
        for (name, (&slot, &id)) in names.iter().zip(slots.iter().zip(&ids)) {
            let mut found = Vec::new();
            stripe.walk(name, 7, 10, |id| found.push(id));
            assert_eq!(found, [id]);
            assert_eq!(stripe.unwatch(slot, id).as_ref(), Some(name));
            assert_eq!(stripe.walk(name, 7, 10, |_| panic!("left")), WalkOn::Done);
        }
        assert_eq!((stripe.keys(), stripe.watches.len()), (0, 0));
        let more = stripe.more.unwrap();
        assert!(more.table.capacity() <= KEPT_KEYS && more.records.pages_with_memory() == 1);
    }

    /// Walks in steps of two while those at `leave` go after the first step.
    fn walk_while_leaving(leave: &[usize], join: bool) -> Vec<usize> {
        let ids = ids(8);
        let mut stripe = Stripe::new();
        let slots: Vec<_> = ids[..7].iter().map(|&id| stripe.watch(&"k", 7, id).unwrap()).collect();
        let mut found = Vec::new();
        let mut on = stripe.walk(&"k", 7, 2, |id| found.push(id));
        for &at in leave {
            stripe.unwatch(slots[at], ids[at]);
        }
        if join {
            stripe.watch(&"k", 7, ids[7]);
        }
        while let WalkOn::Walk(number) = on {
            on = stripe.walk_on(number, 2, |id| found.push(id));
            if on == WalkOn::Done {
                stripe.end_walk(number);
            }
        }
        assert!(stripe.more.is_none_or(|more| more.walks.is_empty()));
        found.iter().map(|id| ids.iter().position(|other| other == id).unwrap()).collect()
    }

    #[test]
    fn a_walk_steps_around_those_who_leave_and_stops_before_those_who_join() {
        assert_eq!(walk_while_leaving(&[], true), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(walk_while_leaving(&[2], true), [0, 1, 3, 4, 5, 6]); // the next
        assert_eq!(walk_while_leaving(&[6], true), [0, 1, 2, 3, 4, 5]); // the last
        assert_eq!(walk_while_leaving(&[6, 5, 4, 3], true), [0, 1, 2]);
        assert_eq!(walk_while_leaving(&[2, 3, 4, 5, 6], true), [0, 1]);
        assert_eq!(walk_while_leaving(&[6, 5, 4, 3, 2], true), [0, 1]);
        assert_eq!(walk_while_leaving(&[0, 1, 2, 3, 4, 5, 6], true), [0, 1]);
        assert_eq!(walk_while_leaving(&[0, 1, 2, 3, 4, 5, 6], false), [0, 1]);
    }

    #[test]
    fn a_watch_costs_20_bytes() {
        assert_eq!(size_of::<Watch>(), 20);
    }
}
