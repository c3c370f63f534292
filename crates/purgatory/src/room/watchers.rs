//! The watches of one room: for each key that hashes to it, the operations parked under it.
//!
//! A *watch* has a *link*, by which it leaves without hashing or comparing a key. Of an operation's
//! first key the link lies in its entry; for each further key the operation has a *slot* in the
//! room of that key, with a link and the operation's name. A link is in one of these places of its
//! key's record ([`keys`](super::keys)): on the list of the *plain* watches, in the order they were
//! parked; among the watermark watches that are not met
//! ([`watermark_queue`](super::watermark_queue)); on the list of the *met* ones that wait for their
//! check to come true; or nowhere, once it was taken.
//!
//! - **Linked**: each slot in use, and each entry's link that was not taken, is in exactly one
//!   place of one record.
//! - **Place**: a walk's `next` and `last` name links of its list; a watch that leaves moves them
//!   along before its link is gone.

use timer_core::{
    TimerHandle, TimingWheel,
    driver::{PageSlot, Pages},
};

use super::{
    entry::Entry,
    keys::Keys,
    links::{Ends, Link, NONE, SLOT, Ticket, WAITERS_MAX, WatchList, Watermark},
};

/// The watch of an operation under a key that is not its first.
#[derive(Debug)]
struct Further {
    id: Option<TimerHandle>,
    link: Link,
}

impl PageSlot for Further {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        Further { id: None, link: Link::NOWHERE }
    }
}

/// A walk that did not get to the end of its list in one go.
#[derive(Debug)]
struct Walk {
    number: u64,
    next: u32,
    last: u32,
}

/// The walks under way in a room, which seldom has any.
#[derive(Debug, Default)]
struct Walks {
    under_way: Vec<Walk>,
    begun: u64,
}

#[derive(Debug)]
pub(crate) struct Lists<K> {
    pub(super) keys: Keys<K>,
    rest: Box<Rest>,
}

/// What an operation with one key does not touch.
#[derive(Debug)]
struct Rest {
    slots: Pages<Further>,
    walks: Option<Box<Walks>>,
}

/// The entries that links lie in, and the number of their room.
#[derive(Debug)]
pub(crate) struct Entries<O> {
    pub(crate) wheel: TimingWheel<Entry<O>>,
    pub(crate) room: u32,
}

impl<O> Entries<O> {
    pub(crate) fn id(&self, index: u32) -> TimerHandle {
        TimerHandle::new(self.room as usize, self.wheel.id_at(index))
    }
}

/// A key to be watched: what the key's own code had to say, so that the rest cannot panic.
#[derive(Debug)]
pub(crate) enum Known<K> {
    Record(u32),
    New(K),
}

/// A waiter that a walk found: an operation whose first key is in this room, by its entry's index,
/// or another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Here(u32),
    Foreign(TimerHandle),
}

impl Waiter {
    pub(crate) fn id<O>(self, entries: &Entries<O>) -> TimerHandle {
        match self {
            Waiter::Here(index) => entries.id(index),
            Waiter::Foreign(id) => id,
        }
    }
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkOn {
    /// The list's end was reached.
    Done,
    /// There is more: call `walk_on` with this number, or `end_walk`.
    Walk(u64),
}

/// What taking met watermark watches came to.
#[derive(Debug)]
pub(crate) struct Popped<K> {
    /// None at or below the value is left.
    pub(crate) all: bool,
    /// The key, if nobody waits for it any more.
    pub(crate) left: Option<K>,
}

/// Both kinds of links.
struct Links<'a, O> {
    wheel: &'a mut TimingWheel<Entry<O>>,
    slots: &'a mut Pages<Further>,
}

impl<O> Links<'_, O> {
    #[inline]
    fn at_mut(&mut self, at: u32) -> &mut Link {
        match at & SLOT {
            0 => self.wheel.at_mut(at).link_mut(),
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
        *self.at_mut(at) = Link { prev, ..Link::new(place, record) };
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
}

impl<K: Eq + Clone> Lists<K> {
    pub(crate) fn new() -> Self {
        Lists { keys: Keys::new(), rest: Box::new(Rest { slots: Pages::new(), walks: None }) }
    }

    /// Looks a key up, to be watched. Runs the key's `Eq`, and `Clone` when the key is new.
    #[inline]
    pub(crate) fn known(&self, key: &K, hash: u64) -> Known<K> {
        match self.keys.find(key, hash) {
            Some(record) => Known::Record(record),
            None => Known::New(key.clone()),
        }
    }

    /// Watches a further key of an operation; returns its slot, or `None` when 2^30 are in use. As
    /// [`watch`](Self::watch).
    pub(crate) fn watch_further<O>(
        &mut self,
        entries: &mut Entries<O>,
        id: TimerHandle,
        known: Known<K>,
        hash: u64,
        watermark: Option<Watermark>,
    ) -> Option<u32> {
        let slot = self.rest.slots.claim()?;
        self.rest.slots.at_mut(slot).id = Some(id);
        self.watch(entries, slot | SLOT, known, hash, watermark);
        Some(slot)
    }

    /// Links a watch: for the events of its key, or for a level. `at` is the index of its
    /// operation's entry, or a slot with [`SLOT`]. O(1), but O(log watermark watches of the key)
    /// for a level below another.
    #[inline]
    pub(crate) fn watch<O>(
        &mut self,
        entries: &mut Entries<O>,
        at: u32,
        known: Known<K>,
        hash: u64,
        watermark: Option<Watermark>,
    ) {
        let Lists { keys, rest } = self;
        let mut links = Links { wheel: &mut entries.wheel, slots: &mut rest.slots };
        let record = match known {
            Known::Record(record) => record,
            Known::New(key) => keys.add(key, hash),
        };
        let of = keys.at_mut(record);
        of.waiters += 1;
        match watermark {
            None => links.append(&mut of.plain, at, WatchList::Plain, record),
            Some(Watermark { threshold, counted }) => {
                let watermarks = keys.watermarks_mut(record);
                let placed = |at, position| links.at_mut(at).prev = position;
                let unmet = watermarks.push(threshold, at, counted, placed);
                links.at_mut(at).of = Link::new(WatchList::Unmet(unmet), record).of;
            }
        }
    }

    /// Takes the watch of an operation's first key away, unless it was taken; returns the key when
    /// that was its last. O(1); O(log watermark watches of the key) for an unmet level.
    #[inline]
    pub(crate) fn unwatch_first<O>(&mut self, entries: &mut Entries<O>, index: u32) -> Option<K> {
        let link = std::mem::replace(entries.wheel.at_mut(index).link_mut(), Link::NOWHERE);
        self.unwatch(entries, index, link)
    }

    /// The same for an operation that has left its entry.
    #[inline]
    pub(crate) fn unwatch<O>(
        &mut self,
        entries: &mut Entries<O>,
        index: u32,
        link: Link,
    ) -> Option<K> {
        if link.of == NONE {
            return None;
        }
        self.unlink(entries, index, link);
        self.keys.remove_waiter(link.record())
    }

    /// Takes the watch in a slot away, if it is `id`'s and was not taken before. As
    /// [`unwatch_first`](Self::unwatch_first).
    #[inline]
    pub(crate) fn unwatch_further<O>(
        &mut self,
        entries: &mut Entries<O>,
        slot: u32,
        id: TimerHandle,
    ) -> Option<K> {
        let link = self.further(slot, id)?.link;
        self.unlink(entries, slot | SLOT, link);
        self.free(slot);
        self.keys.remove_waiter(link.record())
    }

    /// Reads what the first watches of these operations have beside them, before they leave: cache
    /// lines that another thread wrote then come together, not one after the other.
    pub(crate) fn read_ahead<O>(
        &self,
        entries: &Entries<O>,
        leaving: impl Iterator<Item = TimerHandle>,
    ) {
        let leaving = leaving.filter_map(|id| entries.wheel.get(id.id()));
        self.read_beside(entries, leaving.map(Entry::link));
    }

    /// The same of further watches.
    pub(crate) fn read_ahead_further<O>(
        &self,
        entries: &Entries<O>,
        leaving: &[(Ticket, TimerHandle)],
    ) {
        let leaving = leaving.iter().filter_map(|(ticket, id)| self.further(ticket.slot, *id));
        self.read_beside(entries, leaving.map(|further| &further.link));
    }

    fn read_beside<'a, O: 'a>(&self, entries: &Entries<O>, links: impl Iterator<Item = &'a Link>) {
        let listed = |link: &&Link| link.of != NONE && !matches!(link.place(), WatchList::Unmet(_));
        let read = |at| if at == NONE { 0 } else { self.link_at(entries, at).of };
        let beside =
            |link: &Link| read(link.prev) | read(link.next) | self.keys.at(link.record()).waiters;
        std::hint::black_box(links.filter(listed).fold(0, |seen, link| seen | beside(link)));
    }

    fn link_at<'a, O>(&'a self, entries: &'a Entries<O>, at: u32) -> &'a Link {
        match at & SLOT {
            0 => entries.wheel.at(at).link(),
            _ => &self.rest.slots.at(at & !SLOT).link,
        }
    }

    /// The watch in a slot, if it is `id`'s and was not taken.
    #[inline]
    fn further(&self, slot: u32, id: TimerHandle) -> Option<&Further> {
        self.rest.slots.get(slot).filter(|further| further.id == Some(id))
    }

    /// Takes a link out of its place.
    #[inline]
    fn unlink<O>(&mut self, entries: &mut Entries<O>, at: u32, link: Link) {
        let (record, place) = (link.record(), link.place());
        if self.rest.walks.is_some() {
            self.move_walks(at, link.prev, link.next);
        }
        let Lists { keys, rest } = self;
        let mut links = Links { wheel: &mut entries.wheel, slots: &mut rest.slots };
        match place {
            WatchList::Plain => links.unlink(&mut keys.at_mut(record).plain, link.prev, link.next),
            WatchList::Met => {
                links.unlink(&mut keys.watermarks_mut(record).met, link.prev, link.next)
            }
            WatchList::Unmet(unmet) => {
                let placed = |at, position| links.at_mut(at).prev = position;
                keys.watermarks_mut(record).remove(unmet, link.prev, placed);
            }
        }
    }

    fn free(&mut self, slot: u32) {
        self.rest.slots.at_mut(slot).id = None;
        self.rest.slots.release(slot);
    }

    /// Takes up to `limit` watermark watches with a threshold of at most `value` off the key, in
    /// the order of (threshold, parking): those that count are gone and told to `taken`, the others
    /// moved to the met list. With `all` each is gone and told.
    pub(crate) fn pop_up_to<O>(
        &mut self,
        entries: &mut Entries<O>,
        record: u32,
        value: u64,
        all: bool,
        limit: usize,
        mut taken: impl FnMut(TimerHandle),
    ) -> Popped<K> {
        for _ in 0..limit {
            let Lists { keys, rest } = self;
            let mut links = Links { wheel: &mut entries.wheel, slots: &mut rest.slots };
            let popped = keys.at_mut(record).watermarks.as_mut().and_then(|watermarks| {
                watermarks.pop_up_to(value, |at, position| links.at_mut(at).prev = position)
            });
            let Some(item) = popped else { return Popped { all: true, left: None } };
            if item.counted || all {
                *links.at_mut(item.at) = Link::NOWHERE;
                taken(self.id(entries, item.at));
                if item.at & SLOT != 0 {
                    self.free(item.at & !SLOT);
                }
                let left = self.keys.remove_waiter(record);
                if left.is_some() {
                    return Popped { all: true, left };
                }
            } else {
                let met = &mut keys.watermarks_mut(record).met;
                links.append(met, item.at, WatchList::Met, record);
            }
        }
        let watermarks = self.keys.at(record).watermarks.as_ref();
        Popped { all: !watermarks.is_some_and(|watermarks| watermarks.reaches(value)), left: None }
    }

    /// The operation of a link.
    #[inline]
    fn id<O>(&self, entries: &Entries<O>, at: u32) -> TimerHandle {
        match at & SLOT {
            0 => entries.id(at),
            _ => self.rest.slots.at(at & !SLOT).id.expect("Linked: a slot on a list is in use"),
        }
    }

    /// The operation of the first plain watch of a key.
    #[inline]
    pub(crate) fn first_plain<O>(&self, entries: &Entries<O>, record: u32) -> Option<TimerHandle> {
        let head = self.keys.at(record).plain.head;
        (head != NONE).then(|| self.id(entries, head))
    }

    /// Starts a walk over the plain or the met watches of a key as they are now, with the first
    /// `limit` of them.
    #[inline]
    pub(crate) fn walk<O>(
        &mut self,
        entries: &mut Entries<O>,
        record: u32,
        place: WatchList,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> WalkOn {
        let record = self.keys.at(record);
        let ends = match place {
            WatchList::Plain => record.plain,
            WatchList::Met | WatchList::Unmet(_) => {
                record.watermarks.as_ref().map_or(Ends::EMPTY, |watermarks| watermarks.met)
            }
        };
        let next = self.visit(entries, ends.head, ends.tail, limit, found);
        if next == NONE {
            return WalkOn::Done;
        }
        let walks = self.rest.walks.get_or_insert_default();
        walks.begun += 1;
        walks.under_way.push(Walk { number: walks.begun, next, last: ends.tail });
        WalkOn::Walk(walks.begun)
    }

    /// The next `limit` waiters of a walk.
    pub(crate) fn walk_on<O>(
        &mut self,
        entries: &mut Entries<O>,
        number: u64,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> WalkOn {
        let Some(&mut Walk { next, last, .. }) = self.walk_mut(number) else {
            return WalkOn::Done;
        };
        let went_to = self.visit(entries, next, last, limit, found);
        self.walk_mut(number).into_iter().for_each(|walk| walk.next = went_to);
        if went_to == NONE { WalkOn::Done } else { WalkOn::Walk(number) }
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, number: u64) {
        if let Some(walks) = &mut self.rest.walks {
            walks.under_way.retain(|walk| walk.number != number);
        }
    }

    fn walk_mut(&mut self, number: u64) -> Option<&mut Walk> {
        self.rest.walks.as_mut()?.under_way.iter_mut().find(|walk| walk.number == number)
    }

    /// Visits up to `limit` waiters from a link on, to `last` at most; returns where to go on.
    #[inline(always)]
    fn visit<O>(
        &self,
        entries: &mut Entries<O>,
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
                let next = entries.wheel.at(at).link().next;
                found(entries, Waiter::Here(at));
                next
            } else {
                let further = self.rest.slots.at(at & !SLOT);
                further.id.into_iter().for_each(|id| found(entries, Waiter::Foreign(id)));
                further.link.next
            };
            at = if at == last { NONE } else { next };
        }
        at
    }

    /// Keeps Place as a watch leaves.
    #[cold]
    fn move_walks(&mut self, at: u32, prev: u32, next: u32) {
        let Some(walks) = &mut self.rest.walks else { return };
        for walk in &mut walks.under_way {
            match (walk.next == at, walk.last == at) {
                (true, true) => walk.next = NONE,
                (true, false) => walk.next = next,
                (false, true) => walk.last = prev,
                (false, false) => {}
            }
        }
    }

    /// The key of an operation's first watch, unless that was taken.
    pub(crate) fn first_key<O>(&self, entries: &Entries<O>, index: u32) -> Option<K> {
        let link = entries.wheel.at(index).link();
        (link.of != NONE).then(|| self.keys.at(link.record()).key().clone())
    }

    /// The key of a further watch of an operation, unless that was taken.
    pub(crate) fn further_key(&self, slot: u32, id: TimerHandle) -> Option<K> {
        let further = self.further(slot, id)?;
        Some(self.keys.at(further.link.record()).key().clone())
    }
}

#[cfg(test)]
mod tests {
    use timer_core::WheelSize;

    use super::{
        super::{
            keys::{KEPT_KEYS, NEAR},
            model::reference::{Linked, Waiting},
            watermark_queue::Item,
        },
        *,
    };

    impl<K: Eq + Clone> Lists<K> {
        /// Walks every link; returns what it came by, for each key. O(n log n).
        ///
        /// # Panics
        /// When Linked, Place, Placed or Gone does not hold.
        pub(in crate::room) fn assert_valid<O>(&self, entries: &Entries<O>) -> Vec<(&K, Waiting)> {
            let (mut linked, mut found) = (Vec::new(), Vec::new());
            let mut walks: Vec<_> =
                self.rest.walks.iter().flat_map(|walks| &walks.under_way).collect();
            walks.retain(|walk| walk.next != NONE);
            let waiter = |at| Linked { at, id: self.id(entries, at) };
            for (number, record) in self.keys.assert_valid() {
                let plain = self.linked(entries, number, WatchList::Plain, record.plain);
                let mut waiting = Waiting { plain, ..Waiting::default() };
                if let Some(watermarks) = &record.watermarks {
                    let place = |at| match self.link_at(entries, at) {
                        link if link.record() != number => panic!("Linked"),
                        link => match link.place() {
                            WatchList::Unmet(unmet) => (unmet, link.prev),
                            _ => panic!("Linked"),
                        },
                    };
                    let watermark = |item: &Item| Watermark {
                        threshold: item.threshold,
                        counted: item.counted,
                    };
                    let unmet = watermarks.assert_valid(place);
                    waiting.unmet =
                        unmet.iter().map(|item| (watermark(item), waiter(item.at))).collect();
                    waiting.met = self.linked(entries, number, WatchList::Met, watermarks.met);
                }
                for list in [&waiting.plain, &waiting.met] {
                    let find = |at| list.iter().position(|waiter| waiter.at == at);
                    walks.retain(|walk| match (find(walk.next), find(walk.last)) {
                        (Some(next), Some(last)) => next > last,
                        _ => true,
                    });
                }
                let unmet = waiting.unmet.iter().map(|(_, waiter)| waiter);
                let all = waiting.plain.iter().chain(&waiting.met).chain(unmet);
                linked.extend(all.map(|waiter| waiter.at));
                assert_eq!(record.waiters as usize, waiting.len());
                found.push((record.key(), waiting));
            }
            assert!(walks.is_empty(), "WatchList: {walks:?}");
            linked.sort_unstable();
            let next = |&index: &u32| entries.wheel.first_from(index + 1).map(|id| id.index());
            let first = entries.wheel.first_from(0).map(|id| id.index());
            let firsts = std::iter::successors(first, next)
                .filter(|&index| entries.wheel.at(index).link().of != NONE);
            let next = |&slot: &u32| self.rest.slots.first_from(slot + 1);
            let slots = std::iter::successors(self.rest.slots.first_from(0), next);
            assert!(firsts.chain(slots.map(|slot| slot | SLOT)).eq(linked), "Linked");
            found
        }

        /// How many walks are under way.
        pub(in crate::room) fn walks(&self) -> usize {
            self.rest.walks.as_ref().map_or(0, |walks| walks.under_way.len())
        }

        /// The watches of a list, whose links and ends agree.
        fn linked<O>(
            &self,
            entries: &Entries<O>,
            record: u32,
            place: WatchList,
            ends: Ends,
        ) -> Vec<Linked> {
            let (mut found, mut at, mut before) = (Vec::new(), ends.head, NONE);
            while at != NONE {
                let link = self.link_at(entries, at);
                assert_eq!((link.record(), link.place(), link.prev), (record, place, before));
                assert!(found.len() < 1 << 20, "Linked: in a ring");
                found.push(Linked { at, id: self.id(entries, at) });
                (before, at) = (at, link.next);
            }
            assert_eq!(before, ends.tail);
            found
        }
    }

    /// The lists of a room with its entries. Of the operations that watch, every third has its
    /// first key elsewhere.
    struct Watched {
        lists: Lists<String>,
        entries: Entries<u8>,
        elsewhere: u32,
    }

    /// One watch: of an entry, or in a slot.
    #[derive(Clone, Copy)]
    struct Watch {
        id: TimerHandle,
        slot: Option<u32>,
    }

    impl Watched {
        fn new() -> Self {
            let wheel = TimingWheel::new(WheelSize::default(), 0);
            Watched { lists: Lists::new(), entries: Entries { wheel, room: 3 }, elsewhere: 0 }
        }

        fn watch(&mut self, key: &str, watermark: Option<Watermark>) -> Watch {
            let known = self.lists.known(&key.to_owned(), 7);
            self.elsewhere += 1;
            if self.elsewhere % 3 == 0 {
                let id = TimerHandle::new(5, timer_core::TaskId::from_parts(self.elsewhere, 0));
                let slot = self.lists.watch_further(&mut self.entries, id, known, 7, watermark);
                return Watch { id, slot: Some(slot.unwrap()) };
            }
            let id = self.entries.wheel.insert_unscheduled(Entry::held(0, 0)).unwrap();
            self.lists.watch(&mut self.entries, id.index(), known, 7, watermark);
            Watch { id: TimerHandle::new(3, id), slot: None }
        }

        fn unwatch(&mut self, watch: Watch) -> Option<String> {
            match watch.slot {
                Some(slot) => self.lists.unwatch_further(&mut self.entries, slot, watch.id),
                None => self.lists.unwatch_first(&mut self.entries, watch.id.id().index()),
            }
        }

        fn waiters(&mut self, key: &str) -> Vec<TimerHandle> {
            let mut found = Vec::new();
            let record = self.lists.keys.find(&key.to_owned(), 7).unwrap();
            let push = |entries: &mut _, waiter: super::Waiter| found.push(waiter.id(entries));
            self.lists.walk(&mut self.entries, record, WatchList::Plain, usize::MAX, push);
            found
        }

        fn assert_nothing_left(&self) {
            assert_eq!((self.lists.keys.len(), self.lists.rest.slots.len()), (0, 0));
        }
    }

    #[test]
    fn keys_of_one_hash_are_apart_and_their_peak_goes() {
        let names: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let mut watched = Watched::new();
        let watches: Vec<_> = names.iter().map(|name| watched.watch(name, None)).collect();
        assert_eq!(watched.lists.keys.len(), 300);
        for (name, &watch) in names.iter().zip(&watches) {
            assert_eq!(watched.waiters(name), [watch.id]);
            assert_eq!(watched.waiters(name).len(), 1);
            let key = match watch.slot {
                Some(slot) => watched.lists.further_key(slot, watch.id),
                None => watched.lists.first_key(&watched.entries, watch.id.id().index()),
            };
            assert_eq!(key.as_ref(), Some(name));
            assert_eq!(watched.unwatch(watch).as_ref(), Some(name));
            assert_eq!(watched.lists.keys.find(name, 7), None);
        }
        watched.assert_nothing_left();
        let (table, pages) = watched.lists.keys.kept();
        assert!(table <= KEPT_KEYS && pages == 1);
    }

    #[test]
    fn the_first_key_in_each_place_near_needs_no_table() {
        let mut keys = Keys::new();
        let add = |keys: &mut Keys<u64>, key| {
            let record = keys.add(key, key);
            keys.at_mut(record).waiters = 1;
        };
        (0..NEAR as u64).for_each(|key| add(&mut keys, 7 * key));
        assert_eq!((keys.assert_valid().len(), keys.kept()), (NEAR, (0, 0)));
        add(&mut keys, 16);
        assert_eq!(keys.assert_valid().len(), NEAR + 1);
        assert_ne!(keys.kept(), (0, 0));
    }

    #[test]
    fn a_further_watch_costs_24_bytes() {
        assert_eq!(size_of::<Further>(), 24);
    }
}
