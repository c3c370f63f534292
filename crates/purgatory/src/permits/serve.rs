//! Permits that come free: they go to the heads of their line, under the lock.

use timer_core::{TaskId, TimerHandle};

use crate::{
    error::{RefusedReason, WaitError},
    operation::{CancelReason, Outcome},
    permits::entry::{Granted, Holder, Leased, Left, NONE, Semaphores, Wait, Watchers},
    table::{
        Batch, Ended, EndedAt, SHARD_MAX,
        shard::{Shard, Taken},
    },
    watches::WatchKey,
};

/// Answers the head of a line, or any other of it. O(1).
#[inline]
fn answer<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    index: u32,
    answer: Result<Granted, WaitError>,
    outcome: &Outcome,
    now_ns: EndedAt,
) -> Taken<Semaphores<K>> {
    let taken = shard.answer(index, || answer, outcome, now_ns);
    if let Wait::Waits(turn) = &taken.wait {
        shard.unlink(turn);
    }
    taken
}

/// A head that was given what it waits for.
pub(super) struct Served<K: WatchKey> {
    pub(super) ended: Ended<Semaphores<K>>,
    /// False if the next one does not fit.
    pub(super) next_may_fit: bool,
}

/// Hands permits to the heads of a line while they fit (Served). O(heads served).
#[inline(never)]
pub(super) fn serve<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    now_ns: EndedAt,
    also: &mut Batch<Semaphores<K>>,
) {
    while let Some(served) = serve_head(shard, line, 0, now_ns) {
        also.push(served.ended);
        if !served.next_may_fit {
            return;
        }
    }
}

/// Serves the heads that fit beside the first, and forgets an idle line. O(heads served).
#[cold]
pub(super) fn serve_others<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    now_ns: EndedAt,
) -> Batch<Semaphores<K>> {
    let mut others = Batch::new();
    serve(shard, line, now_ns, &mut others);
    forget_if_idle(shard, line, &mut others);
    others
}

/// Returns permits to a line, and hands its head what it waits for, if that fits then and the shard
/// is open. O(1).
#[inline(always)]
pub(super) fn serve_head<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    returned: u64,
    now_ns: EndedAt,
) -> Option<Served<K>> {
    // 1. Does it fit?
    let in_line = shard.records.at_mut(line);
    in_line.taken -= returned;
    let taken = in_line.taken;
    let head = in_line.head;
    if head == NONE || shard.closed || shard.records.is_closed {
        return None;
    }
    let turn = shard.turn(head);
    let weight = turn.weight;
    if !shard.records.has_room(taken, weight) {
        return None;
    }
    // 2. Then it has its permits.
    if let Some(time_to_live) = turn.time_to_live.as_deref().copied() {
        let holder = Holder::new(weight, line, Some(time_to_live));
        let ended = hand_lease(shard, head, holder, now_ns);
        return Some(Served {
            ended,
            next_may_fit: true,
        });
    }
    let granted = || Ok(Granted::Permits { weight, line });
    let taken = shard.answer(head, granted, &Outcome::Completed, now_ns);
    // Moved out: a wait that is left here is dropped by a call.
    let mut next_may_fit = false;
    if let Wait::Waits(turn) = taken.wait {
        next_may_fit = shard.unlink_head(&turn, weight);
    }
    let ended = Ended {
        waker: taken.waker,
        left: Left::Nothing,
    };
    Some(Served {
        ended,
        next_may_fit,
    })
}

/// Hands a lease to a head: its entry is put on the wheel, and its time to live begins once the
/// shard is unlocked. A head for which no entry is free is refused.
#[cold]
fn hand_lease<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    head: u32,
    holder: Holder,
    now_ns: EndedAt,
) -> Ended<Semaphores<K>> {
    // 1. The entry that holds the permits.
    let weight = holder.weight;
    let line = holder.line;
    let Some(scheduled) = shard.hold(None, Wait::Holds(holder)) else {
        let limit = SHARD_MAX;
        return refuse(shard, head, RefusedReason::Full { limit }, now_ns);
    };
    // 2. The answer names it.
    shard.records.at_mut(line).taken += weight;
    let granted = Granted::Lease(Box::new(Leased {
        weight,
        holder: scheduled.id,
        fence: shard.records.next_fence(),
    }));
    let waker = answer(shard, head, Ok(granted), &Outcome::Completed, now_ns).waker;
    Ended {
        waker,
        left: Left::Leased(TimerHandle::new(shard.number(), scheduled.id)),
    }
}

/// Refuses a wait of a line. It counts as cancelled.
fn refuse<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    index: u32,
    reason: RefusedReason,
    now_ns: EndedAt,
) -> Ended<Semaphores<K>> {
    let outcome = Outcome::Cancelled(CancelReason::Requested("refused".into()));
    let refused = Err(WaitError::Refused(reason));
    let waker = answer(shard, index, refused, &outcome, now_ns).waker;
    Ended {
        waker,
        left: Left::Nothing,
    }
}

/// Refuses the waiters of a line that are heavier than the limit (Refused). O(waiters).
pub(super) fn refuse_heavy<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    now_ns: EndedAt,
    also: &mut Batch<Semaphores<K>>,
) {
    let limit = shard.records.limit;
    let mut index = shard.records.at(line).head;
    while index != NONE {
        let turn = shard.turn(index);
        let next = turn.next;
        let weight = turn.weight;
        if shard.records.is_too_heavy(weight) {
            let reason = RefusedReason::TooHeavy { weight, limit };
            also.push(refuse(shard, index, reason, now_ns));
        }
        index = next;
    }
}

/// Forgets a line that is idle (Gone).
#[inline]
pub(super) fn forget_if_idle<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    also: &mut Batch<Semaphores<K>>,
) {
    if let Some(key) = shard.records.forget_if_idle(line) {
        also.push(Ended {
            waker: None,
            left: Left::Key(key),
        });
    }
}

/// Returns permits to their line, and serves it. A weight of 0 was never counted, and its line may
/// be gone.
#[inline]
pub(super) fn release<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    weight: u64,
    now_ns: EndedAt,
    also: &mut Batch<Semaphores<K>>,
) {
    if weight == 0 {
        return;
    }
    shard.records.at_mut(line).taken -= weight;
    if shard.records.at(line).waiting > 0 {
        serve(shard, line, now_ns, also);
    }
    forget_if_idle(shard, line, also);
}

/// Ends a lease for its guard, and returns its permits (Held once). Returns the tasks to wake.
pub(super) fn end_lease<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    id: TaskId,
    now_ns: EndedAt,
    also: &mut Batch<Semaphores<K>>,
) -> Option<Box<Watchers>> {
    let taken = shard.remove(id, &Outcome::Completed, now_ns)?;
    let Wait::Holds(holder) = taken.wait else {
        return None;
    };
    release(shard, holder.line, holder.weight, now_ns, also);
    holder.watchers
}
