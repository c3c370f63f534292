//! Expiry: what the timer finds due ends. Or it is checked once more, if the purgatory was built
//! so.
//!
//! *The last check* is the executor's, since neither the timer's thread nor anybody else is to wait
//! for it. Until then the entry is held, with its end noted as Expired, so nothing but that check
//! changes how the operation ends.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use timer_core::{
    Advanced, Job, TimerHandle, TimerStats,
    driver::{WheelOwner, contain},
};

use crate::{
    engine::{
        complete::{BUDGET, Permit},
        core::Core,
        nested::{Call, enqueue},
        trace,
    },
    operation::{CancelReason, DelayedOperation, Verdict, watches::WatchKey},
    room::{CheckedOut, Next, Ticket},
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    fn offload_last_checks(self: &Arc<Self>, all: Vec<CheckedOut<O>>) {
        let (core, handed) = (self.clone(), self.to_executor(all.len()));
        self.offload.execute(Job::new(move || {
            for held in all {
                core.begin(handed);
                let now_ns = || core.driver().now_ns();
                trace::slow(&core.name, now_ns, || core.last_check_in_call(held));
            }
        }));
    }

    fn last_check_in_call(self: &Arc<Self>, held: CheckedOut<O>) {
        let call = Call::enter(&self.offload);
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || core.last_check(&Call::enter(&core.offload), held));
        } else {
            self.last_check(&call, held);
        }
    }

    /// Checks an operation whose time is up, and ends it. When that check comes true without an
    /// event, one is missing, or was late.
    fn last_check(self: &Arc<Self>, call: &Call<'_>, mut held: CheckedOut<O>) {
        let id = held.id;
        held.verdict = self.check_by(&mut held.payload, O::last_check);
        let noted = self.first_room_of(id).get_mut(id).is_none_or(|entry| entry.event_noted());
        if held.verdict == Verdict::Satisfied && !noted {
            self.counts.missed.fetch_add(1, Relaxed);
            trace::missed(&self.name);
            self.report_if(contain(|| {
                if let (Some(hook), Some(parked)) =
                    (&self.on_missed, self.parked(id, self.driver().now_ns()))
                {
                    hook(&parked);
                }
            }));
        }
        let at = self.ending_at();
        let given_back = self.first_room_of(id).give_back(held, at);
        if let Next::Ended(ended) = given_back {
            let (payload, outcome) = self.release_watches(ended);
            self.run_callback_here(call, payload, outcome, Permit::Held);
        }
    }

    /// The key a ticket is for, unless it was taken. Runs the key's `Clone` under the lock.
    pub(crate) fn key_of(&self, ticket: Ticket, id: TimerHandle) -> Option<K> {
        self.rooms.lock(ticket.room as usize).further_key(ticket, id)
    }
}

impl<K: WatchKey, O: DelayedOperation> WheelOwner for Core<K, O> {
    fn advance(&self, room: usize, now: u64) -> Advanced {
        self.tell_stuck();
        let (now_ns, in_order) = (self.driver().now_ns(), self.sequence.is_some());
        let budget = if in_order { usize::MAX } else { BUDGET }; // order needs the whole tick
        if self.on_missed.is_some() {
            let mut due = self.last_checks.lock();
            let mut room = self.rooms.lock(room);
            let turn = room.check_out_expired(now, budget, |held, order| {
                due.push(held, in_order.then_some(order));
            });
            room.advanced(turn.next_due);
            return turn;
        }
        let mut expired = self.expired.lock();
        let mut room = self.rooms.lock(room);
        let turn = room.expire(now, now_ns, budget, |ended, order| {
            expired.push(ended, in_order.then_some(order));
        });
        room.advanced(turn.next_due);
        turn
    }

    fn round_over(self: Arc<Self>) {
        let parallelism = self.offload.parallelism();
        let due = std::mem::take(&mut *self.last_checks.lock());
        due.into_jobs(parallelism).for_each(|held| self.offload_last_checks(held));
        let expired = std::mem::take(&mut *self.expired.lock());
        for ended in expired.into_jobs(parallelism) {
            self.offload_endings(ended, None);
        }
        let driver = self.offload.driver.clone();
        if let Some(core) = Arc::into_inner(self) {
            // The last handle went meanwhile. An executor or a hook is the user's to drop: not
            // here.
            driver.execute(Job::new(move || drop(core)));
        }
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.rooms.add_to(stats);
    }

    fn next_due(&self, room: usize) -> Option<u64> {
        self.rooms.next_due(room)
    }

    fn timer_closed(self: Arc<Self>) {
        self.close_offloading(CancelReason::Shutdown);
    }
}
