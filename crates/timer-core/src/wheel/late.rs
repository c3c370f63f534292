//! Late placement: a task that is due in a long while goes onto one plain list, and into a bucket only
//! when its time has come near. Most never get there: they are cancelled. So starting and stopping a
//! long timer writes to its node, the end of this list and a few counts, and to no bucket.
//!
//! - **Late position**: `indices[node.position]` is the node, for each node whose place is `LATE`. Every
//!   other item is *stale*: its task was cancelled or moved. There are about as many stale items as
//!   live ones at most, since the list is packed when it is full of them.

use crate::wheel::arena::{Arena, Place};

/// A task is late when it is due in so many ticks or more.
pub(crate) const LATE_TICKS: u64 = 4096;

/// The list is looked through when the first of it is due in so many ticks.
const NEAR_TICKS: u64 = LATE_TICKS / 2;

/// So many stale items are nothing to pack for.
const STALE_KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Late {
    indices: Vec<u32>,
    live_count: usize,
    /// When to look through the list; at or before the first of the live.
    due: u64,
    /// How far the look that is under way has come, and when the next one is due.
    looked: usize,
    next: u64,
}

impl Late {
    pub(crate) fn new() -> Self {
        Late { indices: Vec::new(), live_count: 0, due: u64::MAX, looked: 0, next: u64::MAX }
    }

    /// When to look through the list.
    #[inline]
    pub(crate) fn due(&self) -> Option<u64> {
        (self.live_count > 0).then_some(self.due)
    }

    /// Adds a node that is on no list; returns when to look through the list for it. O(1) amortised.
    #[inline]
    pub(crate) fn add<T>(&mut self, nodes: &mut Arena<T>, index: u32) -> u64 {
        if self.indices.len() >= 2 * self.live_count + STALE_KEPT {
            self.pack(nodes);
        }
        if self.live_count == 0 {
            (self.due, self.looked, self.next) = (u64::MAX, 0, u64::MAX);
        }
        let node = nodes.at_mut(index);
        node.place = Place::LATE;
        node.position = self.indices.len() as u32;
        let due = node.deadline - NEAR_TICKS;
        self.indices.push(index);
        self.live_count += 1;
        self.due = self.due.min(due);
        due
    }

    /// Takes a node off. O(1).
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        nodes.at_mut(index).place = Place::NONE;
        self.live_count -= 1;
    }

    fn is_live<T>(&self, nodes: &Arena<T>, at: usize) -> bool {
        let node = nodes.look(self.indices[at]);
        node.is_some_and(|node| node.place == Place::LATE && node.position as usize == at)
    }

    #[cold]
    fn pack<T>(&mut self, nodes: &mut Arena<T>) {
        let mut kept = 0;
        for at in 0..self.indices.len() {
            if self.is_live(nodes, at) {
                let index = self.indices[at];
                nodes.at_mut(index).position = kept as u32;
                self.indices[kept] = index;
                kept += 1;
            }
        }
        self.indices.truncate(kept);
        self.looked = 0; // a look under way begins anew
        self.next = u64::MAX;
        if self.indices.capacity() > 8 * STALE_KEPT && kept < self.indices.capacity() / 8 {
            self.indices.shrink_to(4 * kept + 2 * STALE_KEPT); // a peak is given back
        }
    }

    /// Looks at up to `budget` items at `now`; returns how many that were, and takes off those that are
    /// not late any more, for `near` to place.
    pub(crate) fn look<T>(
        &mut self,
        nodes: &mut Arena<T>,
        now: u64,
        budget: usize,
        near: &mut Vec<u32>,
    ) -> usize {
        for step in 0..budget {
            if self.looked == self.indices.len() {
                (self.due, self.next, self.looked) = (self.next, u64::MAX, 0);
                return step;
            }
            let (at, index) = (self.looked, self.indices[self.looked]);
            if self.is_live(nodes, at) {
                let deadline = nodes.at(index).deadline;
                if deadline - now >= LATE_TICKS {
                    self.next = self.next.min(deadline - NEAR_TICKS);
                    self.looked += 1;
                    continue;
                }
                self.remove(nodes, index);
                near.push(index);
            }
            let last = self.indices.len() - 1;
            if at != last && self.is_live(nodes, last) {
                nodes.at_mut(self.indices[last]).position = at as u32;
            }
            self.indices.swap_remove(at);
        }
        budget
    }

    /// The live nodes, in no order.
    pub(crate) fn live<T>(&self, nodes: &Arena<T>) -> impl Iterator<Item = u32> {
        let all = 0..self.indices.len();
        all.filter(|&at| self.is_live(nodes, at)).map(|at| self.indices[at])
    }

    /// Checks that the counts agree with the list; returns how many are live.
    pub(crate) fn assert_valid<T>(&self, nodes: &Arena<T>) -> usize {
        assert_eq!(self.live(nodes).count(), self.live_count, "Late position");
        for index in self.live(nodes) {
            assert!(nodes.at(index).deadline - NEAR_TICKS >= self.due.min(self.next));
        }
        self.live_count
    }
}
