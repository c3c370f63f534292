//! Expiry: the consequences of an advance of a shard's wheel.
//!
//! The wheel visits the entries that are due, one at a time. An entry that it visits early is due
//! for a recheck and goes back on the wheel. One whose time is up has its last check, if that is
//! asked for, or ends. One that is held is left a request. The rest of an operation's expiry is a
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
    /// Ticks from one recheck of an operation to the next. At least 1.
    pub(crate) recheck_every: u64,
    /// Each operation is checked once more when its time is up.
    pub(crate) last_check: bool,
}

/// Work from one advance of a wheel, for the executor.
#[derive(Debug)]
pub(crate) enum CallbackJob<K, O> {
    /// It has expired: call it back.
    Call(Ended<K, O>),
    /// It is due for a recheck, and no other one is queued.
    Recheck(TimerHandle),
    /// Its time is up: check it once more, then check it in. This job holds it.
    LastCheck(CheckedOut<O>),
}

/// The tick at which the wheel was to visit an operation, and the operation's sequence.
type Order = (u64, u64);

/// An entry that the wheel visited before its time was up.
struct EarlyVisit {
    handle: TimerHandle,
    /// The tick of the next visit.
    armed: u64,
}

/// An operation that the wheel ended. Its entry and first watch are still in place.
struct ExpiredVisit<O> {
    handle: TimerHandle,
    payload: O,
    order: Order,
}

/// The visits of one advance.
struct Visits<'a, O> {
    shard: usize,
    now: u64,
    limits: AdvanceLimits,
    counts: &'a mut Counts,
    cold: &'a mut ColdParts,
    early: Vec<EarlyVisit>,
    expired: Vec<ExpiredVisit<O>>,
}

impl<O> Visits<'_, O> {
    /// Visits one entry. The wheel shows it without its neighbours, so an entry that has ended or
    /// is to be put back is collected.
    fn visit<K>(
        &mut self,
        mut task: DueTask<'_, Entry<O>>,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) {
        let handle = TimerHandle::new(self.shard, task.id());
        let visit_order = (task.deadline(), task.id().sequence());
        let entry = task.get_mut();
        // A wheel that was not advanced for long visits after the deadline for a recheck: what ends
        // is ordered by its own deadline.
        let end_order = (entry.deadline, visit_order.1);
        match entry.visit(self.now, self.limits.last_check) {
            Visited::Early { queued } => {
                let next = self.now.saturating_add(self.limits.recheck_every);
                let armed = next.min(entry.deadline);
                self.early.push(EarlyVisit { handle, armed });
                if !queued {
                    report(CallbackJob::Recheck(handle), visit_order);
                }
            }
            Visited::LastCheck(payload) => {
                let held = CheckedOut::new(handle, payload, Cause::Recheck);
                report(CallbackJob::LastCheck(held), end_order);
            }
            Visited::Expired(payload) => {
                // Counted and timed while the entry is at hand.
                let expired = &Outcome::Expired;
                let now_ns = Some(self.limits.now_ns);
                count_end(self.counts, self.cold, expired, now_ns, || Some(entry));
                self.expired.push(ExpiredVisit {
                    handle,
                    payload,
                    order: end_order,
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
    /// its deadline and, if the wheel keeps order, its sequence. O(budget), and O(levels) for each
    /// entry that is put back.
    pub(crate) fn expire(
        &mut self,
        limits: AdvanceLimits,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) -> Advanced {
        // 1. Visit what is due. A parker may have seen a later tick than the timer.
        let wheel = &mut self.entries.wheel;
        let now = limits.now.max(wheel.now());
        let mut visits = Visits {
            shard: self.entries.shard as usize,
            now,
            limits,
            counts: &mut self.counts,
            cold: &mut self.cold,
            early: Vec::new(),
            expired: Vec::new(),
        };
        let mut advanced =
            wheel.advance(now, limits.budget, |task| visits.visit(task, &mut report));
        let Visits { early, expired, .. } = visits;
        // 2. Put the early ones back on the wheel, for the next recheck or the deadline.
        self.put_back(early, &mut advanced);
        // 3. Take the expired ones off the wheel and their keys' lists.
        for visit in expired {
            let ended = Ended {
                payload: visit.payload,
                outcome: Outcome::Expired,
                to_release: self.remove(visit.handle),
            };
            report(CallbackJob::Call(ended), visit.order);
        }
        advanced
    }

    /// Schedules the entries that the wheel visited early. They count as handed down, not as fired.
    fn put_back(&mut self, early: Vec<EarlyVisit>, advanced: &mut Advanced) {
        if early.is_empty() {
            return;
        }
        advanced.fired -= early.len();
        advanced.cascaded += early.len();
        // Later than `now`, all of them: this advance does not come by again.
        let wheel = &mut self.entries.wheel;
        for visit in early {
            wheel.reschedule(visit.handle.id(), visit.armed);
        }
        advanced.next_due = wheel.next_due();
    }
}
