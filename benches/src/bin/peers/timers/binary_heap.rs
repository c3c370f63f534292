//! `std`'s `BinaryHeap` with lazy deletion.

pub(crate) use purgatory_benches::LazyHeap;

use super::queue_thread::Queue;

impl Queue for LazyHeap {
    const NAME: &'static str = "binary-heap";

    fn remove(&mut self, _: u64, number: u64) -> bool {
        self.remove(number)
    }

    fn len(&self) -> usize {
        self.len()
    }
}
