//! Parking: check, watch every key, check again if an event came by.
//!
//! 1. Read each key's version, then check. True: over, and nothing else was touched.
//! 2. *One key*: under its room's lock compare the version. Unmoved: put the operation in, on the
//!    wheel and on the key's list. Moved: unlock and check again. So nobody ever sees it held.
//! 3. *Several keys*, and one whose version keeps moving: put an entry into the first key's room,
//!    held by this thread; watch the other keys in their rooms, one after the other, comparing
//!    versions; then give the payload back as any holder does. A version that moved counts as an
//!    event that found the entry held, so the holder looks again.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use timer_core::{MAX_TASKS, TimerHandle};

use crate::{
    paths::{
        callbacks::Permit,
        core::{Core, RoomGuard},
        trace,
        trampoline::Call,
        watch_set::{Watch, counted},
    },
    room::{
        Arrived, COUNTED_MAX, CheckedOut, GivenBack, Next, Span, Tickets, WAITERS_MAX, Watermark,
    },
    sync::{LOOKS, Ordering},
    words::{
        check::Verdict,
        operation::{
            CancelReason, DelayedOperation, Outcome, ParkResult, Refused, RefusedReason, Timeout,
        },
        watches::{WatchKey, Watches},
    },
};

/// A place among `max_parked`, given back unless it is kept: when nothing is parked after all.
pub(super) struct PermitGuard<'a, K: WatchKey, O: DelayedOperation>(Option<&'a Core<K, O>>);

impl<K: WatchKey, O: DelayedOperation> PermitGuard<'_, K, O> {
    /// The place is taken: whatever ends the operation gives it back.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.0 = None;
    }

    /// Gives the place back now.
    fn give_back(&mut self) {
        self.0.take().into_iter().for_each(|core| core.release_permits(1));
    }
}

impl<K: WatchKey, O: DelayedOperation> Drop for PermitGuard<'_, K, O> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// What an operation is parked with.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) now_ns: u64,
    pub(super) timeout: Timeout,
    /// Watermarks to be counted down.
    pub(super) counted: usize,
}

/// What became of an attempt to park under one key.
enum UnderOne<O> {
    Done(Result<ParkResult, Refused<O>>),
    /// Events kept coming by.
    Busy(O),
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn park(
        self: &Arc<Self>,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        let Watches { keys, watermarks, counted } = watches;
        match (keys, watermarks) {
            ([], []) => self.refuse(operation, RefusedReason::NoKeys),
            ([key], []) => self.park_one(operation, key, None, timeout),
            ([], [(key, threshold)]) => {
                let watermark = Watermark { threshold: *threshold, counted };
                self.park_one(operation, key, Some(watermark), timeout)
            }
            _ => self.park_several(operation, watches, timeout),
        }
    }

    fn park_one(
        self: &Arc<Self>,
        mut operation: O,
        key: &K,
        watermark: Option<Watermark>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        let call = Call::enter(&self.offload);
        let now_ns = self.driver().now_ns(); // deadlines count from the call
        let mut watch = Watch { key, version: self.versions.read(key), watermark };
        if let Some(outcome) = timeout.at_once(self.check(&mut operation), now_ns) {
            return Ok(self.end_at_once(&call, operation, outcome));
        }
        let mut permit = match self.permit() {
            Ok(permit) => permit,
            Err(full) => return self.refuse(operation, full),
        };
        let counted = usize::from(watermark.is_some_and(|watermark| watermark.counted));
        let terms = Terms { now_ns, timeout, counted };
        match self.park_under_one(&call, operation, &mut watch, terms, &mut permit) {
            UnderOne::Done(done) => done,
            UnderOne::Busy(operation) => {
                let watch_set = [watch];
                let (id, given_back) = self.park_held(operation, &watch_set, terms, &mut permit)?;
                Ok(self.over_or_parked(&call, id, given_back))
            }
        }
    }

    fn park_several(
        self: &Arc<Self>,
        mut operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        let call = Call::enter(&self.offload);
        let now_ns = self.driver().now_ns();
        let watch_set = watches.watch_set(|key| self.versions.read(key));
        if let Some(outcome) = timeout.at_once(self.check(&mut operation), now_ns) {
            return Ok(self.end_at_once(&call, operation, outcome));
        }
        let counted = counted(&watch_set);
        if counted > COUNTED_MAX {
            return self.refuse(operation, RefusedReason::TooManyWatermarks { limit: COUNTED_MAX });
        }
        let mut permit = match self.permit() {
            Ok(permit) => permit,
            Err(full) => return self.refuse(operation, full),
        };
        let terms = Terms { now_ns, timeout, counted };
        let (id, given_back) = self.park_held(operation, &watch_set, terms, &mut permit)?;
        Ok(self.over_or_parked(&call, id, given_back))
    }

    #[inline]
    pub(super) fn permit(&self) -> Result<PermitGuard<'_, K, O>, RefusedReason> {
        match &self.permits {
            Some(permits) if !permits.acquire() => {
                Err(RefusedReason::Full { limit: permits.max() })
            }
            _ => Ok(PermitGuard(Some(self))),
        }
    }

    /// What became of an operation that its parker gave back.
    fn over_or_parked(
        self: &Arc<Self>,
        call: &Call<'_>,
        id: TimerHandle,
        given_back: GivenBack<K, O>,
    ) -> ParkResult {
        let ended = match given_back {
            Next::Parked => None,
            Next::CheckAgain(held) => self.settle(held),
            Next::Ended(ended) => Some(ended),
        };
        let Some(ended) = ended else { return ParkResult::Parked(self.id(id)) };
        let outcome = ended.outcome.clone();
        self.finish(call, ended);
        ParkResult::Ended(outcome)
    }

    /// Parks under one key, unless events keep coming by.
    #[inline]
    fn park_under_one(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut operation: O,
        watch: &mut Watch<'_, K>,
        terms: Terms,
        permit: &mut PermitGuard<'_, K, O>,
    ) -> UnderOne<O> {
        for looks in 1..=LOOKS {
            let mut room = self.room_of(watch.version.hash);
            if room.closed {
                drop(room);
                return UnderOne::Done(self.refuse(operation, RefusedReason::Closed));
            }
            if !self.versions.moved(watch.version) {
                let key = watch.in_room(&room);
                let span = self.span(terms);
                let parked = room.park(span, operation, terms.counted, key);
                return UnderOne::Done(match parked {
                    Ok(Arrived { id, due }) => {
                        room.counts.checks += looks as u64;
                        self.work_at(&mut room, span, due);
                        permit.keep();
                        Ok(ParkResult::Parked(self.id(id)))
                    }
                    Err((operation, _)) => {
                        drop(room);
                        self.refuse(operation, RefusedReason::Full { limit: MAX_TASKS as usize })
                    }
                });
            }
            drop(room);
            watch.version = self.versions.read_hash(watch.version.hash);
            let outcome = match self.check(&mut operation) {
                Verdict::Unsatisfied => continue,
                Verdict::Satisfied => Outcome::Completed,
                Verdict::Panicked => Outcome::Cancelled(CancelReason::Panicked),
            };
            self.counts.looks.fetch_add(looks as u64, Relaxed);
            permit.give_back(); // before the callback, which may park another
            return UnderOne::Done(Ok(self.end_at_once(call, operation, outcome)));
        }
        self.counts.looks.fetch_add(LOOKS as u64, Relaxed);
        UnderOne::Busy(operation)
    }

    /// Parks under any number of keys, the payload in this thread's hands until all are watched.
    fn park_held(
        &self,
        operation: O,
        watch_set: &[Watch<'_, K>],
        terms: Terms,
        permit: &mut PermitGuard<'_, K, O>,
    ) -> Result<(TimerHandle, GivenBack<K, O>), Refused<O>> {
        let first = &watch_set[0];
        let mut room = self.room_of(first.version.hash);
        if room.closed {
            drop(room);
            return self.refuse(operation, RefusedReason::Closed);
        }
        let key = first.in_room(&room);
        let span = self.span(terms);
        let Some(Arrived { id, due }) = room.arrive(span, terms.counted, key) else {
            drop(room);
            return self.refuse(operation, RefusedReason::Full { limit: MAX_TASKS as usize });
        };
        let mut event_passed = self.versions.moved(first.version);
        self.work_at(&mut room, span, due);
        drop(room);
        let mut tickets = Tickets::with_capacity(watch_set.len() - 1);
        let all_watched = watch_set[1..].iter().all(|watch| {
            let mut room = self.room_of(watch.version.hash);
            let key = watch.in_room(&room);
            event_passed |= self.versions.moved(watch.version);
            let ticket = room.watch(key, id);
            tickets.extend(ticket);
            ticket.is_some()
        });
        let mut first_room = self.first_room_of(id);
        if !all_watched {
            let left = first_room.withdraw(id);
            drop(first_room);
            drop(left);
            self.release(id, &tickets);
            return self.refuse(operation, RefusedReason::Full { limit: WAITERS_MAX });
        }
        first_room.watched(id, tickets, event_passed);
        permit.keep();
        let held = CheckedOut { id, payload: operation, verdict: Verdict::Unsatisfied };
        Ok((id, first_room.give_back(held)))
    }

    #[inline]
    pub(super) fn span(&self, terms: Terms) -> Span {
        let Terms { now_ns, timeout, .. } = terms;
        let tick = self.driver().tick;
        let follows = self.sequence.as_ref();
        Span {
            now: tick.round_down(now_ns),
            deadline: timeout.deadline(tick, now_ns),
            parked_us: now_ns / 1000,
            follows: follows.map(|sequence| sequence.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Tells the timer when a room has work, unless that is never.
    #[inline]
    pub(super) fn work_at(&self, room: &mut RoomGuard<'_, K, O>, span: Span, due: u64) {
        if span.deadline.is_some() {
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
        self.run_callback(call, operation, outcome.clone(), Permit::None);
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
        self.counts.refused(reason);
        trace::refused(&self.name, reason);
    }
}
