//! `std`'s `BinaryHeap` with lazy deletion.

pub(crate) use purgatory_benches::LazyHeap;

use super::queue_thread::Queue;

impl Queue for LazyHeap {
    const NAME: &'static str = "binary-heap";

    fn insert(&mut self, due: u64, number: u64, payload: u64) {
        self.insert(due, number, payload);
    }

    fn remove(&mut self, _: u64, number: u64) -> bool {
        self.remove(number)
    }

    fn next_due(&mut self) -> Option<u64> {
        self.next_due()
    }

    fn pop(&mut self) -> Option<u64> {
        self.pop()
    }

    fn len(&self) -> usize {
        self.len()
    }
}
