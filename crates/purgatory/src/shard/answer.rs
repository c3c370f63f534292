//! Answers: the future's side, and endings that come with a value.
//!
//! - **Its future's**: an entry whose operation has ended is removed by its future alone: as the
//!   future takes the answer, or as it is dropped.
//!
//! Wakers and answers are the user's. They leave with what is returned, to be dropped unlocked.

use std::task::Waker;

use timer_core::TimerHandle;

use super::{
    Ended, EndedAt, Shard,
    awaited::{Answered, NoAnswer},
    entry::{Entry, Payload},
    flags::Flags,
};
use crate::operation::{CancelReason, DelayedOperation, Outcome};

/// The remains of a wait whose future is dropped: to be dropped, too, with nothing locked.
#[derive(Debug)]
pub(crate) struct Abandoned<K, O> {
    pub(crate) operation: AbandonedOperation<K, O>,
    /// A waker that waits for nothing any more.
    pub(crate) waker: Option<Waker>,
}

/// The operation of a wait whose future is dropped.
#[derive(Debug)]
pub(crate) enum AbandonedOperation<K, O> {
    /// It had ended before: its answer, if that is there.
    HadEnded(Answered<O>),
    /// The drop cancelled it.
    Cancelled(Ended<K, O>),
    /// A thread holds it, and ends it; or another one was put in its place before, which goes on.
    LeftAlone,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Polls for a future of a task with this waker: removes the entry if it has its answer. A
    /// `clone`, if there is one, is kept, and the waker before is returned in its place. Without
    /// one the waker is compared with the last. O(1).
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        handle: TimerHandle,
        waker: &Waker,
        clone: &mut Option<Waker>,
    ) -> Result<Answered<O>, NoAnswer> {
        // Its future's: the entry is there, unless its payload was taken out of it.
        let mut no_answer = NoAnswer::Lost;
        // Returns true when the entry leaves the wheel.
        let take_or_keep_waker = |entry: &mut Entry<O>| {
            let is_answered = entry.flags.has(Flags::ANSWERED);
            if !is_answered {
                no_answer = entry.poll(waker, clone);
            }
            is_answered
        };
        let wheel = &mut self.entries.wheel;
        match wheel.cancel_if(handle.id(), take_or_keep_waker, Entry::into_answered) {
            Some(answered) => {
                self.entries.ended -= 1;
                Ok(answered)
            }
            None => Err(no_answer),
        }
    }

    /// Ends the wait of a future that is dropped. One that has not ended is cancelled, unless
    /// another operation was put in its place, and its entry is not kept. O(1).
    pub(crate) fn abandon(&mut self, handle: TimerHandle, now_ns: EndedAt) -> Abandoned<K, O> {
        // 1. One that has ended: its entry goes. An entry that is gone was that of another
        //    operation, put in its place.
        let mut waker = None;
        let mut is_replaced = false;
        // Returns true when the entry leaves the wheel.
        let take_or_mark_abandoned = |entry: &mut Entry<O>| {
            let has_ended = entry.has_ended();
            if !has_ended {
                is_replaced = entry.flags.has(Flags::ABANDONED);
                // Its holder, if it is held, does not keep it either.
                entry.flags.set(Flags::ABANDONED);
                waker = entry.cold.as_mut().and_then(|cold| cold.waker.take());
            }
            has_ended
        };
        let wheel = &mut self.entries.wheel;
        let answered = wheel.cancel_if(handle.id(), take_or_mark_abandoned, Entry::into_answered);

        // 2. Any other is cancelled, unless it is another wait's by now.
        let operation = if let Some(answered) = answered {
            self.entries.ended -= 1;
            AbandonedOperation::HadEnded(answered)
        } else if is_replaced {
            AbandonedOperation::LeftAlone
        } else {
            self.cancel_abandoned(handle, now_ns)
        };
        Abandoned { operation, waker }
    }

    /// Cancels an operation that has not ended and whose future is dropped.
    fn cancel_abandoned(
        &mut self,
        handle: TimerHandle,
        now_ns: EndedAt,
    ) -> AbandonedOperation<K, O> {
        let outcome = Outcome::Cancelled(CancelReason::FutureDropped);
        match self.claim(handle, &outcome, now_ns) {
            Some((then, to_release)) => AbandonedOperation::Cancelled(Ended {
                then,
                outcome,
                to_release,
            }),
            None => AbandonedOperation::LeftAlone,
        }
    }

    /// Puts the answer of an operation that has ended into its entry, and returns the waker that a
    /// poll left meanwhile. Hands the answer back if the future was dropped. O(1).
    pub(crate) fn put_answer(
        &mut self,
        handle: TimerHandle,
        answered: O,
    ) -> Result<Option<Waker>, O> {
        let Some(entry) = self.entries.wheel.get_mut(handle.id()) else {
            return Err(answered);
        };
        debug_assert!(entry.has_ended() && entry.is_held());
        entry.payload = Payload::Here(answered);
        entry.flags.set(Flags::ANSWERED);
        if failpoint!(AnswerMissesPoll) {
            return Ok(None);
        }
        Ok(entry.cold.as_mut().and_then(|cold| cold.waker.take()))
    }
}
