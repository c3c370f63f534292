//! Hands permits that come free to the heads of their line, under the lock: after a return, after
//! permits are used up, and after a change of the limit.

use std::{mem, sync::Arc, time::Duration};

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome},
    permits::{
        entry::{CLOSED, Granted, Holder, Leased, Left, NONE, Semaphores, Wait},
        held::{Held, Weighed},
        lines::Lines,
    },
    sync::Ordering::Relaxed,
    table::{Batch, Ended, EndedAt, Engine, SHARD_MAX, Table, shard::Shard},
    watches::WatchKey,
};

/// A head that was served.
pub(super) struct Served<K: WatchKey> {
    pub(super) ended: Ended<Semaphores<K>>,
    /// False if the next head does not fit.
    pub(super) next_may_fit: bool,
}

/// Returns the outcome of a request that is refused in its line: it counts as cancelled.
fn refused() -> Outcome {
    Outcome::Cancelled(CancelReason::Requested("refused".into()))
}

/// Returns true if permits of this weight are free besides those that are taken.
pub(super) fn fits(present: u64, taken: u64, weight: u64) -> bool {
    let taken = taken.checked_add(weight);
    taken.is_some_and(|taken| taken <= present)
}

impl<K: WatchKey> Semaphores<K> {
    /// Hands permits to the heads of a line while they fit (Served). O(heads served).
    #[inline(never)]
    pub(super) fn serve(&self, shard: &mut Shard<Self>, line: u32, also: &mut Batch<Self>) {
        while let Some(served) = self.serve_head(shard, line, 0, also.ended_at) {
            also.ended.push(served.ended);
            if !served.next_may_fit {
                return;
            }
        }
    }

    /// Returns permits to a line, then serves its head if the head fits and the shard is open.
    /// O(1).
    #[inline(always)]
    pub(super) fn serve_head(
        &self,
        shard: &mut Shard<Self>,
        line: u32,
        returned: u64,
        ended_at: EndedAt,
    ) -> Option<Served<K>> {
        // 1. Check that the head fits.
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
        let next = turn.next;
        if !fits(present, taken, weight) {
            return None;
        }
        // 2. Hand it its permits.
        if let Some(time_to_live) = turn.time_to_live.as_deref().copied() {
            let ended = Self::hand_lease(shard, head, time_to_live, ended_at);
            return Some(Served {
                ended,
                next_may_fit: true,
            });
        }
        let held = shard.records.heavy.hold::<K>(shard.number(), line, weight);
        let granted = || Ok(Granted::Permits(held));
        let ended = shard.answer(head, granted, &Outcome::Completed, ended_at);
        mem::forget(ended.wait); // it asked for no lease, so there is nothing to drop
        let next = shard.unlink_head(line, weight, next);
        let next_may_fit = next.is_some_and(|next| fits(present, taken + weight, next));
        let ended = Ended {
            waker: ended.waker,
            left: Left::Nothing,
        };
        Some(Served {
            ended,
            next_may_fit,
        })
    }

    /// Takes free permits for a lease, whose time to live begins once the shard is unlocked.
    /// Returns `None` if no entry is free for it.
    #[cold]
    pub(super) fn lease(shard: &mut Shard<Self>, line: u32, weight: u64) -> Option<Leased> {
        let holder = shard.hold(Wait::Holds(Holder {
            weight,
            line,
            has_begun: false,
            renewed_ns: 0,
            watchers: None,
        }))?;
        shard.records.keys.at_mut(line).taken += weight;
        Some(Leased {
            weight,
            holder,
            fence: shard.records.next_fence(),
        })
    }

    /// Hands a lease to a head; refuses the head if no entry is free for the lease.
    #[cold]
    fn hand_lease(
        shard: &mut Shard<Self>,
        head: u32,
        time_to_live: Duration,
        ended_at: EndedAt,
    ) -> Ended<Self> {
        let turn = shard.turn(head);
        let line = turn.line;
        let weight = turn.weight;
        let mut outcome = Outcome::Completed;
        let mut left = Left::Nothing;
        let answer = match Self::lease(shard, line, weight) {
            Some(lease) => {
                let at = TimerHandle::new(shard.number(), lease.holder);
                left = Left::Leased(at, time_to_live);
                Ok(Granted::Lease(Box::new(lease)))
            }
            None => {
                outcome = refused();
                Err(WaitError::Full { limit: SHARD_MAX })
            }
        };
        let taken = shard.answer(head, || answer, &outcome, ended_at);
        if let Wait::Waits(turn) = &taken.wait {
            shard.unlink(turn);
        }
        Ended {
            waker: taken.waker,
            left,
        }
    }

    /// Refuses the requests of a line that are heavier than the limit (Refused). O(waiters).
    pub(super) fn refuse_heavy(&self, shard: &mut Shard<Self>, line: u32, also: &mut Batch<Self>) {
        let limit = self.limit();
        let mut index = shard.records.keys.at(line).head;
        while index != NONE {
            let turn = shard.turn(index);
            let next = turn.next;
            let weight = turn.weight;
            if self.is_too_heavy(weight) {
                let id = shard.wheel.id_at(index);
                let too_heavy = || Err(WaitError::TooHeavy { weight, limit });
                shard.end_with(self, id, too_heavy, &refused(), also);
            }
            index = next;
        }
    }

    /// Counts permits as returned to a line, which is served when it is
    /// [settled](crate::table::Engine::settle). A weight of 0 was never counted, and its line may
    /// be gone.
    pub(super) fn count_returned(shard: &mut Shard<Self>, line: u32, weight: u64) {
        if weight > 0 {
            shard.records.keys.at_mut(line).taken -= weight;
            shard.records.unsettled.push(line);
        }
    }
}

/// Returns permits that a guard held.
#[inline(never)] // a guard is dropped in many places
pub(super) fn give_back<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, held: Held) {
    let ended_at = table.frame.ending_at();
    let mut shard = table.lock(held.shard::<K>());
    let Weighed { line, weight } = shard.records.heavy.let_go::<K>(held);
    // 1. Mostly one head fits now, or none: make no batch for that.
    let head = table.engine.serve_head(&mut shard, line, weight, ended_at);
    let mut idle = None;
    let mut others = None;
    if head.as_ref().is_some_and(|head| head.next_may_fit) {
        shard.records.unsettled.push(line);
        others = Some(settled(table, &mut shard, ended_at));
    } else {
        idle = shard.records.forget_if_idle(line);
    }
    drop(shard);
    // 2. Wake its task, with nothing locked, before those of other heads. If its waker returns
    //    permits in turn, this call finishes the waits that those end, so a chain of wakers needs
    //    no stack.
    if let Some(head) = head {
        table.finish(&table.frame.enter(), head.ended);
    }
    if let Some(others) = others {
        table.finish_all(&table.frame.enter(), others);
    }
    if let Some(key) = idle {
        table.drop_key(&table.frame.enter(), key);
    }
}

/// Serves the remaining heads that fit, and forgets an idle line. O(heads served).
#[cold]
fn settled<K: WatchKey>(
    table: &Table<Semaphores<K>>,
    shard: &mut Shard<Semaphores<K>>,
    ended_at: EndedAt,
) -> Batch<Semaphores<K>> {
    let mut batch = Batch::at(ended_at);
    table.engine.settle(shard, &mut batch);
    batch
}

/// Uses up permits that a guard held.
pub(super) fn use_up<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, held: Held) {
    let ended_at = table.frame.ending_at();
    let mut shard = table.lock(held.shard::<K>());
    let Weighed { line, weight } = shard.records.heavy.let_go::<K>(held);
    Semaphores::count_returned(&mut shard, line, weight);
    let lines = &mut shard.records;
    lines.used_up = lines.used_up.saturating_add(weight);
    // If the limit was lowered since, more permits than that were taken, and a request of weight 0
    // may have waited for them to return.
    let served = settled(table, &mut shard, ended_at);
    drop(shard);
    table.finish_all(&table.frame.enter(), served);
}

impl<K: WatchKey> Semaphores<K> {
    /// Changes the limit, refuses the waiters that are now too heavy, and serves the lines. O(keys
    /// + shards + waiters served), and O(waiters) if the limit was lowered.
    pub(super) fn change(table: &Arc<Table<Self>>, change: impl FnOnce(&mut Lines<K>, u64) -> u64) {
        let call = table.frame.enter();
        let mut batch = table.batch();
        let engine = &table.engine;
        let changing = engine.changing.lock();
        // 1. Change the limit under the lock of the first shard: permits without keys have no
        //    other.
        let mut shard = table.lock(0);
        let before = engine.limit();
        let limit = change(&mut shard.records, before);
        engine.limit.store(limit, Relaxed);
        let may_refuse = before == 0 || limit < before;
        // 2. In each line of each shard, refuse the requests that are too heavy, then serve those
        //    that fit.
        loop {
            let mut next = shard.records.keys.first_from(0);
            while let Some(line) = next {
                if may_refuse {
                    engine.refuse_heavy(&mut shard, line, &mut batch);
                }
                shard.records.unsettled.push(line);
                next = shard.records.keys.first_from(line + 1);
            }
            engine.settle(&mut shard, &mut batch);
            let number = shard.number();
            drop(shard);
            match table.shards.made_from(number + 1) {
                Some(number) => shard = table.lock(number),
                None => break,
            }
        }
        drop(changing);
        table.finish_all(&call, batch);
    }

    /// Closes the lines, then ends all waits. Leases stay.
    pub(super) fn close(table: &Arc<Table<Self>>) {
        table.engine.closed.store(true, Relaxed);
        table.cancel_all(CLOSED, |_| true);
    }
}
