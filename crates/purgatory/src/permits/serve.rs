//! Permits that come free: they go to the heads of their line, under the lock.

use std::time::Duration;

use timer_core::{TaskId, TimerHandle};

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome},
    permits::entry::{Granted, Holder, Leased, Left, NONE, Semaphores, Turn, Wait, Watchers},
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
    let taken = shard.answer(index, answer, outcome, now_ns);
    if let Wait::Waits(turn) = &taken.wait {
        shard.unlink(turn);
    }
    taken
}

/// Hands permits to the heads of a line while they fit (Served). O(heads served).
#[inline]
pub(super) fn serve<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    now_ns: EndedAt,
    also: &mut Batch<Semaphores<K>>,
) {
    while let Some(head) = fitting_head(shard, line) {
        also.push(hand_over(shard, line, &head, now_ns));
    }
}

/// Returns true if a head can be served.
#[inline]
pub(super) fn has_fitting_head<K: WatchKey>(shard: &Shard<Semaphores<K>>, line: u32) -> bool {
    fitting_turn(shard, line).is_some()
}

/// Returns permits to a line that is in use, and hands them to its head if it fits. O(1).
#[inline(always)]
pub(super) fn release_to_head<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    weight: u64,
    now_ns: EndedAt,
) -> Option<Ended<Semaphores<K>>> {
    shard.records.at_mut(line).taken -= weight;
    let head = fitting_head(shard, line)?;
    Some(hand_over(shard, line, &head, now_ns))
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

/// A head that fits.
struct Head {
    index: u32,
    weight: u64,
    time_to_live: Option<Duration>,
}

/// Returns the place in line of a head that fits, with its index, unless the shard is closed.
#[inline(always)]
fn fitting_turn<K: WatchKey>(shard: &Shard<Semaphores<K>>, line: u32) -> Option<(u32, &Turn)> {
    let in_line = shard.records.at(line);
    let index = in_line.head;
    if index == NONE || shard.closed || shard.records.is_closed {
        return None;
    }
    let taken = in_line.taken;
    let turn = shard.turn(index);
    let fits = shard.records.has_room(taken, turn.weight);
    fits.then_some((index, turn))
}

/// Returns the head of a line if it fits, unless the shard is closed.
#[inline(always)]
fn fitting_head<K: WatchKey>(shard: &Shard<Semaphores<K>>, line: u32) -> Option<Head> {
    let (index, turn) = fitting_turn(shard, line)?;
    Some(Head {
        index,
        weight: turn.weight,
        time_to_live: turn.time_to_live.as_deref().copied(),
    })
}

/// Hands a head what it waits for. O(1).
#[inline]
fn hand_over<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    line: u32,
    head: &Head,
    now_ns: EndedAt,
) -> Ended<Semaphores<K>> {
    let weight = head.weight;
    if let Some(time_to_live) = head.time_to_live {
        let holder = Holder::new(weight, line, Some(time_to_live));
        return hand_lease(shard, head.index, holder, now_ns);
    }
    let granted = Ok(Granted::Permits { weight, line });
    let taken = shard.answer(head.index, granted, &Outcome::Completed, now_ns);
    // Moved out: a wait that is left here is dropped by a call.
    if let Wait::Waits(turn) = taken.wait {
        shard.unlink_head(&turn, weight);
    }
    Ended {
        waker: taken.waker,
        left: Left::Nothing,
    }
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
        return refuse(shard, head, WaitError::Full { limit }, now_ns);
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
    reason: WaitError,
    now_ns: EndedAt,
) -> Ended<Semaphores<K>> {
    let outcome = Outcome::Cancelled(CancelReason::Requested("refused".into()));
    let waker = answer(shard, index, Err(reason), &outcome, now_ns).waker;
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
            let reason = WaitError::TooHeavy { weight, limit };
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
