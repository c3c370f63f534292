//! Permits that return or are used up, and limits that change; the close.

use std::sync::Arc;

use crate::{
    permits::{
        entry::{CLOSED, Semaphores},
        lines::Lines,
    },
    sync::Ordering::Relaxed,
    table::{Batch, EndedAt, Engine, Table, shard::Shard},
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
    let head = table.engine.serve_head(&mut shard, line, weight, now_ns);
    let mut idle = None;
    let mut others = None;
    if head.as_ref().is_some_and(|head| head.next_may_fit) {
        shard.records.unsettled.push(line);
        others = Some(settled(table, &mut shard, now_ns));
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
        table.finish_all(&table.frame.enter(), others);
    }
    if let Some(key) = idle {
        table.frame.call(|| drop(key));
    }
}

/// Serves the heads that fit beside the first, and forgets an idle line. O(heads served).
#[cold]
fn settled<K: WatchKey>(
    table: &Table<Semaphores<K>>,
    shard: &mut Shard<Semaphores<K>>,
    now_ns: EndedAt,
) -> Batch<Semaphores<K>> {
    let mut batch = Batch::new();
    table.engine.settle(shard, now_ns, &mut batch);
    batch
}

/// Uses permits up that a guard held.
pub(super) fn use_up<K: WatchKey>(
    table: &Arc<Table<Semaphores<K>>>,
    shard: usize,
    line: u32,
    weight: u64,
) {
    let now_ns = table.frame.ending_at();
    let mut shard = table.lock(shard);
    Semaphores::count_returned(&mut shard, line, weight);
    // The limit may have been lowered since. More were taken then, and a request of weight 0 may
    // have waited for that.
    let lines = &mut shard.records;
    let used_up = lines.used_up.saturating_add(weight);
    lines.used_up = used_up.min(table.engine.limit());
    let served = settled(table, &mut shard, now_ns);
    drop(shard);
    table.finish_all(&table.frame.enter(), served);
}

impl<K: WatchKey> Semaphores<K> {
    /// Changes the limit, refuses the waiters that are heavier now, and serves the lines. O(keys +
    /// shards + waiters served), and O(waiters) if the limit was lowered.
    pub(super) fn change(table: &Arc<Table<Self>>, change: impl FnOnce(&mut Lines<K>, u64) -> u64) {
        let call = table.frame.enter();
        let now_ns = table.frame.ending_at();
        let mut batch = Batch::new();
        let engine = &table.engine;
        let changing = engine.changing.lock();
        // 1. The limit, under the lock of the first shard: permits without keys have no other.
        let mut shard = table.lock(0);
        let before = engine.limit();
        let limit = change(&mut shard.records, before);
        engine.limit.store(limit, Relaxed);
        let may_refuse = before == 0 || limit < before;
        // 2. Each line of each shard: those that are too heavy go, then those that fit are served.
        loop {
            let mut next = shard.records.keys.first_from(0);
            while let Some(line) = next {
                if may_refuse {
                    engine.refuse_heavy(&mut shard, line, now_ns, &mut batch);
                }
                shard.records.unsettled.push(line);
                next = shard.records.keys.first_from(line + 1);
            }
            engine.settle(&mut shard, now_ns, &mut batch);
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
