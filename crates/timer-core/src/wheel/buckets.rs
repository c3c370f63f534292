//! `Buckets`: the buckets of every level, by when they are due.
//!
//! ```text
//!    occupied (a bit for each bucket)      buckets: TimerTaskList { first, last }
//!    level 0  0000 0100 0010 ... ─────────▶ │ │ │ │ │●│ │ │ │ │●│    1 tick each
//!    level 1  0001 0000 0000 ... ─────────▶ │ │ │ │●│ │ │ │ │ │ │    64 ticks each
//!    level 2  0000 0000 0000 ...            │ │ │ │ │ │ │ │ │ │ │    4096 ticks each
//!                                                  │
//!                     chunk of 15 ◀── previous ── chunk of 15        chunks, shared by all buckets
//!                     │17│ 4│92│...              │ 8│63│              in Pages; an entry: index, low
//!                          │ ▲
//!                          ▼ │ place
//!    nodes, in Pages:   │ sequence, place, high, task │              TaskId: index of it, sequence
//! ```
//!
//! A bucket's [`TimerTaskList`] is a stack of entries. The first lies in the list itself, as in
//! sharded wheels most buckets hold one task; the others lie in chunks of 128 bytes. A node knows
//! the place of its entry. When the node leaves, the last entry takes that place (Kafka's list is a
//! doubly linked ring). All lists share their chunks: a chunk that one list gives back goes to the
//! next. So handing down asks the allocator for nothing, and no large block is grown or freed under
//! a lock.
//!
//! An entry has the lower half of its deadline. A bucket that spans at most 2^32 ticks has the
//! upper half, so handing down reads no node, and writes each once: its place. Handing over reads
//! the next nodes together, where a linked list waits for one node to learn the next.
//!
//! The bitmap lets time jump: instead of visiting each tick, the wheel asks for the next bucket
//! that holds anything (Kafka keeps a `java.util.concurrent.DelayQueue` *of buckets* for this). A
//! level is a ring of buckets and only ever holds one round of its ring. So the first set bit at or
//! after the present is its earliest bucket, and the earliest of all is the earliest of at most one
//! bucket a level.
//!
//! - **Place**: the entry at `node.place` is the node's, for each node in a bucket.
//! - **One round**: a bucket holds one unit of time, less than a round of its ring ahead. Its slot
//!   and the present say which one.
//! - **Occupied**: the bit of a bucket that is not empty is set. The bit of an emptied bucket stays
//!   until the bucket is looked for, so that a task that comes and goes writes to no word of bits.
//! - **Owned**: a chunk in use names its list. Only the last chunk of a list has gaps.
//! - **On demand**: the lists of 8 neighbouring buckets are a *row*, made when the first task comes
//!   to one of them, and kept. A wheel of few deadlines has few rows. A list's number is its place
//!   among the lists; `rows` says where the row of a bucket is.
//! - **Last bucket**: most timeouts of a program are alike, so the next deadline falls into the
//!   coarse bucket of the last one. That bucket is remembered, with the presents for which it is
//!   right.
//! - **Cascade first**: if two buckets expire at the same tick, the one of the higher level comes
//!   first. Then its tasks are in place when the tick itself is reached.

use std::ops::Range;

use crate::wheel::{
    geometry::{DueBucket, Geometry},
    node::{MAX_TASKS, NO_PLACE, Node, Nodes},
    pages::{PageSlot, Pages},
    step,
};

/// Entries of a chunk: with its links it fills 128 bytes.
const CHUNK: u32 = 15;

/// Places from one chunk to the next.
const SPAN: u32 = 16;

/// Buckets of a row.
const ROW: usize = 8;

/// The number of a row that is not made.
const NO_ROW: u16 = u16::MAX;

/// Entries of a due bucket whose nodes are read together.
const AHEAD: usize = 64;

/// Marks the place of a list's first entry; the other bits are the list's number.
const FIRST: u32 = 1 << 31;

/// A task in a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The index of its node.
    pub(super) index: u32,
    /// The lower half of its deadline; the node has the upper one.
    pub(super) low: u32,
}

impl Entry {
    const VACANT: Entry = Entry { index: 0, low: 0 };
}

/// The place of an entry that was put into a bucket.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// The place for the node to keep; `NO_PLACE` in no bucket.
    pub(super) place: u32,
    /// The tick at which the bucket is due; `u64::MAX` for never.
    pub(super) due: u64,
}

impl Placed {
    /// The result for a node in no bucket.
    pub(super) const NEVER: Placed = Placed {
        place: NO_PLACE,
        due: u64::MAX,
    };
}

/// A part of a list.
#[derive(Debug)]
struct Chunk {
    entries: [Entry; CHUNK as usize],
    /// The place before the first one in this chunk.
    previous: u32,
    /// Number of the list that uses it.
    owner: u32,
}

/// The chunks of a wheel.
type Chunks = Pages<Chunk, 8>;

impl PageSlot for Chunk {
    const MAX: u32 = MAX_TASKS; // one a task would do

    fn vacant() -> Self {
        Chunk {
            entries: [Entry::VACANT; CHUNK as usize],
            previous: NO_PLACE,
            owner: 0,
        }
    }
}

/// The tasks of one bucket, in no order that means anything.
#[derive(Debug)]
struct TimerTaskList {
    /// The first entry, if there is one.
    first: Entry,
    /// The place of the last entry, `NO_PLACE` without one.
    last: u32,
}

impl TimerTaskList {
    const EMPTY: TimerTaskList = TimerTaskList {
        first: Entry::VACANT,
        last: NO_PLACE,
    };

    fn is_empty(&self) -> bool {
        self.last == NO_PLACE
    }

    /// Adds an entry of the list `owner`; returns its place. O(1), but for the making of a page.
    #[inline(always)]
    fn push(&mut self, chunks: &mut Chunks, owner: u32, entry: Entry) -> u32 {
        // The first entry lies in the list itself, without a chunk.
        if self.is_empty() {
            self.first = entry;
            self.last = FIRST | owner;
            return self.last;
        }
        // From the second entry on they lie in chunks; a full one gets a successor.
        let place = if self.last & FIRST != 0 || self.last % SPAN == CHUNK - 1 {
            let added = chunks.claim().expect("fewer chunks than tasks");
            let chunk = chunks.at_mut(added);
            chunk.previous = self.last;
            chunk.owner = owner;
            added * SPAN
        } else {
            self.last + 1
        };
        chunks.at_mut(place / SPAN).entries[(place % SPAN) as usize] = entry;
        self.last = place;
        place
    }

    /// Takes the last entry out. O(1), but for the freeing of a page.
    #[inline(always)]
    fn pop(&mut self, chunks: &mut Chunks) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        // The only entry lies in the list itself.
        let place = self.last;
        if place & FIRST != 0 {
            self.last = NO_PLACE;
            return Some(self.first);
        }
        let chunk = chunks.at(place / SPAN);
        let entry = chunk.entries[(place % SPAN) as usize];
        // If this was the chunk's first entry, the chunk goes back.
        if place % SPAN == 0 {
            self.last = chunk.previous;
            chunks.release(place / SPAN);
        } else {
            self.last = place - 1;
        }
        Some(entry)
    }

    /// Reads the nodes of the last [`AHEAD`] entries, so that their cache misses overlap.
    #[inline]
    fn read_ahead<T>(&self, chunks: &Chunks, nodes: &Nodes<T>) {
        let mut last = self.last;
        let mut left = AHEAD;
        let mut seen = 0;
        // The entries of the last chunk, then those of the chunk before it.
        while left > 0 && last & FIRST == 0 {
            let chunk = chunks.at(last / SPAN);
            let here = &chunk.entries[..=(last % SPAN) as usize];
            for entry in here.iter().rev().take(left) {
                seen |= nodes.at(entry.index).touch();
            }
            left = left.saturating_sub(here.len());
            last = chunk.previous;
        }
        // All are combined into one value: no read waits for another, and none is optimised away.
        std::hint::black_box(seen);
    }

    /// Returns the places of its entries, the last one first.
    fn places<'a>(&self, chunks: &'a Chunks) -> impl Iterator<Item = u32> + 'a {
        let previous = |&place: &u32| match place {
            _ if place & FIRST != 0 => None,
            _ if place % SPAN == 0 => Some(chunks.at(place / SPAN).previous),
            _ => Some(place - 1),
        };
        let last = Some(self.last).filter(|&last| last != NO_PLACE);
        std::iter::successors(last, previous)
    }
}

/// The buckets of a wheel. A bucket's number counts through the levels that are made, the finest
/// first.
#[derive(Debug)]
pub(super) struct Buckets {
    geometry: Geometry,
    /// Bucket numbers from one level to the next: the slots of a ring, rounded up to whole words.
    stride: u32,
    /// The finest level that is made. Levels are made on demand, with any level in between.
    finest: u32,
    /// The lists, row by row, in the order in which the rows were made (On demand).
    lists: Vec<TimerTaskList>,
    /// The row of each 8 buckets, by number: level by level, each rounded up to whole words of
    /// `occupied`.
    rows: Box<[u16]>,
    occupied: Box<[u64]>,
    chunks: Chunks,
    last: LastBucket,
}

/// The coarse bucket of the last deadline that was put into one (Last bucket).
#[derive(Debug, Default)]
struct LastBucket {
    /// Its first tick, and its number of ticks: 0 before there was such a bucket.
    from: u64,
    ticks: u64,
    /// The latest present from which no lower level reaches it.
    now_max: u64,
    due: u64,
    number: usize,
    list: usize,
}

impl Buckets {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Buckets {
            stride: geometry.ring().next_multiple_of(64) as u32,
            geometry,
            lists: Vec::new(),
            finest: 0,
            rows: Box::default(),
            occupied: Box::default(),
            chunks: Chunks::default(),
            last: LastBucket::default(),
        }
    }

    /// Returns the number of words of `occupied` that a level has.
    fn words(&self) -> usize {
        self.stride as usize / 64
    }

    fn finest(&self) -> usize {
        self.finest as usize
    }

    /// Returns the levels that are made.
    fn levels(&self) -> Range<usize> {
        self.finest()..self.level_count()
    }

    /// Returns the number of a bucket whose level is made.
    fn number(&self, bucket: DueBucket) -> usize {
        (bucket.level - self.finest()) * self.stride as usize + bucket.slot
    }

    /// Returns the number of a bucket's list; at least the number of lists if it is not made.
    fn list_number(&self, number: usize) -> usize {
        self.rows[number / ROW] as usize * ROW + number % ROW
    }

    /// Returns level and slot of a node's bucket, if it is in one. O(rows); for tests and checks.
    pub(super) fn bucket_of<T>(&self, node: &Node<T>) -> Option<(usize, usize)> {
        if node.place == NO_PLACE {
            return None;
        }
        let number = self.number_of_list(self.owner(node.place));
        let stride = self.stride as usize;
        Some((self.finest() + number / stride, number % stride))
    }

    /// Returns the number of the bucket of a list. O(rows).
    fn number_of_list(&self, list: usize) -> usize {
        let row = (list / ROW) as u16;
        let found = self.rows.iter().position(|&made| made == row);
        found.expect("On demand: a list is in a row") * ROW + list % ROW
    }

    /// Returns the number of the list that a place is in.
    #[inline]
    fn owner(&self, place: u32) -> usize {
        let owner = if place & FIRST == 0 {
            self.chunks.at(place / SPAN).owner
        } else {
            place ^ FIRST
        };
        owner as usize
    }

    /// Returns the entry at a place.
    fn entry(&self, place: u32) -> Entry {
        if place & FIRST == 0 {
            return self.chunks.at(place / SPAN).entries[(place % SPAN) as usize];
        }
        self.lists[(place ^ FIRST) as usize].first
    }

    /// Puts another entry at a place.
    #[inline]
    fn set_entry(&mut self, place: u32, entry: Entry) {
        if place & FIRST == 0 {
            self.chunks.at_mut(place / SPAN).entries[(place % SPAN) as usize] = entry;
        } else {
            self.lists[(place ^ FIRST) as usize].first = entry;
        }
    }

    /// Returns the deadline of a node, if it is in a bucket. O(1).
    pub(super) fn deadline_of<T>(&self, node: &Node<T>) -> Option<u64> {
        if node.place == NO_PLACE {
            return None;
        }
        Some(node.deadline(self.entry(node.place).low))
    }

    /// Returns the number of levels up to the coarsest that is made.
    pub(super) fn level_count(&self) -> usize {
        self.finest() + self.occupied.len() / self.words()
    }

    /// Puts the index of a node into the bucket of its deadline, seen from `now`. A deadline in the
    /// past is due at once. Beyond the last tick the node is never due, and goes into no bucket.
    /// O(levels).
    #[inline(always)]
    pub(super) fn put(&mut self, index: u32, deadline: u64, now: u64) -> Placed {
        let low = deadline as u32;
        let entry = Entry { index, low };
        let deadline = deadline.max(now);
        let last = &self.last;
        if deadline.wrapping_sub(last.from) < last.ticks && now <= last.now_max {
            let due = last.due;
            let place = self.push_at(last.number, last.list, entry);
            return Placed { place, due };
        }
        if deadline > self.geometry.last_tick() {
            return Placed::NEVER;
        }
        // The lowest level that reaches the deadline. It may be a new one.
        let bucket = self.geometry.bucket(deadline, now);
        let placed = Placed {
            place: self.push_to(bucket, entry),
            due: self.due(bucket),
        };
        if bucket.level > 0 {
            self.keep_last(bucket, placed.due);
        }
        placed
    }

    /// Keeps the bucket for the next deadline (Last bucket).
    #[inline(never)] // most deadlines find theirs
    fn keep_last(&mut self, bucket: DueBucket, due: u64) {
        let from = bucket.expiration;
        let ticks = self.geometry.bucket_ticks(bucket.level);
        let Some(now_max) = self.geometry.now_max(bucket) else {
            return;
        };
        // Keep only a bucket whose ticks all have a place.
        if from > self.geometry.last_tick().saturating_sub(ticks) {
            return;
        }
        let number = self.number(bucket);
        self.last = LastBucket {
            from,
            ticks,
            now_max,
            due,
            number,
            list: self.list_number(number),
        };
    }

    /// Puts an entry into a bucket; returns its place. O(1).
    #[inline(always)] // a call costs 10 instructions
    fn push_to(&mut self, bucket: DueBucket, entry: Entry) -> u32 {
        // Find its list. The level or the row may be a new one (On demand): the number of a bucket
        // below the finest level wraps around.
        let level = bucket.level.wrapping_sub(self.finest());
        let number = level
            .wrapping_mul(self.stride as usize)
            .wrapping_add(bucket.slot);
        let row = self.rows.get(number / ROW).copied().unwrap_or(NO_ROW);
        let at = row as usize * ROW + number % ROW;
        if at >= self.lists.len() {
            return self.push_to_new(bucket, entry);
        }
        self.push_at(number, at, entry)
    }

    /// Puts an entry into a bucket whose list has this number; returns its place. O(1).
    #[inline(always)] // as `push_to`
    fn push_at(&mut self, number: usize, at: usize, entry: Entry) -> u32 {
        let list = &mut self.lists[at];
        // Occupied. The word is written only when it changes, so that most insertions leave its
        // cache line alone.
        if list.is_empty() {
            let word = &mut self.occupied[number / 64];
            let bit = 1 << (number % 64);
            if *word & bit == 0 {
                *word |= bit;
            }
        }
        list.push(&mut self.chunks, at as u32, entry)
    }

    /// Puts an entry into a bucket whose row is made first, with its level if need be.
    #[cold]
    fn push_to_new(&mut self, bucket: DueBucket, entry: Entry) -> u32 {
        if !self.levels().contains(&bucket.level) {
            self.make_level(bucket.level);
        }
        // The lists grow by a quarter, so that those of a wheel with many slots are not moved for
        // each row.
        let lists = self.lists.len();
        if self.lists.capacity() == lists {
            self.lists
                .reserve_exact((lists / 4).next_multiple_of(ROW).max(ROW));
        }
        self.lists.resize_with(lists + ROW, || TimerTaskList::EMPTY);
        let number = self.number(bucket);
        self.rows[number / ROW] = (lists / ROW) as u16;
        self.push_to(bucket, entry)
    }

    /// Makes a level, and any between it and the others.
    fn make_level(&mut self, level: usize) {
        let there = self.levels();
        let mut levels = level..level + 1;
        if !there.is_empty() {
            levels = level.min(there.start)..there.end.max(level + 1);
        }
        // 1. Room for all of them, in whole words a level, so that a bucket's number finds its bit.
        let mut occupied = vec![0; levels.len() * self.words()];
        let mut rows = vec![NO_ROW; occupied.len() * 64 / ROW];
        // 2. Copy the levels that are there, above those that are new and finer.
        let finer = there.start.saturating_sub(levels.start) * self.words();
        occupied[finer..][..self.occupied.len()].copy_from_slice(&self.occupied);
        rows[finer * 64 / ROW..][..self.rows.len()].copy_from_slice(&self.rows);
        self.occupied = occupied.into();
        self.rows = rows.into();
        // 3. The numbers of buckets have changed.
        self.finest = levels.start as u32;
        self.last = LastBucket::default();
    }

    /// Takes a node out of its bucket, by the place that the node had and has forgotten. Returns
    /// false if it is in none. O(1).
    #[inline(always)]
    pub(super) fn remove<T>(&mut self, nodes: &mut Nodes<T>, index: u32, place: u32) -> bool {
        if place == NO_PLACE {
            return false;
        }
        debug_assert_eq!(self.entry(place).index, index, "Place");
        // The last entry leaves the list in any case.
        let owner = self.owner(place);
        let last = self.lists[owner]
            .pop(&mut self.chunks)
            .expect("Place: the bucket is not empty");
        // If another entry is to leave, the last one takes its place.
        if last.index != index {
            step();
            self.set_entry(place, last);
            nodes.at_mut(last.index).place = place;
        }
        true
    }

    /// Hands the tasks of a bucket above level 0 down, at most `max`: each to the lowest level that
    /// reaches its deadline from `now`. Returns how many. O(max).
    pub(super) fn hand_down<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        bucket: DueBucket,
        now: u64,
        max: usize,
    ) -> usize {
        let number = self.list_number(self.number(bucket));
        let narrow = self.geometry.is_narrow(bucket.level);
        let mut moved = 0;
        while moved < max {
            let Some(entry) = self.lists[number].pop(&mut self.chunks) else {
                break;
            };
            moved += 1;
            // The bucket has the upper half of the deadline, unless it spans more than 2^32 ticks.
            let deadline = if narrow {
                bucket.deadline(entry.low)
            } else {
                nodes.at(entry.index).deadline(entry.low)
            };
            let lower = self.geometry.bucket(deadline.max(now), now);
            let place = self.push_to(lower, entry);
            nodes.at_mut(entry.index).place = place;
        }
        moved
    }

    /// Hands the tasks of a bucket of level 0 over to `sink`, at most `max`; returns how many.
    /// O(max).
    ///
    /// Each task leaves its bucket before the sink runs, which may panic.
    #[inline]
    pub(super) fn hand_over<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        bucket: DueBucket,
        max: usize,
        mut sink: impl FnMut(&mut Nodes<T>, Entry),
    ) -> usize {
        let number = self.list_number(self.number(bucket));
        let list = &mut self.lists[number];
        let mut fired = 0;
        while fired < max {
            if fired % AHEAD == 0 {
                list.read_ahead(&self.chunks, nodes);
            }
            let Some(entry) = list.pop(&mut self.chunks) else {
                break;
            };
            fired += 1;
            nodes.at_mut(entry.index).place = NO_PLACE;
            sink(nodes, entry);
        }
        fired
    }

    /// Returns the earliest bucket of each level that holds anything and when it is due, the
    /// coarsest level first. O(levels), and O(1) for each bucket that has emptied since.
    fn earliest(&mut self, now: u64) -> impl Iterator<Item = (DueBucket, u64)> {
        self.levels().rev().filter_map(move |level| {
            let bucket = self.earliest_of(level, now)?;
            Some((bucket, self.due(bucket)))
        })
    }

    /// Returns the earliest bucket of a level that holds anything. Clears the bits before it.
    #[inline]
    fn earliest_of(&mut self, level: usize, now: u64) -> Option<DueBucket> {
        let words = self.words();
        loop {
            step();
            let occupied = &self.occupied[(level - self.finest()) * words..][..words];
            let slot = first_from(occupied, self.geometry.slot_now(level, now))?;
            // A bit is only set for a list that is made.
            let number = (level - self.finest()) * self.stride as usize + slot;
            if !self.lists[self.list_number(number)].is_empty() {
                return Some(self.geometry.bucket_at(level, slot, now));
            }
            // The list has emptied since its bit was set: clear the bit (Occupied).
            self.occupied[number / 64] &= !(1 << (number % 64));
        }
    }

    /// Returns the tick from which a bucket is emptied: its expiration, less its lead.
    #[inline]
    fn due(&self, bucket: DueBucket) -> u64 {
        bucket
            .expiration
            .saturating_sub(self.geometry.lead(bucket.level))
    }

    /// Returns the exact tick at which the first bucket is due. O(levels).
    #[inline]
    pub(super) fn next_due(&mut self, now: u64) -> Option<u64> {
        self.earliest(now).map(|(_, due)| due).min()
    }

    /// Returns the bucket due at `tick` that expires first (Cascade first); if there is none, the
    /// error is the result of [`next_due`](Self::next_due). O(levels).
    ///
    /// So due tasks come before those handed down ahead of their time.
    #[inline]
    pub(super) fn first_due(&mut self, tick: u64, now: u64) -> Result<DueBucket, Option<u64>> {
        let mut first: Option<DueBucket> = None;
        let mut next_due = None;
        for (bucket, due) in self.earliest(now) {
            if due > tick {
                next_due = Some(next_due.map_or(due, |next| due.min(next)));
            } else if first.is_none_or(|first| bucket.expiration < first.expiration) {
                // Of buckets that expire together, the coarsest level's comes first.
                first = Some(bucket);
            }
        }
        first.ok_or(next_due)
    }

    /// Checks One round, Occupied, Owned and every Place; returns how many nodes are in buckets.
    /// O(n + buckets).
    pub(super) fn assert_valid<T>(&self, nodes: &Nodes<T>, now: u64) -> usize {
        let mut count = 0;
        let mut chunks = 0;
        for (at, list) in self.lists.iter().enumerate() {
            if list.is_empty() {
                continue; // its bit may be stale
            }
            let number = self.number_of_list(at);
            let bit = self.occupied[number / 64] >> (number % 64) & 1 == 1;
            assert!(bit, "Occupied");
            for place in list.places(&self.chunks) {
                assert_eq!(self.owner(place), at, "Owned");
                self.assert_placed(nodes, now, place);
                count += 1;
                chunks += usize::from(place % SPAN == 0 && place & FIRST == 0);
            }
        }
        // No chunk is in use beside those that were seen.
        assert_eq!(self.chunks.len(), chunks, "Owned");
        count
    }

    /// Checks the entry at a place against its node.
    fn assert_placed<T>(&self, nodes: &Nodes<T>, now: u64, place: u32) {
        step();
        let entry = self.entry(place);
        let node = nodes.at(entry.index);
        let deadline = node.deadline(entry.low);
        assert_eq!(node.place, place, "Place");
        let (level, slot) = self.bucket_of(node).expect("Place");
        // The slot and the present say which unit of time the bucket holds.
        let bucket = self.geometry.bucket_at(level, slot, now);
        assert!(self.geometry.holds(bucket, deadline, now), "One round");
        node.task();
    }
}

/// Returns the first bit set at or after `start`, wrapping around once.
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

/// Returns the first bit set in one word under a mask, numbered over all words.
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

    fn buckets() -> (Nodes<()>, Buckets) {
        (
            Nodes::default(),
            Buckets::new(Geometry::new(WheelSize::KAFKA, 1, 0)),
        )
    }

    /// Puts a node into its bucket; returns when that is due.
    fn place(
        nodes: &mut Nodes<()>,
        buckets: &mut Buckets,
        index: u32,
        deadline: u64,
        now: u64,
    ) -> u64 {
        let placed = buckets.put(index, deadline, now);
        nodes.at_mut(index).place = placed.place;
        placed.due
    }

    fn node(nodes: &mut Nodes<()>, deadline: u64) -> u32 {
        let index = nodes.claim().unwrap();
        *nodes.at_mut(index) = Node {
            high: (deadline >> 32) as u32,
            task: Some(()),
            ..Node::vacant()
        };
        index
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
            let head = buckets.first_due(7, 7).unwrap();
            let mut left = Vec::new();
            buckets.hand_over(&mut nodes, head, 2, |_, entry| left.push(entry.index));
            assert_eq!(left, [indices[survivor]]);
        }
    }
}
