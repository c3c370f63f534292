//! The timer's side: wheels that advance, and the jobs of what they find due.
//!
//! An operation whose time is up ends. Or it has its *last check* first, without an event, if the
//! purgatory was built so. Both run on the executor, since neither the timer's thread nor another
//! caller is to wait for user code.
//!
//! Until its last check an entry is held, with its end pending as Expired, so only that check
//! changes how the operation ends.

use std::{collections::VecDeque, sync::Arc};

use timer_core::{
    Advanced, Job, TimerStats,
    driver::{
        Due, ShardLook, WheelOwner,
        sync::{Latch, UnderWay},
    },
};

use crate::{
    engine::{BUDGET, Core, trampoline::enqueue},
    operation::{CancelReason, DelayedOperation},
    shard::expire::CallbackJob,
    watches::WatchKey,
};

/// Secondary watches of an expired operation that are released on the thread that advances the
/// wheels; the others are released as its callback runs.
const RELEASED_AT_ONCE: usize = 16;

/// Secondary watches that one job releases at most. Its rest goes to the end of the executor's
/// queue, so that operations with many keys delay the others' callbacks by little.
const RELEASED_BY_JOB: usize = 2048;

impl<K: WatchKey, O: DelayedOperation> WheelOwner for Core<K, O> {
    fn advance(&self, shard: usize, now: u64) -> Advanced {
        self.warn_stuck_checks();
        // The clock is read before the lock is taken. What is found is kept until the round is over.
        let now_ns = self.frame.ending_at();
        let last_check = self.rules.on_missed.is_some();
        let tick = self.frame.driver().config.tick;
        let mut due = self.due.lock();
        let budget = due.budget(BUDGET);
        let mut shard = self.shards.lock(shard);
        let advanced = shard.expire(now, now_ns, budget, last_check, tick, |job, order| {
            due.push(job, order);
        });
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        self.queue_all(self.due.take(), None);
        let driver = self.frame.executor.driver.clone();
        driver.release(self);
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.shards.look(shard)
    }

    #[cfg(feature = "metrics")]
    fn publishes(&self) -> Option<&dyn timer_core::driver::Publishes> {
        Some(self)
    }

    fn timer_closed(self: Arc<Self>) {
        self.close_on_executor(CancelReason::Shutdown);
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Cancels everything parked and refuses operations that come later. User code runs on the
    /// executor; until it has run, `closing` counts it.
    pub(crate) fn close_on_executor(self: &Arc<Self>, reason: CancelReason) {
        let ended = self.close_and_claim(reason).into_iter();
        let all = ended.map(CallbackJob::Call).collect();
        self.queue_all(all, Some(&self.frame.closing));
    }

    /// Leaves work to the executor, in as many jobs as it has threads.
    fn queue_all(self: &Arc<Self>, due: Due<CallbackJob<K, O>>, latch: Option<&Latch>) {
        for jobs in due.into_jobs(self.frame.executor.parallelism()) {
            self.queue(jobs, latch);
        }
    }

    /// Leaves work to the executor, as one job.
    fn queue(self: &Arc<Self>, mut jobs: Vec<CallbackJob<K, O>>, latch: Option<&Latch>) {
        // A shutdown waits for each callback.
        let mut under_way = Vec::new();
        if let Some(latch) = latch {
            under_way.extend(jobs.iter().map(|_| latch.begin()));
        }
        // Release the first watches here. A manual timer has no reaper that other owners wait for:
        // it releases all of them.
        let mut at_once = RELEASED_AT_ONCE;
        if self.frame.driver().config.manual {
            at_once = usize::MAX;
        }
        let mut emptied_keys = Vec::new();
        for job in &mut jobs {
            if let CallbackJob::Call(ended) = job {
                let last = &mut ended.to_release.last_secondary;
                self.release_secondaries(last, at_once, |key| emptied_keys.push(key));
            }
        }
        // Hand the rest over. Keys are the user's, so the executor drops them, too.
        let queued_ns = self.frame.callbacks_queued(jobs.len());
        let core = self.clone();
        self.frame.executor.execute(Job::new(move || {
            drop(emptied_keys);
            core.run_jobs(jobs.into(), queued_ns, under_way);
        }));
    }

    /// Runs what was queued, on the executor, in order. A shutdown has each under way until its
    /// callback is over. After [`RELEASED_BY_JOB`] watches another job of the executor goes on.
    fn run_jobs(
        self: Arc<Self>,
        mut jobs: VecDeque<CallbackJob<K, O>>,
        queued_ns: Option<u64>,
        mut under_way: Vec<UnderWay>,
    ) {
        let mut budget = RELEASED_BY_JOB;
        if self.frame.executor.runs_in_place() {
            budget = usize::MAX;
        }
        while let Some(mut job) = jobs.pop_front() {
            // Release what is left of its watches first, within the budget.
            if let CallbackJob::Call(ended) = &mut job {
                let last = &mut ended.to_release.last_secondary;
                if last.is_some() {
                    budget -= self.release_secondaries(last, budget, drop);
                }
                if last.is_some() {
                    jobs.push_front(job);
                    let core = self.clone();
                    let rest = Job::new(move || core.run_jobs(jobs, queued_ns, under_way));
                    self.frame.executor.execute(rest);
                    return;
                }
            }
            let under_way = under_way.pop();
            self.frame.run_queued(queued_ns, |call| {
                match job {
                    CallbackJob::Call(ended) => self.call_back_in(call, ended),
                    CallbackJob::LastCheck(held) => {
                        // Called back here, without a second job.
                        if let (_, Some(mut ended)) = self.check_held(held) {
                            self.release(&mut ended.to_release);
                            self.call_back_in(call, ended);
                        }
                    }
                }
                if call.is_nested() {
                    enqueue(move || drop(under_way)); // behind the callback
                }
            });
        }
    }
}
