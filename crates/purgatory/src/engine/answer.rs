//! Answers: the future's side, and endings that bring a value.
//!
//! An operation that a future waits for ends like any other. Its answer stays in its entry
//! ([`shard::answer`](crate::shard)), and in place of a callback the task is woken. An answer that
//! is there already is put in under the lock under which the operation ends: *one lock hold* ends
//! it, answers it and takes the waker. An answer that user code makes follows
//! ([`finish`](super::finish)).

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use timer_core::TimerHandle;

use crate::{
    engine::{Core, trampoline::Call},
    error::WaitError,
    operation::{CancelReason, DelayedOperation},
    shard::{NoAnswer, answer::AbandonedOperation},
    watches::WatchKey,
};

/// An operation whose future yields a `T`.
pub(crate) trait Yields<T>: DelayedOperation {
    /// Returns the answer of an operation that was answered.
    fn into_answer(self) -> Result<T, WaitError>;
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Polls for a future: takes the answer, or leaves the waker. One lock, and one more if another
    /// task polled last or the payload is out.
    #[inline(always)]
    pub(crate) fn poll_answer<T>(
        &self,
        handle: TimerHandle,
        waker: &Waker,
        is_first: bool,
    ) -> Poll<Result<T, WaitError>>
    where
        O: Yields<T>,
    {
        // A waker is cloned before the lock is taken, and dropped after that: wakers are user code.
        let mut clone = None;
        if is_first {
            clone = Some(waker.clone());
        }
        let polled = self.first_shard_of(handle).poll(handle, waker, &mut clone);
        match polled {
            Ok(answered) => {
                if let Some(cold) = answered.cold {
                    self.drop_cold(cold);
                }
                match answered.payload {
                    Some(payload) => Poll::Ready(payload.into_answer()),
                    None => unreachable!("it was answered"),
                }
            }
            Err(NoAnswer::Pending) => Poll::Pending,
            Err(NoAnswer::NewTask) => self.poll_for_new_task(handle, waker),
            Err(NoAnswer::Lost) => Poll::Ready(Err(WaitError::Cancelled(CancelReason::Panicked))),
        }
    }

    /// Polls for a future whose last poll was another task's.
    #[cold]
    #[inline(never)]
    fn poll_for_new_task<T>(&self, handle: TimerHandle, waker: &Waker) -> Poll<Result<T, WaitError>>
    where
        O: Yields<T>,
    {
        self.poll_answer(handle, waker, true)
    }

    /// Ends the wait of a future that is dropped: cancels its operation, or drops its answer.
    pub(crate) fn abandon(self: &Arc<Self>, handle: TimerHandle) {
        let call = Call::enter(&self.job_executor);
        let now_ns = self.ending_at();
        let abandoned = self.first_shard_of(handle).abandon(handle, now_ns);
        // From here on nothing is locked. A panic of what is dropped keeps nothing from its end.
        self.call(|| drop(abandoned.waker));
        match abandoned.operation {
            AbandonedOperation::Cancelled(ended) => {
                self.finish(&call, ended);
            }
            AbandonedOperation::HadEnded(answered) => {
                if let Some(cold) = answered.cold {
                    self.drop_cold(cold);
                }
                self.call(|| drop(answered.payload));
            }
            AbandonedOperation::LeftAlone => {}
        }
    }
}
