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
    operation::{CancelReason, OperationId, Outcome, Timeout},
    origin::AnswerOrigin,
    sync::Spaced,
    table::{
        Batch, Ended, Engine, Table,
        shard::{Abandoned, Entry, EntryState},
    },
};

/// An engine whose answers become a `T` as a future takes them.
pub(crate) trait Yields<T>: Engine {
    /// Makes what the future yields, with nothing locked.
    fn yielded(table: &Arc<Table<Self>>, at: TimerHandle, answer: Self::Answer) -> T;
}

/// A look of a poll at the entry of its wait.
enum Polled<T> {
    /// It has ended, and its entry is gone.
    Answered(Result<T, WaitError>),
    /// The waker is left there, or was there.
    Left,
    /// It needs a clone of the waker, or is in another shard.
    Again(TimerHandle),
}

impl<E: Engine> Table<E> {
    /// Takes the answer for a future, or leaves the waker. `is_first`: no poll has left one before.
    #[inline(always)]
    fn poll_answer(
        &self,
        at: TimerHandle,
        waker: &Waker,
        is_first: bool,
    ) -> Poll<Result<E::Answer, WaitError>> {
        // The first poll clones before it locks. A later one finds out whether it is another
        // task's.
        let mut clone = None;
        if is_first {
            clone = Some(waker.clone());
        }
        match self.poll_once::<false>(at, waker, &mut clone) {
            Polled::Answered(answer) => Poll::Ready(answer),
            Polled::Left => {
                if let Some(old) = clone {
                    self.call(|| drop(old));
                }
                Poll::Pending
            }
            // Apart, since a loop around all costs each poll 40 instructions.
            Polled::Again(at) => self.poll_again(at, waker, clone),
        }
    }

    /// Polls as [`poll_answer`](Self::poll_answer) does, with a clone, until it is left.
    #[cold]
    fn poll_again(
        &self,
        at: TimerHandle,
        waker: &Waker,
        clone: Option<Waker>,
    ) -> Poll<Result<E::Answer, WaitError>> {
        let mut at = at;
        let mut clone = clone;
        loop {
            clone.get_or_insert_with(|| waker.clone());
            match self.poll_once::<true>(at, waker, &mut clone) {
                Polled::Answered(answer) => return Poll::Ready(answer),
                Polled::Left => break,
                Polled::Again(next) => at = next,
            }
        }
        self.call(|| drop(clone));
        Poll::Pending
    }

    /// Takes an answer out of its entry; or leaves the clone there, if there is one, for the waker
    /// that was there, which is to be dropped unlocked. `AGAIN` gives each caller a copy of its own,
    /// whose steps are put into the caller: shared, they would be called.
    #[inline(always)]
    fn poll_once<const AGAIN: bool>(
        &self,
        at: TimerHandle,
        waker: &Waker,
        clone: &mut Option<Waker>,
    ) -> Polled<E::Answer> {
        let mut again = None;
        let is_answered = |entry: &mut Entry<E>| match &mut entry.state {
            EntryState::Answered(_) => true,
            EntryState::Waits { waker: last, .. } => {
                if clone.is_some() && !failpoint!(PollLeavesNoWaker) {
                    mem::swap(last, clone);
                } else {
                    let is_known = last.as_ref().is_some_and(|last| last.will_wake(waker));
                    again = Some(at).filter(|_| !is_known);
                    if failpoint!(FirstWakerStays) {
                        again = None;
                    }
                    if failpoint!(PollLeavesNoWaker) {
                        again = None;
                    }
                }
                false
            }
            EntryState::Moved(to) => {
                again = Some(*to);
                if failpoint!(PollStaysBehind) {
                    again = None;
                }
                false
            }
        };
        let mut shard = self.lock(at.shard());
        let taken = shard
            .wheel
            .cancel_if(at.id(), is_answered, Entry::into_answer);
        if let Some(Some(answer)) = taken {
            shard.count_taken();
            return Polled::Answered(answer);
        }
        match again {
            Some(at) => Polled::Again(at),
            None => Polled::Left,
        }
    }

    /// Ends the wait of a future that is dropped, or takes its answer back. What is dropped with it is
    /// dropped in turn, so that a chain of tasks or values that each drop the next one's future needs
    /// no stack.
    pub(crate) fn abandon(self: &Arc<Self>, at: TimerHandle) {
        let call = self.enter();
        let now_ns = self.ending_at();
        let mut batch = Batch::new();
        let mut at = at;
        let mut shard = self.lock(at.shard());
        let mut abandoned = shard.abandon(at.id(), now_ns);
        while let Some(Abandoned::Moved(to)) = abandoned {
            drop(shard);
            at = to;
            shard = self.lock(at.shard());
            abandoned = shard.abandon(at.id(), now_ns);
        }
        match abandoned {
            Some(Abandoned::Waited(taken)) => {
                let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
                let left = self.engine.leave(
                    &mut shard,
                    at.id(),
                    taken.wait,
                    &dropped,
                    now_ns,
                    &mut batch,
                );
                self.engine.settle(&mut shard, now_ns, &mut batch);
                drop(shard);
                batch.push(Ended { waker: None, left });
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(taken.waker));
            }
            Some(Abandoned::Untaken(Ok(answer))) => {
                let untaken = self.engine.put_back(&mut shard, answer, now_ns, &mut batch);
                drop(shard);
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(untaken));
            }
            Some(Abandoned::Untaken(Err(error))) => {
                drop(shard);
                self.call_in_turn(&call, || drop(error));
            }
            Some(Abandoned::Moved(_)) | None => {}
        }
    }
}

impl<E: Yields<T>, T> AnswerOrigin<T> for Spaced<Arc<Table<E>>> {
    #[inline]
    fn poll(
        &self,
        handle: TimerHandle,
        waker: &Waker,
        is_first: bool,
    ) -> Poll<Result<T, WaitError>> {
        match self.poll_answer(handle, waker, is_first) {
            Poll::Ready(Ok(answer)) => Poll::Ready(Ok(E::yielded(self, handle, answer))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn abandon(&self, handle: TimerHandle) {
        Table::abandon(self, handle);
    }

    fn id(&self, handle: TimerHandle) -> OperationId {
        Table::id(self, handle)
    }

    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        Table::reschedule(self, handle, timeout)
    }

    fn must_not_block(&self) -> bool {
        let must_not = self.executor.must_not_block();
        if cfg!(debug_assertions) && !must_not {
            self.cold().warned.blocks_runtime(&self.name);
        }
        must_not
    }
}
