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
use timer_core::TimerHandle;

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
        COUNTED_MAX, CheckedOut, Ended, GivenBack, Span, Tag, Ticket, WAITERS_MAX, Watch, Watermark,
    },
    sync::{Limit, Ordering},
};

/// A place among `max_parked` and a part of `max_weight`, given back unless they are kept: when
/// nothing is parked after all.
struct PermitGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: Option<&'a Core<K, O>>,
    weight: u64,
}

impl<K: WatchKey, O: DelayedOperation> PermitGuard<'_, K, O> {
    /// The place is taken: whatever ends the operation gives it back.
    #[inline]
    fn keep(&mut self) {
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
        let watch = |key, watermark| self.versions.watch(key, watermark);
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
    fn permit(&self, operation: &O) -> Result<PermitGuard<'_, K, O>, RefusedReason> {
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
        let mut room = self.room_of(watch.hash);
        let taken = !O::CHECKED && room.find(watch.key, watch.hash).is_some();
        let taken = taken.then_some(RefusedReason::AlreadyExpected);
        if let Some(reason) = taken.or_else(|| room.refuses()) {
            return Err((operation, Some(reason)));
        }
        if O::CHECKED && self.versions.moved(watch) {
            return Err((operation, None));
        }
        room.counts.checks += u64::from(O::CHECKED);
        Ok(self.put_in(&mut room, span, Some(operation), watch))
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
        let mut room = self.room_of(first.hash);
        if let Some(reason) = room.refuses() {
            drop(room);
            return self.refuse(operation, reason);
        }
        let id = self.put_in(&mut room, span, None, first);
        let mut event_passed = self.versions.moved(first);
        drop(room);
        let mut arriving = Arriving { core: self, id, further: None };
        let all_watched = watch_set[1..].iter().all(|watch| {
            let mut room = self.room_of(watch.hash);
            let ticket = room.watch(watch, id, arriving.further);
            event_passed |= self.versions.moved(watch);
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
    fn put_in(
        &self,
        room: &mut RoomGuard<'_, K, O>,
        span: Span,
        payload: Option<O>,
        watch: &Watch<'_, K>,
    ) -> TimerHandle {
        let follows = self.sequence.as_ref().map(|of| of.fetch_add(1, Ordering::Relaxed));
        let (id, due) = room.park(span, follows, payload, watch);
        self.work_at(room, span, due);
        id
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
        self.counts.ended_at_once.fetch_add(1, Ordering::Relaxed);
        self.finish(call, Ended::at_once(operation, outcome.clone()));
        ParkResult::Ended(outcome)
    }

    /// Hands an operation or its key back, with nothing locked.
    #[cold]
    fn refuse<T, V>(&self, value: V, reason: RefusedReason) -> Result<T, Refused<V>> {
        self.report_refused(reason);
        Err(Refused::new(value, reason))
    }

    /// Counts and traces an operation that is not parked, with nothing locked.
    pub(super) fn report_refused(&self, reason: RefusedReason) {
        self.counts.rare.lock().refused(reason, O::CHECKED);
        trace::refused(&self.settings.name, reason);
    }
}

pub(crate) type WatchSet<'a, K> = SmallVec<[Watch<'a, K>; 4]>;

/// How many watermarks are to be counted down.
#[inline]
pub(crate) fn counted<K>(watch_set: &[Watch<'_, K>]) -> usize {
    let counts = |watch: &&Watch<'_, K>| watch.watermark.is_some_and(|watermark| watermark.counted);
    watch_set.iter().filter(counts).count()
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
        (watch.hash, watch.watermark.is_some(), counted)
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
