//! Reaching operations: one is taken out for the caller, or shown where it lies.
//!
//! A closure of the user's may put another payload in the place of one that it is shown. That one
//! answers no future: see [`Entry::lend`](super::entry::Entry).

use std::task::Waker;

use timer_core::TimerHandle;

use super::{Ended, Shard};
use crate::operation::{DelayedOperation, Outcome, ReachResult};

/// An operation where it lies, reached under the lock.
#[derive(Debug)]
pub(crate) struct InPlace<'a, K, O> {
    /// `None` while the entry is held.
    pub(crate) payload: Option<&'a mut O>,
    /// `None` once that watch was taken.
    pub(crate) first_key: Option<&'a K>,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Takes a parked operation out, to be answered by the caller. It has no outcome.
    pub(crate) fn take(&mut self, handle: TimerHandle) -> ReachResult<Ended<K, O>> {
        let Some(entry) = self.get_mut(handle) else {
            return ReachResult::Gone;
        };
        // Holder removes: no request, since the caller cannot be given the payload later.
        let Some(mut payload) = entry.take() else {
            return ReachResult::UnderCheck;
        };
        self.cold.taken += 1;
        // The outcome is not read: nothing is called back. A future that waits goes on waiting.
        if O::AWAITED {
            match self.detach(handle, payload) {
                Ok(ended) => return ReachResult::Parked(ended),
                Err(not_awaited) => payload = not_awaited,
            }
        }
        let (then, to_release) = self.remove(handle, payload);
        ReachResult::Parked(Ended {
            then,
            outcome: Outcome::Completed,
            to_release,
        })
    }

    /// Calls `reach` with a parked operation where it lies. It must not panic, nor hold anything of
    /// the user's: it is dropped here. Returns the waker of a future whose operation was replaced.
    pub(crate) fn reach(
        &mut self,
        handle: TimerHandle,
        reach: impl FnOnce(&mut O),
    ) -> ReachResult<Option<Waker>> {
        let Some(entry) = self.get_mut(handle) else {
            return ReachResult::Gone;
        };
        if entry.is_held() {
            return ReachResult::UnderCheck;
        }
        ReachResult::Parked(entry.lend(|payload| {
            if let Some(payload) = payload {
                reach(payload);
            }
        }))
    }

    /// Calls `look` with an operation where it lies, parked or held, and with its first key,
    /// unless it has ended. It must not panic. Returns the waker of a future whose operation was
    /// replaced.
    pub(crate) fn show(
        &mut self,
        handle: TimerHandle,
        look: impl FnOnce(InPlace<'_, K, O>),
    ) -> Option<Waker> {
        let entry = self.entries.wheel.get_mut(handle.id())?;
        if O::AWAITED && entry.has_ended() {
            return None; // its future's
        }
        let first_key = if entry.link.is_nowhere() {
            None
        } else {
            Some(&self.keys.at(entry.link.record()).key)
        };
        entry.lend(|payload| look(InPlace { payload, first_key }))
    }
}
