//! Endings from outside: cancel, complete, shut down; and new deadlines.
//!
//! Each *claims* operations under their first shards' locks, then finishes them with nothing
//! locked. An operation that a thread holds is left a request to end, on which its holder acts.

use std::{hash::Hash, sync::Arc};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{
        Core, Tour, trace,
        trampoline::Call,
        under_lock::must_be_unlocked,
        walk::{LIST_BATCH, Unfinished, WaiterWalk},
    },
    operation::{CancelReason, DelayedOperation, EndResult, OperationId, Outcome, Timeout},
    shard::{AllEnded, CheckedOut, Ended, Entry, ParkOptions, Shard},
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends one operation. One that cannot complete without a value is checked for it.
    pub(crate) fn end(self: &Arc<Self>, id: OperationId, outcome: Outcome) -> EndResult {
        let Some(handle) = self.handle(id) else {
            return EndResult::Gone;
        };
        let call = Call::enter(&self.job_executor);
        let now_ns = self.ending_at();
        let mut first_shard = self.first_shard_of(handle);
        let Some(entry) = first_shard.get_mut(handle) else {
            return EndResult::Gone;
        };

        // 1. A wait has a value only from its condition, a reply from its delivery. If a thread
        //    holds it, it is left a request to check once more.
        if outcome == Outcome::Completed && Self::needs_value(entry) {
            let held = first_shard.check_out(handle);
            drop(first_shard);
            return self.complete_by_check(&call, held);
        }

        // 2. Any other ends now, or its holder ends it.
        let Some((then, mut to_release)) = first_shard.claim(handle, &outcome, now_ns) else {
            // A thread holds it: that thread was left the request to end it.
            return EndResult::Noted;
        };
        self.unlock_ended(first_shard, &then, &mut to_release);
        let ended = Ended {
            then,
            outcome,
            to_release,
        };
        self.finish(&call, ended);
        EndResult::Ended
    }

    /// True if no call completes the operation: it yields a value that a check or a reply gives.
    fn needs_value(entry: &Entry<O>) -> bool {
        entry.needs_value()
    }

    /// Completes an operation that needs a value, if its check gives one. It is `held`, unless
    /// another thread ends it.
    fn complete_by_check(
        self: &Arc<Self>,
        call: &Call<'_>,
        held: Option<CheckedOut<O>>,
    ) -> EndResult {
        let Some(held) = held else {
            return EndResult::Noted;
        };
        match self.check_held(held).ended {
            Some(ended) => {
                self.finish(call, ended);
                EndResult::Ended
            }
            None => EndResult::NoValue,
        }
    }

    /// Reschedules one operation, unless its end is decided or pending.
    pub(crate) fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        match self.handle(id) {
            Some(handle) => self.reschedule_one(handle, timeout),
            None => false,
        }
    }

    /// Reschedules one operation of this purgatory, as [`reschedule`](Self::reschedule).
    pub(crate) fn reschedule_one(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        let options = self.park_options(self.driver().now_ns(), timeout);
        self.reschedule_to(handle, &options)
    }

    /// Reschedules every operation parked under `key`; returns how many.
    pub(crate) fn reschedule_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        timeout: Timeout,
    ) -> usize {
        let hash = self.versions.hash(key);
        let options = self.park_options(self.driver().now_ns(), timeout);
        let mut rescheduled = 0;
        for handle in self.waiters_of(key, hash) {
            rescheduled += usize::from(self.reschedule_to(handle, &options));
        }
        rescheduled
    }

    fn reschedule_to(&self, handle: TimerHandle, options: &ParkOptions) -> bool {
        let mut first_shard = self.first_shard_of(handle);
        let Some(due) = first_shard.reschedule(handle, *options) else {
            return false;
        };
        Self::work_at(&mut first_shard, options, due);
        true
    }

    /// Completes every operation parked under `key`, as [`complete_listed`](Self::complete_listed).
    pub(crate) fn complete_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
    ) -> usize {
        let call = Call::enter(&self.job_executor);
        let listed = self.waiters_of(key, self.versions.hash(key));
        self.complete_listed(&call, listed)
    }

    /// Completes everything parked, as [`complete_listed`](Self::complete_listed).
    pub(crate) fn complete_all(self: &Arc<Self>) -> usize {
        let call = Call::enter(&self.job_executor);
        let mut listed = Vec::new();
        let mut tour = Tour::default();
        while let Some((_shard, handles)) = self.next_parked(&mut tour) {
            listed.extend(handles);
        }
        self.complete_listed(&call, listed)
    }

    /// Completes these operations; returns how many this call ended. All are claimed before the
    /// first is called back. One that needs a value is checked for it, and waits on without one.
    fn complete_listed(self: &Arc<Self>, call: &Call<'_>, listed: Vec<TimerHandle>) -> usize {
        // 1. Claim those that need no value. One that is held is left a request to end.
        let now_ns = self.ending_at();
        let mut to_check = Vec::new();
        let mut unfinished = Unfinished::new(self, call);
        let claimed = &mut unfinished.ended;
        let completed = &Outcome::Completed;
        self.each_in_first_shard(
            listed,
            |&handle| handle,
            |first_shard, handle| match first_shard.get_mut(handle) {
                Some(entry) if Self::needs_value(entry) => to_check.push(handle),
                _ => claimed.extend(self.claim_in(first_shard, handle, completed, now_ns)),
            },
        );
        // 2. Call them back, then check the others.
        let completed = unfinished.finish();
        completed + self.check_each_once(call, to_check)
    }

    /// Cancels every operation parked under `key`; returns how many this call ended. All are
    /// claimed before the first is called back, so operations that callbacks park stay.
    pub(crate) fn cancel_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        reason: CancelReason,
    ) -> usize {
        let outcome = Outcome::Cancelled(reason);
        let call = Call::enter(&self.job_executor);
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();
        let mut unfinished = Unfinished::new(self, &call);
        let claimed = &mut unfinished.ended;
        let mut claim = |first_shard: &mut Shard<K, O>, handle| {
            claimed.extend(self.claim_in(first_shard, handle, &outcome, now_ns));
        };
        self.claim_listed(key, hash, &mut claim);
        let count = unfinished.ended.len();
        unfinished.finish();
        count
    }

    /// Applies `claim` to each waiter of a key, in its operation's first shard.
    fn claim_listed<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        claim: &mut impl FnMut(&mut Shard<K, O>, TimerHandle),
    ) {
        // 1. Begin a walk, with the first waiters.
        let mut found = Vec::new();
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return;
        };
        let mut walk = WaiterWalk::begin(
            &self.shards,
            &mut shard,
            record,
            LIST_BATCH,
            |of, waiter| found.push(waiter.handle(of)),
        );
        drop(shard);
        // 2. Claim what was found, and go on.
        loop {
            self.each_in_first_shard(found.drain(..), |&handle| handle, &mut *claim);
            if !walk.next(LIST_BATCH, |of, waiter| found.push(waiter.handle(of))) {
                return;
            }
        }
    }

    /// Cancels everything parked; returns how many this call ended. All are claimed before the
    /// first is called back, so operations that callbacks park stay.
    pub(crate) fn cancel_all(self: &Arc<Self>, reason: CancelReason) -> usize {
        let call = Call::enter(&self.job_executor);
        let mut claimed = self.claim_all(&Outcome::Cancelled(reason), |_| true);
        let count = claimed.len();
        self.finish_all(&call, &mut claimed);
        count
    }

    /// Cancels everything parked and refuses operations that come later.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = Call::enter(&self.job_executor);
        let mut claimed = self.close_and_claim(reason);
        self.finish_all(&call, &mut claimed);
    }

    /// Closes every shard, then claims everything parked, to be finished.
    pub(super) fn close_and_claim(&self, reason: CancelReason) -> AllEnded<K, O> {
        must_be_unlocked();
        let mut is_first = false;
        for number in 0..self.shards.last_count() {
            is_first |= self.shards.lock(number).close(&self.under_check);
        }
        let claimed = self.claim_all(&Outcome::Cancelled(reason), |_| true);
        trace::closed(&self.name, is_first, claimed.len());
        claimed
    }

    /// Claims everything parked that `is_meant`, under the lock. It is asked with `None` for an
    /// operation that is held.
    fn claim_all(
        &self,
        outcome: &Outcome,
        is_meant: impl Fn(Option<&O>) -> bool,
    ) -> AllEnded<K, O> {
        let mut ended = AllEnded::new();
        let mut tour = Tour::default();
        // The clock is read before a lock is taken.
        let now_ns = self.ending_at();
        while let Some((mut shard, handles)) = self.next_parked(&mut tour) {
            for handle in handles {
                let payload = shard.get_mut(handle).and_then(|entry| entry.payload());
                if is_meant(payload) {
                    ended.extend(self.claim_in(&mut shard, handle, outcome, now_ns));
                }
            }
        }
        ended
    }
}
