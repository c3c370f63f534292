//! `TimerTaskList`: the tasks of one bucket, with O(1) add and remove.
//!
//! The list is an array of node indices, and each node knows its position in it (Kafka's is a
//! doubly linked ring). Removing moves the last entry into the gap. Walking the array is what makes
//! handing over a bucket cheap: the next indices are in the cache line already read, where a linked
//! list waits for one node to learn the next. The array lies in chunks of 16 entries, which all
//! lists of a wheel share: what one gives back the next one takes, and none frees a large block.
//!
//! - **Position**: the entry at `node.position` is the node, for each node on a list. Positions
//!   wrap: a list that never empties, for more comes in than goes out, passes any number.
//! - **Packed**: a list has exactly the chunks that its entries need.

use std::collections::VecDeque;

use crate::wheel::{
    arena::{Arena, MAX_TASKS, OnList},
    pages::{PageSlot, Pages},
};

/// Entries of a chunk.
const CHUNK: usize = 16;

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Chunk([u32; CHUNK]);

impl PageSlot for Chunk {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = MAX_TASKS; // one a task would do

    fn vacant(_: u32) -> Self {
        Chunk([0; CHUNK])
    }
}

/// The chunks of all lists of a wheel.
pub(crate) type Chunks = Pages<Chunk>;

/// The tasks of one bucket, and when the bucket is due.
#[derive(Debug, Default)]
pub(crate) struct TimerTaskList {
    /// The chunks by their index.
    chunks: VecDeque<u32>,
    /// The position of the first entry.
    first: u32,
    /// One above that of the last.
    end: u32,
    /// The tick at which the bucket is due: set once in each cycle of its wheel, by the first
    /// task that comes in.
    expiration: u64,
}

/// Entries read at once when a list is emptied.
const AHEAD: usize = 64;

/// Entries that are taken off a list one after the other.
#[derive(Debug)]
pub(crate) struct Front {
    indices: [u32; AHEAD],
    next: usize,
    end: usize,
}

impl Default for Front {
    fn default() -> Self {
        Front { indices: [0; AHEAD], next: 0, end: 0 }
    }
}

impl Front {
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

impl Iterator for Front {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let left = self.indices[..self.end].get(self.next)?;
        self.next += 1;
        Some(*left)
    }
}

/// An emptied list keeps room for the numbers of so many chunks.
const KEPT_CHUNKS: usize = 16;

impl TimerTaskList {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.end.wrapping_sub(self.first) as usize
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
    pub(crate) fn add<T>(
        &mut self,
        nodes: &mut Arena<T>,
        chunks: &mut Chunks,
        index: u32,
        on_list: OnList,
    ) {
        let node = nodes.at_mut(index);
        node.on_list = on_list;
        node.position = self.end;
        if offset(self.end) == 0 {
            self.chunks.push_back(chunks.claim().expect("fewer chunks than tasks"));
        }
        *self.entry_mut(chunks, self.end) = index;
        self.end = self.end.wrapping_add(1);
    }

    /// O(1). The node must be on this list.
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, chunks: &mut Chunks, index: u32) {
        let node = nodes.at_mut(index);
        let position = node.position;
        node.on_list = OnList::NONE;
        debug_assert_eq!(self.entry(chunks, position), index, "Position");
        self.end = self.end.wrapping_sub(1);
        if position != self.end {
            let moved = self.entry(chunks, self.end);
            *self.entry_mut(chunks, position) = moved;
            nodes.at_mut(moved).position = position;
        }
        if offset(self.end) == 0 {
            self.chunks.pop_back().into_iter().for_each(|last| chunks.release(last)); // Packed
            if self.chunks.capacity() > KEPT_CHUNKS.max(4 * self.chunks.len()) {
                self.chunks.shrink_to(2 * self.chunks.len()); // a peak is given back
            }
        }
        if self.is_empty() {
            self.clear(chunks);
        }
    }

    /// The first entries. Their nodes, which do not depend on each other, are read, so that their
    /// cache misses overlap.
    pub(crate) fn front<T>(&self, nodes: &Arena<T>, chunks: &Chunks) -> Front {
        let mut front = Front::default();
        let mut skipped = offset(self.first);
        for &chunk in self.chunks.iter().take(AHEAD / CHUNK) {
            let left = self.len() - front.end;
            for &index in chunks.at(chunk).0[skipped..].iter().take(left) {
                front.indices[front.end] = index;
                front.end += 1;
            }
            skipped = 0;
        }
        let nodes = front.indices[..front.end].iter().map(|&index| nodes.at(index));
        std::hint::black_box(nodes.fold(0, |seen, node| seen | node.touch()));
        front
    }

    /// Takes the first entry, which is `index`, off the list. O(1).
    #[inline]
    pub(crate) fn pop_front<T>(&mut self, nodes: &mut Arena<T>, chunks: &mut Chunks, index: u32) {
        debug_assert_eq!(self.entry(chunks, self.first), index, "the first entry");
        nodes.at_mut(index).on_list = OnList::NONE;
        self.first = self.first.wrapping_add(1);
        if offset(self.first) == 0 {
            self.chunks.pop_front().into_iter().for_each(|chunk| chunks.release(chunk)); // Packed
        }
        if self.is_empty() {
            self.clear(chunks);
        }
    }

    /// The earliest deadline on the list. O(n).
    pub(crate) fn earliest_deadline<T>(&self, nodes: &Arena<T>, chunks: &Chunks) -> Option<u64> {
        let (mut from, mut budget) = (usize::MAX, usize::MAX);
        self.earliest_below(nodes, chunks, &mut from, &mut budget)
    }

    /// The earliest deadline among up to `budget` of the first `from` entries, which goes down: to
    /// nothing, when all were seen. An entry that stays is seen though others leave meanwhile, for
    /// they only move to the front.
    pub(crate) fn earliest_below<T>(
        &self,
        nodes: &Arena<T>,
        chunks: &Chunks,
        from: &mut usize,
        budget: &mut usize,
    ) -> Option<u64> {
        let end = self.len().min(*from);
        *from = end.saturating_sub(*budget);
        *budget -= end - *from;
        let positions = (*from..end).map(|number| self.first.wrapping_add(number as u32));
        positions.map(|position| nodes.at(self.entry(chunks, position)).deadline).min()
    }

    #[inline]
    fn entry(&self, chunks: &Chunks, position: u32) -> u32 {
        chunks.at(self.chunk_of(position)).0[offset(position)]
    }

    #[inline]
    fn entry_mut<'a>(&self, chunks: &'a mut Chunks, position: u32) -> &'a mut u32 {
        &mut chunks.at_mut(self.chunk_of(position)).0[offset(position)]
    }

    #[inline]
    fn chunk_of(&self, position: u32) -> u32 {
        let begin = self.first - offset(self.first) as u32;
        self.chunks[position.wrapping_sub(begin) as usize / CHUNK]
    }

    /// Begins anew at position 0, empty.
    fn clear(&mut self, chunks: &mut Chunks) {
        self.chunks.drain(..).for_each(|chunk| chunks.release(chunk)); // Packed
        (self.first, self.end) = (0, 0);
        if self.chunks.capacity() > KEPT_CHUNKS {
            self.chunks = VecDeque::new();
        }
    }

    /// Checks Position for each entry, and Packed; returns how many chunks are in use. O(n).
    pub(crate) fn assert_valid<T>(
        &self,
        nodes: &Arena<T>,
        chunks: &Chunks,
        on_list: OnList,
    ) -> usize {
        for number in 0..self.len() as u32 {
            let position = self.first.wrapping_add(number);
            let node = nodes.at(self.entry(chunks, position));
            assert_eq!((node.on_list, node.position), (on_list, position), "Position");
            node.task();
        }
        let needed = (offset(self.first) + self.len()).div_ceil(CHUNK);
        assert_eq!(self.chunks.len(), needed, "Packed");
        needed
    }
}

/// Where in its chunk a position lies.
#[inline]
fn offset(position: u32) -> usize {
    position as usize % CHUNK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena_of(count: u32) -> (Arena<u32>, Vec<u32>) {
        let mut nodes = Arena::new();
        let indices = (0..count).map(|n| nodes.insert(0, n, n).unwrap().index).collect();
        (nodes, indices)
    }

    const PLACE: OnList = OnList::bucket(0, 0);

    /// A list of so many tasks, whose indices come with it.
    fn list_of(count: u32) -> (TimerTaskList, Arena<u32>, Chunks, Vec<u32>) {
        let ((mut nodes, indices), mut chunks) = (arena_of(count), Chunks::new());
        let mut list = TimerTaskList::default();
        indices.iter().for_each(|&index| list.add(&mut nodes, &mut chunks, index, PLACE));
        (list, nodes, chunks, indices)
    }

    fn pop_front(
        list: &mut TimerTaskList,
        nodes: &mut Arena<u32>,
        chunks: &mut Chunks,
    ) -> Option<u32> {
        let index = list.front(nodes, chunks).next()?;
        list.pop_front(nodes, chunks, index);
        Some(index)
    }

    #[test]
    fn moving_tasks_between_lists_keeps_the_shared_count() {
        let ((mut nodes, indices), mut chunks) = (arena_of(100), Chunks::new());
        let places = [OnList::bucket(0, 0), OnList::bucket(0, 1), OnList::bucket(0, 2)];
        let mut lists: [TimerTaskList; 3] = Default::default();
        for &index in &indices {
            lists[0].add(&mut nodes, &mut chunks, index, places[0]);
        }
        for (step, &index) in indices.iter().enumerate().take(66) {
            let to = 1 + step % 2;
            lists[0].remove(&mut nodes, &mut chunks, index);
            lists[to].add(&mut nodes, &mut chunks, index, places[to]);
            assert_eq!(lists.iter().map(TimerTaskList::len).sum::<usize>(), 100);
            let used = (0..3).map(|n| lists[n].assert_valid(&nodes, &chunks, places[n]));
            assert_eq!(used.sum::<usize>(), chunks.len());
        }
        assert_eq!(lists.each_ref().map(TimerTaskList::len), [34, 33, 33]);
    }

    #[test]
    fn entries_leave_the_front_in_order_and_can_be_removed_meanwhile() {
        for taken in [1, 31, 63, 64, 65, 99] {
            let (mut list, mut nodes, mut chunks, indices) = list_of(100);
            for &index in &indices[..taken] {
                assert_eq!(pop_front(&mut list, &mut nodes, &mut chunks), Some(index));
            }
            list.remove(&mut nodes, &mut chunks, indices[taken]);
            assert_eq!(list.assert_valid(&nodes, &chunks, PLACE), chunks.len());
            let pop = || pop_front(&mut list, &mut nodes, &mut chunks);
            let mut rest: Vec<_> = std::iter::from_fn(pop).collect();
            rest.sort_unstable();
            assert_eq!(rest, &indices[taken + 1..]);
            assert!(list.is_empty() && chunks.is_empty());
        }
    }

    /// More comes in than goes out: the array of chunks must not grow for it.
    #[test]
    fn a_list_that_never_empties_needs_no_more_than_its_entries_and_its_positions_wrap() {
        let (mut list, mut nodes, mut chunks, _) = list_of(100);
        let shifted = |position: u32| position.wrapping_sub(1600); // near the end of positions
        (list.first, list.end) = (shifted(list.first), shifted(list.end));
        (0..100).for_each(|index| nodes.at_mut(index).position = shifted(index));
        for _ in 0..5000 {
            let index = pop_front(&mut list, &mut nodes, &mut chunks).unwrap();
            list.add(&mut nodes, &mut chunks, index, PLACE);
            assert_eq!(list.assert_valid(&nodes, &chunks, PLACE), chunks.len());
        }
        assert!(list.first < 10_000 && list.len() == 100 && list.chunks.capacity() <= 16);
        (0..100).for_each(|index| list.remove(&mut nodes, &mut chunks, index));
        assert!(list.is_empty() && chunks.is_empty());
    }

    #[test]
    fn one_survivor_of_a_long_list_keeps_little_of_it() {
        for survivor in [0, 50_000, 99_999] {
            let (mut list, mut nodes, mut chunks, indices) = list_of(100_000);
            let (mut room, mut steps) = (list.chunks.capacity(), 0);
            for &index in indices.iter().filter(|&&index| index != indices[survivor]) {
                list.remove(&mut nodes, &mut chunks, index);
                let left = list.chunks.capacity();
                assert!(left <= KEPT_CHUNKS.max(4 * list.chunks.len()), "room for {left}");
                steps += usize::from(std::mem::replace(&mut room, left) != left);
            }
            assert!(steps < 20, "{steps} steps");
            list.assert_valid(&nodes, &chunks, PLACE);
            assert!(list.len() == 1 && list.chunks.capacity() <= KEPT_CHUNKS);
            assert_eq!((chunks.len(), chunks.pages_with_memory()), (1, 2)); // one of them empty
        }
    }

    #[test]
    fn a_long_list_gives_its_memory_back() {
        let (mut list, mut nodes, mut chunks, indices) = list_of(5000);
        indices.iter().for_each(|&index| list.remove(&mut nodes, &mut chunks, index));
        assert!(chunks.is_empty() && list.chunks.capacity() <= KEPT_CHUNKS);
        let (mut list, mut nodes, mut chunks, _) = list_of(5000);
        while pop_front(&mut list, &mut nodes, &mut chunks).is_some() {}
        assert!(chunks.is_empty() && list.chunks.capacity() <= KEPT_CHUNKS);
    }

    #[test]
    fn a_search_for_the_earliest_goes_down_within_its_budget() {
        let (list, mut nodes, chunks, indices) = list_of(100);
        indices.iter().for_each(|&index| nodes.at_mut(index).deadline = u64::from(index));
        let (mut from, mut budget) = (usize::MAX, 30);
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut budget), Some(70));
        assert_eq!((from, budget), (70, 0));
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut 69), Some(1));
        budget = 5;
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut budget), Some(0));
        assert_eq!((from, budget), (0, 4));
    }
}
