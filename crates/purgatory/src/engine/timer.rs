//! The kernel as the inside of its table: it advances the wheels, makes jobs of due operations, and
//! ends operations as the table asks.
//!
//! An operation whose time is up ends. If the purgatory was built so, it has its *last check*
//! first, without an event. Check and callback run on the executor, since neither the timer's
//! thread nor another caller must wait for user code. But if a thread has the operation under check
//! just then, that thread ends the operation, after one more check if an event came meanwhile or a
//! last check is to come.
//!
//! Until its last check an entry is held, with Expired as its pending end, so only that check can
//! change how the operation ends.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use timer_core::{
    Advanced, Job, TimerHandle,
    driver::{ShardPlan, sync::UnderWay},
};

use crate::{
    engine::{Core, Kernel},
    operation::{DelayedOperation, Outcome, ReachResult, Timeout},
    shard::{AllEnded, Shard, expire::CallbackJob},
    stats::Stats,
    table::{
        BUDGET, Common, Inside,
        call::{Call, enqueue},
        tour::Tour,
    },
    watches::WatchKey,
};

/// The most secondary watches of an expired operation that are released on the thread that advances
/// the wheels. The job of its callback releases the others.
const RELEASED_AT_ONCE: usize = 16;

/// The most secondary watches that one job releases. The rest of the job goes to the end of the
/// executor's queue, so that operations with many keys delay other callbacks little.
const RELEASED_BY_JOB: usize = 2048;

impl<K: WatchKey, O: DelayedOperation> Inside for Kernel<K, O> {
    type Key = K;
    type Shard = Shard<K, O>;
    type Batch = AllEnded<K, O>;
    type Job = CallbackJob<K, O>;

    #[cfg(feature = "metrics")]
    const HAS_CHECKS: bool = true;

    fn make_shard(_: &Common, plan: ShardPlan) -> Shard<K, O> {
        Shard::new(&plan)
    }

    fn advance(table: &Core<K, O>, shard: usize, now: u64) -> Advanced {
        table.warn_stuck_checks();
        // The clock is read before the lock is taken. Jobs are kept until the round is over.
        let ended_at = table.frame.ending_at();
        let tick = table.frame.driver().config.tick;
        let mut due = table.due.lock();
        let budget = due.budget(BUDGET);
        let mut shard = table.shards.lock(shard);
        let advanced = shard.expire(now, ended_at, budget, tick, |job, order| {
            due.push(job, order);
        });
        shard.advanced(advanced.next_due);
        advanced
    }

    fn queue(table: &Arc<Core<K, O>>, mut jobs: Vec<CallbackJob<K, O>>, under_way: Vec<UnderWay>) {
        // Release the first watches here. On a manual timer release all: it has no reaper for which
        // other owners wait.
        let mut at_once = RELEASED_AT_ONCE;
        if table.frame.driver().config.manual {
            at_once = usize::MAX;
        }
        let mut emptied_keys = Vec::new();
        for job in &mut jobs {
            if let CallbackJob::Call(ended) = job {
                let last = &mut ended.to_release.last_secondary;
                table.release_secondaries(last, at_once, &mut |key| emptied_keys.push(key));
            }
        }
        // Hand over the rest, and the keys: their drop is user code.
        let queued_ns = table.frame.callbacks_queued(jobs.len());
        let core = table.clone();
        table.frame.executor.execute(Job::new(move || {
            for key in emptied_keys {
                core.drop_key(&core.frame.enter(), key);
            }
            core.run_jobs(jobs.into(), queued_ns, under_way);
        }));
    }

    fn end_all(table: &Core<K, O>, outcome: &Outcome) -> (AllEnded<K, O>, usize) {
        let mut claimed = AllEnded::new();
        let mut tour = Tour::default();
        // The clock is read before a lock is taken.
        let ended_at = table.frame.ending_at();
        while let Some((mut shard, handles)) = tour.next(&table.shards) {
            for handle in handles {
                claimed.extend(shard.claim(handle, outcome, ended_at).reached());
                // If a thread holds the operation, that holder is left a request, and a shutdown
                // waits until the operation is called back.
                shard.hold_shutdown(handle, &table.frame.closing);
            }
        }
        let count = claimed.len();
        (claimed, count)
    }

    fn finish_all(table: &Arc<Core<K, O>>, call: &Call<'_>, mut ended: AllEnded<K, O>) {
        table.finish_all(call, &mut ended);
    }

    fn end(table: &Arc<Core<K, O>>, handle: TimerHandle, outcome: Outcome) -> ReachResult {
        let call = table.frame.enter();
        let ended_at = table.frame.ending_at();
        let mut first_shard = table.first_shard_of(handle);
        let claimed = first_shard.claim(handle, &outcome, ended_at);
        drop(first_shard);
        claimed.map(|mut ended| {
            // Put in the original, not its copy: the last copy of a reason is dropped with the
            // operation, where a panic of its drop is contained.
            ended.outcome = outcome;
            table.finish(&call, ended);
        })
    }

    fn reschedule(table: &Core<K, O>, handle: TimerHandle, timeout: Timeout) -> bool {
        let arrival = table.arrival(timeout);
        Core::reschedule_in(&mut table.first_shard_of(handle), handle, arrival)
    }

    fn keys_of(table: &Core<K, O>, handle: TimerHandle) -> Option<Vec<K>> {
        // 1. Clone the first key.
        let mut first_shard = table.first_shard_of(handle);
        let (entry, first_key) = first_shard.show(handle)?;
        let mut last_secondary = entry.last_secondary;
        let first_key = first_key.clone();
        drop(first_shard);
        // 2. Clone the others, the last first.
        let mut keys = Vec::new();
        while let Some(secondary) = last_secondary {
            let shard = table.shards.lock(secondary.shard as usize);
            let Some((key, before)) = shard.secondary_key(secondary, handle) else {
                break; // the operation ended meanwhile
            };
            keys.push(key);
            last_secondary = before;
        }
        keys.push(first_key);
        keys.reverse();
        Some(keys)
    }

    fn add_to(&self, stats: &mut Stats) {
        // Each operation that ended at once was checked once.
        stats.ended_at_once = self.ended_at_once.load(Relaxed);
        stats.checks += stats.ended_at_once;
        stats.events = self.versions.events();
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Runs queued jobs on the executor, in order. A shutdown has each under way until its callback
    /// is over. After [`RELEASED_BY_JOB`] watches another job of the executor goes on.
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
            // Release its remaining watches first, within the budget.
            if let CallbackJob::Call(ended) = &mut job {
                let last = &mut ended.to_release.last_secondary;
                if last.is_some() {
                    budget -= self.release_secondaries(last, budget, &mut |key| {
                        self.drop_key(&self.frame.enter(), key);
                    });
                }
                if last.is_some() {
                    jobs.push_front(job);
                    let core = self.clone();
                    let rest = move || core.run_jobs(jobs, queued_ns, under_way);
                    // A closed executor runs the rest inside the job that hands it over. Then leave
                    // it to the outermost call, so that it needs no stack.
                    let call = self.frame.enter();
                    if call.is_nested() {
                        enqueue(rest);
                    } else {
                        self.frame.executor.execute(Job::new(rest));
                    }
                    return;
                }
            }
            self.frame
                .run_queued(queued_ns, under_way.pop(), |call| match job {
                    CallbackJob::Call(ended) => self.call_back_in(call, ended),
                    CallbackJob::LastCheck(held) => {
                        // Call it back here, without a second job.
                        if let (_, Some(mut ended)) = self.check_held(held) {
                            self.release(call, &mut ended.to_release);
                            self.call_back_in(call, ended);
                        }
                    }
                });
        }
    }
}
