//! Operations that wait for a key alone: what [`Replies`](crate::Replies) parks. No event checks
//! them; the code that has their reply takes them out by their key. So a room is a map of them,
//! with time-outs: one lock hold to put one in, one to take it out.

use std::{borrow::Borrow, hash::Hash};

use timer_core::MAX_TASKS;

use crate::{
    engine::core::Core,
    operation::{
        DelayedOperation, OperationId, Outcome, Refused, RefusedReason, Timeout, Verdict,
        watches::WatchKey,
    },
    room::{Ended, Known, Span, Tag, Watched},
    sync::Ordering,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Parks an operation under a key that has no waiter; `None` when it was given no time. Runs
    /// the key's `Hash`, and its `Eq` under the lock of its room. A refused operation is dropped,
    /// and its key comes back.
    pub(crate) fn park_alone(
        &self,
        operation: O,
        key: K,
        timeout: Timeout,
    ) -> Result<Option<OperationId>, Refused<K>> {
        let now_ns = self.driver().now_ns(); // deadlines count from the call
        let hash = self.versions.hash(&key);
        let mut room = self.room_of(hash);
        if room.find(&key, hash).is_some() {
            drop(room);
            return Err(Refused::new(key, RefusedReason::AlreadyExpected));
        }
        if timeout.at_once(Verdict::Unsatisfied, now_ns).is_some() {
            drop(room);
            self.count_at_once();
            return Ok(None);
        }
        let permit = if room.closed { Err(RefusedReason::Closed) } else { self.permit(&operation) };
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(reason) => {
                drop(room);
                return self.refuse(key, reason);
            }
        };
        let tag = Tag { weight: permit.weight, label: None };
        let span = Span { tag, ..self.span(now_ns, timeout) };
        let watched = Watched { known: Known::New(key), hash, watermark: None };
        match self.put_in(&mut room, span, Some(operation), watched) {
            Ok(id) => {
                permit.keep();
                Ok(Some(self.id(id)))
            }
            Err((operation, key)) => {
                drop(room);
                drop(operation);
                let Known::New(key) = key.known else { unreachable!("it was new") };
                self.refuse(key, RefusedReason::Full { limit: MAX_TASKS as usize })
            }
        }
    }

    /// Ends the operation that waits for a key as Completed, and hands it over uncalled. Its key is
    /// free when this returns.
    pub(crate) fn take_alone<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<O>
    where
        K: Borrow<Q>,
    {
        let (hash, at) = (self.versions.hash(key), self.ending_at());
        let mut room = self.room_of(hash);
        let id = room.find(key, hash).and_then(|record| room.first_waiter(record))?;
        let ended = room.claim(id, Outcome::Completed, at);
        drop(room);
        ended.map(|ended| self.hand_over(ended))
    }

    /// How many times all have been taken: to be read before an operation is parked, and kept in
    /// it.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Acquire)
    }

    /// Cancels all that were parked before this call, by the sweeps before each, and hands them
    /// over uncalled. An operation parked meanwhile stays, whatever its room. O(parked).
    pub(crate) fn take_all(&self, outcome: &Outcome, sweeps_before: impl Fn(&O) -> u64) -> Vec<O> {
        let before = self.sweeps.fetch_add(1, Ordering::AcqRel);
        let is_old =
            |operation: &O| sweeps_before(operation) <= before || failpoint!(FailsWhatCameAfter);
        let mut all = Vec::new();
        self.claim_all(false, usize::MAX, outcome, &is_old, &mut |ended| {
            all.extend(ended.drain(..).map(|ended| self.hand_over(ended)));
        });
        all
    }

    fn hand_over(&self, Ended { payload, permit, .. }: Ended<K, O>) -> O {
        self.release_permit(permit);
        payload
    }
}
