//! Entries of operations that futures wait for.
//!
//! An answer needs no place of its own. It is put into the payload and stays with it in the entry,
//! where the future finds it by its handle. The operation of such an entry has *ended*: it is off
//! the wheel's buckets and off every key, and counts nowhere as parked. As a rule its answer is put
//! in under the same lock hold. One that is still being made follows: user code makes it, with
//! nothing locked.
//!
//! - **Last waker**: until the answer takes it, the waker of the last poll is in the payload, or in
//!   the entry's cold part if that poll found the payload out.

use std::{mem, ptr, task::Waker};

use super::{
    entry::{ColdState, Entry, Payload},
    flags::Flags,
};
use crate::operation::DelayedOperation;

/// The answer of an operation, out of its entry.
#[derive(Debug)]
pub(crate) struct Answered<O> {
    /// With the answer in it. `None` if the answer was still to be put in.
    pub(crate) payload: Option<O>,
    /// It may have a waker that was replaced.
    pub(crate) cold: Option<Box<ColdState>>,
}

/// Why a poll found no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Its task is woken when there is one.
    Pending,
    /// The last waker is of another task, or is out with the payload: to be polled again, with a
    /// clone of this one.
    NewTask,
    /// No answer will come: another operation was put in its place.
    Lost,
}

impl<O> Entry<O> {
    /// Returns everything of the user's in it.
    #[inline(always)] // what is not needed is not moved
    pub(super) fn into_answered(self) -> Answered<O> {
        let payload = match self.payload {
            Payload::Here(payload) => Some(payload),
            Payload::Out => None,
        };
        Answered {
            payload,
            cold: self.cold,
        }
    }
}

impl<O: DelayedOperation> Entry<O> {
    /// Returns the place of the last waker.
    #[inline]
    pub(super) fn last_waker(&mut self) -> &mut Option<Waker> {
        // Last waker: one in the cold part is younger than one in the payload.
        let is_cold = self.cold.as_ref().is_some_and(|cold| cold.waker.is_some());
        if !is_cold {
            if let Payload::Here(payload) = &mut self.payload {
                if let Some(waker) = payload.waker() {
                    return waker;
                }
            }
        }
        &mut self.cold.get_or_insert_with(ColdState::plain).waker
    }

    /// Keeps a clone of a polling task's waker; see [`Shard::poll`](super::Shard::poll).
    #[inline(always)]
    pub(super) fn poll(&mut self, waker: &Waker, clone: &mut Option<Waker>) -> NoAnswer {
        if self.flags.has(Flags::ABANDONED) {
            return NoAnswer::Lost;
        }
        if failpoint!(PollLeavesNoWaker) {
            return NoAnswer::Pending;
        }
        let last = self.last_waker();
        if failpoint!(FirstWakerStays) && last.is_some() {
            return NoAnswer::Pending;
        }
        if clone.is_some() {
            mem::swap(last, clone);
            return NoAnswer::Pending;
        }
        // To compare two wakers runs no user code, as to clone one does.
        match last {
            Some(last) if last.will_wake(waker) => NoAnswer::Pending,
            _ => NoAnswer::NewTask,
        }
    }

    /// Lends the payload to the user's code, which must not panic. The waker of a future stays
    /// here. The last one is returned if another payload was put in the place of this one: that
    /// ends the future's wait.
    pub(super) fn lend(&mut self, reach: impl FnOnce(Option<&mut O>)) -> Option<Waker> {
        // 1. Take the waker out of its place, which tells this payload from others.
        let mut before = None;
        if let Some(waker) = self.payload_mut().and_then(O::waker) {
            before = Some((ptr::from_ref(waker).addr(), waker.take()));
        }

        reach(self.payload_mut());

        // 2. Put it back.
        let (place, waker) = before?;
        let now = self.payload_mut().and_then(O::waker);
        match now {
            Some(now) if ptr::from_ref(now).addr() == place => {
                *now = waker;
                None
            }
            _ => {
                self.flags.set(Flags::ABANDONED);
                last_waker_of(&mut self.cold, waker)
            }
        }
    }
}

/// Keeps the last waker of a payload that leaves its entry.
pub(super) fn keep_waker(cold: &mut Option<Box<ColdState>>, waker: &mut Option<Waker>) {
    // Last waker: one in the cold part is younger than one in the payload.
    let is_cold = cold.as_ref().is_some_and(|cold| cold.waker.is_some());
    if waker.is_some() && !is_cold {
        cold.get_or_insert_with(ColdState::plain).waker = waker.take();
    }
}

/// Returns the last waker of an operation whose wait is over; `waker` was the payload's. The one
/// before stays in the cold part, to leave with the entry.
#[inline]
pub(super) fn last_waker_of(
    cold: &mut Option<Box<ColdState>>,
    waker: Option<Waker>,
) -> Option<Waker> {
    match cold {
        Some(cold) if cold.waker.is_some() && !failpoint!(PollUnderCheckIsLost) => {
            mem::replace(&mut cold.waker, waker)
        }
        _ => waker,
    }
}
