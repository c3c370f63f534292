//! Expiry: the operations that are due when a shard's wheel advances.
//!
//! The wheel visits the entries whose time is up, one at a time. An entry gets its last check, if
//! it asks for one, or ends; if it is held, its holder is left a request. The rest of an expiry is
//! a [`CallbackJob`] for the executor.

use smallvec::SmallVec;
use timer_core::{Advanced, DueTask, TickLength, TimerHandle};

use super::{
    Ended, HOLDER_REMOVES, Shard,
    entry::{Cause, CheckedOut, Entry},
    watchers::READ_AHEAD,
};
use crate::{
    operation::{DelayedOperation, Outcome},
    table::EndedAt,
    watches::WatchKey,
};

/// The number of expired operations kept without an allocation: seldom are more due at a time.
const AT_ONCE: usize = 64;

/// Work from one advance of a wheel, for the executor.
#[derive(Debug)]
pub(crate) enum CallbackJob<K, O> {
    /// The operation has expired: call it back.
    Call(Ended<K, O>),
    /// Its time is up: check it once more, then check it in. This job holds it.
    LastCheck(CheckedOut<O>),
}

/// The deadline of an operation, and its sequence.
type Order = (u64, u64);

impl<K, O> From<Ended<K, O>> for CallbackJob<K, O> {
    fn from(ended: Ended<K, O>) -> Self {
        CallbackJob::Call(ended)
    }
}

/// Operations that have expired, with their entries still in place.
type Expired = SmallVec<[(TimerHandle, Order); AT_ONCE]>;

/// Visits one entry whose time is up. The wheel shows only this entry, not its neighbours, so an
/// operation to be ended is put into `expired`.
fn visit<K, O>(
    mut task: DueTask<'_, Entry<O>>,
    shard: usize,
    tick: TickLength,
    expired: &mut Expired,
    mut report: impl FnMut(CallbackJob<K, O>, Order),
) {
    let id = task.id();
    let deadline = task.deadline();
    let entry = task.get_mut();
    let handle = TimerHandle::new(shard, id);
    let order = (deadline, id.sequence());
    if !entry.has_last_check() && !entry.is_held() {
        expired.push((handle, order));
        return;
    }
    // The holder ends it (Holder removes). With a last check, the job of that check is the holder.
    if let Some(payload) = entry.expire_held(tick.start_ns(deadline)) {
        let held = CheckedOut::new(handle, payload, Cause::NoEvent);
        report(CallbackJob::LastCheck(held), order);
    } else if failpoint!(ExpiryRemovesCheckedOut) {
        task.take();
    }
}

impl<K: WatchKey, O: DelayedOperation> Shard<K, O> {
    /// Advances the wheel to the tick `now`, and calls `report` with the jobs that result, in no
    /// order, each with its deadline and, if the wheel keeps order, its sequence. O(budget).
    pub(crate) fn expire(
        &mut self,
        now: u64,
        ended_at: EndedAt,
        budget: usize,
        tick: TickLength,
        mut report: impl FnMut(CallbackJob<K, O>, Order),
    ) -> Advanced {
        // 1. Visit the due entries.
        let shard = self.number as usize;
        let mut expired = Expired::new();
        let advanced = self.wheel.advance(now, budget, |task| {
            visit(task, shard, tick, &mut expired, &mut report);
        });
        // 2. Take expired operations off the wheel and off their keys' lists.
        for together in expired.chunks(READ_AHEAD) {
            self.read_ahead_around(together.iter().map(|(handle, _)| handle.index()));
            for &(handle, order) in together {
                let take = |entry: &mut Entry<O>| entry.payload.take();
                let due_ns = tick.start_ns(order.0);
                let ended =
                    self.end_with_payload(handle, &Outcome::Expired, due_ns, ended_at, take);
                report(
                    CallbackJob::Call(ended.reached().expect(HOLDER_REMOVES)),
                    order,
                );
            }
        }
        advanced
    }
}
