//! A priority queue of timers.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::HashSet;

use super::scheme::{Claim, Scheme, Task};

/// The size below which a heap is not worth a purge.
const SMALL: usize = 64;

/// A binary heap with the earliest deadline at the top, which a tick checks.
///
/// A start is O(log n) (at worst: a deadline later than most stays near the bottom), and so is a
/// firing. A stop is *lazy*: it only removes the timer's number from the set of live ones. The trap
/// is the memory of dead timers, which stay until they reach the top, or until they outnumber the
/// live ones and are purged. Examples are `java.util.concurrent.DelayQueue`, Kafka's first
/// purgatory, and scheme 3 of Varghese and Lauck.
#[derive(Debug, Default)]
pub(crate) struct DelayHeap {
    now: u64,
    started: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Task)>>,
    live: HashSet<u64>,
}

impl Scheme for DelayHeap {
    const NAME: &'static str = "delay-heap";
    const CLAIM: Claim = ["O(log n)", "O(1)", "O(1)", "O(log n)"];
    type Handle = u64;

    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<u64> {
        self.started += 1;
        self.heap.push(Reverse((
            self.now.saturating_add(delay.max(1)),
            self.started,
            task,
        )));
        self.live.insert(self.started);
        Ok(self.started)
    }

    fn stop(&mut self, handle: u64) -> bool {
        // The heap keeps dead timers until most of its timers are dead.
        let was_live = self.live.remove(&handle);
        if self.heap.len() > 2 * self.live.len() + SMALL {
            self.heap
                .retain(|Reverse((_, number, _))| self.live.contains(number));
        }
        was_live
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        self.now += ticks;
        // Dead timers are popped on the way.
        while let Some(&Reverse((deadline, number, task))) = self.heap.peek() {
            let live = self.live.contains(&number);
            if live && deadline > self.now {
                return;
            }
            self.heap.pop();
            if live {
                self.live.remove(&number);
                fired.push(task);
            }
        }
    }

    fn pending(&self) -> usize {
        self.live.len()
    }
}
