//! Events: attempt to complete what waits for a key; and cancelling, which takes the same walk.
//!
//! An event walks the key's waiters in the order they were parked, a chunk at a time. It takes the
//! payloads of the chunk out of their homes (that is the claim; what is out already gets a note),
//! checks them with nothing locked, and gives them back. Then the callbacks of what ended run.

use std::{borrow::Cow, hash::Hash, sync::Arc};

use timer_core::{Job, TimerHandle};

use crate::{
    ending::Ended,
    entry::{Claim, Settled, Verdict},
    frame::{Frame, enqueue},
    inner::{HomeGuard, Inner},
    operation::{Attempt, CancelReason, DelayedOperation, Outcome, Timeout},
    watch::Chunk,
};

/// After so many looks at one operation in a row, each asked for by another event, the next one
/// is the executor's: two threads must not keep a third checking for ever.
const LOOKS: usize = 8;

/// So many payloads are taken out and checked together. More would save locks; but each of them can
/// neither expire nor be cancelled before the checks of the others are over.
const TOGETHER: usize = 16;

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

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Attempts everything parked under `key`; returns how many this call ended as Completed. Inside
    /// a callback the event waits for the outermost call.
    pub(crate) fn check_and_complete(self: &Arc<Self>, key: &K) -> usize {
        let frame = Frame::enter(&self.driver);
        if frame.is_nested() {
            let (inner, key) = (self.clone(), key.clone());
            enqueue(move || _ = inner.event(&Frame::enter(&inner.driver), &key));
            return 0;
        }
        self.event(&frame, key)
    }

    fn event(self: &Arc<Self>, frame: &Frame<'_>, key: &K) -> usize {
        let mut chunk = Chunk::new();
        let mut walk = self.watches.walk_for_event(key, &mut chunk);
        let mut completed = 0;
        loop {
            completed += match *chunk {
                [] => 0,
                [id] => self.attempt(frame, id),
                ref ids => ids.chunks(TOGETHER).map(|ids| self.attempt_all(frame, ids)).sum(),
            };
            if !walk.next(&mut chunk) {
                return completed;
            }
        }
    }

    /// Checks one operation, unless somebody else is checking it, and finishes it if it is over.
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
        ended.into_iter().map(|ended| self.finish_counting(frame, ended)).sum()
    }

    fn finish_counting(self: &Arc<Self>, frame: &Frame<'_>, ended: Ended<O>) -> usize {
        let completed = usize::from(matches!(ended.outcome, Outcome::Completed));
        self.finish(frame, ended);
        completed
    }

    fn check_out(&self, home: &mut HomeGuard<'_, O>, id: TimerHandle) -> Option<Held<O>> {
        let payload = home.get_mut(id)?.check_out()?;
        Some(Held { id, payload, verdict: Verdict::Unsatisfied })
    }

    /// Gives a payload back, under its home's lock.
    pub(crate) fn give_back(&self, home: &mut HomeGuard<'_, O>, held: Held<O>) -> GivenBack<O> {
        let Held { id, payload, verdict } = held;
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
    pub(crate) fn hold(self: &Arc<Self>, mut held: Held<O>) -> Option<Ended<O>> {
        for look in 0.. {
            if look == LOOKS && !self.driver.executes_inline() {
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
        self.execute(Job::new(move || {
            let frame = Frame::enter(&inner.driver);
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
        let frame = Frame::enter(&self.driver);
        if let Some(ended) = self.hold(held) {
            self.finish(&frame, ended);
        }
    }

    /// Cancels everything parked under `key`; returns how many this call ended.
    pub(crate) fn cancel_for_key(self: &Arc<Self>, key: &K, reason: Cow<'static, str>) -> usize {
        let frame = Frame::enter(&self.driver);
        let outcome = Outcome::Cancelled(CancelReason::Requested(reason));
        let mut chunk = Chunk::new();
        let mut walk = self.watches.walk_only(key, &mut chunk);
        let mut cancelled = 0;
        loop {
            let mut ended = Vec::new();
            self.each_at_home(
                chunk.iter().copied(),
                |&id| id,
                |home, id| {
                    let claim = home.get_mut(id).map(|entry| entry.claim(outcome.clone()));
                    if let Some(Claim::Ended(payload, outcome)) = claim {
                        ended.push(self.depart(home, id, payload, outcome));
                    }
                },
            );
            cancelled += ended.len();
            ended.into_iter().for_each(|ended| self.finish(&frame, ended));
            if !walk.next(&mut chunk) {
                return cancelled;
            }
        }
    }

    /// Ends one operation from outside.
    pub(crate) fn end(self: &Arc<Self>, id: TimerHandle, outcome: Outcome) -> Attempt {
        let frame = Frame::enter(&self.driver);
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
        let now_ns = self.driver.now_ns();
        let tick = self.driver.tick();
        let mut home = self.homes.lock(id.shard());
        let open = home.get_mut(id).is_some_and(|entry| !entry.is_ending());
        open && home.reschedule(tick.round_down(now_ns), id, timeout.deadline(tick, now_ns))
    }

    /// Leaves an event to the executor, or to whoever calls `run_deferred` first.
    pub(crate) fn defer(self: &Arc<Self>, key: K) {
        let mut deferred = self.deferred.lock();
        deferred.push_back(key);
        let first = deferred.len() == 1;
        drop(deferred);
        if first && !self.driver.executes_inline() {
            let inner = self.clone();
            self.execute(Job::new(move || _ = inner.run_deferred()));
        }
    }

    /// Raises what was deferred; returns how many operations that completed.
    pub(crate) fn run_deferred(self: &Arc<Self>) -> usize {
        let mut completed = 0;
        while let Some(key) = self.next_deferred() {
            completed += self.check_and_complete(&key);
        }
        completed
    }

    fn next_deferred(&self) -> Option<K> {
        self.deferred.lock().pop_front()
    }
}
