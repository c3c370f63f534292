//! A wheel in which delays of any number of rounds share the slots.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Scheme, Task},
};

/// A wheel of `N` slots at index `i`. A delay `d` waits in slot `(i + d) mod N`, with the number of
/// rounds in which the index will pass it. Each pass counts the number down by one, and the timer
/// fires when none remain.
///
/// Any delay is accepted and a start is O(1); a tick visits a whole slot, O(n / N). The trap is the
/// number of rounds: it is `(d − 1) / N`; with `(i + d) / N` timers fire a round late. This is
/// scheme 6 of Varghese and Lauck, and Netty's `HashedWheelTimer`.
#[derive(Debug, Default)]
pub(crate) struct HashedWheel<const SLOTS: usize> {
    index: usize,
    rounds: Rings<SLOTS>,
}

/// An unsorted list: each timer holds the number of ticks that remain after the next, and every
/// tick counts every timer down. That is a hashed wheel with one slot.
///
/// A start and a stop are O(1). The trap is the tick: O(n), even if no timer is nearly due. This is
/// scheme 1 of Varghese and Lauck.
pub(crate) type UnsortedList = HashedWheel<1>;

impl<const SLOTS: usize> HashedWheel<SLOTS> {
    fn slot(&self, delay: u64) -> usize {
        (self.index + (delay % SLOTS as u64) as usize) % SLOTS
    }

    /// Returns the number of rounds in which the index passes a timer, for a delay of at least one
    /// tick.
    fn rounds(delay: u64) -> u64 {
        (delay - 1) / SLOTS as u64
    }
}

impl<const SLOTS: usize> Scheme for HashedWheel<SLOTS> {
    const NAME: &'static str = if SLOTS == 1 {
        "unsorted-list"
    } else {
        "hashed-wheel"
    };
    const CLAIM: Claim = match SLOTS {
        1 => ["O(1)", "O(1)", "O(n)", "O(delay)"],
        _ => ["O(1)", "O(1)", "O(n/slots)", "O(rounds)"],
    };
    /// In the unsorted list, each tick of a day counts down each timer.
    const EXPIRES_MAX: usize = if SLOTS == 1 { 1_000 } else { usize::MAX };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<Handle> {
        let delay = delay.max(1);
        Ok(self
            .rounds
            .push(self.slot(delay), Self::rounds(delay), task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.rounds.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        // The tick visits the whole slot.
        self.index = (self.index + 1) % SLOTS;
        self.rounds.retain(self.index, |rounds, task| {
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
    fn wheel<const SLOTS: usize>(index: u64) -> HashedWheel<SLOTS> {
        let mut wheel = HashedWheel::default();
        wheel.advance(index, &mut Vec::new());
        wheel
    }

    #[test]
    fn three_days_at_9_share_slot_9_of_24() {
        // Tuesday, 11 September, 10:00; one slot is an hour.
        let mut wheel = wheel::<24>(10);
        let delays = [7 * 24 - 1, 2 * 24 - 1, 24 - 1];
        for (task, delay) in delays.into_iter().enumerate() {
            let handle = wheel.start(delay, task as Task).unwrap();
            assert_eq!(wheel.rounds.ring_of(handle), Some(9));
        }
        assert_eq!(wheel.rounds.times(9), [6, 1, 0]);
    }

    #[test]
    fn tasks_of_a_list_wait_in_order_of_arrival() {
        let mut list = UnsortedList::default();
        for (task, delay) in [3, 1, 2, 1].into_iter().enumerate() {
            list.start(delay, task as Task).unwrap();
        }
        assert_eq!(list.rounds.times(0), [2, 0, 1, 0]);
        let mut fired = Vec::new();
        list.tick(&mut fired);
        assert_eq!((fired, list.rounds.times(0)), (vec![1, 3], vec![1, 0]));
    }

    #[test]
    fn slot_3_of_10_has_five_tasks_at_3_and_one_at_13() {
        // The sixth task shares the slot and waits one more round.
        let mut wheel = wheel::<10>(0);
        for (task, delay) in [3, 3, 3, 3, 3, 13].into_iter().enumerate() {
            wheel.start(delay, task as Task).unwrap();
        }
        assert_eq!(wheel.rounds.times(3), [0, 0, 0, 0, 0, 1]);
        let mut fired = Vec::new();
        wheel.advance(3, &mut fired);
        assert_eq!(
            (fired, wheel.rounds.times(3)),
            (vec![0, 1, 2, 3, 4], vec![0])
        );
    }

    #[test]
    fn delay_of_6_at_index_5_of_10_waits_no_round() {
        let mut wheel = wheel::<10>(5);
        wheel.start(6, 0).unwrap();
        assert_eq!(
            ((5 + 6) / 10, HashedWheel::<10>::rounds(6), wheel.slot(6)),
            (1, 0, 1)
        );
        // Nothing fires until the sixth tick; the trap's round would fire it 10 ticks later.
        let mut fired = Vec::new();
        wheel.advance(5, &mut fired);
        assert!(fired.is_empty());
        wheel.tick(&mut fired);
        assert_eq!(fired, [0]);
    }
}
