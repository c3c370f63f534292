//! Ends from outside: cancel, close and shutdown; and new deadlines.

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
    /// Closes every shard, then ends all waits; returns them, for the caller to finish.
    fn close_and_end(&self, reason: CancelReason) -> E::Batch {
        let is_first = self.shards.close();
        for number in self.shards.made() {
            self.lock(number).close();
        }
        let (batch, count) = E::end_all(self, &Outcome::Cancelled(reason));
        trace::closed(&self.frame.name, is_first, count);
        batch
    }

    /// Cancels all waits and refuses new ones from now on. Callbacks run on this thread.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = self.frame.enter();
        let batch = self.close_and_end(reason);
        E::finish_all(self, &call, batch);
    }

    /// Closes as [`close`](Self::close) does, but runs user code on the executor. `closing` counts
    /// that code until it has run.
    pub(crate) fn close_on_executor(self: &Arc<Self>, reason: CancelReason) {
        // A concurrent shutdown does not find these waits; this makes it wait until they are
        // counted.
        let counting = self.frame.closing.begin();
        let ended = self.close_and_end(reason).into_iter();
        let jobs = ended.map(Into::into).collect();
        self.queue_all(jobs, Some(counting));
    }
}

impl<E: Engine> Table<E> {
    /// Ends all waits for which `is_meant`, called under the lock, returns true. They go into the
    /// batch, with the waits that end in consequence. Returns how many waits `is_meant` chose.
    pub(super) fn end_meant(
        &self,
        batch: &mut Batch<E>,
        outcome: &Outcome,
        is_meant: impl Fn(&E::Wait) -> bool,
    ) -> usize {
        // A held entry outlives a cancel.
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
        // Settle once all have left, so that none of them is given what another leaves.
        for number in self.shards.made() {
            let mut shard = self.lock(number);
            self.engine.settle(&mut shard, batch);
        }
        count
    }

    /// Cancels all waits for which `is_meant` returns true; returns their number. All of them end
    /// before the first task is woken. O(waits).
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
    /// Gives an entry on the wheel the deadline of this arrival.
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
