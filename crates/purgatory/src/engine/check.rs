//! Checking: take the payload out of its entry, run the check with nothing locked, check it back
//! in.
//!
//! The thread that checks an operation out is its *holder*: only it ends or removes the operation.
//! Other threads leave it a request, to check again or to end it, on which it acts as it checks the
//! payload in.

use std::{any::Any, collections::HashSet, sync::Arc};

use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::contain};

use crate::{
    engine::{
        Core,
        trace::{self, Checking},
        trampoline::Call,
    },
    operation::{DelayedOperation, Verdict},
    shard::{AllEnded, Cause, CheckedIn, CheckedOut, Ended, Entries, Waiter},
    sync::CHECK_BATCH,
    watches::WatchKey,
};

/// A waiter that an event found.
enum Found<O> {
    CheckedOut(CheckedOut<O>),
    /// Its first key is in another shard, so it is still to be checked out.
    Elsewhere(TimerHandle),
    /// Another thread holds it, or it has ended: it is not this one's to check.
    Held,
}

impl<O> Found<O> {
    #[inline]
    fn checked_out(self) -> Option<CheckedOut<O>> {
        match self {
            Found::CheckedOut(held) => Some(held),
            Found::Elsewhere(_) | Found::Held => None,
        }
    }
}

/// Waiters of a key that are checked together, in the order they were parked.
pub(super) struct Batch<O> {
    found: SmallVec<[Found<O>; 1]>,
    /// Some of them are elsewhere.
    elsewhere: bool,
}

impl<O> Batch<O> {
    pub(super) fn new() -> Self {
        Batch {
            found: SmallVec::new(),
            elsewhere: false,
        }
    }

    /// Makes a batch for the waiters of a key, with room for as many as are checked together.
    pub(super) fn of(waiters: usize) -> Self {
        Batch {
            found: SmallVec::with_capacity(waiters.min(CHECK_BATCH)),
            elsewhere: false,
        }
    }

    /// Adds an operation that is still to be checked out.
    pub(super) fn push(&mut self, handle: TimerHandle) {
        self.elsewhere = true;
        self.found.push(Found::Elsewhere(handle));
    }

    /// Adds an operation that is checked out, if it is.
    pub(super) fn add_held(&mut self, held: Option<CheckedOut<O>>) {
        self.found.extend(held.map(Found::CheckedOut));
    }

    /// Adds a waiter that a walk came to. In the walk's own shard it is checked out in the same
    /// lock hold, unless it is held already.
    #[inline(always)]
    pub(super) fn add(&mut self, entries: &mut Entries<O>, waiter: Waiter) {
        match waiter {
            Waiter::Foreign(handle) => self.push(handle),
            Waiter::Here(index) => {
                if let Some(held) = entries.check_out(index) {
                    self.found.push(Found::CheckedOut(held));
                }
            }
        }
    }

    /// Takes the last waiter, if it is checked out.
    #[inline]
    fn pop(&mut self) -> Option<CheckedOut<O>> {
        self.found.pop().and_then(Found::checked_out)
    }
}

/// An operation's last check and, if it ended, its ending.
pub(super) struct Checked<K, O> {
    pub(super) verdict: Verdict,
    pub(super) ended: Option<Ended<K, O>>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Runs an operation's check, with nothing locked. A panic in it is contained and reported.
    #[inline]
    pub(super) fn check<P>(
        &self,
        operation: &mut P,
        check: impl FnOnce(&mut P) -> bool,
    ) -> Verdict {
        // 1. Run it. In debug builds the clock is read in here, too: a panic of it elsewhere would
        //    leave the payload out.
        let checked = contain(|| {
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
    #[inline]
    fn checking(&self) -> Option<&Checking> {
        if cfg!(debug_assertions) {
            Some(&self.cold().checking)
        } else {
            None
        }
    }

    /// In debug builds, warns of checks that keep other threads for more than a second.
    #[inline]
    pub(super) fn warn_stuck_checks(&self) {
        if let Some(checking) = self.checking() {
            checking.warn_stuck_checks(&self.frame.name, || self.frame.driver().now_ns());
        }
    }

    /// Checks an operation and checks it in, again for as long as events or sweeps come by
    /// meanwhile.
    pub(super) fn check_held(&self, mut held: CheckedOut<O>) -> Checked<K, O> {
        self.check_for_cause(&mut held);
        self.check_in(held)
    }

    /// Checks an operation again if its check-in asks for it. Returns its ending, if it ended.
    pub(super) fn check_until_parked(&self, checked_in: CheckedIn<K, O>) -> Option<Ended<K, O>> {
        match checked_in {
            CheckedIn::Parked => None,
            CheckedIn::CheckAgain(held) => self.check_held(held).ended,
            CheckedIn::Ended(ended) => Some(ended),
        }
    }

    fn check_for_cause(&self, held: &mut CheckedOut<O>) {
        held.verdict = match held.cause {
            Cause::Event => self.check(&mut held.payload, O::try_complete),
            Cause::NoEvent => self.check_unasked(held),
        };
    }

    /// Checks an operation in that was checked, and checks it again for as long as events or sweeps
    /// come by meanwhile.
    #[inline(never)]
    fn check_in(&self, mut held: CheckedOut<O>) -> Checked<K, O> {
        loop {
            let verdict = held.verdict;
            // The clock is read before the lock is taken.
            let now_ns = self.ending_at();
            let mut first_shard = self.first_shard_of(held.handle);
            let ended = match first_shard.check_in(held, now_ns) {
                CheckedIn::Parked => None,
                CheckedIn::Ended(ended) => Some(ended),
                CheckedIn::CheckAgain(again) => {
                    drop(first_shard);
                    held = again;
                    self.check_for_cause(&mut held);
                    continue;
                }
            };
            return Checked { verdict, ended };
        }
    }

    /// Checks the waiters of a batch, in order, and finishes those that ended. Leaves it empty.
    /// Returns how many completed.
    #[inline]
    pub(super) fn check_batch(self: &Arc<Self>, call: &Call<'_>, batch: &mut Batch<O>) -> usize {
        if batch.elsewhere {
            self.check_out_elsewhere(batch);
        }
        if batch.found.len() > 1 {
            return self.check_together(call, batch, O::try_complete);
        }
        match batch.pop() {
            Some(held) => self.check_single(call, held),
            None => 0,
        }
    }

    /// Checks an operation for an event, and finishes it if it ended. Returns 1 if it completed.
    #[inline]
    pub(super) fn check_single(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut held: CheckedOut<O>,
    ) -> usize {
        held.verdict = self.check(&mut held.payload, O::try_complete);
        // The common case apart: what ended goes straight to its finish.
        if held.verdict == Verdict::Satisfied {
            let now_ns = self.ending_at();
            let mut first_shard = self.first_shard_of(held.handle);
            let to_release = first_shard.end_satisfied(held.handle, now_ns);
            drop(first_shard);
            self.finish_satisfied(call, held.payload, to_release);
            return 1;
        }
        match self.check_in(held).ended {
            Some(ended) => self.finish(call, ended),
            None => 0,
        }
    }

    /// Checks the waiters of a batch for an event with an argument, in order, and finishes those
    /// that ended. Leaves it empty. Returns how many completed.
    pub(super) fn check_batch_with(
        self: &Arc<Self>,
        call: &Call<'_>,
        batch: &mut Batch<O>,
        event: &dyn Any,
    ) -> usize {
        if batch.elsewhere {
            self.check_out_elsewhere(batch);
        }
        self.check_together(call, batch, |operation| operation.try_complete_with(event))
    }

    /// Checks operations, each once however often it is listed; returns how many completed.
    pub(super) fn check_each_once(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut handles: Vec<TimerHandle>,
    ) -> usize {
        if handles.len() > 1 {
            let mut known = HashSet::new();
            handles.retain(|&handle| known.insert(handle));
        }
        let mut completed = 0;
        let mut batch = Batch::new();
        for handles in handles.chunks(CHECK_BATCH) {
            for &handle in handles {
                batch.push(handle);
            }
            self.check_out_elsewhere(&mut batch);
            completed += self.check_together(call, &mut batch, O::try_complete);
        }
        completed
    }

    /// Checks the one waiter of a batch, if it can be checked out, and finishes it if it ended.
    /// Returns true when this check came true and has used the event up: an operation that another
    /// thread completed meanwhile has not.
    pub(super) fn check_for_one_event(
        self: &Arc<Self>,
        call: &Call<'_>,
        batch: &mut Batch<O>,
    ) -> bool {
        self.check_out_elsewhere(batch);
        let Some(held) = batch.pop() else {
            return false;
        };
        let Checked { verdict, ended } = self.check_held(held);
        let Some(ended) = ended else {
            return false;
        };
        self.finish(call, ended);
        verdict == Verdict::Satisfied
    }

    /// Checks out the waiters whose first key is in another shard. The holder of one that is held
    /// checks it again.
    ///
    /// One lock hold each: a batch has seldom two of one shard.
    fn check_out_elsewhere(&self, batch: &mut Batch<O>) {
        for found in &mut batch.found {
            if let Found::Elsewhere(handle) = *found {
                *found = match self.first_shard_of(handle).check_out(handle) {
                    Some(held) => Found::CheckedOut(held),
                    None => Found::Held,
                };
            }
        }
        batch.elsewhere = false;
    }

    /// Checks a batch by `check`, unlocked, then checks it back in, locking each shard once per run
    /// of neighbours. Returns how many completed.
    fn check_together(
        self: &Arc<Self>,
        call: &Call<'_>,
        batch: &mut Batch<O>,
        check: impl Fn(&mut O) -> bool,
    ) -> usize {
        // All of them are held while the checks run.
        for found in &mut batch.found {
            if let Found::CheckedOut(held) = found {
                held.verdict = self.check(&mut held.payload, &check);
            }
        }
        let mut ended = AllEnded::new();
        self.check_in_together(batch, &mut ended);
        self.finish_all(call, &mut ended)
    }

    /// Checks a batch in that was checked, which is empty then, locking each shard once per run of
    /// neighbours. Adds those that have ended to `ended`.
    #[inline]
    fn check_in_together(&self, batch: &mut Batch<O>, ended: &mut AllEnded<K, O>) {
        let mut check_again = Vec::new();
        let now_ns = self.ending_at();
        self.each_in_first_shard(
            batch.found.drain(..).filter_map(Found::checked_out),
            |held| held.handle,
            |first_shard, held| match first_shard.check_in(held, now_ns) {
                CheckedIn::Parked => {}
                CheckedIn::CheckAgain(held) => check_again.push(held),
                CheckedIn::Ended(over) => ended.push(over),
            },
        );
        // Several events may have come by: this check is one without an argument.
        for held in check_again {
            ended.extend(self.check_held(held).ended);
        }
    }

    /// Checks the operations of a batch that this job of the executor holds, unlocked and in order,
    /// and finishes those that ended. Leaves the batch empty.
    pub(super) fn check_on_executor(self: &Arc<Self>, call: &Call<'_>, batch: &mut Batch<O>) {
        // 1. Check them, and check them in.
        for found in &mut batch.found {
            if let Found::CheckedOut(held) = found {
                self.check_for_cause(held);
            }
        }
        let mut ended = AllEnded::new();
        self.check_in_together(batch, &mut ended);
        // 2. All are out of every watch list before the first is called back: here, without a
        //    second job.
        for ended in &mut ended {
            self.release(&mut ended.to_release);
        }
        for ended in ended {
            self.call_back_in(call, ended);
        }
    }

    /// Runs an operation's check without an event. When it comes true, an event is missing, or was
    /// late: this is counted and reported. Never inlined, to keep the path of an event small.
    #[inline(never)]
    fn check_unasked(&self, held: &mut CheckedOut<O>) -> Verdict {
        let verdict = self.check(&mut held.payload, O::try_complete);
        if verdict == Verdict::Satisfied && !self.event_came(held.handle) {
            self.report_missed_event(held.handle);
        }
        verdict
    }

    /// Returns true when an event came by while this thread held the operation.
    fn event_came(&self, handle: TimerHandle) -> bool {
        match self.first_shard_of(handle).get_mut(handle) {
            Some(entry) => entry.event_is_pending(),
            None => true,
        }
    }

    /// Counts a missed event, and calls the hook with the operation that it left waiting.
    fn report_missed_event(&self, handle: TimerHandle) {
        self.frame.count_rare(|rare| rare.missed_events += 1);
        trace::missed(&self.frame.name);
        let Some(hook) = &self.on_missed else {
            return;
        };
        self.frame.call(|| {
            let now_ns = self.frame.driver().now_ns();
            if let Some(parked) = self.parked(handle, now_ns) {
                hook(&parked);
            }
        });
    }
}
