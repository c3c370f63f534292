//! A wheel in which delays of any number of rounds share the slots.

use super::{
    Scheme, Task,
    rings::{Handle, Rings},
};
use crate::trial::DAY;

/// A slot for each tick of a day: no delay waits a round.
const BOUNDED: usize = DAY as usize;

/// A wheel of `N` slots at index `i`. A delay `d` waits in slot `(i + d) mod N` with the number of
/// rounds in which the index will pass it. Each pass counts one down, and the timer fires when none
/// remains.
///
/// Any delay is accepted and a start is O(1); a tick visits the whole slot, O(n / N). The trap is
/// the number of rounds: it is `(d − 1) / N`, and `(i + d) / N` fires a round late. Scheme 6 of
/// Varghese and Lauck; Netty's `HashedWheelTimer`.
///
/// With one slot it is the unsorted list, whose every tick counts every timer down: O(n), even if
/// nothing is nearly due (scheme 1). With a slot for each tick of the longest delay it is the
/// bounded wheel, in which everything is O(1); the trap is the memory (scheme 4).
#[derive(Debug, Default)]
pub(crate) struct HashedWheel<const SLOTS: usize> {
    index: usize,
    rounds: Rings<SLOTS>,
}

impl<const SLOTS: usize> Scheme for HashedWheel<SLOTS> {
    const NAME: &'static str = match SLOTS {
        1 => "unsorted-list",
        BOUNDED => "bounded-wheel",
        _ => "hashed-wheel",
    };
    const CLAIM: [&'static str; 4] = match SLOTS {
        1 => ["O(1)", "O(1)", "O(n)", "O(delay)"],
        BOUNDED => ["O(1)"; 4],
        _ => ["O(1)", "O(1)", "O(n/slots)", "O(rounds)"],
    };
    /// All ticks of a day count each timer of the unsorted list down.
    const EXPIRES_MAX: usize = if SLOTS == 1 { 1_000 } else { usize::MAX };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Handle {
        let slots = SLOTS as u64;
        let slot = (self.index + (delay % slots) as usize) % SLOTS;
        self.rounds.push(slot, (delay - 1) / slots, task)
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.rounds.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        // The whole slot is visited.
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
