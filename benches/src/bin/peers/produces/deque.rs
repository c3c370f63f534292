//! In the order of arrival, in a `VecDeque`: right as long as offsets rise and time-outs are equal,
//! so that only the front can be reached or due.

use std::collections::VecDeque;

use super::{
    locked::{Batch, Queue},
    produce::Produce,
};

#[derive(Default)]
pub(crate) struct InOrder(VecDeque<(Produce, u64)>);

impl InOrder {
    fn take_while(&mut self, taken: &mut Batch, over: impl Fn(&(Produce, u64)) -> bool) {
        while let Some((produce, _)) = self.0.pop_front_if(|front| over(front)) {
            taken.push(produce);
        }
    }
}

impl Queue for InOrder {
    const NAME: &'static str = "deque";

    fn insert(&mut self, produce: Produce, deadline_ns: u64) {
        self.0.push_back((produce, deadline_ns));
    }

    fn take_up_to(&mut self, high_watermark: u64, taken: &mut Batch) {
        self.take_while(taken, |(produce, _)| produce.offset <= high_watermark);
    }

    fn take_due(&mut self, now_ns: u64, taken: &mut Batch) {
        self.take_while(taken, |(_, deadline_ns)| *deadline_ns <= now_ns);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
