//! Endings: `finish`, the one way out, whatever found the end; and closing.
//!
//! An operation *ends* under its first room's lock: the entry leaves the wheel and its first key's
//! list, the outcome is decided. Then, with nothing locked, its other watches are released and its
//! callback is run: here, or where the timer runs what expired.

use std::{
    borrow::Borrow,
    collections::VecDeque,
    hash::Hash,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use timer_core::{
    Job, TimerHandle,
    driver::{
        Due, contain,
        sync::{Latch, UnderWay},
    },
};

use crate::{
    engine::{
        core::{Core, Permit},
        event::{CHUNK, Pop},
        nested::{Call, enqueue},
        trace,
    },
    operation::{CancelReason, DelayedOperation, EndResult, Outcome, Timeout, watches::WatchKey},
    room::{Ended, EndedAt, Room, Ticket, Tickets, WalkOn, WatchList},
};

/// Operations that expire, or are emptied out, under one lock hold: events of their keys wait
/// meanwhile.
pub(crate) const BUDGET: usize = 64;

/// A shutdown claims this many operations before it calls the first back; this many watches are
/// collected before the first are given back.
const CLAIMED: usize = 4096;

/// An expired operation with at most this many further watches gives them back on the thread that
/// turns the wheels; one with more, as its callback runs.
const RELEASED_AT_ONCE: usize = 16;

/// A job on the executor gives back at most this many watches; the rest goes to the end of the
/// executor's queue, so that operations with many keys delay the others' callbacks by little.
const RELEASED_BY_JOB: usize = 2048;

/// Something was handed to the executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// When, if that is timed.
    at_ns: Option<u64>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends what has ended: out of every watch list, then called back.
    #[inline]
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, ended: Ended<K, O>) {
        let (payload, outcome, permit) = self.release_watches(ended);
        self.run_callback(call, payload, outcome, permit);
    }

    /// The same for several: all of them are out of every watch list before the first is called
    /// back. Returns how many completed.
    pub(crate) fn finish_all(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut ended: impl AsMut<[Ended<K, O>]> + IntoIterator<Item = Ended<K, O>>,
    ) -> usize {
        self.take_all_watches(ended.as_mut());
        let mut completed = 0;
        for ended in ended {
            completed += usize::from(matches!(ended.outcome, Outcome::Completed));
            self.finish(call, ended);
        }
        completed
    }

    /// Takes several out of every watch list they are still on.
    pub(super) fn take_all_watches(&self, ended: &mut [Ended<K, O>]) {
        drop(self.take_watches(ended, usize::MAX));
    }

    /// Takes what has ended out of the watch lists it is still on.
    #[inline]
    pub(crate) fn release_watches(&self, ended: Ended<K, O>) -> (O, Outcome, Permit) {
        let Ended { id, payload, outcome, weight, tickets, left } = ended;
        drop(left);
        self.release(id, &tickets);
        (payload, outcome, Permit::Held(weight))
    }

    /// Gives the further watches back of operations that have `max` at most, room by room. Returns
    /// the keys that have no waiter left.
    fn take_watches(&self, ended: &mut [Ended<K, O>], max: usize) -> Vec<K> {
        let (mut watches, mut left) = (Vec::new(), Vec::new());
        for Ended { id, tickets, .. } in ended {
            if (1..=max).contains(&tickets.len()) {
                watches.extend(std::mem::take(tickets).iter().map(|ticket| (ticket, *id)));
            }
            if watches.len() >= CLAIMED {
                left.append(&mut self.release_all(&mut watches));
                watches.clear();
            }
        }
        left.append(&mut self.release_all(&mut watches));
        left
    }

    /// The present, if endings are timed: for an operation that is about to end.
    #[inline]
    pub(crate) fn ending_at(&self) -> EndedAt {
        self.timed.load(Relaxed).then(|| self.driver().now_ns())
    }

    /// Gives watch slots back; a key nobody waits for any more is dropped with nothing locked.
    #[inline]
    pub(crate) fn release(&self, id: TimerHandle, tickets: &Tickets) {
        for ticket in tickets.iter() {
            let left = self.rooms.lock(ticket.room as usize).unwatch(ticket, id);
            drop(left); // with nothing locked
        }
    }

    /// As [`release`](Self::release), for watches of several operations: each room is locked once
    /// for up to [`BUDGET`]. Returns the keys that nobody waits for any more.
    fn release_all(&self, watches: &mut [(Ticket, TimerHandle)]) -> Vec<K> {
        watches.sort_unstable_by_key(|(ticket, _)| ticket.room);
        let mut left = Vec::new();
        for of_room in watches.chunk_by(|(one, _), (next, _)| one.room == next.room) {
            for some in of_room.chunks(BUDGET) {
                self.rooms.lock(some[0].0.room as usize).unwatch_all(some, &mut left);
            }
        }
        left
    }

    /// Calls `on_complete`: here, or where the timer runs what expired.
    #[inline]
    pub(crate) fn run_callback(
        self: &Arc<Self>,
        call: &Call<'_>,
        payload: O,
        outcome: Outcome,
        permit: Permit,
    ) {
        if self.offload_all || matches!(outcome, Outcome::Expired) {
            self.offload_callbacks(vec![(payload, outcome)], permit);
        } else {
            self.run_callback_here(call, payload, outcome, permit);
        }
    }

    /// As [`finish`](Self::finish), for a thread that must not be held up: a few steps each are
    /// done here, and whatever may run the user's code, or takes long, is the executor's. With a
    /// latch each is under way until its callback is over.
    pub(crate) fn offload_endings(
        self: &Arc<Self>,
        mut ended: Vec<Ended<K, O>>,
        latch: Option<&Latch>,
    ) {
        let under_way: Vec<UnderWay> =
            latch.into_iter().flat_map(|latch| ended.iter().map(|_| latch.begin())).collect();
        // A manual timer shares no reaper, so everything is released here.
        let at_once = if self.sequence.is_some() { usize::MAX } else { RELEASED_AT_ONCE };
        let left = self.take_watches(&mut ended, at_once);
        let (core, handed) = (self.clone(), self.to_executor(ended.len()));
        self.offload.execute(Job::new(move || {
            drop(left);
            core.run_endings(ended.into(), handed, under_way);
        }));
    }

    /// Releases and calls back what has ended, as a job's work; after [`RELEASED_BY_JOB`] watches
    /// another job goes on.
    fn run_endings(
        self: Arc<Self>,
        mut rest: VecDeque<Ended<K, O>>,
        handed: Handed,
        mut under_way: Vec<UnderWay>,
    ) {
        let mut budget = if self.offload.is_here() { usize::MAX } else { RELEASED_BY_JOB };
        while let Some(mut ended) = rest.pop_front() {
            if ended.tickets.len() > budget {
                let some = ended.tickets.take_last(budget);
                let mut some: Vec<_> = some.into_iter().map(|ticket| (ticket, ended.id)).collect();
                self.release_all(&mut some);
                rest.push_front(ended);
                let core = self.clone();
                let more = Job::new(move || core.run_endings(rest, handed, under_way));
                return self.offload.execute(more);
            }
            budget -= ended.tickets.len();
            let (payload, outcome, permit) = self.release_watches(ended);
            self.run_offloaded(handed, payload, outcome, permit, under_way.pop());
        }
    }

    /// Counts what is handed to the executor; tells when that was, if it is timed.
    pub(crate) fn to_executor(&self, callbacks: usize) -> Handed {
        self.counts.callbacks_waiting.fetch_add(callbacks as u64, Relaxed);
        let timed = self.callback_delay.get();
        Handed { at_ns: timed.map(|_| self.driver().now_ns()) }
    }

    /// One of them begins.
    pub(crate) fn begin(&self, handed: Handed) {
        self.counts.callbacks_waiting.fetch_sub(1, Relaxed);
        if let Some(at_ns) = handed.at_ns {
            let waited_ns = self.driver().now_ns().saturating_sub(at_ns);
            self.callback_delay.get_or_init(Default::default).lock().record(waited_ns);
        }
    }

    fn offload_callbacks(self: &Arc<Self>, ended: Vec<(O, Outcome)>, permit: Permit) {
        let (core, handed) = (self.clone(), self.to_executor(ended.len()));
        self.offload.execute(Job::new(move || {
            for (payload, outcome) in ended {
                core.run_offloaded(handed, payload, outcome, permit, None);
            }
        }));
    }

    /// Calls `on_complete` as a job's work.
    fn run_offloaded(
        self: &Arc<Self>,
        handed: Handed,
        payload: O,
        outcome: Outcome,
        permit: Permit,
        under_way: Option<UnderWay>,
    ) {
        self.begin(handed);
        let now_ns = || self.driver().now_ns();
        trace::slow(&self.name, now_ns, || {
            let call = Call::enter(&self.offload);
            self.run_callback_here(&call, payload, outcome, permit);
            if under_way.is_some() && call.is_nested() {
                enqueue(move || drop(under_way)); // behind the callback
            }
        });
    }

    #[inline]
    pub(crate) fn run_callback_here(
        self: &Arc<Self>,
        call: &Call<'_>,
        payload: O,
        outcome: Outcome,
        permit: Permit,
    ) {
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || core.call_back(payload, outcome, permit));
        } else {
            self.call_back(payload, outcome, permit);
        }
    }

    /// Calls `on_complete`, inside a call, with nothing locked. Until then the operation kept its
    /// place.
    #[inline]
    fn call_back(&self, payload: O, outcome: Outcome, permit: Permit) {
        self.release_permit(permit);
        if let Err(panicked) = contain(|| payload.on_complete(outcome)) {
            self.report(&panicked);
        }
    }

    /// Ends everything parked as Cancelled and refuses what comes later, a bounded step at a time.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = Call::enter(&self.offload);
        self.close_rooms(reason, |ended| _ = self.finish_all(&call, std::mem::take(ended)));
    }

    /// As [`close`](Self::close), but what runs the user's code is the executor's; until that has
    /// run, it is counted by `closing`.
    pub(crate) fn close_offloading(self: &Arc<Self>, reason: CancelReason) {
        self.close_rooms(reason, |ended| {
            for ended in Due::from(std::mem::take(ended)).into_jobs(self.offload.parallelism()) {
                self.offload_endings(ended, Some(&self.closing));
            }
        });
    }

    fn close_rooms(
        self: &Arc<Self>,
        reason: CancelReason,
        mut finish: impl FnMut(&mut Vec<Ended<K, O>>),
    ) {
        let close = !failpoint!(ShutdownClosesNoRoom);
        let (outcome, mut cancelled, mut ended) = (Outcome::Cancelled(reason), 0, Vec::new());
        self.claim_all(
            close,
            &outcome,
            &mut ended,
            |_| true,
            |ended| {
                if ended.len() >= CLAIMED {
                    cancelled += ended.len();
                    finish(ended);
                }
            },
        );
        cancelled += ended.len();
        finish(&mut ended);
        trace::closed(&self.name, &self.counts.told_closed, cancelled);
    }

    /// Cancels everything parked; returns how many this call ended. All are claimed before the
    /// first is called back, so that what a callback parks stays.
    pub(crate) fn cancel_all(self: &Arc<Self>, reason: CancelReason) -> usize {
        let call = Call::enter(&self.offload);
        let mut ended = Vec::new();
        self.claim_all(false, &Outcome::Cancelled(reason), &mut ended, |_| true, |_| ());
        let cancelled = ended.len();
        self.finish_all(&call, ended);
        cancelled
    }

    /// Claims everything parked, but for the operations that `is_meant` refuses under the lock,
    /// calling `act` with what was claimed after each lock hold.
    pub(super) fn claim_all(
        &self,
        close: bool,
        outcome: &Outcome,
        ended: &mut Vec<Ended<K, O>>,
        is_meant: impl Fn(&O) -> bool,
        mut act: impl FnMut(&mut Vec<Ended<K, O>>),
    ) {
        for room in 0..self.rooms.count() {
            let mut from = Some(0);
            while let Some(start) = from {
                from = self.claim_some(room, start, close, outcome, ended, &is_meant);
                act(ended);
            }
        }
    }

    /// Claims up to [`BUDGET`] entries of a room; returns where to go on.
    fn claim_some(
        &self,
        room: usize,
        mut from: u32,
        close: bool,
        outcome: &Outcome,
        ended: &mut Vec<Ended<K, O>>,
        is_meant: &impl Fn(&O) -> bool,
    ) -> Option<u32> {
        let at = self.ending_at();
        let mut room = self.rooms.lock(room);
        room.closed |= close;
        for _ in 0..BUDGET {
            let id = room.first_from(from)?;
            from = id.id().index() + 1;
            if room.payload(id).is_none_or(is_meant) {
                ended.extend(room.claim(id, outcome.clone(), at));
            }
        }
        Some(from)
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends everything parked under `key`; returns how many this call ended. All are claimed before
    /// the first is called back, so that what a callback parks stays.
    pub(crate) fn end_for_key<Q: Hash + Eq + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        outcome: Outcome,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        let call = Call::enter(&self.offload);
        let hash = self.versions.hash(key);
        let (mut unfinished, at) = (self.unfinished(&call), self.ending_at());
        let mut claim = |first_room: &mut Room<K, O>, id| {
            unfinished.ended.extend(first_room.claim(id, outcome.clone(), at));
        };
        self.claim_each(key, hash, WatchList::Plain, &mut claim);
        // What a rise meets meanwhile is on one of these two.
        self.pop_up_to(key, hash, Pop::All, &mut claim);
        self.claim_each(key, hash, WatchList::Met, &mut claim);
        unfinished.ended.len()
    }

    /// Applies `claim` to each waiter of a key, in the room of its operation's first key.
    fn claim_each<Q: Eq + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        place: WatchList,
        claim: &mut impl FnMut(&mut Room<K, O>, TimerHandle),
    ) where
        K: Borrow<Q>,
    {
        let mut found = Vec::new();
        let mut room = self.room_of(hash);
        let record = room.find(key, hash);
        let on = record.map_or(WalkOn::Done, |record| room.walk(record, place, CHUNK, &mut found));
        let mut walk = self.walk(room.number(), on);
        drop(room);
        self.each_in_first_room(found, |&id| id, &mut *claim);
        while let Some(found) = walk.next() {
            self.each_in_first_room(found, |&id| id, &mut *claim);
        }
    }

    /// Ends one operation from outside.
    pub(crate) fn end(self: &Arc<Self>, id: TimerHandle, outcome: Outcome) -> EndResult {
        let (call, at) = (Call::enter(&self.offload), self.ending_at());
        let mut first_room = self.first_room_of(id);
        if first_room.get_mut(id).is_none() {
            return EndResult::Gone;
        }
        let Some(ended) = first_room.claim(id, outcome, at) else { return EndResult::Noted };
        drop(first_room);
        self.finish(&call, ended);
        EndResult::Ended
    }

    /// Gives one operation another timeout, unless its end is decided or noted.
    pub(crate) fn reschedule(&self, id: TimerHandle, timeout: Timeout) -> bool {
        let span = self.span_from(self.driver().now_ns(), timeout);
        let mut first_room = self.first_room_of(id);
        let due = first_room.reschedule(id, span);
        due.into_iter().for_each(|due| self.work_at(&mut first_room, span, due));
        due.is_some()
    }
}
