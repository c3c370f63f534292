//! Ends from outside: cancel, close, shut down; and new deadlines.

use std::sync::Arc;

use timer_core::{
    TimerHandle,
    driver::{ShardGuard, ShardState},
};

use crate::{
    operation::{CancelReason, Outcome},
    table::{
        AnyTable, Arrival, Batch, Engine, FormShard, Inside, Table, TableOf, tour::Tour, trace,
    },
};

impl<E: Inside> AnyTable<E> {
    /// Closes every shard, then ends all that waits, which is still to be finished.
    fn close_and_end(&self, reason: CancelReason) -> E::Batch {
        let is_first = self.shards.close();
        for number in self.shards.made() {
            self.lock(number).close();
        }
        let (batch, count) = E::end_all(self, &Outcome::Cancelled(reason));
        trace::closed(&self.frame.name, is_first, count);
        batch
    }

    /// Refuses from now on what comes and cancels what is there. It is called back here.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = self.frame.enter();
        let batch = self.close_and_end(reason);
        E::finish_all(self, &call, batch);
    }

    /// Closes as [`close`](Self::close) does. User code runs on the executor; until it has run,
    /// `closing` counts it.
    pub(crate) fn close_on_executor(self: &Arc<Self>, reason: CancelReason) {
        // Another shutdown finds none of these, and waits until they are counted.
        let counting = self.frame.closing.begin();
        let ended = self.close_and_end(reason).into_iter();
        let jobs = ended.map(Into::into).collect();
        self.queue_all(jobs, Some(counting));
    }
}

impl<E: Engine> Table<E> {
    /// Ends all waits that `is_meant`, which is asked under the lock, into a batch that gets those
    /// which follow from it, too. Returns how many waits ended by this.
    pub(super) fn end_meant(
        &self,
        batch: &mut Batch<E>,
        outcome: &Outcome,
        is_meant: impl Fn(&E::Wait) -> bool,
    ) -> usize {
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
                    shard.end(&self.engine, handle.id(), outcome, batch);
                    count += usize::from(is_wait);
                }
            }
        }
        // Once all of them have left, so that none is given what another leaves.
        for number in self.shards.made() {
            let mut shard = self.lock(number);
            self.engine.settle(&mut shard, batch);
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
        let mut batch = self.batch();
        let count = self.end_meant(&mut batch, &Outcome::Cancelled(reason), is_meant);
        self.finish_all(&call, batch);
        count
    }
}

impl<E, S: ShardState, J> TableOf<E, S, J> {
    /// Sets the deadline of this arrival for an entry that is on the wheel.
    pub(crate) fn schedule(shard: &mut ShardGuard<'_, S>, handle: TimerHandle, arrival: Arrival) {
        let wheel = shard.wheel();
        wheel.catch_up(arrival.now_tick);
        match arrival.deadline_tick {
            Some(deadline) => {
                if let Some(due) = wheel.reschedule(handle.id(), deadline) {
                    shard.work_at(due);
                }
            }
            None => {
                wheel.unschedule(handle.id());
            }
        }
    }
}
