//! `std`'s `BTreeMap` keyed by (deadline, number): ordered, and a cancel removes at once.

use std::collections::BTreeMap;

use purgatory_benches::delays;

use super::queue_thread::Queue;

#[derive(Default)]
pub(crate) struct DeadlineMap(BTreeMap<(u64, u64), u64>);

impl delays::Queue for DeadlineMap {
    type Item = u64;

    fn insert(&mut self, due: u64, number: u64, payload: u64) {
        self.0.insert((due, number), payload);
    }

    fn next_due(&mut self) -> Option<u64> {
        self.0.first_key_value().map(|((due, _), _)| *due)
    }

    fn pop(&mut self) -> Option<u64> {
        self.0.pop_first().map(|(_, payload)| payload)
    }
}

impl Queue for DeadlineMap {
    const NAME: &'static str = "btree-map";

    fn remove(&mut self, due: u64, number: u64) -> bool {
        self.0.remove(&(due, number)).is_some()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
