//! What a handle calls: to park an operation, to raise an event, to end one or those of a key.
//!
//! The paths of the shared purgatory without what other threads make necessary. No version is
//! compared, since no event comes between a check and its watch; and an event takes out and checks
//! one operation at a time, since that costs no lock.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use smallvec::SmallVec;
use timer_core::{MAX_TASKS, TimerHandle, driver::Apart};

use super::core::{Call, Core, Work};
use crate::{
    paths::{
        callbacks::drop_key,
        event::check_once,
        versions::KeyVersion,
        watch_set::{Watch, counted},
    },
    room::{
        COUNTED_MAX, CheckedOut, Counted, Ended, GivenBack, Span, Tickets, WAITERS_MAX, WalkOn,
        WatchList,
    },
    words::{
        check::Verdict,
        operation::{
            DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Refused, RefusedReason,
            Timeout,
        },
        watches::{WatchKey, Watches},
    },
};

/// Waiters that a step of a walk finds.
const CHUNK: usize = 16;

type Chunk = SmallVec<[TimerHandle; CHUNK]>;

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    #[inline]
    pub(super) fn park(
        &self,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<ParkResult, Refused<O>> {
        if watches.is_empty() {
            return self.refuse(operation, RefusedReason::NoKeys);
        }
        // A panic of a key's must not meet one of its own.
        let mut operation = Apart::new(operation);
        let call = self.enter();
        let now_ns = self.now_ns.get();
        let watch_set = watches.watch_set(|key| KeyVersion::hash(self.hasher.hash_one(key)));
        let events_before = self.nested_events.get();
        let first = self.check(operation.get_mut());
        let event_passed = self.nested_events.get() != events_before;
        if let Some(outcome) = timeout.at_once(first, now_ns) {
            self.counts.borrow_mut().ended_at_once += 1;
            self.run_callback(&call, operation.take(), outcome.clone());
            return Ok(ParkResult::Ended(outcome));
        }
        let counted = counted(&watch_set);
        let mut room = self.room.borrow_mut();
        let refused = if counted > COUNTED_MAX {
            Some(RefusedReason::TooManyWatermarks { limit: COUNTED_MAX })
        } else if room.closed {
            Some(RefusedReason::Closed)
        } else if room.len() >= self.max_parked {
            Some(RefusedReason::Full { limit: self.max_parked })
        } else {
            None
        };
        if let Some(reason) = refused {
            drop(room);
            return self.refuse(operation.take(), reason);
        }
        let span = Span {
            now: self.now(),
            deadline: timeout.deadline(self.tick, now_ns),
            parked_us: now_ns / 1000,
            follows: None,
        };
        let parked = if let ([watch], false) = (&*watch_set, event_passed) {
            let key = watch.in_room(&room);
            let parked = room.park(span, operation.take(), counted, key);
            room.counts.checks += u64::from(parked.is_ok());
            drop(room);
            parked.map(|arrived| (arrived.id, GivenBack::Parked))
        } else {
            drop(room);
            self.park_held(operation, &watch_set, counted, span, event_passed)
        };
        match parked {
            Ok((id, given_back)) => Ok(match self.settle(given_back) {
                None => ParkResult::Parked(OperationId { handle: id, purgatory: self.number }),
                Some(ended) => {
                    let outcome = ended.outcome.clone();
                    self.finish(&call, ended);
                    ParkResult::Ended(outcome)
                }
            }),
            Err(operation) => {
                let limit = (MAX_TASKS as usize).min(WAITERS_MAX);
                self.refuse(operation, RefusedReason::Full { limit })
            }
        }
    }

    /// Parks under any number of keys; hands the operation back when the room is full.
    fn park_held(
        &self,
        operation: Apart<O>,
        watch_set: &[Watch<'_, K>],
        counted: usize,
        span: Span,
        event_passed: bool,
    ) -> Result<(TimerHandle, GivenBack<K, O>), O> {
        let Some(id) = self.watch_all(watch_set, counted, span, event_passed) else {
            return Err(operation.take());
        };
        let held = CheckedOut { id, payload: operation.take(), verdict: Verdict::Unsatisfied };
        Ok((id, self.room.borrow_mut().give_back(held)))
    }

    /// Checks an operation until it is parked or over.
    #[inline]
    fn settle(&self, mut given_back: GivenBack<K, O>) -> Option<Ended<K, O>> {
        loop {
            match given_back {
                GivenBack::Parked => return None,
                GivenBack::Ended(ended) => return Some(ended),
                GivenBack::CheckAgain(mut held) => {
                    held.verdict = self.check(&mut held.payload);
                    given_back = self.room.borrow_mut().give_back(held);
                }
            }
        }
    }

    /// Watches each key for an operation to come; `None` when the room is full. A panic of a key's
    /// `Eq` or `Clone` is the caller's, and nothing is watched then.
    fn watch_all(
        &self,
        watch_set: &[Watch<'_, K>],
        counted: usize,
        span: Span,
        event_passed: bool,
    ) -> Option<TimerHandle> {
        let mut room = self.room.borrow_mut();
        let key = watch_set[0].in_room(&room);
        let arrived = room.arrive(span, counted, key)?;
        let (id, mut tickets) = (arrived.id, Tickets::with_capacity(watch_set.len() - 1));
        let watched = catch_unwind(AssertUnwindSafe(|| {
            watch_set[1..].iter().all(|watch| {
                let key = watch.in_room(&room);
                let ticket = room.watch(key, id);
                tickets.extend(ticket);
                ticket.is_some()
            })
        }));
        if matches!(watched, Ok(true)) {
            room.watched(id, tickets, event_passed);
            return Some(id);
        }
        let left = room.withdraw(id);
        drop(room);
        drop_key(left);
        self.release(id, &tickets);
        watched.map(|_| None).unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[cold]
    fn refuse<T>(&self, operation: O, reason: RefusedReason) -> Result<T, Refused<O>> {
        self.counts.borrow_mut().refused.count(reason);
        Err(Refused::new(operation, reason))
    }

    #[inline]
    pub(super) fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let call = self.enter();
        let hash = self.count_event(key);
        if !call.outermost {
            self.queue_event(key, hash, |key| Work::Event(key, hash));
            return 0;
        }
        self.event(&call, key, hash)
    }

    fn count_event<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let hash = self.hasher.hash_one(key);
        self.counts.borrow_mut().events += 1;
        hash
    }

    /// Leaves an event to the outermost call, unless nobody waits for the key. What is being parked
    /// will be checked again.
    fn queue_event<Q: Eq + ?Sized>(&self, key: &Q, hash: u64, work: impl FnOnce(K) -> Work<K, O>)
    where
        K: Borrow<Q>,
    {
        self.nested_events.set(self.nested_events.get() + 1);
        if let Some(key) = self.with(|room| room.stored(key, hash)) {
            self.queue(work(key));
        }
    }

    #[inline]
    pub(super) fn event<Q: Eq + ?Sized>(&self, call: &Call<'_, K, O>, key: &Q, hash: u64) -> usize
    where
        K: Borrow<Q>,
    {
        let mut chunk = Chunk::new();
        let mut room = self.room.borrow_mut();
        let Some(record) = room.find(key, hash) else { return 0 };
        let on = room.walk(record, WatchList::Plain, CHUNK, &mut chunk);
        drop(room);
        self.attempt_each(call, on, &mut chunk)
    }

    pub(super) fn complete_up_to<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
    {
        let call = self.enter();
        let hash = self.count_event(key);
        if !call.outermost {
            self.queue_event(key, hash, |key| Work::Rise(key, hash, value));
            return 0;
        }
        self.rise(&call, key, hash, value)
    }

    pub(super) fn rise<Q: Eq + ?Sized>(
        &self,
        call: &Call<'_, K, O>,
        key: &Q,
        hash: u64,
        value: u64,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        let (mut taken, mut met) = (Chunk::new(), Chunk::new());
        let mut room = self.room.borrow_mut();
        let Some(record) = room.find(key, hash) else { return 0 };
        let took = room.pop_up_to(record, value, false, usize::MAX, |id| taken.push(id));
        let on = match took.left {
            None => room.walk(record, WatchList::Met, CHUNK, &mut met),
            Some(_) => WalkOn::Done,
        };
        let (mut ended, mut check) = (SmallVec::<[Ended<K, O>; 1]>::new(), Vec::new());
        for id in taken {
            match room.count_down(id) {
                Some(Counted::Ended(over)) => ended.push(over),
                Some(Counted::Check) => check.push(id),
                None => {}
            }
        }
        drop(room);
        drop_key(took.left);
        let completed: usize = ended.into_iter().map(|ended| self.finish(call, ended)).sum();
        check_once(&mut check);
        let checked: usize = check.into_iter().map(|id| self.attempt(call, id)).sum();
        completed + checked + self.attempt_each(call, on, &mut met)
    }

    /// Attempts the waiters of a walk: those found, then the others.
    #[inline]
    fn attempt_each(&self, call: &Call<'_, K, O>, mut on: WalkOn, chunk: &mut Chunk) -> usize {
        let mut completed = 0;
        loop {
            for &id in &*chunk {
                completed += self.attempt(call, id);
            }
            let WalkOn::Walk(number) = on else { return completed };
            chunk.clear();
            let mut room = self.room.borrow_mut();
            on = room.walk_on(number, CHUNK, chunk);
        }
    }

    /// Checks one operation, unless it is gone; returns how many that completed.
    #[inline]
    fn attempt(&self, call: &Call<'_, K, O>, id: TimerHandle) -> usize {
        let Some(held) = self.room.borrow_mut().check_out(id) else { return 0 };
        let ended = self.settle(GivenBack::CheckAgain(held));
        ended.map_or(0, |ended| self.finish(call, ended))
    }

    /// Ends everything parked under a key. All are claimed before the first is called back.
    pub(super) fn end_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q, outcome: &Outcome) -> usize
    where
        K: Borrow<Q>,
    {
        let call = self.enter();
        let hash = self.hasher.hash_one(key);
        let (mut ids, all) = (Vec::new(), usize::MAX);
        let mut room = self.room.borrow_mut();
        let Some(record) = room.find(key, hash) else { return 0 };
        room.walk(record, WatchList::Plain, all, &mut ids);
        let left = room.pop_up_to(record, u64::MAX, true, all, |id| ids.push(id)).left;
        if left.is_none() {
            room.walk(record, WatchList::Met, all, &mut ids);
        }
        let claimed = ids.into_iter().filter_map(|id| room.claim(id, outcome.clone()));
        let ended: Vec<_> = claimed.collect();
        drop(room);
        drop_key(left);
        let count = ended.len();
        ended.into_iter().for_each(|ended| _ = self.finish(&call, ended));
        count
    }

    /// Ends one operation from outside.
    pub(super) fn end(&self, id: OperationId, outcome: Outcome) -> EndResult {
        let call = self.enter();
        let mut room = self.room.borrow_mut();
        if id.purgatory != self.number || room.get_mut(id.handle).is_none() {
            return EndResult::Gone;
        }
        let Some(ended) = room.claim(id.handle, outcome) else { return EndResult::Noted };
        drop(room);
        self.finish(&call, ended);
        EndResult::Ended
    }

    pub(super) fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        let deadline = timeout.deadline(self.tick, self.now_ns.get());
        let mut room = self.room.borrow_mut();
        id.purgatory == self.number && room.reschedule(self.now(), id.handle, deadline).is_some()
    }
}
