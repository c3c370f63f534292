//! The part of an end that is done with nothing locked: tasks are woken, keys dropped, and the time
//! of a lease begins.

use std::{sync::Arc, time::Duration};

use timer_core::{TaskId, TimerHandle};

use crate::{
    operation::Timeout,
    permits::entry::{Holder, Left, Semaphores, Wait, Watchers},
    table::{Batch, Table, shard::Shard},
    watches::WatchKey,
};

/// Finishes those that have ended, if there are any, with nothing locked. Inside a call that is left
/// to the outermost one, so that a chain of wakers that each return permits needs no stack.
#[inline]
pub(super) fn finish<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, batch: Batch<Semaphores<K>>) {
    if !batch.is_empty() {
        table.finish_all(&table.frame.enter(), batch);
    }
}

/// Deals with the remains of an entry, with nothing locked.
#[inline]
pub(super) fn finish_left<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, left: Left<K>) {
    match left {
        Left::Nothing => {}
        Left::Key(key) => table.frame.call(|| drop(key)),
        Left::Leased(holder) => begin(table, holder),
        Left::Lost(watchers) => wake_all(table, watchers),
    }
}

/// Returns the holder of this id, unless the lease has ended.
pub(super) fn holder_mut<K: WatchKey>(
    shard: &mut Shard<Semaphores<K>>,
    id: TaskId,
) -> Option<&mut Holder> {
    match shard.get_mut(id)? {
        Wait::Holds(holder) => Some(holder),
        Wait::Waits(_) => None,
    }
}

/// Begins the time to live of a lease that was handed over, unless it was renewed meanwhile. With
/// nothing locked.
fn begin<K: WatchKey>(table: &Arc<Table<Semaphores<K>>>, at: TimerHandle) {
    let mut shard = table.lock(at.shard());
    let begins = holder_mut(&mut shard, at.id()).and_then(|holder| holder.begins);
    drop(shard);
    if let Some(time_to_live) = begins {
        // A panic of the clock is contained: the lease has no deadline then, until it is renewed.
        table
            .frame
            .call(|| _ = set_deadline(table, at, time_to_live, true));
    }
}

/// Counts a lease's time to live from now; false if the lease has ended. With `begins`, one that
/// was renewed since it was handed over is left as it is.
pub(super) fn set_deadline<K: WatchKey>(
    table: &Table<Semaphores<K>>,
    at: TimerHandle,
    time_to_live: Duration,
    begins: bool,
) -> bool {
    // A clock is user code: it is read before the lock is taken.
    let arrival = table.arrival(Timeout::After(time_to_live));
    let mut shard = table.lock(at.shard());
    let Some(holder) = holder_mut(&mut shard, at.id()) else {
        return false;
    };
    let was_begun = holder.begins.take().is_none();
    if !(begins && was_begun) || failpoint!(BeginOverridesRenewal) {
        Table::schedule(&mut shard, at, arrival);
    }
    true
}

/// Wakes the tasks that wait for the end of a lease, with nothing locked.
fn wake_all<K: WatchKey>(table: &Table<Semaphores<K>>, watchers: Option<Box<Watchers>>) {
    if let Some(watchers) = watchers {
        for (_, waker) in watchers.wakers {
            table.frame.call(|| waker.wake());
        }
    }
}
