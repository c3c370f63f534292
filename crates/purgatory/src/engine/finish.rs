//! Finishing: the one way out of the kernel, for every ending.
//!
//! An operation *ends* under its first shard's lock: the outcome is decided, and the entry leaves
//! the wheel and its first key's list. [`finish`](Core::finish) does the rest with nothing locked:
//! it releases the secondary watches, then calls `on_complete`, on this thread or by a job on the
//! executor.

use std::{mem::needs_drop, sync::Arc, time::Duration};

use timer_core::Job;

use crate::{
    engine::Core,
    operation::{DelayedOperation, Outcome},
    shard::{AllEnded, Ended, SecondaryId, ToRelease},
    table::call::Call,
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Takes an ended operation out of the watch lists that still have it, and calls it back.
    /// Returns 1 if it completed.
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, mut ended: Ended<K, O>) -> usize {
        self.release(call, &mut ended.to_release);
        let completed = usize::from(matches!(ended.outcome, Outcome::Completed));
        let on_executor =
            self.engine.rules.callbacks_on_executor || matches!(ended.outcome, Outcome::Expired);
        // An operation has a place until its callback begins. One that ended at once has none yet,
        // so take one: the executor, or the outermost call, runs its callback later.
        if (on_executor || call.is_nested()) && !ended.to_release.has_place {
            self.common.take_callbacks_place();
            ended.to_release.has_place = true;
        }
        if on_executor {
            self.call_back_on_executor(ended);
        } else {
            self.call_back_in(call, ended);
        }
        completed
    }

    /// Finishes an operation whose check came true, as [`finish`](Self::finish) does. Most
    /// operations end so: it is inlined, and takes an operation in parts, which stay in registers.
    #[inline(always)]
    pub(super) fn finish_satisfied(
        self: &Arc<Self>,
        call: &Call<'_>,
        payload: O,
        mut to_release: ToRelease<K>,
    ) {
        if self.engine.rules.callbacks_on_executor || call.is_nested() {
            let ended = Ended {
                payload,
                outcome: Outcome::Completed,
                to_release,
            };
            self.finish(call, ended);
            return;
        }
        self.release(call, &mut to_release);
        // The outcome is made where it is used, so that it is not moved through memory.
        self.call_back(to_release, || {
            self.frame.call(|| payload.on_complete(Outcome::Completed));
        });
    }

    /// Finishes several operations and empties the list. All of them are out of every watch list
    /// before the first is called back. Returns how many completed.
    pub(super) fn finish_all(self: &Arc<Self>, call: &Call<'_>, all: &mut AllEnded<K, O>) -> usize {
        for ended in all.iter_mut() {
            self.release(call, &mut ended.to_release);
        }
        let mut completed = 0;
        for ended in all.drain(..) {
            completed += self.finish(call, ended);
        }
        completed
    }

    /// Takes an ended operation out of the watch lists that still have it. Its first key is dropped
    /// with its callback, as one piece of work.
    #[inline]
    pub(super) fn release(self: &Arc<Self>, call: &Call<'_>, to_release: &mut ToRelease<K>) {
        // Most operations have one key, and so no secondary watch.
        let last = &mut to_release.last_secondary;
        if last.is_some() {
            self.release_secondaries(last, usize::MAX, &mut |key| self.drop_key(call, key));
        }
    }

    /// Releases all parts of an operation that is not called back: it was taken out, or not parked
    /// after all.
    pub(crate) fn release_uncalled(self: &Arc<Self>, mut to_release: ToRelease<K>) {
        let call = self.frame.enter();
        self.release(&call, &mut to_release);
        if let Some(key) = to_release.emptied_key {
            self.drop_key(&call, key);
        }
        if let Some(cold) = to_release.cold {
            self.frame.call(|| drop(cold)); // a pending end may have a reason of the user's
        }
        self.common.return_place();
    }

    /// Releases secondary watches, the last first, `max` at most; returns how many. Calls
    /// `emptied_key` with each key that has no waiters left, with nothing locked.
    #[inline(never)]
    pub(super) fn release_secondaries(
        &self,
        last: &mut Option<SecondaryId>,
        max: usize,
        emptied_key: &mut dyn FnMut(K),
    ) -> usize {
        for released in 0..max {
            let Some(secondary) = *last else {
                return released;
            };
            let mut shard = self.shards.lock(secondary.shard as usize);
            let (before, emptied) = shard.unwatch(secondary);
            drop(shard);
            *last = before;
            if let Some(key) = emptied {
                emptied_key(key);
            }
        }
        max
    }

    /// Calls back inside the outermost call on this thread: now, or when that call gets to it.
    #[inline]
    pub(super) fn call_back_in(self: &Arc<Self>, call: &Call<'_>, ended: Ended<K, O>) {
        call.in_turn(self, |core| core.call_back_ended(ended));
    }

    /// Calls an operation back.
    #[inline(always)]
    fn call_back_ended(self: &Arc<Self>, ended: Ended<K, O>) {
        let Ended {
            mut payload,
            outcome,
            to_release,
        } = ended;
        let due_ns = to_release.due_ns;
        // Two separate calls, so that a panic in the first does not prevent the second.
        self.call_back(to_release, || {
            if matches!(outcome, Outcome::Expired) {
                let driver = self.frame.driver();
                let late = || Duration::from_nanos(driver.now_ns().saturating_sub(due_ns));
                self.frame.call(|| payload.expiring(&late));
            }
            self.frame.call(|| payload.on_complete(outcome));
        });
    }

    /// Makes the calls that end an operation, with nothing locked. The engine makes them only here.
    /// Until then the operation keeps its place.
    #[inline(always)]
    fn call_back(&self, to_release: ToRelease<K>, calls: impl FnOnce()) {
        // 1. Release its key and its place first: a task that is woken may park again, and finds
        //    the place free.
        if needs_drop::<K>() {
            if let Some(key) = to_release.emptied_key {
                self.frame.call(|| drop(key));
            }
        }
        if to_release.has_place && !failpoint!(AnsweredKeepsPlace) {
            self.common.return_place();
        }
        // 2. Call back.
        calls();
        if to_release.has_place && failpoint!(AnsweredKeepsPlace) {
            self.common.return_place();
        }
        // 3. Drop a pending end that lost: it may have a reason of the user's.
        if let Some(cold) = to_release.cold {
            self.frame.call(|| drop(cold));
        }
    }

    /// Leaves the callback of an operation to the executor.
    fn call_back_on_executor(self: &Arc<Self>, ended: Ended<K, O>) {
        let queued_ns = self.frame.callbacks_queued(1);
        let core = self.clone();
        self.frame.executor.execute(Job::new(move || {
            core.frame
                .run_queued(queued_ns, None, |call| core.call_back_in(call, ended));
        }));
    }
}
