//! The timer one writes by hand: a queue in order of deadline under a mutex, and a thread that
//! waits for the first one. Its lock is never held while a timer fires. The queues are `std`'s
//! `BTreeMap` and `BinaryHeap`, the latter with lazy deletion.

use std::{collections::BTreeMap, time::Duration};

pub(crate) use purgatory_benches::LazyHeap;
use purgatory_benches::delays::{self, Delays};
use timer_core::Clock;

use super::{cores::Core, timer::Timer};
use crate::sink::Sink;

/// Deadlines in order, each with eight bytes of its owner's, that can be taken out.
pub(crate) trait Queue: delays::Queue<Item = u64> {
    const NAME: &'static str;

    fn remove(&mut self, due: u64, number: u64) -> bool;
    fn len(&self) -> usize;
}

impl<Q: Queue> Core for Q {
    const NAME: &'static str = Q::NAME;

    fn insert(&mut self, deadline: u64, id: u64) {
        delays::Queue::insert(self, deadline, id, id);
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.pop().into_iter().for_each(&mut sink);
        }
    }
}

impl Queue for LazyHeap {
    const NAME: &'static str = "binary-heap";

    fn remove(&mut self, _: u64, number: u64) -> bool {
        self.remove(number)
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// Keyed by (deadline, number): ordered, and a cancel removes at once.
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

pub(crate) struct QueueThread<Q: Queue> {
    delays: Delays<Q>,
    sink: &'static Sink,
}

impl<Q: Queue> Timer for QueueThread<Q> {
    const NAME: &'static str = Q::NAME;
    type Handle = (u64, u64);
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let fire = |due: std::vec::Drain<'_, u64>| due.for_each(|due_ns| sink.fired(due_ns));
        Ok(QueueThread { delays: Delays::start(sink.clock(), fire)?, sink })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> (u64, u64) {
        let due = local.sink.clock().now_ns() + delay.as_nanos() as u64;
        (due, local.delays.add(due, due_ns))
    }

    fn cancel(local: &mut Self::Local<'_>, (due, number): (u64, u64)) -> bool {
        local.delays.with(|queue| queue.remove(due, number))
    }

    fn pending(&self) -> Option<usize> {
        Some(self.delays.with(|queue| queue.len()))
    }
}

/// What still pends need not fire.
impl<Q: Queue> Drop for QueueThread<Q> {
    fn drop(&mut self) {
        self.delays.with(|queue| *queue = Q::default());
    }
}
