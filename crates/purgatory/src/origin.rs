//! Origins: a future's view of the place that its answer comes from. The future holds nothing but
//! its origin and the handle of its entry ([`PendingAnswer`]).

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::{OperationId, Timeout},
};

/// The place that a future's answer comes from, whatever the keys and operations there. It does not
/// keep the purgatory open.
pub(crate) trait AnswerOrigin<T>: Send + Sync {
    /// Takes the answer, or leaves the waker. `is_first`: no poll has left one before.
    fn poll(
        &self,
        handle: TimerHandle,
        waker: &Waker,
        is_first: bool,
    ) -> Poll<Result<T, WaitError>>;
    /// Takes the answer of an origin that is the future's alone, without a lock; `None` if it is not
    /// there, or not kept in the origin.
    fn take_alone(&mut self) -> Option<Result<T, WaitError>> {
        None
    }
    /// Cancels the operation of a future that was dropped, or drops its answer.
    fn abandon(&self, handle: TimerHandle);
    /// Returns the public name of the operation.
    fn id(&self, handle: TimerHandle) -> OperationId;
    /// Reschedules the operation.
    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool;
    /// Returns true where a blocking wait might wait for the calling thread. In debug builds, warns
    /// where it would block a runtime's tasks.
    fn must_not_block(&self) -> bool;
}

/// The polls of a future until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polls {
    NotPolled,
    /// The last one has left its waker.
    Polled,
    /// The last one has taken the answer.
    Ready,
}

/// The answer that a future waits for. Dropped untaken, it ends the wait.
pub(crate) struct PendingAnswer<T> {
    origin: Arc<dyn AnswerOrigin<T>>,
    handle: TimerHandle,
    polls: Polls,
}

impl<T> PendingAnswer<T> {
    /// Makes the answer of a parked operation.
    pub(crate) fn new(origin: Arc<dyn AnswerOrigin<T>>, handle: TimerHandle) -> Self {
        PendingAnswer {
            origin,
            handle,
            polls: Polls::NotPolled,
        }
    }

    /// Returns true once a poll has taken the answer.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.polls == Polls::Ready
    }

    /// Takes the answer, or leaves the waker.
    #[inline]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<T, WaitError>> {
        let is_first = self.polls == Polls::NotPolled;
        let polled = match self.take_alone() {
            Some(answer) => Poll::Ready(answer),
            None => self.origin.poll(self.handle, waker, is_first),
        };
        self.polls = match polled {
            Poll::Ready(_) => Polls::Ready,
            Poll::Pending => Polls::Polled,
        };
        polled
    }

    /// Takes the answer, if nobody else has the origin and it is there.
    #[inline]
    fn take_alone(&mut self) -> Option<Result<T, WaitError>> {
        // To read the count is cheap. To be sure takes an atomic instruction.
        if Arc::strong_count(&self.origin) > 1 {
            return None;
        }
        Arc::get_mut(&mut self.origin)?.take_alone()
    }

    /// Returns the origin, so that the future is not alone with it.
    #[cfg(test)]
    pub(crate) fn origin(&self) -> Arc<dyn AnswerOrigin<T>> {
        self.origin.clone()
    }

    /// Returns the name of the operation.
    pub(crate) fn id(&self) -> OperationId {
        self.origin.id(self.handle)
    }

    /// Reschedules the operation.
    pub(crate) fn reschedule(&self, timeout: Timeout) -> bool {
        self.origin.reschedule(self.handle, timeout)
    }

    /// Returns true where a blocking wait might wait for the calling thread.
    pub(crate) fn must_not_block(&self) -> bool {
        self.origin.must_not_block()
    }
}

impl<T> Drop for PendingAnswer<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over() && !failpoint!(DroppedFutureLeavesOperation) {
            self.origin.abandon(self.handle);
        }
    }
}
