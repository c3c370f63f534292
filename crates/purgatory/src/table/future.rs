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
    operation::{Outcome, Timeout},
    origin::{AnswerOrigin, Pending},
    sync::Spaced,
    table::{
        Ended, Engine, Inside, LockedShard, Table,
        shard::{Entry, EntryState},
    },
};

/// An engine whose answers become a `T` as a future takes them.
pub(crate) trait Yields<T>: Engine {
    /// Makes what the future yields, with nothing locked.
    fn yielded(table: &Arc<Table<Self>>, at: TimerHandle, answer: Self::Answer) -> T;
}

/// A form, as seen by a stream of several answers that drops those that it has not yielded.
pub(crate) trait DropsInTurn: Send + Sync {
    /// Drops values in turn, so that a chain needs no stack. `drop_one` drops one value and returns
    /// false once there is none; a panic in it does not affect the others.
    fn drop_in_turn(&self, drop_one: Box<dyn FnMut() -> bool + Send>);
}

impl<E: Engine> DropsInTurn for Spaced<Arc<Table<E>>> {
    fn drop_in_turn(&self, mut drop_one: Box<dyn FnMut() -> bool + Send>) {
        self.frame.enter().in_turn(self, move |table| {
            let mut has_more = true;
            while has_more {
                table.frame.call(|| has_more = drop_one());
            }
        });
    }
}

impl<E: Engine> Table<E> {
    /// Ends the wait of a future that was dropped or gives up, or takes its answer back. The waker
    /// and the answer are dropped in turn, so that a chain of tasks or values, each of which drops
    /// the next one's future, needs no stack.
    pub(crate) fn abandon(self: &Arc<Self>, at: TimerHandle, outcome: &Outcome) {
        let call = self.frame.enter();
        let mut batch = self.batch();
        let mut at = at;
        let mut shard = self.lock(at.shard());
        let mut removed = shard.remove(at.id());
        if let Some(EntryState::Moved(forwarding)) = removed.as_ref().map(|entry| &entry.state) {
            drop(shard);
            (shard, at) = self.lock_forwarded(forwarding);
            removed = shard.remove(at.id());
        }
        let Some(Entry { since_ns, state }) = removed else {
            return;
        };
        match state {
            EntryState::Waits { wait, waker } => {
                shard.count_end(outcome, since_ns, batch.ended_at);
                let engine = &self.engine;
                let left = engine.leave(&mut shard, at.id(), wait, outcome, &mut batch);
                engine.settle(&mut shard, &mut batch);
                drop(shard);
                batch.ended.push(Ended { waker: None, left });
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(waker));
            }
            EntryState::Answered(Ok(answer)) => {
                let untaken = self.engine.put_back(&mut shard, answer, &mut batch);
                drop(shard);
                self.finish_all(&call, batch);
                self.call_in_turn(&call, || drop(untaken));
            }
            EntryState::Answered(Err(error)) => {
                drop(shard);
                self.call_in_turn(&call, || drop(error));
            }
            EntryState::Moved(_) => {}
        }
    }
}

/// Polls a wait that has moved from this shard, or has ended, in one lock hold of its present
/// shard, since it may move on after that. Taking its answer removes its first entry.
#[cold]
fn poll_where_it_is<'a, E: Yields<T>, T>(
    table: &'a Spaced<Arc<Table<E>>>,
    shard: LockedShard<'a, E>,
    pending: &mut Pending,
    mut unused: Option<Waker>,
) -> Poll<Result<T, WaitError>> {
    if failpoint!(PollStaysBehind) {
        return Poll::Pending;
    }
    // 1. Leave the waker, or take the answer or error.
    let first = pending.id.handle();
    let (mut shard, at) = table.follow(shard, first);
    let mut ended = None;
    if let Some(last) = shard.waker_mut(at.id()) {
        mem::swap(last, &mut unused);
    } else if let Some(answer) = shard.take_answer(at.id()) {
        ended = Some(Ok(answer));
    } else if let Some(error) = shard.take_error(at.id()) {
        ended = Some(Err(error));
    }
    drop(shard);
    table.frame.call(|| drop(unused));
    // 2. If it has ended, free the first entry, unless the answer was there.
    let Some(ended) = ended else {
        return Poll::Pending;
    };
    if at != first {
        table.lock(first.shard()).remove(first.id());
    }
    pending.finish();
    Poll::Ready(ended.map(|answer| E::yielded(table, at, answer)))
}

impl<E: Yields<T>, T> AnswerOrigin<T> for Spaced<Arc<Table<E>>> {
    fn poll_first(&self, pending: &mut Pending, waker: &Waker) -> Poll<Result<T, WaitError>> {
        // 1. Clone the waker before the lock is taken, and drop the old one after the unlock.
        let mut unused = Some(waker.clone());
        let at = pending.id.handle();
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
        // 2. The wait has ended, or moved.
        poll_where_it_is(self, shard, pending, unused)
    }

    fn poll_later(&self, pending: &mut Pending, waker: &Waker) -> Poll<Result<T, WaitError>> {
        // 1. Nearly always, the answer is there.
        let handle = pending.id.handle();
        let mut shard = self.lock(handle.shard());
        if let Some(answer) = shard.take_answer(handle.id()) {
            drop(shard);
            pending.finish();
            return Poll::Ready(Ok(E::yielded(self, handle, answer)));
        }
        if let Some(error) = shard.take_error(handle.id()) {
            drop(shard);
            pending.finish();
            return Poll::Ready(Err(error));
        }
        // 2. The wait goes on, or has moved.
        let is_known = match shard.waker_mut(handle.id()) {
            Some(_) if failpoint!(PollLeavesNoWaker) => true,
            Some(_) if failpoint!(FirstWakerStays) => true,
            Some(Some(last)) => last.will_wake(waker),
            Some(None) => false,
            None => shard.forwarding(handle.id()).is_none(), // nothing is left to wait for
        };
        drop(shard);
        if is_known {
            return Poll::Pending;
        }
        self.poll_first(pending, waker)
    }

    fn abandon(&self, handle: TimerHandle, outcome: &Outcome) {
        Table::abandon(self, handle, outcome);
    }

    fn reschedule(&self, handle: TimerHandle, timeout: Timeout) -> bool {
        E::reschedule(self, handle, timeout)
    }

    fn must_not_block(&self) -> bool {
        self.frame.wait_must_not_block()
    }
}
