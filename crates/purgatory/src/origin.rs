//! Origins: a future's view of the place that its answer comes from. The future holds nothing but
//! its origin and the id of its operation ([`PendingAnswer`]).

use std::{
    mem,
    sync::Arc,
    task::{Poll, Waker},
};

use timer_core::{TimerHandle, driver::spend_budget};

use crate::{
    error::WaitError,
    operation::{CancelReason, FUTURE_DROPPED, OperationId, Outcome, Timeout},
};

/// The message of a poll that panics.
pub(crate) const OVER: &str = "a wait was polled after it was over";

/// How far a future is with its answer. As wide as a word, since a future is moved in whole words.
#[repr(usize)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No poll has left a waker.
    Unpolled,
    Polled,
    /// A poll has taken the answer.
    Over,
}

/// The answer that a future waits for, as its origin sees it.
pub(crate) struct Pending {
    /// The id of the operation.
    pub(crate) id: OperationId,
    progress: Progress,
}

impl Pending {
    /// Records that the answer is taken. A tokio task pays for it from its budget (feature
    /// `tokio`).
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.progress = Progress::Over;
        spend_budget();
    }
}

/// The place that a future's answer comes from, without the types of its keys and operations. It
/// does not keep the purgatory open.
pub(crate) trait AnswerOrigin<T>: Send + Sync {
    /// Polls for a task whose waker is not here yet: leaves a clone of the waker, or takes the
    /// answer and finishes `pending`. The future returns this result unseen: a look at it on the
    /// way would copy it.
    fn poll_first(&self, pending: &mut Pending, waker: &Waker) -> Poll<Result<T, WaitError>>;
    /// Polls again: keeps the waker of the last poll if this one wakes the same task. Otherwise it
    /// polls as for the first time.
    fn poll_later(&self, pending: &mut Pending, waker: &Waker) -> Poll<Result<T, WaitError>> {
        self.poll_first(pending, waker)
    }
    /// Returns true if the answer is kept in the origin itself, which only the future owns once the
    /// answer is there.
    fn keeps_answer(&self) -> bool {
        false
    }
    /// Takes the answer, without a lock, out of an origin that keeps it and that only the future
    /// owns.
    fn into_answer(self: Arc<Self>) -> Result<T, WaitError> {
        Err(PANICKED)
    }
    /// Ends the operation of a future that no longer waits, or drops its answer.
    fn abandon(&self, handle: TimerHandle, outcome: &Outcome);
    /// Reschedules the operation.
    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool;
    /// Returns true where a blocking wait might wait for the calling thread. In debug builds, warns
    /// where it would block a runtime's tasks.
    fn must_not_block(&self) -> bool;
}

/// The answer of an operation that is gone and left none.
pub(crate) const PANICKED: WaitError = WaitError::Cancelled(CancelReason::Panicked);

/// The answer that a future waits for. Dropping it before the answer is taken ends the wait.
pub(crate) struct PendingAnswer<T> {
    /// `None` once a poll has taken the answer with its origin.
    origin: Option<Arc<dyn AnswerOrigin<T>>>,
    pending: Pending,
}

impl<T> PendingAnswer<T> {
    /// Makes the answer of a parked operation.
    pub(crate) fn new(origin: Arc<dyn AnswerOrigin<T>>, id: OperationId) -> Self {
        PendingAnswer {
            origin: Some(origin),
            pending: Pending {
                id,
                progress: Progress::Unpolled,
            },
        }
    }

    /// Takes the answer, or leaves the waker.
    ///
    /// # Panics
    /// When a poll has taken the answer.
    #[inline(always)]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<T, WaitError>> {
        let origin = self.origin.as_ref().expect(OVER);
        let is_first = match self.pending.progress {
            Progress::Unpolled => true,
            Progress::Polled => false,
            Progress::Over => panic!("{OVER}"),
        };
        self.pending.progress = Progress::Polled;
        // Reading the count is cheap. Once it is 1, no other thread can clone the origin.
        if !is_first && Arc::strong_count(origin) == 1 && origin.keeps_answer() {
            let alone = self.origin.take().expect(OVER);
            self.pending.finish();
            return Poll::Ready(alone.into_answer());
        }
        if is_first {
            origin.poll_first(&mut self.pending, waker)
        } else {
            origin.poll_later(&mut self.pending, waker)
        }
    }

    /// Returns the id of the operation.
    pub(crate) fn id(&self) -> OperationId {
        self.pending.id
    }

    /// Reschedules the operation, unless it has ended.
    pub(crate) fn reschedule(&self, timeout: Timeout) -> bool {
        match &self.origin {
            Some(origin) => origin.reschedule(self.pending.id.handle(), timeout),
            None => false,
        }
    }

    /// Ends the operation, or drops its answer unless a poll has taken it. This is the last call.
    pub(crate) fn abandon(&mut self, outcome: &Outcome) {
        let before = mem::replace(&mut self.pending.progress, Progress::Over);
        let is_over = before == Progress::Over;
        if let Some(origin) = self.origin.as_ref().filter(|_| !is_over) {
            if !failpoint!(DroppedFutureLeavesOperation) {
                origin.abandon(self.pending.id.handle(), outcome);
            }
        }
    }

    /// Returns true where a blocking wait might wait for the calling thread.
    pub(crate) fn must_not_block(&self) -> bool {
        let origin = self.origin.as_ref();
        origin.is_some_and(|origin| origin.must_not_block())
    }
}

impl<T> Drop for PendingAnswer<T> {
    #[inline]
    fn drop(&mut self) {
        self.abandon(&FUTURE_DROPPED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> PendingAnswer<T> {
        /// Returns the origin, so that the future is not its only owner.
        pub(crate) fn origin(&self) -> Arc<dyn AnswerOrigin<T>> {
            self.origin.clone().expect(OVER)
        }
    }
}
