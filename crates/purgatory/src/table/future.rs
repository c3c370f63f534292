//! The side of a future: its polls, and its drop. A waker is cloned, woken and dropped with nothing
//! locked.

use std::{
    mem,
    sync::Arc,
    task::{Poll, Waker},
};

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome, Timeout},
    origin::{AnswerOrigin, Progress},
    sync::Spaced,
    table::{Batch, Ended, Engine, Table, shard::EntryState},
};

/// An engine whose answers become a `T` as a future takes them.
pub(crate) trait Yields<T>: Engine {
    /// Makes what the future yields, with nothing locked.
    fn yielded(table: &Arc<Table<Self>>, at: TimerHandle, answer: Self::Answer) -> T;
}

impl<E: Engine> Table<E> {
    /// Polls for the first time: leaves a clone of the waker, or takes an answer that came before.
    #[inline(never)] // a later poll saves and restores none of its registers
    fn poll_first<T>(
        self: &Arc<Self>,
        at: TimerHandle,
        waker: &Waker,
        progress: &mut Progress,
    ) -> Poll<Result<T, WaitError>>
    where
        E: Yields<T>,
    {
        // 1. A waker is cloned before the lock is taken, and dropped after that.
        let mut unused = Some(waker.clone());
        let mut shard = self.lock(at.shard());
        if let Some(last) = shard.waker_mut(at.id()) {
            if !failpoint!(PollLeavesNoWaker) {
                mem::swap(last, &mut unused);
            }
            drop(shard);
            if unused.is_some() {
                self.frame.call(|| drop(unused));
            }
            return Poll::Pending;
        }
        // 2. It has ended, or is elsewhere.
        let mut answer = shard.take_answer(at.id());
        drop(shard);
        self.frame.call(|| drop(unused));
        if answer.is_none() {
            answer = self.poll_again(at, waker);
        }
        self.polled(at, answer, progress)
    }

    /// Makes what the future yields.
    #[inline(always)]
    fn polled<T>(
        self: &Arc<Self>,
        at: TimerHandle,
        answer: Option<Result<E::Answer, WaitError>>,
        progress: &mut Progress,
    ) -> Poll<Result<T, WaitError>>
    where
        E: Yields<T>,
    {
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        progress.finish();
        match answer {
            Ok(answer) => Poll::Ready(Ok(E::yielded(self, at, answer))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Polls once more: takes the answer, unless the wait goes on. A waker that is not that of the
    /// last poll is another task's.
    #[inline(never)] // as `poll_first`
    fn poll_later<T>(
        self: &Arc<Self>,
        at: TimerHandle,
        waker: &Waker,
        progress: &mut Progress,
    ) -> Poll<Result<T, WaitError>>
    where
        E: Yields<T>,
    {
        let mut shard = self.lock(at.shard());
        if let Some(answer) = shard.take_answer(at.id()) {
            drop(shard);
            return self.polled(at, Some(answer), progress);
        }
        let is_known = match shard.waker_mut(at.id()) {
            Some(_) if failpoint!(PollLeavesNoWaker) => true,
            Some(_) if failpoint!(FirstWakerStays) => true,
            Some(Some(last)) => last.will_wake(waker),
            Some(None) | None => false,
        };
        drop(shard);
        if is_known {
            return Poll::Pending;
        }
        let answer = self.poll_again(at, waker);
        self.polled(at, answer, progress)
    }

    /// Polls until a clone of the waker is left, or the answer is there: follows a wait that has
    /// moved. With its answer the entries go that it has left behind.
    #[cold]
    fn poll_again(
        self: &Arc<Self>,
        parked_at: TimerHandle,
        waker: &Waker,
    ) -> Option<Result<E::Answer, WaitError>> {
        let mut at = parked_at;
        let mut unused = Some(waker.clone());
        let answer = loop {
            let mut shard = self.lock(at.shard());
            if let Some(answer) = shard.take_answer(at.id()) {
                break Some(answer);
            }
            match shard.moved_to(at.id()) {
                Some(_) if failpoint!(PollStaysBehind) => break None,
                Some(to) => at = to,
                None => {
                    if let Some(last) = shard.waker_mut(at.id()) {
                        mem::swap(last, &mut unused);
                    }
                    break None;
                }
            }
        };
        self.frame.call(|| drop(unused));
        if answer.is_some() && at != parked_at {
            self.abandon(parked_at);
        }
        answer
    }

    /// Ends the wait of a future that is dropped, or takes its answer back. What is dropped with it is
    /// dropped in turn, so that a chain of tasks or values that each drop the next one's future needs
    /// no stack.
    pub(crate) fn abandon(self: &Arc<Self>, at: TimerHandle) {
        let call = self.frame.enter();
        let now_ns = self.frame.ending_at();
        let mut batch = Batch::new();
        let mut at = at;
        let mut shard = self.lock(at.shard());
        let mut abandoned = shard.abandon(at.id(), now_ns);
        while let Some(EntryState::Moved(to)) = abandoned {
            drop(shard);
            at = to;
            shard = self.lock(at.shard());
            abandoned = shard.abandon(at.id(), now_ns);
        }
        match abandoned {
            Some(EntryState::Waits { wait, waker }) => {
                let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
                let left =
                    self.engine
                        .leave(&mut shard, at.id(), wait, &dropped, now_ns, &mut batch);
                self.engine.settle(&mut shard, now_ns, &mut batch);
                drop(shard);
                batch.push(Ended { waker: None, left });
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(waker));
            }
            Some(EntryState::Answered(Ok(answer))) => {
                let untaken = self.engine.put_back(&mut shard, answer, now_ns, &mut batch);
                drop(shard);
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(untaken));
            }
            Some(EntryState::Answered(Err(error))) => {
                drop(shard);
                self.call_in_turn(&call, || drop(error));
            }
            Some(EntryState::Moved(_)) | None => {}
        }
    }
}

impl<E: Yields<T>, T> AnswerOrigin<T> for Spaced<Arc<Table<E>>> {
    #[inline]
    fn poll(
        &self,
        handle: TimerHandle,
        waker: &Waker,
        progress: &mut Progress,
    ) -> Poll<Result<T, WaitError>> {
        if progress.begin() {
            self.poll_first(handle, waker, progress)
        } else {
            self.poll_later(handle, waker, progress)
        }
    }

    fn abandon(&self, handle: TimerHandle) {
        Table::abandon(self, handle);
    }

    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        Table::reschedule(self, handle, timeout)
    }

    fn must_not_block(&self) -> bool {
        self.frame.wait_must_not_block()
    }
}
