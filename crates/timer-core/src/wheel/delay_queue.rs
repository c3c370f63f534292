//! `DelayQueue`: the buckets of every level, by when they are due.
//!
//! This is what lets time jump: instead of visiting each tick, the wheel asks for the next bucket
//! that holds anything (Kafka keeps a `java.util.concurrent.DelayQueue` *of buckets* for this). A
//! level is a ring of [`TimerTaskList`]s and a bitmap of those that hold something; a level only
//! ever holds one turn of its ring, so the first set bit at or after the present is its earliest
//! bucket, and the queue's head is the earliest of at most one bucket a level.
//!
//! - **Occupied**: a bucket's bit is set exactly when its list is not empty.
//! - **Cascade first**: of two buckets due at the same tick the higher level comes first, so that
//!   what it hands down is there when the tick itself is reached.

use crate::wheel::{
    arena::{Arena, OnList},
    steps::step,
    task_list::{Chunks, Front, TimerTaskList},
};

/// A bucket that is due at `expiration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueBucket {
    pub(crate) level: usize,
    pub(crate) slot: usize,
    pub(crate) expiration: u64,
}

#[derive(Debug)]
struct Level {
    buckets: Box<[TimerTaskList]>,
    occupied: Box<[u64]>,
}

#[derive(Debug)]
pub(crate) struct DelayQueue {
    slots: usize,
    /// Made on demand, from the finest up.
    levels: Vec<Level>,
    chunks: Chunks,
}

impl DelayQueue {
    pub(crate) fn new(slots: usize) -> Self {
        DelayQueue { slots, levels: Vec::new(), chunks: Chunks::new() }
    }

    /// Calls `told` with the level, expiration and length of each bucket that holds anything.
    pub(crate) fn each_bucket(&self, mut told: impl FnMut(usize, u64, usize)) {
        for (number, level) in self.levels.iter().enumerate() {
            for list in level.buckets.iter().filter(|list| !list.is_empty()) {
                told(number, list.expiration(), list.len());
            }
        }
    }

    pub(crate) fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Puts a node into a bucket; the first one in says when the bucket is due.
    #[inline]
    pub(crate) fn add<T>(&mut self, nodes: &mut Arena<T>, index: u32, bucket: DueBucket) {
        while self.levels.len() <= bucket.level {
            self.levels.push(Level::new(self.slots));
        }
        let level = &mut self.levels[bucket.level];
        let list = &mut level.buckets[bucket.slot];
        if list.is_empty() {
            list.set_expiration(bucket.expiration);
            level.occupied[bucket.slot / 64] |= 1 << (bucket.slot % 64);
        }
        debug_assert_eq!(list.expiration(), bucket.expiration, "one turn a level");
        list.add(nodes, &mut self.chunks, index, OnList::bucket(bucket.level, bucket.slot));
    }

    /// Takes a node out of its bucket. O(1).
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        let (level, slot) = nodes.at(index).on_list.level_and_slot();
        let level = &mut self.levels[level];
        let list = &mut level.buckets[slot];
        list.remove(nodes, &mut self.chunks, index);
        if list.is_empty() {
            level.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// The earliest bucket that holds anything; `slot_now(level)` is the slot of the present.
    /// O(levels).
    pub(crate) fn peek(&self, slot_now: impl Fn(usize) -> usize) -> Option<DueBucket> {
        let mut earliest: Option<DueBucket> = None;
        for (number, level) in self.levels.iter().enumerate().rev() {
            step();
            let Some(slot) = level.first_occupied_from(slot_now(number)) else { continue };
            let expiration = level.buckets[slot].expiration();
            if earliest.is_none_or(|bucket| expiration < bucket.expiration) {
                earliest = Some(DueBucket { level: number, slot, expiration });
            }
        }
        earliest
    }

    /// The earliest deadline in any bucket: it is in the earliest bucket of its level.
    pub(crate) fn earliest_deadline<T>(
        &self,
        nodes: &Arena<T>,
        slot_now: impl Fn(usize) -> usize,
    ) -> Option<u64> {
        let levels = self.levels.iter().enumerate();
        let first = |(number, level): (usize, &Level)| {
            let slot = level.first_occupied_from(slot_now(number))?;
            level.buckets[slot].earliest_deadline(nodes, &self.chunks)
        };
        levels.filter_map(first).min()
    }

    /// The earliest bucket of a level.
    pub(crate) fn earliest_of(&self, level: usize, slot_now: usize) -> Option<DueBucket> {
        let buckets = &self.levels[level];
        let slot = buckets.first_occupied_from(slot_now)?;
        Some(DueBucket { level, slot, expiration: buckets.buckets[slot].expiration() })
    }

    /// The earliest deadline among some of a bucket: see [`TimerTaskList::earliest_below`].
    pub(crate) fn earliest_below<T>(
        &self,
        nodes: &Arena<T>,
        bucket: DueBucket,
        from: &mut usize,
        budget: &mut usize,
    ) -> Option<u64> {
        let list = &self.levels[bucket.level].buckets[bucket.slot];
        list.earliest_below(nodes, &self.chunks, from, budget)
    }

    /// The first nodes of a bucket: see [`TimerTaskList::front`].
    pub(crate) fn front<T>(&self, nodes: &Arena<T>, bucket: DueBucket) -> Front {
        self.levels[bucket.level].buckets[bucket.slot].front(nodes, &self.chunks)
    }

    /// Takes the first node, which is `index`, out of a bucket. O(1).
    #[inline]
    pub(crate) fn pop_front<T>(&mut self, nodes: &mut Arena<T>, bucket: DueBucket, index: u32) {
        let level = &mut self.levels[bucket.level];
        let list = &mut level.buckets[bucket.slot];
        list.pop_front(nodes, &mut self.chunks, index);
        if list.is_empty() {
            level.occupied[bucket.slot / 64] &= !(1 << (bucket.slot % 64));
        }
    }

    /// Checks Occupied and every list; returns how many nodes are in buckets. O(n + buckets).
    pub(crate) fn assert_valid<T>(&self, nodes: &Arena<T>) -> usize {
        let (mut count, mut chunks) = (0, 0);
        for (number, level) in self.levels.iter().enumerate() {
            for (slot, list) in level.buckets.iter().enumerate() {
                let bit = level.occupied[slot / 64] >> (slot % 64) & 1 == 1;
                assert_eq!(bit, !list.is_empty(), "Occupied");
                chunks += list.assert_valid(nodes, &self.chunks, OnList::bucket(number, slot));
                count += list.len();
            }
        }
        assert_eq!(self.chunks.len(), chunks, "Packed");
        count
    }
}

impl Level {
    fn new(slots: usize) -> Self {
        Level {
            buckets: std::iter::repeat_with(TimerTaskList::default).take(slots).collect(),
            occupied: vec![0; slots.div_ceil(64)].into(),
        }
    }

    /// The first occupied slot at or after `start`, going round once.
    fn first_occupied_from(&self, start: usize) -> Option<usize> {
        let first = start / 64;
        let words = self.occupied.len();
        for step in 0..=words {
            let number = (first + step) % words;
            let mut word = self.occupied[number];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            } else if step == words {
                word &= !(u64::MAX << (start % 64));
            }
            if word != 0 {
                return Some(number * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_occupied_slot_is_found_going_round() {
        for slots in [2, 20, 64, 65, 200] {
            for occupied in 0..slots {
                let mut level = Level::new(slots);
                level.occupied[occupied / 64] |= 1 << (occupied % 64);
                for start in 0..slots {
                    assert_eq!(level.first_occupied_from(start), Some(occupied));
                }
            }
            assert_eq!(Level::new(slots).first_occupied_from(slots - 1), None);
        }
    }

    #[test]
    fn of_two_occupied_slots_the_one_ahead_wins() {
        let mut level = Level::new(200);
        for slot in [10, 150] {
            level.occupied[slot / 64] |= 1 << (slot % 64);
        }
        assert_eq!(level.first_occupied_from(11), Some(150));
        assert_eq!(level.first_occupied_from(151), Some(10));
        assert_eq!(level.first_occupied_from(10), Some(10));
    }

    #[test]
    fn the_first_task_of_a_cycle_says_when_its_bucket_is_due() {
        let mut nodes = Arena::new();
        let mut queue = DelayQueue::new(20);
        for expiration in [10_000, 10_400] {
            let bucket = DueBucket { level: 2, slot: 5, expiration };
            let indices =
                ["a", "b"].map(|task| nodes.insert(expiration + 7, 0, task).unwrap().index);
            indices.iter().for_each(|&index| queue.add(&mut nodes, index, bucket));
            assert_eq!(queue.peek(|_| 0), Some(bucket));
            // 10 s, after 5 s: 5 s left.
            assert_eq!(bucket.expiration - (expiration - 5_000), 5_000);
            indices.iter().for_each(|&index| queue.remove(&mut nodes, index));
            assert_eq!(queue.peek(|_| 0), None);
        }
    }

    #[test]
    fn of_two_buckets_due_together_the_higher_level_comes_first() {
        let mut nodes = Arena::new();
        let mut queue = DelayQueue::new(20);
        for (level, slot, expiration) in [(0, 0, 20), (1, 1, 20), (0, 3, 23)] {
            let index = nodes.insert(expiration, 0, ()).unwrap().index;
            queue.add(&mut nodes, index, DueBucket { level, slot, expiration });
        }
        let head = queue.peek(|_| 0).unwrap();
        assert_eq!((head.level, head.expiration), (1, 20));
        assert_eq!(queue.assert_valid(&nodes), 3);
    }
}
