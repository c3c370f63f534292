//! Parking: check, watch every key, check again if an event came meanwhile.
//!
//! 1. Read each key's version, then check. If the check comes true, the operation ends, and nothing
//!    else was touched.
//! 2. *One key*: compare the version under the lock of the key's shard. If it is unchanged, put the
//!    operation on the wheel and on the key's list.
//! 3. *Several keys*, or one whose version has changed: put an entry, held by this thread, into the
//!    first key's shard; watch the other keys in their shards, one at a time, comparing versions;
//!    then check the payload in as any holder does. A changed version counts as an event that found
//!    the entry held, so the holder checks again.

use std::{collections::HashSet, mem::forget, slice, sync::Arc};

use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, LockedShard, versions::Watch},
    error::{Refused, WaitError},
    operation::{CancelReason, DelayedOperation, Outcome, Parking, Timeout, ToPark, Verdict},
    shard::{Cause, CheckedIn, CheckedOut, SecondaryId, WAITERS_MAX},
    sync::Ordering,
    table::{Arrival, call::Call},
    watches::{WatchKey, Watches},
};

/// Up to this number of keys, all pairs of hashes are compared before the keys are put into a set.
const FEW_KEYS: usize = 8;

/// The place among `max_parked` of an operation that was checked, until an entry has it. If this is
/// dropped before, it returns the place and counts the check, which no shard counts then.
struct PlaceGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for PlaceGuard<'_, K, O> {
    fn drop(&mut self) {
        self.core.common.return_place();
        self.core.count_unparked();
    }
}

/// An operation whose keys are not all watched yet. If this is dropped, as when a key's `Eq`
/// panics, it removes the operation's entry and watches, and counts its check.
struct Arriving<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Arc<Core<K, O>>,
    handle: TimerHandle,
    last_secondary: Option<SecondaryId>,
}

impl<K: WatchKey, O: DelayedOperation> Arriving<'_, K, O> {
    /// Keeps the entry, as all keys are watched. Returns its last secondary watch.
    fn arrived(self) -> Option<SecondaryId> {
        let last_secondary = self.last_secondary;
        forget(self);
        last_secondary
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for Arriving<'_, K, O> {
    fn drop(&mut self) {
        // Holder removes: the entry is there.
        let withdrawn = self.core.first_shard_of(self.handle).withdraw(self.handle);
        if let Some(mut to_release) = withdrawn {
            to_release.last_secondary = self.last_secondary;
            self.core.release_uncalled(to_release);
        }
        self.core.count_unparked();
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Parks an operation; `finish_now` finishes one that ends at once. A refused operation is
    /// handed back with nothing locked; the refusal is counted and traced.
    #[inline(always)]
    pub(crate) fn park_or<P: ToPark<O>>(
        self: &Arc<Self>,
        to_park: P,
        watches: Watches<'_, K>,
        timeout: Timeout,
        finish_now: impl FnOnce(&Call<'_>, P, Outcome),
    ) -> Result<Parking, Refused<O>> {
        // Refuse before the check: after a shutdown has returned, a wait is refused even if its
        // condition holds, so that a loop of waits ends.
        if let Some(reason) = self.refuses_keys(watches.keys) {
            self.frame.report_refusal(&reason);
            return Err(Refused::new(to_park.into_operation(), reason));
        }
        // Read the clock first, since the deadline counts from the call.
        let arrival = self.arrival(timeout);
        // Most operations have one key: no list is made for it.
        let mut parked = if let [key] = watches.keys {
            let only = self.engine.versions.watch(key, self.hash(key));
            let watch_set = slice::from_ref(&only);
            self.park_watching(to_park, watch_set, &watches, arrival, finish_now)
        } else {
            self.park_under_several(to_park, &watches, arrival, finish_now)
        };
        if let Err(refused) = &mut parked {
            self.report_late_refusal(watches.keys, &mut refused.reason);
        }
        parked
    }

    /// Reports a refusal that came after the first look. If a shutdown has begun since then, it
    /// becomes the reason.
    #[cold]
    fn report_late_refusal(&self, keys: &[K], reason: &mut WaitError) {
        if let Some(closed) = self.refuses_keys(keys) {
            *reason = closed;
        }
        self.frame.report_refusal(reason);
    }

    /// Parks an operation that has several keys. Watches each key once.
    #[inline(never)]
    fn park_under_several<P: ToPark<O>>(
        self: &Arc<Self>,
        to_park: P,
        watches: &Watches<'_, K>,
        arrival: Arrival,
        finish_now: impl FnOnce(&Call<'_>, P, Outcome),
    ) -> Result<Parking, Refused<O>> {
        // 1. Make the watches. At most 28 comparisons tell that no two hashes are equal, as is
        //    nearly always so.
        let mut watch_set = SmallVec::<[Watch<'_, K>; 4]>::new();
        let mut differ = watches.keys.len() <= FEW_KEYS;
        for key in watches.keys {
            let watch = self.engine.versions.watch(key, self.hash(key));
            differ = differ && watch_set.iter().all(|before| before.hash != watch.hash);
            watch_set.push(watch);
        }
        // 2. Keep each key once, in the order of first mention.
        if !differ {
            let mut known = HashSet::new();
            watch_set.retain(|watch| known.insert(watch.key));
        }
        self.park_watching(to_park, &watch_set, watches, arrival, finish_now)
    }

    /// Parks an operation under these watches, unless it ends at once. Inlined twice, so that the
    /// copy for one watch does not test the number.
    // In a debug build each inlined copy would have stack of its own for the operation.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn park_watching<P: ToPark<O>>(
        self: &Arc<Self>,
        mut to_park: P,
        watch_set: &[Watch<'_, K>],
        watches: &Watches<'_, K>,
        arrival: Arrival,
        finish_now: impl FnOnce(&Call<'_>, P, Outcome),
    ) -> Result<Parking, Refused<O>> {
        // 1. Check. An operation that ends here was never parked.
        let call = self.frame.enter();
        let verdict = self.check(&mut to_park, P::check);
        let outcome = match verdict {
            Verdict::Satisfied => Some(Outcome::Completed),
            Verdict::Panicked => Some(Outcome::Cancelled(CancelReason::Panicked)),
            Verdict::Unsatisfied if arrival.is_over => Some(Outcome::Expired),
            Verdict::Unsatisfied => None,
        };
        if let Some(outcome) = outcome {
            self.engine.ended_at_once.fetch_add(1, Ordering::Relaxed);
            finish_now(&call, to_park, outcome);
            return Ok(Parking::AtOnce);
        }

        // 2. Take a place. If the operation is not parked, the guard returns it.
        let operation = to_park.into_operation();
        if let Some(full) = self.common.take_place() {
            self.count_unparked();
            return Err(Refused::new(operation, full));
        }
        let place = PlaceGuard { core: self };

        // 3. Lock the first key's shard. If the key's `Eq` or `Clone` panics, the shard is unlocked
        //    before the operation is dropped.
        let (first, others) = watch_set.split_first().expect("an operation has keys");
        let mut shard = self.shard_of(first.hash);
        if let Some(reason) = shard.refuses() {
            drop(shard);
            return Err(Refused::new(operation, reason));
        }
        let record = shard.record_of(first.key, first.hash);

        // 4. One key, and no event since the check: park it here and now.
        let event_passed = first.has_changed();
        if others.is_empty() && !event_passed {
            shard.counts.checks += 1;
            let handle = self.insert_entry(&mut shard, record, arrival, watches, Some(operation));
            drop(shard);
            forget(place); // the entry has it
            self.sweep_after(arrival.now_ns);
            return Ok(Parking::Parked(self.frame.id(handle)));
        }

        // 5. Otherwise this thread holds it until all keys are watched, and checks it again if an
        //    event came meanwhile.
        let handle = self.insert_entry(&mut shard, record, arrival, watches, None);
        drop(shard);
        forget(place);
        self.sweep_after(arrival.now_ns);
        self.watch_others(&call, operation, handle, others, event_passed)
    }

    /// Watches the other keys of an operation that this thread holds, and checks it in; checks it
    /// again if an event came meanwhile. Finishes it if it has ended.
    #[inline(never)]
    fn watch_others(
        self: &Arc<Self>,
        call: &Call<'_>,
        operation: O,
        handle: TimerHandle,
        others: &[Watch<'_, K>],
        mut event_passed: bool,
    ) -> Result<Parking, Refused<O>> {
        // 1. Watch the keys, each in its shard, and note whether an event came since the check.
        let mut arriving = Arriving {
            core: self,
            handle,
            last_secondary: None,
        };
        for watch in others {
            let mut shard = self.shard_of(watch.hash);
            let Some(secondary) =
                shard.watch(watch.key, watch.hash, handle, arriving.last_secondary)
            else {
                drop(shard);
                let full = WaitError::Full { limit: WAITERS_MAX };
                return Err(Refused::new(operation, full));
            };
            arriving.last_secondary = Some(secondary);
            event_passed |= watch.has_changed();
        }
        // 2. Check in, as any holder does.
        let last_secondary = arriving.arrived();
        let ended_at = self.frame.ending_at();
        let mut first_shard = self.first_shard_of(handle);
        first_shard.arrived(handle, last_secondary, event_passed);
        let held = CheckedOut::new(handle, operation, Cause::Event);
        let checked_in = first_shard.check_in(held, ended_at);
        drop(first_shard);
        // 3. Check again if an event came. If that comes true, the operation ends at once.
        let ended = match checked_in {
            CheckedIn::Parked => None,
            CheckedIn::CheckAgain(held) => self.check_held(held).1,
            CheckedIn::Ended(ended) => Some(ended),
        };
        let id = self.frame.id(handle);
        match ended {
            None => Ok(Parking::Parked(id)),
            Some(ended) => {
                self.finish(call, ended);
                Ok(Parking::Ended(id))
            }
        }
    }

    /// Counts the first check of an operation that is not parked, though its check did not end it.
    #[cold]
    fn count_unparked(&self) {
        self.frame.count_rare(|rare| rare.checks += 1);
    }

    /// Inserts an operation into the shard of its first key, which has this record; without a
    /// payload, an entry for the operation that its parker holds. Always inlined: most of parking
    /// is this.
    #[inline(always)]
    fn insert_entry(
        &self,
        shard: &mut LockedShard<'_, K, O>,
        record: u32,
        arrival: Arrival,
        watches: &Watches<'_, K>,
        payload: Option<O>,
    ) -> TimerHandle {
        // The sequence of the operation before, when the order across shards matters.
        let follows = self.common.follows();
        let scheduled = shard.park_at(record, arrival, watches, follows, payload);
        if arrival.deadline_tick.is_some() {
            shard.work_at(scheduled.due);
        }
        shard.handle(scheduled.id)
    }
}
