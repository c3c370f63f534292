//! A plain heap of what is due: what completes the requests at their latency, and what a purgatory
//! over a heap expires them with.

use std::{cmp::Reverse, collections::BinaryHeap};

use purgatory_benches::delays::Queue;

pub(crate) struct Heap<T>(BinaryHeap<Reverse<Due<T>>>);

struct Due<T> {
    at_ns: u64,
    number: u64,
    item: T,
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Due<T> {}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap(BinaryHeap::new())
    }
}

impl<T> Heap<T> {
    /// Keeps the items that `keep` is true for. O(items).
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.0.retain(|due| keep(&due.0.item));
    }
}

impl<T: Send + 'static> Queue for Heap<T> {
    type Item = T;

    fn insert(&mut self, at_ns: u64, number: u64, item: T) {
        self.0.push(Reverse(Due { at_ns, number, item }));
    }

    fn next_due(&mut self) -> Option<u64> {
        self.0.peek().map(|first| first.0.at_ns)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop().map(|due| due.0.item)
    }
}
