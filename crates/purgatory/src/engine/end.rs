//! Endings from outside: cancel, complete, shut down; and new deadlines.
//!
//! Each *claims* operations under their first shards' locks, then finishes them with nothing
//! locked. An operation that a thread holds is left a request to end, on which its holder acts.

use std::sync::Arc;

use timer_core::TimerHandle;

use crate::{
    engine::{Core, LockedShard},
    operation::{DelayedOperation, Outcome, ReachResult, Timeout},
    shard::AllEnded,
    table::{Arrival, tour::Tour},
    watches::{KeyRef, WatchKey},
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends one operation. One that a thread holds is left the request to end it.
    pub(crate) fn end_one(self: &Arc<Self>, handle: TimerHandle, outcome: Outcome) -> ReachResult {
        let call = self.frame.enter();
        let ended_at = self.frame.ending_at();
        let claimed = self
            .first_shard_of(handle)
            .claim(handle, &outcome, ended_at);
        claimed.map(|mut ended| {
            // Not its copy: the last copy of a reason is dropped with the operation, where a panic of
            // that is contained.
            ended.outcome = outcome;
            self.finish(&call, ended);
        })
    }

    /// Reschedules one operation, unless its end is decided or pending.
    pub(crate) fn reschedule_one(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        let arrival = self.arrival(timeout);
        Self::reschedule_in(&mut self.first_shard_of(handle), handle, arrival)
    }

    pub(crate) fn reschedule_in(
        first_shard: &mut LockedShard<'_, K, O>,
        handle: TimerHandle,
        arrival: Arrival,
    ) -> bool {
        let entry = first_shard.get_mut(handle);
        if entry.is_none_or(|entry| entry.is_ending()) {
            return false;
        }
        Self::schedule(first_shard, handle, arrival);
        true
    }

    /// Ends every operation parked under `key`; returns how many this call ended. All are claimed
    /// before the first is called back, so operations that callbacks park stay.
    pub(crate) fn end_for_key<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        outcome: &Outcome,
    ) -> usize {
        let call = self.frame.enter();
        let ended_at = self.frame.ending_at();
        let mut claimed = AllEnded::new();
        if let Some(waited) = self.waited(key) {
            self.each_waiter(waited, |first_shard, handle| {
                claimed.extend(first_shard.claim(handle, outcome, ended_at).reached());
            });
        }
        let count = claimed.len();
        self.finish_all(&call, &mut claimed);
        count
    }

    /// Claims everything parked. What threads hold is left a request; a shutdown waits for it.
    pub(super) fn claim_all(&self, outcome: &Outcome) -> AllEnded<K, O> {
        let mut claimed = AllEnded::new();
        let mut tour = Tour::default();
        // The clock is read before a lock is taken.
        let ended_at = self.frame.ending_at();
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            for handle in handles {
                claimed.extend(shard.claim(handle, outcome, ended_at).reached());
                shard.hold_shutdown(handle, &self.frame.closing);
            }
        }
        claimed
    }
}
