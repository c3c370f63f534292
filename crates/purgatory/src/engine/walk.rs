//! Walks over the waiters of one key.
//!
//! A walk sees the waiters that were present when it began, in the order they were parked, except
//! those that leave before it comes to them. It visits a bounded number of waiters at a time;
//! nothing is locked in between.

use timer_core::TimerHandle;

use crate::{
    engine::{Core, LockedShard},
    operation::DelayedOperation,
    shard::{Waiters, WalkId},
    watches::{KeyRef, WatchKey},
};

/// The number of waiters found under one lock hold by a walk that checks nothing.
const LIST_BATCH: usize = 128;

/// A key that has waiters. Its shard is locked.
pub(crate) struct Waited<'a, K: WatchKey, O> {
    pub(crate) shard: LockedShard<'a, K, O>,
    pub(crate) record: u32,
}

/// A walk over the waiters of one key.
pub(crate) struct WaiterWalk<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    shard: usize,
    /// The key, set until the first step.
    begins: Option<Waited<'a, K, O>>,
    /// Names the walk in its shard, while there are waiters left.
    cursor: Option<WalkId>,
}

impl<'a, K: WatchKey, O: DelayedOperation> WaiterWalk<'a, K, O> {
    /// Finds the next waiters, at most `limit`. Returns their key's shard, still locked; `None` at
    /// the end.
    #[inline]
    fn find_next(&mut self, limit: usize, found: &mut Waiters) -> Option<LockedShard<'a, K, O>> {
        if let Some(Waited { mut shard, record }) = self.begins.take() {
            self.cursor = shard.walk(record, limit, found);
            return Some(shard);
        }
        let cursor = self.cursor?;
        let mut shard = self.core.shards.lock(self.shard);
        self.cursor = shard.walk_on(cursor, limit, found);
        Some(shard)
    }

    /// Applies `act` to the next waiters, at most `limit`, each in its operation's first shard. If
    /// the key is the operation's first, that is the shard in which it was found, and it stays
    /// locked. Returns false at the end.
    #[inline]
    pub(crate) fn next(
        &mut self,
        limit: usize,
        act: impl FnMut(&mut LockedShard<'a, K, O>, TimerHandle),
    ) -> bool {
        let mut found = Waiters::new();
        let shard = self.find_next(limit, &mut found);
        if shard.is_none() {
            return false;
        }
        self.core
            .each_in_first_shard(shard, found, |&handle| handle, act);
        true
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for WaiterWalk<'_, K, O> {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor {
            self.core.shards.lock(self.shard).end_walk(cursor);
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Finds a key that has waiters, and locks its shard. Runs the key's `Hash` and `Eq`.
    pub(crate) fn waited<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> Option<Waited<'_, K, O>> {
        let hash = self.hash(key);
        let shard = self.shard_of(hash);
        let record = shard.find(key, hash)?;
        Some(Waited { shard, record })
    }

    /// Begins a walk over the waiters of a key.
    #[inline]
    pub(crate) fn walk<'a>(&'a self, waited: Waited<'a, K, O>) -> WaiterWalk<'a, K, O> {
        WaiterWalk {
            core: self,
            shard: waited.shard.number(),
            begins: Some(waited),
            cursor: None,
        }
    }

    /// Applies `act` to each waiter of a key, in its operation's first shard.
    pub(crate) fn each_waiter<'a>(
        &'a self,
        waited: Waited<'a, K, O>,
        mut act: impl FnMut(&mut LockedShard<'a, K, O>, TimerHandle),
    ) {
        let mut walk = self.walk(waited);
        while walk.next(LIST_BATCH, &mut act) {}
    }

    /// Lists the operations that wait under a key, in the order of parking and in bounded steps.
    /// Some may have ended by then.
    pub(crate) fn waiters_of<'a>(&'a self, waited: Waited<'a, K, O>) -> Waiters {
        let mut waiters = Waiters::new();
        let mut walk = self.walk(waited);
        while walk.find_next(LIST_BATCH, &mut waiters).is_some() {}
        waiters
    }
}
