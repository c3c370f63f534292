//! `TimerTaskList`: the tasks of one bucket, with O(1) add and remove.
//!
//! The list is a vector of node indices, and each node knows its position in it (Kafka's is a
//! doubly linked ring). Removing swaps the last entry into the gap. Walking the vector is what
//! makes handing over a bucket cheap: the next indices are in the cache line already read, where a
//! linked list waits for one node to learn the next.
//!
//! - **Position**: `entries[node.position]` is the node, for each node on a list.

use crate::wheel::arena::{Arena, OnList};

/// The tasks of one bucket, and when the bucket is due.
#[derive(Debug, Default)]
pub(crate) struct TimerTaskList {
    entries: Vec<u32>,
    /// How many entries at the front were taken by [`pop_front`](Self::pop_front).
    taken: usize,
    /// The tick at which the bucket is due: set once in each cycle of its wheel, by the first
    /// task that comes in.
    expiration: u64,
}

/// Above this capacity an emptied list gives its memory back.
const KEPT_CAPACITY: usize = 128;

impl TimerTaskList {
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.entries.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.taken
    }

    pub(crate) fn expiration(&self) -> u64 {
        self.expiration
    }

    /// Sets when the bucket is due.
    pub(crate) fn set_expiration(&mut self, expiration: u64) {
        self.expiration = expiration;
    }

    /// O(1) amortised. The node must be on no list.
    #[inline]
    pub(crate) fn add<T>(&mut self, nodes: &mut Arena<T>, index: u32, on_list: OnList) {
        let node = nodes.at_mut(index);
        node.on_list = on_list;
        node.position = self.entries.len() as u32;
        self.entries.push(index);
    }

    /// O(1). The node must be on this list.
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        let node = nodes.at_mut(index);
        let position = node.position;
        node.on_list = OnList::NONE;
        debug_assert_eq!(self.entries[position as usize], index, "Position");
        self.entries.swap_remove(position as usize);
        if let Some(&moved) = self.entries.get(position as usize) {
            nodes.at_mut(moved).position = position;
        }
        if self.is_empty() {
            self.clear();
        } else if self.entries.capacity() > KEPT_CAPACITY.max(4 * self.entries.len()) {
            self.shrink();
        }
    }

    /// Gives a peak back while some are left.
    #[cold]
    fn shrink(&mut self) {
        self.entries.shrink_to(2 * self.entries.len());
    }

    /// Takes the first entry off the list. O(1).
    pub(crate) fn pop_front<T>(&mut self, nodes: &mut Arena<T>) -> Option<u32> {
        let &index = self.entries.get(self.taken)?;
        nodes.at_mut(index).on_list = OnList::NONE;
        self.taken += 1;
        if self.is_empty() {
            self.clear();
        }
        Some(index)
    }

    /// The earliest deadline on the list. O(n).
    pub(crate) fn earliest_deadline<T>(&self, nodes: &Arena<T>) -> Option<u64> {
        self.entries[self.taken..].iter().map(|&index| nodes.at(index).deadline).min()
    }

    /// The earliest deadline among up to `budget` entries below the position `from`, which goes
    /// down: to nothing, when all were seen. An entry that stays is seen though others leave
    /// meanwhile, for they only move down.
    pub(crate) fn earliest_below<T>(
        &self,
        nodes: &Arena<T>,
        from: &mut usize,
        budget: &mut usize,
    ) -> Option<u64> {
        let end = self.entries.len().min(*from);
        let begin = end.saturating_sub(*budget).max(self.taken);
        let seen = self.entries.get(begin..end).unwrap_or_default();
        *budget -= seen.len();
        *from = if begin == self.taken { 0 } else { begin };
        seen.iter().map(|&index| nodes.at(index).deadline).min()
    }

    /// Reads the first `count` nodes, which do not depend on each other.
    pub(crate) fn read_ahead<T>(&self, nodes: &Arena<T>, count: usize) {
        let ahead = self.entries[self.taken..].iter().take(count);
        std::hint::black_box(ahead.fold(0, |seen, &index| seen | nodes.at(index).touch()));
    }

    fn clear(&mut self) {
        self.taken = 0;
        if self.entries.capacity() > KEPT_CAPACITY {
            self.entries = Vec::new();
        } else {
            self.entries.clear();
        }
    }

    /// Checks Position for each entry. O(n).
    pub(crate) fn assert_valid<T>(&self, nodes: &Arena<T>, on_list: OnList) {
        for (position, &index) in self.entries.iter().enumerate().skip(self.taken) {
            let node = nodes.at(index);
            assert_eq!((node.on_list, node.position as usize), (on_list, position), "Position");
            node.task();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena_of(count: u32) -> (Arena<u32>, Vec<u32>) {
        let mut nodes = Arena::new();
        let indices = (0..count).map(|n| nodes.insert(0, n, n).unwrap().index).collect();
        (nodes, indices)
    }

    #[test]
    fn moving_tasks_between_lists_keeps_the_shared_count() {
        let (mut nodes, indices) = arena_of(10);
        let places = [OnList::bucket(0, 0), OnList::bucket(0, 1), OnList::bucket(0, 2)];
        let mut lists: [TimerTaskList; 3] = Default::default();
        for &index in &indices {
            lists[0].add(&mut nodes, index, places[0]);
        }
        for (step, &index) in indices.iter().enumerate().take(6) {
            let to = 1 + step % 2;
            lists[0].remove(&mut nodes, index);
            lists[to].add(&mut nodes, index, places[to]);
            assert_eq!(lists.iter().map(TimerTaskList::len).sum::<usize>(), 10);
            (0..3).for_each(|list| lists[list].assert_valid(&nodes, places[list]));
        }
        assert_eq!(lists.each_ref().map(TimerTaskList::len), [4, 3, 3]);
    }

    #[test]
    fn entries_leave_the_front_in_order_and_can_be_removed_meanwhile() {
        let (mut nodes, indices) = arena_of(5);
        let mut list = TimerTaskList::default();
        for &index in &indices {
            list.add(&mut nodes, index, OnList::bucket(0, 0));
        }
        assert_eq!(list.pop_front(&mut nodes), Some(indices[0]));
        list.remove(&mut nodes, indices[1]);
        list.assert_valid(&nodes, OnList::bucket(0, 0));
        let mut rest: Vec<_> = std::iter::from_fn(|| list.pop_front(&mut nodes)).collect();
        rest.sort_unstable();
        assert_eq!(rest, &indices[2..]);
        assert!(list.is_empty() && list.entries.is_empty());
    }

    #[test]
    fn one_survivor_of_a_long_list_keeps_little_of_it() {
        for survivor in [0, 50_000, 99_999] {
            let (mut nodes, indices) = arena_of(100_000);
            let mut list = TimerTaskList::default();
            indices.iter().for_each(|&index| list.add(&mut nodes, index, OnList::bucket(0, 0)));
            let (mut room, mut steps) = (list.entries.capacity(), 0);
            for &index in indices.iter().filter(|&&index| index != indices[survivor]) {
                list.remove(&mut nodes, index);
                let left = list.entries.capacity();
                assert!(left <= KEPT_CAPACITY.max(4 * list.len()), "room for {left}");
                steps += usize::from(std::mem::replace(&mut room, left) != left);
            }
            assert!(steps < 20, "{steps} steps");
            list.assert_valid(&nodes, OnList::bucket(0, 0));
            assert!(list.len() == 1 && list.entries.capacity() <= KEPT_CAPACITY);
        }
    }

    #[test]
    fn a_long_list_gives_its_memory_back() {
        let (mut nodes, indices) = arena_of(5000);
        let mut list = TimerTaskList::default();
        indices.iter().for_each(|&index| list.add(&mut nodes, index, OnList::bucket(0, 0)));
        indices.iter().for_each(|&index| list.remove(&mut nodes, index));
        assert!(list.entries.capacity() <= KEPT_CAPACITY);
        indices.iter().for_each(|&index| list.add(&mut nodes, index, OnList::bucket(0, 0)));
        while list.pop_front(&mut nodes).is_some() {}
        assert!(list.entries.capacity() <= KEPT_CAPACITY);
    }

    #[test]
    fn a_search_for_the_earliest_goes_down_within_its_budget() {
        let (mut nodes, indices) = arena_of(100);
        let mut list = TimerTaskList::default();
        for &index in &indices {
            nodes.at_mut(index).deadline = u64::from(index);
            list.add(&mut nodes, index, OnList::bucket(0, 0));
        }
        let (mut from, mut budget) = (usize::MAX, 30);
        assert_eq!(list.earliest_below(&nodes, &mut from, &mut budget), Some(70));
        assert_eq!((from, budget), (70, 0));
        assert_eq!(list.earliest_below(&nodes, &mut from, &mut 69), Some(1));
        budget = 5;
        assert_eq!(list.earliest_below(&nodes, &mut from, &mut budget), Some(0));
        assert_eq!((from, budget), (0, 4));
    }
}
