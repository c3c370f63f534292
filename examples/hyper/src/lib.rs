//! A timer for hyper that is backed by a timer of `timer-core`: copy this file.
//!
//! Pass a [`HyperTimer`] to the `timer` method of hyper's servers, clients and pools. With a
//! [`ManualTimer`](timer_core::ManualTimer) a test decides when a connection's timeouts fire: hyper
//! also asks this timer for the current time.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use timer_core::{Moment, Timer};

/// A timer for hyper. Moments of the timer's clock become [`Instant`]s, counted from when this
/// value was made.
#[derive(Clone, Debug)]
pub struct HyperTimer {
    timer: Timer,
    origin: Instant,
    origin_moment: Moment,
}

impl HyperTimer {
    /// Wraps a timer.
    #[expect(
        clippy::disallowed_methods,
        reason = "hyper gives the time as instants"
    )]
    pub fn new(timer: impl Into<Timer>) -> Self {
        let timer = timer.into();
        HyperTimer {
            origin: Instant::now(),
            origin_moment: timer.now(),
            timer,
        }
    }

    /// Returns the moment of the timer's clock at an instant; beyond the clock's end, returns that
    /// end, which means never.
    fn moment(&self, instant: Instant) -> Moment {
        self.origin_moment + instant.saturating_duration_since(self.origin)
    }
}

impl hyper::rt::Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(self.timer.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(self.timer.sleep_until(self.moment(deadline))))
    }

    fn now(&self) -> Instant {
        // Read the timer's clock, not the system's: the timer may be a manual one.
        self.origin + self.timer.now().since(self.origin_moment)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(sleep) => sleep.get_mut().0.reset_to(self.moment(new_deadline)),
            // A sleep of another timer cannot be reset, so a new one takes its place.
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

struct HyperSleep(timer_core::Sleep);

impl hyper::rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    /// Polls the sleep. A timer that was shut down or is full refuses the sleep, and hyper has no
    /// error for that: the sleep stays pending, and tries again at the next poll.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}
