//! A wheel of slots for the present cycle, and a sorted list for what lies beyond it.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Refused, Scheme, Task},
};
use crate::trial::HOUR;

/// The present is cycle `S` and index `i` of `N` slots: now = S·N + i. A timer of this cycle waits
/// in its slot, a later one in the overflow list; when a cycle begins, its timers move to their
/// slots.
///
/// O(1) within the cycle; the trap is the rest, O(n) to start. A second trap is the number of
/// cycles to wait: it is `(i + d) / N`, and `d / N` fires a whole turn early. The wheel of the
/// logic simulator TEGAS-2, section 4.2 of Varghese and Lauck.
#[derive(Debug)]
pub(crate) struct OverflowWheel {
    cycle: u64,
    index: u64,
    slots: u64,
    /// The slots, and behind them the overflow list.
    deadlines: Rings,
}

impl Default for OverflowWheel {
    fn default() -> Self {
        OverflowWheel::with_slots(HOUR as usize)
    }
}

impl OverflowWheel {
    pub(crate) fn with_slots(slots: usize) -> Self {
        let deadlines = Rings::new(slots + 1);
        OverflowWheel { cycle: 0, index: 0, slots: slots as u64, deadlines }
    }

    fn now(&self) -> u64 {
        self.cycle * self.slots + self.index
    }

    fn overflow(&self) -> usize {
        self.slots as usize
    }

    fn slot(&self, deadline: u64) -> usize {
        (deadline % self.slots) as usize
    }

    /// The cycles that a deadline waits until its slot's turn is the one.
    fn cycles_until(&self, deadline: u64) -> u64 {
        deadline / self.slots - self.cycle
    }

    fn begin_cycle(&mut self) {
        (self.cycle, self.index) = (self.cycle + 1, 0);
        let overflow = self.overflow();
        while let Some(deadline) = self.deadlines.first_time(overflow)
            && self.cycles_until(deadline) == 0
        {
            self.deadlines.move_first(overflow, self.slot(deadline));
        }
    }
}

impl Scheme for OverflowWheel {
    const NAME: &'static str = "overflow-wheel";
    const IDEA: &'static str = "a slot a tick for this cycle of 3600, a sorted list beyond it";
    const CLAIM: Claim = Claim { start: "O(1)/O(n)", stop: "O(1)", tick: "O(1)", expire: "O(1)" };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Result<Handle, Refused> {
        let deadline = self.now().saturating_add(delay.max(1));
        Ok(if self.cycles_until(deadline) == 0 {
            self.deadlines.push(self.slot(deadline), deadline, task)
        } else {
            self.deadlines.insert_sorted(self.overflow(), deadline, task)
        })
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.deadlines.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.index += 1;
        if self.index == self.slots {
            self.begin_cycle();
        }
        fired.extend(std::iter::from_fn(|| self.deadlines.pop(self.index as usize)));
    }

    fn pending(&self) -> usize {
        self.deadlines.timers()
    }

    fn slots(&self) -> usize {
        self.deadlines.rings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight slots, and index 2.
    fn wheel() -> OverflowWheel {
        let mut wheel = OverflowWheel::with_slots(8);
        wheel.advance(2, &mut Vec::new());
        wheel
    }

    /// When the only timer fires.
    fn fires_at(wheel: &mut OverflowWheel) -> u64 {
        let mut fired = Vec::new();
        while fired.is_empty() {
            wheel.tick(&mut fired);
        }
        wheel.now()
    }

    #[test]
    fn a_delay_of_1_takes_slot_3() {
        let mut wheel = wheel();
        let handle = wheel.start(1, 0).unwrap();
        assert_eq!(wheel.deadlines.ring_of(handle), Some(3));
        assert_eq!(fires_at(&mut wheel), 3);
    }

    #[test]
    fn a_delay_of_9_waits_one_cycle_and_then_takes_slot_3() {
        let mut wheel = wheel();
        let handle = wheel.start(9, 0).unwrap();
        assert_eq!(wheel.deadlines.ring_of(handle), Some(wheel.overflow()));
        assert_eq!((wheel.cycles_until(2 + 9), wheel.slot(2 + 9)), (1, 3));
        wheel.advance(6, &mut Vec::new());
        assert_eq!((wheel.cycle, wheel.deadlines.ring_of(handle)), (1, Some(3)));
        assert_eq!(fires_at(&mut wheel), 11);
    }

    #[test]
    fn a_delay_of_14_waits_two_cycles_and_not_the_one_of_d_over_n() {
        let mut wheel = wheel();
        wheel.start(14, 0).unwrap();
        assert_eq!((14 / 8, wheel.cycles_until(2 + 14), wheel.slot(2 + 14)), (1, 2, 0));
        assert_eq!(fires_at(&mut wheel), 16); // 8 by the trap
    }
}
