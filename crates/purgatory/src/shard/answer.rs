//! Answers: the future's side, and endings that come with a value.
//!
//! - **Its future's**: an entry whose operation has ended is removed by its future alone: as the
//!   future takes the answer, or as it is dropped.
//!
//! Wakers and answers are the user's. They leave with what is returned, to be dropped unlocked.

use std::{mem, task::Waker};

use timer_core::TimerHandle;

use super::{
    Ended, EndedAt, Shard,
    awaited::{Answered, return_last_waker},
    ended::EndedInPlace,
    entry::{Notes, State},
};
use crate::operation::{CancelReason, DelayedOperation, Outcome};

/// The remains of a wait whose future is dropped: to be dropped, too, with nothing locked.
#[derive(Debug)]
pub(crate) struct Abandoned<K, O> {
    /// The operation, if this cancelled it. A held one is ended by its holder.
    pub(crate) cancelled: Option<Ended<K, O>>,
    /// Its answer, if the operation had ended before.
    pub(crate) answered: Option<Answered<O>>,
    /// A waker that waits for nothing any more.
    pub(crate) waker: Option<Waker>,
}

/// An operation that ended with a value.
#[derive(Debug)]
pub(crate) struct Completed<K> {
    pub(crate) ended: EndedInPlace<K>,
    /// To be woken with nothing locked.
    pub(crate) waker: Option<Waker>,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Polls for a future: removes the entry if it has its answer. Otherwise `waker` is the last
    /// one from now on, and the one before is returned in it; `None` stands for the waker of the
    /// last poll. O(1).
    #[inline]
    pub(crate) fn poll(
        &mut self,
        handle: TimerHandle,
        waker: &mut Option<Waker>,
    ) -> Option<Answered<O>> {
        // Its future's: the entry is there.
        let entry = self.entries.wheel.get_mut(handle.id())?;
        if entry.has_ended() && entry.is_answered() {
            return self.remove_ended_entry(handle.id().index());
        }
        if waker.is_some() && !failpoint!(PollLeavesNoWaker) {
            let last = entry.last_waker();
            if last.is_none() || !failpoint!(FirstWakerStays) {
                mem::swap(last, waker);
            }
        }
        None
    }

    /// Removes the entry of an operation that has ended.
    #[inline]
    fn remove_ended_entry(&mut self, index: u32) -> Option<Answered<O>> {
        let answered = self.entries.wheel.at_mut(index).take_answer();
        self.entries.wheel.drop_stopped(index); // nothing of the user's is left in it
        self.entries.ended -= 1;
        answered
    }

    /// Ends the wait of a future that is dropped. One that has not ended is cancelled, and its
    /// entry is not kept. O(1).
    pub(crate) fn abandon(&mut self, handle: TimerHandle, now_ns: EndedAt) -> Abandoned<K, O> {
        let mut abandoned = Abandoned {
            cancelled: None,
            answered: None,
            waker: None,
        };
        let Some(entry) = self.entries.wheel.get_mut(handle.id()) else {
            return abandoned;
        };
        if entry.has_ended() {
            abandoned.answered = self.remove_ended_entry(handle.id().index());
            return abandoned;
        }
        // Its holder, if it is held, does not keep it either.
        entry.notes.set(Notes::ABANDONED);
        abandoned.waker = entry.cold.as_mut().and_then(|cold| cold.waker.take());
        let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
        abandoned.cancelled = self.claim(handle, dropped, now_ns);
        abandoned
    }

    /// Ends the operation that waits alone for a key as Completed, unless it is held. `answer`
    /// turns its payload into the answer and returns the waker. It runs under the lock, and must
    /// drop nothing of the user's. O(1).
    #[inline]
    pub(crate) fn complete_alone(
        &mut self,
        record: u32,
        now_ns: EndedAt,
        answer: impl FnOnce(&mut O) -> Option<Waker>,
    ) -> Option<Completed<K>> {
        let index = self.first_here(record)?;
        self.complete_at(index, now_ns, answer)
    }

    /// Ends the operation of an entry that has not ended: see
    /// [`complete_alone`](Self::complete_alone).
    #[inline]
    pub(super) fn complete_at(
        &mut self,
        index: u32,
        now_ns: EndedAt,
        answer: impl FnOnce(&mut O) -> Option<Waker>,
    ) -> Option<Completed<K>> {
        // 1. The answer, where the payload lies. A holder ends its operation itself.
        let entry = self.entries.wheel.at_mut(index);
        let State::Parked(payload) = &mut entry.state else {
            return None;
        };
        return_last_waker(&mut entry.cold, payload);
        let waker = answer(payload);
        // 2. Time and count the end. The entry stays.
        if let (Some(now_ns), Some(timed)) = (now_ns, &mut self.timed) {
            timed.ended(&Outcome::Completed, entry, now_ns);
        }
        self.counts.ended(&Outcome::Completed);
        let ended = self.end_in_place(index);
        Some(Completed { ended, waker })
    }

    /// Answers an operation that has ended, unless its future was dropped: see
    /// [`complete_alone`](Self::complete_alone). Returns `None` if it was. O(1).
    pub(crate) fn answer_ended(
        &mut self,
        handle: TimerHandle,
        answer: impl FnOnce(&mut O) -> Option<Waker>,
    ) -> Option<Option<Waker>> {
        let entry = self.entries.wheel.get_mut(handle.id())?;
        match &mut entry.state {
            State::Parked(payload) => Some(answer(payload)),
            State::Held => None,
        }
    }
}
