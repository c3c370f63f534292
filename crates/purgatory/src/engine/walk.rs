//! Walks over the waiters of one key.
//!
//! A walk sees the waiters that were present when it began, in the order they were parked, without
//! those that have left before it came to them. It goes a bounded number of waiters at a time;
//! nothing is locked in between.

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::Shards};

use crate::{
    engine::{Core, LockedShard, check::Batch},
    operation::DelayedOperation,
    shard::{Entries, Shard, Waiter, WalkId},
    watches::WatchKey,
};

/// Waiters that are found under one lock hold where nothing is checked.
pub(super) const LIST_BATCH: usize = 128;

/// Waiters that were found: most keys have one.
type Found = SmallVec<[TimerHandle; 4]>;

/// A key that has waiters. Its shard is locked.
pub(super) struct Waited<'a, K: Eq + Clone, O> {
    pub(super) shard: LockedShard<'a, K, O>,
    pub(super) record: u32,
}

impl<'a, K: WatchKey, O: DelayedOperation> Waited<'a, K, O> {
    /// Begins a walk over the key's waiters, with the first `limit` of them.
    #[inline]
    pub(super) fn walk(
        &mut self,
        core: &'a Core<K, O>,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> WaiterWalk<'a, K, O> {
        WaiterWalk {
            shards: &core.shards,
            shard: self.shard.number(),
            cursor: self.shard.walk(self.record, limit, found),
        }
    }
}

/// A walk over the waiters of one key.
pub(super) struct WaiterWalk<'a, K: Eq + Clone, O> {
    shards: &'a Shards<Shard<K, O>>,
    shard: usize,
    /// Names the walk in its shard, while there are waiters left.
    cursor: Option<WalkId>,
}

impl<K: Eq + Clone, O> WaiterWalk<'_, K, O> {
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

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Finds a key that has waiters, and locks its shard. Runs the key's `Eq`.
    #[inline]
    pub(super) fn waited<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> Option<Waited<'_, K, O>> {
        let shard = self.shard_of(hash);
        let record = shard.find(key, hash)?;
        Some(Waited { shard, record })
    }

    /// Applies `act` to each waiter of a key, in its operation's first shard. Where the key is the
    /// first one, that is the shard in which the waiters were found, and it stays locked.
    #[inline]
    pub(super) fn each_waiter<'a>(
        &'a self,
        mut waited: Waited<'a, K, O>,
        mut act: impl FnMut(&mut LockedShard<'a, K, O>, TimerHandle),
    ) {
        // 1. Most keys have one waiter: no walk is made for it.
        if let Some(only) = waited.shard.only_here(waited.record) {
            let handle = waited.shard.handle_at(only);
            act(&mut waited.shard, handle);
            return;
        }
        // 2. Begin a walk, with the first waiters.
        let mut found = Found::new();
        let add = |of: &mut Entries<O>, waiter: Waiter| found.push(waiter.handle(of));
        let mut walk = waited.walk(self, LIST_BATCH, add);
        // 3. Act on what was found, and go on.
        let mut locked = Some(waited.shard);
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
    pub(super) fn waiters_of<'a>(&'a self, mut waited: Waited<'a, K, O>) -> Vec<TimerHandle> {
        let mut waiters = Vec::new();
        let mut add = |of: &mut Entries<O>, waiter: Waiter| waiters.push(waiter.handle(of));
        let mut walk = waited.walk(self, LIST_BATCH, &mut add);
        drop(waited);
        while walk.next(LIST_BATCH, &mut add) {}
        drop(walk);
        waiters
    }
}
