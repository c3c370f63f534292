//! Expiry: the consequences of an advance of a shard's wheel.
//!
//! The wheel visits the entries whose time is up, one at a time. Each has its last check, if that
//! is asked for, or ends. One that is held is left a request. The rest of an operation's expiry is a
//! [`CallbackJob`], for the executor.

use smallvec::SmallVec;
use timer_core::{Advanced, DueTask, TimerHandle};

use super::{
    Ended, EndedAt, Shard,
    entry::{Cause, CheckedOut, Entry, Visited},
    watchers::READ_AHEAD,
};
use crate::operation::{DelayedOperation, Outcome};

/// Expired operations that are kept without an allocation, as many as are due at a time as a rule.
const AT_ONCE: usize = 64;

/// The limits of one advance of a wheel: to the tick `now`, within `budget` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdvanceLimits {
    pub(crate) now: u64,
    pub(crate) now_ns: EndedAt,
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

/// An operation that is over. Its entry is still in place.
struct ExpiredVisit {
    handle: TimerHandle,
    order: Order,
}

/// The visits of one advance.
struct Visits {
    shard: usize,
    last_check: bool,
    expired: SmallVec<[ExpiredVisit; AT_ONCE]>,
}

impl Visits {
    /// Visits one entry. The wheel shows it without its neighbours, so one that is over is listed.
    fn visit<K, O>(
        &mut self,
        mut task: DueTask<'_, Entry<O>>,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) {
        let (id, deadline, entry) = task.named_mut();
        let handle = TimerHandle::new(self.shard, id);
        let order = (deadline, id.sequence());
        match entry.visit(deadline, self.last_check) {
            Visited::LastCheck(payload) => {
                let held = CheckedOut::new(handle, payload, Cause::NoEvent);
                report(CallbackJob::LastCheck(held), order);
            }
            Visited::Expired => self.expired.push(ExpiredVisit { handle, order }),
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
            last_check: limits.last_check,
            expired: SmallVec::new(),
        };
        let wheel = &mut self.entries.wheel;
        let advanced = wheel.advance(limits.now, limits.budget, |task| {
            visits.visit(task, &mut report);
        });
        // 2. Take what is over off the wheel and its keys' lists.
        for together in visits.expired.chunks(READ_AHEAD) {
            self.read_ahead_around(together.iter().map(|visit| visit.handle.index()));
            for visit in together {
                let ended = self.end_expired(visit, limits.now_ns);
                report(CallbackJob::Call(ended), visit.order);
            }
        }
        advanced
    }

    /// Ends an operation that is over.
    fn end_expired(&mut self, visit: &ExpiredVisit, now_ns: EndedAt) -> Ended<K, O> {
        let (deadline, _) = visit.order;
        let outcome = Outcome::Expired;
        let ended = self.end_if(visit.handle, &outcome, deadline, now_ns, Entry::take);
        let (payload, to_release) = ended
            .reached()
            .expect("Holder removes: what is over has its payload");
        Ended {
            payload,
            outcome,
            to_release,
        }
    }
}
