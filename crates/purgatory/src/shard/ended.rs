//! Endings: how an operation that has ended leaves its first key, and how its entry stays for its
//! future.

use timer_core::{TimerHandle, driver::Fate};

use super::{
    Ended, Shard, Then, ToRelease,
    awaited::{keep_waker, last_waker_of},
    entries::{Entries, Remains},
    entry::{Entry, Payload},
    flags::Flags,
    links::Link,
};
use crate::operation::{Answering, DelayedOperation, Outcome};

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Returns the number of operations whose first key is here.
    pub(crate) fn len(&self) -> usize {
        self.entries.wheel.len() - self.entries.ended as usize
    }

    /// Ends the wait of a shutdown once the last operation has left.
    #[inline]
    pub(super) fn entry_left(&mut self) {
        if self.entries.closed && self.len() == 0 {
            self.cold.emptied = None;
        }
    }

    /// Ends an operation whose payload is out for good: removes its entry, and its first watch. An
    /// entry that a future waits for stays, with the answer if that is there.
    // In a debug build each copy that is inlined has stack of its own for the payload.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn end(
        &mut self,
        handle: TimerHandle,
        payload: O,
        outcome: &Outcome,
    ) -> (Then<O>, ToRelease<K>) {
        let (then, remains) = self.entries.end(handle, payload, outcome);
        (then, self.unlink_ended(handle.id().index(), remains))
    }

    /// Takes an operation out whose payload is out, if a future waits for it: its entry stays, for
    /// the answer that it is given elsewhere. Hands any other back.
    #[cold]
    pub(super) fn detach(&mut self, handle: TimerHandle, mut payload: O) -> Result<Ended<K, O>, O> {
        // 1. Its waker stays, since the payload is out.
        let index = handle.id().index();
        let ended = self.entries.end_in_place(index, |entry| {
            if entry.flags.has(Flags::ABANDONED) {
                return None;
            }
            keep_waker(&mut entry.cold, payload.waker()?);
            Some(())
        });
        let Some(((), remains)) = ended else {
            return Err(payload);
        };
        // 2. Its first watch leaves, and the answer follows.
        Ok(Ended {
            then: Then::Answer { payload, handle },
            outcome: Outcome::Completed,
            to_release: self.unlink_ended(index, remains),
        })
    }

    /// Removes the entry of an operation whose payload is out for good, and its first watch.
    pub(super) fn remove(&mut self, handle: TimerHandle, payload: O) -> (Then<O>, ToRelease<K>) {
        let (then, remains) = self.entries.remove(handle, payload);
        (then, self.unlink_ended(handle.id().index(), remains))
    }

    /// Takes the first watch of an operation that has ended, whose entry is or was at `index`, off
    /// its key.
    #[inline(always)]
    pub(super) fn unlink_ended(&mut self, index: u32, remains: Remains) -> ToRelease<K> {
        // Its watch, by the link that came out of its entry.
        let mut emptied_key = None;
        if !failpoint!(EndedStaysListed) {
            emptied_key = self.unlink(index, remains.link);
        }
        self.entry_left();
        // What the entry knew of the other watches goes to the caller.
        ToRelease {
            has_place: true,
            last_secondary: remains.last_secondary,
            emptied_key,
            cold: remains.cold,
        }
    }
}

impl<O: DelayedOperation> Then<O> {
    /// Returns true if a future waited for the operation, and was dropped while the operation was
    /// held: no task has the answer.
    pub(crate) fn is_abandoned(&mut self) -> bool {
        match self {
            Then::CallBack { payload, .. } => payload.waker().is_some(),
            Then::Answer { .. } | Then::Wake(_) => false,
        }
    }
}

impl<O: DelayedOperation> Entries<O> {
    /// Ends an operation whose payload is out for good, and removes its entry unless a future waits
    /// for it. O(1).
    #[cfg_attr(not(debug_assertions), inline(always))] // as `Shard::end`
    pub(super) fn end(
        &mut self,
        handle: TimerHandle,
        payload: O,
        outcome: &Outcome,
    ) -> (Then<O>, Remains) {
        // Apart, so that large payloads that no future waits for are not moved for it.
        if O::AWAITED {
            return self.end_unless_awaited(handle, payload, outcome);
        }
        self.remove(handle, payload)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn end_unless_awaited(
        &mut self,
        handle: TimerHandle,
        payload: O,
        outcome: &Outcome,
    ) -> (Then<O>, Remains) {
        match self.end_awaited(handle, payload, outcome) {
            Ok(ended) => ended,
            Err(payload) => self.remove(handle, payload),
        }
    }

    /// Ends an operation whose payload is out, if a future waits for it: its entry stays, with the
    /// answer if that is there. Hands any other back. O(1).
    #[inline(always)]
    fn end_awaited(
        &mut self,
        handle: TimerHandle,
        mut payload: O,
        outcome: &Outcome,
    ) -> Result<(Then<O>, Remains), O> {
        // 1. The answer, if it is there.
        let index = handle.id().index();
        let entry = self.wheel.at_mut(index);
        let then = match entry.answer(&mut payload, outcome) {
            Answering::NotAwaited => return Err(payload),
            Answering::Unmade => Then::Answer { payload, handle },
            Answering::Made(waker) => {
                entry.flags.set(Flags::ANSWERED);
                entry.payload = Payload::Here(payload);
                Then::Wake(last_waker_of(&mut entry.cold, waker))
            }
        };
        // 2. The entry stays.
        let remains = entry.keep_ended();
        self.wheel.stop_at(index);
        self.ended += 1;
        Ok((then, remains))
    }

    /// Ends an operation whose payload is out, and removes its entry. O(1).
    #[inline(always)]
    fn remove(&mut self, handle: TimerHandle, payload: O) -> (Then<O>, Remains) {
        // Only what is still needed leaves: a whole entry would be moved through memory.
        let remains = self
            .wheel
            .end_with(handle.id(), |entry| {
                let mut remains = entry.remains();
                // An end that was pending, or a waker: the user's, and so dropped unlocked.
                remains.cold = entry.cold.take();
                Fate::Gone(remains)
            })
            .expect("Holder removes: the entry of a payload is there");
        let deadline = remains.deadline;
        (Then::CallBack { payload, deadline }, remains)
    }

    /// Ends the operation of the entry at `index`, which stays, if `put` returns something. Returns
    /// that. O(1).
    #[inline(always)]
    pub(super) fn end_in_place<R>(
        &mut self,
        index: u32,
        put: impl FnOnce(&mut Entry<O>) -> Option<R>,
    ) -> Option<(R, Remains)> {
        let entry = self.wheel.at_mut(index);
        let put = put(entry)?;
        let remains = entry.keep_ended();
        self.wheel.stop_at(index);
        self.ended += 1;
        Some((put, remains))
    }
}

impl<O: DelayedOperation> Entry<O> {
    /// Turns a payload that is out, and that ends, into its answer, if a future waits for it.
    #[inline(always)]
    fn answer(&mut self, payload: &mut O, outcome: &Outcome) -> Answering {
        if self.flags.has(Flags::ABANDONED) {
            return Answering::NotAwaited;
        }
        // The answer of a condition waits until the operation is off all of its keys.
        if self.last_secondary.is_some() {
            return match payload.waker() {
                Some(_) => Answering::Unmade,
                None => Answering::NotAwaited,
            };
        }
        payload.answer(outcome)
    }

    /// Stays although its operation has ended. What leaves with the end leaves the entry, and is
    /// returned; the answer, and the waker, stay.
    #[inline(always)]
    fn keep_ended(&mut self) -> Remains {
        let remains = self.remains();
        self.flags.set(Flags::ENDED);
        self.link = Link::NOWHERE;
        self.last_secondary = None;
        remains
    }
}
