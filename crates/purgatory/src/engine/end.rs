//! Ends the operations of a key from outside, and gives an operation a new deadline.
//!
//! Ending *claims* operations under their first shards' locks, then finishes them with nothing
//! locked. If a thread holds an operation, that thread is left a request to end it.

use std::sync::Arc;

use timer_core::TimerHandle;

use crate::{
    engine::{Core, LockedShard},
    operation::{DelayedOperation, Outcome},
    shard::AllEnded,
    table::Arrival,
    watches::{KeyRef, WatchKey},
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Reschedules one operation, unless its end is decided or pending.
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
    /// before the first callback runs, so operations that callbacks park stay.
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
}
