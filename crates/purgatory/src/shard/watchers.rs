//! The watches of one shard: for each key that hashes to it, the operations parked under it.
//!
//! A *watch* has a *link*, by which it leaves without hashing or comparing a key. Of an operation's
//! first key the link lies in its entry; for each further key the operation has a *slot* in the
//! shard of that key, with a link and the operation's name. A link is in one of these places of its
//! key's record ([`keys`](super::keys)): on the list of the *plain* watches, in the order they were
//! parked; among the watermark watches that are not met
//! ([`watermark_queue`](super::watermark_queue)); on the list of the *met* ones that wait for their
//! check to come true; or nowhere, once it was taken.
//!
//! - **Linked**: each link that was not taken is in exactly one place of one record.
//! - **Place**: a walk's `next` and `last` name links of its list; a watch that leaves moves them
//!   along before its link is gone.

use timer_core::{TimerHandle, TimingWheel, driver::Pages};

use super::{
    LongWalks, Shard, Watch, Watermark,
    entry::{Entries, Entry, Waiter},
    keys::{Link, Popped, SLOT, SecondaryId, SecondaryWatch, WAITERS_MAX, Walk, WatchList},
    watermark_queue::{Ends, Lowest, NONE, Unmet},
};
use hashbrown::Equivalent;

/// Both kinds of links.
struct Links<'a, O> {
    wheel: &'a mut TimingWheel<Entry<O>>,
    slots: &'a mut Pages<SecondaryWatch>,
}

impl<'a, O> Links<'a, O> {
    #[inline]
    fn of(entries: &'a mut Entries<O>, rest: &'a mut LongWalks) -> Self {
        Links {
            wheel: &mut entries.wheel,
            slots: &mut rest.slots,
        }
    }

    #[inline]
    fn at_mut(&mut self, at: u32) -> &mut Link {
        match at & SLOT {
            0 => &mut self.wheel.at_mut(at).link,
            _ => &mut self.slots.at_mut(at & !SLOT).link,
        }
    }

    /// Links a watch to the end of a list.
    #[inline]
    fn append(&mut self, ends: &mut Ends, at: u32, place: WatchList, record: u32) {
        let prev = std::mem::replace(&mut ends.tail, at);
        match prev {
            NONE => ends.head = at,
            prev => self.at_mut(prev).next = at,
        }
        *self.at_mut(at) = Link {
            prev,
            ..Link::new(place, record)
        };
    }

    /// Links those beside a watch that leaves its list.
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

    /// True when a watermark watch of this record still waits.
    fn waits(&self, unmet: &Unmet, record: u32) -> bool {
        let link = match unmet.at & SLOT {
            0 => self.wheel.get(unmet.id.id()).map(|entry| &entry.link),
            _ => {
                let last_secondary = self.slots.get(unmet.at & !SLOT);
                last_secondary
                    .filter(|of| of.id == Some(unmet.id))
                    .map(|last_secondary| &last_secondary.link)
            }
        };
        link.is_some_and(|link| link.of == Link::new(WatchList::Unmet, record).of)
    }
}

impl<K: Eq + Clone, O> Shard<K, O> {
    /// The record of a key that is about to be watched. Runs the key's `Eq`, and `Clone` when the
    /// key is new; a panic of theirs changes nothing.
    #[inline]
    pub(super) fn record_of(&mut self, watch: &Watch<'_, K>) -> u32 {
        match self.keys.find(watch.key, watch.hash) {
            Some(record) => record,
            None => self.keys.add(watch.key.clone(), watch.hash),
        }
    }

    /// Watches a further key of an operation, `before` the watch set before it; `None` when 2^30
    /// are in use. As [`link`](Self::link).
    pub(crate) fn watch(
        &mut self,
        watch: &Watch<'_, K>,
        id: TimerHandle,
        before: Option<SecondaryId>,
    ) -> Option<SecondaryId> {
        if self.rest.slots.len() >= WAITERS_MAX {
            return None;
        }
        let record = self.record_of(watch);
        let slot = self.rest.slots.claim()?;
        *self.rest.slots.at_mut(slot) = SecondaryWatch {
            id: Some(id),
            link: Link::NOWHERE,
            before,
        };
        self.link(record, watch.watermark, id, slot | SLOT);
        Some(SecondaryId::new(self.entries.shard, slot))
    }

    /// Links a watch: for the events of its key, or for a level. `at` is the index of its
    /// operation's entry, or a slot with [`SLOT`]. O(1), but O(log watermark watches of the key)
    /// for a level below another.
    #[inline]
    pub(super) fn link(
        &mut self,
        record: u32,
        watermark: Option<Watermark>,
        id: TimerHandle,
        at: u32,
    ) {
        let Shard {
            entries,
            keys,
            rest,
            ..
        } = self;
        let mut links = Links::of(entries, rest);
        let of = keys.at_mut(record);
        of.waiters += 1;
        match watermark {
            None => links.append(&mut of.plain, at, WatchList::Plain, record),
            Some(watermark) => {
                *links.at_mut(at) = Link::new(WatchList::Unmet, record);
                keys.watermarks_mut(record).push(watermark, id, at);
            }
        }
    }

    /// Takes a watch away, unless it was taken; returns its key when that was its last. O(1).
    pub(super) fn unlink(&mut self, at: u32) -> Option<K> {
        let Shard {
            entries,
            keys,
            rest,
            ..
        } = self;
        let mut links = Links::of(entries, rest);
        let link = std::mem::replace(links.at_mut(at), Link::NOWHERE);
        if link.of == NONE {
            return None;
        }
        let record = link.record();
        match link.place() {
            WatchList::Plain => links.unlink(&mut keys.at_mut(record).plain, link.prev, link.next),
            WatchList::Met => {
                links.unlink(&mut keys.watermarks_mut(record).met, link.prev, link.next)
            }
            WatchList::Unmet => {
                keys.watermarks_mut(record)
                    .left(|unmet| links.waits(unmet, record));
            }
        }
        if !rest.walks.is_empty() {
            rest.move_walks(at, link);
        }
        keys.remove_waiter(record)
    }

    /// Gives the slot of a further watch back; returns the watch set before it, and the key if
    /// nobody waits for that any more. For an operation that has ended. O(1).
    #[inline]
    pub(crate) fn unwatch(&mut self, secondary: SecondaryId) -> (Option<SecondaryId>, Option<K>) {
        let slot = secondary.slot();
        let left = self.unlink(slot | SLOT);
        let last_secondary = self.rest.slots.at_mut(slot);
        last_secondary.id = None;
        let before = last_secondary.before;
        self.rest.slots.release(slot);
        (before, left)
    }

    /// The record of a key that has waiters. Runs the key's `Eq`.
    #[inline]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        self.keys.find(key, hash)
    }

    /// How many watches a key has.
    pub(crate) fn waiters(&self, record: u32) -> usize {
        self.keys.at(record).waiters as usize
    }

    /// The operation of a link.
    #[inline]
    fn id_of(&self, at: u32) -> TimerHandle {
        match at & SLOT {
            0 => self.entries.id(at),
            _ => self
                .rest
                .slots
                .at(at & !SLOT)
                .id
                .expect("Linked: a slot on a list is in use"),
        }
    }

    /// The operation that has waited for a key longest, plainly.
    #[inline]
    pub(crate) fn first_waiter(&self, record: u32) -> Option<TimerHandle> {
        let head = self.keys.at(record).plain.head;
        (head != NONE).then(|| self.id_of(head))
    }

    /// A key that has waiters, as it was stored. Runs the key's `Eq` and `Clone`.
    pub(crate) fn stored<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<K> {
        self.find(key, hash)
            .map(|record| self.keys.at(record).key.clone())
    }

    /// The first key of an operation, unless that watch was taken. Runs the key's `Clone`.
    pub(crate) fn first_key(&self, id: TimerHandle) -> Option<K> {
        self.key_of(self.entries.wheel.get(id.id())?.link)
    }

    fn key_of(&self, link: Link) -> Option<K> {
        (link.of != NONE).then(|| self.keys.at(link.record()).key.clone())
    }

    /// The key of a further watch, unless it was taken, and the watch set before it; `None` when
    /// the operation has ended. Runs the key's `Clone`.
    pub(crate) fn further_key(
        &self,
        secondary: SecondaryId,
        id: TimerHandle,
    ) -> Option<(Option<K>, Option<SecondaryId>)> {
        let last_secondary = self
            .rest
            .slots
            .get(secondary.slot())
            .filter(|of| of.id == Some(id))?;
        Some((self.key_of(last_secondary.link), last_secondary.before))
    }

    /// Takes up to `limit` watermark watches with a threshold of at most `value` off the key, in
    /// the order of (threshold, parking): those that count are gone and told to `taken`, the others
    /// moved to the met list. With `all` each is gone and told.
    pub(crate) fn pop_up_to(
        &mut self,
        record: u32,
        value: u64,
        all: bool,
        limit: usize,
        mut taken: impl FnMut(TimerHandle),
    ) -> Popped<K> {
        let Shard {
            entries,
            keys,
            rest,
            ..
        } = self;
        let mut links = Links::of(entries, rest);
        for _ in 0..limit {
            let Some(watermarks) = &mut keys.at_mut(record).watermarks else {
                break;
            };
            let Unmet {
                counted, id, at, ..
            } = match watermarks.pop_up_to(value, |unmet| links.waits(unmet, record)) {
                Lowest::Met(unmet) => unmet,
                Lowest::Gone => continue,
                Lowest::Above => break,
            };
            if !counted && !all {
                links.append(&mut watermarks.met, at, WatchList::Met, record);
                continue;
            }
            *links.at_mut(at) = Link::NOWHERE;
            taken(id);
            let left = keys.remove_waiter(record);
            if left.is_some() {
                return Popped { all: true, left };
            }
        }
        let watermarks = keys.at(record).watermarks.as_ref();
        Popped {
            all: !watermarks.is_some_and(|watermarks| watermarks.reaches(value)),
            left: None,
        }
    }

    /// Starts a walk over the plain or the met watches of a key as they are now, with the first
    /// `limit` of them. Returns its number, to go on with or to end it, unless that was all.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        record: u32,
        place: WatchList,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> Option<u64> {
        let record = self.keys.at(record);
        let ends = match place {
            WatchList::Plain => record.plain,
            _ => record.watermarks.as_ref().map_or(Ends::EMPTY, |of| of.met),
        };
        let next = self.visit(ends.head, ends.tail, limit, found);
        if next == NONE {
            return None;
        }
        self.rest.walks_begun += 1;
        let number = self.rest.walks_begun;
        self.rest.walks.push(Walk {
            number,
            next,
            last: ends.tail,
        });
        Some(number)
    }

    /// The next `limit` waiters of a walk, which ends with the last.
    pub(crate) fn walk_on(
        &mut self,
        number: u64,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> Option<u64> {
        let at = self
            .rest
            .walks
            .iter()
            .position(|walk| walk.number == number)?;
        let Walk { next, last, .. } = self.rest.walks[at];
        self.rest.walks[at].next = self.visit(next, last, limit, found);
        if self.rest.walks[at].next == NONE {
            self.rest.walks.swap_remove(at);
            return None;
        }
        Some(number)
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, number: u64) {
        self.rest.walks.retain(|walk| walk.number != number);
    }

    /// Visits up to `limit` waiters from a link on, to `last` at most; returns where to go on.
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
                let next = self.entries.wheel.at(at).link.next;
                found(&mut self.entries, Waiter::Here(at));
                next
            } else {
                let last_secondary = self.rest.slots.at(at & !SLOT);
                last_secondary
                    .id
                    .into_iter()
                    .for_each(|id| found(&mut self.entries, Waiter::Foreign(id)));
                last_secondary.link.next
            };
            at = if at == last { NONE } else { next };
        }
        at
    }
}

impl LongWalks {
    /// Keeps Place as a watch leaves.
    #[cold]
    fn move_walks(&mut self, at: u32, link: Link) {
        for walk in &mut self.walks {
            match (walk.next == at, walk.last == at) {
                (true, true) => walk.next = NONE,
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
        /// Walks every link; returns what it came by, for each key. O(n log n).
        ///
        /// # Panics
        /// When Linked, Place or Gone does not hold.
        pub(in crate::shard) fn assert_valid(&mut self) -> Vec<(K, Waiting)> {
            self.keys.assert_valid();
            let numbers: Vec<_> = self.keys.iter().map(|(number, _)| number).collect();
            let (mut linked, mut found) = (Vec::new(), Vec::new());
            for number in numbers {
                let waiting = self.waiting(number);
                let unmet = waiting.unmet.iter().map(|(_, waiter)| waiter);
                let all = waiting.plain.iter().chain(&waiting.met).chain(unmet);
                linked.extend(all.map(|waiter| waiter.at));
                let record = self.keys.at(number);
                assert_eq!(record.waiters as usize, waiting.len());
                found.push((record.key.clone(), waiting));
            }
            self.assert_walks(&found);
            linked.sort_unstable();
            let next = |&index: &u32| {
                self.entries
                    .wheel
                    .first_from(index + 1)
                    .map(|id| id.index())
            };
            let first = self.entries.wheel.first_from(0).map(|id| id.index());
            let firsts = std::iter::successors(first, next)
                .filter(|&index| self.entries.wheel.at(index).link.of != NONE);
            let slots = &self.rest.slots;
            let next = |&slot: &u32| slots.first_from(slot + 1);
            let last_secondary = std::iter::successors(slots.first_from(0), next)
                .filter(|&slot| slots.at(slot).link.of != NONE);
            assert!(
                firsts
                    .chain(last_secondary.map(|slot| slot | SLOT))
                    .eq(linked),
                "Linked"
            );
            found
        }

        /// How many watermark watches of a key are not met; of one without a record none.
        pub(in crate::shard) fn waiting_unmet(&mut self, key: &K, hash: u64) -> usize {
            self.find(key, hash)
                .map_or(0, |number| self.waiting(number).unmet.len())
        }

        /// What waits for a key.
        fn waiting(&mut self, number: u32) -> Waiting {
            let plain = self.linked(number, WatchList::Plain, self.keys.at(number).plain);
            let met = self
                .keys
                .at(number)
                .watermarks
                .as_ref()
                .map_or(Ends::EMPTY, |of| of.met);
            let met = self.linked(number, WatchList::Met, met);
            let links = Links::of(&mut self.entries, &mut self.rest);
            let watermarks = self.keys.at(number).watermarks.as_ref();
            let unmet = watermarks.map(|of| of.assert_valid(|unmet| links.waits(unmet, number)));
            let unmet = unmet.into_iter().flatten();
            let unmet = unmet.map(|of| {
                let watermark = Watermark {
                    threshold: of.threshold(),
                    counted: of.counted,
                };
                (
                    watermark,
                    Linked {
                        at: of.at,
                        id: of.id,
                    },
                )
            });
            let unmet = unmet.collect();
            Waiting { plain, unmet, met }
        }

        /// Each walk is over a part of one list.
        fn assert_walks(&self, found: &[(K, Waiting)]) {
            for walk in self.rest.walks.iter().filter(|walk| walk.next != NONE) {
                let is_on = |list: &Vec<Linked>| {
                    let find = |at| list.iter().position(|waiter| waiter.at == at);
                    find(walk.next).is_some_and(|next| find(walk.last) >= Some(next))
                };
                let mut lists = found
                    .iter()
                    .flat_map(|(_, waiting)| [&waiting.plain, &waiting.met]);
                assert!(lists.any(is_on), "Place: {walk:?}");
            }
        }

        /// The watches of a list, whose links and ends agree.
        fn linked(&mut self, record: u32, place: WatchList, ends: Ends) -> Vec<Linked> {
            let (mut found, mut at, mut before) = (Vec::new(), ends.head, NONE);
            while at != NONE {
                let link = *Links::of(&mut self.entries, &mut self.rest).at_mut(at);
                assert_eq!(
                    (link.record(), link.place(), link.prev),
                    (record, place, before)
                );
                assert!(found.len() < 1 << 20, "Linked: in a ring");
                found.push(Linked {
                    at,
                    id: self.id_of(at),
                });
                (before, at) = (at, link.next);
            }
            assert_eq!(before, ends.tail);
            found
        }
    }
}
