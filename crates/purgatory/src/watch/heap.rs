//! The watermark watches of one key that are not met yet: a 4-ary min-heap by threshold, and by the
//! order of parking where thresholds are equal.
//!
//! - **Placed**: whoever moves an item tells where it went, so that a watch knows its position and
//!   leaves from the middle in O(log n), without a search.

use smallvec::SmallVec;

/// A heap with room for more than this shrinks when three quarters of it are empty.
const KEPT: usize = 64;

/// Children of a node: shallow, and side by side in memory.
const ARITY: usize = 4;

/// A watermark watch that is not met yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    threshold: u64,
    /// Counts up with each push.
    order: u64,
    /// The watch's slot.
    pub(super) slot: u32,
    /// Count form: taken when met, instead of moved to the met ones.
    pub(super) counted: bool,
}

impl Item {
    fn before(&self, other: &Item) -> bool {
        (self.threshold, self.order) < (other.threshold, other.order)
    }
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    items: SmallVec<[Item; 1]>,
    pushed: u64,
}

impl Heap {
    /// Adds a watch; `place` is told the position of each slot that moves. O(log n), and O(1) for a
    /// threshold above the others.
    pub(super) fn push(
        &mut self,
        threshold: u64,
        slot: u32,
        counted: bool,
        place: impl FnMut(u32, u32),
    ) {
        self.pushed += 1;
        let item = Item { threshold, order: self.pushed, slot, counted };
        self.items.push(item);
        self.rise(self.items.len() - 1, item, place);
    }

    /// Takes off the lowest watch if its threshold is at most `value`. O(log n).
    pub(super) fn pop_up_to(&mut self, value: u64, place: impl FnMut(u32, u32)) -> Option<Item> {
        let lowest = *self.items.first().filter(|item| item.threshold <= value)?;
        self.remove(0, place);
        Some(lowest)
    }

    /// True when a threshold is at most `value`. O(1).
    pub(super) fn reaches(&self, value: u64) -> bool {
        self.items.first().is_some_and(|item| item.threshold <= value)
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
        if self.items.capacity() > KEPT && self.items.len() < self.items.capacity() / 4 {
            let mut kept = SmallVec::with_capacity(self.items.len() * 2); // a peak is given back
            kept.extend_from_slice(&self.items);
            self.items = kept;
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
        place(item.slot, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The heap, a map that holds what it was told, and what a sorted list says.
    #[derive(Default)]
    struct Checked {
        heap: Heap,
        places: HashMap<u32, u32>,
        live: Vec<(u64, u64, u32)>,
        pushed: u64,
    }

    impl Checked {
        fn push(&mut self, threshold: u64, slot: u32) {
            self.pushed += 1;
            self.live.push((threshold, self.pushed, slot));
            let places = &mut self.places;
            self.heap.push(threshold, slot, false, |slot, at| _ = places.insert(slot, at));
        }

        fn remove(&mut self, nth: usize) {
            let (.., slot) = self.live.swap_remove(nth);
            let at = self.places.remove(&slot).unwrap();
            let places = &mut self.places;
            self.heap.remove(at, |slot, at| _ = places.insert(slot, at));
        }

        fn pop_all_up_to(&mut self, value: u64) {
            self.live.sort_unstable();
            while self.live.first().is_some_and(|&(threshold, ..)| threshold <= value) {
                assert!(self.heap.reaches(value));
                let (.., expected) = self.live.remove(0);
                let places = &mut self.places;
                let popped = self.heap.pop_up_to(value, |slot, at| _ = places.insert(slot, at));
                assert_eq!(popped.map(|item| item.slot), Some(expected));
                self.places.remove(&expected);
            }
            assert!(!self.heap.reaches(value) && self.heap.pop_up_to(value, |_, _| ()).is_none());
        }

        fn assert_placed(&self) {
            assert_eq!(self.heap.items.len(), self.live.len());
            for (at, item) in self.heap.items.iter().enumerate() {
                assert_eq!(self.places[&item.slot] as usize, at, "Placed");
            }
        }
    }

    #[test]
    fn any_order_of_pushes_removals_and_pops_agrees_with_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut checked = Checked::default();
        for slot in 0..3_000 {
            match random.u8(..10) {
                0..6 => checked.push(random.u64(..50), slot),
                6..9 if !checked.live.is_empty() => {
                    let nth = random.usize(..checked.live.len());
                    checked.remove(nth);
                }
                _ => {
                    let value = random.u64(..10);
                    checked.pop_all_up_to(value);
                }
            }
            checked.assert_placed();
        }
        checked.pop_all_up_to(u64::MAX);
        assert!(checked.heap.items.is_empty());
    }

    #[test]
    fn a_peak_is_given_back() {
        let mut checked = Checked::default();
        (0..10_000).for_each(|slot| checked.push(u64::from(slot) / 3, slot));
        checked.pop_all_up_to(u64::MAX);
        assert!(checked.heap.items.capacity() <= KEPT);
    }
}
