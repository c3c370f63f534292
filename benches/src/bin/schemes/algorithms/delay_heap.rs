//! A priority queue of timers.

use purgatory_benches::{LazyHeap, delays::Queue as _};

use super::scheme::{Claim, Refused, Scheme, Task};

/// The earliest deadline is on top of a binary heap; a tick looks at it.
///
/// O(log n) to start (at worst: a later deadline than most stays near the bottom) and to fire. Stop
/// is *lazy*, and the trap is the memory of the dead: [`LazyHeap`].
/// `java.util.concurrent.DelayQueue`; Kafka's first purgatory; scheme 3 of Varghese and Lauck.
#[derive(Debug, Default)]
pub(crate) struct DelayHeap {
    now: u64,
    started: u64,
    timers: LazyHeap,
}

impl Scheme for DelayHeap {
    const NAME: &'static str = "delay-heap";
    const CLAIM: Claim = ["O(log n)", "O(1)", "O(1)", "O(log n)"];
    type Handle = u64;

    fn start(&mut self, delay: u64, task: Task) -> Result<u64, Refused> {
        self.started += 1;
        let deadline = self.now.saturating_add(delay.max(1));
        self.timers.insert(deadline, self.started, task);
        Ok(self.started)
    }

    fn stop(&mut self, handle: u64) -> bool {
        self.timers.remove(handle)
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        self.now += ticks;
        while self.timers.next_due().is_some_and(|deadline| deadline <= self.now) {
            fired.extend(self.timers.pop());
        }
    }

    fn pending(&self) -> usize {
        self.timers.len()
    }
}
