//! One stripe of the registry: the keys that hash to it ([`records`](super::records)), and for each
//! key those who wait for it. Plain data: the registry holds the lock.
//!
//! A *watch* is a waiter's slot with a stable index, so that it leaves by its slot alone: nothing is
//! hashed or compared. It is in one of three places of its key's record: on the list of the *plain*
//! watches, in the order they were parked; in the [`heap`](super::heap) of the watermark watches that
//! are not met; or on the list of the *met* ones that wait for their check to come true.
//!
//! - **Linked**: each slot in use is in exactly one place of one record.
//! - **Place**: a walk's `next` and `last` name slots of its list; a waiter that leaves moves them
//!   along before its slot is given back.

use timer_core::{
    TimerHandle,
    pages::{Pages, Slot},
};

use super::{
    Level,
    records::{Ends, NONE, Records},
};

/// How many wait in one stripe at most.
pub(crate) const WAITERS_MAX: usize = 1 << 30;

/// A waiter: an operation parked under a key.
#[derive(Debug)]
struct Watch {
    id: Option<TimerHandle>,
    /// The one before on the list, or the position in the heap.
    prev: u32,
    next: u32,
    /// The record's number above, the [`Place`] in the two lowest bits.
    of: u32,
}

/// Where in its record a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Plain,
    Met,
    Heap,
}

impl Watch {
    fn new(id: TimerHandle, place: Place, record: u32) -> Self {
        Watch { id: Some(id), prev: NONE, next: NONE, of: record << 2 | place as u32 }
    }

    fn record(&self) -> u32 {
        self.of >> 2
    }

    fn place(&self) -> Place {
        match self.of & 3 {
            0 => Place::Plain,
            1 => Place::Met,
            _ => Place::Heap,
        }
    }
}

impl Slot for Watch {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant(_: u32) -> Self {
        Watch { id: None, prev: NONE, next: NONE, of: 0 }
    }

    fn floor(&self) -> u32 {
        0
    }
}

/// A walk that did not get to the end of its list in one go.
#[derive(Debug)]
struct Walk {
    number: u64,
    next: u32,
    last: u32,
}

/// The walks under way in a stripe, which seldom has any.
#[derive(Debug, Default)]
struct Walks {
    under_way: Vec<Walk>,
    begun: u64,
}

#[derive(Debug)]
pub(crate) struct Stripe<K> {
    watches: Pages<Watch>,
    records: Records<K>,
    walks: Option<Box<Walks>>,
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
pub(crate) struct Taken<K> {
    /// None at or below the value is left.
    pub(crate) all: bool,
    /// The key, if nobody waits for it any more.
    pub(crate) left: Option<K>,
}

impl<K: Eq + Clone> Stripe<K> {
    pub(crate) fn new() -> Self {
        Stripe { watches: Pages::new(), records: Records::new(), walks: None }
    }

    /// Adds a waiter, for the key's events or for a level; returns its slot, or `None` when 2^30 wait
    /// here. Runs the key's `Eq`, and `Clone` when the key is new; a panic in them changes nothing.
    /// O(1); O(log watermark watches of the key) for a level.
    #[inline]
    pub(crate) fn watch(
        &mut self,
        key: &K,
        hash: u64,
        id: TimerHandle,
        level: Option<Level>,
    ) -> Option<u32> {
        let found = self.records.find(key, hash);
        let new_key = found.is_none().then(|| key.clone());
        let slot = self.watches.claim()?;
        let record = match (found, new_key) {
            (Some(record), _) => record,
            (None, Some(key)) => self.records.add(key, hash),
            (None, None) => unreachable!("a key not found was cloned"),
        };
        let Stripe { watches, records, .. } = self;
        let of = records.at_mut(record);
        of.waiters += 1;
        match level {
            None => {
                *watches.at_mut(slot) = Watch::new(id, Place::Plain, record);
                append(watches, &mut of.plain, slot);
            }
            Some(Level { threshold, counted }) => {
                *watches.at_mut(slot) = Watch::new(id, Place::Heap, record);
                let heap = &mut of.levels_mut().heap;
                heap.push(threshold, slot, counted, |slot, at| watches.at_mut(slot).prev = at);
            }
        }
        Some(slot)
    }

    /// Takes a waiter away, if it is `id` and was not taken before; returns the key when that was its
    /// last. O(1); O(log watermark watches of the key) for an unmet level.
    #[inline]
    pub(crate) fn unwatch(&mut self, slot: u32, id: TimerHandle) -> Option<K> {
        let watch = self.watches.get(slot).filter(|watch| watch.id == Some(id))?;
        let (prev, next, record, place) = (watch.prev, watch.next, watch.record(), watch.place());
        if place != Place::Heap {
            self.move_walks(slot, prev, next);
        }
        let Stripe { watches, records, .. } = self;
        let of = records.at_mut(record);
        match place {
            Place::Plain => unlink(watches, &mut of.plain, prev, next),
            Place::Met => unlink(watches, &mut of.levels_mut().met, prev, next),
            Place::Heap => {
                let heap = &mut of.levels_mut().heap;
                heap.remove(prev, |slot, at| watches.at_mut(slot).prev = at);
            }
        }
        self.release(slot, record)
    }

    /// Takes up to `limit` watermark watches with a threshold of at most `value` out of the key's heap,
    /// in the order of (threshold, parking): those that count are gone and told to `taken`, the others
    /// moved to the met list. With `all` each is gone and told.
    pub(crate) fn take_up_to(
        &mut self,
        record: u32,
        value: u64,
        all: bool,
        limit: usize,
        mut taken: impl FnMut(TimerHandle),
    ) -> Taken<K> {
        for _ in 0..limit {
            let Stripe { watches, records, .. } = self;
            let popped = records.at_mut(record).levels.as_mut().and_then(|levels| {
                levels.heap.pop_up_to(value, |slot, at| watches.at_mut(slot).prev = at)
            });
            let Some(item) = popped else { return Taken { all: true, left: None } };
            let watch = self.watches.at_mut(item.slot);
            if item.counted || all {
                watch.id.into_iter().for_each(&mut taken);
                let left = self.release(item.slot, record);
                if left.is_some() {
                    return Taken { all: true, left };
                }
            } else if let Some(id) = watch.id {
                *watch = Watch::new(id, Place::Met, record);
                let Stripe { watches, records, .. } = self;
                append(watches, &mut records.at_mut(record).levels_mut().met, item.slot);
            }
        }
        let levels = self.records.at(record).levels.as_ref();
        Taken { all: !levels.is_some_and(|levels| levels.heap.reaches(value)), left: None }
    }

    /// The record of a key that has waiters.
    pub(crate) fn find(&self, key: &K, hash: u64) -> Option<u32> {
        self.records.find(key, hash)
    }

    /// Gives the slot of a watch that is nowhere any more back; returns the key when that was its last.
    #[inline]
    fn release(&mut self, slot: u32, record: u32) -> Option<K> {
        self.watches.at_mut(slot).id = None;
        self.watches.release(slot);
        self.records.let_go(record)
    }

    /// Starts a walk over the plain or the met watches of a key as they are now, with the first
    /// `limit` of them.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        record: u32,
        place: Place,
        limit: usize,
        found: impl FnMut(TimerHandle),
    ) -> WalkOn {
        let record = self.records.at(record);
        let ends = match place {
            Place::Plain => record.plain,
            Place::Met | Place::Heap => {
                record.levels.as_ref().map_or(Ends::EMPTY, |levels| levels.met)
            }
        };
        let next = self.visit(ends.head, ends.tail, limit, found);
        if next == NONE {
            return WalkOn::Done;
        }
        let walks = self.walks.get_or_insert_default();
        walks.begun += 1;
        walks.under_way.push(Walk { number: walks.begun, next, last: ends.tail });
        WalkOn::Walk(walks.begun)
    }

    /// The next `limit` waiters of a walk.
    pub(crate) fn walk_on(
        &mut self,
        number: u64,
        limit: usize,
        found: impl FnMut(TimerHandle),
    ) -> WalkOn {
        let Some(&mut Walk { next, last, .. }) = self.walk_mut(number) else {
            return WalkOn::Done;
        };
        let went_to = self.visit(next, last, limit, found);
        self.walk_mut(number).into_iter().for_each(|walk| walk.next = went_to);
        if went_to == NONE { WalkOn::Done } else { WalkOn::Walk(number) }
    }

    /// Forgets a walk.
    pub(crate) fn end_walk(&mut self, number: u64) {
        if let Some(walks) = &mut self.walks {
            walks.under_way.retain(|walk| walk.number != number);
        }
    }

    fn walk_mut(&mut self, number: u64) -> Option<&mut Walk> {
        self.walks.as_mut()?.under_way.iter_mut().find(|walk| walk.number == number)
    }

    /// Visits up to `limit` waiters from `slot` on, to `last` at most; returns where to go on.
    #[inline]
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
        let Some(walks) = &mut self.walks else { return };
        for walk in &mut walks.under_way {
            match (walk.next == slot, walk.last == slot) {
                (true, true) => walk.next = NONE,
                (true, false) => walk.next = next,
                (false, true) => walk.last = prev,
                (false, false) => {}
            }
        }
    }

    /// Keys in this stripe.
    pub(crate) fn keys(&self) -> usize {
        self.records.len()
    }

    /// Each key with how many wait for it.
    pub(crate) fn waiters_by_key(&self) -> impl Iterator<Item = (&K, usize)> {
        self.records.iter().map(|record| (record.key(), record.waiters as usize))
    }

    /// How many wait for a key.
    pub(crate) fn waiters(&self, key: &K, hash: u64) -> usize {
        let record = self.records.find(key, hash).map(|record| self.records.at(record));
        record.map_or(0, |record| record.waiters as usize)
    }

    /// The key that a waiter waits for.
    pub(crate) fn key_of(&self, slot: u32, id: TimerHandle) -> Option<K> {
        let watch = self.watches.get(slot).filter(|watch| watch.id == Some(id))?;
        Some(self.records.at(watch.record()).key().clone())
    }
}

/// Links a new watch to the end of a list.
fn append(watches: &mut Pages<Watch>, ends: &mut Ends, slot: u32) {
    let tail = std::mem::replace(&mut ends.tail, slot);
    if tail == NONE {
        ends.head = slot;
    } else {
        watches.at_mut(tail).next = slot;
        watches.at_mut(slot).prev = tail;
    }
}

/// Links those beside a watch that leaves its list.
fn unlink(watches: &mut Pages<Watch>, ends: &mut Ends, prev: u32, next: u32) {
    match prev {
        NONE => ends.head = next,
        prev => watches.at_mut(prev).next = next,
    }
    match next {
        NONE => ends.tail = prev,
        next => watches.at_mut(next).prev = prev,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::records::KEPT_KEYS, *};
    use timer_core::{ManualTimer, Timer};

    /// Distinct ids; what they name does not matter here.
    fn ids(count: usize) -> Vec<TimerHandle> {
        let timer = ManualTimer::new();
        let day = std::time::Duration::from_secs(86_400);
        (0..count).map(|_| timer.schedule(day, || ()).unwrap()).collect()
    }

    fn waiters(stripe: &mut Stripe<&str>, key: &'static str) -> Vec<TimerHandle> {
        let mut found = Vec::new();
        let record = stripe.find(&key, 7).unwrap();
        stripe.walk(record, Place::Plain, usize::MAX, |id| found.push(id));
        found
    }

    #[test]
    fn waiters_keep_the_order_they_were_parked_in_whoever_leaves() {
        let ids = ids(6);
        let mut stripe = Stripe::new();
        let slots: Vec<_> =
            ids.iter().map(|&id| stripe.watch(&"k", 7, id, None).unwrap()).collect();
        for leaves in [2, 0, 5] {
            assert_eq!(stripe.unwatch(slots[leaves], ids[leaves]), None);
        }
        let late = stripe.watch(&"k", 7, ids[0], None).unwrap();
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
        let watch = |(name, &id): (&String, _)| stripe.watch(name, 7, id, None).unwrap();
        let slots: Vec<_> = names.iter().zip(&ids).map(watch).collect();
        assert_eq!((stripe.keys(), stripe.watches.len()), (300, 300));
        for (name, (&slot, &id)) in names.iter().zip(slots.iter().zip(&ids)) {
            let mut found = Vec::new();
            let record = stripe.find(name, 7).unwrap();
            stripe.walk(record, Place::Plain, 10, |id| found.push(id));
            assert_eq!((found, stripe.waiters(name, 7)), (vec![id], 1));
            assert_eq!(stripe.key_of(slot, id).as_ref(), Some(name));
            assert_eq!(stripe.unwatch(slot, id).as_ref(), Some(name));
            assert_eq!((stripe.find(name, 7), stripe.key_of(slot, id)), (None, None));
        }
        assert_eq!((stripe.keys(), stripe.watches.len()), (0, 0));
        let (table, pages) = stripe.records.kept();
        assert!(table <= KEPT_KEYS && pages == 1);
    }

    /// Walks in steps of two while those at `leave` go after the first step.
    fn walk_while_leaving(leave: &[usize], join: bool) -> Vec<usize> {
        let ids = ids(8);
        let mut stripe = Stripe::new();
        let slots: Vec<_> =
            ids[..7].iter().map(|&id| stripe.watch(&"k", 7, id, None).unwrap()).collect();
        let mut found = Vec::new();
        let record = stripe.find(&"k", 7).unwrap();
        let mut on = stripe.walk(record, Place::Plain, 2, |id| found.push(id));
        for &at in leave {
            stripe.unwatch(slots[at], ids[at]);
        }
        if join {
            stripe.watch(&"k", 7, ids[7], None);
        }
        while let WalkOn::Walk(number) = on {
            on = stripe.walk_on(number, 2, |id| found.push(id));
            if on == WalkOn::Done {
                stripe.end_walk(number);
            }
        }
        assert!(stripe.walks.is_none_or(|walks| walks.under_way.is_empty()));
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

    /// Takes what is met, `limit` at a time; returns what counted, and the met list.
    fn met(stripe: &mut Stripe<&str>, value: u64, limit: usize) -> [Vec<TimerHandle>; 2] {
        let (mut taken, mut met) = (Vec::new(), Vec::new());
        let record = stripe.find(&"k", 7).unwrap();
        loop {
            let step = stripe.take_up_to(record, value, false, limit, |id| taken.push(id));
            if step.left.is_some() {
                return [taken, met];
            }
            if step.all {
                stripe.walk(record, Place::Met, usize::MAX, |id| met.push(id));
                return [taken, met];
            }
        }
    }

    #[test]
    fn levels_are_met_in_order_and_those_that_do_not_count_stay_until_they_leave() {
        let ids = ids(9);
        let mut stripe = Stripe::new();
        let thresholds = [50, 10, 30, 10, 20, 40];
        let slots: Vec<_> = (0..6)
            .map(|at| {
                let level = Level { threshold: thresholds[at], counted: at % 2 == 1 };
                stripe.watch(&"k", 7, ids[at], Some(level)).unwrap()
            })
            .collect();
        let plain = stripe.watch(&"k", 7, ids[6], None).unwrap();
        assert_eq!(stripe.waiters(&"k", 7), 7);
        assert_eq!(met(&mut stripe, 9, 1), [vec![], vec![]]);
        assert_eq!(met(&mut stripe, 20, 1), [vec![ids[1], ids[3]], vec![ids[4]]]);
        assert_eq!(met(&mut stripe, 5, 1), [vec![], vec![ids[4]]]); // a lower value takes nothing new
        assert_eq!(met(&mut stripe, 30, 9), [vec![], vec![ids[4], ids[2]]]);
        assert_eq!(stripe.unwatch(slots[4], ids[4]), None); // met
        assert_eq!(stripe.unwatch(slots[0], ids[0]), None); // in the heap
        assert_eq!(stripe.unwatch(slots[1], ids[1]), None); // taken before
        assert_eq!(met(&mut stripe, 99, 9), [vec![ids[5]], vec![ids[2]]]);
        assert_eq!(stripe.unwatch(slots[2], ids[2]), None);
        assert_eq!(waiters(&mut stripe, "k"), [ids[6]]);
        assert_eq!(stripe.unwatch(plain, ids[6]), Some("k"));
        let last = Level { threshold: 1, counted: true };
        stripe.watch(&"k", 7, ids[7], Some(last)).unwrap();
        assert_eq!(met(&mut stripe, 1, 9), [vec![ids[7]], vec![]]);
        assert_eq!((stripe.keys(), stripe.watches.len()), (0, 0));
    }

    #[test]
    fn a_watch_costs_20_bytes() {
        assert_eq!(size_of::<Watch>(), 20);
    }
}
