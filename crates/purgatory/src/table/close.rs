//! Ends from outside: cancel, close, shut down; and new deadlines.

use std::{sync::Arc, time::Duration};

use timer_core::TimerHandle;

use crate::{
    operation::{CancelReason, OperationId, Outcome, ReachResult, Timeout},
    table::{Arrival, Batch, Engine, LockedShard, Table, tour::Tour, trace},
};

impl<E: Engine> Table<E> {
    /// Ends one wait; false if it has ended.
    pub(crate) fn end_one(self: &Arc<Self>, handle: TimerHandle, outcome: &Outcome) -> bool {
        let call = self.frame.enter();
        let now_ns = self.frame.ending_at();
        let mut batch = Batch::new();
        let mut handle = handle;
        let mut shard = self.lock_moved(&mut handle);
        let is_ended = shard.end(&self.engine, handle.id(), outcome, now_ns, &mut batch);
        self.engine.settle(&mut shard, now_ns, &mut batch);
        drop(shard);
        self.finish_all(&call, batch);
        is_ended
    }

    /// Cancels one wait by its id.
    pub(crate) fn cancel(self: &Arc<Self>, id: OperationId, reason: CancelReason) -> ReachResult {
        let outcome = Outcome::Cancelled(reason);
        match self.frame.handle(id) {
            Some(handle) if self.end_one(handle, &outcome) => ReachResult::Reached(()),
            _ => ReachResult::Gone,
        }
    }

    /// Ends all waits that `is_meant`, which is asked under the lock, into a batch that gets those
    /// which follow from it, too. Returns how many waits ended by this.
    fn end_all(
        &self,
        batch: &mut Batch<E>,
        outcome: &Outcome,
        is_meant: impl Fn(&E::Wait) -> bool,
    ) -> usize {
        let now_ns = self.frame.ending_at();
        // An entry that is held outlives a cancel.
        let also_held = matches!(
            outcome,
            Outcome::Cancelled(CancelReason::Shutdown | CancelReason::Dropped)
        );
        let mut count = 0;
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            for handle in handles {
                let Some(wait) = shard.get(handle.id()) else {
                    continue;
                };
                let is_wait = E::is_wait(wait);
                if (is_wait || also_held) && is_meant(wait) {
                    shard.end(&self.engine, handle.id(), outcome, now_ns, batch);
                    count += usize::from(is_wait);
                }
            }
            self.engine.settle(&mut shard, now_ns, batch);
        }
        count
    }

    /// Cancels all waits that `is_meant`; returns how many ended. All of them end before the first
    /// task is woken. O(waits).
    pub(crate) fn cancel_all(
        self: &Arc<Self>,
        reason: CancelReason,
        is_meant: impl Fn(&E::Wait) -> bool,
    ) -> usize {
        let call = self.frame.enter();
        let mut batch = Batch::new();
        let count = self.end_all(&mut batch, &Outcome::Cancelled(reason), is_meant);
        self.finish_all(&call, batch);
        count
    }

    /// Closes every shard, then ends all waits, which are still to be finished.
    fn close_and_end(&self, reason: &CancelReason) -> Batch<E> {
        let is_first = self.shards.close();
        for number in self.shards.made() {
            self.lock(number).closed = !failpoint!(ShutdownClosesNoShard);
        }
        let mut batch = Batch::new();
        let outcome = Outcome::Cancelled(reason.clone());
        let count = self.end_all(&mut batch, &outcome, |_| true);
        trace::closed(&self.frame.name, is_first, count);
        batch
    }

    /// Refuses waits from now on and cancels those that are there. Their tasks are woken here.
    pub(crate) fn close(self: &Arc<Self>, reason: &CancelReason) {
        let call = self.frame.enter();
        let batch = self.close_and_end(reason);
        self.finish_all(&call, batch);
    }

    /// Closes as [`close`](Self::close) does. Tasks are woken on the executor; until then `closing`
    /// counts them.
    pub(crate) fn close_on_executor(self: &Arc<Self>, reason: &CancelReason) {
        let ended = self.close_and_end(reason).into_iter().collect();
        self.queue_all(ended, Some(&self.frame.closing));
    }

    /// Shuts down, and waits until the tasks are woken, for at most `limit`. Returns how many are not.
    pub(crate) fn shutdown(self: &Arc<Self>, limit: Duration) -> usize {
        let limit = self.frame.shutdown_limit(limit);
        self.close_on_executor(&CancelReason::Shutdown);
        self.frame.closing.wait(limit);
        self.frame.closing.wait(Duration::ZERO)
    }

    /// Reschedules a wait: a new deadline, counted from now; false if it has ended.
    pub(crate) fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        let arrival = self.arrival(timeout);
        let mut handle = handle;
        let mut shard = self.lock_moved(&mut handle);
        if shard.get(handle.id()).is_none() {
            return false;
        }
        Self::schedule(&mut shard, handle, arrival);
        true
    }

    /// Sets the deadline of this arrival for an entry that waits or holds.
    pub(crate) fn schedule(shard: &mut LockedShard<'_, E>, handle: TimerHandle, arrival: Arrival) {
        shard.wheel.catch_up(arrival.now_tick);
        match arrival.deadline_tick {
            Some(deadline) => {
                if let Some(due) = shard.wheel.reschedule(handle.id(), deadline) {
                    shard.work_at(due);
                }
            }
            None => {
                shard.wheel.unschedule(handle.id());
            }
        }
    }
}
