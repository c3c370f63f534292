//! Entries of operations that futures wait for.
//!
//! An answer needs no place of its own. It is put into the payload and stays with it in the entry,
//! where the future finds it by its handle. The operation of such an entry has *ended*: it is off
//! the wheel's buckets and off every key, and counts nowhere as parked. As a rule its answer is put
//! in under the same lock hold. A value that is still being made follows.
//!
//! - **Last waker**: until the answer takes it, the waker of the last poll is in the payload, or in
//!   the entry's cold part if that poll found the payload out.

use std::{mem, task::Waker};

use super::entry::{ColdState, Entry, Notes, State};
use crate::operation::DelayedOperation;

/// The answer of an operation, out of its entry.
#[derive(Debug)]
pub(crate) struct Answered<O> {
    /// With the answer in it.
    pub(crate) payload: O,
    /// It may have a waker that was replaced.
    pub(crate) cold: Option<Box<ColdState>>,
}

impl<O> Entry<O> {
    /// True if its operation has ended, and the entry is kept for its future.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.notes.has(Notes::ENDED)
    }

    /// Takes everything of the user's out.
    #[inline]
    pub(super) fn take_answer(&mut self) -> Option<Answered<O>> {
        let cold = self.cold.take();
        match mem::replace(&mut self.state, State::Held) {
            State::Parked(payload) => Some(Answered { payload, cold }),
            State::Held => None,
        }
    }
}

impl<O: DelayedOperation> Entry<O> {
    /// True if it has its answer.
    #[inline]
    pub(super) fn is_answered(&mut self) -> bool {
        match &mut self.state {
            State::Parked(payload) => payload.waker().is_none(),
            State::Held => false,
        }
    }

    /// Returns the place of the last waker.
    #[inline]
    pub(super) fn last_waker(&mut self) -> &mut Option<Waker> {
        // Last waker: one in the cold part is younger than one in the payload.
        let is_cold = self.cold.as_ref().is_some_and(|cold| cold.waker.is_some());
        if !is_cold {
            if let State::Parked(payload) = &mut self.state {
                if let Some(waker) = payload.waker() {
                    return waker;
                }
            }
        }
        &mut self.cold.get_or_insert_with(ColdState::plain).waker
    }
}

/// Puts the last waker back into a payload that is to be answered. The one before it stays in the
/// cold part, to leave with the entry.
#[inline]
pub(super) fn return_last_waker<O: DelayedOperation>(
    cold: &mut Option<Box<ColdState>>,
    payload: &mut O,
) {
    let Some(cold) = cold else { return };
    if cold.waker.is_some() {
        if let Some(before) = payload.waker() {
            mem::swap(before, &mut cold.waker);
        }
    }
}
