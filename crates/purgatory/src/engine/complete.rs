//! Endings: `finish`, the one way out, whatever found the end; and closing.
//!
//! An operation *ends* under its first room's lock: the entry leaves the wheel and its first key's
//! list, the outcome is decided. Then, with nothing locked, its other watches are released and its
//! callback is run: here, or where the timer runs what expired.

use std::{
    collections::VecDeque,
    hash::Hash,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Relaxed},
    },
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
        core::Core,
        event::CHUNK,
        nested::{Call, enqueue},
        trace,
    },
    operation::{
        CancelReason, DelayedOperation, EndResult, Outcome, Timeout,
        watches::{Lookup, WatchKey},
    },
    room::{AllEnded, Ended, EndedAt, Fired, Room, Ticket, WalkOn, WatchList},
};

/// A shutdown claims this many operations before it calls the first back.
const CLAIMED: usize = 4096;

/// So many further watches of what has expired are given back on the thread that turns the wheels;
/// the others as its callback runs.
const RELEASED_AT_ONCE: usize = 16;

/// A job on the executor gives back at most this many watches; the rest goes to the end of the
/// executor's queue, so that operations with many keys delay the others' callbacks by little.
const RELEASED_BY_JOB: usize = 2048;

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends what has ended: out of every watch list, then called back, here or where the timer runs
    /// what expired.
    #[inline]
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, mut ended: Ended<K, O>) {
        self.release(&mut ended);
        if self.settings.offload_all || matches!(ended.outcome, Outcome::Expired) {
            self.offload_fired(vec![Fired::Over(ended)], None);
        } else {
            self.run_callback(call, ended);
        }
    }

    /// The same for several, which are taken: all of them are out of every watch list before the
    /// first is called back. Returns how many completed.
    pub(crate) fn finish_all(
        self: &Arc<Self>,
        call: &Call<'_>,
        ended: &mut AllEnded<K, O>,
    ) -> usize {
        ended.iter_mut().for_each(|ended| self.release(ended));
        let mut completed = 0;
        for ended in ended.drain(..) {
            completed += usize::from(matches!(ended.outcome, Outcome::Completed));
            self.finish(call, ended);
        }
        completed
    }

    /// Takes what has ended out of the watch lists it is still on.
    #[inline]
    pub(super) fn release(&self, ended: &mut Ended<K, O>) {
        if ended.further.is_some() {
            self.release_some(&mut ended.further, usize::MAX, drop);
        }
        drop(ended.left.take());
    }

    /// Gives further watches back, the last first, `max` at most; returns how many. `left` is told
    /// the keys that nobody waits for any more, with nothing locked.
    #[inline]
    pub(super) fn release_some(
        &self,
        further: &mut Option<Ticket>,
        max: usize,
        mut left: impl FnMut(K),
    ) -> usize {
        for released in 0..max {
            let Some(ticket) = *further else { return released };
            let (before, key) = self.rooms.lock(ticket.room as usize).unwatch(ticket);
            *further = before;
            key.into_iter().for_each(&mut left);
        }
        max
    }

    /// The present, if endings are timed: for an operation that is about to end.
    #[inline]
    pub(crate) fn ending_at(&self) -> EndedAt {
        self.timed.load(Relaxed).then(|| self.driver().now_ns())
    }

    /// As [`finish`](Self::finish), for a thread that must not be held up: whatever may run the
    /// user's code, or takes long, is the executor's. With a latch each is under way until its
    /// callback is over.
    pub(crate) fn offload_fired(
        self: &Arc<Self>,
        mut fired: Vec<Fired<K, O>>,
        latch: Option<&Latch>,
    ) {
        let under_way: Vec<UnderWay> =
            latch.into_iter().flat_map(|latch| fired.iter().map(|_| latch.begin())).collect();
        // A manual timer shares no reaper, so everything is released here.
        let at_once = if self.sequence.is_some() { usize::MAX } else { RELEASED_AT_ONCE };
        let mut left = Vec::new();
        for fired in &mut fired {
            if let Fired::Over(ended) = fired {
                self.release_some(&mut ended.further, at_once, |key| left.push(key));
            }
        }
        let (core, handed_ns) = (self.clone(), self.to_executor(fired.len()));
        self.offload.execute(Job::new(move || {
            drop(left);
            core.run_fired(fired.into(), handed_ns, under_way);
        }));
    }

    /// Checks, or releases and calls back, what has fired, as a job's work; after
    /// [`RELEASED_BY_JOB`] watches another job goes on.
    fn run_fired(
        self: Arc<Self>,
        mut rest: VecDeque<Fired<K, O>>,
        handed_ns: Option<u64>,
        mut under_way: Vec<UnderWay>,
    ) {
        let mut budget = if self.offload.is_here() { usize::MAX } else { RELEASED_BY_JOB };
        while let Some(mut fired) = rest.pop_front() {
            if let Fired::Over(ended) = &mut fired {
                budget -= self.release_some(&mut ended.further, budget, drop);
                if ended.further.is_some() {
                    rest.push_front(fired);
                    let core = self.clone();
                    let more = Job::new(move || core.run_fired(rest, handed_ns, under_way));
                    return self.offload.execute(more);
                }
            }
            self.begin(handed_ns);
            let under_way = under_way.pop();
            let now_ns = || self.driver().now_ns();
            trace::slow(&self.settings.name, now_ns, || self.run_one(fired, under_way));
        }
    }

    /// Counts what is handed to the executor; tells when that was, if it is timed.
    fn to_executor(&self, callbacks: usize) -> Option<u64> {
        self.counts.callbacks_waiting.fetch_add(callbacks as u64, Relaxed);
        let timed = self.callback_delay.get();
        timed.map(|_| self.driver().now_ns())
    }

    /// One of them begins.
    fn begin(&self, handed_ns: Option<u64>) {
        self.counts.callbacks_waiting.fetch_sub(1, Relaxed);
        if let Some(at_ns) = handed_ns {
            let waited_ns = self.driver().now_ns().saturating_sub(at_ns);
            self.callback_delay.get_or_init(Default::default).lock().record(waited_ns);
        }
    }

    /// Checks or calls back, inside the outermost call on this thread.
    fn run_one(self: &Arc<Self>, fired: Fired<K, O>, under_way: Option<UnderWay>) {
        let call = Call::enter(&self.offload);
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || core.run_one_here(fired, under_way));
        } else {
            self.run_one_here(fired, under_way);
        }
    }

    fn run_one_here(&self, fired: Fired<K, O>, _under_way: Option<UnderWay>) {
        match fired {
            Fired::Over(ended) => self.call_back(ended),
            Fired::Check(id) => self.recheck(id),
        }
    }

    /// Calls `on_complete` on this thread, inside the outermost call.
    #[inline]
    fn run_callback(self: &Arc<Self>, call: &Call<'_>, ended: Ended<K, O>) {
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || core.call_back(ended));
        } else {
            self.call_back(ended);
        }
    }

    /// Calls `on_complete`, inside a call, with nothing locked. Until then the operation kept its
    /// place.
    #[inline]
    pub(super) fn call_back(&self, Ended { payload, outcome, permit, left, .. }: Ended<K, O>) {
        drop(left);
        self.release_permit(permit);
        if let Err(panicked) = contain(|| payload.on_complete(outcome)) {
            self.report(&panicked);
        }
    }

    /// Ends everything parked as Cancelled and refuses what comes later, a bounded step at a time.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = Call::enter(&self.offload);
        self.close_rooms(reason, |ended| _ = self.finish_all(&call, ended));
    }

    /// As [`close`](Self::close), but what runs the user's code is the executor's; until that has
    /// run, it is counted by `closing`.
    pub(crate) fn close_offloading(self: &Arc<Self>, reason: CancelReason) {
        self.close_rooms(reason, |ended| {
            let mut all = Due::default();
            ended.drain(..).for_each(|ended| all.push(Fired::Over(ended), None));
            for fired in all.into_jobs(self.offload.parallelism()) {
                self.offload_fired(fired, Some(&self.closing));
            }
        });
    }

    fn close_rooms(
        self: &Arc<Self>,
        reason: CancelReason,
        mut finish: impl FnMut(&mut AllEnded<K, O>),
    ) {
        if !failpoint!(ShutdownClosesNoRoom) {
            (0..self.rooms.count()).for_each(|room| self.rooms.lock(room).closed = true);
        }
        let outcome = Outcome::Cancelled(reason);
        let cancelled = self.claim_all(CLAIMED, &outcome, &|_| true, &mut finish);
        trace::closed(&self.settings.name, &self.counts.told_closed, cancelled);
    }

    /// Cancels everything parked; returns how many this call ended. All are claimed before the
    /// first is called back, so that what a callback parks stays.
    pub(crate) fn cancel_all(self: &Arc<Self>, reason: CancelReason) -> usize {
        let (call, outcome) = (Call::enter(&self.offload), Outcome::Cancelled(reason));
        let mut finish = |ended: &mut _| _ = self.finish_all(&call, ended);
        self.claim_all(usize::MAX, &outcome, &|_| true, &mut finish)
    }

    /// Claims everything parked, but for the operations that `is_meant` refuses under the lock;
    /// returns how many. `finish` takes what was claimed: when that is `most`, and at the end.
    fn claim_all(
        &self,
        most: usize,
        outcome: &Outcome,
        is_meant: &dyn Fn(&O) -> bool,
        finish: &mut dyn FnMut(&mut AllEnded<K, O>),
    ) -> usize {
        let (mut ended, mut claimed) = (AllEnded::new(), 0);
        let mut on = (0, 0);
        while let Some((mut room, ids)) = self.next_parked(&mut on) {
            let (before, at) = (ended.len(), self.ending_at());
            for id in ids {
                if room.payload(id).is_none_or(is_meant) {
                    ended.extend(room.claim(id, outcome.clone(), at));
                }
            }
            drop(room);
            claimed += ended.len() - before;
            if ended.len() >= most {
                finish(&mut ended);
            }
        }
        finish(&mut ended);
        claimed
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends everything parked under `key`; returns how many this call ended. All are claimed before
    /// the first is called back, so that what a callback parks stays.
    pub(crate) fn end_for_key<Q: Hash + Lookup<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        outcome: Outcome,
    ) -> usize {
        let call = Call::enter(&self.offload);
        let hash = self.versions.hash(key);
        let (mut unfinished, at) = (self.unfinished(&call), self.ending_at());
        let mut claim = |first_room: &mut Room<K, O>, id| {
            unfinished.ended.extend(first_room.claim(id, outcome.clone(), at));
        };
        self.claim_each(key, hash, WatchList::Plain, &mut claim);
        // What a rise meets meanwhile is on one of these two.
        self.pop_up_to(key, hash, None, &mut claim);
        self.claim_each(key, hash, WatchList::Met, &mut claim);
        unfinished.ended.len()
    }

    /// Applies `claim` to each waiter of a key, in the room of its operation's first key.
    fn claim_each<Q: Lookup<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        place: WatchList,
        claim: &mut impl FnMut(&mut Room<K, O>, TimerHandle),
    ) {
        let (mut found, mut on) = (Vec::new(), WalkOn::Done);
        let mut room = self.room_of(hash);
        if let Some(record) = room.find(key, hash) {
            on = room.walk(record, place, CHUNK, |of, waiter| found.push(waiter.id(of)));
        }
        let mut walk = self.walk(room.number(), on);
        drop(room);
        loop {
            self.each_in_first_room(found.drain(..), |&id| id, &mut *claim);
            if !walk.next(CHUNK, |of, waiter| found.push(waiter.id(of))) {
                return;
            }
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
        let span = self.span(self.driver().now_ns(), timeout);
        let mut first_room = self.first_room_of(id);
        let due = first_room.reschedule(id, span);
        due.into_iter().for_each(|due| self.work_at(&mut first_room, span, due));
        due.is_some()
    }

    /// Ends the operation that waits for a key as Completed, and hands it over uncalled. Its key is
    /// free when this returns.
    pub(crate) fn take_alone<Q: Hash + Lookup<K> + ?Sized>(&self, key: &Q) -> Option<O> {
        let (hash, at) = (self.versions.hash(key), self.ending_at());
        let mut room = self.room_of(hash);
        let id = room.find(key, hash).and_then(|record| room.first_waiter(record))?;
        let ended = room.claim(id, Outcome::Completed, at);
        drop(room);
        ended.map(|ended| self.hand_over(ended))
    }

    /// How many times all have been taken: to be read before an operation is parked, and kept in
    /// it.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Acquire)
    }

    /// Cancels all that were parked before this call, by the sweeps before each, and hands them
    /// over uncalled. An operation parked meanwhile stays, whatever its room. O(parked).
    pub(crate) fn take_all(&self, outcome: &Outcome, sweeps_before: impl Fn(&O) -> u64) -> Vec<O> {
        let before = self.sweeps.fetch_add(1, AcqRel);
        let is_old =
            |operation: &O| sweeps_before(operation) <= before || failpoint!(FailsWhatCameAfter);
        let mut all = Vec::new();
        self.claim_all(usize::MAX, outcome, &is_old, &mut |ended| {
            all.extend(ended.drain(..).map(|ended| self.hand_over(ended)));
        });
        all
    }

    fn hand_over(&self, Ended { payload, permit, .. }: Ended<K, O>) -> O {
        self.release_permit(permit);
        payload
    }
}
