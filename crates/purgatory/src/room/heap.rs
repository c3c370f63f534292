//! A 4-ary min-heap of watermark watches, by threshold, and by the order of parking where
//! thresholds are equal. Its test is that of [`watermarks`](super::watermarks), whose Placed it
//! keeps.

use super::peak;

/// A heap with room for more than this gives a peak back.
const KEPT: usize = 64;

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
        if let Some(capacity) = peak::shrinks_to(self.items.capacity(), self.items.len(), KEPT) {
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
