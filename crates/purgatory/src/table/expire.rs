//! The timer's side: it advances the wheels and makes jobs of the waits that are due.

use std::sync::Arc;

use smallvec::SmallVec;
use timer_core::{
    Advanced, Job, TaskId, TimerHandle, TimerStats,
    driver::{Due, ShardLook, ShardPlan, WheelOwner, sync::UnderWay},
};

use crate::{
    operation::{CancelReason, Outcome, ReachResult, Timeout},
    table::{
        AnyTable, BUDGET, Batch, Common, Ended, Engine, Inside, Table, call::Call, shard::Shard,
    },
};

/// The deadline of a due entry, and its id's sequence and index.
type Expired = (u64, u64, u32);

/// Sorts entries into the order in which they expire: a bucket is a stack, but waits in a line
/// leave it in turn. Compiled once for all engines.
fn put_in_turn(expired: &mut [Expired]) {
    expired.sort_unstable();
}

impl<E: Engine> Inside for E {
    type Key = E::Key;
    type Shard = Shard<E>;
    type Batch = Batch<E>;
    type Job = Ended<E>;

    #[cfg(feature = "metrics")]
    const HAS_CHECKS: bool = false;

    fn make_shard(common: &Common, plan: ShardPlan) -> Shard<E> {
        Shard::new(&plan, common.clone())
    }

    fn advance(table: &Table<E>, shard: usize, now_tick: u64) -> Advanced {
        // 1. The clock is read before the lock is taken.
        let ended_at = table.frame.ending_at();
        let tick = table.frame.driver().config.tick;
        let mut due = table.due.lock();
        let mut shard = table.shards.lock(shard);

        // 2. The wheel shows only one due entry at a time, so the waits are ended in a second step.
        let mut expired: SmallVec<[Expired; BUDGET]> = SmallVec::new();
        let budget = due.budget(BUDGET);
        let advanced = shard.wheel.advance(now_tick, budget, |task| {
            let id = task.id();
            expired.push((task.deadline(), id.sequence(), id.index()));
        });
        put_in_turn(&mut expired);

        // 3. End them one at a time. The consequences of each end take effect before the next: a
        //    wait that it answers has not expired, however late this thread is.
        for (deadline, sequence, index) in expired {
            let id = TaskId::from_parts(index, sequence);
            // A held entry is no wait, and counts nowhere.
            let timed_ns = ended_at.filter(|_| shard.get(id).is_some_and(E::is_wait));
            let mut batch = Batch::at(ended_at);
            shard.end(&table.engine, id, &Outcome::Expired, &mut batch);
            if let Some(ended_at) = timed_ns {
                shard.count_lateness(ended_at.saturating_sub(tick.start_ns(deadline)));
            }
            table.engine.settle(&mut shard, &mut batch);
            for ended in batch {
                due.push(ended, (deadline, sequence));
            }
        }
        shard.advanced(advanced.next_due);
        advanced
    }

    fn ends_wait(job: &Ended<E>) -> bool {
        E::is_of_wait(&job.left)
    }

    fn queue(table: &Arc<Table<E>>, jobs: Vec<Ended<E>>, mut under_way: Vec<UnderWay>) {
        // A callback takes a place until it begins.
        for ended in &jobs {
            if E::is_called_back(&ended.left) {
                table.common.take_callbacks_place();
            }
        }
        let queued_ns = table.frame.callbacks_queued(jobs.len());
        let inside = table.clone();
        table.frame.executor.execute(Job::new(move || {
            for ended in jobs {
                if E::is_called_back(&ended.left) {
                    inside.common.return_place();
                }
                let finish = |call: &Call<'_>| inside.finish(call, ended);
                inside.frame.run_queued(queued_ns, under_way.pop(), finish);
            }
        }));
    }

    fn end_all(table: &Table<E>, outcome: &Outcome) -> (Batch<E>, usize) {
        let mut batch = table.batch();
        let count = table.end_meant(&mut batch, outcome, |_| true);
        (batch, count)
    }

    fn finish_all(table: &Arc<Table<E>>, call: &Call<'_>, batch: Batch<E>) {
        table.finish_all(call, batch);
    }

    fn end(table: &Arc<Table<E>>, handle: TimerHandle, outcome: Outcome) -> ReachResult {
        let call = table.frame.enter();
        let mut batch = table.batch();
        let (mut shard, at) = table.lock_moved(handle);
        let is_ended = shard.end(&table.engine, at.id(), &outcome, &mut batch);
        table.engine.settle(&mut shard, &mut batch);
        drop(shard);
        table.finish_all(&call, batch);
        match is_ended {
            true => ReachResult::Reached(()),
            false => ReachResult::Gone,
        }
    }

    fn reschedule(table: &Table<E>, handle: TimerHandle, timeout: Timeout) -> bool {
        let arrival = table.arrival(timeout);
        let (mut shard, at) = table.lock_moved(handle);
        if shard.get(at.id()).is_none() {
            return false;
        }
        Table::<E>::schedule(&mut shard, at, arrival);
        true
    }

    fn keys_of(table: &Table<E>, handle: TimerHandle) -> Option<Vec<E::Key>> {
        let shard = table.lock(handle.shard());
        let wait = shard.get(handle.id())?;
        Some(vec![E::key_of(&shard.records, wait)])
    }

    #[cfg(feature = "metrics")]
    fn own_gauges(table: &Table<E>) -> Vec<timer_core::driver::Sample> {
        E::own_gauges(table)
    }
}

impl<E: Inside> WheelOwner for AnyTable<E> {
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced {
        E::advance(self, shard, now_tick)
    }

    fn round_over(self: Arc<Self>) {
        self.queue_all(self.due.take(), None);
        let driver = self.frame.driver().clone();
        driver.release(self);
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.shards.look(shard)
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    #[cfg(feature = "metrics")]
    fn publishes(&self) -> Option<&dyn timer_core::driver::Publishes> {
        Some(self)
    }

    fn timer_closed(self: Arc<Self>) {
        self.close_on_executor(CancelReason::Shutdown);
    }
}

impl<E: Inside> AnyTable<E> {
    /// Leaves work to the executor, in as many jobs as it has threads. With `counting`, all pieces
    /// count as closing before the first runs, each until it is done; `counting` is dropped before
    /// the first runs.
    pub(super) fn queue_all(self: &Arc<Self>, due: Due<E::Job>, counting: Option<UnderWay>) {
        let mut all = Vec::new();
        for jobs in due.into_jobs(self.frame.executor.parallelism()) {
            let mut under_way = Vec::new();
            if counting.is_some() {
                // Reversed, as the last one is taken first.
                under_way.extend(jobs.iter().rev().map(|job| match E::ends_wait(job) {
                    true => self.frame.closing.begin(),
                    false => self.frame.closing_others.begin(),
                }));
            }
            all.push((jobs, under_way));
        }
        drop(counting);
        for (jobs, under_way) in all {
            E::queue(self, jobs, under_way);
        }
    }
}
