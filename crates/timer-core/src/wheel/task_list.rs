//! `TimerTaskList`: the tasks of one bucket, with O(1) add and remove.
//!
//! The list is a chain of chunks, each 128 bytes of node indices and links; a node knows its
//! position (Kafka's list is a doubly linked ring). Removing moves the last entry into the gap.
//! Walking the chunks is what makes handing over a bucket cheap: the next indices are there, where
//! a linked list waits for one node to learn the next. All lists of a wheel share their chunks:
//! what one gives back the next one takes, and none frees a large block.
//!
//! - **Position**: the entry at `node.position` is the node, for each node in a bucket.
//! - **Packed**: a list has no chunk without an entry, and gaps only before its first and after its
//!   last.
//! - **Owned**: a chunk in use names the list that it belongs to, any other none.

use crate::wheel::{
    arena::{Arena, MAX_TASKS, Position},
    pages::{PageSlot, Pages},
};

/// Entries of a chunk: with its links it fills 128 bytes.
const CHUNK: usize = 29;

/// Positions from one chunk to the next.
const SPAN: u32 = 32;

/// No chunk.
const NONE: u32 = u32::MAX;

const _: () = assert!(MAX_TASKS <= Position::LATE / SPAN);

/// Names the list of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListId(u32);

impl ListId {
    /// No list.
    const NONE: ListId = ListId(u32::MAX);

    /// So many slots of a level can be told apart.
    pub(crate) const SLOTS: usize = 1 << 16;

    pub(crate) const fn bucket(level: usize, slot: usize) -> ListId {
        ListId((level as u32) << 16 | slot as u32)
    }

    pub(crate) fn level_and_slot(self) -> (usize, usize) {
        ((self.0 >> 16) as usize, (self.0 & 0xffff) as usize)
    }
}

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Chunk {
    entries: [u32; CHUNK],
    previous: u32,
    next: u32,
    owner: ListId,
}

impl PageSlot for Chunk {
    const PAGE_BITS: u32 = 3;
    const MAX: u32 = MAX_TASKS; // one a task would do

    fn vacant(_: u32) -> Self {
        Chunk { entries: [0; CHUNK], previous: NONE, next: NONE, owner: ListId::NONE }
    }
}

/// The chunks of all lists of a wheel.
pub(crate) type Chunks = Pages<Chunk>;

/// The tasks of one bucket.
#[derive(Debug, Default)]
pub(crate) struct TimerTaskList {
    /// The first and the last chunk, unless the list is empty.
    head: u32,
    tail: u32,
    len: u32,
    /// Where in `head` the first entry lies.
    first: u8,
    /// Where in `tail` the next entry will lie.
    end: u8,
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

impl TimerTaskList {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// O(1). The node must be on no list.
    #[inline]
    pub(crate) fn add<T>(
        &mut self,
        nodes: &mut Arena<T>,
        chunks: &mut Chunks,
        index: u32,
        list: ListId,
    ) {
        if self.is_empty() || usize::from(self.end) == CHUNK {
            self.add_chunk(chunks, list);
        }
        let node = nodes.at_mut(index);
        node.position = Position::entry(self.tail * SPAN + u32::from(self.end));
        chunks.at_mut(self.tail).entries[usize::from(self.end)] = index;
        self.end += 1;
        self.len += 1;
    }

    /// The last chunk is full, or there is none: adds one for an entry.
    fn add_chunk(&mut self, chunks: &mut Chunks, owner: ListId) {
        let added = chunks.claim().expect("fewer chunks than tasks");
        let previous = if self.is_empty() {
            (self.head, self.first) = (added, 0);
            NONE
        } else {
            chunks.at_mut(self.tail).next = added;
            self.tail
        };
        let chunk = chunks.at_mut(added);
        (chunk.previous, chunk.next, chunk.owner) = (previous, NONE, owner);
        (self.tail, self.end) = (added, 0);
    }

    /// O(1). The node must be on this list.
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, chunks: &mut Chunks, index: u32) {
        let node = nodes.at_mut(index);
        let position = node.position.entry_at().expect("Position: the node is on this list");
        node.position = Position::NONE;
        debug_assert_eq!(*entry(chunks, position), index, "Position");
        self.end -= 1;
        self.len -= 1;
        let last = self.tail * SPAN + u32::from(self.end);
        if position != last {
            let moved = *entry(chunks, last);
            *entry(chunks, position) = moved;
            nodes.at_mut(moved).position = Position::entry(position);
        }
        if self.is_empty() {
            release(chunks, self.tail); // Packed
        } else if self.end == 0 {
            let previous = release(chunks, self.tail).previous; // Packed
            chunks.at_mut(previous).next = NONE;
            (self.tail, self.end) = (previous, CHUNK as u8);
        }
    }

    /// The first entries. Their nodes, which do not depend on each other, are read, and with them
    /// the chunks of those that follow: so that their cache misses overlap.
    pub(crate) fn front<T>(&self, nodes: &Arena<T>, chunks: &Chunks) -> Front {
        let mut front = Front { end: self.len().min(AHEAD), ..Front::default() };
        let (mut chunk, mut first, mut filled) = (self.head, usize::from(self.first), 0);
        while filled < front.end {
            let from = chunks.at(chunk);
            let count = (front.end - filled).min(CHUNK - first);
            front.indices[filled..][..count].copy_from_slice(&from.entries[first..][..count]);
            (chunk, first, filled) = (from.next, 0, filled + count);
        }
        let mut seen = 0;
        for part in front.indices[..front.end].chunks(CHUNK) {
            if chunk != NONE {
                chunk = chunks.at(chunk).next;
            }
            seen = part.iter().fold(seen, |seen, &index| seen | nodes.at(index).touch());
        }
        std::hint::black_box((seen, chunk));
        front
    }

    /// Takes the first entry, which is `index`, off the list. O(1).
    #[inline]
    pub(crate) fn pop_front<T>(&mut self, nodes: &mut Arena<T>, chunks: &mut Chunks, index: u32) {
        let node = nodes.at_mut(index);
        let first = Position::entry(self.head * SPAN + u32::from(self.first));
        debug_assert_eq!(node.position, first, "the first");
        node.position = Position::NONE;
        self.first += 1;
        self.len -= 1;
        if self.is_empty() {
            release(chunks, self.head); // Packed
        } else if usize::from(self.first) == CHUNK {
            let next = release(chunks, self.head).next; // Packed
            chunks.at_mut(next).previous = NONE;
            (self.head, self.first) = (next, 0);
        }
    }

    /// The earliest deadline on the list. O(n).
    pub(crate) fn earliest_deadline<T>(&self, nodes: &Arena<T>, chunks: &Chunks) -> Option<u64> {
        let (mut from, mut budget) = (usize::MAX, usize::MAX);
        self.earliest_below(nodes, chunks, &mut from, &mut budget)
    }

    /// The earliest deadline in some chunks, `budget` entries or a chunk's more: up to the one that
    /// `from` is one above, which goes towards the head; to nothing, when all were seen. From the
    /// last chunk on, when that one is not the list's any more: what was not seen lies before it.
    /// An entry that stays is seen though others leave meanwhile, for they only move to the front.
    pub(crate) fn earliest_below<T>(
        &self,
        nodes: &Arena<T>,
        chunks: &Chunks,
        from: &mut usize,
        budget: &mut usize,
    ) -> Option<u64> {
        let mut earliest = None;
        let mut chunk = if self.is_empty() { NONE } else { self.tail };
        if let Some(other) = from.checked_sub(1).and_then(|other| u32::try_from(other).ok())
            && chunk != NONE
            && chunks.get(other).is_some_and(|other| other.owner == chunks.at(chunk).owner)
        {
            chunk = other;
        }
        while chunk != NONE && *budget > 0 {
            let entries = self.entries_of(chunks, chunk);
            *budget = budget.saturating_sub(entries.len());
            let here = entries.iter().map(|&index| nodes.at(index).deadline).min();
            earliest = earliest.into_iter().chain(here).min();
            chunk = chunks.at(chunk).previous;
        }
        *from = if chunk == NONE { 0 } else { chunk as usize + 1 };
        earliest
    }

    /// The entries of one of the list's chunks.
    fn entries_of<'a>(&self, chunks: &'a Chunks, chunk: u32) -> &'a [u32] {
        let first = if chunk == self.head { usize::from(self.first) } else { 0 };
        let end = if chunk == self.tail { usize::from(self.end) } else { CHUNK };
        &chunks.at(chunk).entries[first..end]
    }

    /// Checks Position for each entry, that its deadline is `held` here, Packed and Owned; returns
    /// how many chunks there are. O(n).
    pub(crate) fn assert_valid<T>(
        &self,
        nodes: &Arena<T>,
        chunks: &Chunks,
        list: ListId,
        held: impl Fn(u64) -> bool,
    ) -> usize {
        let (mut count, mut len) = (0, 0);
        let (mut previous, mut chunk) = (NONE, if self.is_empty() { NONE } else { self.head });
        while chunk != NONE {
            let at = chunks.at(chunk);
            assert_eq!((at.previous, at.owner), (previous, list), "Owned");
            let entries = self.entries_of(chunks, chunk);
            assert!(!entries.is_empty(), "Packed");
            let first = if chunk == self.head { u32::from(self.first) } else { 0 };
            for (position, &index) in (chunk * SPAN + first..).zip(entries) {
                let node = nodes.at(index);
                assert_eq!(node.position, Position::entry(position), "Position");
                assert!(held(node.deadline), "One round: {}", node.deadline);
                node.task();
            }
            (count, len) = (count + 1, len + entries.len());
            (previous, chunk) = (chunk, at.next);
        }
        assert!(self.is_empty() || previous == self.tail, "the last chunk");
        assert_eq!(len, self.len(), "Packed");
        count
    }
}

/// The list that an entry belongs to.
#[inline]
pub(crate) fn list_of(chunks: &Chunks, position: u32) -> ListId {
    chunks.at(position / SPAN).owner
}

/// The entry at a position.
#[inline]
fn entry(chunks: &mut Chunks, position: u32) -> &mut u32 {
    &mut chunks.at_mut(position / SPAN).entries[(position % SPAN) as usize]
}

/// Where a chunk was.
struct Links {
    previous: u32,
    next: u32,
}

/// Gives a chunk back (Owned).
fn release(chunks: &mut Chunks, chunk: u32) -> Links {
    let given = chunks.at_mut(chunk);
    given.owner = ListId::NONE;
    let links = Links { previous: given.previous, next: given.next };
    chunks.release(chunk);
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena_of(count: u32) -> (Arena<u32>, Vec<u32>) {
        let mut nodes = Arena::new();
        let indices = (0..count).map(|n| nodes.insert(0, n, n).unwrap().index).collect();
        (nodes, indices)
    }

    const PLACE: ListId = ListId::bucket(0, 0);

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
        let places = [ListId::bucket(0, 0), ListId::bucket(0, 1), ListId::bucket(0, 2)];
        let mut lists: [TimerTaskList; 3] = Default::default();
        for &index in &indices {
            lists[0].add(&mut nodes, &mut chunks, index, places[0]);
        }
        for (step, &index) in indices.iter().enumerate().take(66) {
            let to = 1 + step % 2;
            lists[0].remove(&mut nodes, &mut chunks, index);
            lists[to].add(&mut nodes, &mut chunks, index, places[to]);
            assert_eq!(lists.iter().map(TimerTaskList::len).sum::<usize>(), 100);
            let used = (0..3).map(|n| lists[n].assert_valid(&nodes, &chunks, places[n], |_| true));
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
            assert_eq!(list.assert_valid(&nodes, &chunks, PLACE, |_| true), chunks.len());
            let pop = || pop_front(&mut list, &mut nodes, &mut chunks);
            let mut rest: Vec<_> = std::iter::from_fn(pop).collect();
            rest.sort_unstable();
            assert_eq!(rest, &indices[taken + 1..]);
            assert!(list.is_empty() && chunks.is_empty());
        }
    }

    /// More comes in than goes out: that must cost no more and more.
    #[test]
    fn a_list_that_never_empties_needs_no_more_than_its_entries() {
        let (mut list, mut nodes, mut chunks, _) = list_of(100);
        for _ in 0..5000 {
            let index = pop_front(&mut list, &mut nodes, &mut chunks).unwrap();
            list.add(&mut nodes, &mut chunks, index, PLACE);
            assert_eq!(list.assert_valid(&nodes, &chunks, PLACE, |_| true), chunks.len());
        }
        assert!(list.len() == 100 && chunks.pages_with_memory() <= 2);
        (0..100).for_each(|index| list.remove(&mut nodes, &mut chunks, index));
        assert!(list.is_empty() && chunks.is_empty());
    }

    #[test]
    fn one_survivor_of_a_long_list_keeps_little_of_it() {
        for survivor in [0, 50_000, 99_999] {
            let (mut list, mut nodes, mut chunks, indices) = list_of(100_000);
            let others = indices.iter().filter(|&&index| index != indices[survivor]);
            others.for_each(|&index| list.remove(&mut nodes, &mut chunks, index));
            assert_eq!((list.len(), list.assert_valid(&nodes, &chunks, PLACE, |_| true)), (1, 1));
            assert_eq!((chunks.len(), chunks.pages_with_memory()), (1, 2)); // one of them empty
        }
    }

    #[test]
    fn a_long_list_gives_its_memory_back() {
        let (mut list, mut nodes, mut chunks, indices) = list_of(5000);
        indices.iter().for_each(|&index| list.remove(&mut nodes, &mut chunks, index));
        assert_eq!((chunks.len(), chunks.pages_with_memory()), (0, 1));
        let (mut list, mut nodes, mut chunks, _) = list_of(5000);
        while pop_front(&mut list, &mut nodes, &mut chunks).is_some() {}
        assert_eq!((chunks.len(), chunks.pages_with_memory()), (0, 1));
    }

    #[test]
    fn a_list_and_a_chunk_are_small() {
        assert_eq!((size_of::<TimerTaskList>(), size_of::<Chunk>()), (16, 128));
    }

    #[test]
    fn a_search_for_the_earliest_keeps_to_its_budget_and_to_its_list() {
        let (mut list, mut nodes, mut chunks, indices) = list_of(100);
        let mut other = TimerTaskList::default();
        indices.iter().for_each(|&index| nodes.at_mut(index).deadline = u64::from(index));
        let (mut from, mut budget) = (usize::MAX, 30);
        // 13 in the last chunk, and one of 29.
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut budget), Some(58));
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut 29), Some(29));
        let (place, mut rest) = (from, from);
        budget = 30;
        assert_eq!(list.earliest_below(&nodes, &chunks, &mut rest, &mut budget), Some(0));
        assert_eq!((rest, budget), (0, 1));
        // The chunk where it stood is another list's now: what is left is seen from the last on.
        for &index in &indices[..99] {
            list.remove(&mut nodes, &mut chunks, index);
            other.add(&mut nodes, &mut chunks, index, ListId::bucket(0, 1));
        }
        for mut from in [place, 3, usize::MAX] {
            assert_eq!(list.earliest_below(&nodes, &chunks, &mut from, &mut 9), Some(99));
            assert_eq!(from, 0);
        }
    }
}
