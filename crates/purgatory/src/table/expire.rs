//! The timer's side: a wheel that advances, and the jobs of what it finds due.

use std::sync::Arc;

use smallvec::SmallVec;
use timer_core::{
    Advanced, Job, TaskId, TimerStats,
    driver::{
        Due, ShardLook, WheelOwner,
        sync::{Latch, UnderWay},
    },
};

use crate::{
    operation::{CancelReason, Outcome},
    table::{BUDGET, Batch, Ended, EndedAt, Engine, Table, call::enqueue},
};

/// The deadline of an entry that is due, and its id's sequence and index.
type Expired = (u64, u64, u32);

/// A bucket is a stack; those that wait in a line leave it in turn. Compiled once for all engines.
fn put_in_turn(expired: &mut [Expired]) {
    expired.sort_unstable();
}

impl<E: Engine> WheelOwner for Table<E> {
    fn advance(&self, number: usize, now_tick: u64) -> Advanced {
        // 1. The clock is read before the lock is taken.
        let now_ns = self.frame.ending_at();
        let tick = self.frame.driver().config.tick;
        let mut due = self.due.lock();
        let mut shard = self.shards.lock(number);

        // 2. The wheel shows each due entry without its neighbours, so the ends come after.
        let mut expired: SmallVec<[Expired; BUDGET]> = SmallVec::new();
        let budget = due.budget(BUDGET);
        let advanced = shard.wheel.advance(now_tick, budget, |task| {
            let id = task.id();
            expired.push((task.deadline(), id.sequence(), id.index()));
        });
        put_in_turn(&mut expired);

        // 3. End them. One may have been answered by the end of another.
        let last = expired.last().map(|last| (last.0, last.1));
        for (deadline, sequence, index) in expired {
            let id = TaskId::from_parts(index, sequence);
            // What is held is no wait, and counts nowhere.
            let timed_ns = now_ns.filter(|_| shard.get(id).is_some_and(E::is_wait));
            let mut batch = Batch::new();
            shard.end(&self.engine, id, &Outcome::Expired, now_ns, &mut batch);
            if let Some(now_ns) = timed_ns {
                shard.count_lateness(now_ns.saturating_sub(tick.start_ns(deadline)));
            }
            for ended in batch {
                due.push(ended, (deadline, id.sequence()));
            }
        }
        // 4. Waits that are answered by what these have left come after them.
        if let Some(last) = last {
            let mut batch = Batch::new();
            self.engine.settle(&mut shard, now_ns, &mut batch);
            for ended in batch {
                due.push(ended, last);
            }
        }
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        self.queue_all(self.due.take(), None);
        let driver = self.frame.executor.driver.clone();
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
        self.close_on_executor(&CancelReason::Shutdown);
    }
}

impl<E: Engine> Table<E> {
    /// Leaves ended waits to the executor, in as many jobs as it has threads. `latch` counts each
    /// until it is finished.
    pub(crate) fn queue_all(self: &Arc<Self>, due: Due<Ended<E>>, latch: Option<&Latch>) {
        for job in due.into_jobs(self.frame.executor.parallelism()) {
            let mut under_way = Vec::new();
            if let Some(latch) = latch {
                under_way.extend(job.iter().map(|_| latch.begin()));
            }
            let queued_ns = self.frame.callbacks_queued(job.len());
            let table = self.clone();
            self.frame.executor.execute(Job::new(move || {
                for ended in job {
                    table.run_queued(queued_ns, ended, under_way.pop());
                }
            }));
        }
    }

    /// Finishes one wait on the executor, inside a call.
    fn run_queued(
        self: &Arc<Self>,
        queued_ns: EndedAt,
        ended: Ended<E>,
        under_way: Option<UnderWay>,
    ) {
        self.frame.run_queued(queued_ns, |call| {
            self.finish(call, ended);
            if call.is_nested() {
                enqueue(move || drop(under_way)); // behind the callback
            }
        });
    }
}
