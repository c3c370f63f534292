//! Endings: how an operation that has ended leaves its first key, and how its entry stays for its
//! future.

use timer_core::{TimerHandle, driver::Fate};

use super::{
    Ended, Shard, Then,
    awaited::{keep_waker, last_waker_of},
    entries::{Entries, Remains},
    entry::{Entry, MovedUp, Notes, State},
    links::{Link, SecondaryId},
};
use crate::operation::{Answering, DelayedOperation, Outcome};

/// The parts of an operation that has ended and is off its first key, still to be released.
#[derive(Debug)]
pub(crate) struct ToRelease<K> {
    /// Its weight, to be returned.
    pub(crate) permit: u64,
    /// The last of its secondary watches, still to be released.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// Its first key, if no watch of that is left.
    pub(crate) emptied_key: Option<K>,
    /// The operation behind it, if it was the head of those in turn.
    pub(super) moved_up: Option<MovedUp>,
}

impl<K> ToRelease<K> {
    /// Returns it as an operation that has ended.
    #[inline(always)]
    pub(crate) fn into_ended<O>(self, then: Then<O>, outcome: Outcome) -> Ended<K, O> {
        Ended {
            then,
            outcome,
            permit: Some(self.permit),
            last_secondary: self.last_secondary,
            emptied_key: self.emptied_key,
            moved_up: self.moved_up,
        }
    }
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Returns the number of operations whose first key is here.
    pub(crate) fn len(&self) -> usize {
        self.entries.wheel.len() - self.entries.ended as usize
    }

    /// Ends the wait of a shutdown once the last operation has left.
    #[inline]
    pub(super) fn entry_left(&mut self) {
        if self.closed && self.len() == 0 {
            self.cold.emptied = None;
        }
    }

    /// Ends an operation whose payload is out, if a future waits for it: its entry stays, with the
    /// answer if that is there. Hands any other back, with its outcome.
    #[inline(always)]
    pub(super) fn end_awaited(
        &mut self,
        handle: TimerHandle,
        payload: O,
        outcome: Outcome,
    ) -> Result<Ended<K, O>, (O, Outcome)> {
        // 1. The answer goes into the entry.
        let mut out = Some(payload);
        let ended = self.entries.end_in_place(handle, |entry| {
            let payload = out.as_mut()?;
            match entry.answer(payload, &outcome) {
                Answering::NotAwaited => None,
                Answering::Unmade => Some(None),
                Answering::Made(waker) => {
                    entry.notes.set(Notes::ANSWERED);
                    entry.state = State::Parked(out.take()?);
                    Some(Some(last_waker_of(&mut entry.cold, waker)))
                }
            }
        });
        // 2. Its watch leaves its key.
        match (ended, out) {
            (Some((Some(waker), remains)), _) => {
                let to_release = self.unlink_ended(handle, remains);
                Ok(to_release.into_ended(Then::Wake(waker), outcome))
            }
            (Some((None, remains)), Some(payload)) => {
                let to_release = self.unlink_ended(handle, remains);
                Ok(to_release.into_ended(Then::Answer { payload, handle }, outcome))
            }
            (_, Some(payload)) => Err((payload, outcome)),
            (_, None) => unreachable!("only an answer stays"),
        }
    }

    /// Takes an operation out whose payload is out, if a future waits for it: its entry stays, for
    /// the answer that it is given elsewhere. Hands any other back.
    #[cold]
    pub(super) fn detach(&mut self, handle: TimerHandle, mut payload: O) -> Result<Ended<K, O>, O> {
        let ended = self.entries.end_in_place(handle, |entry| {
            if entry.notes.has(Notes::ABANDONED) {
                return None;
            }
            keep_waker(&mut entry.cold, payload.waker()?);
            Some(())
        });
        let Some(((), remains)) = ended else {
            return Err(payload);
        };
        let to_release = self.unlink_ended(handle, remains);
        Ok(to_release.into_ended(Then::Answer { payload, handle }, Outcome::Completed))
    }

    /// Takes the first watch of an operation that has ended off its key.
    #[inline(always)]
    pub(super) fn unlink_ended(&mut self, handle: TimerHandle, remains: Remains) -> ToRelease<K> {
        // 1. In turn: the next is the head once this one has left, and is checked by its finisher.
        let mut moved_up = None;
        if O::CHECKED && remains.link.is_head_in_turn() {
            moved_up = self.entries.moved_up(remains.link, remains.noted_turn);
        }
        // 2. Its watch, by the link that came out of its entry.
        let mut emptied_key = None;
        if !failpoint!(EndedStaysListed) {
            emptied_key = self.unlink(handle.id().index(), remains.link);
        }
        self.entry_left();
        // 3. What the entry knew of the other watches and the weight goes to the caller.
        ToRelease {
            permit: remains.weight,
            last_secondary: remains.last_secondary,
            emptied_key,
            moved_up,
        }
    }
}

impl<O: DelayedOperation> Entries<O> {
    /// Ends an operation and keeps its entry, if `put` returns something, which this returns. O(1).
    #[inline(always)]
    pub(super) fn end_in_place<R>(
        &mut self,
        handle: TimerHandle,
        put: impl FnOnce(&mut Entry<O>) -> Option<R>,
    ) -> Option<(R, Remains)> {
        let ended = self.wheel.end_with(handle.id(), |entry| {
            let Some(put) = put(entry) else {
                return Fate::Stays;
            };
            // What leaves with the end leaves the entry. The answer, and the waker, stay.
            let remains = entry.remains();
            entry.notes.set(Notes::ENDED);
            entry.link = Link::NOWHERE;
            entry.last_secondary = None;
            Fate::Stopped((put, remains))
        })?;
        self.ended += 1;
        Some(ended)
    }
}

impl<O: DelayedOperation> Entry<O> {
    /// Turns a payload that is out, and that ends, into its answer, if a future waits for it.
    #[inline(always)]
    fn answer(&self, payload: &mut O, outcome: &Outcome) -> Answering {
        if self.notes.has(Notes::ABANDONED) {
            return Answering::NotAwaited;
        }
        // The answer of a condition waits until the operation is off all of its keys.
        if O::CHECKED && self.last_secondary.is_some() {
            return match payload.waker() {
                Some(_) => Answering::Unmade,
                None => Answering::NotAwaited,
            };
        }
        payload.answer(outcome)
    }
}
