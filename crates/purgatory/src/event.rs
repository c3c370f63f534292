//! Events: attempt to complete what waits for a key; and cancelling, which takes the same walks.
//!
//! An event walks the key's waiters in the order they were parked, a chunk at a time. It takes the
//! payloads of the chunk out of their homes (that is the claim; what is out already gets a note),
//! checks them with nothing locked, and gives them back. Then the callbacks of what ended run.
//!
//! A rise of a key's watermark first takes the watches it meets off the key, and *whoever takes a
//! watch counts it down*, with no code of the user's in between. Then it walks those that were met
//! and wait for their check, as an event does.

use std::{
    borrow::Cow,
    collections::VecDeque,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread,
};

use smallvec::SmallVec;
use timer_core::{Job, TimerHandle, contain};

use crate::{
    ending::Ended,
    entry::{Claim, CountedDown, Entry, Settled, Verdict},
    frame::{Frame, enqueue, execute_deferring, is_deferring},
    inner::{HomeGuard, Inner},
    operation::{Attempt, CancelReason, DelayedOperation, Outcome, Timeout},
    watch::{Chunk, Taking, Walk},
};

/// After so many looks at one operation in a row, each asked for by another event, the next one
/// is the executor's: two threads must not keep a third checking for ever.
const LOOKS: usize = 8;

/// So many payloads are taken out and checked together. More would save locks; but each of them can
/// neither expire nor be cancelled before the checks of the others are over.
const TOGETHER: usize = 16;

/// Deferred events that one job of the executor raises; the rest goes behind what else waits there.
const DEFERRED_BUDGET: usize = 1024;

/// A payload out of its entry, and what its check found.
pub(crate) struct Held<O> {
    pub(crate) id: TimerHandle,
    pub(crate) payload: O,
    pub(crate) verdict: Verdict,
}

/// What became of a payload given back to its home.
pub(crate) enum GivenBack<O> {
    Parked,
    CheckAgain(Held<O>),
    Ended(Ended<O>),
}

/// Events left for later, and rises to a value.
pub(crate) struct Deferred<K> {
    events: VecDeque<(K, Option<u64>)>,
    /// A job that raises them is on its way to the executor.
    job: bool,
}

impl<K> Default for Deferred<K> {
    fn default() -> Self {
        Deferred { events: VecDeque::new(), job: false }
    }
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Attempts everything parked under `key`; returns how many this call ended as Completed. Inside
    /// a callback the event waits for the outermost call.
    pub(crate) fn check_and_complete(self: &Arc<Self>, key: &K) -> usize {
        let frame = Frame::enter(&self.elsewhere);
        if frame.is_nested() {
            let (inner, key) = (self.clone(), key.clone());
            enqueue(move || {
                inner.report_if(contain(|| {
                    inner.event(&Frame::enter(&inner.elsewhere), &key);
                }));
            });
            return 0;
        }
        self.event(&frame, key)
    }

    fn event(self: &Arc<Self>, frame: &Frame<'_>, key: &K) -> usize {
        let mut chunk = Chunk::new();
        let mut walk = self.watches.walk(key, &mut chunk, true);
        self.attempt_each(frame, &mut walk, &mut chunk)
    }

    /// Completes what `value` meets of the watermarks that wait for `key`; returns how many this call
    /// ended as Completed. Inside a callback it waits for the outermost call.
    pub(crate) fn complete_up_to(self: &Arc<Self>, key: &K, value: u64) -> usize {
        let frame = Frame::enter(&self.elsewhere);
        if frame.is_nested() {
            let (inner, key) = (self.clone(), key.clone());
            enqueue(move || {
                inner.report_if(contain(|| {
                    inner.rise(&Frame::enter(&inner.elsewhere), &key, value);
                }));
            });
            return 0;
        }
        self.rise(&frame, key, value)
    }

    fn rise(self: &Arc<Self>, frame: &Frame<'_>, key: &K, value: u64) -> usize {
        let (mut met, mut ended, mut check) = (Chunk::new(), SmallVec::new(), Chunk::new());
        let walk = self.take_up_to(key, value, Taking::Met, &mut met, |taken| {
            self.count_down(taken, &mut ended, &mut check);
        });
        let mut completed = self.finish_all(frame, ended);
        completed += self.attempt_chunk(frame, &check);
        let mut walk = walk.unwrap_or_else(|panic| resume_unwind(panic));
        completed += self.attempt_each(frame, &mut walk, &mut met);
        completed
    }

    /// Takes the watermark watches that `value` meets, or all, off the key, chunk by chunk, for `act` to
    /// apply; returns the walk over those that stay. Nothing of the user's runs in between, or what was
    /// parked by it would be taken, too. But for the key's `Hash` and `Eq`: when they panic, what was
    /// taken until then has to be finished first.
    fn take_up_to(
        &self,
        key: &K,
        value: u64,
        taking: Taking,
        met: &mut Chunk,
        mut act: impl FnMut(&[TimerHandle]),
    ) -> thread::Result<Walk<'_, K>> {
        let mut taken = Chunk::new();
        let mut left = None;
        let walk = catch_unwind(AssertUnwindSafe(|| {
            let hash = self.watches.hash(key);
            let mut taking = taking;
            loop {
                let took = self.watches.take_up_to(key, hash, value, taking, &mut taken, met);
                taking = taking.further();
                act(&taken);
                left = took.left;
                if let Some(walk) = took.met {
                    return walk;
                }
                taken.clear();
            }
        }));
        let _ = contain(|| drop(left));
        walk
    }

    /// Applies watermark watches that were met and taken: whoever takes one counts it down. What is over
    /// goes to `ended`, what is to be checked to `check`.
    fn count_down(
        &self,
        taken: &[TimerHandle],
        ended: &mut SmallVec<[Ended<O>; 1]>,
        check: &mut Chunk,
    ) {
        self.each_at_home(
            taken.iter().copied(),
            |&id| id,
            |home, id| match home.get_mut(id).map(Entry::count_down) {
                Some(CountedDown::Last(Claim::Ended(payload, outcome))) => {
                    ended.push(self.depart(home, id, payload, outcome));
                }
                Some(CountedDown::Check) => check.push(id),
                Some(CountedDown::Last(Claim::Noted)) | None => {}
            },
        );
    }

    /// Finishes what is over; returns how many of it completed.
    fn finish_all(
        self: &Arc<Self>,
        frame: &Frame<'_>,
        ended: impl IntoIterator<Item = Ended<O>>,
    ) -> usize {
        ended.into_iter().map(|ended| self.finish_counting(frame, ended)).sum()
    }

    /// Attempts each waiter of a walk, the first of which are in `chunk`.
    #[inline]
    fn attempt_each(
        self: &Arc<Self>,
        frame: &Frame<'_>,
        walk: &mut Walk<'_, K>,
        chunk: &mut Chunk,
    ) -> usize {
        let mut completed = 0;
        loop {
            completed += self.attempt_chunk(frame, chunk);
            if !walk.next(chunk) {
                return completed;
            }
        }
    }

    #[inline]
    fn attempt_chunk(self: &Arc<Self>, frame: &Frame<'_>, ids: &[TimerHandle]) -> usize {
        match *ids {
            [] => 0,
            [id] => self.attempt(frame, id),
            ref ids => ids.chunks(TOGETHER).map(|ids| self.attempt_all(frame, ids)).sum(),
        }
    }

    /// Checks one operation, unless somebody else is checking it, and finishes it if it is over.
    #[inline]
    fn attempt(self: &Arc<Self>, frame: &Frame<'_>, id: TimerHandle) -> usize {
        let Some(held) = self.check_out(&mut self.homes.lock(id.shard()), id) else { return 0 };
        self.hold(held).map_or(0, |ended| self.finish_counting(frame, ended))
    }

    /// The same for many: each home is locked once for a run of them, and the checks run in order
    /// with all their payloads out.
    fn attempt_all(self: &Arc<Self>, frame: &Frame<'_>, ids: &[TimerHandle]) -> usize {
        let mut held = Vec::with_capacity(ids.len());
        self.each_at_home(
            ids.iter().copied(),
            |&id| id,
            |home, id| held.extend(self.check_out(home, id)),
        );
        self.check_all(&mut held);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        self.each_at_home(
            held,
            |held| held.id,
            |home, held| match self.give_back(home, held) {
                GivenBack::Parked => {}
                GivenBack::CheckAgain(held) => again.push(held),
                GivenBack::Ended(over) => ended.push(over),
            },
        );
        ended.extend(again.into_iter().filter_map(|held| self.hold(held)));
        self.finish_all(frame, ended)
    }

    #[inline]
    fn finish_counting(self: &Arc<Self>, frame: &Frame<'_>, ended: Ended<O>) -> usize {
        let completed = usize::from(matches!(ended.outcome, Outcome::Completed));
        self.finish(frame, ended);
        completed
    }

    #[inline]
    fn check_out(&self, home: &mut HomeGuard<'_, O>, id: TimerHandle) -> Option<Held<O>> {
        let payload = home.get_mut(id)?.check_out()?;
        Some(Held { id, payload, verdict: Verdict::Unsatisfied })
    }

    /// Gives a payload back that was checked, under its home's lock. Always in line: a payload that goes through memory on its way
    /// costs an event on a key with many waiters a third more.
    #[inline(always)]
    pub(crate) fn give_back(&self, home: &mut HomeGuard<'_, O>, held: Held<O>) -> GivenBack<O> {
        let Held { id, payload, verdict } = held;
        home.state.counts.checks += 1;
        let entry = home.get_mut(id).expect("Holder removes: the entry of a payload is there");
        match entry.settle(payload, verdict) {
            Settled::Parked => GivenBack::Parked,
            Settled::CheckAgain(payload) => GivenBack::CheckAgain(Held { id, payload, verdict }),
            Settled::Ended(payload, outcome) => {
                GivenBack::Ended(self.depart(home, id, payload, outcome))
            }
        }
    }

    /// Checks an operation until it is parked or over.
    #[inline]
    pub(crate) fn hold(self: &Arc<Self>, mut held: Held<O>) -> Option<Ended<O>> {
        for look in 0.. {
            if look == LOOKS && !self.elsewhere.is_here() {
                self.hold_elsewhere(held);
                return None;
            }
            held.verdict = self.check(&mut held.payload);
            let id = held.id;
            match self.give_back(&mut self.homes.lock(id.shard()), held) {
                GivenBack::Parked => return None,
                GivenBack::Ended(ended) => return Some(ended),
                GivenBack::CheckAgain(again) => held = again,
            }
        }
        None
    }

    /// Hands a payload, still out of its entry, to the executor to be looked at again there.
    fn hold_elsewhere(self: &Arc<Self>, held: Held<O>) {
        let inner = self.clone();
        self.elsewhere.execute(Job::new(move || {
            let frame = Frame::enter(&inner.elsewhere);
            if frame.is_nested() {
                // Run in place after all: queued, so that it does not nest.
                let inner = inner.clone();
                enqueue(move || inner.hold_here(held));
            } else {
                inner.hold_here(held);
            }
        }));
    }

    fn hold_here(self: &Arc<Self>, held: Held<O>) {
        let frame = Frame::enter(&self.elsewhere);
        if let Some(ended) = self.hold(held) {
            self.finish(&frame, ended);
        }
    }

    /// Cancels everything parked under `key`; returns how many this call ended. All are claimed before
    /// the first is told, so that what a callback parks stays.
    pub(crate) fn cancel_for_key(self: &Arc<Self>, key: &K, reason: Cow<'static, str>) -> usize {
        let frame = Frame::enter(&self.elsewhere);
        let outcome = Outcome::Cancelled(CancelReason::Requested(reason));
        let (mut ended, mut chunk) = (Vec::new(), Chunk::new());
        let walk = self.watches.walk(key, &mut chunk, false);
        self.claim_each(walk, &mut chunk, &outcome, &mut ended);
        let walk = self.take_up_to(key, u64::MAX, Taking::All, &mut chunk, |taken| {
            self.claim_chunk(taken, &outcome, &mut ended);
        });
        let panicked =
            walk.map(|walk| self.claim_each(walk, &mut chunk, &outcome, &mut ended)).err();
        let cancelled = ended.len();
        self.finish_all(&frame, ended);
        match panicked {
            Some(panic) => resume_unwind(panic),
            None => cancelled,
        }
    }

    fn claim_each(
        &self,
        mut walk: Walk<'_, K>,
        chunk: &mut Chunk,
        outcome: &Outcome,
        ended: &mut Vec<Ended<O>>,
    ) {
        loop {
            self.claim_chunk(chunk, outcome, ended);
            if !walk.next(chunk) {
                return;
            }
        }
    }

    fn claim_chunk(&self, ids: &[TimerHandle], outcome: &Outcome, ended: &mut Vec<Ended<O>>) {
        self.each_at_home(
            ids.iter().copied(),
            |&id| id,
            |home, id| {
                let claim = home.get_mut(id).map(|entry| entry.claim(outcome.clone()));
                if let Some(Claim::Ended(payload, outcome)) = claim {
                    ended.push(self.depart(home, id, payload, outcome));
                }
            },
        );
    }

    /// Ends one operation from outside.
    pub(crate) fn end(self: &Arc<Self>, id: TimerHandle, outcome: Outcome) -> Attempt {
        let frame = Frame::enter(&self.elsewhere);
        let mut home = self.homes.lock(id.shard());
        let Some(entry) = home.get_mut(id) else { return Attempt::Gone };
        match entry.claim(outcome) {
            Claim::Noted => Attempt::Noted,
            Claim::Ended(payload, outcome) => {
                let ended = self.depart(&mut home, id, payload, outcome);
                drop(home);
                self.finish(&frame, ended);
                Attempt::Ended
            }
        }
    }

    /// Gives one operation another timeout, unless its end is decided or noted.
    pub(crate) fn reschedule(&self, id: TimerHandle, timeout: Timeout) -> bool {
        let now_ns = self.driver().now_ns();
        let tick = self.driver().tick();
        let mut home = self.homes.lock(id.shard());
        let open = home.get_mut(id).is_some_and(|entry| !entry.is_ending());
        open && home.reschedule(tick.round_down(now_ns), id, timeout.deadline(tick, now_ns))
    }

    /// Leaves an event, or a rise to `value`, to the executor, or to whoever calls `run_deferred` first.
    pub(crate) fn defer(self: &Arc<Self>, key: K, value: Option<u64>) {
        self.deferred.lock().events.push_back((key, value));
        self.have_deferred_run();
    }

    /// Hands what is deferred to the executor, unless a job for that is on its way.
    fn have_deferred_run(self: &Arc<Self>) {
        if self.elsewhere.is_here() {
            return;
        }
        let mut deferred = self.deferred.lock();
        if deferred.events.is_empty() || std::mem::replace(&mut deferred.job, true) {
            return;
        }
        drop(deferred);
        let inner = self.clone();
        let job = Job::new(move || {
            inner.deferred.lock().job = false;
            if is_deferring() {
                return; // dropped by the executor, on a thread that may hold locks: left for later
            }
            let mut left = DEFERRED_BUDGET;
            while let Err(panicked) = contain(|| _ = inner.raise_deferred(&mut left)) {
                inner.report(&panicked); // of a key's Hash or Eq: its event is gone, the next one's turn
            }
            inner.have_deferred_run(); // the rest, behind what else waits for the executor
        });
        execute_deferring(&self.elsewhere, job);
    }

    /// Raises what was deferred; returns how many operations that completed. When a key's `Hash` or `Eq`
    /// panics, what is behind it goes to the executor.
    pub(crate) fn run_deferred(self: &Arc<Self>) -> usize {
        let all = &mut { usize::MAX };
        catch_unwind(AssertUnwindSafe(|| self.raise_deferred(all))).unwrap_or_else(|panic| {
            self.have_deferred_run();
            resume_unwind(panic)
        })
    }

    /// Raises up to `left` events, and counts them off it.
    fn raise_deferred(self: &Arc<Self>, left: &mut usize) -> usize {
        let mut completed = 0;
        while *left > 0
            && let Some((key, value)) = self.next_deferred()
        {
            *left -= 1;
            completed += match value {
                None => self.check_and_complete(&key),
                Some(value) => self.complete_up_to(&key, value),
            };
        }
        completed
    }

    pub(crate) fn deferred_len(&self) -> usize {
        self.deferred.lock().events.len()
    }

    fn next_deferred(&self) -> Option<(K, Option<u64>)> {
        let mut deferred = self.deferred.lock();
        let next = deferred.events.pop_front();
        if deferred.events.is_empty() && deferred.events.capacity() > DEFERRED_BUDGET {
            deferred.events = VecDeque::new(); // a peak is given back
        }
        next
    }
}
