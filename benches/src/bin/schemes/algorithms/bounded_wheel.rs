//! A wheel with a slot for each tick of the longest delay that it accepts.

use anyhow::ensure;

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Scheme, Task},
};

/// A wheel of `N` slots at index `i`. A delay `d` waits in slot `(i + d) mod N`, which the index
/// reaches after exactly `d` ticks.
///
/// Everything is O(1). The trap is the memory: there is a slot for each tick, so longer delays are
/// refused. The bound is `d < N`, so `d = N` is refused as well. This is scheme 4 of Varghese and
/// Lauck, who call the bound MaxInterval.
#[derive(Debug, Default)]
pub(crate) struct BoundedWheel<const SLOTS: usize> {
    index: usize,
    timers: Rings<SLOTS>,
}

impl<const SLOTS: usize> Scheme for BoundedWheel<SLOTS> {
    const NAME: &'static str = "bounded-wheel";
    const CLAIM: Claim = ["O(1)"; 4];
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<Handle> {
        // A delay of SLOTS would be filed in the slot that has just passed.
        let delay = delay.max(1);
        ensure!(
            delay < SLOTS as u64,
            "a delay of {delay} ticks where fewer than {SLOTS} are accepted"
        );
        Ok(self
            .timers
            .push((self.index + delay as usize) % SLOTS, 0, task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.timers.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.index = (self.index + 1) % SLOTS;
        fired.extend(std::iter::from_fn(|| self.timers.pop(self.index)));
    }

    fn pending(&self) -> usize {
        self.timers.timers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_of_as_many_ticks_as_slots_is_refused() {
        let mut wheel = BoundedWheel::<8>::default();
        wheel.advance(5, &mut Vec::new());
        // The longest delay is accepted, and the next is refused.
        assert!(
            wheel.start(7, 0).is_ok(),
            "at any index, though 5 + 7 wraps around"
        );
        let refused = wheel.start(8, 1).unwrap_err();
        // The error names the bound, and nothing was started.
        let text = "a delay of 8 ticks where fewer than 8 are accepted";
        assert_eq!(refused.to_string(), text);
        assert_eq!(wheel.pending(), 1);
    }

    #[test]
    fn week_of_168_slots_has_wednesday_9_in_slot_57() {
        let mut wheel = BoundedWheel::<{ 7 * 24 }>::default();
        let monday_10 = 10;
        wheel.advance(monday_10, &mut Vec::new());
        let wednesday_9 = 2 * 24 + 9;
        let handle = wheel.start(wednesday_9 - monday_10, 0).unwrap();
        assert_eq!(wheel.timers.ring_of(handle), Some(57));
    }

    #[test]
    fn two_tasks_in_720_slots_make_718_empty_moves() {
        let mut wheel = BoundedWheel::<720>::default();
        for (task, delay) in [(0, 9), (1, 11 * 24 + 9)] {
            wheel.start(delay, task).unwrap();
        }
        // In two of the ticks a task fires; all others find an empty slot.
        let empty = (0..720).filter(|_| {
            let mut fired = Vec::new();
            wheel.tick(&mut fired);
            fired.is_empty()
        });
        assert_eq!(empty.count(), 718);
        assert_eq!(wheel.pending(), 0);
    }
}
