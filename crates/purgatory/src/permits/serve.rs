//! Permits that come free: they go to the heads of their line, under the lock.

use std::time::Duration;

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome},
    permits::entry::{Granted, Holder, Leased, Left, NONE, Semaphores, Wait},
    table::{Batch, Ended, EndedAt, SHARD_MAX, shard::Shard},
    watches::WatchKey,
};

/// A head that was given what it waits for.
pub(super) struct Served<K: WatchKey> {
    pub(super) ended: Ended<Semaphores<K>>,
    /// False if the next one does not fit.
    pub(super) next_may_fit: bool,
}

/// Returns true if permits of this weight are free beside those that are taken.
#[inline]
fn fits(present: u64, taken: u64, weight: u64) -> bool {
    let taken = taken.checked_add(weight);
    taken.is_some_and(|taken| taken <= present)
}

impl<K: WatchKey> Semaphores<K> {
    /// Hands permits to the heads of a line while they fit (Served). O(heads served).
    #[inline(never)]
    pub(super) fn serve(
        &self,
        shard: &mut Shard<Self>,
        line: u32,
        now_ns: EndedAt,
        also: &mut Batch<Self>,
    ) {
        while let Some(served) = self.serve_head(shard, line, 0, now_ns) {
            also.push(served.ended);
            if !served.next_may_fit {
                return;
            }
        }
    }

    /// Returns permits to a line, and hands its head what it waits for, if that fits then and the
    /// shard is open. O(1).
    #[inline(always)]
    pub(super) fn serve_head(
        &self,
        shard: &mut Shard<Self>,
        line: u32,
        returned: u64,
        now_ns: EndedAt,
    ) -> Option<Served<K>> {
        // 1. Does it fit?
        let present = self.present(&shard.records);
        let in_line = shard.records.keys.at_mut(line);
        in_line.taken -= returned;
        let taken = in_line.taken;
        let head = in_line.head;
        if head == NONE || shard.closed || self.is_closed() {
            return None;
        }
        let turn = shard.turn(head);
        let weight = turn.weight;
        if !fits(present, taken, weight) {
            return None;
        }
        // 2. Then it has its permits.
        if let Some(time_to_live) = turn.time_to_live.as_deref().copied() {
            let ended = Self::hand_lease(shard, head, time_to_live, now_ns);
            return Some(Served {
                ended,
                next_may_fit: true,
            });
        }
        let granted = || Ok(Granted::Permits { weight, line });
        let ended = shard.answer(head, granted, &Outcome::Completed, now_ns);
        // Moved out: a wait that is left here is dropped by a call.
        let mut next_may_fit = false;
        if let Wait::Waits(turn) = ended.wait {
            let next = shard.unlink_head(&turn);
            next_may_fit = next.is_some_and(|next| fits(present, taken + weight, next));
        }
        let ended = Ended {
            waker: ended.waker,
            left: Left::Nothing,
        };
        Some(Served {
            ended,
            next_may_fit,
        })
    }

    /// Takes permits that are free for a lease, whose time to live is to begin once the shard is
    /// unlocked. `None` if no entry is free for it.
    #[cold]
    pub(super) fn lease(shard: &mut Shard<Self>, line: u32, weight: u64) -> Option<Leased> {
        let holder = shard.hold(Wait::Holds(Holder {
            weight,
            line,
            has_begun: false,
            watchers: None,
        }))?;
        shard.records.keys.at_mut(line).taken += weight;
        Some(Leased {
            weight,
            holder,
            fence: shard.records.next_fence(),
        })
    }

    /// Hands a lease to a head. One for which no entry is free is refused.
    #[cold]
    fn hand_lease(
        shard: &mut Shard<Self>,
        head: u32,
        time_to_live: Duration,
        now_ns: EndedAt,
    ) -> Ended<Self> {
        let turn = shard.turn(head);
        let line = turn.line;
        let weight = turn.weight;
        let Some(lease) = Self::lease(shard, line, weight) else {
            let limit = SHARD_MAX;
            return Self::refuse(shard, head, WaitError::Full { limit }, now_ns);
        };
        let at = TimerHandle::new(shard.number(), lease.holder);
        let granted = Granted::Lease(Box::new(lease));
        let mut ended = Self::answer(shard, head, Ok(granted), &Outcome::Completed, now_ns);
        ended.left = Left::Leased(at, time_to_live);
        ended
    }

    /// Answers any request of a line. O(1).
    fn answer(
        shard: &mut Shard<Self>,
        index: u32,
        answer: Result<Granted, WaitError>,
        outcome: &Outcome,
        now_ns: EndedAt,
    ) -> Ended<Self> {
        let taken = shard.answer(index, || answer, outcome, now_ns);
        if let Wait::Waits(turn) = &taken.wait {
            shard.unlink(turn);
        }
        Ended {
            waker: taken.waker,
            left: Left::Nothing,
        }
    }

    /// Refuses a request of a line. It counts as cancelled.
    fn refuse(
        shard: &mut Shard<Self>,
        index: u32,
        reason: WaitError,
        now_ns: EndedAt,
    ) -> Ended<Self> {
        let outcome = Outcome::Cancelled(CancelReason::Requested("refused".into()));
        Self::answer(shard, index, Err(reason), &outcome, now_ns)
    }

    /// Refuses the requests of a line that are heavier than the limit (Refused). O(waiters).
    pub(super) fn refuse_heavy(
        &self,
        shard: &mut Shard<Self>,
        line: u32,
        now_ns: EndedAt,
        also: &mut Batch<Self>,
    ) {
        let limit = self.limit();
        let mut index = shard.records.keys.at(line).head;
        while index != NONE {
            let turn = shard.turn(index);
            let next = turn.next;
            let weight = turn.weight;
            if self.is_too_heavy(weight) {
                let reason = WaitError::TooHeavy { weight, limit };
                also.push(Self::refuse(shard, index, reason, now_ns));
            }
            index = next;
        }
    }

    /// Counts permits as returned to a line, which is served as it is
    /// [settled](crate::table::Engine::settle). A weight of 0 was never counted, and its line may be
    /// gone.
    pub(super) fn count_returned(shard: &mut Shard<Self>, line: u32, weight: u64) {
        if weight > 0 {
            shard.records.keys.at_mut(line).taken -= weight;
            shard.records.unsettled.push(line);
        }
    }
}
