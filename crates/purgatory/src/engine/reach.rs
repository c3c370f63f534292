//! Reaching parked operations: look at one or change it where it lies, take it out, visit all.
//!
//! A closure on an operation where it lies runs under the lock of the operation's first shard. A
//! call from inside it would wait for that lock: debug builds panic instead
//! ([`must_be_unlocked`](super::under_lock::must_be_unlocked)). An operation that a thread holds is
//! not there to be reached, and the caller is told so.

use std::{
    any::Any,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    slice,
    sync::Arc,
    task::Waker,
    thread,
};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, Handles, Tour, under_lock::UnderLock},
    operation::{DelayedOperation, OperationId, ReachResult, TakenForKey},
    shard::{Ended, Shard, Then, reach::InPlace},
    watches::WatchKey,
};

/// The work that visits of the user's code, under a lock, leave to be done without it.
#[derive(Default)]
struct Visited {
    /// The wakers of futures whose operations were replaced.
    replaced: Vec<Waker>,
    /// The first panic. It ends the visits.
    panic: Option<Box<dyn Any + Send>>,
}

impl Visited {
    /// Visits an operation, unless a visit has panicked.
    fn add<K: WatchKey, O: DelayedOperation>(
        &mut self,
        shard: &mut Shard<K, O>,
        handle: TimerHandle,
        visit: impl FnOnce(InPlace<'_, K, O>),
    ) {
        if self.panic.is_some() {
            return;
        }
        let panic = &mut self.panic;
        let replaced = shard.show(handle, |it| *panic = under_lock(|| visit(it)).err());
        self.replaced.extend(replaced);
    }
}

/// Runs the user's code while a shard is locked. Its panic is the caller's to resume, unlocked.
fn under_lock<R>(code: impl FnOnce() -> R) -> thread::Result<R> {
    let _under_lock = UnderLock::enter();
    catch_unwind(AssertUnwindSafe(code))
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Takes a parked operation out, without a callback.
    pub(crate) fn take(self: &Arc<Self>, id: OperationId) -> ReachResult<O> {
        let Some(handle) = self.handle(id) else {
            return ReachResult::Gone;
        };
        let taken = self.first_shard_of(handle).take(handle);
        match taken {
            ReachResult::Parked(ended) => ReachResult::Parked(self.hand_out(ended)),
            ReachResult::UnderCheck => ReachResult::UnderCheck,
            ReachResult::Gone => ReachResult::Gone,
        }
    }

    /// Takes every operation parked under `key` out, without a callback.
    pub(crate) fn take_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
    ) -> TakenForKey<O> {
        // 1. Take each out under its first shard's lock.
        let waiters = self.waiters_of(key, self.versions.hash(key));
        let mut all_taken = Vec::new();
        let mut under_check = Vec::new();
        self.each_in_first_shard(
            waiters,
            |&handle| handle,
            |first_shard, handle| match first_shard.take(handle) {
                ReachResult::Parked(ended) => all_taken.push(ended),
                ReachResult::UnderCheck => under_check.push(self.id(handle)),
                ReachResult::Gone => {}
            },
        );
        // 2. Release their watches, with nothing locked.
        let mut operations = Vec::new();
        for ended in all_taken {
            operations.push(self.hand_out(ended));
        }
        TakenForKey {
            operations,
            under_check,
        }
    }

    /// Releases the watches and the place of an operation that was taken out.
    fn hand_out(self: &Arc<Self>, mut ended: Ended<K, O>) -> O {
        self.release(&mut ended.to_release);
        self.return_place(ended.to_release.has_place);
        match ended.then {
            Then::CallBack { payload, .. } => payload,
            Then::Answer {
                mut payload,
                handle,
            } => {
                // Its future waits on, for the answer that the caller gives.
                let core = self.clone();
                payload.detach(Box::new(move |answered| {
                    core.put_made(handle, answered, None);
                }));
                payload
            }
            Then::Wake(_) => unreachable!("it has no answer yet"),
        }
    }

    /// Calls `reach` with a parked operation, under its first shard's lock.
    pub(crate) fn with<R>(
        &self,
        id: OperationId,
        reach: impl FnOnce(&mut O) -> R,
    ) -> ReachResult<R> {
        let Some(handle) = self.handle(id) else {
            return ReachResult::Gone;
        };
        // 1. Reach it, if it is there. If not, the closure is dropped with nothing locked.
        let mut reach = Some(reach);
        let mut result = None;
        let reached = self.first_shard_of(handle).reach(handle, |operation| {
            result = reach.take().map(|reach| under_lock(|| reach(operation)));
        });
        // 2. Wake the task whose operation was replaced, and pass a panic on.
        match reached {
            ReachResult::Parked(replaced) => self.wake(replaced),
            ReachResult::UnderCheck => return ReachResult::UnderCheck,
            ReachResult::Gone => return ReachResult::Gone,
        }
        match result.expect("it was called") {
            Ok(result) => ReachResult::Parked(result),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Calls `visit` for everything parked, a bounded number under one lock hold. An operation that
    /// is held comes without its payload.
    pub(crate) fn visit_all(&self, mut visit: impl FnMut(OperationId, &[K], Option<&mut O>)) {
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = self.next_parked(&mut tour) {
            // 1. An operation with one key is visited in this lock hold, and its key is not cloned.
            let mut with_several = Handles::new();
            let mut visited = Visited::default();
            for handle in handles {
                let entry = shard.get_mut(handle);
                if entry.is_some_and(|entry| entry.last_secondary.is_some()) {
                    with_several.push(handle);
                    continue;
                }
                visited.add(&mut shard, handle, |it| {
                    let keys = it.first_key.map_or(&[][..], slice::from_ref);
                    visit(self.id(handle), keys, it.payload);
                });
            }
            drop(shard);
            self.visited(visited);
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
        let mut visited = Visited::default();
        visited.add(&mut self.first_shard_of(handle), handle, |it| {
            visit(self.id(handle), &keys, it.payload);
        });
        self.visited(visited);
    }

    /// Wakes the tasks whose operations were replaced, and passes a panic on. Nothing is locked.
    fn visited(&self, visited: Visited) {
        for replaced in visited.replaced {
            self.wake(Some(replaced));
        }
        if let Some(panic) = visited.panic {
            resume_unwind(panic);
        }
    }
}
