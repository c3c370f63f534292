//! A wheel whose slots are shared by all turns.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Refused, Scheme, Task},
};

/// A delay `d` waits in slot `(i + d) mod N` with the number of `rounds` that the index will pass
/// it by; each pass takes one off, and the timer fires when none is left.
///
/// Any delay is taken and a start is O(1); a tick visits the whole slot, O(n / N). The trap is the
/// number of rounds: it is `(d − 1) / N`, and `(i + d) / N` fires a turn late. Scheme 6 of Varghese
/// and Lauck; Netty's `HashedWheelTimer`.
#[derive(Debug, Default)]
pub(crate) struct HashedWheel<const SLOTS: usize> {
    index: usize,
    rounds: Rings<SLOTS>,
}

/// A list in no order: each timer knows the ticks that it has left after the next one, and every
/// tick counts every timer down. A hashed wheel of one slot is just that.
///
/// Start and stop are O(1). The trap is the tick: O(n), however far from due they all are. Scheme 1
/// of Varghese and Lauck.
pub(crate) type UnsortedList = HashedWheel<1>;

impl<const SLOTS: usize> Scheme for HashedWheel<SLOTS> {
    const NAME: &'static str = if SLOTS == 1 { "unsorted-list" } else { "hashed-wheel" };
    const CLAIM: Claim = match SLOTS {
        1 => ["O(1)", "O(1)", "O(n)", "O(delay)"],
        _ => ["O(1)", "O(1)", "O(n/slots)", "O(rounds)"],
    };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Result<Handle, Refused> {
        let delay = delay.max(1);
        let slot = (self.index + (delay % SLOTS as u64) as usize) % SLOTS;
        Ok(self.rounds.push(slot, (delay - 1) / SLOTS as u64, task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.rounds.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
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

    #[test]
    fn tuesday_thursday_and_the_12th_at_9_share_slot_9_of_24() {
        // Tuesday, 11 September, 10:00; a slot an hour.
        let mut wheel = HashedWheel::<24>::default();
        wheel.advance(10, &mut Vec::new());
        let delays = [7 * 24 - 1, 2 * 24 - 1, 24 - 1];
        for (task, delay) in delays.into_iter().enumerate() {
            let handle = wheel.start(delay, task as Task).unwrap();
            assert_eq!(wheel.rounds.ring_of(handle), Some(9));
        }
        assert_eq!(wheel.rounds.times(9), [6, 1, 0]);
    }
}
