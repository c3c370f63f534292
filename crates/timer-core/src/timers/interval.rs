//! [`Interval`]: ticks to be awaited, a [`Sleep`] that each tick resets.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    driver::clock::Moment,
    observe::opaque,
    timers::{TimerError, periodic::Pace, sleep::Sleep, task_timer::TimerInner},
};

/// Ticks that come once each period. Made by [`Timer::interval`](crate::Timer::interval). `Send`,
/// `Sync` and `Unpin`, for any runtime.
///
/// Each tick is due a whole number of periods after the first, to the nanosecond, however late the
/// earlier ticks were taken. Ticks that were not taken before the next was due are skipped, as the
/// starts of a task at a fixed rate are. A tick costs as much as a [`Sleep`], and its wakers run
/// where those of a `Sleep` run.
///
/// ```
/// use std::{pin::pin, task::{Context, Poll, Waker}, time::Duration};
/// use timer_core::ManualTimer;
///
/// let timer = ManualTimer::new();
/// let mut context = Context::from_waker(Waker::noop()); // your runtime's
/// let ms = Duration::from_millis(1);
/// let began = timer.now();
/// let mut beat = timer.interval(10 * ms)?;
///
/// assert!(beat.poll_tick(&mut context).is_pending());
/// timer.advance(35 * ms);
/// assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(began + 10 * ms)));
/// assert!(beat.poll_tick(&mut context).is_pending()); // 20 and 30 were skipped
/// timer.advance(5 * ms);
/// assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(began + 40 * ms)));
/// # Ok::<(), timer_core::TimerError>(())
/// ```
///
/// # Another beat
/// For any other beat, reset a [`Sleep`]. With [`reset`](Sleep::reset) a period lies between the
/// end of the work and the next tick; with [`reset_to`](Sleep::reset_to) each missed tick follows
/// at once.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{SystemTimer, TimerError};
///
/// # pollster::block_on(async {
/// # let timer = SystemTimer::new().expect("a thread");
/// let period = Duration::from_millis(1);
/// let mut due = timer.now() + period;
/// let mut sleep = timer.sleep_until(due);
/// for _ in 0..3 {
///     (&mut sleep).await?; // ... then the work
///     due = due + period;
///     sleep.reset_to(due);
/// }
/// # Ok::<(), TimerError>(())
/// # })?;
/// # Ok::<(), TimerError>(())
/// ```
#[must_use = "it ticks when polled"]
pub struct Interval {
    sleep: Sleep,
    /// The moment at which the next tick is due.
    next: Moment,
    period: Duration,
}

opaque!([] Interval, next: next);

impl Interval {
    pub(crate) fn new(timer: &TimerInner, period: Duration) -> Result<Self, TimerError> {
        if period.is_zero() {
            return Err(TimerError::ZeroPeriod);
        }
        let mut interval = Interval {
            sleep: Sleep::until(timer, Moment::NEVER),
            next: Moment::from_nanos(timer.driver.now_ns()) + period,
            period,
        };
        interval.sleep_until_next();
        Ok(interval)
    }

    /// Sleeps until the first tick of the timer that is not before the interval's next tick. So an
    /// interval of a nanosecond yields once in a tick of the timer, and lets its task wait.
    fn sleep_until_next(&mut self) {
        let tick = self.sleep.tick();
        let due = tick.deadline_at(self.next);
        self.sleep.reset_to(Moment::from_nanos(tick.start_ns(due)));
    }

    /// Begins a new beat: the next tick is due a period from now.
    pub fn reset(&mut self) {
        self.next = Moment::from_nanos(self.sleep.now_ns()) + self.period;
        self.sleep_until_next();
    }

    /// Waits for the next tick, and yields the moment at which it was due, on the timer's clock.
    ///
    /// # Cancel safety
    /// A dropped call takes no tick: the next call waits for the same one.
    ///
    /// # Errors
    /// Returns an error as a [`Sleep`] does, when the tick is not due yet. Called again, it waits
    /// for the same tick.
    pub async fn tick(&mut self) -> Result<Moment, TimerError> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick, from another future's poll.
    ///
    /// # Errors
    /// Returns an error as [`tick`](Self::tick) does.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Result<Moment, TimerError>> {
        ready!(Pin::new(&mut self.sleep).poll(context))?;
        // Ticks that have passed meanwhile are skipped.
        let due = self.next;
        let pace = Pace::Rate(self.period);
        self.next = Moment::from_nanos(pace.next_ns(due.as_nanos(), self.sleep.now_ns()));
        self.sleep_until_next();
        Poll::Ready(Ok(due))
    }
}
