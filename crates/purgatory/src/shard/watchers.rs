//! The watches of one shard: for each key that hashes to it, the operations parked under it.
//!
//! A *watch* has a *link*, by which it leaves its list without hashing or comparing a key. The link
//! of an operation's first key lies in its entry. For each other key the operation has a *secondary
//! watch*: a slot in the shard of that key, with a link and the operation's handle. A link is in
//! one of six places:
//!
//! - on the list of its key's *plain* watches, in the order they were parked;
//! - on the list of the key's watches *in turn*, of which only the first is checked;
//! - among the watermark watches that are not met ([`key_extras`](super::key_extras));
//! - on the list of the *met* ones, which wait for their check to come true;
//! - among the *met members*, whose quorum waits for others ([`values`](super::values));
//! - nowhere, once it was taken.
//!
//! Invariants:
//!
//! - **Linked**: each link that was not taken is in exactly one place of one record.
//! - **Place**: a walk's `next` and `last` name links of its list; a watch that leaves moves them
//!   along before its link is gone.

use std::{hint, mem};

use hashbrown::Equivalent;
use timer_core::{TimerHandle, TimingWheel};

use super::{
    ColdParts, Shard, Watch,
    entries::{Entries, Inserted},
    entry::{Entry, ParkOptions, Payload, Waiter},
    key_extras::{Lowest, Unmet, UnmetWaiter, Watermark, WatermarkKind},
    keys::ListEnd,
    links::{
        Ends, Link, NONE, Popped, SLOT, SecondaryId, SecondaryWatch, SecondaryWatches, WAITERS_MAX,
        WalkCursor, WalkId, WatchList,
    },
};

/// The number of entries from which on a shard's links are seldom in cache. Smaller in tests, so
/// that they reach it.
const LARGE: usize = if cfg!(test) { 4 } else { 256 };

/// Links that are read ahead from each end of a list.
const READ_AHEAD: usize = 32;

/// The links of a shard, in entries and in secondary watches.
pub(super) struct Links<'a, O> {
    wheel: &'a mut TimingWheel<Entry<O>>,
    secondary: &'a mut SecondaryWatches,
}

impl<'a, O> Links<'a, O> {
    #[inline]
    pub(super) fn new(entries: &'a mut Entries<O>, cold: &'a mut ColdParts) -> Self {
        Links {
            wheel: &mut entries.wheel,
            secondary: &mut cold.secondary,
        }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: u32) -> &mut Link {
        match at & SLOT {
            0 => &mut self.wheel.at_mut(at).link,
            _ => &mut self.secondary.at_mut(at & !SLOT).link,
        }
    }

    /// Links a watch to the end of a list.
    #[inline]
    pub(super) fn append(&mut self, ends: &mut Ends, at: u32, list: WatchList, record: u32) {
        *self.at_mut(at) = Link {
            prev: ends.tail,
            ..Link::new(list, record)
        };
        self.name_last(ends, at);
    }

    /// Makes a link the tail of a list, which it already has before it.
    #[inline(always)]
    fn name_last(&mut self, ends: &mut Ends, at: u32) {
        match mem::replace(&mut ends.tail, at) {
            NONE => ends.head = at,
            prev => self.at_mut(prev).next = at,
        }
    }

    /// Adds a watch to a list, whose end its link names. `at` is the index of its operation's
    /// entry, or a slot with [`SLOT`]. O(1), but O(log n) for one of n watermark watches with a
    /// threshold below another's.
    #[inline(always)]
    pub(super) fn add(&mut self, end: ListEnd<'_>, handle: TimerHandle, at: u32) {
        match end {
            ListEnd::Plain(plain) => self.name_last(plain, at),
            ListEnd::Watermarks(extras, watermark) => extras.push(watermark, handle, at),
        }
    }

    /// Links the neighbours of a watch that leaves its list to each other.
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

    /// True when a watermark watch of this record still waits. Its entry or slot may be another
    /// operation's by now, so the handle is compared.
    fn waits(&self, unmet: &Unmet, record: u32) -> bool {
        self.is_on(unmet, WatchList::Unmet, record)
    }

    /// True when a watermark watch of this record is still on this list.
    pub(super) fn is_on(&self, unmet: &Unmet, list: WatchList, record: u32) -> bool {
        // The first watch lies in the entry, which is the operation's if the handle finds it.
        let link = if unmet.at & SLOT == 0 {
            match self.wheel.get(unmet.handle.id()) {
                Some(entry) => &entry.link,
                None => return false,
            }
        } else {
            match self.secondary.get(unmet.at & !SLOT) {
                Some(watch) if watch.handle == Some(unmet.handle) => &watch.link,
                _ => return false,
            }
        };
        // It may have been met since, or taken.
        link.is_on(list, record)
    }
}

/// The result of releasing a secondary watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwatched<K> {
    /// The watch of the same operation that was set before.
    pub(crate) before: Option<SecondaryId>,
    /// The key, if no watch of it is left.
    pub(crate) emptied_key: Option<K>,
}

/// The key of a secondary watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecondaryKey<K> {
    /// `None` when the watch was taken.
    pub(crate) key: Option<K>,
    /// The watch of the same operation that was set before.
    pub(crate) before: Option<SecondaryId>,
}

impl<K: Eq + Clone, O> Shard<K, O> {
    /// Returns the record of a key that is about to be watched, in this lock hold. Runs the key's
    /// `Eq`, and `Clone` when the key is new; a panic of theirs changes nothing. Call it while the
    /// operation is still where it is dropped after the unlock.
    #[inline(always)]
    pub(crate) fn record_of(&mut self, watch: &Watch<'_, K>) -> u32 {
        match self.keys.find(watch.key, watch.hash) {
            Some(record) => record,
            None => self.keys.add(watch.key.clone(), watch.hash),
        }
    }

    /// Puts an operation in and watches its first key, which has this record. The shard must not
    /// refuse it.
    ///
    /// An operation with one key comes as [`Payload::Here`], checked. Otherwise its parker holds
    /// the payload ([`Payload::Out`]), and goes on with [`watch`](Self::watch) for the other keys,
    /// [`arrived`](Self::arrived) and [`check_in`](Self::check_in). `follows` is the sequence of
    /// the operation before, when order matters over several shards.
    #[inline(always)]
    pub(crate) fn park_at(
        &mut self,
        record: u32,
        options: &ParkOptions,
        follows: Option<u64>,
        payload: Payload<O>,
        watermark: Option<Watermark>,
    ) -> Inserted {
        self.counts.parked += u64::from(matches!(payload, Payload::Here(_)));
        // The record is at hand while the entry is put in, with its link.
        let end = self.keys.list_end(record, watermark);
        let link = end.link(record);
        let inserted = self.entries.insert(options, follows, payload, link);
        let handle = inserted.handle;
        let mut links = Links::new(&mut self.entries, &mut self.cold);
        links.add(end, handle, handle.id().index());
        inserted
    }

    /// Sets a secondary watch of an operation, `before` being the one set before it. Returns `None`
    /// when the shard has [`WAITERS_MAX`] of them. Costs as [`Links::add`].
    pub(crate) fn watch(
        &mut self,
        watch: &Watch<'_, K>,
        handle: TimerHandle,
        before: Option<SecondaryId>,
    ) -> Option<SecondaryId> {
        if self.cold.secondary.len() >= WAITERS_MAX {
            return None;
        }
        // The key's `Eq` and `Clone` may panic: they run before anything is claimed.
        let record = self.record_of(watch);
        let slot = self.cold.secondary.claim()?;
        let end = self.keys.list_end(record, watch.watermark);
        *self.cold.secondary.at_mut(slot) = SecondaryWatch {
            handle: Some(handle),
            link: end.link(record),
            before,
        };
        Links::new(&mut self.entries, &mut self.cold).add(end, handle, slot | SLOT);
        Some(SecondaryId::new(self.entries.shard.into(), slot))
    }

    /// Takes a watch off its key, unless it was taken. `link` is the one that lay at `at`, which
    /// is gone from there. Returns the key if no watch of it is left. O(1).
    #[inline]
    pub(super) fn unlink(&mut self, at: u32, link: Link) -> Option<K> {
        if link.is_nowhere() {
            return None;
        }
        // 1. Place: walks that stand on it move along.
        if !self.cold.walks.is_empty() {
            self.cold.move_walks(at, link);
        }
        // 2. Off its list. Gone: with its last watch the key goes.
        if link.is_plain() {
            let mut links = Links::new(&mut self.entries, &mut self.cold);
            return self.keys.remove_from(link.record(), |record| {
                links.unlink(&mut record.plain, link.prev, link.next);
                record.waiters -= 1;
            });
        }
        self.unlink_other(link);
        self.keys.remove_waiter(link.record())
    }

    /// Takes a watch off a list that is not the plain one. An unmet one stays in the queue, to be
    /// skipped there.
    #[inline(never)]
    fn unlink_other(&mut self, link: Link) {
        let mut links = Links::new(&mut self.entries, &mut self.cold);
        let record = link.record();
        // Each kind of list has its own way to lose a watch.
        match link.list() {
            WatchList::Plain => unreachable!("it was taken off"),
            WatchList::Met => {
                let met = &mut self.keys.extras_mut(record).met;
                links.unlink(met, link.prev, link.next);
            }
            WatchList::InTurn => {
                let in_turn = &mut self.keys.extras_mut(record).in_turn;
                links.unlink(in_turn, link.prev, link.next);
            }
            WatchList::Unmet => {
                let extras = self.keys.extras_mut(record);
                extras.mark_gone(|unmet| links.waits(unmet, record));
            }
            WatchList::MemberMet => {
                let extras = self.keys.extras_mut(record);
                extras.mark_member_gone(|member| links.is_on(member, WatchList::MemberMet, record));
            }
        }
    }

    /// Releases a secondary watch of an operation that has ended. O(1).
    #[inline(always)] // a call costs 17 instructions
    pub(crate) fn unwatch(&mut self, secondary: SecondaryId) -> Unwatched<K> {
        let slot = secondary.slot();
        // 1. The slot is free from here on. What a queue still has of it finds no handle.
        let watch = self.cold.secondary.at_mut(slot);
        watch.handle = None;
        let before = watch.before;
        let link = mem::replace(&mut watch.link, Link::NOWHERE);
        self.cold.secondary.release(slot);
        // 2. Off its key.
        let emptied_key = self.unlink(slot | SLOT, link);
        Unwatched {
            before,
            emptied_key,
        }
    }

    /// Returns the record of a key that has waiters. Runs the key's `Eq`.
    #[inline]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        self.keys.find(key, hash)
    }

    /// Returns the number of a key's watches.
    pub(crate) fn waiters(&self, record: u32) -> usize {
        self.keys.at(record).waiters as usize
    }

    /// Returns true when plain watches are among a key's watches.
    pub(crate) fn has_plain(&self, record: u32) -> bool {
        self.keys.at(record).plain.head != NONE
    }

    /// Returns true when watermark watches are among a key's watches.
    pub(crate) fn has_watermarks(&self, record: u32) -> bool {
        let extras = &self.keys.at(record).extras;
        extras
            .as_ref()
            .is_some_and(|extras| extras.has_watermarks())
    }

    /// Returns the operations of a key's watermark watches that are not met, to be sorted by the
    /// caller, and perhaps some that have ended. O(n): each is copied.
    pub(crate) fn unmet_waiters(&self, record: u32) -> Vec<UnmetWaiter> {
        match &self.keys.at(record).extras {
            Some(extras) => extras.all().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the operation of a link.
    #[inline]
    fn handle_of(&self, at: u32) -> TimerHandle {
        if at & SLOT == 0 {
            return self.entries.handle_at(at);
        }
        let watch = self.cold.secondary.at(at & !SLOT);
        watch.handle.expect("Linked: a slot on a list is in use")
    }

    /// Returns the operation whose plain watch of a key is the oldest.
    #[inline]
    pub(crate) fn first_waiter(&self, record: u32) -> Option<TimerHandle> {
        match self.keys.at(record).plain.head {
            NONE => None,
            head => Some(self.handle_of(head)),
        }
    }

    /// Returns the index of the entry whose plain watch of a key is the oldest, if that is here.
    #[inline]
    pub(super) fn first_here(&self, record: u32) -> Option<u32> {
        match self.keys.at(record).plain.head {
            head if head & SLOT == 0 => Some(head),
            _ => None,
        }
    }

    /// Clones a key that has waiters, as it was stored. Runs the key's `Eq` and `Clone`.
    pub(crate) fn stored<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<K> {
        let record = self.find(key, hash)?;
        Some(self.keys.at(record).key.clone())
    }

    /// Clones the first key of an operation, unless that watch was taken. Runs the key's `Clone`.
    pub(crate) fn first_key(&self, handle: TimerHandle) -> Option<K> {
        let entry = self.entries.wheel.get(handle.id())?;
        self.key_of(entry.link)
    }

    fn key_of(&self, link: Link) -> Option<K> {
        if link.is_nowhere() {
            return None;
        }
        Some(self.keys.at(link.record()).key.clone())
    }

    /// Clones the key of a secondary watch. Returns `None` when its operation has ended. Runs the
    /// key's `Clone`.
    pub(crate) fn secondary_key(
        &self,
        secondary: SecondaryId,
        handle: TimerHandle,
    ) -> Option<SecondaryKey<K>> {
        let watch = self.cold.secondary.get(secondary.slot())?;
        if watch.handle != Some(handle) {
            return None; // the slot is free, or another operation's by now
        }
        Some(SecondaryKey {
            key: self.key_of(watch.link),
            before: watch.before,
        })
    }

    /// Takes up to `limit` watermark watches that `value` meets off their key, in the order of
    /// (threshold, parking), and calls `taken` with their operations. A checked watch is not taken
    /// but moves to the met list, where it stays until its operation ends.
    ///
    /// O(k log n) for k of n watermark watches of the key.
    pub(crate) fn pop_up_to(
        &mut self,
        record: u32,
        value: u64,
        limit: usize,
        mut taken: impl FnMut(TimerHandle),
    ) -> Popped<K> {
        let mut links = Links::new(&mut self.entries, &mut self.cold);
        for _ in 0..limit {
            // 1. Take the lowest watch off the queue, if it is met.
            let Some(extras) = &mut self.keys.at_mut(record).extras else {
                return Popped::Done;
            };
            let unmet = match extras.pop_up_to(value, |unmet| links.waits(unmet, record)) {
                Lowest::Met(unmet) => unmet,
                Lowest::Gone => continue, // it counts as a step, so that a call is bounded
                Lowest::Above => return Popped::Done,
            };
            // 2. A checked watch moves to the met list, within this lock hold: an advance that
            //    comes next finds it there.
            if unmet.kind == WatermarkKind::Checked {
                links.append(&mut extras.met, unmet.at, WatchList::Met, record);
                continue;
            }
            // 3. Any other leaves its key for good, and with the last one the key goes.
            *links.at_mut(unmet.at) = Link::NOWHERE;
            taken(unmet.handle);
            if let Some(key) = self.keys.remove_waiter(record) {
                return Popped::Emptied(key);
            }
        }
        // 4. The limit is used up: is there more?
        match &self.keys.at(record).extras {
            Some(extras) if extras.reaches(value) => Popped::More,
            _ => Popped::Done,
        }
    }

    /// Starts a walk over one list of a key as it is now, with the first `limit` watches. Returns
    /// the walk's id, to go on with or to end it, unless that was all.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        record: u32,
        list: WatchList,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> Option<WalkId> {
        // 1. The list as it is now.
        let record = self.keys.at(record);
        let ends = match list {
            WatchList::Plain => record.plain,
            _ => match &record.extras {
                Some(extras) if list == WatchList::InTurn => extras.in_turn,
                Some(extras) => extras.met,
                None => Ends::EMPTY,
            },
        };
        // 2. The first waiters. For most keys that is all. A walk for one waiter stops early as a
        //    rule.
        if limit > 1 && self.entries.wheel.len() >= LARGE {
            self.read_ahead(ends);
        }
        let next = self.visit(ends.head, ends.tail, limit, found);
        if next == NONE {
            return None;
        }
        // 3. A cursor for the rest. It ends at the tail of now: watches that come later are not of
        //    this walk.
        self.cold.walks_begun += 1;
        let id = WalkId(self.cold.walks_begun);
        self.cold.walks.push(WalkCursor {
            id,
            next,
            last: ends.tail,
        });
        Some(id)
    }

    /// Reads links of a list from both its ends, so that their cache misses overlap. On its way
    /// along the list a walk would wait for each of them.
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
        // Without a use they would not be read.
        hint::black_box((front, back));
    }

    fn link_at(&self, at: u32) -> &Link {
        match at & SLOT {
            0 => &self.entries.wheel.at(at).link,
            _ => &self.cold.secondary.at(at & !SLOT).link,
        }
    }

    /// Visits the next `limit` waiters of a walk, which ends with the last one. Returns its id
    /// unless it is over.
    pub(crate) fn walk_on(
        &mut self,
        id: WalkId,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> Option<WalkId> {
        // A search: a shard seldom has more than one walk under way.
        let at = self.cold.walks.iter().position(|walk| walk.id == id)?;
        let WalkCursor { next, last, .. } = self.cold.walks[at];
        let next = self.visit(next, last, limit, found);
        if next == NONE {
            self.cold.walks.swap_remove(at);
            return None;
        }
        self.cold.walks[at].next = next;
        Some(id)
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, id: WalkId) {
        self.cold.walks.retain(|walk| walk.id != id);
    }

    /// Visits up to `limit` waiters from a link on, to `last` at most. Returns the link to go on
    /// with, or [`NONE`].
    #[inline(always)]
    fn visit(
        &mut self,
        mut at: u32,
        last: u32,
        limit: usize,
        mut found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> u32 {
        for _ in 0..limit {
            if at == NONE {
                return NONE;
            }
            let next = if at & SLOT == 0 {
                // Read first: `found` has the entries to itself.
                let next = self.entries.wheel.at(at).link.next;
                found(&mut self.entries, Waiter::Here(at));
                next
            } else {
                let watch = self.cold.secondary.at(at & !SLOT);
                if let Some(handle) = watch.handle {
                    found(&mut self.entries, Waiter::Foreign(handle));
                }
                watch.link.next
            };
            at = if at == last { NONE } else { next };
        }
        at
    }
}

impl ColdParts {
    /// Keeps Place as a watch leaves.
    #[cold]
    fn move_walks(&mut self, at: u32, link: Link) {
        for walk in &mut self.walks {
            match (walk.next == at, walk.last == at) {
                (true, true) => walk.next = NONE, // it was all that remained
                (true, false) => walk.next = link.next,
                (false, true) => walk.last = link.prev,
                (false, false) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Watermark,
            model::reference::{Linked, Waiting},
        },
        *,
    };

    impl<K: Eq + Clone, O> Shard<K, O> {
        /// Walks every link, and returns the waiters of each key. O(n log n).
        ///
        /// # Panics
        /// When Linked, Place or Gone does not hold.
        pub(in crate::shard) fn assert_valid(&mut self) -> Vec<(K, Waiting)> {
            self.keys.assert_valid();
            let numbers: Vec<_> = self.keys.iter().map(|(number, _)| number).collect();
            let mut linked = Vec::new();
            let mut found = Vec::new();
            // 1. The waiters of each key, by its lists.
            for number in numbers {
                let waiting = self.waiting(number);
                let unmet = waiting.unmet.iter().map(|(_, waiter)| waiter);
                let listed = [
                    &waiting.plain,
                    &waiting.in_turn,
                    &waiting.met,
                    &waiting.met_members,
                ];
                let all = listed.into_iter().flatten().chain(unmet);
                linked.extend(all.map(|waiter| waiter.at));
                let record = self.keys.at(number);
                assert_eq!(record.waiters as usize, waiting.len());
                found.push((record.key.clone(), waiting));
            }
            // 2. Place, and Linked: what says that it is on a list is on one, once.
            self.assert_walks(&found);
            linked.sort_unstable();
            assert_eq!(self.on_a_list(), linked, "Linked");
            found
        }

        /// The links of all entries and secondary watches that are on a list, in order.
        fn on_a_list(&self) -> Vec<u32> {
            let mut linked = Vec::new();
            let wheel = &self.entries.wheel;
            let mut next = wheel.first_from(0);
            while let Some(id) = next {
                if !wheel.at(id.index()).link.is_nowhere() {
                    linked.push(id.index());
                }
                next = wheel.first_from(id.index() + 1);
            }
            let secondary = &self.cold.secondary;
            let mut next = secondary.first_from(0);
            while let Some(slot) = next {
                if !secondary.at(slot).link.is_nowhere() {
                    linked.push(slot | SLOT);
                }
                next = secondary.first_from(slot + 1);
            }
            linked
        }

        /// Returns how many watermark watches of a key are not met.
        pub(in crate::shard) fn waiting_unmet(&mut self, key: &K, hash: u64) -> usize {
            self.find(key, hash)
                .map_or(0, |number| self.waiting(number).unmet.len())
        }

        /// Returns the waiters of a key.
        fn waiting(&mut self, number: u32) -> Waiting {
            // 1. The three lists.
            let record = self.keys.at(number);
            let plain = record.plain;
            let (met, in_turn) = match &record.extras {
                Some(extras) => (extras.met, extras.in_turn),
                None => (Ends::EMPTY, Ends::EMPTY),
            };
            let plain = self.linked(number, WatchList::Plain, plain);
            let in_turn = self.linked(number, WatchList::InTurn, in_turn);
            let met = self.linked(number, WatchList::Met, met);
            // 2. The queue.
            let mut unmet = Vec::new();
            let links = Links::new(&mut self.entries, &mut self.cold);
            if let Some(extras) = &self.keys.at(number).extras {
                for of in extras.assert_valid(|unmet| links.waits(unmet, number)) {
                    let watermark = Watermark {
                        threshold: of.threshold(),
                        kind: of.kind,
                    };
                    let Unmet { at, handle, .. } = of;
                    unmet.push((watermark, Linked { at, handle }));
                }
            }
            // 3. The met members.
            let mut met_members = Vec::new();
            if let Some(extras) = &self.keys.at(number).extras {
                let is_met_member = |of: &Unmet| links.is_on(of, WatchList::MemberMet, number);
                for Unmet { at, handle, .. } in extras.assert_valid_met_members(is_met_member) {
                    met_members.push(Linked { at, handle });
                }
            }
            Waiting {
                plain,
                in_turn,
                unmet,
                met,
                met_members,
            }
        }

        /// Asserts that each walk is over a part of one list.
        fn assert_walks(&self, found: &[(K, Waiting)]) {
            for walk in self.cold.walks.iter().filter(|walk| walk.next != NONE) {
                let is_on = |list: &Vec<Linked>| {
                    let find = |at| list.iter().position(|waiter| waiter.at == at);
                    find(walk.next).is_some_and(|next| find(walk.last) >= Some(next))
                };
                let mut lists = found
                    .iter()
                    .flat_map(|(_, waiting)| [&waiting.plain, &waiting.in_turn, &waiting.met]);
                assert!(lists.any(is_on), "Place: {walk:?}");
            }
        }

        /// Returns the watches of a list, and asserts that its links and ends agree.
        fn linked(&mut self, record: u32, list: WatchList, ends: Ends) -> Vec<Linked> {
            let mut found = Vec::new();
            let mut at = ends.head;
            let mut before = NONE;
            while at != NONE {
                let link = *Links::new(&mut self.entries, &mut self.cold).at_mut(at);
                assert_eq!(
                    (link.record(), link.list(), link.prev),
                    (record, list, before)
                );
                assert!(found.len() < 1 << 20, "Linked: in a ring");
                found.push(Linked {
                    at,
                    handle: self.handle_of(at),
                });
                before = at;
                at = link.next;
            }
            assert_eq!(before, ends.tail);
            found
        }
    }
}
