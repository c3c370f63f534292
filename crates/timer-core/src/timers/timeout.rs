//! `TimeoutFuture`: another future, with a limit on how long it may take.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::timers::{errors::ScheduleErrorReason, sleep::Sleep};

pin_project! {
    /// A future that yields another's output, unless the time is up before. Made by
    /// [`Timer::timeout`](crate::Timer::timeout).
    ///
    /// The other is polled first: what is ready when the time is up counts as in time, and what is
    /// ready at once costs a clock read and nothing on the wheel. `Send`, `Sync` and `Unpin` as the
    /// other is. Costs, cancel safety and where wakers run: as a [`Sleep`]'s.
    ///
    /// # When the time is up
    /// The other future is not dropped before this one is. To go on with it, lend it: `&mut
    /// future`, or `future.as_mut()` of a pinned one, is a future, too.
    ///
    /// ```
    /// use std::{future::Future, pin::pin, task::{Context, Poll, Waker}, time::Duration};
    /// use timer_core::{ManualTimer, TimeoutError, Timer};
    ///
    /// let timer = ManualTimer::new();
    /// let mut context = Context::from_waker(Waker::noop()); // your runtime's
    ///
    /// let mut answer = pin!(timer.sleep(Duration::from_secs(3))); // what takes its time
    /// {
    ///     let mut first = pin!(timer.timeout(Duration::from_secs(2), answer.as_mut()));
    ///     assert!(first.as_mut().poll(&mut context).is_pending());
    ///     timer.advance(Duration::from_secs(2));
    ///     assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(Err(TimeoutError::Elapsed)));
    /// }
    /// timer.advance(Duration::from_secs(1));
    /// assert_eq!(answer.as_mut().poll(&mut context), Poll::Ready(Ok(()))); // it was not lost
    /// ```
    ///
    /// # Errors
    /// [`TimeoutError`]. Polled after that, it polls the other again, which may be ready by now.
    ///
    /// # Panics
    /// Polled after it yielded the other's output, it does what the other does then, which may be a
    /// panic.
    #[must_use = "it does nothing unless polled"]
    pub struct TimeoutFuture<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> TimeoutFuture<F> {
    pub(crate) fn new(future: F, sleep: Sleep) -> Self {
        TimeoutFuture { future, sleep }
    }

    /// The other future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The other future, to be changed.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The other future, pinned.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().future
    }

    /// Hands the other future back, after the time was up, say.
    pub fn into_inner(self) -> F {
        self.future
    }

    /// The sleep that limits it, to be reset, say.
    pub fn sleep_mut(self: Pin<&mut Self>) -> &mut Sleep {
        self.project().sleep
    }
}

impl<F: Future> Future for TimeoutFuture<F> {
    type Output = Result<F::Output, TimeoutError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        let slept = ready!(Pin::new(this.sleep).poll(context));
        Poll::Ready(Err(slept.map_or_else(TimeoutError::NotScheduled, |()| TimeoutError::Elapsed)))
    }
}

impl<F> fmt::Debug for TimeoutFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeoutFuture").field("sleep", &self.sleep).finish_non_exhaustive()
    }
}

/// A future did not end within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutError {
    /// The time is up.
    Elapsed,
    /// The other future is not ready, and nothing can limit it: the timer was shut down or is full.
    NotScheduled(ScheduleErrorReason),
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeoutError::Elapsed => f.write_str("the time is up"),
            TimeoutError::NotScheduled(reason) => write!(f, "not scheduled: {reason}"),
        }
    }
}

impl Error for TimeoutError {}
