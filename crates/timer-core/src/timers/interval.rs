//! `Interval`: ticks of a beat, to be awaited one after the other.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    timers::{
        errors::ScheduleErrorReason,
        periodic::{Pace, PeriodicError},
        sleep::{Sleep, Sleeps},
    },
    wheel::tick::later_ns,
};

/// What becomes of an [`Interval`]'s ticks that nobody took in time. Ticks are missed when one is
/// taken only after the next was due.
///
/// With a period of 10 ms, ticks due at 10, 20, 30, … and the first one taken at 35 ms:
///
/// | | the next are due at |
/// |---|---|
/// | `Burst` | 20, 30, 40, 50, … |
/// | `Delay` | 45, 55, 65, … |
/// | `Skip` | 40, 50, 60, … |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTicks {
    /// They come at once, one after the other, until the beat is caught up with: as many ticks as
    /// periods.
    #[default]
    Burst,
    /// They fall out, and a new beat begins a period from now.
    Delay,
    /// They fall out, and the beat is kept.
    Skip,
}

/// A beat: a tick each period, to be awaited. Made by [`Timer::interval`](crate::Timer::interval).
/// `Send`, `Sync` and `Unpin`, for any runtime.
///
/// A tick is due a whole number of periods after the first, to the nanosecond, however late the
/// others were taken (but see [`MissedTicks`]). Cost of a tick and where wakers run: as a
/// [`Sleep`]'s.
///
/// ```
/// use std::{pin::pin, task::{Context, Poll, Waker}, time::Duration};
/// use timer_core::{ManualTimer, MissedTicks, Timer};
///
/// let timer = ManualTimer::new();
/// let mut context = Context::from_waker(Waker::noop()); // your runtime's
/// let ms = Duration::from_millis(1);
/// let mut beat = timer.interval(10 * ms)?.missed_ticks(MissedTicks::Skip);
///
/// assert!(beat.poll_tick(&mut context).is_pending());
/// timer.advance(35 * ms);
/// assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(10_000_000)));
/// assert!(beat.poll_tick(&mut context).is_pending()); // 20 and 30 fell out
/// timer.advance(5 * ms);
/// assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(40_000_000)));
/// # Ok::<(), timer_core::PeriodicError>(())
/// ```
#[derive(Debug)]
#[must_use = "it ticks when polled"]
pub struct Interval {
    sleep: Sleep,
    /// When the next tick is due.
    next_ns: u64,
    period: Duration,
    missed: MissedTicks,
}

impl Interval {
    pub(crate) fn new(
        sleeps: &Sleeps,
        first: Duration,
        period: Duration,
    ) -> Result<Self, PeriodicError> {
        if period.is_zero() {
            return Err(PeriodicError::ZeroPeriod);
        }
        let next_ns = later_ns(sleeps.driver().now_ns(), first);
        let sleep = sleeps.sleep_until_ns(next_ns);
        Ok(Interval { sleep, next_ns, period, missed: MissedTicks::default() })
    }

    /// With missed ticks treated so; they come in a [burst](MissedTicks::Burst) by default.
    pub fn missed_ticks(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// The period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// When the next tick is due, on the timer's clock; `u64::MAX` for never.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Begins a new beat: the next tick is due a period from now.
    pub fn reset(&mut self) {
        self.next_ns = later_ns(self.sleep.now_ns(), self.period);
        self.sleep.reset_to_ns(self.next_ns);
    }

    /// Waits for the next tick; yields when it was due, on the timer's clock, in nanoseconds.
    /// Dropped before it is ready, it takes no tick.
    ///
    /// # Errors
    /// As a [`Sleep`]'s, when the tick is not due yet. Called again, it waits for the same tick.
    pub async fn tick(&mut self) -> Result<u64, ScheduleErrorReason> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// As [`tick`](Self::tick), to be called from another future's poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_tick(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<u64, ScheduleErrorReason>> {
        ready!(Pin::new(&mut self.sleep).poll(context))?;
        let due_ns = self.next_ns;
        let now_ns = self.sleep.now_ns();
        self.next_ns = self.missed.next_ns(self.period, due_ns, now_ns);
        self.sleep.reset_to_ns(self.next_ns);
        Poll::Ready(Ok(due_ns))
    }
}

impl MissedTicks {
    /// The tick after the one that was due at `due_ns` and taken at `now_ns`.
    fn next_ns(self, period: Duration, due_ns: u64, now_ns: u64) -> u64 {
        let following_ns = later_ns(due_ns, period);
        match self {
            _ if now_ns < following_ns => following_ns,
            MissedTicks::Burst => following_ns,
            MissedTicks::Delay => later_ns(now_ns, period),
            MissedTicks::Skip => Pace::Rate(period).next_ns(due_ns, now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_burst_delay_or_fall_out() {
        let next =
            |missed: MissedTicks, now_ns| missed.next_ns(Duration::from_nanos(10), 10, now_ns);
        for missed in [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip] {
            assert_eq!((next(missed, 10), next(missed, 19)), (20, 20)); // late, but none was missed
        }
        assert_eq!((next(MissedTicks::Burst, 20), next(MissedTicks::Burst, 35)), (20, 20));
        assert_eq!((next(MissedTicks::Delay, 20), next(MissedTicks::Delay, 35)), (30, 45));
        assert_eq!((next(MissedTicks::Skip, 20), next(MissedTicks::Skip, 35)), (30, 40));
        for missed in [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip] {
            assert_eq!(missed.next_ns(Duration::MAX, 10, 35), u64::MAX);
        }
    }
}
