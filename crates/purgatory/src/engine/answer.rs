//! Answers: the future's side, and endings that bring a value.
//!
//! An operation that a future waits for ends like any other. Its answer stays in its entry
//! ([`shard::answer`](crate::shard)), and what is called back wakes the task. A value that is there
//! already is put in under the lock under which the operation ends: *one lock hold* ends it,
//! answers it and takes the waker.

use std::{
    hash::Hash,
    sync::Arc,
    task::{Poll, Waker},
};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, nested::Call},
    error::WaitError,
    operation::{DelayedOperation, OperationId},
    shard::answer::{Abandoned, Completed},
    watches::WatchKey,
};

/// An operation whose future yields a `T`.
pub(crate) trait Yields<T>: DelayedOperation {
    /// Returns the answer of an operation that was answered.
    fn into_answer(self) -> Result<T, WaitError>;
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Polls for a future: takes the answer, or leaves `waker`; `None` stands for that of the last
    /// poll. One lock.
    #[inline]
    pub(crate) fn poll_answer<T>(
        &self,
        id: OperationId,
        mut waker: Option<Waker>,
    ) -> Poll<Result<T, WaitError>>
    where
        O: Yields<T>,
    {
        let handle = id.handle;
        let answered = self.first_shard_of(handle).poll(handle, &mut waker);
        // From here on nothing is locked. The waker is dropped that this one replaced, or this one.
        match answered {
            Some(answered) => {
                drop(answered.cold);
                Poll::Ready(answered.payload.into_answer())
            }
            None => Poll::Pending,
        }
    }

    /// Ends the wait of a future that is dropped: cancels its operation, or drops its answer.
    pub(crate) fn abandon(self: &Arc<Self>, id: OperationId) {
        let call = Call::enter(&self.executors);
        let now_ns = self.ending_at();
        let handle = id.handle;
        let abandoned = self.first_shard_of(handle).abandon(handle, now_ns);
        let Abandoned {
            cancelled,
            answered,
            waker,
        } = abandoned;
        if let Some(ended) = cancelled {
            self.finish(&call, ended);
        }
        drop(answered);
        drop(waker);
    }

    /// Delivers a value to the operation that waits alone for a key, and ends it as Completed:
    /// `put` turns the payload into the answer and returns the waker, under the lock. The key is
    /// free when this returns. Hands the value back if nothing waits.
    #[inline]
    pub(crate) fn deliver<Q: Hash + Equivalent<K> + ?Sized, V>(
        &self,
        key: &Q,
        value: V,
        put: impl FnOnce(&mut O, V) -> Option<Waker>,
    ) -> Result<(), V> {
        // 1. Find it, end it and answer it in one lock hold.
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return Err(value);
        };
        let mut value = Some(value);
        let completed = shard.complete_alone(record, now_ns, |payload| match value.take() {
            Some(value) => put(payload, value),
            None => None,
        });
        drop(shard);
        // 2. Return its key and its place, and wake its task.
        match completed {
            Some(completed) => self.finish_completed(completed),
            None => return value.map_or(Ok(()), Err),
        }
        Ok(())
    }

    /// Ends the operation that waits alone for a key as Completed. The value is still to be made,
    /// and then to be [put in](Self::put_answer).
    pub(crate) fn claim_alone<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
    ) -> Option<TimerHandle> {
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();
        let mut shard = self.shard_of(hash);
        let record = shard.find(key, hash)?;
        let handle = shard.first_waiter(record)?;
        let completed = shard.complete_alone(record, now_ns, |_| None);
        drop(shard);
        self.finish_completed(completed?);
        Some(handle)
    }

    /// Puts an answer in that was made after its operation had ended. Returns false if its future
    /// was dropped meanwhile.
    pub(crate) fn put_answer(
        &self,
        handle: TimerHandle,
        put: impl FnOnce(&mut O) -> Option<Waker>,
    ) -> bool {
        let answered = self.first_shard_of(handle).answer_ended(handle, put);
        let Some(waker) = answered else {
            return false;
        };
        self.wake(waker);
        true
    }

    /// Takes an operation that ended with a value off its other keys, returns its place, and wakes
    /// its task.
    #[inline]
    fn finish_completed(&self, completed: Completed<K>) {
        let mut last_secondary = completed.ended.last_secondary;
        if last_secondary.is_some() && !failpoint!(HandedOverStaysListed) {
            self.release_secondaries(&mut last_secondary, usize::MAX, drop);
        }
        drop(completed.ended.emptied_key);
        self.release_permit(Some(completed.ended.permit));
        self.wake(completed.waker);
    }

    /// Wakes a task, with nothing locked. A panic of the waker is contained and counted.
    #[inline]
    fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.call(|| waker.wake());
        }
    }
}
