//! Parking under several keys: the other keys first, the first key with the entry last.
//!
//! 1. *Reserve* an entry in the first key's shard: blank, and held by this thread. As a rule the
//!    shard has reserved one ahead ([`reserves`](super::reserves)), so that this takes no lock.
//! 2. *Watch* the other keys, each in its shard, and compare their versions. Neighbours in one
//!    shard share a lock hold. A thread that finds such a watch finds the entry held, and leaves it
//!    a note.
//! 3. *Arrive*: under the lock of the first key's shard compare its version, put the operation into
//!    its entry, on the wheel and on the key's list, and check it in, as any holder does. A changed
//!    version counts as an event that found the entry held, so this thread checks again.
//!
//! So each shard is locked once. With all keys in one shard all of this is one lock hold, unless
//! they are many.

use std::mem::forget;

use timer_core::TimerHandle;

use crate::{
    engine::{BUDGET, Core, LockedShard},
    error::{Refused, RefusedReason},
    operation::DelayedOperation,
    shard::{CheckedIn, CheckedOut, ParkTimes, SecondaryId, WAITERS_MAX, Watch, arrive::Arrival},
    sync::Ordering,
    watches::WatchKey,
};

/// A parked operation, and the decision at its check-in: it may have ended already.
pub(super) struct ParkedUnder<K, O> {
    pub(super) handle: TimerHandle,
    pub(super) checked_in: CheckedIn<K, O>,
}

impl<K, O> ParkedUnder<K, O> {
    /// An operation that its parker holds, to check it again.
    pub(super) fn held(held: CheckedOut<O>) -> Self {
        ParkedUnder {
            handle: held.handle,
            checked_in: CheckedIn::CheckAgain(held),
        }
    }
}

/// An operation that is not in its entry yet. Dropped then, as when a key's `Eq` panics, it takes
/// the entry and the watches away.
struct Arriving<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    /// Its entry, once that is reserved.
    handle: Option<TimerHandle>,
    last_secondary: Option<SecondaryId>,
    /// One of the keys saw an event since the check.
    event_passed: bool,
}

impl<'a, K: WatchKey, O: DelayedOperation> Arriving<'a, K, O> {
    /// Reserves an entry and watches all keys but the first, whose shard is returned locked.
    fn watch_others(
        &mut self,
        watch_set: &[Watch<'_, K>],
    ) -> Result<LockedShard<'a, K, O>, RefusedReason> {
        let (first, others) = watch_set.split_first().expect("an operation has keys");
        let core = self.core;
        let shard_of = |watch: &Watch<'_, K>| core.versions.shard(watch.hash);

        // 1. All keys in one shard, and not many: one lock hold does for everything.
        let is_here = |watch| shard_of(watch) == shard_of(first);
        if others.len() < BUDGET && others.iter().all(is_here) {
            let mut shard = core.shard_of(first.hash);
            let handle = shard.reserve(core.follows())?;
            self.handle = Some(handle);
            self.watch(&mut shard, handle, others)?;
            return Ok(shard);
        }

        // 2. Otherwise an entry, then each other shard, then that of the first key.
        let handle = core.reserve(first.hash)?;
        self.handle = Some(handle);
        for run in others.chunk_by(|one, next| shard_of(one) == shard_of(next)) {
            for some in run.chunks(BUDGET) {
                self.watch(&mut core.shard_of(some[0].hash), handle, some)?;
            }
        }
        let first_shard = core.shard_of(first.hash);
        if first_shard.is_closed() {
            return Err(RefusedReason::Closed);
        }
        Ok(first_shard)
    }

    /// Watches keys of one shard. An event since the check is one to check for again.
    fn watch(
        &mut self,
        shard: &mut LockedShard<'_, K, O>,
        handle: TimerHandle,
        watches: &[Watch<'_, K>],
    ) -> Result<(), RefusedReason> {
        for watch in watches {
            let full = RefusedReason::Full { limit: WAITERS_MAX };
            let secondary = shard.watch(watch, handle, self.last_secondary);
            self.last_secondary = Some(secondary.ok_or(full)?);
            self.event_passed |= O::CHECKED && self.core.versions.changed(watch);
        }
        Ok(())
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for Arriving<'_, K, O> {
    fn drop(&mut self) {
        let Some(handle) = self.handle else { return };
        let entry = self.core.first_shard_of(handle).withdraw(handle);
        drop(entry); // with nothing locked: a note may have a value of the user's
        self.core
            .release_secondaries(&mut self.last_secondary, usize::MAX, drop);
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Parks an operation that was checked under its keys, one or more.
    #[inline(never)]
    pub(super) fn park_several(
        &self,
        operation: O,
        watch_set: &[Watch<'_, K>],
        times: &ParkTimes,
    ) -> Result<ParkedUnder<K, O>, Refused<O>> {
        // 1. Watch all keys but the first. In this order: should a key's `Eq` or `Clone` panic, the
        //    shard is unlocked before `arriving` cleans up.
        let now_ns = self.ending_at();
        let mut arriving = Arriving {
            core: self,
            handle: None,
            last_secondary: None,
            event_passed: false,
        };
        let mut first_shard = match arriving.watch_others(watch_set) {
            Ok(first_shard) => first_shard,
            Err(reason) => return Err(Refused::new(operation, reason)),
        };

        // 2. Arrive under the first key.
        let first = &watch_set[0];
        let record = first_shard.record_of(first);
        let handle = arriving.handle.expect("an entry is reserved");
        let arrival = Arrival {
            handle,
            operation,
            times,
            last_secondary: arriving.last_secondary,
            watermark: first.watermark,
            event_passed: arriving.event_passed || O::CHECKED && self.versions.changed(first),
        };
        forget(arriving);
        let arrived = first_shard.arrive(record, arrival, now_ns);
        Self::work_at(&mut first_shard, times, arrived.due);

        // 3. Reserve an entry for the next one.
        if self.reserves.are_kept() {
            if let Some(next) = first_shard.reserve_next() {
                self.reserves.leave(next);
            }
        }
        Ok(ParkedUnder {
            handle,
            checked_in: arrived.checked_in,
        })
    }

    /// Reserves an entry in the shard of a key, without its lock if that has one ahead.
    #[inline]
    fn reserve(&self, hash: u64) -> Result<TimerHandle, RefusedReason> {
        match self.reserves.take(self.versions.shard(hash)) {
            Some(handle) => Ok(handle),
            None => self.shard_of(hash).reserve(self.follows()),
        }
    }

    /// Removes the entry that a shard without operations has reserved ahead, so that the memory of
    /// a peak is freed.
    #[inline]
    pub(super) fn drop_reserve(&self, shard: &mut LockedShard<'_, K, O>) {
        let Some(idle) = shard.idle_reserve() else {
            return;
        };
        // A parker may have taken it just now.
        if self.reserves.take(idle.shard()).is_some() {
            drop(shard.withdraw(idle)); // nobody knew of it, so it has no note
        }
    }

    /// The sequence of the operation before the next one, when order matters over several shards.
    #[inline]
    pub(super) fn follows(&self) -> Option<u64> {
        let sequence = self.sequence.as_ref()?;
        Some(sequence.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use timer_core::driver::WheelOwner;

    use crate::{BoxedOperation, Purgatory, Timeout, when};

    /// Entries on all wheels, blank ones included.
    fn entries(purgatory: &Purgatory<u64, BoxedOperation>) -> usize {
        let shards = &purgatory.core.shards;
        let entries = |shard| shards.lock(shard).entry_count();
        (0..shards.count()).map(entries).sum()
    }

    #[test]
    fn an_entry_is_reserved_until_the_shard_is_idle() {
        let purgatory = Purgatory::builder("several").shards(4).build().unwrap();
        let park = || {
            let never = when(|| false, |_| ());
            let keys = [0, 1, 2, 3, 4, 5, 6, 7];
            let parked = purgatory.try_complete_else_watch(never, &keys, Timeout::Never);
            parked.unwrap().id().unwrap()
        };
        // One is reserved ahead, and the next takes it.
        let ids = [park(), park(), park()];
        assert_eq!((purgatory.len(), entries(&purgatory)), (3, 4));
        for id in ids {
            purgatory.cancel(id, "over");
        }
        // It goes when the timer comes by, which it may have done already.
        assert!(purgatory.is_empty() && entries(&purgatory) <= 1);
        for shard in 0..4 {
            purgatory.core.advance(shard, 0);
        }
        assert_eq!((entries(&purgatory), purgatory.watched()), (0, 0));
        park();
        assert_eq!((purgatory.len(), entries(&purgatory)), (1, 2));
        purgatory.shutdown(Duration::ZERO);
        assert_eq!((purgatory.len(), purgatory.keys()), (0, 0));
    }
}
