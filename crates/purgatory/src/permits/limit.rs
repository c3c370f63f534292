//! Permits that return or are used up, and limits that change; the close.

use std::sync::Arc;

use crate::{
    operation::Outcome,
    permits::{
        entry::{CLOSED, Semaphores},
        finish::finish,
        lines::Lines,
        serve::{forget_if_idle, refuse_heavy, serve, serve_head, serve_others},
    },
    sync::Ordering::Relaxed,
    table::{Batch, Table},
    watches::WatchKey,
};

/// Returns permits that a guard held.
#[inline(never)] // a guard is dropped in many places
pub(super) fn give_back<K: WatchKey>(
    table: &Arc<Table<Semaphores<K>>>,
    shard: usize,
    line: u32,
    weight: u64,
) {
    let now_ns = table.frame.ending_at();
    let mut shard = table.lock(shard);
    // 1. Mostly one head fits then, or none: no batch is made for it.
    let head = serve_head(&mut shard, line, weight, now_ns);
    let mut idle = None;
    let mut others = None;
    if head.as_ref().is_some_and(|head| head.next_may_fit) {
        others = Some(serve_others(&mut shard, line, now_ns));
    } else {
        idle = shard.records.forget_if_idle(line);
    }
    drop(shard);
    // 2. Its task is woken, with nothing locked, before those of others. A waker that returns permits
    //    in turn leaves what that ends to this call, so a chain of them needs no stack.
    if let Some(head) = head {
        table.finish_in_turn(head.ended);
    }
    if let Some(others) = others {
        finish(table, others);
    }
    if let Some(key) = idle {
        table.frame.call(|| drop(key));
    }
}

/// Uses permits up that a guard held.
pub(super) fn use_up<K: WatchKey>(
    table: &Arc<Table<Semaphores<K>>>,
    shard: usize,
    line: u32,
    weight: u64,
) {
    let now_ns = table.frame.ending_at();
    let mut batch = Batch::new();
    let mut shard = table.lock(shard);
    let lines = &mut shard.records;
    lines.at_mut(line).taken -= weight;
    // The limit may have been lowered since. More were taken then, and a request of weight 0 may
    // have waited for that.
    lines.used_up = lines.used_up.saturating_add(weight).min(lines.limit);
    serve(&mut shard, line, now_ns, &mut batch);
    drop(shard);
    finish(table, batch);
}

impl<K: WatchKey> Semaphores<K> {
    /// Changes the limit in all shards, refuses the waiters that are heavier now, and serves the
    /// lines. O(keys + shards + waiters served), and O(waiters) if the limit was lowered.
    pub(super) fn change(table: &Arc<Table<Self>>, change: impl FnOnce(&mut Lines<K>)) {
        let call = table.frame.enter();
        let now_ns = table.frame.ending_at();
        let mut batch = Batch::new();
        let changing = table.engine.changing.lock();
        let mut change = Some(change);
        let mut visited = Some(0);
        while let Some(number) = visited {
            let mut shard = table.lock(number);
            table.begin(&mut shard.records);
            // 1. The limit of this shard's lines: it is changed in the first, and the others take it
            //    over, also those that are first used from here on.
            let before = shard.records.limit;
            match change.take() {
                Some(change) => {
                    change(&mut shard.records);
                    table.engine.limit.store(shard.records.limit, Relaxed);
                }
                None => shard.records.limit = table.engine.limit.load(Relaxed),
            }
            let may_refuse = before == 0 || shard.records.limit < before;
            // 2. Each line: those that are too heavy go, then those that fit are served.
            let mut next = shard.records.first_from(0);
            while let Some(line) = next {
                if may_refuse {
                    refuse_heavy(&mut shard, line, now_ns, &mut batch);
                }
                serve(&mut shard, line, now_ns, &mut batch);
                forget_if_idle(&mut shard, line, &mut batch);
                next = shard.records.first_from(line + 1);
            }
            visited = table.shards.made_from(number + 1);
        }
        drop(changing);
        table.finish_all(&call, batch);
    }

    /// Closes each shard's lines, then ends all waits. Leases stay.
    pub(super) fn close(table: &Arc<Table<Self>>) {
        let call = table.frame.enter();
        let changing = table.engine.changing.lock();
        table.engine.closed.store(true, Relaxed);
        for number in table.shards.made() {
            table.lock(number).records.is_closed = true;
        }
        drop(changing);
        let batch = table.end_all(&Outcome::Cancelled(CLOSED), |_| true);
        table.finish_all(&call, batch);
    }
}
