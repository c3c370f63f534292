//! Walks over the waiters of one key, and the operations that such a walk ends.
//!
//! A walk sees the waiters that were present when it began, in the order they were parked, without
//! those that have left before it came to them. It goes a bounded number of waiters at a time;
//! nothing is locked in between.

use std::sync::Arc;

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::Shards};

use crate::{
    engine::{Core, LockedShard, check::Batch, trampoline::Call},
    operation::DelayedOperation,
    shard::{AllEnded, Entries, Shard, Waiter, WalkId},
    watches::WatchKey,
};

/// Waiters that are found under one lock hold where nothing is checked.
pub(super) const LIST_BATCH: usize = 128;

/// Waiters that were found: most keys have one.
type Found = SmallVec<[TimerHandle; 4]>;

/// A walk over the waiters of one key.
pub(super) struct WaiterWalk<'a, K: Eq + Clone, O> {
    shards: &'a Shards<Shard<K, O>>,
    shard: usize,
    /// Names the walk in its shard, while there are waiters left.
    cursor: Option<WalkId>,
}

impl<'a, K: Eq + Clone, O> WaiterWalk<'a, K, O> {
    /// Begins a walk over the watches of a key, with the first `limit` waiters.
    #[inline]
    pub(super) fn begin(
        shards: &'a Shards<Shard<K, O>>,
        shard: &mut LockedShard<'_, K, O>,
        record: u32,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> Self {
        WaiterWalk {
            shards,
            shard: shard.number(),
            cursor: shard.walk(record, limit, found),
        }
    }

    /// Finds the next waiters, at most this many; false at the end.
    #[inline]
    pub(super) fn next(
        &mut self,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> bool {
        let Some(cursor) = self.cursor else {
            return false;
        };
        self.cursor = self.shards.lock(self.shard).walk_on(cursor, limit, found);
        true
    }

    /// Adds the next waiters to a batch, at most this many; false at the end.
    #[inline]
    pub(super) fn next_into(&mut self, limit: usize, batch: &mut Batch<O>) -> bool {
        self.next(limit, |entries, waiter| batch.add(entries, waiter))
    }
}

impl<K: Eq + Clone, O> Drop for WaiterWalk<'_, K, O> {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor {
            self.shards.lock(self.shard).end_walk(cursor);
        }
    }
}

/// Operations that a call has ended and has still to finish. Dropped, as when a key's `Eq` panics,
/// it finishes them.
pub(super) struct Unfinished<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Arc<Core<K, O>>,
    call: &'a Call<'a>,
    pub(super) ended: AllEnded<K, O>,
}

impl<'a, K: WatchKey, O: DelayedOperation> Unfinished<'a, K, O> {
    pub(super) fn new(core: &'a Arc<Core<K, O>>, call: &'a Call<'a>) -> Self {
        Unfinished {
            core,
            call,
            ended: AllEnded::new(),
        }
    }

    /// Finishes them now; returns how many completed.
    pub(super) fn finish(&mut self) -> usize {
        self.core.finish_all(self.call, &mut self.ended)
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for Unfinished<'_, K, O> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Applies `act` to each waiter of a key, in its operation's first shard. Where the key is the
    /// first one, that is the shard in which the waiters were found, and it stays locked.
    #[inline]
    pub(super) fn each_waiter<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        mut act: impl FnMut(&mut Shard<K, O>, TimerHandle),
    ) {
        // 1. Begin a walk, with the first waiters.
        let mut found = Found::new();
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return;
        };
        let mut add = |of: &mut Entries<O>, waiter: Waiter| found.push(waiter.handle(of));
        let mut walk = WaiterWalk::begin(&self.shards, &mut shard, record, LIST_BATCH, &mut add);
        // 2. Act on what was found, and go on.
        let mut locked = Some(shard);
        loop {
            let first = locked.take();
            self.each_in_first_shard_from(first, found.drain(..), |&handle| handle, &mut act);
            if !walk.next(LIST_BATCH, |of, waiter| found.push(waiter.handle(of))) {
                return;
            }
        }
    }

    /// Lists the operations that wait for a key, in the order of parking and in bounded steps. Some
    /// may have ended.
    pub(super) fn waiters_of<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> Vec<TimerHandle> {
        let mut waiters = Vec::new();
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return waiters;
        };
        let mut add = |of: &mut Entries<O>, waiter: Waiter| waiters.push(waiter.handle(of));
        let mut walk = WaiterWalk::begin(&self.shards, &mut shard, record, LIST_BATCH, &mut add);
        drop(shard);
        while walk.next(LIST_BATCH, &mut add) {}
        drop(walk);
        waiters
    }
}
