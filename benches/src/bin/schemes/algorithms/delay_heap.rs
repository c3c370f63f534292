//! A priority queue of timers.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::HashSet;

use super::scheme::{Claim, Refused, Scheme, Task};

/// Below it the heap is not worth a purge.
const SMALL: usize = 64;

/// The earliest deadline is on top of a binary heap; a tick looks at it.
///
/// O(log n) to start (at worst: a later deadline than most stays near the bottom) and to fire. Stop
/// is *lazy*: it only takes the timer off the set of live ones. The trap is that the dead stay in
/// memory until they come to the top, or until they are more than the live and a purge sweeps them
/// out. `java.util.concurrent.DelayQueue`; Kafka's first purgatory; scheme 3 of Varghese and Lauck.
#[derive(Debug, Default)]
pub(crate) struct DelayHeap {
    now: u64,
    started: u64,
    heap: BinaryHeap<Reverse<(u64, Number, Task)>>,
    live: HashSet<Number>,
}

/// Timers are told apart by a number that is never used twice.
type Number = u64;

impl Scheme for DelayHeap {
    const NAME: &'static str = "delay-heap";
    const CLAIM: Claim =
        Claim { start: "O(log n)", stop: "O(1)", tick: "O(1)", expire: "O(log n)" };
    type Handle = Number;

    fn start(&mut self, delay: u64, task: Task) -> Result<Number, Refused> {
        self.started += 1;
        let deadline = self.now.saturating_add(delay.max(1));
        self.heap.push(Reverse((deadline, self.started, task)));
        self.live.insert(self.started);
        Ok(self.started)
    }

    fn stop(&mut self, handle: Number) -> bool {
        let pending = self.live.remove(&handle);
        if self.heap.len() > 2 * self.live.len() + SMALL {
            self.heap.retain(|Reverse((_, number, _))| self.live.contains(number));
        }
        pending
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.advance(1, fired);
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        self.now += ticks;
        while let Some(&Reverse((deadline, number, task))) = self.heap.peek()
            && deadline <= self.now
        {
            self.heap.pop();
            fired.extend(self.live.remove(&number).then_some(task));
        }
    }

    fn pending(&self) -> usize {
        self.live.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_stay_until_they_are_more_than_the_living() {
        let mut heap = DelayHeap::default();
        let handles: Vec<_> = (0..1000).map(|task| heap.start(5, task).unwrap()).collect();
        handles[..500].iter().for_each(|&handle| assert!(heap.stop(handle)));
        assert_eq!((heap.pending(), heap.heap.len()), (500, 1000));
        handles[500..600].iter().for_each(|&handle| assert!(heap.stop(handle)));
        assert_eq!(heap.pending(), 400);
        assert!(heap.heap.len() < 600);
        let mut fired = Vec::new();
        heap.advance(5, &mut fired);
        assert!(fired.into_iter().eq(600..1000));
    }
}
