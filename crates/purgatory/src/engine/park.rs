//! Parking: check, watch every key, check again if an event came by.
//!
//! 1. Read each key's version, then check. True: over, and nothing else was touched.
//! 2. *One key*: under its shard's lock compare the version. Unmoved: put the operation in, on the
//!    wheel and on the key's list.
//! 3. *Several keys*, and one whose version has moved: put an entry into the first key's shard, held
//!    by this thread; watch the other keys in their shards, one after the other, comparing versions;
//!    then give the payload back as any holder does. A version that moved counts as an event that
//!    found the entry held, so the holder looks again.

use std::{mem::forget, slice::from_ref, sync::Arc};

use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, LockedShard, Settings, nested::Call, trace},
    operation::{DelayedOperation, ParkResult, Refused, RefusedReason, Timeout, Verdict},
    shard::{
        COUNTED_MAX, CheckedIn, CheckedOut, Ended, Next, ParkInfo, ParkTimes, SecondaryId,
        WAITERS_MAX, Watch, Watermark,
    },
    sync::Ordering,
    watches::{WatchKey, Watches},
};

/// A place among `max_parked` and a part of `max_weight`. Dropped, when nothing is parked after
/// all, it gives both back.
struct PermitGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    weight: u64,
}

impl<K: WatchKey, O: DelayedOperation> Drop for PermitGuard<'_, K, O> {
    fn drop(&mut self) {
        self.core.release_permit(Some(self.weight));
    }
}

/// An operation whose keys are not all watched yet. Dropped then, as when a key's `Eq` panics, it
/// takes the operation's entry and watches away.
struct Arriving<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    id: TimerHandle,
    last_secondary: Option<SecondaryId>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for Arriving<'_, K, O> {
    fn drop(&mut self) {
        let left = self.core.first_shard_of(self.id).withdraw(self.id);
        drop(left); // with nothing locked
        self.core
            .release_some(&mut self.last_secondary, usize::MAX, drop);
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Parks an operation, unless it is over at once. Refused, it is handed back with nothing
    /// locked, counted and traced.
    pub(crate) fn park(
        self: &Arc<Self>,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        self.try_park(operation, watches, timeout)
            .map_err(|(operation, reason)| {
                self.counts.rare.lock().refused(reason, O::CHECKED);
                trace::refused(&self.settings.name, reason);
                Refused::new(operation, reason)
            })
    }

    fn try_park<'a>(
        self: &Arc<Self>,
        mut operation: O,
        watches: Watches<'a, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, (O, RefusedReason)> {
        let now_ns = self.driver().now_ns(); // deadlines count from the call
        let Watches {
            keys,
            watermarks,
            counted,
            label,
        } = watches;
        let watch = |key| self.versions.watch(key, None);
        let up_to = |(key, threshold): &'a (K, u64)| {
            self.versions.watch(
                key,
                Some(Watermark {
                    threshold: *threshold,
                    counted,
                }),
            )
        };
        let (mut one, mut several) = (None, None); // to collect one costs a tenth
        let watch_set: &[Watch<'_, K>] = match (keys, watermarks) {
            ([key], []) => from_ref(one.insert(watch(key))),
            ([], [watermark]) => from_ref(one.insert(up_to(watermark))),
            _ => {
                let all = keys.iter().map(watch).chain(watermarks.iter().map(up_to));
                several.insert(distinct(all))
            }
        };
        if watch_set.is_empty() {
            return Err((operation, RefusedReason::NoKeys));
        }
        let call = Call::enter(&self.offload);
        if let Some(outcome) = timeout.at_once(self.check(&mut operation), now_ns) {
            self.counts.ended_at_once.fetch_add(1, Ordering::Relaxed);
            return Ok(self.over(&call, Ended::at_once(operation, outcome)));
        }
        let is_counted = |of: &&Watch<'_, K>| of.watermark.is_some_and(|of| of.counted);
        let counted = watch_set.iter().filter(is_counted).count();
        if counted > COUNTED_MAX {
            return Err((
                operation,
                RefusedReason::TooManyWatermarks { limit: COUNTED_MAX },
            ));
        }
        let permit = match self.permit(&operation) {
            Ok(permit) => permit,
            Err(full) => return Err((operation, full)),
        };
        let tag = ParkInfo {
            weight: permit.weight,
            label,
        };
        let span = ParkTimes {
            tag,
            counted,
            ..self.span(now_ns, timeout)
        };
        let (id, checked_in) = self.park_under(operation, watch_set, span)?;
        forget(permit); // what ends the operation gives it back
        Ok(match self.finish_check_in(checked_in) {
            None => ParkResult::Parked(self.id(id)),
            Some(ended) => self.over(&call, ended),
        })
    }

    /// Ends what this call to park has ended.
    fn over(self: &Arc<Self>, call: &Call<'_>, ended: Ended<K, O>) -> ParkResult {
        let outcome = ended.outcome.clone();
        self.finish(call, ended);
        ParkResult::Ended(outcome)
    }

    /// A place for an operation. Asks for its weight, if that is bounded.
    #[inline]
    fn permit(&self, operation: &O) -> Result<PermitGuard<'_, K, O>, RefusedReason> {
        let Settings {
            permits, weights, ..
        } = &self.settings;
        let weight = if weights.is_some() {
            operation.weight()
        } else {
            1
        };
        // First, so that what is too heavy takes no place from others.
        if let Some(weights) = weights.as_ref().filter(|weights| !weights.acquire(weight)) {
            return Err(RefusedReason::TooHeavy {
                weight,
                limit: weights.max(),
            });
        }
        if let Some(permits) = permits.as_ref().filter(|permits| !permits.acquire(1)) {
            weights.iter().for_each(|weights| weights.release(weight));
            return Err(RefusedReason::Full {
                limit: permits.max() as usize,
            });
        }
        Ok(PermitGuard { core: self, weight })
    }

    /// Parks an operation that was checked: under one key at once, under several, or when an event
    /// came by, with the payload in this thread's hands until all are watched.
    #[inline]
    fn park_under(
        &self,
        operation: O,
        watch_set: &[Watch<'_, K>],
        span: ParkTimes,
    ) -> Result<(TimerHandle, CheckedIn<K, O>), (O, RefusedReason)> {
        let first = &watch_set[0];
        let mut shard = self.shard_of(first.hash);
        let taken = !O::CHECKED && shard.find(first.key, first.hash).is_some();
        let taken = taken.then_some(RefusedReason::AlreadyExpected);
        if let Some(reason) = taken.or_else(|| shard.refuses()) {
            return Err((operation, reason));
        }
        let mut event_passed = O::CHECKED && self.versions.moved(first);
        if watch_set.len() == 1 && !event_passed {
            shard.counts.checks += u64::from(O::CHECKED);
            return Ok((
                self.put_in(&mut shard, span, Some(operation), first),
                Next::Parked,
            ));
        }
        let id = self.put_in(&mut shard, span, None, first);
        drop(shard);
        let mut arriving = Arriving {
            core: self,
            id,
            last_secondary: None,
        };
        let all_watched = watch_set[1..].iter().all(|watch| {
            let mut shard = self.shard_of(watch.hash);
            let secondary = shard.watch(watch, id, arriving.last_secondary);
            event_passed |= self.versions.moved(watch);
            arriving.last_secondary = secondary.or(arriving.last_secondary);
            secondary.is_some()
        });
        if !all_watched {
            return Err((operation, RefusedReason::Full { limit: WAITERS_MAX }));
        }
        let last_secondary = arriving.last_secondary;
        forget(arriving);
        let at = self.ending_at();
        let mut first_shard = self.first_shard_of(id);
        first_shard.arrived(id, last_secondary, event_passed);
        let held = CheckedOut {
            id,
            payload: operation,
            verdict: Verdict::Unsatisfied,
        };
        Ok((id, first_shard.check_in(held, at)))
    }

    /// Puts an operation into the shard of its first key, or an entry for one that its parker holds.
    #[inline]
    fn put_in(
        &self,
        shard: &mut LockedShard<'_, K, O>,
        span: ParkTimes,
        payload: Option<O>,
        watch: &Watch<'_, K>,
    ) -> TimerHandle {
        let follows = self
            .sequence
            .as_ref()
            .map(|of| of.fetch_add(1, Ordering::Relaxed));
        let (id, due) = shard.park(span, follows, payload, watch);
        self.work_at(shard, span, due);
        id
    }

    #[inline]
    pub(super) fn span(&self, now_ns: u64, timeout: Timeout) -> ParkTimes {
        let tick = self.driver().tick;
        let deadline = timeout.deadline(tick, now_ns);
        let armed = match self.settings.recheck_every {
            Some(every) => Some(
                tick.deadline(now_ns, every)
                    .min(deadline.unwrap_or(u64::MAX)),
            ),
            None => deadline,
        };
        let now = tick.round_down(now_ns);
        ParkTimes {
            now,
            deadline,
            armed,
            parked_ns: now_ns,
            tag: ParkInfo::PLAIN,
            counted: 0,
        }
    }

    /// Tells the timer when a shard has work, unless that is never.
    #[inline]
    pub(super) fn work_at(&self, shard: &mut LockedShard<'_, K, O>, span: ParkTimes, due: u64) {
        if span.armed.is_some() {
            shard.work_at(due);
        }
    }
}

type WatchSet<'a, K> = SmallVec<[Watch<'a, K>; 4]>;

/// The watches to be set, in their order: of each the first mention. In the check form that with
/// the lowest threshold does for all of a key: once it is met, it is checked at every rise. O(n log
/// n), but for keys of one hash.
fn distinct<'a, K: Eq>(watches: impl Iterator<Item = Watch<'a, K>>) -> WatchSet<'a, K> {
    let mut watch_set = WatchSet::new();
    watches.for_each(|watch| watch_set.push(watch));
    let threshold = |at: usize| watch_set[at].watermark.map(|of| of.threshold);
    let kind = |at: usize| {
        let counted = watch_set[at]
            .watermark
            .map(|of| of.counted.then_some(of.threshold));
        (watch_set[at].hash, counted)
    };
    let mut sorted: SmallVec<[usize; 4]> = (0..watch_set.len()).collect();
    sorted.sort_by_key(|&at| (kind(at), threshold(at)));
    let mut repeated: SmallVec<[bool; 4]> = watch_set.iter().map(|_| false).collect();
    for alike in sorted.chunk_by(|&at, &next| kind(at) == kind(next)) {
        for (number, &at) in alike.iter().enumerate() {
            let is_same = |&before: &usize| watch_set[before].key == watch_set[at].key;
            repeated[at] = alike[..number].iter().any(is_same);
        }
    }
    let mut repeated = repeated.into_iter();
    watch_set.retain(|_| repeated.next() == Some(false));
    watch_set
}
