//! `DelayQueue`: the buckets of every level, by when they are due.
//!
//! This is what lets time jump: instead of visiting each tick, the wheel asks for the next bucket
//! that holds anything (Kafka keeps a `java.util.concurrent.DelayQueue` *of buckets* for this). A
//! level is a ring of [`TimerTaskList`]s and a bitmap of those that hold something; a level only
//! ever holds one round of its ring, so the first set bit at or after the present is its earliest
//! bucket, and the queue's head is the earliest of at most one bucket a level.
//!
//! - **One round**: a bucket holds one unit of time, less than a round of its ring ahead. Which one
//!   follows from its slot and the present.
//! - **Occupied**: a bucket's bit is set exactly when its list is not empty.
//! - **Cascade first**: of two buckets that expire at the same tick that of the higher level comes
//!   first: what it hands down is there when the tick itself is reached.

use crate::wheel::{
    arena::Arena,
    geometry::{DueBucket, Geometry, WheelSize},
    pages::Records,
    steps::step,
    task_list::{Chunk, Chunks, Front, ListId, TimerTaskList, list_of},
};

/// Handing down more tasks than this takes a time worth having before the bucket expires.
const CROWD: usize = 64;

const _: () = assert!(2 * WheelSize::MAX <= ListId::SLOTS, "level 0 may have two turns");

#[derive(Debug)]
struct Level {
    buckets: Box<[TimerTaskList]>,
    occupied: Box<[u64]>,
}

#[derive(Debug)]
pub(crate) struct DelayQueue {
    geometry: Geometry,
    /// Made on demand, from the finest up.
    levels: Vec<Level>,
    chunks: Chunks,
}

impl DelayQueue {
    pub(crate) fn new(geometry: Geometry) -> Self {
        DelayQueue { geometry, levels: Vec::new(), chunks: Chunks::new() }
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Gives level 0 two turns, unless a level was made already.
    pub(crate) fn take_two_turns(&mut self) {
        if self.levels.is_empty() {
            self.geometry.take_two_turns();
        }
    }

    pub(crate) fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Puts a node into the bucket of a deadline, which `now` is not after; returns when that is
    /// due. O(levels).
    #[inline]
    pub(crate) fn place<T>(
        &mut self,
        nodes: &mut Arena<T>,
        index: u32,
        deadline: u64,
        now: u64,
    ) -> u64 {
        let bucket = self.geometry.bucket(deadline, now);
        while self.levels.len() <= bucket.level {
            self.levels.push(Level::new(self.geometry.buckets(self.levels.len())));
        }
        let level = &mut self.levels[bucket.level];
        let list = &mut level.buckets[bucket.slot];
        if list.is_empty() {
            level.occupied[bucket.slot / 64] |= 1 << (bucket.slot % 64);
        }
        list.add(nodes, &mut self.chunks, index, ListId::bucket(bucket.level, bucket.slot));
        self.due(bucket)
    }

    /// When a bucket is due: as it expires, or before it if it is crowded.
    #[inline]
    fn due(&self, bucket: DueBucket) -> u64 {
        let crowded = self.levels[bucket.level].buckets[bucket.slot].len() > CROWD;
        bucket.expiration - if crowded { self.geometry.lead(bucket.level) } else { 0 }
    }

    /// Level and slot of a node's bucket, if it is in one. O(1).
    #[inline]
    pub(crate) fn level_and_slot<T>(&self, nodes: &Arena<T>, index: u32) -> Option<(usize, usize)> {
        let entry = nodes.at(index).position.entry_at()?;
        Some(list_of(&self.chunks, entry).level_and_slot())
    }

    /// As `Pages::is_untidy`, of the lists' chunks. O(1).
    pub(crate) fn is_untidy(&self) -> bool {
        self.chunks.is_untidy()
    }

    /// Takes off what the lists of a peak have left behind.
    pub(crate) fn take_leftover(&mut self) -> Option<Records<Chunk>> {
        self.chunks.take_records()
    }

    /// Takes a node out of its bucket. O(1).
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        let place = self.level_and_slot(nodes, index);
        let (level, slot) = place.expect("Position: the node is in a bucket");
        let level = &mut self.levels[level];
        let list = &mut level.buckets[slot];
        list.remove(nodes, &mut self.chunks, index);
        if list.is_empty() {
            level.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// The earliest bucket of each level that holds anything, the coarsest level first. O(levels).
    #[inline]
    fn earliest(&self, now: u64) -> impl Iterator<Item = DueBucket> {
        (0..self.levels.len()).rev().filter_map(move |level| {
            step();
            self.earliest_of(level, now)
        })
    }

    /// The earliest bucket of a level.
    #[inline]
    pub(crate) fn earliest_of(&self, level: usize, now: u64) -> Option<DueBucket> {
        let slot_now = self.geometry.slot_now(level, now);
        let slot = self.levels[level].first_occupied_from(slot_now)?;
        Some(self.geometry.bucket_at(level, slot, now))
    }

    /// When the first bucket is due, exactly. O(levels).
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        self.earliest(now).map(|bucket| self.due(bucket)).min()
    }

    /// Of the buckets that are due at `tick` the one that expires first (Cascade first). O(levels).
    pub(crate) fn first_due(&self, tick: u64, now: u64) -> Option<DueBucket> {
        let due = self.earliest(now).filter(|&bucket| self.due(bucket) <= tick);
        due.min_by_key(|bucket| bucket.expiration) // of equal ones the first
    }

    /// The earliest deadline in any bucket: it is in the earliest bucket of its level.
    pub(crate) fn earliest_deadline<T>(&self, nodes: &Arena<T>, now: u64) -> Option<u64> {
        let of_bucket = |bucket: DueBucket| {
            let list = &self.levels[bucket.level].buckets[bucket.slot];
            list.earliest_deadline(nodes, &self.chunks)
        };
        self.earliest(now).filter_map(of_bucket).min()
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

    /// Checks One round, Occupied and every list; returns how many nodes are in buckets.
    /// O(n + buckets).
    pub(crate) fn assert_valid<T>(&self, nodes: &Arena<T>, now: u64) -> usize {
        let (mut count, mut chunks) = (0, 0);
        for (number, level) in self.levels.iter().enumerate() {
            for (slot, list) in level.buckets.iter().enumerate() {
                let bit = level.occupied[slot / 64] >> (slot % 64) & 1 == 1;
                assert_eq!(bit, !list.is_empty(), "Occupied");
                let list_id = ListId::bucket(number, slot);
                chunks += list.assert_valid(nodes, &self.chunks, list_id, |deadline| {
                    let bucket = self.geometry.bucket_at(number, slot, now);
                    self.geometry.holds(bucket, deadline, now)
                });
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

    fn queue() -> DelayQueue {
        DelayQueue::new(Geometry::new(WheelSize::KAFKA, 0))
    }

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
    fn a_slot_and_the_present_say_when_a_bucket_is_due() {
        let (mut nodes, mut queue) = (Arena::new(), queue());
        for (now, expiration) in [(5000, 10_000), (7990, 10_000), (10_000, 10_400)] {
            let [a, b] = ["a", "b"].map(|task| nodes.insert(0, 0, task).unwrap().index);
            assert_eq!(queue.place(&mut nodes, a, expiration + 399, now), expiration);
            assert_eq!(queue.place(&mut nodes, b, expiration, now), expiration);
            assert_eq!(queue.next_due(now), Some(expiration));
            assert_eq!(queue.first_due(expiration, now).unwrap().level, 2);
            assert_eq!(queue.first_due(expiration - 1, now), None);
            [a, b].into_iter().for_each(|index| queue.remove(&mut nodes, index));
            assert_eq!(queue.next_due(now), None);
        }
    }

    #[test]
    fn of_two_buckets_due_together_the_higher_level_comes_first() {
        let (mut nodes, mut queue) = (Arena::new(), queue());
        for (now, deadline) in [(0, 39), (20, 20), (20, 23)] {
            let index = nodes.insert(deadline, 0, ()).unwrap().index;
            queue.place(&mut nodes, index, deadline, now);
        }
        let head = queue.first_due(23, 20).unwrap();
        assert_eq!((head.level, head.expiration), (1, 20));
        assert_eq!(queue.assert_valid(&nodes, 20), 3);
    }

    #[test]
    fn with_two_turns_a_crowded_bucket_is_due_before_it_expires_but_after_what_expires_earlier() {
        let (mut nodes, mut queue) = (Arena::new(), queue());
        queue.take_two_turns();
        let mut place = |queue: &mut DelayQueue, deadline, now| {
            let index = nodes.insert(deadline, 0, ()).unwrap().index;
            queue.place(&mut nodes, index, deadline, now)
        };
        assert_eq!(place(&mut queue, 39, 0), 39);
        (0..CROWD).for_each(|_| assert_eq!(place(&mut queue, 59, 0), 40));
        assert_eq!((queue.next_due(0), place(&mut queue, 59, 0)), (Some(39), 35)); // a crowd
        assert_eq!((queue.next_due(0), queue.first_due(34, 0)), (Some(35), None));
        let first = |queue: &DelayQueue, tick| queue.first_due(tick, 35).unwrap().expiration;
        assert_eq!((first(&queue, 35), first(&queue, 39)), (40, 39));
        assert_eq!(place(&mut queue, 59, 35), 59); // what it holds has a slot of level 0 by then
        assert_eq!((queue.levels[0].buckets.len(), queue.levels[1].buckets.len()), (40, 20));
    }
}
