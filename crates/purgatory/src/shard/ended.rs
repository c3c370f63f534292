//! Endings in place: an operation ends, and its entry stays for its future.

use std::mem;

use timer_core::TimerHandle;

use super::{
    Ended, EndedAt, Shard,
    awaited::return_last_waker,
    entry::{Entry, Notes, State},
    keys::{Link, SecondaryId},
};
use crate::operation::{DelayedOperation, Outcome};

/// An operation that has ended and whose entry stays, for its future.
#[derive(Debug)]
pub(crate) struct EndedInPlace<K> {
    /// Its weight, to be returned.
    pub(crate) permit: u64,
    /// The last of its secondary watches, still to be released.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// Its first key, if no watch of that is left.
    pub(crate) emptied_key: Option<K>,
    /// The tick of its deadline; `u64::MAX` if it has none.
    pub(crate) deadline: u64,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Returns the number of operations whose first key is here.
    pub(crate) fn len(&self) -> usize {
        self.entries.wheel.len() - self.entries.ended as usize - self.cold.blank
    }

    /// Ends the wait of a shutdown once the last operation has left.
    #[inline]
    pub(super) fn entry_left(&mut self) {
        if self.closed && self.len() == 0 {
            self.cold.emptied = None;
        }
    }

    /// Times the end of an operation, while the entry is there to ask, and counts it.
    #[inline(always)]
    pub(super) fn count_ended(&mut self, handle: TimerHandle, outcome: &Outcome, now_ns: EndedAt) {
        if let (Some(now_ns), Some(timed)) = (now_ns, &mut self.timed) {
            if let Some(entry) = self.entries.wheel.get(handle.id()) {
                timed.ended(outcome, entry, now_ns);
            }
        }
        self.counts.ended(outcome);
    }

    /// True if an operation that ends is to be answered: a future waits for it.
    #[inline]
    pub(super) fn is_awaited(&self, handle: TimerHandle, payload: &mut O) -> bool {
        let kept = |entry: &Entry<O>| !entry.notes.has(Notes::ABANDONED);
        payload.waker().is_some() && self.entries.wheel.get(handle.id()).is_some_and(kept)
    }

    /// Answers an operation that ends, whose payload is out, and keeps its entry. The
    /// callback wakes the task.
    pub(super) fn end_answered(
        &mut self,
        handle: TimerHandle,
        mut payload: O,
        outcome: Outcome,
    ) -> Ended<K, O> {
        // 1. The answer goes into the entry. The rest of the payload has the waker.
        let entry = self.entries.wheel.at_mut(handle.id().index());
        return_last_waker(&mut entry.cold, &mut payload);
        let wake_up = payload.answer(&outcome);
        entry.state = State::Parked(payload);
        // 2. The entry leaves everything but the wheel's keeping.
        let in_place = self.end_in_place(handle.id().index());
        Ended {
            payload: wake_up,
            outcome,
            permit: Some(in_place.permit),
            last_secondary: in_place.last_secondary,
            emptied_key: in_place.emptied_key,
            deadline: in_place.deadline,
            is_answered: true,
            moved_up: None, // only replies are awaited so, and those are not in turn
        }
    }

    /// Takes an entry off its bucket and its first watch off its key. From here on it is its
    /// future's.
    #[inline(always)]
    pub(super) fn end_in_place(&mut self, index: u32) -> EndedInPlace<K> {
        // 1. The entry.
        let entry = self.entries.wheel.at_mut(index);
        entry.notes.set(Notes::ENDED);
        let permit = entry.info().weight;
        let last_secondary = entry.last_secondary.take();
        let deadline = entry.deadline;
        let link = mem::replace(&mut entry.link, Link::NOWHERE);
        self.entries.ended += 1;
        self.entries.wheel.stop(index);
        // 2. Its watch.
        let mut emptied_key = None;
        if !failpoint!(EndedStaysListed) {
            emptied_key = self.unlink(index, link);
        }
        self.entry_left();
        EndedInPlace {
            permit,
            last_secondary,
            emptied_key,
            deadline,
        }
    }
}
