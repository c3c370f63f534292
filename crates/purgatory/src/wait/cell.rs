//! The cell of a wait: the condition, then the value in its place, and beside them the answer and
//! the waker of the last poll. The operation in the purgatory and the future are two views of it.
//!
//! - **The holder's**: only the thread that has the operation touches the condition. So the lock
//!   around it, which lets a future share the cell, is never waited for.
//! - **The future's**: a poll locks the answer alone, and no shard.
//! - **Dropped first**: a condition is dropped before its task is woken, with nothing locked.
//! - **One answer**: the operation puts it in as it ends, or as it is dropped without an end.

use std::{
    mem,
    sync::{Arc, Weak},
    task::{Poll, Waker},
};

use timer_core::{TimerHandle, driver::contain};

use crate::{
    boxed::{
        BoxedOperation,
        wait::{WaitOperation, Waiting},
    },
    engine::{Core, end::CancelledWait},
    error::WaitError,
    operation::{CancelReason, OperationId, Outcome, Timeout, ToPark},
    origin::AnswerOrigin,
    sync::{AtomicBool, Mutex, Ordering, Share, Spaced, plain},
    table::call::in_turn,
    wait::condition::IntoAnswer,
    watches::WatchKey,
};

pub(super) const PANICKED: WaitError = WaitError::Cancelled(CancelReason::Panicked);

/// The condition of a wait, and then its value.
enum Stage<C, T> {
    Waits(C),
    /// The condition is dropped.
    Value(T),
    Over,
}

impl<C, R, T> Stage<C, T>
where
    C: FnMut() -> R,
    R: IntoAnswer<Answer = T>,
{
    /// Evaluates the condition. Once it has given its value, this is true.
    #[inline]
    fn check(&mut self) -> bool {
        let Stage::Waits(condition) = self else {
            return true;
        };
        let Some(value) = condition().into_answer() else {
            return false;
        };
        // The condition goes before the task runs, which may rely on that.
        drop(mem::replace(self, Stage::Value(value)));
        true
    }

    /// Returns the result of a wait that ends. The condition is dropped before that.
    fn into_result(self, outcome: Outcome) -> Result<T, WaitError> {
        match (self, outcome) {
            (Stage::Value(value), Outcome::Completed) => Ok(value),
            // A call completes it without a check: it may have a value by now.
            (Stage::Waits(mut condition), Outcome::Completed) => {
                let value = condition().into_answer();
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
enum Slot<T> {
    /// The waker is that of the last poll.
    Waiting(Option<Waker>),
    Answered(Result<T, WaitError>),
    /// The future has taken it, or was dropped. Its operation may be in the entry of this handle.
    Left(TimerHandle),
}

/// A wait that an operation and a future share.
struct Cell<K: WatchKey, C, T> {
    /// Locked by the holder of the operation alone.
    stage: plain::Mutex<Stage<C, T>>,
    slot: Mutex<Slot<T>>,
    /// The future was dropped while the operation was held: no check is to come true.
    is_deserted: AtomicBool,
    /// Weak: the purgatory has the operation, and so the cell.
    origin: Weak<Spaced<Arc<Core<K, BoxedOperation>>>>,
    /// The number of the purgatory.
    purgatory: u32,
}

/// An answer that is being made. Dropped by a panic of the condition, it is
/// [`Panicked`](CancelReason::Panicked).
struct Answering<'a, T> {
    slot: &'a Mutex<Slot<T>>,
    is_over: bool,
}

impl<T> Answering<'_, T> {
    /// Puts the answer in, and wakes the task.
    fn put(&mut self, result: Result<T, WaitError>) {
        self.is_over = true;
        // 1. Put it in, unless the future has gone.
        let mut slot = self.slot.lock();
        if let Slot::Left(_) = &*slot {
            drop(slot);
            drop(result); // the user's: with nothing locked
            return;
        }
        let before = mem::replace(&mut *slot, Slot::Answered(result));
        drop(slot);
        // 2. Wake the task that polled last.
        if let Slot::Waiting(Some(waker)) = before {
            if !failpoint!(AnswerMissesPoll) {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Answering<'_, T> {
    fn drop(&mut self) {
        if !self.is_over {
            // A second panic, of the waker, would abort.
            let _ = contain(|| self.put(Err(PANICKED)));
        }
    }
}

impl<K, C, R, T> Waiting for Cell<K, C, T>
where
    K: WatchKey,
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    fn check(&self) -> bool {
        if self.is_deserted() {
            return false;
        }
        let mut stage = self.stage.lock();
        if !stage.check() {
            return false;
        }
        // The future may be gone by now. What the condition took is given back.
        if self.is_deserted() {
            let value = mem::replace(&mut *stage, Stage::Over);
            drop(stage);
            drop(value);
            return false;
        }
        true
    }

    fn end(&self, outcome: Outcome) {
        let mut answering = Answering {
            slot: &self.slot,
            is_over: false,
        };
        let stage = mem::replace(&mut *self.stage.lock(), Stage::Over);
        let result = stage.into_result(outcome);
        answering.put(result);
    }

    fn lose(self: Arc<Self>) {
        let origin = self.origin.upgrade();
        let executor = origin.as_ref().map(|core| &core.job_executor);
        in_turn(executor, move || {
            // The thread may be panicking; a second panic, of the waker, would abort.
            let _ = contain(|| self.end(Outcome::Cancelled(CancelReason::Panicked)));
        });
    }

    fn is_deserted(&self) -> bool {
        self.is_deserted.load(Ordering::Relaxed)
    }

    fn cancel_deserted(self: Arc<Self>) {
        let Some(core) = self.origin.upgrade() else {
            return;
        };
        // The thread is checking it: not before that check is over.
        core.after_check(move |core| {
            let left = match *self.slot.lock() {
                Slot::Left(handle) => Some(handle),
                Slot::Waiting(_) | Slot::Answered(_) => None,
            };
            if let Some(handle) = left {
                self.cancel(core, handle);
            }
        });
    }
}

impl<K, C, R, T> Cell<K, C, T>
where
    K: WatchKey,
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    /// Runs the user's code, with nothing locked. A panic in it is contained, and reported while the
    /// purgatory is there.
    #[cold]
    fn call(&self, code: impl FnOnce()) {
        match self.origin.upgrade() {
            Some(core) => core.call(code),
            None => _ = contain(code),
        }
    }

    /// Cancels the operation of a future that was dropped, if it is in the entry of this handle.
    fn cancel(&self, core: &Arc<Core<K, BoxedOperation>>, handle: TimerHandle) {
        let address = std::ptr::from_ref(self).cast::<()>();
        let is_own = |operation: &BoxedOperation| {
            operation.as_wait().is_some_and(|wait| wait.is_at(address))
        };
        let desert = || self.is_deserted.store(true, Ordering::Relaxed);
        match core.cancel_wait(handle, is_own, desert) {
            CancelledWait::Ended | CancelledWait::LeftToHolder => {}
            // It was taken out, or changed places. There it goes on without its future.
            CancelledWait::Elsewhere => self.is_deserted.store(false, Ordering::Relaxed),
        }
    }
}

impl<K, C, R, T> AnswerOrigin<T> for Cell<K, C, T>
where
    K: WatchKey,
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    fn poll(
        &self,
        handle: TimerHandle,
        waker: &Waker,
        is_first: bool,
    ) -> Poll<Result<T, WaitError>> {
        // 1. A waker is cloned before the lock is taken, and dropped after that: wakers are user
        //    code. To compare two of them is not.
        let mut clone = None;
        if is_first {
            clone = Some(waker.clone());
        }
        loop {
            let mut slot = self.slot.lock();
            match &mut *slot {
                Slot::Waiting(_) if failpoint!(PollLeavesNoWaker) => return Poll::Pending,
                Slot::Waiting(Some(_)) if failpoint!(FirstWakerStays) => return Poll::Pending,
                Slot::Waiting(last) if clone.is_some() => {
                    mem::swap(last, &mut clone);
                    drop(slot);
                    if clone.is_some() {
                        self.call(|| drop(clone));
                    }
                    return Poll::Pending;
                }
                Slot::Waiting(Some(last)) if last.will_wake(waker) => return Poll::Pending,
                Slot::Waiting(_) => {}
                Slot::Answered(_) | Slot::Left(_) => {
                    let before = mem::replace(&mut *slot, Slot::Left(handle));
                    drop(slot);
                    return match before {
                        Slot::Answered(result) => Poll::Ready(result),
                        Slot::Waiting(_) | Slot::Left(_) => Poll::Ready(Err(PANICKED)),
                    };
                }
            }
            // 2. Another task polls than before.
            drop(slot);
            clone = Some(waker.clone());
        }
    }

    fn abandon(&self, handle: TimerHandle) {
        // 1. From here on no answer is put in. What is there is dropped with nothing locked, and
        //    may itself drop futures.
        let before = mem::replace(&mut *self.slot.lock(), Slot::Left(handle));
        let waits = matches!(before, Slot::Waiting(_));
        let origin = self.origin.upgrade();
        let reports = origin.clone();
        let executor = origin.as_ref().map(|core| &core.job_executor);
        in_turn(executor, move || match reports {
            Some(core) => core.call(|| drop(before)),
            None => _ = contain(|| drop(before)),
        });
        // 2. The operation leaves.
        if let Some(core) = origin.filter(|_| waits) {
            self.cancel(&core, handle);
        }
    }

    fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId {
            handle,
            purgatory: self.purgatory,
        }
    }

    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        match self.origin.upgrade() {
            Some(core) => core.reschedule_one(handle, timeout),
            None => false,
        }
    }

    fn must_not_block(&self) -> bool {
        let core = self.origin.upgrade();
        core.is_some_and(|core| core.wait_must_not_block())
    }
}

/// A wait that comes to be parked. Its cell is made only if it has to wait.
pub(super) struct Arriving<'a, K: WatchKey, C, T> {
    stage: Stage<C, T>,
    origin: &'a Share<Arc<Core<K, BoxedOperation>>>,
    /// The future's view of the cell, once that is made.
    future: &'a mut Option<Arc<dyn AnswerOrigin<T>>>,
}

impl<'a, K, C, R, T> Arriving<'a, K, C, T>
where
    K: WatchKey,
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    pub(super) fn new(
        condition: C,
        origin: &'a Share<Arc<Core<K, BoxedOperation>>>,
        future: &'a mut Option<Arc<dyn AnswerOrigin<T>>>,
    ) -> Self {
        Arriving {
            stage: Stage::Waits(condition),
            origin,
            future,
        }
    }

    /// Returns the result of a wait that is not parked.
    pub(super) fn into_result(self, outcome: Outcome) -> Result<T, WaitError> {
        self.stage.into_result(outcome)
    }
}

impl<K, C, R, T> ToPark<BoxedOperation> for Arriving<'_, K, C, T>
where
    K: WatchKey,
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    #[inline(always)]
    fn check(&mut self) -> bool {
        self.stage.check()
    }

    #[inline(always)]
    fn into_operation(self) -> BoxedOperation {
        let cell = Arc::new(Cell {
            stage: plain::Mutex::new(self.stage),
            slot: Mutex::new(Slot::Waiting(None)),
            is_deserted: AtomicBool::new(false),
            origin: Arc::downgrade(self.origin),
            purgatory: self.origin.number(),
        });
        *self.future = Some(cell.clone());
        BoxedOperation::wait(WaitOperation::new(cell))
    }
}
