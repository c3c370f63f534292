//! Reaching parked operations: look at one or change it where it lies, take it out, visit all.
//!
//! A closure on an operation where it lies runs under the lock of the operation's first shard. A
//! call from inside it would wait for that lock: debug builds panic instead
//! ([`must_be_unlocked`](super::under_lock::must_be_unlocked)). An operation that a thread holds is
//! not there to be reached, and the caller is told so.

use std::{
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    slice,
    sync::Arc,
    thread,
};

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, Handles, Tour, under_lock::UnderLock},
    operation::{DelayedOperation, OperationId, ReachResult},
    shard::{ToRelease, reach::InPlace},
    watches::WatchKey,
};

/// Runs the user's code while a shard is locked. Its panic is the caller's to resume, unlocked.
fn under_lock<R>(code: impl FnOnce() -> R) -> thread::Result<R> {
    let _under_lock = UnderLock::enter();
    catch_unwind(AssertUnwindSafe(code))
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Takes a parked operation out, without a callback.
    pub(crate) fn take(self: &Arc<Self>, id: OperationId) -> ReachResult<O> {
        let Some(handle) = self.frame.handle(id) else {
            return ReachResult::Gone;
        };
        let taken = self.first_shard_of(handle).take(handle);
        taken.map(|(operation, to_release)| {
            self.hand_out(to_release);
            operation
        })
    }

    /// Takes every operation parked under `key` out, without a callback. Returns them, and the ids
    /// of those under check.
    pub(crate) fn take_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
    ) -> (Vec<O>, Vec<OperationId>) {
        let Some(waited) = self.waited(key, self.versions.hash(key)) else {
            return (Vec::new(), Vec::new());
        };
        // 1. Take each out under its first shard's lock.
        let mut operations = Vec::with_capacity(waited.shard.waiters(waited.record));
        let mut to_release = SmallVec::<[_; 2]>::new();
        let mut under_check = Vec::new();
        self.each_waiter(waited, |first_shard, handle| {
            match first_shard.take(handle) {
                ReachResult::Reached((operation, released)) => {
                    operations.push(operation);
                    to_release.push(released);
                }
                ReachResult::UnderCheck => under_check.push(self.frame.id(handle)),
                ReachResult::Gone => {}
            }
        });
        // 2. Release their watches, with nothing locked.
        for released in to_release {
            self.hand_out(released);
        }
        (operations, under_check)
    }

    /// Releases the watches and the place of an operation that was taken out.
    fn hand_out(&self, mut to_release: ToRelease<K>) {
        self.release(&mut to_release);
        self.return_place();
    }

    /// Calls `reach` with a parked operation, under its first shard's lock.
    pub(crate) fn with<R>(
        &self,
        id: OperationId,
        reach: impl FnOnce(&mut O) -> R,
    ) -> ReachResult<R> {
        match self.frame.handle(id) {
            Some(handle) => self.with_at(handle, reach),
            None => ReachResult::Gone,
        }
    }

    /// Calls `reach` with each operation parked under `key`, under its first shard's lock. Returns
    /// the results, and the ids of those under check.
    pub(crate) fn with_for_key<Q: Hash + Equivalent<K> + ?Sized, R>(
        &self,
        key: &Q,
        mut reach: impl FnMut(&mut O) -> R,
    ) -> (Vec<R>, Vec<OperationId>) {
        let Some(waited) = self.waited(key, self.versions.hash(key)) else {
            return (Vec::new(), Vec::new());
        };
        let mut results = Vec::new();
        let mut under_check = Vec::new();
        for handle in self.waiters_of(waited) {
            match self.with_at(handle, &mut reach) {
                ReachResult::Reached(result) => results.push(result),
                ReachResult::UnderCheck => under_check.push(self.frame.id(handle)),
                ReachResult::Gone => {}
            }
        }
        (results, under_check)
    }

    fn with_at<R>(&self, handle: TimerHandle, reach: impl FnOnce(&mut O) -> R) -> ReachResult<R> {
        // 1. Reach it, if it is there. If not, the closure is dropped with nothing locked.
        let mut first_shard = self.first_shard_of(handle);
        let reached = match first_shard.show(handle) {
            None => ReachResult::Gone,
            Some(InPlace { payload: None, .. }) => ReachResult::UnderCheck,
            Some(InPlace {
                payload: Some(operation),
                ..
            }) => ReachResult::Reached(under_lock(|| reach(operation))),
        };
        drop(first_shard);
        // 2. Pass a panic on.
        reached.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Calls `visit` for everything parked, a bounded number under one lock hold. An operation that
    /// is held comes without its payload.
    pub(crate) fn visit_all(&self, mut visit: impl FnMut(OperationId, &[K], Option<&mut O>)) {
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            // 1. An operation with one key is visited in this lock hold, and its key is not cloned.
            let mut with_several = Handles::new();
            let mut panic = None;
            for handle in handles {
                let entry = shard.get_mut(handle);
                if entry.is_some_and(|entry| entry.last_secondary.is_some()) {
                    with_several.push(handle);
                    continue;
                }
                let Some(it) = shard.show(handle) else {
                    continue;
                };
                let keys = slice::from_ref(it.first_key);
                let visited = under_lock(|| visit(self.frame.id(handle), keys, it.payload));
                if let Err(panicked) = visited {
                    panic = Some(panicked);
                    break;
                }
            }
            drop(shard);
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
            // 2. The others, one by one.
            for handle in with_several {
                self.visit_with_keys(handle, &mut visit);
            }
        }
    }

    /// Calls `visit` for an operation with several keys, unless it has ended.
    fn visit_with_keys(
        &self,
        handle: TimerHandle,
        visit: &mut impl FnMut(OperationId, &[K], Option<&mut O>),
    ) {
        // 1. The keys, each cloned in its shard.
        let mut first_shard = self.first_shard_of(handle);
        let Some(entry) = first_shard.get_mut(handle) else {
            return;
        };
        let last_secondary = entry.last_secondary;
        let first_key = first_shard.first_key(handle);
        drop(first_shard);
        let keys = self.keys_of(handle, first_key, last_secondary);

        // 2. The operation, if it is still there. The keys are dropped after the unlock.
        let mut first_shard = self.first_shard_of(handle);
        let mut visited = Ok(());
        if let Some(it) = first_shard.show(handle) {
            visited = under_lock(|| visit(self.frame.id(handle), &keys, it.payload));
        }
        drop(first_shard);
        if let Err(panic) = visited {
            resume_unwind(panic);
        }
    }
}
