//! Feature `hyper`: a timer as hyper's own.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use crate::{
    driver::clock::Instants,
    timers::{
        sleep::{Sleep, Sleeps},
        timer::Timer,
    },
};

/// A timer for hyper's servers, clients and pools: give it to their `timer` method, and its clock
/// is theirs. A handle: clones are the same.
///
/// With a [`ManualTimer`](crate::ManualTimer) a connection's time-outs are in your hands: hyper
/// asks this timer for the present, too. Moments of the timer's clock are told as [`Instant`]s,
/// counted from when this value was made.
///
/// A sleep takes one allocation, since hyper wants it boxed, and is reset in place. hyper has no
/// word for one that is [refused](crate::ScheduleErrorReason): it is not over, and tries again when
/// it is polled again. So with a timer that was shut down or is full, a connection may go without
/// its limit.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{HyperTimer, SystemTimer};
///
/// let timer = SystemTimer::new()?;
/// let mut server = hyper::server::conn::http1::Builder::new();
/// server.timer(HyperTimer::new(&timer)).header_read_timeout(Duration::from_secs(5));
/// # Ok::<(), timer_core::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HyperTimer {
    sleeps: Sleeps,
    instants: Instants,
}

impl HyperTimer {
    /// This timer, for hyper.
    pub fn new(timer: &impl Timer) -> Self {
        let sleeps = timer.sleeps().clone();
        let instants = Instants::new(sleeps.driver().now_ns());
        HyperTimer { sleeps, instants }
    }
}

impl hyper::rt::Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(self.sleeps.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        let deadline_ns = self.instants.to_ns(deadline);
        Box::pin(HyperSleep(self.sleeps.sleep_until_ns(deadline_ns)))
    }

    fn now(&self) -> Instant {
        self.instants.at_ns(self.sleeps.driver().now_ns())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(sleep) => sleep.get_mut().0.reset_to_ns(self.instants.to_ns(new_deadline)),
            None => *sleep = self.sleep_until(new_deadline), // another timer's
        }
    }
}

struct HyperSleep(Sleep);

impl hyper::rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for HyperSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
