//! Endings: `finish`, the one way out, whatever found the end; and closing.
//!
//! An operation *ends* under its first shard's lock: the entry leaves the wheel and its first key's
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

use hashbrown::Equivalent;
use timer_core::{
    Job, TimerHandle,
    driver::{
        Due,
        sync::{Latch, UnderWay},
    },
};

use crate::{
    engine::{
        Core,
        nested::{Call, enqueue},
        signal::{CHUNK, Unfinished, Walk},
        trace,
    },
    operation::{CancelReason, DelayedOperation, EndResult, OperationId, Outcome, Timeout},
    shard::{AllEnded, CallbackJob, Ended, EndedAt, SecondaryId, Shard, WatchList},
    watches::WatchKey,
};

/// So many further watches of what has expired are given back on the thread that turns the wheels;
/// the others as its callback runs.
const RELEASED_AT_ONCE: usize = 16;

/// A job on the executor gives back at most this many watches; the rest goes to the end of the
/// executor's queue, so that operations with many keys delay the others' callbacks by little.
const RELEASED_BY_JOB: usize = 2048;

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends what has ended: out of every watch list, then called back, here or where the timer runs
    /// what expired. Returns how many completed.
    #[inline]
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, mut ended: Ended<K, O>) -> usize {
        self.release(&mut ended);
        let completed = usize::from(ended.outcome == Outcome::Completed);
        if self.settings.offload_all || ended.outcome == Outcome::Expired {
            self.offload_fired(vec![CallbackJob::Call(ended)], None);
        } else {
            self.run(call, ended);
        }
        completed
    }

    /// The same for several, which are taken: all of them are out of every watch list before the
    /// first is called back.
    pub(crate) fn finish_all(
        self: &Arc<Self>,
        call: &Call<'_>,
        ended: &mut AllEnded<K, O>,
    ) -> usize {
        ended.iter_mut().for_each(|ended| self.release(ended));
        ended.drain(..).map(|ended| self.finish(call, ended)).sum()
    }

    /// Takes what has ended out of the watch lists it is still on.
    #[inline]
    pub(super) fn release(&self, ended: &mut Ended<K, O>) {
        self.release_some(&mut ended.last_secondary, usize::MAX, drop);
        drop(ended.left.take());
    }

    /// Gives further watches back, the last first, `max` at most; returns how many. `left` is told
    /// the keys that nobody waits for any more, with nothing locked.
    #[inline]
    pub(super) fn release_some(
        &self,
        last_secondary: &mut Option<SecondaryId>,
        max: usize,
        mut left: impl FnMut(K),
    ) -> usize {
        for released in 0..max {
            let Some(secondary) = *last_secondary else {
                return released;
            };
            let (before, key) = self
                .shards
                .lock(secondary.shard as usize)
                .unwatch(secondary);
            *last_secondary = before;
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
        mut fired: Vec<CallbackJob<K, O>>,
        latch: Option<&Latch>,
    ) {
        let under_way: Vec<UnderWay> = latch
            .into_iter()
            .flat_map(|latch| fired.iter().map(|_| latch.begin()))
            .collect();
        // A manual timer shares no reaper, so everything is released here.
        let at_once = if self.sequence.is_some() {
            usize::MAX
        } else {
            RELEASED_AT_ONCE
        };
        let mut left = Vec::new();
        for fired in &mut fired {
            if let CallbackJob::Call(ended) = fired {
                self.release_some(&mut ended.last_secondary, at_once, |key| left.push(key));
            }
        }
        self.counts
            .callbacks_waiting
            .fetch_add(fired.len() as u64, Relaxed);
        let (core, handed_ns) = (self.clone(), self.ending_at());
        self.offload.execute(Job::new(move || {
            drop(left);
            core.run_fired(fired.into(), handed_ns, under_way);
        }));
    }

    /// Checks, or releases and calls back, what has fired, as a job's work; after
    /// [`RELEASED_BY_JOB`] watches another job goes on.
    fn run_fired(
        self: Arc<Self>,
        mut rest: VecDeque<CallbackJob<K, O>>,
        handed_ns: Option<u64>,
        mut under_way: Vec<UnderWay>,
    ) {
        let mut budget = if self.offload.is_here() {
            usize::MAX
        } else {
            RELEASED_BY_JOB
        };
        while let Some(mut fired) = rest.pop_front() {
            if let CallbackJob::Call(ended) = &mut fired {
                budget -= self.release_some(&mut ended.last_secondary, budget, drop);
                if ended.last_secondary.is_some() {
                    rest.push_front(fired);
                    let core = self.clone();
                    let more = Job::new(move || core.run_fired(rest, handed_ns, under_way));
                    return self.offload.execute(more);
                }
            }
            let now_ns = || self.driver().now_ns();
            self.counts.callbacks_waiting.fetch_sub(1, Relaxed);
            if let Some(at_ns) = handed_ns {
                self.counts
                    .callback_delay
                    .lock()
                    .record(now_ns().saturating_sub(at_ns));
            }
            let under_way = under_way.pop();
            trace::slow(&self.settings.name, now_ns, || {
                let call = Call::enter(&self.offload);
                match fired {
                    CallbackJob::Call(ended) => self.run(&call, ended),
                    CallbackJob::Recheck(id) => self.recheck(&call, id),
                }
                if call.is_nested() {
                    enqueue(move || drop(under_way)); // behind the callback
                }
            });
        }
    }

    /// Calls back, inside the outermost call on this thread.
    #[inline]
    pub(super) fn run(self: &Arc<Self>, call: &Call<'_>, ended: Ended<K, O>) {
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
    fn call_back(
        &self,
        Ended {
            payload,
            outcome,
            permit,
            left,
            ..
        }: Ended<K, O>,
    ) {
        drop(left);
        self.release_permit(permit);
        self.call(|| payload.on_complete(outcome));
    }

    /// Ends everything parked as Cancelled and refuses what comes later.
    pub(crate) fn close(self: &Arc<Self>, reason: CancelReason) {
        let call = Call::enter(&self.offload);
        self.finish_all(&call, &mut self.claim_and_close(reason));
    }

    /// As [`close`](Self::close), but what runs the user's code is the executor's; until that has
    /// run, it is counted by `closing`.
    pub(crate) fn close_offloading(self: &Arc<Self>, reason: CancelReason) {
        let mut all = Due::default();
        let claimed = self.claim_and_close(reason);
        claimed
            .into_iter()
            .for_each(|ended| all.push(CallbackJob::Call(ended), None));
        for fired in all.into_jobs(self.offload.parallelism()) {
            self.offload_fired(fired, Some(&self.closing));
        }
    }

    fn claim_and_close(&self, reason: CancelReason) -> AllEnded<K, O> {
        let mut first = false;
        for shard in 0..self.shards.count() {
            let closed = &mut self.shards.lock(shard).closed;
            first |= !std::mem::replace(closed, !failpoint!(ShutdownClosesNoShard));
        }
        let claimed = self.claim_all(&Outcome::Cancelled(reason), |_| true);
        trace::closed(&self.settings.name, first, claimed.len());
        claimed
    }

    /// Cancels everything parked; returns how many this call ended. All are claimed before the
    /// first is called back, so that what a callback parks stays.
    pub(crate) fn cancel_all(self: &Arc<Self>, reason: CancelReason) -> usize {
        let call = Call::enter(&self.offload);
        let mut claimed = self.claim_all(&Outcome::Cancelled(reason), |_| true);
        let count = claimed.len();
        self.finish_all(&call, &mut claimed);
        count
    }

    /// Claims everything parked, but for the operations that `is_meant` refuses under the lock.
    fn claim_all(&self, outcome: &Outcome, is_meant: impl Fn(&O) -> bool) -> AllEnded<K, O> {
        let (mut ended, mut on) = (AllEnded::new(), (0, 0));
        while let Some((mut shard, ids)) = self.next_parked(&mut on) {
            let at = self.ending_at();
            for id in ids {
                if shard
                    .get_mut(id)
                    .is_none_or(|entry| entry.payload().is_none_or(&is_meant))
                {
                    ended.extend(shard.claim(id, outcome.clone(), at));
                }
            }
        }
        ended
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends everything parked under `key`; returns how many this call ended. All are claimed before
    /// the first is called back, so that what a callback parks stays.
    pub(crate) fn end_for_key<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        outcome: Outcome,
    ) -> usize {
        let call = Call::enter(&self.offload);
        let hash = self.versions.hash(key);
        let ended = AllEnded::new();
        let mut unfinished = Unfinished {
            core: self,
            call: &call,
            ended,
        };
        let at = self.ending_at();
        let mut claim = |first_shard: &mut Shard<K, O>, id| {
            unfinished
                .ended
                .extend(first_shard.claim(id, outcome.clone(), at));
        };
        self.claim_each(key, hash, WatchList::Plain, &mut claim);
        // What a rise meets meanwhile is on one of these two.
        self.pop_up_to(key, hash, None, &mut claim);
        self.claim_each(key, hash, WatchList::Met, &mut claim);
        unfinished.ended.len()
    }

    /// Applies `claim` to each waiter of a key, in the shard of its operation's first key.
    fn claim_each<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        place: WatchList,
        claim: &mut impl FnMut(&mut Shard<K, O>, TimerHandle),
    ) {
        let (mut found, mut on) = (Vec::new(), None);
        let mut shard = self.shard_of(hash);
        if let Some(record) = shard.find(key, hash) {
            on = shard.walk(record, place, CHUNK, |of, waiter| found.push(waiter.id(of)));
        }
        let mut walk = Walk {
            shards: &self.shards,
            shard: shard.number(),
            on,
        };
        drop(shard);
        loop {
            self.each_in_first_shard(found.drain(..), |&id| id, &mut *claim);
            if !walk.next(CHUNK, |of, waiter| found.push(waiter.id(of))) {
                return;
            }
        }
    }

    /// Ends one operation from outside.
    pub(crate) fn end(self: &Arc<Self>, id: OperationId, outcome: Outcome) -> EndResult {
        let Some(id) = self.handle(id) else {
            return EndResult::Gone;
        };
        let (call, at) = (Call::enter(&self.offload), self.ending_at());
        let mut first_shard = self.first_shard_of(id);
        if first_shard.get_mut(id).is_none() {
            return EndResult::Gone;
        }
        let Some(ended) = first_shard.claim(id, outcome, at) else {
            return EndResult::Noted;
        };
        drop(first_shard);
        self.finish(&call, ended);
        EndResult::Ended
    }

    /// Gives one operation another timeout, unless its end is decided or noted.
    pub(crate) fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        let Some(id) = self.handle(id) else {
            return false;
        };
        let span = self.span(self.driver().now_ns(), timeout);
        let mut first_shard = self.first_shard_of(id);
        let due = first_shard.reschedule(id, span);
        due.into_iter()
            .for_each(|due| self.work_at(&mut first_shard, span, due));
        due.is_some()
    }

    /// Ends the operation that waits for a key as Completed, and hands it over uncalled. Its key is
    /// free when this returns.
    pub(crate) fn take_alone<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<O> {
        let (hash, at) = (self.versions.hash(key), self.ending_at());
        let mut shard = self.shard_of(hash);
        let id = shard
            .find(key, hash)
            .and_then(|record| shard.first_waiter(record))?;
        let ended = shard.claim(id, Outcome::Completed, at);
        drop(shard);
        ended.map(|ended| self.hand_over(ended))
    }

    /// How many times all have been taken: to be read before an operation is parked, and kept in
    /// it.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Cancels all that were parked before this call, by the sweeps before each, and hands them
    /// over uncalled. An operation parked meanwhile stays, whatever its shard. O(parked).
    pub(crate) fn take_older_than(
        &self,
        outcome: &Outcome,
        generation_of: impl Fn(&O) -> u64,
    ) -> Vec<O> {
        let before = self.generation.fetch_add(1, AcqRel);
        let is_old =
            |operation: &O| generation_of(operation) <= before || failpoint!(FailsWhatCameAfter);
        self.claim_all(outcome, is_old)
            .into_iter()
            .map(|ended| self.hand_over(ended))
            .collect()
    }

    fn hand_over(
        &self,
        Ended {
            payload, permit, ..
        }: Ended<K, O>,
    ) -> O {
        self.release_permit(permit);
        payload
    }
}
