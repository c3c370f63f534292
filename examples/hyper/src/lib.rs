//! A timer of `timer-core` as hyper's own: copy this file.
//!
//! Give it to the `timer` method of hyper's servers, clients and pools. With a
//! [`ManualTimer`](timer_core::ManualTimer) a connection's time-outs are in a test's hands: hyper
//! asks this timer for the present, too.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use timer_core::Timer;

/// Moments of the timer's clock are told as [`Instant`]s, counted from when this value was made.
#[derive(Clone, Debug)]
pub struct HyperTimer<T> {
    timer: T,
    origin: Instant,
    origin_ns: u64,
}

impl<T: Timer> HyperTimer<T> {
    /// Wraps a timer.
    #[expect(
        clippy::disallowed_methods,
        reason = "hyper tells the time in instants"
    )]
    pub fn new(timer: T) -> Self {
        HyperTimer {
            origin: Instant::now(),
            origin_ns: timer.now_ns(),
            timer,
        }
    }

    fn to_ns(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin).as_nanos();
        self.origin_ns
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl<T: Timer> hyper::rt::Timer for HyperTimer<T> {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(self.timer.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(self.timer.sleep_until_ns(self.to_ns(deadline))))
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_nanos(self.timer.now_ns().saturating_sub(self.origin_ns))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(sleep) => sleep.get_mut().0.reset_to_ns(self.to_ns(new_deadline)),
            None => *sleep = self.sleep_until(new_deadline), // another timer's
        }
    }
}

struct HyperSleep(timer_core::Sleep);

impl hyper::rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    /// hyper has no word for a sleep that is refused, because the timer was shut down or is full:
    /// it stays pending, and tries again when it is polled again.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}
