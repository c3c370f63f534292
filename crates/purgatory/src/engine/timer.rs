//! Expiry: what the timer finds due ends. Or it is checked without an event, if the purgatory was
//! built so: a *recheck* while it waits, or the *last check* when its time is up.
//!
//! Both are the executor's, since neither the timer's thread nor anybody else is to wait for them.
//! Until the last check the entry is held, with its end noted as Expired, so nothing but that check
//! changes how the operation ends. One that is due for a recheck waits on as ever, until the
//! executor comes to it.

use std::sync::Arc;

use timer_core::{Advanced, Job, TimerHandle, TimerStats, driver::WheelOwner};

use crate::{
    engine::{BUDGET, Core, nested::Call, trace},
    operation::{CancelReason, DelayedOperation, Verdict},
    shard::Turn,
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Checks an operation without an event. When that check comes true, an event is missing, or
    /// was late.
    pub(super) fn recheck(self: &Arc<Self>, call: &Call<'_>, id: TimerHandle) {
        let held = self.first_shard_of(id).check_out_again(id);
        let Some(mut held) = held else { return };
        held.verdict = self.check_by(&mut held.payload, O::check_without_event);
        let noted = self
            .first_shard_of(id)
            .get_mut(id)
            .is_none_or(|entry| entry.event_noted());
        if held.verdict == Verdict::Satisfied && !noted {
            self.counts.rare.lock().missed_events += 1;
            trace::missed(&self.settings.name);
            self.call(|| {
                let Some(hook) = &self.settings.on_missed else {
                    return;
                };
                self.parked(id, self.driver().now_ns())
                    .iter()
                    .for_each(hook);
            });
        }
        let at = self.ending_at();
        let checked_in = self.first_shard_of(id).check_in(held, at);
        if let Some(mut ended) = self.finish_check_in(checked_in) {
            self.release(&mut ended);
            self.run(call, ended); // here, since this is the executor
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> WheelOwner for Core<K, O> {
    fn advance(&self, shard: usize, now: u64) -> Advanced {
        self.warn_stuck_checks();
        let (now_ns, in_order) = (self.driver().now_ns(), self.sequence.is_some());
        let budget = if in_order { usize::MAX } else { BUDGET }; // order needs the whole tick
        let every = self
            .settings
            .recheck_every
            .map_or(1, |every| self.driver().tick.deadline(0, every));
        let last_check = self.settings.on_missed.is_some();
        let turn = Turn {
            now,
            now_ns,
            budget,
            every,
            last_check,
        };
        let mut fired = self.fired.lock();
        let mut shard = self.shards.lock(shard);
        let advanced = shard.expire(turn, |one, order| {
            fired.push(one, in_order.then_some(order))
        });
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.fired.lock());
        for fired in all.into_jobs(self.offload.parallelism()) {
            self.offload_fired(fired, None);
        }
        let driver = self.offload.driver.clone();
        if let Some(core) = Arc::into_inner(self) {
            // The last handle went meanwhile. An executor or a hook is the user's to drop: not
            // here.
            driver.execute(Job::new(move || drop(core)));
        }
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn next_due(&self, shard: usize) -> Option<u64> {
        self.shards.next_due(shard)
    }

    fn timer_closed(self: Arc<Self>) {
        self.close_offloading(CancelReason::Shutdown);
    }
}
