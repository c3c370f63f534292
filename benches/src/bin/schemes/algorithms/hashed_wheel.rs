//! A wheel whose slots are shared by all turns.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Refused, Scheme, Task},
};
use crate::trial::HOUR;

/// A delay `d` waits in slot `(i + d) mod N` with the number of `rounds` that the index will pass
/// it by; each pass takes one off, and the timer fires when none is left.
///
/// Any delay is taken and a start is O(1); a tick visits the whole slot, O(n / N). The trap is the
/// number of rounds: it is `(d − 1) / N`, and `(i + d) / N` fires a turn late. Scheme 6 of Varghese
/// and Lauck; Netty's `HashedWheelTimer`.
#[derive(Debug)]
pub(crate) struct HashedWheel {
    index: u64,
    slots: u64,
    rounds: Rings,
}

impl Default for HashedWheel {
    fn default() -> Self {
        HashedWheel::with_slots(HOUR as usize)
    }
}

impl HashedWheel {
    pub(crate) fn with_slots(slots: usize) -> Self {
        HashedWheel { index: 0, slots: slots as u64, rounds: Rings::new(slots) }
    }

    fn slot(&self, delay: u64) -> usize {
        ((self.index + delay % self.slots) % self.slots) as usize
    }

    /// The rounds that a delay of at least one tick stays where it is.
    fn rounds(&self, delay: u64) -> u64 {
        (delay - 1) / self.slots
    }
}

impl Scheme for HashedWheel {
    const NAME: &'static str = "hashed-wheel";
    const CLAIM: Claim =
        Claim { start: "O(1)", stop: "O(1)", tick: "O(n/slots)", expire: "O(rounds)" };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Result<Handle, Refused> {
        let delay = delay.max(1);
        Ok(self.rounds.push(self.slot(delay), self.rounds(delay), task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.rounds.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.index = (self.index + 1) % self.slots;
        self.rounds.retain(self.index as usize, |rounds, task| {
            let stays = *rounds > 0;
            if stays {
                *rounds -= 1;
            } else {
                fired.push(task);
            }
            stays
        });
    }

    fn pending(&self) -> usize {
        self.rounds.timers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wheel at an index.
    fn wheel(slots: usize, index: u64) -> HashedWheel {
        let mut wheel = HashedWheel::with_slots(slots);
        wheel.advance(index, &mut Vec::new());
        wheel
    }

    #[test]
    fn tuesday_thursday_and_the_12th_at_9_share_slot_9_of_24() {
        // Tuesday, 11 September, 10:00; a slot an hour.
        let mut wheel = wheel(24, 10);
        let delays = [7 * 24 - 1, 2 * 24 - 1, 24 - 1];
        for (task, delay) in delays.into_iter().enumerate() {
            let handle = wheel.start(delay, task as Task).unwrap();
            assert_eq!(wheel.rounds.ring_of(handle), Some(9));
        }
        assert_eq!(wheel.rounds.times(9), [6, 1, 0]);
    }

    #[test]
    fn of_ten_slots_slot_3_has_five_tasks_at_3_and_one_at_13() {
        let mut wheel = wheel(10, 0);
        for (task, delay) in [3, 3, 3, 3, 3, 13].into_iter().enumerate() {
            wheel.start(delay, task as Task).unwrap();
        }
        assert_eq!(wheel.rounds.times(3), [0, 0, 0, 0, 0, 1]);
        let mut fired = Vec::new();
        wheel.advance(3, &mut fired);
        assert_eq!((fired, wheel.rounds.times(3)), (vec![0, 1, 2, 3, 4], vec![0]));
    }

    #[test]
    fn at_index_5_of_10_a_delay_of_6_waits_no_round_and_not_the_one_of_i_plus_d_over_n() {
        let mut wheel = wheel(10, 5);
        wheel.start(6, 0).unwrap();
        assert_eq!(((5 + 6) / 10, wheel.rounds(6), wheel.slot(6)), (1, 0, 1));
        let mut fired = Vec::new();
        wheel.advance(5, &mut fired);
        assert!(fired.is_empty());
        wheel.tick(&mut fired); // 10 ticks later by the trap
        assert_eq!(fired, [0]);
    }
}
