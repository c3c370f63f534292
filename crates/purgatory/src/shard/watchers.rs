//! The watches of one shard: for each key that hashes to it, the operations parked under it.
//!
//! Each *watch* has a *link*, by which it leaves its list without hashing or comparing a key. The
//! link for an operation's first key lies in its entry. For each other key the operation has a
//! *secondary watch*: a slot in the shard of that key, with a link and the operation's handle. A
//! key's record has the list of its links, in the order of parking.
//!
//! Invariants:
//!
//! - **Linked**: the link of each watch is on the list of its key, once, until the operation ends.
//! - **Place**: a walk's `next` and `last` name links of its list. Before a watch leaves the list,
//!   they are moved off its link.

use std::{hint, mem};

use timer_core::{Scheduled, TimerHandle, TimingWheel};

use super::{
    Cold, ColdParts, Shard,
    entry::Entry,
    links::{
        Ends, Link, NONE, SLOT, SecondaryId, SecondaryWatch, WAITERS_MAX, Waited, Waiters,
        WalkCursor, WalkId,
    },
};
use crate::{
    table::Arrival,
    watches::{KeyRef, WatchKey, Watches},
};

/// In a shard with at least this many entries, links are seldom in cache. Smaller in tests, so that
/// they reach it.
const LARGE: usize = if cfg!(test) { 4 } else { 256 };

/// The number of links that are read ahead from each end of a list, and of the entries for which the
/// links before and after are read ahead.
pub(super) const READ_AHEAD: usize = 32;

/// The reason why a secondary watch is found.
const LINKED: &str = "Linked: a secondary watch that is named is there";

/// The links of a shard, in entries and in secondary watches.
pub(super) struct Links<'a, O> {
    wheel: &'a mut TimingWheel<Entry<O>>,
    cold: &'a mut Cold,
}

impl<'a, O> Links<'a, O> {
    #[inline]
    pub(super) fn new(wheel: &'a mut TimingWheel<Entry<O>>, cold: &'a mut Cold) -> Self {
        Links { wheel, cold }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: u32) -> &mut Link {
        match at & SLOT {
            0 => &mut self.wheel.at_mut(at).link,
            _ => {
                let cold = self.cold.as_mut().expect(LINKED);
                &mut cold.secondary.at_mut(at & !SLOT).link
            }
        }
    }

    /// Makes a link the tail of a list. Its `prev` names the old tail already.
    #[inline(always)]
    fn name_last(&mut self, ends: &mut Ends, at: u32) {
        match mem::replace(&mut ends.tail, at) {
            NONE => ends.head = at,
            prev => self.at_mut(prev).next = at,
        }
    }

    /// Links to each other the neighbours of a watch that leaves its list.
    #[inline]
    fn unlink(&mut self, ends: &mut Ends, prev: u32, next: u32) {
        match prev {
            NONE => ends.head = next,
            prev => self.at_mut(prev).next = next,
        }
        match next {
            NONE => ends.tail = prev,
            next => self.at_mut(next).prev = prev,
        }
    }
}

impl<K: WatchKey, O> Shard<K, O> {
    /// Returns the record of a key that is about to be watched, in this lock hold. Runs the key's
    /// `Eq`, and `Clone` when the key is new; if one panics, nothing has changed. Call it while the
    /// operation lies where a panic drops it after the unlock.
    #[inline(always)]
    pub(crate) fn record_of(&mut self, key: &K, hash: u64) -> u32 {
        match self.keys.find(key, hash) {
            Some(record) => record,
            None => self.keys.add(key.clone(), hash, Waited::NEW),
        }
    }

    /// Inserts an operation and watches its first key, which has this record. The shard must not
    /// refuse it.
    ///
    /// An operation with one key comes with its payload, already checked. Otherwise its parker
    /// holds the payload, and goes on with [`watch`](Self::watch) for the other keys,
    /// [`arrived`](Self::arrived) and [`check_in`](Self::check_in). `follows` is the sequence of
    /// the operation before, when the order across shards matters.
    #[inline(always)]
    pub(crate) fn park_at(
        &mut self,
        record: u32,
        arrival: Arrival,
        watches: &Watches<'_, K>,
        follows: Option<u64>,
        payload: Option<O>,
    ) -> Scheduled {
        self.counts.parked += u64::from(payload.is_some());
        // 1. Tell the wheel the present tick, and the order.
        self.wheel.catch_up(arrival.now_tick);
        if let Some(sequence) = follows {
            self.wheel.follow(sequence);
        }
        // 2. Insert the entry, with its link. An entry that is never due is kept out of the
        //    buckets.
        let key = self.keys.at_mut(record);
        key.waiters += 1;
        let link = Link::new(record, key.watches.tail);
        let (scheduled, place) = self.wheel.insert_place(arrival.deadline_tick);
        mem::forget(place.replace(Entry::new(payload, arrival, watches, link))); // it was empty
        let mut links = Links::new(&mut self.wheel, &mut self.cold);
        links.name_last(&mut key.watches, scheduled.id.index());
        scheduled
    }

    /// Sets a secondary watch of an operation; `before` is the one set before it. Returns `None` if
    /// the shard has [`WAITERS_MAX`] of them. O(1).
    pub(crate) fn watch(
        &mut self,
        key: &K,
        hash: u64,
        handle: TimerHandle,
        before: Option<SecondaryId>,
    ) -> Option<SecondaryId> {
        let cold = self.cold.get_or_insert_default();
        if cold.secondary.len() >= WAITERS_MAX {
            return None;
        }
        // The key's `Eq` and `Clone` may panic: they run before anything is claimed.
        let record = self.record_of(key, hash);
        let (slot, secondary) = self.cold.as_mut()?.secondary.claim_slot()?;
        let key = self.keys.at_mut(record);
        key.waiters += 1;
        *secondary = SecondaryWatch {
            handle: Some(handle),
            link: Link::new(record, key.watches.tail),
            before,
        };
        Links::new(&mut self.wheel, &mut self.cold).name_last(&mut key.watches, slot | SLOT);
        Some(SecondaryId::new(self.number.into(), slot))
    }

    /// Takes a watch off its key. `link` lay at `at`, and is gone from there. Returns the key if it
    /// has no watch left. O(1).
    #[inline(always)] // a call costs 22 instructions
    pub(super) fn unlink(&mut self, at: u32, link: Link) -> Option<K> {
        // 1. Place: move along the walks that stand on this link.
        if let Some(cold) = &mut self.cold {
            if !cold.walks.is_empty() {
                cold.move_walks(at, link);
            }
        }
        // 2. Take it off its list. Gone: a key is removed with its last watch.
        let mut links = Links::new(&mut self.wheel, &mut self.cold);
        self.keys.remove_if(link.record(), |key| {
            links.unlink(&mut key.watches, link.prev, link.next);
            key.waiters -= 1;
            key.waiters == 0
        })
    }

    /// Releases a secondary watch of an operation that has ended. Returns the watch that the same
    /// operation set before it, and the key if it has no watch left. O(1).
    #[inline(always)] // a call costs 17 instructions
    pub(crate) fn unwatch(&mut self, secondary: SecondaryId) -> (Option<SecondaryId>, Option<K>) {
        let slot = secondary.slot();
        // 1. Free the slot.
        let secondary = &mut self.cold.as_mut().expect(LINKED).secondary;
        let watch = secondary.at_mut(slot);
        watch.handle = None;
        let SecondaryWatch { before, link, .. } = *watch;
        secondary.release(slot);
        // 2. Take the watch off its key.
        (before, self.unlink(slot | SLOT, link))
    }

    /// Returns the record of a key that has waiters. Runs the key's `Eq`.
    #[inline]
    pub(crate) fn find<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        self.keys.find(key, hash)
    }

    /// Returns the number of a key's watches.
    pub(crate) fn waiters(&self, record: u32) -> usize {
        self.keys.at(record).waiters as usize
    }

    /// Clones the stored key that equals this one, if it has waiters. Runs the key's `Eq` and
    /// `Clone`.
    pub(crate) fn stored<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<K> {
        let record = self.find(key, hash)?;
        Some(self.keys.key(record).clone())
    }

    /// Clones the key of a secondary watch, and returns it with the watch that the same operation
    /// set before; `None` if the operation has ended. Runs the key's `Clone`.
    pub(crate) fn secondary_key(
        &self,
        secondary: SecondaryId,
        handle: TimerHandle,
    ) -> Option<(K, Option<SecondaryId>)> {
        let watch = self.cold.as_ref()?.secondary.get(secondary.slot())?;
        if watch.handle != Some(handle) {
            return None; // by now the slot is free, or another operation's
        }
        let key = self.keys.key(watch.link.record());
        Some((key.clone(), watch.before))
    }

    /// Starts a walk over the present watches of a key, and visits the first `limit`. Unless those
    /// were all, returns the walk's id, to continue or end the walk.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        record: u32,
        limit: usize,
        found: &mut Waiters,
    ) -> Option<WalkId> {
        // 1. Take the ends of the list as it is now.
        let ends = self.keys.at(record).watches;
        // 2. Visit the first waiters; most keys have no more. A walk for one waiter mostly stops
        //    early, so it reads nothing ahead.
        if limit > 1 && self.wheel.len() >= LARGE {
            self.read_ahead(ends);
        }
        let next = self.visit(ends.head, ends.tail, limit, found);
        if next == NONE {
            return None;
        }
        // 3. Make a cursor for the rest. It ends at the present tail: later watches are not part of
        //    this walk.
        let cold = self.cold.get_or_insert_default();
        cold.walks_begun += 1;
        let id = WalkId(cold.walks_begun);
        cold.walks.push(WalkCursor {
            id,
            next,
            last: ends.tail,
        });
        Some(id)
    }

    /// Reads links of a list from both ends, so that their cache misses overlap. A walk along the
    /// list would wait for each of them in turn.
    fn read_ahead(&self, ends: Ends) {
        let mut front = ends.head;
        let mut back = ends.tail;
        for _ in 0..READ_AHEAD {
            if front == back {
                break;
            }
            front = self.link_at(front).next;
            if front == back {
                break;
            }
            back = self.link_at(back).prev;
        }
        // Without this use, the compiler would remove the reads.
        hint::black_box((front, back));
    }

    /// Reads the data that the removal of these entries needs besides them, so that its cache
    /// misses overlap: the records of their first keys, and the links before and after. Entries that
    /// are due together are seldom neighbours in memory.
    pub(super) fn read_ahead_around(&self, entries: impl Iterator<Item = u32>) {
        if self.wheel.len() < LARGE {
            return;
        }
        let mut seen = 0;
        for index in entries {
            let link = &self.wheel.at(index).link;
            seen |= self.keys.at(link.record()).waiters;
            for neighbour in [link.prev, link.next] {
                if neighbour != NONE {
                    seen |= self.link_at(neighbour).record();
                }
            }
        }
        // One value combines them all, so that no read waits for another, and none is optimised
        // away.
        hint::black_box(seen);
    }

    /// Returns the handle of the operation whose entry lies at an index.
    pub(crate) fn handle_at(&self, index: u32) -> TimerHandle {
        TimerHandle::new(self.number as usize, self.wheel.id_at(index))
    }

    /// Returns the secondary watch of a link.
    fn secondary(&self, at: u32) -> &SecondaryWatch {
        let cold = self.cold.as_ref().expect(LINKED);
        cold.secondary.at(at & !SLOT)
    }

    fn link_at(&self, at: u32) -> &Link {
        match at & SLOT {
            0 => &self.wheel.at(at).link,
            _ => &self.secondary(at).link,
        }
    }

    /// Visits the next `limit` waiters of a walk. Returns its id unless the walk is over.
    pub(crate) fn walk_on(
        &mut self,
        id: WalkId,
        limit: usize,
        found: &mut Waiters,
    ) -> Option<WalkId> {
        // A linear search: a shard seldom has more than one walk under way.
        let walks = &self.cold.as_ref()?.walks;
        let at = walks.iter().position(|walk| walk.id == id)?;
        let WalkCursor { next, last, .. } = walks[at];
        let next = self.visit(next, last, limit, found);
        if next == NONE {
            self.cold.as_mut()?.walks.swap_remove(at);
            return None;
        }
        self.cold.as_mut()?.walks[at].next = next;
        Some(id)
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, id: WalkId) {
        if let Some(cold) = &mut self.cold {
            cold.walks.retain(|walk| walk.id != id);
        }
    }

    /// Visits up to `limit` waiters, from a link up to `last`. Returns the link from which to go
    /// on, or [`NONE`].
    #[inline(always)]
    fn visit(&self, mut at: u32, last: u32, limit: usize, found: &mut Waiters) -> u32 {
        for _ in 0..limit {
            if at == NONE {
                return NONE;
            }
            let next = if at & SLOT == 0 {
                found.push(self.handle_at(at));
                self.wheel.at(at).link.next
            } else {
                let watch = self.secondary(at);
                if let Some(handle) = watch.handle {
                    found.push(handle);
                }
                watch.link.next
            };
            at = if at == last { NONE } else { next };
        }
        at
    }
}

impl ColdParts {
    /// Keeps Place as a watch leaves its list.
    #[cold]
    fn move_walks(&mut self, at: u32, link: Link) {
        for walk in &mut self.walks {
            match (walk.next == at, walk.last == at) {
                (true, true) => walk.next = NONE, // the rest was this link alone
                (true, false) => walk.next = link.next,
                (false, true) => walk.last = link.prev,
                (false, false) => {}
            }
        }
    }
}

/// Checks of the invariants, for models: see [`Purgatory::assert_valid`].
///
/// [`Purgatory::assert_valid`]: crate::Purgatory::assert_valid
impl<K: WatchKey, O> Shard<K, O> {
    /// Walks every link. O(n log n).
    ///
    /// # Panics
    /// Panics if Linked, Place or Gone does not hold.
    pub(crate) fn assert_valid(&mut self) {
        // 1. Linked, Gone: check the watches of each key.
        self.keys.assert_valid();
        let mut lists = Vec::new();
        for number in self.keys.numbers() {
            let watches = self.assert_list(number);
            assert_eq!(self.waiters(number), watches.len());
            assert!(!watches.is_empty(), "Gone");
            lists.push(watches);
        }
        // 2. Place: each walk is over a part of one list.
        let walks = self.cold.iter().flat_map(|cold| &cold.walks);
        for walk in walks.filter(|walk| walk.next != NONE) {
            let is_on = |list: &Vec<u32>| {
                let find = |at| list.iter().position(|&other| other == at);
                find(walk.next).is_some_and(|next| find(walk.last) >= Some(next))
            };
            assert!(lists.iter().any(is_on), "Place: {walk:?}");
        }
        // 3. Linked: each watch is on a list, once.
        let mut linked: Vec<u32> = lists.into_iter().flatten().collect();
        linked.sort_unstable();
        assert_eq!(self.links(), linked, "Linked");
    }

    /// Returns the numbers of all links, in order.
    fn links(&self) -> Vec<u32> {
        let mut linked = Vec::new();
        let wheel = &self.wheel;
        let mut next = wheel.first_from(0);
        while let Some(id) = next {
            linked.push(id.index());
            next = wheel.first_from(id.index() + 1);
        }
        let Some(cold) = &self.cold else {
            return linked;
        };
        let secondary = &cold.secondary;
        let mut next = secondary.first_from(0);
        while let Some(slot) = next {
            linked.push(slot | SLOT);
            next = secondary.first_from(slot + 1);
        }
        linked
    }

    /// Returns the watches of a key, and asserts that its links and ends agree.
    fn assert_list(&self, record: u32) -> Vec<u32> {
        let ends = self.keys.at(record).watches;
        let mut found = Vec::new();
        let mut at = ends.head;
        let mut before = NONE;
        while at != NONE {
            let link = self.link_at(at);
            assert_eq!((link.record(), link.prev), (record, before), "Linked");
            assert!(found.len() < WAITERS_MAX, "Linked: in a ring");
            found.push(at);
            before = at;
            at = link.next;
        }
        assert_eq!(before, ends.tail, "Linked");
        found
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use timer_core::ManualTimer;

    use super::*;
    use crate::{Purgatory, Timeout, when};

    /// The models rely on this.
    #[test]
    fn assert_valid_notices_a_walk_that_is_on_no_list() {
        let builder = Purgatory::<u32>::builder("test").timer(&ManualTimer::new());
        let waits = builder.shards(1).build().unwrap();
        for _ in 0..3 {
            let parked = waits.try_complete_else_watch(when(|| false, drop), &[1], Timeout::Never);
            parked.unwrap();
        }
        let table = &waits.handle.table;
        let mut shard = table.lock(0);
        let record = shard.find(&1, table.hash(&1_u32)).unwrap();
        shard.walk(record, 1, &mut Waiters::new());
        drop(shard);
        waits.assert_valid();
        table.lock(0).cold.as_mut().unwrap().walks[0].next = 9;
        assert!(catch_unwind(AssertUnwindSafe(|| waits.assert_valid())).is_err());
    }
}
