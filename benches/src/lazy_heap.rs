//! `std`'s `BinaryHeap` of deadlines, with lazy deletion.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::HashSet;

use crate::delays::Queue;

/// Below it the heap is not worth a purge.
const SMALL: usize = 64;

/// Deadlines with eight bytes of their owner's; a number makes them distinct, never the same twice.
/// To remove one only takes its number out of the set of live ones: the dead stay in memory until
/// they come to the top, or until they are more than the live and a purge sweeps them out.
#[derive(Debug, Default)]
pub struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    live: HashSet<u64>,
}

impl LazyHeap {
    /// Takes one out; false when it had gone. O(1), amortised.
    #[inline]
    pub fn remove(&mut self, number: u64) -> bool {
        let was_live = self.live.remove(&number);
        if self.heap.len() > 2 * self.live.len() + SMALL {
            self.heap.retain(|Reverse((_, number, _))| self.live.contains(number));
        }
        was_live
    }

    /// How many there are, without the dead.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

impl Queue for LazyHeap {
    type Item = u64;

    #[inline]
    fn insert(&mut self, due: u64, number: u64, item: u64) {
        self.heap.push(Reverse((due, number, item)));
        self.live.insert(number);
    }

    #[inline]
    fn next_due(&mut self) -> Option<u64> {
        while let Some(Reverse((due, number, _))) = self.heap.peek() {
            if self.live.contains(number) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.next_due()?;
        let Reverse((_, number, item)) = self.heap.pop()?;
        self.live.remove(&number);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_stay_until_they_are_more_than_the_living() {
        let mut heap = LazyHeap::default();
        (0..1000).for_each(|number| heap.insert(5, number, number));
        assert!((0..500).all(|number| heap.remove(number)));
        assert_eq!((heap.len(), heap.heap.len()), (500, 1000));
        assert!((500..600).all(|number| heap.remove(number)));
        assert_eq!(heap.len(), 400);
        assert!(heap.heap.len() < 600);
        assert!(std::iter::from_fn(|| heap.pop()).eq(600..1000));
    }
}
