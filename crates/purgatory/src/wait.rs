//! Waits: a future of the value that a condition yields, and a blocking wait for it.
//!
//! A condition is a closure that gives `Some(value)` once it holds. The box of the operation, in
//! its entry, is all that there is of a wait: it has the condition, then the value in its place,
//! and the waker of the last poll beside it. The future takes the box out of the entry, as that of
//! a reply does its answer.
//!
//! *Dropped first*: a condition is dropped before its task is woken, with nothing locked. So a
//! check that comes true drops it, and its answer is there as the operation ends, in that lock
//! hold. Any other end leaves the entry without one until the condition is dropped.

use std::{
    any::Any,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use timer_core::driver::contain;

use crate::{
    boxed::{BoxedOperation, Unboxed},
    engine::answer::Yields,
    error::{RefusedReason, WaitError},
    operation::{
        Answering, AwaitedPark, CancelReason, DelayedOperation, OperationId, Outcome, Timeout,
        opaque,
    },
    origin::{AnswerOrigin, PendingAnswer},
    purgatory::Purgatory,
    sync::HandedBack,
    watches::{WatchKey, Watches},
};

/// The result of a condition of [`Purgatory::wait`] or [`Monitor::wait`](crate::Monitor::wait).
///
/// `Some(value)` or `true` ends the wait; after `None` or `false` it goes on.
#[diagnostic::on_unimplemented(
    message = "a condition gives `bool` or `Option`, not `{Self}`",
    label = "`false` or `None` waits on, `true` or `Some(value)` ends the wait"
)]
pub trait IntoAnswer {
    /// The type of the value that the wait yields: `()` for a `bool`.
    type Answer;

    /// Returns the value if the condition holds.
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
        if self { Some(()) } else { None }
    }
}

/// The operation of a wait. Once it has ended, it is the wait's answer.
struct Waiting<C, T> {
    stage: Stage<C, T>,
    /// Whether rechecks and last checks evaluate the condition.
    rechecked: bool,
    result_to: ResultTo<T>,
}

/// The condition of a wait, and then its result.
enum Stage<C, T> {
    Waits(C),
    /// The condition is dropped.
    Over(Result<T, WaitError>),
}

/// The way of the result to the future.
enum ResultTo<T> {
    /// It stays in the operation's entry, which the future polls. The waker is that of the last
    /// poll.
    Entry(Option<Waker>),
    /// It is sent to that entry, since the operation was taken out of its purgatory.
    Sender(ResultSender<T>),
    /// It is where the future finds it.
    Arrived,
}

/// Sends a result to the entry that the future polls. Dropped before that, by a panic of the
/// condition or with the operation, it sends [`Panicked`](CancelReason::Panicked).
struct ResultSender<T>(Option<PutResult<T>>);

type PutResult<T> = Box<dyn FnOnce(Result<T, WaitError>) + Send>;

const PANICKED: WaitError = WaitError::Cancelled(CancelReason::Panicked);

impl<C, R, T> Waiting<C, T>
where
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    /// Makes the operation of a wait that is to be parked.
    fn new(condition: C, rechecked: bool) -> Self {
        Waiting {
            stage: Stage::Waits(condition),
            rechecked,
            result_to: ResultTo::Entry(None),
        }
    }

    /// Returns the result of a wait that ends. The condition is dropped before that.
    fn into_result(mut self, outcome: &Outcome) -> Result<T, WaitError> {
        self.make_answer(outcome);
        match self.stage {
            Stage::Over(result) => result,
            Stage::Waits(_) => unreachable!("an answer was made"),
        }
    }
}

impl<C, R, T> DelayedOperation for Waiting<C, T>
where
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        let Stage::Waits(condition) = &mut self.stage else {
            return true;
        };
        let Some(value) = condition().into_answer() else {
            return false;
        };
        // The condition goes before the task runs, which may rely on that.
        drop(mem::replace(&mut self.stage, Stage::Over(Ok(value))));
        true
    }

    fn check_without_event(&mut self) -> bool {
        self.rechecked && self.try_complete()
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.result_to {
            ResultTo::Entry(waker) => Some(waker),
            ResultTo::Sender(_) | ResultTo::Arrived => None,
        }
    }

    fn make_answer(&mut self, outcome: &Outcome) {
        // It stays at that if the condition panics.
        let before = mem::replace(&mut self.stage, Stage::Over(Err(PANICKED)));
        let result = match (before, outcome) {
            (Stage::Over(Ok(value)), Outcome::Completed) => Ok(value),
            // A call completes without a check, so the value may be missing.
            (Stage::Waits(mut condition), Outcome::Completed) => condition()
                .into_answer()
                .ok_or_else(|| WaitError::of(outcome.clone())),
            (before, outcome) => {
                drop(before); // before the task runs
                Err(WaitError::of(outcome.clone()))
            }
        };
        self.stage = Stage::Over(result);
    }

    fn answer(&mut self, outcome: &Outcome) -> Answering {
        let ResultTo::Entry(waker) = &mut self.result_to else {
            return Answering::NotAwaited;
        };
        match (&self.stage, outcome) {
            (Stage::Over(Ok(_)), Outcome::Completed) | (Stage::Over(Err(_)), _) => {
                let waker = waker.take();
                self.result_to = ResultTo::Arrived;
                Answering::Made(waker)
            }
            _ => Answering::Unmade,
        }
    }

    fn give_answer(self, to: &mut dyn Any) {
        let Stage::Over(result) = self.stage else {
            return;
        };
        if let Some(to) = to.downcast_mut() {
            *to = result;
        }
    }

    fn detach(&mut self, back: Box<dyn FnOnce(Self) + Send>) {
        let put = move |result| {
            back(Waiting {
                stage: Stage::Over(result),
                rechecked: false,
                result_to: ResultTo::Arrived,
            });
        };
        self.result_to = ResultTo::Sender(ResultSender(Some(Box::new(put))));
    }

    fn on_complete(mut self, outcome: Outcome) {
        // In its purgatory it is answered instead.
        let result_to = mem::replace(&mut self.result_to, ResultTo::Arrived);
        if let ResultTo::Sender(mut sender) = result_to {
            sender.send(self.into_result(&outcome));
        }
    }
}

impl<T> ResultSender<T> {
    /// Sends the result, unless one was sent before.
    fn send(&mut self, result: Result<T, WaitError>) {
        if let Some(put) = self.0.take() {
            put(result);
        }
    }
}

impl<T> Drop for ResultSender<T> {
    fn drop(&mut self) {
        // The condition may be panicking; a second panic, of the waker, would abort.
        let _ = contain(|| self.send(Err(PANICKED)));
    }
}

impl<T: 'static> Yields<T> for BoxedOperation {
    fn into_answer(self) -> Result<T, WaitError> {
        let mut answer = Err(PANICKED);
        self.give_answer(&mut answer);
        answer
    }
}

/// A future of the value that a parked condition yields ([`Purgatory::wait`]), or of a reply
/// ([`Replies::expect`](crate::Replies::expect)). It works on any runtime, or none.
///
/// # Cancel safety
/// Dropping the future cancels the wait. The operation leaves the purgatory at once; an operation
/// under check leaves when that check returns. A value that was yielded but not taken is dropped:
/// make it a [guard that is returned on drop](crate::guide::recipes#leases). Polling the future
/// without awaiting its end, as a `select!` over `&mut` does, loses nothing.
///
/// A future does not keep its purgatory open. When the last handle is dropped, the wait ends as
/// [`Dropped`](CancelReason::Dropped).
///
/// # Panics
/// Panics when polled again after it was ready.
#[must_use = "dropped, it cancels the wait"]
pub struct WaitFuture<T> {
    source: Source<T>,
}

/// A result that is here is moved out of the future, never pinned.
impl<T> Unpin for WaitFuture<T> {}

/// The place that a future takes its result from.
enum Source<T> {
    /// The entry of its operation.
    Entry(PendingAnswer<T>),
    /// It is here: the operation was not parked. Apart, since with their `Result` each future would
    /// be larger.
    Value(HandedBack<T>),
    Error(WaitError),
    /// It was here, and was taken.
    Taken,
}

impl<T> Future for WaitFuture<T> {
    type Output = Result<T, WaitError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.source {
            Source::Entry(entry) if !entry.is_over() => entry.poll(context.waker()),
            _ => Poll::Ready(self.take_here()),
        }
    }
}

opaque!([T] WaitFuture<T>);

/// A waker that unparks a blocked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Makes the future of a parked operation.
    pub(crate) fn answer_of<T>(&self, id: OperationId) -> WaitFuture<T>
    where
        O: Yields<T>,
    {
        WaitFuture::at(self.share(), id)
    }

    /// Parks a wait, as the operation that `wrap` makes of it, and returns its future.
    pub(crate) fn await_end<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        mut watches: Watches<'_, K>,
        timeout: Timeout,
        condition: impl FnMut() -> R + Send + 'static,
        rechecked: bool,
        wrap: impl FnOnce(BoxedOperation) -> O,
    ) -> WaitFuture<R::Answer>
    where
        O: Yields<R::Answer>,
    {
        let waiting = Waiting::new(condition, rechecked);
        // An operation with a condition finds a missed event before it expires.
        watches.last_check = rechecked;
        watches.needs_value = true;
        let unboxed = Unboxed {
            operation: waiting,
            wrap,
        };
        let core = &self.core;
        let parked = core.park_awaited(unboxed, watches, timeout, |unboxed, outcome| {
            unboxed.operation.into_result(outcome)
        });
        match parked {
            Ok(AwaitedPark::Parked(id)) => self.answer_of(id),
            Ok(AwaitedPark::AtOnce(answer)) => WaitFuture::ready(answer.unwrap_or(Err(PANICKED))),
            Err(refused) => self.refused(refused.reason),
        }
    }

    /// Makes a future that yields this refusal.
    pub(crate) fn refused<T>(&self, reason: RefusedReason) -> WaitFuture<T> {
        WaitFuture::ready(Err(WaitError::Refused(reason)))
    }
}

impl<T> WaitFuture<T> {
    /// Makes a future that is ready.
    pub(crate) fn ready(result: Result<T, WaitError>) -> Self {
        let source = match result {
            Ok(value) => Source::Value(HandedBack::new(value)),
            Err(error) => Source::Error(error),
        };
        WaitFuture { source }
    }

    /// Makes the future of an operation that is parked in `origin`.
    pub(crate) fn at(origin: Arc<dyn AnswerOrigin<T>>, id: OperationId) -> Self {
        WaitFuture {
            source: Source::Entry(PendingAnswer::new(origin, id.handle)),
        }
    }

    /// Returns the operation's id, to complete, cancel or reschedule it; `None` when it ended at
    /// once. O(1), without a lock.
    pub fn id(&self) -> Option<OperationId> {
        self.entry().map(PendingAnswer::id)
    }

    /// Reschedules the wait, counted from now, as [`Purgatory::reschedule`] does. Returns
    /// false if the wait has ended. O(levels of the wheel), with one lock.
    pub fn reschedule(&self, timeout: impl Into<Timeout>) -> bool {
        match self.entry() {
            Some(entry) => entry.reschedule(timeout.into()),
            None => false,
        }
    }

    /// Takes the result if the wait has ended; hands the future back otherwise. Drop it then, and
    /// the wait is cancelled (now or never), or await it. O(1), with one lock.
    ///
    /// A task that polled the future before is not woken any more: it has to poll again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let log_ends = Watermarks::new("log ends")?;
    /// let wait = log_ends.wait_for(&"orders-0", 7, Duration::from_secs(30));
    /// let wait = wait.try_take().expect_err("it waits");
    /// log_ends.advance(&"orders-0", 9)?;
    /// assert_eq!(wait.try_take().ok(), Some(Ok(9)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the future if the wait goes on.
    ///
    /// # Panics
    /// Panics if the future was ready at an earlier poll.
    pub fn try_take(mut self) -> Result<Result<T, WaitError>, Self> {
        match Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Ok(result),
            Poll::Pending => Err(self),
        }
    }

    /// Takes a result that is here.
    #[cold]
    fn take_here(&mut self) -> Result<T, WaitError> {
        match mem::replace(&mut self.source, Source::Taken) {
            Source::Value(value) => Ok(value.into_inner()),
            Source::Error(error) => Err(error),
            Source::Entry(_) | Source::Taken => panic!("a wait was polled after it was over"),
        }
    }

    /// Returns the answer's place, if the operation was parked.
    fn entry(&self) -> Option<&PendingAnswer<T>> {
        match &self.source {
            Source::Entry(entry) => Some(entry),
            Source::Value(_) | Source::Error(_) | Source::Taken => None,
        }
    }

    /// Blocks this thread until the wait ends.
    ///
    /// The future may have been polled before. With a [`ManualTimer`](timer_core::ManualTimer),
    /// another thread must advance the timer.
    ///
    /// In a task, await the future instead: this blocks the thread that runs the task, and the
    /// other tasks of that thread. It is an [error](WaitError::MustNotBlock) only where the end
    /// of the wait may need the thread. With the feature `tokio`, debug builds warn in any task of
    /// a tokio runtime.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, thread, time::Duration};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// let purgatory: Purgatory<&str> = Purgatory::new("epoch")?;
    /// let epoch = Arc::new(AtomicU64::new(0));
    /// let seen = epoch.clone();
    /// let signals = purgatory.clone();
    /// let leader = thread::spawn(move || {
    ///     epoch.store(1, SeqCst);
    ///     signals.check_and_complete(&"epoch");
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
    /// Returns a [`WaitError`] if the wait ends without a value. It is
    /// [`MustNotBlock`](WaitError::MustNotBlock), at once, if this call would have to block
    /// inside a check, a callback or a task that the end of the wait may need; the wait is then
    /// cancelled.
    pub fn wait_blocking(mut self) -> Result<T, WaitError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut context) {
                return result;
            }
            if self.entry().is_some_and(PendingAnswer::must_not_block) {
                return Err(WaitError::MustNotBlock);
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task has a future twice: as it was made, and as it is awaited.
    #[test]
    fn a_future_is_as_large_as_an_error_and_a_tag() {
        assert_eq!(size_of::<WaitFuture<()>>(), size_of::<WaitError>() + 8);
        assert_eq!(
            size_of::<WaitFuture<[u64; 3]>>(),
            size_of::<WaitFuture<()>>()
        );
    }
}
