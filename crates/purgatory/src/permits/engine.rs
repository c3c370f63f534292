//! The engine of permits: a semaphore for each key, weighted and fair, whose permits may be leased.
//!
//! A key has a *line*: the number of its permits that are taken, and the requests that wait for
//! permits, in the order of their calls. A request takes its permits if they are free and its line
//! has no waiters; otherwise its entry joins the line, where the wheel may expire it. A return
//! lowers the number taken, then *serves* the line under the same lock: while the head fits, it is
//! answered with permits that are taken for it at once, whether its task has run or not. So a
//! newcomer finds either a waiter ahead of it or permits that it may take; no other request can
//! come between. A task that drops its answered future returns the permits. Any other change that
//! may let the head fit serves the line as well: a head that leaves, a higher limit, permits that
//! are used up. All of this is arithmetic on plain numbers; tasks are woken after the unlock. A
//! *lease* is permits with a deadline: the hand-over puts an entry that holds them on the same
//! wheel. The guard of the lease removes the entry; if the entry expires, the line is served.
//!
//! - **In turn**: only the head is served, and a newcomer that finds waiters joins behind them.
//! - **Served**: when a shard is unlocked, no head fits, unless the shard is closed, or a change of
//!   the limit or a cancel of all has yet to lock it.
//! - **Refused**: no waiter is heavier than the limit then, unless the limit is 0.
//! - **Gone**: a line with no waiters and no permits taken is removed, and its key with it.
//! - **Held once**: the permits of a lease return when its entry is removed, which happens once.
//! - **Fenced**: a lease gets its number in the lock hold that gives it its permits. The numbers of
//!   a shard only rise, so a key's numbers do, even after the key was removed.

use std::{mem, sync::Arc};

use timer_core::{TaskId, TimerHandle};

use crate::{
    operation::Outcome,
    permits::{
        entry::{Granted, Guard, Left, Semaphores, Wait},
        held::Weighed,
        leases::{begin, wake_all},
        lines::Lines,
    },
    table::{BUDGET, Batch, Ended, Engine, Parts, Table, future::Yields, shard::Shard},
    watches::WatchKey,
};

impl<K: WatchKey, G: Guard<K>> Yields<G> for Semaphores<K> {
    fn yielded(table: &Arc<Table<Self>>, at: TimerHandle, granted: Granted) -> G {
        G::of(table, at.shard(), granted)
    }
}

/// Finishes the remains that few entries leave, with nothing locked.
#[cold]
fn finish_left<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, left: Left<K>) {
    match left {
        Left::Nothing | Left::Lost(None) => {}
        Left::Key(key) => table.frame.call(|| drop(key)),
        Left::Leased(holder, time_to_live) => begin(table, holder, time_to_live),
        Left::Lost(Some(watchers)) => wake_all(table, *watchers),
    }
}

impl<K> Parts for Semaphores<K> {
    type Records = Lines<K>;
    type Wait = Wait;
    type Answer = Granted;
    type Left = Left<K>;
}

impl<K: WatchKey> Engine for Semaphores<K> {
    type Key = K;

    fn is_awaited(wait: &Wait) -> bool {
        matches!(wait, Wait::Waits(_))
    }

    fn is_wait(wait: &Wait) -> bool {
        matches!(wait, Wait::Waits(_))
    }

    fn is_of_wait(left: &Left<K>) -> bool {
        !matches!(left, Left::Key(_) | Left::Lost(_))
    }

    fn leave(
        &self,
        shard: &mut Shard<Self>,
        _: TaskId,
        wait: Wait,
        _: &Outcome,
        _: &mut Batch<Self>,
    ) -> Left<K> {
        match wait {
            Wait::Waits(turn) => {
                shard.unlink(&turn);
                shard.records.unsettled.push(turn.line);
                Left::Nothing
            }
            Wait::Holds(holder) => {
                Self::count_returned(shard, holder.line, holder.weight);
                Left::Lost(holder.watchers)
            }
        }
    }

    fn settle(&self, shard: &mut Shard<Self>, also: &mut Batch<Self>) {
        let mut lines = mem::take(&mut shard.records.unsettled);
        lines.sort_unstable();
        lines.dedup();
        for &line in &lines {
            if shard.records.keys.get(line).is_none() {
                continue; // the line was forgotten while a cancel of all was under way
            }
            // The new head may fit where the old one did not.
            if !failpoint!(HeadLeavesUnserved) {
                self.serve(shard, line, also);
            }
            if let Some(key) = shard.records.forget_if_idle(line) {
                also.ended.push(Ended {
                    waker: None,
                    left: Left::Key(key),
                });
            }
        }
        lines.clear();
        lines.shrink_to(BUDGET); // frees the memory of a peak
        shard.records.unsettled = lines;
    }

    #[inline]
    fn finish(table: &Arc<Table<Self>>, left: Left<K>) {
        match left {
            Left::Nothing => {}
            left => finish_left(table, left),
        }
    }

    fn put_back(
        &self,
        shard: &mut Shard<Self>,
        granted: Granted,
        also: &mut Batch<Self>,
    ) -> Option<Granted> {
        match granted {
            Granted::Permits(held) => {
                let Weighed { line, weight } = shard.records.heavy.let_go::<K>(held);
                Self::count_returned(shard, line, weight);
            }
            Granted::Lease(lease) => {
                shard.end(self, lease.holder, &Outcome::Completed, also);
            }
        }
        self.settle(shard, also);
        None
    }

    fn key_of(records: &Lines<K>, wait: &Wait) -> K {
        let line = match wait {
            Wait::Waits(turn) => turn.line,
            Wait::Holds(holder) => holder.line,
        };
        records.keys.key(line).clone()
    }

    fn each_key(records: &Lines<K>, visit: &mut dyn FnMut(&K, usize)) {
        for (key, line) in records.keys.iter() {
            if line.waiting > 0 {
                visit(key, line.waiting as usize);
            }
        }
    }

    #[cfg(feature = "metrics")]
    fn own_gauges(table: &Table<Self>) -> Vec<timer_core::driver::Sample> {
        let limit = table.engine.present(&table.lock(0).records);
        let mut taken = 0.0;
        table.each_record(|lines| &lines.keys, |line| taken += line.taken as f64);
        crate::samples::permits(limit, taken)
    }
}
