//! `Buckets`: the buckets of every level, by when they are due.
//!
//! A bucket's [`TimerTaskList`] is a stack of node indices, the first in the list itself and the
//! others in chunks of 128 bytes: in sharded wheels most buckets hold one task. A node knows its
//! place there, and when it leaves, the last node takes that place (Kafka's list is a doubly linked
//! ring). Emptying a bucket reads the next indices ahead, where a linked list waits for one node to
//! learn the next. All lists share their chunks: the next list takes what one gives back. So
//! handing down asks the allocator for nothing, and no large block is grown or freed under a lock.
//!
//! The bitmap lets time jump: instead of visiting each tick, the wheel asks for the next bucket
//! that holds anything (Kafka keeps a `java.util.concurrent.DelayQueue` *of buckets* for this). A
//! level is a ring of buckets and only ever holds one round of its ring. So the first set bit at or
//! after the present is its earliest bucket, and the earliest of all is the earliest of at most one
//! bucket a level.
//!
//! - **Place**: the index at `node.place` is the node's, for each node in a bucket.
//! - **One round**: a bucket holds one unit of time, less than a round of its ring ahead. Its slot
//!   and the present say which one.
//! - **Occupied**: the bit of a bucket that is not empty is set. The bit of an emptied bucket stays
//!   until the bucket is looked for, so that a task that comes and goes writes to no word of bits.
//! - **Owned**: a chunk in use names its bucket, any other none. Only the last chunk has gaps.
//! - **Cascade first**: if two buckets expire at the same tick, the one of the higher level comes
//!   first. Then its tasks are in place when the tick itself is reached.

use crate::wheel::{
    geometry::{DueBucket, Geometry},
    node::{MAX_TASKS, NO_PLACE, Node},
    pages::{PageSlot, Pages},
    step,
};

/// Entries of a chunk: with its links it fills 128 bytes.
const CHUNK: u32 = 30;

/// Places from one chunk to the next.
const SPAN: u32 = 32;

/// No chunk, or no bucket.
const NONE: u32 = u32::MAX;

/// Marks a place as the first entry of a bucket, whose number is the rest.
const FIRST: u32 = 1 << 31;

/// A part of a list.
#[derive(Debug)]
struct Chunk {
    entries: [u32; CHUNK as usize],
    previous: u32,
    /// Number of the bucket that uses it.
    owner: u32,
}

impl PageSlot for Chunk {
    const PAGE_BITS: u32 = 3;
    const MAX: u32 = MAX_TASKS; // one a task would do

    fn vacant() -> Self {
        Chunk {
            entries: [0; CHUNK as usize],
            previous: NONE,
            owner: NONE,
        }
    }
}

/// The tasks of one bucket: indices of their nodes, in no order that means anything.
#[derive(Debug)]
struct TimerTaskList {
    len: u32,
    /// The first entry, if there is one.
    first: u32,
    /// The last chunk, if there is a second entry.
    tail: u32,
}

impl TimerTaskList {
    const EMPTY: TimerTaskList = TimerTaskList {
        len: 0,
        first: NONE,
        tail: NONE,
    };

    /// Adds an index of bucket `owner`; returns its place. O(1), but for the making of a page.
    #[inline]
    fn push(&mut self, chunks: &mut Pages<Chunk>, owner: u32, index: u32) -> u32 {
        // The first entry lies in the list itself, without a chunk.
        self.len += 1;
        if self.len == 1 {
            self.first = index;
            return FIRST | owner;
        }
        // From the second entry on they lie in chunks; a full one gets a successor.
        let end = (self.len - 2) % CHUNK;
        if end == 0 {
            let added = chunks.claim().expect("fewer chunks than tasks");
            let chunk = chunks.at_mut(added);
            chunk.previous = self.tail;
            chunk.owner = owner;
            self.tail = added;
        }
        chunks.at_mut(self.tail).entries[end as usize] = index;
        self.tail * SPAN + end
    }

    /// Takes the last index out. O(1), but for the freeing of a page.
    #[inline]
    fn pop(&mut self, chunks: &mut Pages<Chunk>) -> Option<u32> {
        // The only entry lies in the list itself.
        self.len = self.len.checked_sub(1)?;
        if self.len == 0 {
            return Some(self.first);
        }
        let end = (self.len - 1) % CHUNK;
        let last = chunks.at_mut(self.tail);
        let index = last.entries[end as usize];
        // That was the chunk's first entry: the chunk goes back.
        if end == 0 {
            last.owner = NONE; // Owned
            let previous = last.previous;
            chunks.release(self.tail);
            self.tail = previous;
        }
        Some(index)
    }

    /// The entries of a chunk of this list.
    fn entries<'a>(&self, chunks: &'a Pages<Chunk>, chunk: u32) -> &'a [u32] {
        // Only the last chunk has gaps (Owned).
        let len = if chunk == self.tail {
            (self.len - 2) % CHUNK + 1
        } else {
            CHUNK
        };
        &chunks.at(chunk).entries[..len as usize]
    }

    /// The chunks, the last one first.
    fn chunks<'a>(&self, chunks: &'a Pages<Chunk>) -> impl Iterator<Item = u32> + 'a {
        // The number of chunks follows from the length; the first one's link is stale.
        let count = self.len.saturating_sub(1).div_ceil(CHUNK) as usize;
        let previous = |&chunk: &u32| Some(chunks.get(chunk)?.previous);
        std::iter::successors(Some(self.tail), previous).take(count)
    }
}

#[derive(Debug)]
pub(crate) struct Buckets {
    geometry: Geometry,
    /// Level by level, each filled up to whole words of `occupied`. Made on demand, from the finest
    /// up.
    lists: Box<[TimerTaskList]>,
    occupied: Box<[u64]>,
    chunks: Pages<Chunk>,
}

impl Buckets {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Buckets {
            geometry,
            lists: Box::default(),
            occupied: Box::default(),
            chunks: Pages::default(),
        }
    }

    /// The last tick that has a bucket.
    #[inline]
    pub(crate) fn last_tick(&self) -> u64 {
        self.geometry.last_tick()
    }

    /// Words of `occupied` a level.
    #[inline]
    fn words(&self) -> usize {
        self.geometry.ring().div_ceil(64)
    }

    #[inline]
    pub(crate) fn number(&self, bucket: DueBucket) -> usize {
        bucket.level * self.words() * 64 + bucket.slot
    }

    /// Level and slot of a node's bucket, if it is in one. O(1).
    pub(crate) fn bucket_of<T>(&self, node: &Node<T>) -> Option<(usize, usize)> {
        if node.place == NO_PLACE {
            return None;
        }
        Some(self.level_and_slot(self.owner(node.place)))
    }

    /// The number of the bucket that a place is in.
    #[inline]
    fn owner(&self, place: u32) -> usize {
        let owner = if place & FIRST == 0 {
            self.chunks.at(place / SPAN).owner
        } else {
            place ^ FIRST
        };
        owner as usize
    }

    /// The entry at a place.
    #[inline]
    fn entry(&mut self, place: u32) -> &mut u32 {
        if place & FIRST == 0 {
            return &mut self.chunks.at_mut(place / SPAN).entries[(place % SPAN) as usize];
        }
        &mut self.lists[(place ^ FIRST) as usize].first
    }

    fn level_and_slot(&self, number: usize) -> (usize, usize) {
        (number / (self.words() * 64), number % (self.words() * 64))
    }

    pub(crate) fn level_count(&self) -> usize {
        self.occupied.len() / self.words()
    }

    /// Puts the index of a node into the bucket of `deadline`, as [`push`](Self::push) does, unless
    /// that is beyond the last tick: such a node is never due, and takes no bucket. Lowers
    /// `due_bound` to the tick at which the bucket is due.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        index: u32,
        deadline: u64,
        now: u64,
        due_bound: &mut u64,
    ) -> (u32, u64) {
        if deadline > self.last_tick() {
            return (NO_PLACE, u64::MAX);
        }
        let (place, due) = self.push(index, deadline, now);
        *due_bound = due.min(*due_bound);
        (place, due)
    }

    /// Puts the index of a node into the bucket of `deadline`, which is not before `now`.
    ///
    /// Returns the place, which the node is to keep, and the tick at which the bucket is due.
    /// O(levels).
    #[inline]
    pub(crate) fn push(&mut self, index: u32, deadline: u64, now: u64) -> (u32, u64) {
        // 1. The lowest level that reaches the deadline. It may be a new one.
        let bucket = self.geometry.bucket(deadline, now);
        let number = self.number(bucket);
        if number >= self.lists.len() {
            self.make_levels(bucket.level + 1);
        }
        // 2. The node goes to the end of its list.
        let place = self.lists[number].push(&mut self.chunks, number as u32, index);
        // Occupied. Only written when it changes, so that most insertions leave the word's cache
        // line alone.
        let word = &mut self.occupied[number / 64];
        let bit = 1 << (number % 64);
        if *word & bit == 0 {
            *word |= bit;
        }
        (place, self.due(bucket))
    }

    #[cold]
    fn make_levels(&mut self, levels: usize) {
        // Both are whole words a level, so that a bucket's number finds its bit.
        let words = levels * self.words();
        let mut occupied = std::mem::take(&mut self.occupied).into_vec();
        occupied.resize(words, 0);
        self.occupied = occupied.into();
        let mut lists = std::mem::take(&mut self.lists).into_vec();
        lists.resize_with(words * 64, || TimerTaskList::EMPTY);
        self.lists = lists.into();
    }

    /// Takes a node out of its bucket, by the place that the node had and has forgotten; false if
    /// it is in none. O(1).
    #[inline(always)]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Pages<Node<T>>, index: u32, place: u32) -> bool {
        if place == NO_PLACE {
            return false;
        }
        debug_assert_eq!(*self.entry(place), index, "Place");
        // The last node leaves the list in any case.
        let last = self
            .pop_from(self.owner(place))
            .expect("Place: the bucket is not empty");
        // If another one was to leave, the last takes its place.
        if last != index {
            step();
            *self.entry(place) = last;
            nodes.at_mut(last).place = place;
        }
        true
    }

    /// Takes the last node out of a bucket. O(1).
    #[inline]
    pub(crate) fn pop<T>(&mut self, nodes: &mut Pages<Node<T>>, number: usize) -> Option<u32> {
        let index = self.pop_from(number)?;
        nodes.at_mut(index).place = NO_PLACE;
        Some(index)
    }

    #[inline]
    fn pop_from(&mut self, number: usize) -> Option<u32> {
        self.lists[number].pop(&mut self.chunks)
    }

    /// Reads the nodes of a bucket that leave it next, so that their cache misses overlap; returns
    /// how many.
    pub(crate) fn read_ahead<T>(&self, nodes: &Pages<Node<T>>, number: usize) -> usize {
        let list = &self.lists[number];
        let mut read = list.len.min(1) as usize;
        for chunk in list.chunks(&self.chunks).take(2) {
            let next = list.entries(&self.chunks, chunk);
            // One sum over all of them: no read waits for another, and none is optimised away.
            std::hint::black_box(next.iter().fold(0, |seen, &at| seen | nodes.at(at).touch()));
            read += next.len();
        }
        read
    }

    /// The earliest bucket of each level that holds anything and when it is due, the coarsest level
    /// first. O(levels), and O(1) for each bucket that has emptied since.
    #[inline]
    fn earliest(&mut self, now: u64) -> impl Iterator<Item = (DueBucket, u64)> {
        (0..self.level_count()).rev().filter_map(move |level| {
            let bucket = self.earliest_of(level, now)?;
            Some((bucket, self.due(bucket)))
        })
    }

    /// The earliest bucket of a level that holds anything. Clears the bits before it.
    #[inline]
    fn earliest_of(&mut self, level: usize, now: u64) -> Option<DueBucket> {
        let words = self.words();
        loop {
            step();
            let occupied = &mut self.occupied[level * words..][..words];
            let slot = first_from(occupied, self.geometry.slot_now(level, now))?;
            if self.lists[level * words * 64 + slot].len > 0 {
                return Some(self.geometry.bucket_at(level, slot, now));
            }
            // It has emptied since its bit was set: now the bit goes (Occupied).
            occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// The tick from which a bucket is emptied: its expiration, or before it its lead.
    #[inline]
    fn due(&self, bucket: DueBucket) -> u64 {
        bucket
            .expiration
            .saturating_sub(self.geometry.lead(bucket.level))
    }

    /// Returns the exact tick at which the first bucket is due. O(levels).
    #[inline]
    pub(crate) fn next_due(&mut self, now: u64) -> Option<u64> {
        self.earliest(now).map(|(_, due)| due).min()
    }

    /// The bucket due at `tick` that expires first (Cascade first). O(levels).
    ///
    /// So due tasks come before those handed down ahead of their time.
    #[inline]
    pub(crate) fn first_due(&mut self, tick: u64, now: u64) -> Option<DueBucket> {
        let due = self.earliest(now).filter(|&(_, due)| due <= tick);
        // `min_by_key` returns the first of equal ones, which is the coarsest level's.
        due.map(|(bucket, _)| bucket)
            .min_by_key(|bucket| bucket.expiration)
    }

    /// Checks One round, Occupied, Owned and every Place; returns how many nodes are in buckets.
    /// O(n + buckets).
    pub(crate) fn assert_valid<T>(&self, nodes: &Pages<Node<T>>, now: u64) -> usize {
        let mut count = 0;
        let mut chunks = 0;
        for (number, list) in self.lists.iter().enumerate() {
            // A list that is not empty has its bit; the bit of an empty one may be stale.
            let bit = self.occupied[number / 64] >> (number % 64) & 1 == 1;
            assert!(bit || list.len == 0, "Occupied");
            // The first entry lies in the list itself.
            let mut len = list.len.min(1) as usize;
            if len == 1 {
                self.assert_placed(nodes, now, list.first, FIRST | number as u32);
            }
            // The others lie in its chunks.
            for chunk in list.chunks(&self.chunks) {
                assert_eq!(self.chunks.at(chunk).owner as usize, number, "Owned");
                let entries = list.entries(&self.chunks, chunk);
                for (&index, place) in entries.iter().zip(chunk * SPAN..) {
                    self.assert_placed(nodes, now, index, place);
                }
                len += entries.len();
                chunks += 1;
            }
            assert_eq!(len, list.len as usize, "Owned");
            count += len;
        }
        // No chunk is in use beside those that were seen.
        assert_eq!(self.chunks.len(), chunks, "Owned");
        count
    }

    /// Checks an index against its place.
    fn assert_placed<T>(&self, nodes: &Pages<Node<T>>, now: u64, index: u32, place: u32) {
        step();
        let node = nodes.at(index);
        assert_eq!(node.place, place, "Place");
        let (level, slot) = self.level_and_slot(self.owner(place));
        // The slot and the present say which unit of time the bucket holds.
        let bucket = self.geometry.bucket_at(level, slot, now);
        assert!(self.geometry.holds(bucket, node.deadline, now), "One round");
        node.task();
    }
}

/// The first bit set at or after `start`, going round once.
#[inline]
fn first_from(words: &[u64], start: usize) -> Option<usize> {
    let first = start / 64;
    let ahead = u64::MAX << (start % 64);
    // The rest of the word that `start` is in.
    if let Some(bit) = first_bit(words, first, ahead) {
        return Some(bit);
    }
    // The other words, to the end and from the beginning.
    for number in (first + 1..words.len()).chain(0..first) {
        if let Some(bit) = first_bit(words, number, u64::MAX) {
            return Some(bit);
        }
    }
    // The beginning of the first word again, below `start`.
    first_bit(words, first, !ahead)
}

/// The first bit set in one word under a mask, numbered over all words.
#[inline]
fn first_bit(words: &[u64], number: usize, mask: u64) -> Option<usize> {
    let word = words[number] & mask;
    if word == 0 {
        return None;
    }
    Some(number * 64 + word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::{geometry::WheelSize, pages::PageSlot};

    fn buckets() -> (Pages<Node<()>>, Buckets) {
        (
            Pages::default(),
            Buckets::new(Geometry::new(WheelSize::KAFKA)),
        )
    }

    /// Puts a node into its bucket; returns when that is due.
    fn place(
        nodes: &mut Pages<Node<()>>,
        buckets: &mut Buckets,
        index: u32,
        deadline: u64,
        now: u64,
    ) -> u64 {
        let (place, due) = buckets.push(index, deadline, now);
        nodes.at_mut(index).place = place;
        due
    }

    fn node(nodes: &mut Pages<Node<()>>, deadline: u64) -> u32 {
        let index = nodes.claim().unwrap();
        *nodes.at_mut(index) = Node {
            deadline,
            task: Some(()),
            ..Node::vacant()
        };
        index
    }

    #[test]
    fn the_first_bit_ahead_wins_from_anywhere() {
        let slots = [10, 70, 150];
        let mut words = [0; 4];
        for slot in slots {
            words[slot / 64] |= 1 << (slot % 64);
        }
        for start in 0..256 {
            let ahead = slots
                .into_iter()
                .min_by_key(|slot| (slot + 256 - start) % 256);
            assert_eq!(first_from(&words, start), ahead);
        }
    }

    #[test]
    fn the_higher_level_of_two_due_buckets_comes_first() {
        let (mut nodes, mut buckets) = buckets();
        for (now, deadline) in [(0, 39), (20, 20), (20, 23)] {
            let index = node(&mut nodes, deadline);
            place(&mut nodes, &mut buckets, index, deadline, now);
        }
        let head = buckets.first_due(20, 20).unwrap();
        assert_eq!((head.level, head.expiration), (1, 20));
        assert_eq!(buckets.assert_valid(&nodes, 20), 3);
    }

    #[test]
    fn one_survivor_of_a_large_bucket_keeps_little_of_it() {
        for survivor in [0, 50_000, 99_999] {
            let (mut nodes, mut buckets) = buckets();
            let indices: Vec<_> = (0..100_000).map(|_| node(&mut nodes, 7)).collect();
            for &index in &indices {
                place(&mut nodes, &mut buckets, index, 7, 0);
            }
            for &index in indices.iter().filter(|&&index| index != indices[survivor]) {
                let place = nodes.at_mut(index).take_place();
                assert!(buckets.remove(&mut nodes, index, place));
            }
            assert_eq!(buckets.assert_valid(&nodes, 0), 1);
            assert!(
                buckets.chunks.pages_with_memory() <= 2,
                "a page and a spare one"
            );
            assert_eq!(buckets.pop(&mut nodes, 7), Some(indices[survivor]));
        }
    }
}
