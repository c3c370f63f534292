//! What an event has checked out: payloads on their way to their checks.

use smallvec::SmallVec;
use timer_core::TimerHandle;

use super::entry::Entries;
use crate::operation::Verdict;

/// A waiter that a walk found: an operation whose first key is in this room, by its entry's index,
/// or another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Here(u32),
    Foreign(TimerHandle),
}

impl Waiter {
    pub(crate) fn id<O>(self, entries: &Entries<O>) -> TimerHandle {
        match self {
            Waiter::Here(index) => entries.id(index),
            Waiter::Foreign(id) => id,
        }
    }
}

/// A payload out of its entry, and what its check found.
#[derive(Debug)]
pub(crate) struct CheckedOut<O> {
    pub(crate) id: TimerHandle,
    pub(crate) payload: O,
    pub(crate) verdict: Verdict,
}

/// Waiters of a key that an event found together, in the order they were parked.
#[derive(Debug)]
pub(crate) struct Batch<O> {
    /// Those that are checked out.
    pub(crate) held: SmallVec<[CheckedOut<O>; 1]>,
    /// Those whose first key is in another room, still to be checked out: each with how many of the
    /// held come before.
    pub(crate) foreign: SmallVec<[(usize, TimerHandle); 1]>,
}

impl<O> Batch<O> {
    pub(crate) fn new() -> Self {
        Batch { held: SmallVec::new(), foreign: SmallVec::new() }
    }

    /// What a walk of a room is to do with the waiters it finds.
    #[inline(always)]
    pub(crate) fn finding(&mut self) -> impl FnMut(&mut Entries<O>, Waiter) {
        |entries, waiter| self.check_out(entries, waiter)
    }

    #[inline(always)]
    fn check_out(&mut self, entries: &mut Entries<O>, waiter: Waiter) {
        match waiter {
            Waiter::Foreign(id) => self.foreign.push((self.held.len(), id)),
            Waiter::Here(index) => {
                if let Some(payload) = entries.wheel.at_mut(index).check_out() {
                    let id = entries.id(index);
                    self.held.push(CheckedOut { id, payload, verdict: Verdict::Unsatisfied });
                }
            }
        }
    }
}
