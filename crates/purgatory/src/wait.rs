//! Waits: a future of the value that a condition yields, and a blocking wait for it.
//!
//! A condition is a closure that gives `Some(value)` once it holds. The operation that checks it
//! and the future share a [cell](cell).

mod cell;
mod condition;

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use timer_core::{
    TimerHandle,
    driver::{must_yield, spend_budget},
};

pub use self::condition::IntoAnswer;

use self::cell::NewWait;
use crate::{
    error::WaitError,
    operation::{OperationId, Outcome, Parking, Timeout, opaque},
    origin::{AnswerOrigin, OVER, PANICKED, PendingAnswer},
    purgatory::Purgatory,
    sync::HandedBack,
    table::{Engine, future::Yields, handle::Handle},
    watches::{WatchKey, Watches},
};

/// A future of the value that a parked condition yields ([`Purgatory::wait`]). It works on any
/// runtime, or none.
///
/// # Cancel safety
/// Dropping the future cancels the wait. The operation leaves the purgatory at once; an operation
/// under check leaves when the call that checks it returns. A value that was yielded but not taken
/// is dropped; inside a check or callback, the [outermost call](crate::guide::your_code) drops it
/// later. So make it a [guard that is returned on drop](crate::guide::recipes::deadline). Polling
/// the future without awaiting its end, as a `select!` over `&mut` does, loses nothing.
///
/// A future does not keep its purgatory open. When the last handle is dropped, the wait ends as
/// [`Dropped`](crate::CancelReason::Dropped). The future keeps its purgatory's memory, as futures
/// of the other forms do.
///
/// # Panics
/// Panics when polled again after it was ready.
#[must_use = "dropped, it cancels the wait"]
pub struct WaitFuture<T> {
    source: Source<T>,
}

/// A result in the future is moved out of it, never pinned.
impl<T> Unpin for WaitFuture<T> {}

/// The place from which a future takes its result.
enum Source<T> {
    /// The operation was parked.
    Entry(PendingAnswer<T>),
    /// The value is here, as the operation was not parked. Value and error are separate variants,
    /// since a `Result` would make each future larger.
    Value(HandedBack<T>),
    Error(WaitError),
    /// The result was here, and was taken.
    Taken,
}

impl<T> Future for WaitFuture<T> {
    type Output = Result<T, WaitError>;

    /// Polls the wait. A tokio task that has used up its cooperative budget yields first (feature
    /// `tokio`).
    #[inline(always)] // each return copies the result
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if must_yield(context.waker()) {
            return Poll::Pending;
        }
        self.poll_now(context.waker())
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

impl<K: WatchKey> Purgatory<K> {
    /// Parks a wait, and returns its future.
    pub(crate) fn await_end<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: Watches<'_, K>,
        timeout: Timeout,
        condition: impl FnMut() -> R + Send + 'static,
    ) -> WaitFuture<R::Answer> {
        let core = &self.handle.table;
        let mut future = None;
        let mut result = None;
        let new_wait = NewWait::new(condition, self.handle.shown(), &mut future);
        let parked = core.park_or(new_wait, watches, timeout, |_, new_wait, outcome| {
            let ended = || result = Some(new_wait.into_result(outcome));
            core.frame.call(ended);
        });
        match parked {
            Ok(Parking::Parked(id) | Parking::Ended(id)) => {
                let origin = future.expect("it was parked");
                WaitFuture::at(origin, id)
            }
            Ok(Parking::AtOnce) => WaitFuture::ready(result.unwrap_or(Err(PANICKED))),
            Err(refused) => WaitFuture::ready(Err(refused.reason)),
        }
    }
}

impl<E: Engine> Handle<E> {
    /// Returns the future of a wait that is parked in this form.
    #[inline]
    pub(crate) fn future<T>(&self, at: TimerHandle) -> WaitFuture<T>
    where
        E: Yields<T>,
    {
        WaitFuture::at(self.share(), self.table.frame.id(at))
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

    /// Makes the future of an operation that was parked. Its answer comes from `origin`.
    pub(crate) fn at(origin: Arc<dyn AnswerOrigin<T>>, id: OperationId) -> Self {
        WaitFuture {
            source: Source::Entry(PendingAnswer::new(origin, id)),
        }
    }

    /// Returns the operation's id, to complete, cancel or reschedule it; `None` when it ended at
    /// once. O(1), without a lock.
    pub fn id(&self) -> Option<OperationId> {
        self.entry().map(PendingAnswer::id)
    }

    /// Reschedules the wait, counted from now, as [`Purgatory::reschedule`] does. Several threads
    /// may call this. Returns false if the wait has ended. O(levels of the wheel), with one lock.
    pub fn reschedule(&self, timeout: impl Into<Timeout>) -> bool {
        match self.entry() {
            Some(entry) => entry.reschedule(timeout.into()),
            None => false,
        }
    }

    /// Takes the result if the wait has ended; otherwise hands the future back. Then drop it, which
    /// cancels the wait (now or never), or await it. O(1), with one lock.
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
        match self.poll_now(Waker::noop()) {
            Poll::Ready(result) => Ok(result),
            Poll::Pending => Err(self),
        }
    }

    /// Polls without regard to a task's budget.
    #[inline(always)] // as `poll`
    fn poll_now(&mut self, waker: &Waker) -> Poll<Result<T, WaitError>> {
        match &mut self.source {
            Source::Entry(entry) => entry.poll(waker),
            _ => Poll::Ready(self.take_value().ok_or_else(|| self.take_error())),
        }
    }

    /// Takes a value that is here. A small value comes back in registers; a `Result` would come
    /// through memory, with a stall.
    #[cold]
    fn take_value(&mut self) -> Option<T> {
        spend_budget();
        match mem::replace(&mut self.source, Source::Taken) {
            Source::Value(value) => Some(value.into_inner()),
            other => {
                self.source = other;
                None
            }
        }
    }

    /// Takes an error that is here.
    #[cold]
    fn take_error(&mut self) -> WaitError {
        match mem::replace(&mut self.source, Source::Taken) {
            Source::Error(error) => error,
            Source::Entry(_) | Source::Value(_) | Source::Taken => panic!("{OVER}"),
        }
    }

    /// Returns the answer's place, if the operation was parked.
    fn entry(&self) -> Option<&PendingAnswer<T>> {
        match &self.source {
            Source::Entry(entry) => Some(entry),
            Source::Value(_) | Source::Error(_) | Source::Taken => None,
        }
    }

    /// Ends the wait with this outcome, which no poll will see.
    pub(crate) fn abandon(mut self, outcome: &Outcome) {
        if let Source::Entry(entry) = &mut self.source {
            entry.abandon(outcome);
        }
    }

    /// Blocks this thread until the wait ends.
    ///
    /// The future may have been polled before. With a [`ManualTimer`](timer_core::ManualTimer),
    /// another thread must advance the timer.
    ///
    /// In a task, await the future instead: this blocks the thread that runs the task, and the
    /// other tasks of that thread. It is an [error](WaitError::MustNotBlock) only where the end of
    /// the wait may need the thread: with a timer or executor on a tokio runtime, in a task of any
    /// runtime. With the feature `tokio`, debug builds warn in any task of a tokio runtime.
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
        loop {
            // Poll without the budget: with none left, a task that blocks would wait for ever.
            if let Poll::Ready(result) = self.poll_now(&waker) {
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
    use timer_core::ManualTimer;

    /// A task stores a future twice: as it was made, and as it is awaited.
    #[test]
    fn future_is_five_words() {
        let size = size_of::<PendingAnswer<()>>();
        assert_eq!(size, 40);
        assert_eq!(size_of::<WaitFuture<()>>(), size);
        assert_eq!(size_of::<WaitFuture<[u64; 3]>>(), size);
    }

    /// A poll may come between the answer and the moment when its operation lets go of the cell.
    #[test]
    fn answer_leaves_a_cell_shared_with_its_operation() {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u32> = Purgatory::builder("waits").timer(&timer).build().unwrap();
        let value = Arc::new(());
        let wait = || {
            let (value, mut looks) = (value.clone(), 0..);
            purgatory.wait(&[1], Timeout::Never, move || {
                looks.next().filter(|&look| look > 0).map(|_| value.clone())
            })
        };
        for has_value in [true, false] {
            let wait = wait().try_take().expect_err("its first look yields none");
            let cell = wait.entry().expect("it was parked").origin();
            match has_value {
                true => assert_eq!(purgatory.check_and_complete(&1), 1),
                false => assert_eq!(purgatory.cancel_all("over"), 1),
            }
            let result = wait.try_take().expect("it has ended");
            assert_eq!(result.is_ok(), has_value);
            drop((result, cell));
            assert_eq!(Arc::strong_count(&value), 1);
        }
        // An answer that no poll takes is dropped with its future.
        let wait = wait();
        let cell = wait.entry().expect("it was parked").origin();
        assert_eq!(purgatory.check_and_complete(&1), 1);
        drop(wait);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(cell);
    }
}
