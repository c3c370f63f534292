//! The waits of one key, by threshold: [`Queue`]. Pure.
//!
//! Offsets only grow, so nearly every wait is appended to a sorted *run*, and an advance takes its
//! front. The few waits for less than the run's end lie in a tree beside it. A run is a vector
//! whose first items may have left: a ring would take twice the steps.
//!
//! - **Front**: neither the first nor the last item of the run is a gap. A wait that leaves the
//!   middle early leaves a gap; a wait that leaves an end takes the gaps beside it along.
//! - **Few gaps**: at most half of a run's items, or [`GAPS_MAX`], are gaps.
//! - **Over**: a run keeps no items in memory once all of them have left.

use std::collections::BTreeMap;

use timer_core::TaskId;

use crate::table::peak::shrunk;

/// The number of gaps that a short run may have.
const GAPS_MAX: usize = 64;

/// The capacity up to which a run keeps its memory.
const KEPT: usize = 64;

/// The index of a gap.
const GAP: u32 = u32::MAX;

/// The order of waits: by threshold, then by parking.
type Place = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Item {
    threshold: u64,
    /// The number of its insertion.
    sequence: u64,
    /// The index of its entry.
    index: u32,
}

impl Item {
    fn place(&self) -> Place {
        (self.threshold, self.sequence)
    }
}

/// The waits of one key.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The run, after the items that have left.
    run: Vec<Item>,
    /// The number of items that have left.
    left: u32,
    gaps: u32,
    /// The waits for less than the end of the run, by place. `None` for most keys.
    #[expect(
        clippy::box_collection,
        reason = "most keys have none: 8 bytes instead of 24"
    )]
    below: Option<Box<BTreeMap<Place, u32>>>,
}

impl Queue {
    /// Returns true if the queue has no waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.run.is_empty() && self.below.is_none()
    }

    /// Returns the number of waits.
    pub(crate) fn len(&self) -> usize {
        let below = self.below.as_ref().map_or(0, |below| below.len());
        self.run_len() - self.gaps as usize + below
    }

    /// Returns the length of the run, with its gaps.
    fn run_len(&self) -> usize {
        self.run.len() - self.left as usize
    }

    /// Returns the first item of the run.
    fn front(&self) -> Option<&Item> {
        self.run.get(self.left as usize)
    }

    /// Adds a wait. O(1), amortised, at the end, O(log n) elsewhere.
    #[inline(always)]
    pub(crate) fn push(&mut self, threshold: u64, id: TaskId) {
        let item = Item {
            threshold,
            sequence: id.sequence(),
            index: id.index(),
        };
        match self.run.last() {
            Some(last) if last.threshold > threshold => self.push_below(item),
            _ => {
                if self.run.len() == self.run.capacity() {
                    self.make_room();
                }
                self.run.push(item);
            }
        }
    }

    #[inline(never)]
    fn push_below(&mut self, item: Item) {
        let below = self.below.get_or_insert_default();
        below.insert(item.place(), item.index);
    }

    /// Makes room for another item in place of those that have left, if they are a quarter.
    /// Otherwise the run will grow. Most keys have one wait at a time, so the first takes room for
    /// one only.
    #[cold]
    fn make_room(&mut self) {
        if self.run.is_empty() {
            self.run.reserve_exact(1);
        } else if self.left as usize >= self.run.len() / 4 {
            self.close_up();
        }
    }

    /// Moves the run to the start of its memory. O(n).
    fn close_up(&mut self) {
        self.run.drain(..self.left as usize);
        self.left = 0;
    }

    /// Returns the lowest threshold. O(1) in a run.
    #[inline]
    pub(crate) fn lowest(&self) -> Option<u64> {
        let in_run = self.front().map(|item| item.threshold);
        let Some(below) = &self.below else {
            return in_run;
        };
        let first = below.first_key_value().map(|(place, _)| place.0);
        match (in_run, first) {
            (Some(in_run), Some(first)) => Some(in_run.min(first)),
            (in_run, first) => in_run.or(first),
        }
    }

    /// Returns the lowest threshold above a value. O(1) if it is the lowest of all, otherwise O(log
    /// n) plus the gaps beside it.
    pub(crate) fn lowest_above(&self, value: u64) -> Option<u64> {
        let lowest = self.lowest()?;
        if lowest > value {
            return Some(lowest);
        }
        let run = &self.run[self.left as usize..];
        let from = run.partition_point(|item| item.threshold <= value);
        let in_run = run[from..].iter().find(|item| item.index != GAP);
        let in_run = in_run.map(|item| item.threshold);
        let below = self.below.as_ref();
        let first = below.and_then(|below| below.range((value, u64::MAX)..).next());
        let first = first.map(|(place, _)| place.0);
        in_run.into_iter().chain(first).min()
    }

    /// Returns true if a wait is for more than a value. O(log n).
    pub(crate) fn has_above(&self, value: u64) -> bool {
        let in_run = self.run.last().map(|item| item.threshold); // no gap (Front)
        let last = self.below.as_ref().and_then(|below| below.last_key_value());
        in_run.max(last.map(|(place, _)| place.0)) > Some(value)
    }

    /// Removes the lowest wait if its threshold is at most `value`; returns its entry.
    #[inline]
    pub(crate) fn pop_up_to(&mut self, value: u64) -> Option<TaskId> {
        // 1. A wait below the run, if it is the lowest of all.
        if self.below.is_some() {
            if let Some(id) = self.pop_below(value) {
                return Some(id);
            }
        }
        // 2. The front of the run.
        let front = self.front().filter(|item| item.threshold <= value)?;
        let id = TaskId::from_parts(front.index, front.sequence);
        self.left += 1;
        self.drop_gaps();
        Some(id)
    }

    /// Removes the lowest wait below the run, if it comes before the run's front and is for at most
    /// `value`.
    fn pop_below(&mut self, value: u64) -> Option<TaskId> {
        let front = self.front().map(Item::place);
        let below = self.below.as_mut()?;
        let first = below.first_entry()?;
        let place = *first.key();
        if place.0 > value || front.is_some_and(|front| front < place) {
            return None;
        }
        let index = first.remove();
        self.drop_below();
        Some(TaskId::from_parts(index, place.1))
    }

    /// Removes a wait that leaves early. O(log n).
    pub(crate) fn remove(&mut self, threshold: u64, id: TaskId) {
        let place = (threshold, id.sequence());
        if let Some(below) = &mut self.below {
            if below.remove(&place).is_some() {
                self.drop_below();
                return;
            }
        }
        let run = &mut self.run[self.left as usize..];
        let at = run.partition_point(|item| item.place() < place);
        if let Some(item) = run.get_mut(at).filter(|item| item.place() == place) {
            item.index = GAP;
            self.gaps += 1;
            self.drop_gaps();
        }
    }

    /// Frees an empty tree.
    fn drop_below(&mut self) {
        if self.below.as_ref().is_some_and(|below| below.is_empty()) {
            self.below = None;
        }
    }

    /// Restores Front, Few gaps and Over, and frees the memory of a peak. O(1) amortised.
    #[inline]
    fn drop_gaps(&mut self) {
        if self.gaps > 0 {
            self.drop_gaps_of_run();
        }
        if self.left as usize == self.run.len() {
            self.run.clear();
            self.left = 0;
        }
        if let Some(capacity) = shrunk(self.run_len(), self.run.capacity(), KEPT) {
            self.close_up();
            self.run.shrink_to(capacity);
        }
    }

    fn drop_gaps_of_run(&mut self) {
        let is_gap = |item: &Item| item.index == GAP;
        while self.front().is_some_and(is_gap) {
            self.left += 1;
            self.gaps -= 1;
        }
        // If there are no gaps, the last item may be one that has left.
        while self.gaps > 0 && self.run.last().is_some_and(is_gap) {
            self.run.pop();
            self.gaps -= 1;
        }
        if self.gaps as usize > GAPS_MAX.max(self.run_len() / 2) {
            self.close_up();
            self.run.retain(|item| !is_gap(item));
            self.gaps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Queue {
        /// Asserts the invariants.
        fn assert_valid(&self) {
            let is_gap = |item: &Item| item.index == GAP;
            let run = &self.run[self.left as usize..];
            assert!(!run.first().is_some_and(is_gap), "Front");
            assert!(!run.last().is_some_and(is_gap), "Front");
            let gaps = run.iter().filter(|item| is_gap(item)).count();
            assert_eq!(gaps, self.gaps as usize);
            assert!(gaps <= GAPS_MAX.max(run.len() / 2), "Few gaps");
            assert!(!run.is_empty() || self.run.is_empty(), "Over");
            assert!(run.iter().is_sorted_by_key(Item::place));
            assert!(self.below.as_ref().is_none_or(|below| !below.is_empty()));
        }
    }

    fn id(number: u64) -> TaskId {
        TaskId::from_parts(number as u32, number)
    }

    /// Compares random steps with a map by place.
    #[test]
    fn random_steps_agree_with_a_map() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let mut queue = Queue::default();
            let mut map = BTreeMap::new();
            for number in 1..600 {
                match random.u8(0..10) {
                    0..5 => {
                        let threshold = random.u64(0..60) + number / 8;
                        queue.push(threshold, id(number));
                        map.insert((threshold, number), number as u32);
                    }
                    5..8 => {
                        let at = random.usize(0..map.len().max(1));
                        if let Some((&place, _)) = map.iter().nth(at) {
                            queue.remove(place.0, id(place.1));
                            map.remove(&place);
                        }
                    }
                    _ => {
                        let value = random.u64(0..30) + number / 8;
                        let last = map.last_key_value().map(|(place, _)| place.0);
                        assert_eq!(queue.has_above(value), last > Some(value));
                        let lowest = map.first_entry().filter(|lowest| lowest.key().0 <= value);
                        let popped = queue.pop_up_to(value).map(TaskId::index);
                        assert_eq!(popped, lowest.map(|lowest| lowest.remove()));
                    }
                }
                queue.assert_valid();
                assert_eq!(queue.len(), map.len());
                assert_eq!(queue.is_empty(), map.is_empty());
                for value in [0, random.u64(0..140)] {
                    let mut above = map.keys().map(|place| place.0).filter(|&it| it > value);
                    assert_eq!(queue.lowest_above(value), above.next());
                }
                assert_eq!(
                    queue.lowest(),
                    map.first_key_value().map(|(place, _)| place.0)
                );
            }
        }
    }

    /// A queue of a hundred waits: for each that arrives, the first leaves.
    #[test]
    fn a_run_that_moves_along_keeps_its_memory() {
        let mut queue = Queue::default();
        let mut moved = 0;
        for number in 0..100_000 {
            queue.push(number, id(number));
            moved += u32::from(queue.left == 0);
            if let Some(reached) = number.checked_sub(100) {
                assert_eq!(queue.pop_up_to(reached), Some(id(reached)));
                moved += u32::from(queue.left == 0);
            }
            queue.assert_valid();
        }
        assert!(moved < 1000, "{moved}");
        assert!(queue.run.capacity() <= 256, "{}", queue.run.capacity());
    }

    #[test]
    fn the_memory_of_a_peak_is_given_back() {
        let mut queue = Queue::default();
        for number in 0..10_000 {
            queue.push(number, id(number));
        }
        let mut closed_up = Vec::new();
        for number in 1..9_999 {
            queue.remove(number, id(number));
            if queue.gaps == 0 {
                closed_up.push(number);
            }
        }
        assert_eq!(closed_up[0], 5_001, "half of them may be gaps");
        assert!(closed_up.len() < 20, "{closed_up:?}");
        assert!(queue.run.capacity() <= 4 * KEPT, "{}", queue.run.capacity());
        assert_eq!(queue.pop_up_to(0), Some(id(0)));
        assert_eq!(queue.pop_up_to(9_999), Some(id(9_999)));
        assert!(queue.is_empty());
    }
}
