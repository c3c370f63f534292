//! By offset, in a `BTreeMap`: offsets may come in any order, and time-outs differ. For a time-out
//! the whole map is looked through, but only once the earliest may be due.

use std::collections::BTreeMap;

use super::{
    locked::{Batch, Queue},
    produce::Produce,
};

#[derive(Default)]
pub(crate) struct ByOffset {
    /// A number tells those apart that wait for the same offset.
    waiting: BTreeMap<(u64, u64), (Produce, u64)>,
    number: u64,
    /// No deadline is earlier.
    earliest_ns: Option<u64>,
}

impl Queue for ByOffset {
    const NAME: &'static str = "btree-map";

    fn insert(&mut self, produce: Produce, deadline_ns: u64) {
        self.number += 1;
        self.waiting.insert((produce.offset, self.number), (produce, deadline_ns));
        self.earliest_ns = Some(self.earliest_ns.map_or(deadline_ns, |ns| ns.min(deadline_ns)));
    }

    fn take_up_to(&mut self, high_watermark: u64, taken: &mut Batch) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= high_watermark
        {
            taken.push(first.remove().0);
        }
    }

    fn take_due(&mut self, now_ns: u64, taken: &mut Batch) {
        if self.earliest_ns.is_some_and(|earliest_ns| earliest_ns <= now_ns) {
            let due = self.waiting.extract_if(.., |_, (_, deadline_ns)| *deadline_ns <= now_ns);
            taken.extend(due.map(|(_, (produce, _))| produce));
            self.earliest_ns = self.waiting.values().map(|(_, deadline_ns)| *deadline_ns).min();
        }
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}
