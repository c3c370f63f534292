//! Waiting: a future of the value that a condition yields, and the same for a thread.
//!
//! A condition is a closure that gives `Some(value)` once it holds. The value is handed over
//! through an answer that operation and future share. *One swap decides*: the operation fills the
//! answer or the future leaves it; the later of the two finds out.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crossbeam_utils::CachePadded;
use timer_core::driver::contain;

use crate::{
    boxed::BoxedOperation,
    engine::Core,
    operation::{
        CancelReason, DelayedOperation, OperationId, Outcome, RefusedReason, Timeout, WaitError,
        opaque,
    },
    purgatory::Purgatory,
    sync::Mutex,
    watches::{WatchKey, Watches},
};

/// The result of a condition that [`Purgatory::wait`] or [`Monitor::wait`](crate::Monitor::wait)
/// checks: `Some(value)` or `true` once it holds, `None` or `false` until then.
#[diagnostic::on_unimplemented(
    message = "a condition gives `bool` or `Option`, not `{Self}`",
    label = "`false` or `None` waits on, `true` or `Some(value)` ends the wait"
)]
pub trait IntoAnswer {
    /// The value that the wait yields: `()` for a `bool`.
    type Answer;

    /// The value, once the condition holds.
    fn into_answer(self) -> Option<Self::Answer>;
}

impl<T> IntoAnswer for Option<T> {
    type Answer = T;

    fn into_answer(self) -> Option<T> {
        self
    }
}

impl IntoAnswer for bool {
    type Answer = ();

    fn into_answer(self) -> Option<()> {
        self.then_some(())
    }
}

/// What a wait's operation and its future share.
pub(crate) enum Answer<T> {
    Waiting(Option<Waker>),
    Filled(Result<T, WaitError>),
    /// The future is gone, or has taken what was here.
    Left,
}

pub(crate) type Shared<T> = Arc<Mutex<Answer<T>>>;

impl<T> Answer<T> {
    pub(crate) fn shared() -> Shared<T> {
        Arc::new(Mutex::new(Answer::Waiting(None)))
    }

    /// The operation's swap. Gives what is to be woken, with nothing locked; or the result back,
    /// when nobody waits for it any more.
    pub(crate) fn fill(
        answer: &Mutex<Answer<T>>,
        result: Result<T, WaitError>,
    ) -> Result<Option<Waker>, Result<T, WaitError>> {
        let mut answer = answer.lock();
        let Answer::Waiting(waker) = &mut *answer else {
            return Err(result);
        };
        let waker = waker.take();
        *answer = Answer::Filled(result);
        Ok(waker)
    }
}

/// The operation behind a wait.
struct Waiting<C, T> {
    condition: C,
    /// There is something to check without an event.
    rechecked: bool,
    value: Option<T>,
    end: End<T>,
}

/// The operation's side of the answer, until it is filled. Dropped before, by a panic of the
/// condition or because the operation was refused, it says so.
struct End<T>(Option<Shared<T>>);

impl<C, R, T> DelayedOperation for Waiting<C, T>
where
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        self.value = (self.condition)().into_answer();
        self.value.is_some()
    }

    fn check_without_event(&mut self) -> bool {
        self.rechecked && self.try_complete()
    }

    fn on_complete(self, outcome: Outcome) {
        let Waiting {
            mut condition,
            value,
            mut end,
            ..
        } = self;
        let value = match outcome {
            // By a watermark, or from outside: no check may have asked for the value yet.
            Outcome::Completed => value.or_else(|| condition().into_answer()),
            _ => None,
        };
        drop(condition);
        end.fill(value.ok_or_else(|| WaitError::of(outcome)));
    }
}

impl<T> End<T> {
    fn fill(&mut self, result: Result<T, WaitError>) {
        let filled = self.0.take().map(|answer| Answer::fill(&answer, result));
        if let Some(Ok(waker)) = filled {
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            // The condition's panic may be under way: a waker's must not meet it.
            let _ = contain(|| self.fill(Err(WaitError::Cancelled(CancelReason::Panicked))));
        }
    }
}

/// A future of the value that a parked condition yields ([`Purgatory::wait`]), or of a reply
/// ([`Replies::expect`](crate::Replies::expect)). On any runtime, or none.
///
/// # Cancel safety
/// Dropping it cancels the wait: the operation leaves the purgatory at once, or, while it is under
/// check, when that check is over. A value that had been yielded but not taken is dropped: make it
/// a [guard that gives itself back](crate::guide::recipes#leases). Polling it without awaiting its
/// end, as a `select!` over `&mut` does, loses nothing.
///
/// A future does not keep its purgatory open: when the last handle goes, the wait ends as
/// [`Dropped`](CancelReason::Dropped).
///
/// # Panics
/// When polled again after it was ready.
#[must_use = "dropped, it cancels the wait"]
pub struct WaitFuture<T> {
    answer: Shared<T>,
    /// Where it waits, until it is over.
    behind: Option<Arc<dyn WaitOrigin>>,
    /// Its name there, if it was parked.
    id: Option<OperationId>,
}

/// A purgatory as its futures see it. They do not keep it open.
trait WaitOrigin: Send + Sync {
    fn cancel(&self, id: OperationId);
    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool;
    fn must_not_block(&self) -> bool;
}

impl<K: WatchKey, O: DelayedOperation> WaitOrigin for CachePadded<Arc<Core<K, O>>> {
    fn cancel(&self, id: OperationId) {
        let reason = CancelReason::Requested("the future was dropped".into());
        self.end(id, Outcome::Cancelled(reason));
    }

    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        Core::reschedule(self, id, timeout)
    }

    fn must_not_block(&self) -> bool {
        self.executors.must_not_block()
    }
}

impl<T> Future for WaitFuture<T> {
    type Output = Result<T, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are user code: none is cloned or dropped under the lock. An operation that is gone
        // has filled the answer; then no waker is needed.
        let over = Arc::strong_count(&self.answer) == 1;
        fence(Ordering::Acquire); // the operation filled the answer before it dropped its share
        let mut waker = (!over).then(|| context.waker().clone());
        let mut answer = self.answer.lock();
        if let Answer::Waiting(kept) = &mut *answer {
            std::mem::swap(kept, &mut waker);
            drop(answer);
            return Poll::Pending;
        }
        let before = std::mem::replace(&mut *answer, Answer::Left);
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

impl<T> Drop for WaitFuture<T> {
    fn drop(&mut self) {
        let Some(behind) = self.behind.take() else {
            return;
        }; // it was ready, and is taken
        let left = std::mem::replace(&mut *self.answer.lock(), Answer::Left);
        let waits = matches!(left, Answer::Waiting(_)) && !failpoint!(DroppedFutureLeavesOperation);
        self.id
            .filter(|_| waits)
            .into_iter()
            .for_each(|id| behind.cancel(id));
        drop(left); // its value or waker, with nothing locked
    }
}

opaque!([T] WaitFuture<T>);

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// A future of what comes into the answer, for an operation that fills it when it ends.
    pub(crate) fn future_of<T>(&self, answer: Shared<T>, id: Option<OperationId>) -> WaitFuture<T> {
        WaitFuture {
            answer,
            behind: Some(self.share()),
            id,
        }
    }

    /// A future that yields this refusal.
    pub(crate) fn refused<T>(&self, reason: RefusedReason) -> WaitFuture<T> {
        let answer = Answer::shared();
        let _ = Answer::fill(&answer, Err(WaitError::Refused(reason)));
        self.future_of(answer, None)
    }
}

impl<K: WatchKey> Purgatory<K, BoxedOperation> {
    /// Waits until `condition` gives a value or `true`: now, or at an event on one of the keys. The
    /// condition is checked and parked by this call, not by the first poll; the time counts from
    /// here. On any runtime, or none.
    ///
    /// The condition runs as a [check](DelayedOperation::try_complete) does, on the threads that
    /// raise events and with nothing locked. It is asked no more once it yielded a value. The
    /// future wakes its task where a callback would run, with nothing locked either. One allocation
    /// for the operation, one for the answer it shares with the future; O(keys), as
    /// [`try_complete_else_watch`](Self::try_complete_else_watch).
    ///
    /// # Errors
    /// The future yields a [`WaitError`]: time ran out, cancelled, or refused.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{BoxedOperation, Purgatory, WaitError};
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
    /// #     let waker = Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut context = std::task::Context::from_waker(&waker);
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut context) {
    /// #             std::task::Poll::Ready(output) => return output,
    /// #             std::task::Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// let purgatory: Purgatory<&str, BoxedOperation> = Purgatory::new("waits")?;
    /// let log_end = Arc::new(AtomicU64::new(0));
    /// let seen = log_end.clone();
    /// let enough = move || Some(seen.load(SeqCst)).filter(|&end| end > 0);
    /// let bytes = purgatory.wait(&["log"], Duration::from_secs(1), enough);
    /// log_end.store(7, SeqCst);
    /// purgatory.check_and_complete(&"log");
    /// assert_eq!(block_on(bytes), Ok(7));
    ///
    /// let never = purgatory.wait(&["log"], Duration::from_millis(5), || false);
    /// assert_eq!(block_on(never), Err(WaitError::Expired));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// An asynchronous condition: let a task evaluate it, store what it found and raise the event.
    pub fn wait<'a, R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: impl Into<Watches<'a, K>>,
        timeout: impl Into<Timeout>,
        condition: impl FnMut() -> R + Send + 'static,
    ) -> WaitFuture<R::Answer>
    where
        K: 'a,
    {
        self.await_end(watches.into(), timeout.into(), condition, true)
    }

    /// A future of the next event on one of the keys: registered by this call, over at the first
    /// event after it, at the timeout, or at shutdown. For a condition that has to be awaited, a
    /// storage say: register, read, and await this only if what was read does not suffice. An event
    /// that comes while the storage is read is not lost. O(keys).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// # struct Storage;
    /// # impl Storage { async fn read(&self) -> Vec<u8> { Vec::new() } }
    /// /// A fetch: waits until there are enough bytes, or yields what is there in the end.
    /// async fn fetch(
    ///     appends: &Purgatory<&'static str>,
    ///     storage: &Storage,
    ///     min_bytes: usize,
    ///     max_wait: Duration,
    /// ) -> Result<Vec<u8>, WaitError> {
    ///     let deadline = Instant::now() + max_wait;
    ///     loop {
    ///         let left = deadline.saturating_duration_since(Instant::now());
    ///         let appended = appends.next_event(&["orders-0"], left); // registered ...
    ///         let bytes = storage.read().await; // ... before the log is read
    ///         if bytes.len() >= min_bytes {
    ///             return Ok(bytes);
    ///         }
    ///         match appended.await {
    ///             Err(error) if error.is_expired() => return Ok(bytes),
    ///             ended => ended?, // another error would come again at once
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn next_event<'a>(
        &self,
        watches: impl Into<Watches<'a, K>>,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<()>
    where
        K: 'a,
    {
        let mut registered = false;
        let was_registered = move || std::mem::replace(&mut registered, true);
        self.await_end(watches.into(), timeout.into(), was_registered, false)
    }

    fn await_end<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: Watches<'_, K>,
        timeout: Timeout,
        condition: impl FnMut() -> R + Send + 'static,
        rechecked: bool,
    ) -> WaitFuture<R::Answer> {
        let answer = Answer::shared();
        let end = End(Some(answer.clone()));
        let operation = BoxedOperation::new(Waiting {
            condition,
            rechecked,
            value: None,
            end,
        });
        match self.try_complete_else_watch(operation, watches, timeout) {
            Ok(parked) => self.future_of(answer, parked.id()),
            Err(refused) => self.refused(refused.reason),
        }
    }
}

impl<T> WaitFuture<T> {
    /// The operation's name, to complete, cancel or reschedule it by; `None` when it was over at
    /// once.
    pub fn id(&self) -> Option<OperationId> {
        self.id
    }

    /// Gives the wait another timeout, counted from now, as [`Purgatory::reschedule`] does. False
    /// when it is over.
    pub fn reschedule(&self, timeout: impl Into<Timeout>) -> bool {
        let waits = self.behind.as_ref().zip(self.id);
        waits.is_some_and(|(behind, id)| behind.reschedule(id, timeout.into()))
    }

    /// Blocks this thread until the wait is over. The future may have been polled before. Under a
    /// [`ManualTimer`](timer_core::ManualTimer) another thread has to advance it.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, thread, time::Duration};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// let purgatory: Purgatory<&str> = Purgatory::new("epoch")?;
    /// let epoch = Arc::new(AtomicU64::new(0));
    /// let (seen, raises) = (epoch.clone(), purgatory.clone());
    /// let leader = thread::spawn(move || {
    ///     epoch.store(1, SeqCst);
    ///     raises.check_and_complete(&"epoch");
    /// });
    /// let began = move || Some(seen.load(SeqCst)).filter(|&epoch| epoch > 0);
    /// let wait = purgatory.wait(&["epoch"], Duration::from_secs(30), began);
    /// assert_eq!(wait.wait_blocking(), Ok(1));
    ///
    /// let never = purgatory.wait(&["epoch"], Duration::from_millis(1), || None::<()>);
    /// assert_eq!(never.wait_blocking(), Err(WaitError::Expired));
    /// # leader.join().unwrap();
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// [`WaitError`]; at once [`InsideCallback`](WaitError::InsideCallback) when it would have to
    /// wait inside a check, a callback or a task that its end may wait for, and then the wait is
    /// cancelled.
    pub fn wait_blocking(mut self) -> Result<T, WaitError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut context) {
                return result;
            }
            if self
                .behind
                .as_ref()
                .is_some_and(|behind| behind.must_not_block())
            {
                return Err(WaitError::InsideCallback);
            }
            thread::park();
        }
    }
}
