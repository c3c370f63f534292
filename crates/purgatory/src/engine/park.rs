//! Parking: check, watch every key, check again if an event came by.
//!
//! 1. Read each key's version, then check. True: over, and nothing else was touched.
//! 2. *One key*: under its room's lock compare the version. Unmoved: put the operation in, on the
//!    wheel and on the key's list.
//! 3. *Several keys*, and one whose version has moved: put an entry into the first key's room, held
//!    by this thread; watch the other keys in their rooms, one after the other, comparing versions;
//!    then give the payload back as any holder does. A version that moved counts as an event that
//!    found the entry held, so the holder looks again.

use std::{hash::Hash, sync::Arc};

use smallvec::SmallVec;
use timer_core::{MAX_TASKS, TimerHandle};

use super::versions::KeyVersion;
use crate::{
    engine::{
        core::{Core, RoomGuard, Settings},
        nested::Call,
        trace,
    },
    operation::{
        DelayedOperation, Outcome, ParkResult, Refused, RefusedReason, Timeout, Verdict,
        watches::{WatchKey, Watches},
    },
    room::{
        Arrived, COUNTED_MAX, CheckedOut, Ended, GivenBack, Room, Span, Tag, Ticket, WAITERS_MAX,
        Watched, Watermark,
    },
    sync::{Limit, Ordering},
};

/// A place among `max_parked` and a part of `max_weight`, given back unless they are kept: when
/// nothing is parked after all.
pub(super) struct PermitGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: Option<&'a Core<K, O>>,
    pub(super) weight: u64,
}

impl<K: WatchKey, O: DelayedOperation> PermitGuard<'_, K, O> {
    /// The place is taken: whatever ends the operation gives it back.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.core = None;
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for PermitGuard<'_, K, O> {
    fn drop(&mut self) {
        let weight = Some(self.weight);
        self.core.iter().for_each(|core| core.release_permit(weight));
    }
}

/// An operation whose keys are not all watched yet. Dropped then, as when a key's `Eq` panics, it
/// takes the operation's entry and watches away.
struct Arriving<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    id: TimerHandle,
    further: Option<Ticket>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for Arriving<'_, K, O> {
    fn drop(&mut self) {
        let left = self.core.first_room_of(self.id).withdraw(self.id);
        drop(left); // with nothing locked
        self.core.release_some(&mut self.further, usize::MAX, drop);
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn park(
        self: &Arc<Self>,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        let Watches { keys, watermarks, counted, label } = watches;
        let now_ns = self.driver().now_ns(); // deadlines count from the call
        let watch = |key, watermark| Watch { key, version: self.versions.read(key), watermark };
        match (keys, watermarks) {
            ([], []) => self.refuse(operation, RefusedReason::NoKeys),
            ([key], []) => {
                self.park_under(operation, &mut [watch(key, None)], now_ns, timeout, label)
            }
            ([], [(key, threshold)]) => {
                let watermark = Some(Watermark { threshold: *threshold, counted });
                self.park_under(operation, &mut [watch(key, watermark)], now_ns, timeout, label)
            }
            _ => self.park_under(operation, &mut watches.watch_set(watch), now_ns, timeout, label),
        }
    }

    fn park_under(
        self: &Arc<Self>,
        mut operation: O,
        watch_set: &mut [Watch<'_, K>],
        now_ns: u64,
        timeout: Timeout,
        label: Option<&'static str>,
    ) -> Result<ParkResult, Refused<O>> {
        let call = Call::enter(&self.offload);
        if let Some(outcome) = timeout.at_once(self.check(&mut operation), now_ns) {
            return Ok(self.end_at_once(&call, operation, outcome));
        }
        let counted = counted(watch_set);
        if counted > COUNTED_MAX {
            return self.refuse(operation, RefusedReason::TooManyWatermarks { limit: COUNTED_MAX });
        }
        let mut permit = match self.permit(&operation) {
            Ok(permit) => permit,
            Err(full) => return self.refuse(operation, full),
        };
        let tag = Tag { weight: permit.weight, label };
        let span = Span { tag, counted, ..self.span(now_ns, timeout) };
        if let [watch] = watch_set {
            match self.park_under_one(operation, watch, span) {
                Ok(id) => {
                    permit.keep();
                    return Ok(ParkResult::Parked(self.id(id)));
                }
                Err((operation, Some(reason))) => return self.refuse(operation, reason),
                Err((unparked, None)) => operation = unparked,
            }
        }
        let (id, given_back) = self.park_held(operation, watch_set, span, &mut permit)?;
        Ok(self.over_or_parked(&call, id, given_back))
    }

    /// A place for an operation. Asks for its weight, if that is bounded.
    #[inline]
    pub(super) fn permit(&self, operation: &O) -> Result<PermitGuard<'_, K, O>, RefusedReason> {
        let Settings { permits, weights, .. } = &self.settings;
        let weight = if weights.is_some() { operation.weight() } else { 1 };
        // First, so that what is too heavy takes no place from others.
        let fits = |weights: &Limit| usize::try_from(weight).is_ok_and(|of| weights.acquire(of));
        if let Some(weights) = weights.as_ref().filter(|weights| !fits(weights)) {
            return Err(RefusedReason::TooHeavy { weight, limit: weights.max() as u64 });
        }
        if let Some(permits) = permits.as_ref().filter(|permits| !permits.acquire(1)) {
            weights.iter().for_each(|weights| weights.release(weight as usize));
            return Err(RefusedReason::Full { limit: permits.max() });
        }
        Ok(PermitGuard { core: Some(self), weight })
    }

    /// What became of an operation that its parker gave back.
    fn over_or_parked(
        self: &Arc<Self>,
        call: &Call<'_>,
        id: TimerHandle,
        given_back: GivenBack<K, O>,
    ) -> ParkResult {
        let Some(ended) = self.settle_rest(given_back) else {
            return ParkResult::Parked(self.id(id));
        };
        let outcome = ended.outcome.clone();
        self.finish(call, ended);
        ParkResult::Ended(outcome)
    }

    /// Parks under one key; hands the operation back when it is refused, or an event came by.
    #[inline]
    fn park_under_one(
        &self,
        operation: O,
        watch: &Watch<'_, K>,
        span: Span,
    ) -> Result<TimerHandle, (O, Option<RefusedReason>)> {
        let mut room = self.room_of(watch.version.hash);
        if room.closed {
            return Err((operation, Some(RefusedReason::Closed)));
        }
        if self.versions.moved(watch.version) {
            return Err((operation, None));
        }
        let key = watch.in_room(&room);
        match self.put_in(&mut room, span, Some(operation), key) {
            Ok(id) => {
                room.counts.checks += 1;
                Ok(id)
            }
            Err((operation, key)) => {
                drop(room);
                drop(key); // with nothing locked
                let full = RefusedReason::Full { limit: MAX_TASKS as usize };
                Err((operation.expect("it comes back"), Some(full)))
            }
        }
    }

    /// Parks under any number of keys, the payload in this thread's hands until all are watched.
    fn park_held(
        &self,
        operation: O,
        watch_set: &[Watch<'_, K>],
        span: Span,
        permit: &mut PermitGuard<'_, K, O>,
    ) -> Result<(TimerHandle, GivenBack<K, O>), Refused<O>> {
        let first = &watch_set[0];
        let mut room = self.room_of(first.version.hash);
        if room.closed {
            drop(room);
            return self.refuse(operation, RefusedReason::Closed);
        }
        let key = first.in_room(&room);
        let Ok(id) = self.put_in(&mut room, span, None, key) else {
            drop(room);
            return self.refuse(operation, RefusedReason::Full { limit: MAX_TASKS as usize });
        };
        let mut event_passed = self.versions.moved(first.version);
        drop(room);
        let mut arriving = Arriving { core: self, id, further: None };
        let all_watched = watch_set[1..].iter().all(|watch| {
            let mut room = self.room_of(watch.version.hash);
            let key = watch.in_room(&room);
            event_passed |= self.versions.moved(watch.version);
            let ticket = room.watch(key, id, arriving.further);
            arriving.further = ticket.or(arriving.further);
            ticket.is_some()
        });
        if !all_watched {
            drop(arriving);
            return self.refuse(operation, RefusedReason::Full { limit: WAITERS_MAX });
        }
        let further = arriving.further;
        std::mem::forget(arriving);
        let at = self.ending_at();
        let mut first_room = self.first_room_of(id);
        first_room.arrived(id, further, event_passed);
        permit.keep();
        let held = CheckedOut { id, payload: operation, verdict: Verdict::Unsatisfied };
        Ok((id, first_room.give_back(held, at)))
    }

    /// Puts an operation into the room of its first key, or an entry for one that its parker holds.
    #[inline]
    pub(super) fn put_in(
        &self,
        room: &mut RoomGuard<'_, K, O>,
        span: Span,
        payload: Option<O>,
        key: Watched<K>,
    ) -> Result<TimerHandle, (Option<O>, Watched<K>)> {
        let follows = self.sequence.as_ref().map(|of| of.fetch_add(1, Ordering::Relaxed));
        let Arrived { id, due } = room.park(span, follows, payload, key)?;
        self.work_at(room, span, due);
        Ok(id)
    }

    #[inline]
    pub(super) fn span(&self, now_ns: u64, timeout: Timeout) -> Span {
        let tick = self.driver().tick;
        let deadline = timeout.deadline(tick, now_ns);
        let armed = match self.settings.recheck_every {
            Some(every) => Some(tick.deadline(now_ns, every).min(deadline.unwrap_or(u64::MAX))),
            None => deadline,
        };
        let now = tick.round_down(now_ns);
        Span { now, deadline, armed, parked_us: now_ns / 1000, tag: Tag::PLAIN, counted: 0 }
    }

    /// Tells the timer when a room has work, unless that is never.
    #[inline]
    pub(super) fn work_at(&self, room: &mut RoomGuard<'_, K, O>, span: Span, due: u64) {
        if span.armed.is_some() {
            room.work_at(due);
        }
    }

    /// Ends an operation that was never parked.
    fn end_at_once(
        self: &Arc<Self>,
        call: &Call<'_>,
        operation: O,
        outcome: Outcome,
    ) -> ParkResult {
        self.count_at_once();
        self.finish(call, Ended::at_once(operation, outcome.clone()));
        ParkResult::Ended(outcome)
    }

    /// Hands an operation or its key back, with nothing locked.
    #[cold]
    pub(super) fn refuse<T, V>(&self, value: V, reason: RefusedReason) -> Result<T, Refused<V>> {
        self.report_refused(reason);
        Err(Refused::new(value, reason))
    }

    /// Counts and traces an operation that is not parked, with nothing locked.
    pub(super) fn report_refused(&self, reason: RefusedReason) {
        self.counts.rare.lock().refused(reason, O::CHECKED);
        trace::refused(&self.settings.name, reason);
    }
}

/// A watch to be set: its key, the version it had before the check, and its watermark if it has
/// one.
pub(crate) struct Watch<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) version: KeyVersion,
    pub(crate) watermark: Option<Watermark>,
}

pub(crate) type WatchSet<'a, K> = SmallVec<[Watch<'a, K>; 4]>;

/// How many watermarks are to be counted down.
#[inline]
pub(crate) fn counted<K>(watch_set: &[Watch<'_, K>]) -> usize {
    let counts = |watch: &&Watch<'_, K>| watch.watermark.is_some_and(|watermark| watermark.counted);
    watch_set.iter().filter(counts).count()
}

impl<K: Eq + Clone> Watch<'_, K> {
    /// Looks the key up in its room. Runs the key's `Eq` and `Clone`; a panic of theirs changes
    /// nothing.
    #[inline]
    pub(crate) fn in_room<O>(&self, room: &Room<K, O>) -> Watched<K> {
        let (hash, watermark) = (self.version.hash, self.watermark);
        Watched { known: room.known(self.key, hash), hash, watermark }
    }
}

impl<'a, K: Hash + Eq> Watches<'a, K> {
    /// The watches to be set, in their order, once where one is repeated.
    #[inline]
    fn watch_set(
        self,
        watch: impl Fn(&'a K, Option<Watermark>) -> Watch<'a, K>,
    ) -> WatchSet<'a, K> {
        let mut watch_set = WatchSet::new();
        watch_set.extend(self.keys.iter().map(|key| watch(key, None)));
        watch_set.extend(self.watermarks.iter().map(|(key, threshold)| {
            watch(key, Some(Watermark { threshold: *threshold, counted: self.counted }))
        }));
        if watch_set.len() > 1 {
            drop_repeated(&mut watch_set);
        }
        watch_set
    }
}

/// Leaves of each watch the first mention. In the check form that with the lowest threshold does
/// for all of a key: once it is met, it is checked at every rise. O(n log n), but for keys of one
/// hash.
fn drop_repeated<K: Eq>(watch_set: &mut WatchSet<'_, K>) {
    let threshold = |at: usize| watch_set[at].watermark.map(|of| of.threshold);
    let kind = |at: usize| {
        let watch = &watch_set[at];
        let counted = threshold(at).filter(|_| watch.watermark.is_some_and(|of| of.counted));
        (watch.version.hash, watch.watermark.is_some(), counted)
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
}
