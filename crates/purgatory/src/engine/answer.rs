//! Answers: the future's side, and endings that bring a value.
//!
//! An operation that a future waits for ends like any other. Its answer stays in its entry
//! ([`shard::answer`](crate::shard)), and in place of a callback the task is woken. An answer that
//! is there already is put in under the lock under which the operation ends: *one lock hold* ends
//! it, answers it and takes the waker. An answer that user code makes follows
//! ([`finish`](super::finish)).

use std::{
    hash::Hash,
    sync::Arc,
    task::{Poll, Waker},
};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, trampoline::Call},
    error::WaitError,
    operation::{CancelReason, DelayedOperation},
    shard::{
        Answered, NoAnswer,
        answer::{AbandonedOperation, Completed},
    },
    watches::WatchKey,
};

/// An operation whose future yields a `T`.
pub(crate) trait Yields<T>: DelayedOperation {
    /// Returns the answer of an operation that was answered.
    fn into_answer(self) -> Result<T, WaitError>;
}

/// The end of a wait whose future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandonment {
    /// The drop cancelled it.
    Cancelled,
    /// It had ended without a value or was taken out, or another operation had taken its place. Or
    /// it was held: its holder passes its turn on if its check comes true.
    Failed,
    /// It had a value that nobody takes, or may still get one.
    Untaken,
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
    pub(crate) fn abandon<T>(self: &Arc<Self>, handle: TimerHandle) -> Abandonment
    where
        O: Yields<T>,
    {
        let call = Call::enter(&self.job_executor);
        let now_ns = self.ending_at();
        let abandoned = self.first_shard_of(handle).abandon(handle, now_ns);
        // From here on nothing is locked. A panic of what is dropped keeps nothing from its end.
        self.call(|| drop(abandoned.waker));
        match abandoned.operation {
            AbandonedOperation::Cancelled(ended) => {
                self.finish(&call, ended);
                Abandonment::Cancelled
            }
            AbandonedOperation::HadEnded(answered) => self.drop_answer(answered),
            AbandonedOperation::LeftAlone => Abandonment::Failed,
        }
    }

    /// Drops the answer of a wait whose future is dropped.
    fn drop_answer<T>(&self, answered: Answered<O>) -> Abandonment
    where
        O: Yields<T>,
    {
        // 1. An answer that is out, to be made, may be a value.
        if let Some(cold) = answered.cold {
            self.drop_cold(cold);
        }
        let Some(mut payload) = answered.payload else {
            return if answered.has_no_turn {
                Abandonment::Failed
            } else {
                Abandonment::Untaken
            };
        };

        // 2. Drop the answer that is there. A value that is still being made is none.
        let mut abandonment = Abandonment::Untaken;
        let is_made = payload.waker().is_none();
        self.call(|| {
            if is_made && payload.into_answer().is_err() {
                abandonment = Abandonment::Failed;
            }
        });
        abandonment
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
        let Some(completed) = completed else {
            drop(shard);
            return value.map_or(Ok(()), Err);
        };
        // 2. Return its place and its key, and wake its task.
        self.unlock_answered(shard, completed.to_release.weight);
        self.finish_completed(completed);
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
        let completed = shard.complete_alone(record, now_ns, |_| None)?;
        self.unlock_answered(shard, completed.to_release.weight);
        self.finish_completed(completed);
        Some(handle)
    }

    /// Puts a value in that was made after its operation had ended, as [`deliver`](Self::deliver)
    /// does. Hands the value back if its future was dropped meanwhile.
    pub(crate) fn put_answer<V>(
        &self,
        handle: TimerHandle,
        value: V,
        put: impl FnOnce(&mut O, V) -> Option<Waker>,
    ) -> Result<(), V> {
        // A value that is not put in is dropped with nothing locked: it stays out here.
        let mut value = Some(value);
        let mut first_shard = self.first_shard_of(handle);
        let answered = first_shard.answer_ended(handle, |payload| match value.take() {
            Some(value) => put(payload, value),
            None => None,
        });
        drop(first_shard);
        if let Some(waker) = answered {
            self.wake(waker);
        }
        value.map_or(Ok(()), Err)
    }

    /// Takes an operation that ended with a value off its other keys, and wakes its task.
    #[inline]
    fn finish_completed(&self, completed: Completed<K>) {
        let mut last_secondary = completed.to_release.last_secondary;
        if last_secondary.is_some() && !failpoint!(HandedOverStaysListed) {
            self.release_secondaries(&mut last_secondary, usize::MAX, drop);
        }
        drop(completed.to_release.emptied_key);
        self.wake(completed.waker);
    }
}
