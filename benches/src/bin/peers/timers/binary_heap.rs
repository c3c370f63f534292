//! `std`'s `BinaryHeap` with lazy deletion: a cancel only takes the number out of the set of live
//! ones; the dead leave when they reach the top, or all at once when they are more than the live.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::{HashSet, HashSetExt};

use super::queue_thread::Queue;

/// Below it the heap is not worth compacting.
const SMALL: usize = 64;

pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    live: HashSet<u64>,
}

impl Default for LazyHeap {
    fn default() -> Self {
        LazyHeap { heap: BinaryHeap::new(), live: HashSet::new() }
    }
}

impl Queue for LazyHeap {
    const NAME: &'static str = "binary-heap";

    fn insert(&mut self, due: u64, number: u64, payload: u64) {
        self.heap.push(Reverse((due, number, payload)));
        self.live.insert(number);
    }

    fn remove(&mut self, _: u64, number: u64) -> bool {
        let was_live = self.live.remove(&number);
        if self.heap.len() > 2 * self.live.len() + SMALL {
            self.heap.retain(|Reverse((_, number, _))| self.live.contains(number));
        }
        was_live
    }

    fn next_due(&mut self) -> Option<u64> {
        while let Some(Reverse((due, number, _))) = self.heap.peek() {
            if self.live.contains(number) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    fn pop(&mut self) -> Option<u64> {
        self.next_due()?;
        let Reverse((_, number, payload)) = self.heap.pop()?;
        self.live.remove(&number);
        Some(payload)
    }

    fn len(&self) -> usize {
        self.live.len()
    }
}
