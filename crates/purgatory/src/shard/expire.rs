//! Expiry: the consequences of an advance of a shard's wheel.
//!
//! The wheel visits the entries whose time is up, one at a time. Each has its last check, if that
//! is asked for, or ends. One that is held is left a request. The rest of an operation's expiry is a
//! [`CallbackJob`], for the executor.

use timer_core::{Advanced, DueTask, TimerHandle};

use super::{
    ColdParts, Ended, Shard, count_end,
    entry::{Cause, CheckedOut, Entry, Visited},
};
use crate::{
    operation::{DelayedOperation, Outcome},
    stats::Counts,
};

/// The limits of one advance of a wheel: to the tick `now`, within `budget` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdvanceLimits {
    pub(crate) now: u64,
    pub(crate) now_ns: u64,
    pub(crate) budget: usize,
    /// Each operation is checked once more when its time is up.
    pub(crate) last_check: bool,
}

/// Work from one advance of a wheel, for the executor.
#[derive(Debug)]
pub(crate) enum CallbackJob<K, O> {
    /// It has expired: call it back.
    Call(Ended<K, O>),
    /// Its time is up: check it once more, then check it in. This job holds it.
    LastCheck(CheckedOut<O>),
}

/// The deadline of an operation, and its sequence.
type Order = (u64, u64);

/// An operation that the wheel ended. Its entry and first watch are still in place.
struct ExpiredVisit<O> {
    handle: TimerHandle,
    payload: O,
    order: Order,
}

/// The visits of one advance.
struct Visits<'a, O> {
    shard: usize,
    limits: AdvanceLimits,
    counts: &'a mut Counts,
    cold: &'a mut ColdParts,
    expired: Vec<ExpiredVisit<O>>,
}

impl<O> Visits<'_, O> {
    /// Visits one entry. The wheel shows it without its neighbours, so an entry that has ended is
    /// collected.
    fn visit<K>(
        &mut self,
        mut task: DueTask<'_, Entry<O>>,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) {
        let handle = TimerHandle::new(self.shard, task.id());
        let order = (task.deadline(), task.id().sequence());
        let entry = task.get_mut();
        match entry.visit(order.0, self.limits.last_check) {
            Visited::LastCheck(payload) => {
                let held = CheckedOut::new(handle, payload, Cause::NoEvent);
                report(CallbackJob::LastCheck(held), order);
            }
            Visited::Expired(payload) => {
                // Counted and timed while the entry is at hand.
                let expired = &Outcome::Expired;
                let now_ns = Some(self.limits.now_ns);
                let entry = || Some((&*entry, order.0));
                count_end(self.counts, self.cold, expired, now_ns, entry);
                self.expired.push(ExpiredVisit {
                    handle,
                    payload,
                    order,
                });
            }
            Visited::LeftToHolder => {
                if failpoint!(ExpiryRemovesCheckedOut) {
                    task.take();
                }
            }
        }
    }
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Advances the wheel, and calls `report` with the work that this makes, in no order: each with
    /// its deadline and, if the wheel keeps order, its sequence. O(budget).
    pub(crate) fn expire(
        &mut self,
        limits: AdvanceLimits,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) -> Advanced {
        // 1. Visit what is due.
        let mut visits = Visits {
            shard: self.entries.shard as usize,
            limits,
            counts: &mut self.counts,
            cold: &mut self.cold,
            expired: Vec::new(),
        };
        let advanced = self
            .entries
            .wheel
            .advance(limits.now, limits.budget, |task| {
                visits.visit(task, &mut report);
            });
        // 2. Take what has ended off the wheel and its keys' lists.
        for visit in visits.expired {
            let mut to_release = self.remove(visit.handle);
            to_release.due = visit.order.0;
            let ended = Ended {
                payload: visit.payload,
                outcome: Outcome::Expired,
                to_release,
            };
            report(CallbackJob::Call(ended), visit.order);
        }
        advanced
    }
}
