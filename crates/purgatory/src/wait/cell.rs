//! The cell of a wait: the condition, later the value in its place, and beside it the waker of the
//! last poll, later the answer. The operation in the purgatory and the future are two views of the
//! cell.
//!
//! - **The holder's**: only the thread that has the operation touches the condition, until there is
//!   an answer. So no thread ever waits for the lock around it, which lets a future share the cell.
//! - **The future's**: a poll locks only the answer, and no shard. The operation lets go of the
//!   cell before it wakes the task, so the task's poll is then the only owner: it locks nothing,
//!   and frees the cell.
//! - **Dropped first**: a condition is dropped before its task is woken, with nothing locked.
//! - **One answer**: the operation puts the answer in as it ends, or as it is dropped without an
//!   end.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, atomic},
    task::{Poll, Waker},
};

use timer_core::TimerHandle;

use crate::{
    boxed::{
        BoxedOperation,
        wait::{WaitOperation, Waiting},
    },
    engine::{Core, Kernel},
    error::WaitError,
    operation::{CancelReason, Outcome, Timeout, ToPark},
    origin::{AnswerOrigin, PANICKED, Pending},
    sync::{AtomicBool, Mutex, Ordering, Share, Unwatched},
    table::Inside,
    wait::condition::Condition,
    watches::WatchKey,
};

/// The condition of a wait, and then its value.
enum Stage<C: Condition> {
    Waits(C),
    /// The value; the condition was dropped.
    Value(C::Value),
    Over,
}

impl<C: Condition> Stage<C> {
    /// Evaluates the condition. Returns true once it has given its value.
    #[inline]
    fn check(&mut self) -> bool {
        let Stage::Waits(condition) = self else {
            return true;
        };
        let Some(value) = condition.value() else {
            return false;
        };
        // Drop the condition before the task runs, which may rely on that.
        drop(mem::replace(self, Stage::Value(value)));
        true
    }

    /// Returns the value that the condition gave.
    fn into_value(self) -> Result<C::Value, WaitError> {
        match self {
            Stage::Value(value) => Ok(value),
            Stage::Waits(_) | Stage::Over => Err(PANICKED),
        }
    }

    /// Drops the condition, and returns the result of a wait that ends.
    fn into_result(self, outcome: Outcome) -> Result<C::Value, WaitError> {
        match (self, outcome) {
            (Stage::Value(value), Outcome::Completed) => Ok(value),
            // A call completes the wait without a check: the condition may have a value by now.
            (Stage::Waits(mut condition), Outcome::Completed) => {
                let value = condition.value();
                drop(condition);
                value.ok_or_else(|| WaitError::of(Outcome::Completed))
            }
            (before, outcome) => {
                drop(before);
                Err(WaitError::of(outcome))
            }
        }
    }
}

/// The answer of a wait on its way to the future.
enum Slot {
    /// There is no answer yet. Has the waker of the last poll.
    Waiting(Option<Waker>),
    /// The answer. A value lies in the condition's place.
    Answered(Result<(), WaitError>),
    /// The future has taken the answer, or was dropped.
    Left,
}

/// A wait that an operation and a future share.
struct Cell<K: WatchKey, C: Condition> {
    /// Locked by the holder of the operation, and by the thread that takes the answer once it is
    /// there.
    stage: Unwatched<Stage<C>>,
    slot: Mutex<Slot>,
    /// True once a check came true. Only the holder uses it, so it is not the model's atomic.
    has_value: atomic::AtomicBool,
    /// True if the future was dropped before there was an answer: no check may come true any more,
    /// wherever the operation is.
    is_deserted: AtomicBool,
    /// Keeps the memory of the purgatory for the future. The purgatory stays open only as long as
    /// it has handles.
    core: Share<Arc<Core<K, BoxedOperation>>>,
}

impl<K: WatchKey, C: Condition> Waiting for Cell<K, C> {
    fn check(&self) -> bool {
        if self.is_deserted() {
            return false;
        }
        let mut stage = self.stage.lock();
        if !stage.check() {
            return false;
        }
        // If the future is gone by now, drop the value, which gives back what the condition took.
        if self.is_deserted() {
            let value = mem::replace(&mut *stage, Stage::Over);
            drop(stage);
            drop(value);
            return false;
        }
        self.has_value.store(true, Ordering::Relaxed);
        true
    }

    fn end(self: Arc<Self>, outcome: &Outcome) {
        let has_value = self.has_value.load(Ordering::Relaxed);
        if has_value && matches!(outcome, Outcome::Completed) {
            return self.answer(Ok(()));
        }
        self.end_without_value(outcome.clone());
    }

    fn lose(self: Arc<Self>) {
        // The thread may be panicking; a second panic, of the waker, would abort.
        let core = self.core.clone();
        let lost = Outcome::Cancelled(CancelReason::Panicked);
        core.call_in_turn(&core.frame.enter(), move || self.end(&lost));
    }
}

impl<K: WatchKey, C: Condition> Cell<K, C> {
    fn is_deserted(&self) -> bool {
        self.is_deserted.load(Ordering::Relaxed)
    }

    /// Drops the waker or the answer of a future that was dropped.
    fn drop_in_turn(&self, before: Slot) {
        let mut value = None;
        if let Slot::Answered(Ok(())) = before {
            value = Some(mem::replace(&mut *self.stage.lock(), Stage::Over));
        }
        let call = self.core.frame.enter();
        self.core.call_in_turn(&call, || drop((before, value)));
    }

    /// Answers the future of an operation that no check has completed.
    #[cold]
    fn end_without_value(self: Arc<Self>, outcome: Outcome) {
        // 1. Drop the condition. If a call completes the wait, ask the condition for a value first,
        //    unless the future was dropped before the call came to this.
        let outcome = match self.is_deserted() {
            true => Outcome::Cancelled(CancelReason::FutureDropped),
            false => outcome,
        };
        let stage = mem::replace(&mut *self.stage.lock(), Stage::Over);
        let ended = catch_unwind(AssertUnwindSafe(|| stage.into_result(outcome)));
        // 2. Answer. A panic of the condition is passed on after that.
        let answer = match ended {
            Ok(Ok(value)) => {
                *self.stage.lock() = Stage::Value(value);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(panic) => {
                // A second panic, of the waker, would abort.
                let core = self.core.clone();
                core.frame.call(|| self.answer(Err(PANICKED)));
                resume_unwind(panic);
            }
        };
        self.answer(answer);
    }

    /// Puts the answer in, as the last act of the operation, and wakes the task.
    #[inline(always)] // the most common answer is written in its place
    fn answer(self: Arc<Self>, answer: Result<(), WaitError>) {
        // 1. Put it in, unless the future is gone.
        let mut slot = self.slot.lock();
        if let Slot::Left = &*slot {
            drop(slot);
            drop(self.taken(answer)); // user code: with nothing locked
            return;
        }
        let before = mem::replace(&mut *slot, Slot::Answered(answer));
        drop(slot);
        // 2. Let go of the cell: from here on the future is its only owner.
        drop(self);
        // 3. Wake the task that polled last.
        if let Slot::Waiting(Some(waker)) = before {
            if !failpoint!(AnswerMissesPoll) {
                waker.wake();
            }
        }
    }

    /// Takes the value of an answer that has one.
    fn taken(&self, answer: Result<(), WaitError>) -> Result<C::Value, WaitError> {
        answer?;
        let stage = mem::replace(&mut *self.stage.lock(), Stage::Over);
        stage.into_value()
    }
}

impl<K: WatchKey, C: Condition> AnswerOrigin<C::Value> for Cell<K, C> {
    fn poll_first(
        &self,
        pending: &mut Pending,
        waker: &Waker,
    ) -> Poll<Result<C::Value, WaitError>> {
        // 1. Clone the waker before the lock is taken, and drop the old one after the unlock:
        //    wakers are user code.
        let mut unused = Some(waker.clone());
        let mut slot = self.slot.lock();
        if let Slot::Waiting(last) = &mut *slot {
            if !failpoint!(PollLeavesNoWaker) {
                mem::swap(last, &mut unused);
            }
            drop(slot);
            if unused.is_some() {
                self.core.frame.call(|| drop(unused));
            }
            return Poll::Pending;
        }
        // 2. The answer is there.
        let before = mem::replace(&mut *slot, Slot::Left);
        drop(slot);
        self.core.frame.call(|| drop(unused));
        pending.finish();
        match before {
            Slot::Answered(answer) => Poll::Ready(self.taken(answer)),
            Slot::Waiting(_) | Slot::Left => Poll::Ready(Err(PANICKED)),
        }
    }

    fn poll_later(
        &self,
        pending: &mut Pending,
        waker: &Waker,
    ) -> Poll<Result<C::Value, WaitError>> {
        // Comparing two wakers runs no user code.
        let is_known = match &*self.slot.lock() {
            Slot::Waiting(_) if failpoint!(PollLeavesNoWaker) => true,
            Slot::Waiting(Some(_)) if failpoint!(FirstWakerStays) => true,
            Slot::Waiting(Some(last)) => last.will_wake(waker),
            Slot::Waiting(None) | Slot::Answered(_) | Slot::Left => false,
        };
        if is_known {
            return Poll::Pending;
        }
        self.poll_first(pending, waker)
    }

    fn keeps_answer(&self) -> bool {
        true
    }

    fn into_answer(self: Arc<Self>) -> Result<C::Value, WaitError> {
        // Take the fields apart, so that the compiler sees that most of them need no drop.
        let cell = Arc::into_inner(self).ok_or(PANICKED)?;
        let stage = cell.stage.into_inner();
        match cell.slot.into_inner() {
            Slot::Answered(answer) => answer.and_then(|()| stage.into_value()),
            Slot::Waiting(_) | Slot::Left => Err(PANICKED),
        }
    }

    fn abandon(&self, handle: TimerHandle, outcome: &Outcome) {
        // 1. From here on no answer is put in.
        let before = mem::replace(&mut *self.slot.lock(), Slot::Left);
        // 2. End its entry. A check that is under way may notice that only as it comes true.
        if matches!(before, Slot::Waiting(_)) {
            self.is_deserted.store(true, Ordering::Relaxed);
            let _ = Kernel::end(&self.core, handle, outcome.clone());
        }
        // 3. Then drop the waker or the answer, with nothing locked: its drop may signal the keys,
        //    or drop futures.
        if !matches!(before, Slot::Waiting(None)) {
            self.drop_in_turn(before);
        }
    }

    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        Kernel::reschedule(&self.core, handle, timeout)
    }

    fn must_not_block(&self) -> bool {
        self.core.frame.wait_must_not_block()
    }
}

/// A wait that is about to be parked. Its cell is made only if it has to wait.
pub(super) struct NewWait<'a, K: WatchKey, C: Condition> {
    stage: Stage<C>,
    core: &'a Share<Arc<Core<K, BoxedOperation>>>,
    /// The future's view of the cell, once the cell is made.
    future: &'a mut Option<Arc<dyn AnswerOrigin<C::Value>>>,
}

impl<'a, K: WatchKey, C: Condition> NewWait<'a, K, C> {
    pub(super) fn new(
        condition: C,
        core: &'a Share<Arc<Core<K, BoxedOperation>>>,
        future: &'a mut Option<Arc<dyn AnswerOrigin<C::Value>>>,
    ) -> Self {
        NewWait {
            stage: Stage::Waits(condition),
            core,
            future,
        }
    }

    /// Returns the result of a wait that is not parked.
    pub(super) fn into_result(self, outcome: Outcome) -> Result<C::Value, WaitError> {
        self.stage.into_result(outcome)
    }
}

impl<K: WatchKey, C: Condition> ToPark<BoxedOperation> for NewWait<'_, K, C> {
    #[inline(always)]
    fn check(&mut self) -> bool {
        self.stage.check()
    }

    #[inline(always)]
    fn into_operation(self) -> BoxedOperation {
        let cell = Arc::new(Cell {
            stage: Unwatched::new(self.stage),
            slot: Mutex::new(Slot::Waiting(None)),
            has_value: atomic::AtomicBool::new(false),
            is_deserted: AtomicBool::new(false),
            core: self.core.clone(),
        });
        *self.future = Some(cell.clone());
        BoxedOperation::wait(WaitOperation::new(cell))
    }
}
