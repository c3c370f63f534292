//! The watermark watches of one key: those not met yet, by threshold and, where thresholds are
//! equal, by the order of parking; and the ends of the list of those that were met and wait for
//! their check.
//!
//! Offsets rise, so nearly every watch comes with a threshold at or above all others. Such a one
//! goes to the end of a sorted *run*, and a rise of the watermark takes the run's front, both
//! without a search. The others go into a heap.
//!
//! - **Placed**: whatever moves an item tells where it went, so that a watch knows its position and
//!   leaves from the middle. In the run it leaves a gap.

use std::collections::VecDeque;

use super::links::{Ends, NONE, Unmet};

/// A run with room for more than this gives a peak back.
const KEPT: usize = 64;

/// A run with more gaps than this, and more gaps than watches, is packed.
const GAPS_KEPT: usize = 16;

/// The watermark watches of a key.
#[derive(Debug)]
pub(super) struct WatermarkList {
    run: VecDeque<Item>,
    /// The position of the run's front; positions wrap.
    front: u32,
    gaps: usize,
    heap: Heap,
    pushed: u64,
    /// Those met that wait for their check to come true.
    pub(super) met: Ends,
}

impl Default for WatermarkList {
    fn default() -> Self {
        WatermarkList {
            run: VecDeque::new(),
            front: 0,
            gaps: 0,
            heap: Heap::default(),
            pushed: 0,
            met: Ends::EMPTY,
        }
    }
}

impl WatermarkList {
    /// Adds a watch; `placed` is told the position of each slot that moves. O(1) for a threshold at
    /// or above the run's last, otherwise O(log n).
    #[inline]
    pub(super) fn push(
        &mut self,
        threshold: u64,
        slot: u32,
        counted: bool,
        mut placed: impl FnMut(u32, u32),
    ) -> Unmet {
        self.pushed += 1;
        let item = Item { threshold, order: self.pushed, at: slot, counted };
        if self.run.back().is_none_or(|last| last.threshold <= threshold) {
            placed(slot, self.front.wrapping_add(self.run.len() as u32));
            self.run.push_back(item);
            return Unmet::Run;
        }
        self.heap.push(item, placed);
        Unmet::Heap
    }

    /// Takes off the lowest watch if its threshold is at most `value`. O(1) from the run, O(log n)
    /// from the heap.
    #[inline]
    pub(super) fn pop_up_to(&mut self, value: u64, placed: impl FnMut(u32, u32)) -> Option<Item> {
        let lowest = self.lowest().filter(|item| item.threshold <= value)?;
        if self.run.front().is_some_and(|front| front.order == lowest.order) {
            self.run.pop_front();
            self.front = self.front.wrapping_add(1);
            self.skip_gaps();
        } else {
            self.heap.remove(0, placed);
        }
        Some(lowest)
    }

    /// True when a threshold is at most `value`. O(1).
    pub(super) fn reaches(&self, value: u64) -> bool {
        self.lowest().is_some_and(|item| item.threshold <= value)
    }

    #[inline]
    fn lowest(&self) -> Option<Item> {
        match (self.run.front(), self.heap.first()) {
            (Some(front), Some(first)) if first.before(front) => Some(*first),
            (Some(front), _) => Some(*front),
            (None, first) => first.copied(),
        }
    }

    /// Takes off the watch at a position. O(1) amortised in the run, O(log n) in the heap.
    pub(super) fn remove(&mut self, at: Unmet, position: u32, placed: impl FnMut(u32, u32)) {
        match at {
            Unmet::Heap => self.heap.remove(position, placed),
            Unmet::Run => {
                let at = position.wrapping_sub(self.front) as usize;
                debug_assert!(self.run[at].at != NONE, "Placed");
                self.run[at].at = NONE;
                self.gaps += 1;
                self.skip_gaps();
                if self.gaps > GAPS_KEPT && self.gaps > self.run.len() / 2 {
                    self.pack(placed);
                }
            }
        }
    }

    /// Neither end of the run is a gap.
    #[inline]
    fn skip_gaps(&mut self) {
        while self.run.front().is_some_and(|item| item.at == NONE) {
            self.run.pop_front();
            self.front = self.front.wrapping_add(1);
            self.gaps -= 1;
        }
        while self.run.back().is_some_and(|item| item.at == NONE) {
            self.run.pop_back();
            self.gaps -= 1;
        }
        if let Some(capacity) = shrinks_to(self.run.capacity(), self.run.len(), KEPT) {
            self.run.shrink_to(capacity);
        }
    }

    #[cold]
    fn pack(&mut self, mut placed: impl FnMut(u32, u32)) {
        self.run.retain(|item| item.at != NONE);
        self.gaps = 0;
        for (at, item) in self.run.iter().enumerate() {
            placed(item.at, self.front.wrapping_add(at as u32));
        }
    }

    /// Walks all, for tests: each is where `place` has it. Returns them in the order they are met
    /// in.
    #[cfg(test)]
    pub(super) fn assert_valid(&self, place: impl Fn(u32) -> (Unmet, u32)) -> Vec<Item> {
        let WatermarkList { run, front, gaps, heap, .. } = self;
        let (mut items, in_heap) = (Vec::new(), heap.assert_valid());
        for (at, item) in run.iter().enumerate().filter(|(_, item)| item.at != NONE) {
            assert_eq!(place(item.at), (Unmet::Run, front.wrapping_add(at as u32)), "Placed");
            items.push(*item);
        }
        for (at, item) in in_heap.iter().enumerate() {
            assert_eq!(place(item.at), (Unmet::Heap, at as u32), "Placed");
        }
        assert_eq!(items.len() + gaps, run.len());
        assert!([run.front(), run.back()].into_iter().flatten().all(|end| end.at != NONE));
        assert!(run.iter().zip(run.iter().skip(1)).all(|(one, next)| one.before(next)));
        items.extend(in_heap);
        items.sort_by_key(|item| (item.threshold, item.order));
        items
    }

    /// Room for items, for tests.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.run.capacity() + self.heap.kept()
    }
}

/// Children of a node: shallow, and side by side in memory.
const ARITY: usize = 4;

/// A watermark watch that is not met yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) threshold: u64,
    /// Counts up with each push.
    pub(super) order: u64,
    /// The watch's link.
    pub(super) at: u32,
    /// Count form: taken when met, instead of moved to the met ones.
    pub(super) counted: bool,
}

impl Item {
    pub(super) fn before(&self, other: &Item) -> bool {
        (self.threshold, self.order) < (other.threshold, other.order)
    }
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Item>,
}

impl Heap {
    /// Adds a watch; `place` is told the position of each slot that moves. O(log n).
    pub(super) fn push(&mut self, item: Item, place: impl FnMut(u32, u32)) {
        self.items.push(item);
        self.rise(self.items.len() - 1, item, place);
    }

    /// The lowest watch. O(1).
    #[inline]
    pub(super) fn first(&self) -> Option<&Item> {
        self.items.first()
    }

    /// Takes off the watch at a position. O(log n).
    pub(super) fn remove(&mut self, at: u32, place: impl FnMut(u32, u32)) {
        let at = at as usize;
        let Some(last) = self.items.pop() else { return };
        if at < self.items.len() {
            // The last takes the place, and goes up or down from there.
            if at > 0 && last.before(&self.items[(at - 1) / ARITY]) {
                self.rise(at, last, place);
            } else {
                self.sink(at, last, place);
            }
        }
        if let Some(capacity) = shrinks_to(self.items.capacity(), self.items.len(), KEPT) {
            self.items.shrink_to(capacity);
        }
    }

    fn rise(&mut self, mut at: usize, item: Item, mut place: impl FnMut(u32, u32)) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !item.before(&self.items[parent]) {
                break;
            }
            self.put(at, self.items[parent], &mut place);
            at = parent;
        }
        self.put(at, item, &mut place);
    }

    fn sink(&mut self, mut at: usize, item: Item, mut place: impl FnMut(u32, u32)) {
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.items.len());
            let key = |&child: &usize| (self.items[child].threshold, self.items[child].order);
            let Some(least) = children.min_by_key(key) else { break };
            if !self.items[least].before(&item) {
                break;
            }
            self.put(at, self.items[least], &mut place);
            at = least;
        }
        self.put(at, item, &mut place);
    }

    fn put(&mut self, at: usize, item: Item, place: &mut impl FnMut(u32, u32)) {
        self.items[at] = item;
        place(item.at, at as u32);
    }

    /// The items by position, for tests: none is before the one above it.
    #[cfg(test)]
    pub(super) fn assert_valid(&self) -> &[Item] {
        let below = self.items.iter().enumerate().skip(1);
        let above = |at: usize| &self.items[(at - 1) / ARITY];
        below.for_each(|(at, item)| assert!(above(at).before(item)));
        &self.items
    }

    /// Room for items, for tests.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.items.capacity()
    }
}

/// What a collection of some capacity shrinks to when `len` items are left. One for more than
/// `kept` shrinks when more than three quarters of it are empty, and keeps as much again as is in
/// use.
#[inline]
pub(super) fn shrinks_to(capacity: usize, len: usize, kept: usize) -> Option<usize> {
    (capacity > kept && len < capacity / 4).then_some(len * 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The watches, a map that holds what it was told, and what a sorted list says.
    #[derive(Default)]
    struct Checked {
        watermarks: WatermarkList,
        places: HashMap<u32, (Unmet, u32)>,
        live: Vec<(u64, u64, u32)>,
        pushed: u64,
        packed: usize,
    }

    impl Checked {
        fn push(&mut self, threshold: u64, slot: u32) {
            self.pushed += 1;
            self.live.push((threshold, self.pushed, slot));
            let mut moved = Vec::new();
            let to =
                self.watermarks.push(threshold, slot, false, |slot, at| moved.push((slot, at)));
            moved.into_iter().for_each(|(slot, at)| _ = self.places.insert(slot, (to, at)));
        }

        fn remove(&mut self, nth: usize) {
            let (.., slot) = self.live.swap_remove(nth);
            let (of, at) = self.places.remove(&slot).unwrap();
            let (places, mut moved) = (&mut self.places, 0);
            self.watermarks.remove(of, at, |slot, at| {
                moved += 1;
                places.insert(slot, (of, at));
            });
            self.packed += usize::from(of == Unmet::Run && moved > 0);
        }

        fn pop_all_up_to(&mut self, value: u64) {
            self.live.sort_unstable();
            while self.live.first().is_some_and(|&(threshold, ..)| threshold <= value) {
                assert!(self.watermarks.reaches(value));
                let (.., expected) = self.live.remove(0);
                let places = &mut self.places;
                let popped = self
                    .watermarks
                    .pop_up_to(value, |slot, at| _ = places.insert(slot, (Unmet::Heap, at)));
                assert_eq!(popped.map(|item| item.at), Some(expected));
                self.places.remove(&expected);
            }
            let none = self.watermarks.pop_up_to(value, |_, _| ()).is_none();
            assert!(!self.watermarks.reaches(value) && none);
        }

        fn assert_placed(&self) {
            let items = self.watermarks.assert_valid(|slot| self.places[&slot]);
            assert_eq!(items.len(), self.live.len());
        }
    }

    #[test]
    fn any_order_of_steps_agrees_with_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut checked = Checked::default();
        checked.watermarks.front = u32::MAX - 50; // positions wrap
        let (mut in_run, mut in_heap) = (0, 0);
        for slot in 0..6_000 {
            match random.u8(..10) {
                0..6 => {
                    let rising = u64::from(slot) / 10;
                    checked.push(rising + random.u64(..20), slot);
                    match checked.places[&slot].0 {
                        Unmet::Run => in_run += 1,
                        Unmet::Heap => in_heap += 1,
                    }
                }
                6..9 if !checked.live.is_empty() => {
                    let nth = random.usize(..checked.live.len());
                    checked.remove(nth);
                }
                _ => {
                    let value = (u64::from(slot) / 10).saturating_sub(random.u64(..10));
                    checked.pop_all_up_to(value);
                }
            }
            checked.assert_placed();
        }
        assert!(in_run > 500 && in_heap > 500, "{in_run} in the run, {in_heap} in the heap");
        checked.pop_all_up_to(u64::MAX);
        assert_eq!((checked.watermarks.run.len(), checked.watermarks.gaps), (0, 0));
    }

    #[test]
    fn a_run_of_which_most_has_left_is_packed() {
        let mut checked = Checked::default();
        (0..1000).for_each(|slot| checked.push(u64::from(slot), slot));
        let mut random = fastrand::Rng::with_seed(1);
        while checked.live.len() > 10 {
            checked.remove(random.usize(..checked.live.len()));
            checked.assert_placed();
            assert!(checked.watermarks.run.len() <= 2 * checked.live.len() + 2 * GAPS_KEPT + 2);
        }
        assert!((4..20).contains(&checked.packed), "packed {} times", checked.packed);
    }

    #[test]
    fn a_run_is_packed_at_more_gaps_than_watches() {
        for (watches, gaps) in [(20, GAPS_KEPT + 1), (100, 51), (101, 51)] {
            let mut checked = Checked::default();
            (0..watches).for_each(|slot| checked.push(u64::from(slot), slot));
            let mut left = 0;
            while checked.packed == 0 {
                left += 1;
                checked.remove(checked.live.iter().position(|watch| watch.2 == left).unwrap());
            }
            assert_eq!(left as usize, gaps, "of {watches}");
        }
    }

    #[test]
    fn a_peak_is_given_back() {
        for descending in [false, true] {
            let mut checked = Checked::default();
            let threshold = |slot| u64::from(if descending { 10_000 - slot } else { slot }) / 3;
            (0..10_000).for_each(|slot| checked.push(threshold(slot), slot));
            checked.pop_all_up_to(u64::MAX);
            assert!(checked.watermarks.kept() <= 3 * KEPT);
        }
    }

    #[test]
    fn a_peak_is_given_back_in_few_steps() {
        for descending in [false, true] {
            let mut checked = Checked::default();
            let threshold = |slot| u64::from(if descending { 2000 - slot } else { slot });
            (0..2000).for_each(|slot| checked.push(threshold(slot), slot));
            let (mut kept, mut steps) = (checked.watermarks.kept(), 0);
            for value in 0..=2000 {
                checked.pop_all_up_to(value);
                let room = checked.watermarks.kept();
                assert!(room <= 5 * checked.live.len() + 3 * KEPT, "room for {room}");
                steps += usize::from(std::mem::replace(&mut kept, room) != room);
            }
            assert!((3..12).contains(&steps), "{steps} steps");
        }
    }

    #[test]
    fn three_quarters_empty_shrinks_to_twice_the_content() {
        for (capacity, len, to) in [
            (200, 51, None),
            (200, 50, None), // three quarters are empty, not more
            (200, 49, Some(98)),
            (200, 0, Some(0)),
            (101, 0, Some(0)),
            (100, 0, None), // so much is kept
            (0, 0, None),
        ] {
            assert_eq!(shrinks_to(capacity, len, 100), to, "{len} of {capacity}");
        }
    }

    #[test]
    fn a_peak_goes_in_steps_that_halve_it() {
        let (mut capacity, mut steps) = (100_000, 0);
        for len in (0..100_000).rev() {
            if let Some(to) = shrinks_to(capacity, len, 100) {
                assert!((capacity / 2 - 4..=capacity / 2).contains(&to), "{capacity} to {to}");
                (capacity, steps) = (to, steps + 1);
            }
        }
        assert_eq!((capacity <= 100, steps), (true, 10)); // 2^10 is what it went down by
    }
}
