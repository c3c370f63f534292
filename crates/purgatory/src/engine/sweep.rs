//! Rechecks: *sweeps* over all parked operations, one every `recheck_every`.
//!
//! A sweep checks each operation that has been parked for an interval, as an event does; if the
//! operation is held, its holder is left the same request. There was no event, so if a check comes
//! true here, one was missed. Sweeps run on the executor, in bounded steps. A separate file
//! [plans][planned] when they begin.
//!
//! [planned]: super::sweep_plan

use std::{sync::Arc, time::Duration, vec};

use timer_core::{Job, TimerHandle};

use crate::{
    engine::{
        Core,
        check::Batch,
        sweep_plan::{SweepPlan, Sweeps},
    },
    operation::DelayedOperation,
    sync::CHECK_BATCH,
    table::{
        BUDGET,
        call::{Call, enqueue},
        form::AnyForm,
        tour::Tour,
    },
    watches::WatchKey,
};

/// The most operations that one job of a sweep checks. The rest goes to the end of the executor's
/// queue, so that a sweep delays callbacks little.
const SWEPT_BY_JOB: usize = 64;

/// A sweep under way.
struct Sweep {
    /// The tick at which it was due.
    due_tick: u64,
    tour: Tour,
    /// Operations that are listed but not checked yet.
    listed: vec::IntoIter<TimerHandle>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Plans the sweeps of a new purgatory.
    pub(crate) fn plan_sweeps(self: &Arc<Self>, every: Duration) -> Arc<dyn Sweeps> {
        let core = Arc::downgrade(self);
        SweepPlan::new(self.frame.driver(), every, move |due_tick| {
            if let Some(core) = core.upgrade() {
                // A job runs the sweep, and drops the purgatory if it has the last reference.
                core.queue_sweep(Sweep {
                    due_tick,
                    tour: Tour::default(),
                    listed: Vec::new().into_iter(),
                });
            }
        })
    }

    /// Leaves a sweep, or its rest, to the executor.
    fn queue_sweep(self: Arc<Self>, sweep: Sweep) {
        let queued_ns = self.frame.callbacks_queued(1);
        let executor = self.frame.executor.clone();
        executor.execute(Job::new(move || {
            self.frame.run_queued(queued_ns, None, |call| {
                // A closed executor runs the rest of a sweep inside the job that hands it over.
                // Then queue the rest for the outermost call, so that it needs no stack.
                let core = self.clone();
                if call.is_nested() && !self.frame.executor.runs_in_place() {
                    enqueue(move || core.clone().sweep_on(&core.frame.enter(), sweep));
                } else {
                    core.sweep_on(call, sweep);
                }
            });
        }));
    }

    /// Goes on with a sweep for [`SWEPT_BY_JOB`] operations, then leaves the rest to another job.
    fn sweep_on(self: Arc<Self>, call: &Call<'_>, mut sweep: Sweep) {
        let Some(sweeps) = self.engine.sweeps.get() else {
            return;
        };
        // 1. Take the time by which an operation must have been parked, an interval ago.
        let tick = self.frame.driver().config.tick;
        let now_ns = self.frame.timed_end();
        let every_ns = u64::try_from(sweeps.every().as_nanos()).unwrap_or(u64::MAX);
        let parked_by_ns = now_ns
            .unwrap_or(tick.start_ns(sweep.due_tick))
            .saturating_sub(every_ns);
        // 2. Check those operations, a batch at a time.
        let mut budget = SWEPT_BY_JOB;
        if self.frame.executor.runs_in_place() {
            budget = usize::MAX;
        }
        while budget > 0 {
            if sweep.listed.len() == 0 {
                sweep.listed = self.listed_next(&mut sweep.tour).into_iter();
            }
            let together: Vec<_> = sweep.listed.by_ref().take(CHECK_BATCH).collect();
            if together.is_empty() {
                let is_idle = || self.waiting() == 0;
                sweeps.ended(sweep.due_tick, self.frame.timed_end(), &is_idle);
                return;
            }
            budget = budget.saturating_sub(together.len());
            self.check_for_sweep(call, together, parked_by_ns);
        }
        self.queue_sweep(sweep);
    }

    /// Lists the operations of the next shard that has some, or of all shards where the order
    /// across shards matters, in the order of parking. Empty at the end.
    fn listed_next(&self, tour: &mut Tour) -> Vec<TimerHandle> {
        let mut listed = Vec::new();
        while let Some((shard, handles)) = tour.next(&self.shards) {
            drop(shard);
            listed.extend_from_slice(&handles);
            // A step that is not full is the last of its shard.
            if handles.len() < BUDGET && !self.frame.driver().config.manual {
                break;
            }
        }
        listed.sort_unstable_by_key(|handle| handle.id().sequence());
        listed
    }

    /// Checks together those of the operations that have been parked for an interval, and calls
    /// back those that ended.
    fn check_for_sweep(
        self: &Arc<Self>,
        call: &Call<'_>,
        together: Vec<TimerHandle>,
        parked_by_ns: u64,
    ) {
        // 1. Check them.
        let mut batch = Batch::with_capacity(together.len());
        self.each_in_first_shard(
            None,
            together,
            |&handle| handle,
            |first_shard, handle| {
                batch.extend(first_shard.check_out_for_sweep(handle, parked_by_ns));
            },
        );
        let mut ended = self.check_together(&mut batch, None);
        // 2. Take all out of every watch list, then call them back: here, without a second job.
        for ended in &mut ended {
            self.release(call, &mut ended.to_release);
        }
        for ended in ended {
            self.call_back_in(call, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use timer_core::SystemTimer;

    use super::*;
    use crate::{Purgatory, Timeout, when};

    #[test]
    fn a_shard_is_listed_at_once_in_the_order_of_parking() {
        let timer = SystemTimer::new().unwrap();
        let builder = Purgatory::<u32>::builder("test").timer(&timer);
        let waits = builder.shards(2).build().unwrap();
        let park = |key| {
            let parked =
                waits.try_complete_else_watch(when(|| false, drop), &[key], Timeout::Never);
            parked.unwrap();
        };
        let core = &waits.handle.table;
        let has_many = |shard| core.lock(shard).watched() > BUDGET;
        let mut keys = 0;
        while !has_many(0) || !has_many(1) {
            park(keys);
            keys += 1;
        }
        waits.cancel_for_key(&0, "gone");
        park(0); // where the first was
        let mut tour = Tour::default();
        for _ in 0..2 {
            let listed = core.listed_next(&mut tour);
            assert!(listed.len() > BUDGET, "a step of the tour");
            assert!(listed.is_sorted_by_key(|handle| handle.id().sequence()));
        }
        assert!(core.listed_next(&mut tour).is_empty());
    }
}
