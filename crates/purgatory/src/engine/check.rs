//! Checking: take the payload out of its entry, run the check with nothing locked, check the
//! payload back in.
//!
//! The thread that checks an operation out is its *holder*: only that thread ends or removes the
//! operation. Other threads leave the holder a request, to check again or to end it. The holder
//! acts on requests as it checks the payload in.

use std::{any::Any, sync::Arc};

use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::contain_here};

use crate::{
    engine::Core,
    operation::{DelayedOperation, Outcome, Verdict},
    shard::{AllEnded, Cause, CheckedIn, CheckedOut, Ended},
    table::{
        call::Call,
        trace::{self, Checking},
    },
    watches::WatchKey,
};

/// Waiters of a key that are checked together, in the order they were parked.
pub(super) type Batch<O> = SmallVec<[CheckedOut<O>; 1]>;

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Runs an operation's check, with nothing locked. A panic in it is contained and reported.
    #[inline(always)] // a call costs 10 instructions
    pub(super) fn check<P>(
        &self,
        operation: &mut P,
        check: impl FnOnce(&mut P) -> bool,
    ) -> Verdict {
        // 1. Run the check. In debug builds the clock is read in here as well: if it panicked
        //    elsewhere, the payload would stay out.
        let checked = contain_here(|| {
            let _running = self
                .checking()
                .map(|checking| checking.begin(self.frame.driver().now_ns()));
            check(operation)
        });
        // 2. Report a panic.
        match checked {
            Ok(true) => Verdict::Satisfied,
            Ok(false) => Verdict::Unsatisfied,
            Err(panicked) => {
                self.frame.report_panic(&panicked);
                Verdict::Panicked
            }
        }
    }

    /// Returns the checks that run now, in debug builds.
    fn checking(&self) -> Option<&Checking> {
        if cfg!(debug_assertions) {
            Some(self.engine.checking.get_or_init(Box::default))
        } else {
            None
        }
    }

    /// In debug builds, warns of checks that keep other threads for more than a second.
    pub(super) fn warn_stuck_checks(&self) {
        if let Some(checking) = self.checking() {
            checking.warn_stuck_checks(&self.frame.name, || self.frame.timed_end());
        }
    }

    /// Runs the check of an operation that was checked out, as its cause asks; an event may tell it
    /// what has happened.
    #[inline(always)] // a call costs 18 instructions, for each waiter of a key
    fn check_for_cause(
        self: &Arc<Self>,
        held: &mut CheckedOut<O>,
        told: Option<&dyn Any>,
    ) -> Verdict {
        let operation = &mut held.payload;
        match (held.cause, told) {
            (Cause::Event, None) => self.check(operation, O::try_complete),
            (Cause::Event, Some(told)) => {
                self.check(operation, |operation| operation.try_complete_with(told))
            }
            (Cause::NoEvent, _) => self.check_unasked(held),
        }
    }

    /// Checks an operation and checks it in; repeats this as long as events or sweeps come
    /// meanwhile. Returns the last verdict and, if it ended, its ending.
    pub(super) fn check_held(
        self: &Arc<Self>,
        mut held: CheckedOut<O>,
    ) -> (Verdict, Option<Ended<K, O>>) {
        held.verdict = self.check_for_cause(&mut held, None);
        self.check_in(held)
    }

    /// Checks in an operation after its check, and goes on like [`check_held`](Self::check_held).
    #[inline(never)]
    fn check_in(self: &Arc<Self>, mut held: CheckedOut<O>) -> (Verdict, Option<Ended<K, O>>) {
        loop {
            let verdict = held.verdict;
            // The clock is read before the lock is taken.
            let ended_at = self.frame.ending_at();
            let mut first_shard = self.first_shard_of(held.handle);
            match first_shard.check_in(held, ended_at) {
                CheckedIn::Parked => return (verdict, None),
                CheckedIn::Ended(ended) => return (verdict, Some(ended)),
                CheckedIn::CheckAgain(again) => held = again,
            }
            drop(first_shard);
            held.verdict = self.check_for_cause(&mut held, None);
        }
    }

    /// Checks the waiters of a batch in order, and finishes those that ended. Leaves the batch
    /// empty. Returns how many completed.
    pub(super) fn check_batch(
        self: &Arc<Self>,
        call: &Call<'_>,
        batch: &mut Batch<O>,
        told: Option<&dyn Any>,
    ) -> usize {
        if batch.len() > 1 {
            let mut ended = self.check_together(batch, told);
            return self.finish_all(call, &mut ended);
        }
        match batch.pop() {
            Some(held) => self.check_single(call, held, told),
            None => 0,
        }
    }

    /// Checks an operation for an event, and finishes it if it ended. Returns 1 if it completed.
    #[inline]
    pub(super) fn check_single(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut held: CheckedOut<O>,
        told: Option<&dyn Any>,
    ) -> usize {
        held.verdict = self.check_for_cause(&mut held, told);
        // The common case separately: a satisfied operation goes straight to its finish.
        if held.verdict == Verdict::Satisfied {
            let ended_at = self.frame.ending_at();
            let mut first_shard = self.first_shard_of(held.handle);
            first_shard.counts.checks += 1;
            let to_release = first_shard.end(held.handle, &Outcome::Completed, ended_at);
            drop(first_shard);
            self.finish_satisfied(call, held.payload, to_release);
            return 1;
        }
        match self.check_in(held) {
            (_, Some(ended)) => self.finish(call, ended),
            (_, None) => 0,
        }
    }

    /// Checks a batch, unlocked, then checks it back in, locking each shard once per run of
    /// neighbours. Leaves the batch empty. Returns the operations that ended.
    pub(super) fn check_together(
        self: &Arc<Self>,
        batch: &mut Batch<O>,
        told: Option<&dyn Any>,
    ) -> AllEnded<K, O> {
        // 1. Check them. All of them are held while the checks run.
        for held in batch.iter_mut() {
            held.verdict = self.check_for_cause(held, told);
        }
        // 2. Check them in.
        let mut ended = AllEnded::new();
        let mut check_again = Vec::new();
        let ended_at = self.frame.ending_at();
        self.each_in_first_shard(
            None,
            batch.drain(..),
            |held| held.handle,
            |first_shard, held| match first_shard.check_in(held, ended_at) {
                CheckedIn::Parked => {}
                CheckedIn::CheckAgain(held) => check_again.push(held),
                CheckedIn::Ended(over) => ended.push(over),
            },
        );
        // 3. Check again. Several events may have come, so these checks have no argument.
        for held in check_again {
            ended.extend(self.check_held(held).1);
        }
        ended
    }

    /// Runs an operation's check without an event. If it comes true, and no event came meanwhile, an
    /// event was missed or is late, which is counted and reported. Never inlined, to keep the path
    /// of an event small.
    #[inline(never)]
    fn check_unasked(self: &Arc<Self>, held: &mut CheckedOut<O>) -> Verdict {
        let verdict = self.check(&mut held.payload, O::try_complete);
        if verdict == Verdict::Satisfied && !self.event_came(held.handle) {
            self.report_missed_event(held.handle);
        }
        verdict
    }

    /// Returns true if an event came while this thread held the operation.
    fn event_came(&self, handle: TimerHandle) -> bool {
        match self.first_shard_of(handle).get_mut(handle) {
            Some(entry) => entry.event_is_pending(),
            None => true,
        }
    }

    /// Counts a missed event, and calls the hook with the operation that waited for it.
    fn report_missed_event(self: &Arc<Self>, handle: TimerHandle) {
        self.frame.count_rare(|rare| rare.missed_events += 1);
        trace::missed(&self.frame.name);
        let Some(hook) = &self.engine.rules.on_missed else {
            return;
        };
        self.frame.call(|| hook(self, handle));
    }
}
