//! Futures on one thread: [`LocalPurgatory::wait`]. As in a shared purgatory the operation and the
//! future share an answer: the operation fills it or the future leaves it, whichever comes first.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use timer_core::driver::{contain, drop_each};

use super::{core::Core, purgatory::LocalPurgatory};
use crate::{
    face::{
        boxed::LocalBoxed,
        wait::{Answer, WaitError, yielded},
    },
    words::{
        operation::{CancelReason, DelayedOperation, OperationId, Outcome, ParkResult, Timeout},
        watches::{WatchKey, Watches},
    },
};

type Shared<T> = Rc<RefCell<Answer<T>>>;

/// The operation behind a wait.
struct Waiting<C, T> {
    condition: C,
    value: Option<T>,
    end: End<T>,
}

/// The operation's side of the answer. Dropped unfilled, because the condition panicked or the
/// operation was refused, it says so.
struct End<T> {
    answer: Shared<T>,
    filled: bool,
}

impl<C: FnMut() -> Option<T> + 'static, T: 'static> DelayedOperation for Waiting<C, T> {
    fn try_complete(&mut self) -> bool {
        self.value = (self.condition)();
        self.value.is_some()
    }

    fn on_complete(self, outcome: Outcome) {
        let Waiting { mut condition, value, mut end } = self;
        let result = yielded(outcome, || value.or_else(&mut condition));
        end.fill(result);
    }
}

impl<T> End<T> {
    /// Nothing is borrowed while the task is woken, or a value dropped that nobody takes.
    fn fill(&mut self, result: Result<T, WaitError>) {
        self.filled = true;
        let mut answer = self.answer.borrow_mut();
        if let Answer::Waiting(waker) = &mut *answer {
            let waker = waker.take();
            *answer = Answer::Filled(result);
            drop(answer);
            waker.into_iter().for_each(std::task::Waker::wake);
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        if !self.filled {
            // The condition's panic may be under way: a waker's must not meet it.
            let _ = contain(|| self.fill(Err(WaitError::Cancelled(CancelReason::Panicked))));
        }
    }
}

/// A purgatory as its futures see it. They do not keep it open.
trait Behind {
    fn cancel(&self, id: OperationId);
}

impl<K: WatchKey> Behind for Core<K, LocalBoxed> {
    fn cancel(&self, id: OperationId) {
        let reason = CancelReason::Requested("the future was dropped".into());
        self.end(id, Outcome::Cancelled(reason));
    }
}

/// A future of the value that a parked condition yields, on the thread of its purgatory. Made by
/// [`LocalPurgatory::wait`].
///
/// # Cancel safety
/// Dropping it cancels the wait: the operation leaves the purgatory at once or, while its condition
/// runs, when that is over. A value that had been yielded but not taken is dropped. Polling it
/// without awaiting its end loses nothing.
///
/// A future does not keep its purgatory open: when the last handle goes, the wait ends as
/// Cancelled.
///
/// # Panics
/// When polled again after it was ready.
#[must_use = "dropped, it cancels the wait"]
pub struct LocalWait<T> {
    answer: Shared<T>,
    /// Where it waits, until it is over.
    behind: Option<Rc<dyn Behind>>,
    /// Its name there, if it was parked.
    id: Option<OperationId>,
}

impl<T> LocalWait<T> {
    /// The operation's name, to complete, cancel or reschedule it by; `None` when it was over at
    /// once.
    pub fn id(&self) -> Option<OperationId> {
        self.id
    }
}

impl<T> Future for LocalWait<T> {
    type Output = Result<T, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone(); // wakers are user code: none runs under the borrow
        let mut answer = self.answer.borrow_mut();
        let before = match &mut *answer {
            Answer::Waiting(kept) => {
                let replaced = kept.replace(waker);
                drop(answer);
                drop(replaced);
                return Poll::Pending;
            }
            other => std::mem::replace(other, Answer::Left),
        };
        drop(answer);
        match before {
            Answer::Filled(result) => {
                self.behind = None;
                Poll::Ready(result)
            }
            _ => panic!("a wait was polled after it was over"),
        }
    }
}

impl<T> Drop for LocalWait<T> {
    fn drop(&mut self) {
        let Some(behind) = self.behind.take() else { return }; // it was ready, and is taken
        let left = self.answer.replace(Answer::Left);
        let waits = matches!(left, Answer::Waiting(_));
        drop_each([left]); // a waker or a value of the user's, maybe while its task unwinds
        if let (true, Some(id)) = (waits, self.id) {
            behind.cancel(id);
        }
    }
}

impl<T> fmt::Debug for LocalWait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalWait").finish_non_exhaustive()
    }
}

impl<K: WatchKey> LocalPurgatory<K, LocalBoxed> {
    /// Waits until `condition` yields a value: now, or at an event on one of the keys. The
    /// condition is checked and parked by this call, not by the first poll; the time counts from
    /// the moment last told to [`advance`](Self::advance). For any executor that runs futures which
    /// are not `Send`.
    ///
    /// The condition runs as a [check](DelayedOperation::try_complete) does, with nothing borrowed,
    /// and is asked no more once it yielded a value. The task is woken where a callback would run.
    /// One allocation for the operation, one for the answer it shares with the future; O(keys).
    ///
    /// # Errors
    /// The future yields a [`WaitError`]: time ran out, cancelled, or refused.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    /// use purgatory::{LocalBoxed, LocalPurgatory, WaitError};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let purgatory: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
    /// let log_end = Rc::new(Cell::new(0));
    /// let (seen, second) = (log_end.clone(), Duration::from_secs(1));
    ///
    /// let enough = move || Some(seen.get()).filter(|&end| end > 0);
    /// let bytes = purgatory.wait(&["log"], second, enough);
    /// log_end.set(7);
    /// purgatory.check_and_complete(&"log");
    /// assert_eq!(runtime.block_on(bytes), Ok(7));
    ///
    /// let never = purgatory.wait(&["log"], second, || None::<()>);
    /// purgatory.advance(1_000_000_000);
    /// assert_eq!(runtime.block_on(never), Err(WaitError::Expired));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait<'a, T: 'static>(
        &self,
        watches: impl Into<Watches<'a, K>>,
        timeout: impl Into<Timeout>,
        condition: impl FnMut() -> Option<T> + 'static,
    ) -> LocalWait<T>
    where
        K: 'a,
    {
        let answer: Shared<T> = Rc::new(RefCell::new(Answer::Waiting(None)));
        let end = End { answer: answer.clone(), filled: false };
        let operation = LocalBoxed::new(Waiting { condition, value: None, end });
        let id = match self.try_complete_else_watch(operation, watches, timeout) {
            Ok(ParkResult::Parked(id)) => Some(id),
            Ok(ParkResult::Ended(_)) => None,
            Err(refused) => {
                let replaced =
                    answer.replace(Answer::Filled(Err(WaitError::Refused(refused.reason))));
                drop((replaced, refused));
                None
            }
        };
        LocalWait { answer, behind: Some(self.core.clone()), id }
    }
}
