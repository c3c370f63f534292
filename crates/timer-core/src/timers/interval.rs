//! [`Interval`]: ticks to be awaited, a [`Sleep`] that each tick resets.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    driver::clock::{Moment, later_ns},
    timers::{TimerError, periodic::Pace, sleep::Sleep, task_timer::TimerInner},
};

/// The rule by which an [`Interval`] goes on after ticks that were not taken in time: tokio's, with
/// its names. tokio's default is [`Burst`](Self::Burst).
///
/// With a period of 10 ms, ticks due at 10, 20, 30, …, and the tick of 10 taken at 35, the ticks
/// that follow are due at:
///
/// | Rule | Due |
/// |---|---|
/// | `Skip` | 40, 50, 60 |
/// | `Delay` | 45, 55, 65 |
/// | `Burst` | 20, 30 (both at once), 40 |
///
/// ```
/// use std::{task::{Context, Poll, Waker}, time::Duration};
/// use timer_core::{ManualTimer, MissedTickBehavior};
///
/// let timer = ManualTimer::new();
/// let mut context = Context::from_waker(Waker::noop()); // your runtime's
/// let ms = Duration::from_millis(1);
/// let began = timer.now();
/// let mut beat = timer.interval(10 * ms)?;
/// beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
///
/// timer.advance(35 * ms);
/// for due in [10, 20, 30] {
///     assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(began + due * ms)));
/// }
/// assert!(beat.poll_tick(&mut context).is_pending());
/// # Ok::<(), timer_core::TimerError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// Ticks that were missed are skipped; the next one is a whole number of periods after the
    /// first. For work that looks at a state.
    #[default]
    Skip,
    /// The next tick is due a period after a late one was taken: between two ticks lies a period,
    /// and the beat shifts. For work that must not come too often. A tick is late when it is taken
    /// 5 ms or more after the timer's tick at which it fell due, as tokio has it: an earlier one is
    /// a thread's wake-up, and keeps the beat.
    Delay,
    /// Ticks that were missed follow at once, each with the moment at which it was due, until the
    /// beat is caught up with. For work that must be done once a period, late or not.
    Burst,
}

/// A tick is late, for [`MissedTickBehavior::Delay`], this long after the timer's tick for it.
const LATE_NS: u64 = 5_000_000;

impl MissedTickBehavior {
    /// Returns the moment of the tick after the one due at `due_ns`, which was taken at `now_ns`,
    /// and not late before `late_ns`.
    fn next_ns(self, period: Duration, due_ns: u64, now_ns: u64, late_ns: u64) -> u64 {
        match self {
            MissedTickBehavior::Skip => Pace::Rate(period).next_ns(due_ns, now_ns),
            MissedTickBehavior::Delay if now_ns >= late_ns => later_ns(now_ns, period),
            MissedTickBehavior::Delay | MissedTickBehavior::Burst => later_ns(due_ns, period),
        }
    }
}

/// Yields a tick each period. Made by [`Timer::interval`](crate::Timer::interval). `Send`, `Sync`
/// and `Unpin`, for any runtime.
///
/// A tick is due a whole number of periods after the first, to the nanosecond, however late the
/// others were taken. Ticks that were not taken before the next was due are skipped, as the starts
/// of a task at a fixed rate are; [`MissedTickBehavior`] has two other rules. A tick costs as much
/// as a [`Sleep`], and its wakers run where those of a `Sleep` run.
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
#[derive(Debug)]
#[must_use = "it ticks when polled"]
pub struct Interval {
    sleep: Sleep,
    /// The moment at which the next tick is due.
    next_ns: u64,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    pub(crate) fn new(timer: &TimerInner, period: Duration) -> Result<Self, TimerError> {
        if period.is_zero() {
            return Err(TimerError::ZeroPeriod);
        }
        let next_ns = later_ns(timer.driver.now_ns(), period);
        let mut interval = Interval {
            sleep: Sleep::until(timer, next_ns),
            next_ns,
            period,
            missed: MissedTickBehavior::default(),
        };
        interval.sleep_until_next();
        Ok(interval)
    }

    /// Sleeps until the timer's tick at which the next one is due, or that follows. So one of a
    /// nanosecond yields once in a tick of the timer, and does not keep its task from waiting.
    fn sleep_until_next(&mut self) {
        let tick = self.sleep.tick();
        let due = tick.deadline_at(Moment::from_nanos(self.next_ns));
        self.sleep.reset_to(Moment::from_nanos(tick.start_ns(due)));
    }

    /// Returns the rule for missed ticks.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets the rule for missed ticks. It counts from the next tick that is taken.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Sets another period. The next tick is due when it was; those after it come in the new
    /// period. A reset that follows counts by the new period at once.
    ///
    /// ```
    /// use std::{task::{Context, Poll, Waker}, time::Duration};
    /// use timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let mut context = Context::from_waker(Waker::noop()); // your runtime's
    /// let second = Duration::from_secs(1);
    /// let began = timer.now();
    /// let mut beat = timer.interval(10 * second)?;
    /// beat.set_period(60 * second)?; // the node is idle: after the next tick less often
    /// for due in [10, 70, 130] {
    ///     timer.advance(60 * second);
    ///     assert_eq!(beat.poll_tick(&mut context), Poll::Ready(Ok(began + due * second)));
    /// }
    /// # Ok::<(), timer_core::TimerError>(())
    /// ```
    ///
    /// # Errors
    /// [`TimerError::ZeroPeriod`]; the period is what it was.
    pub fn set_period(&mut self, period: Duration) -> Result<(), TimerError> {
        if period.is_zero() {
            return Err(TimerError::ZeroPeriod);
        }
        self.period = period;
        Ok(())
    }

    /// Begins a new beat: the next tick is due a period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Begins a new beat with a tick that is due now. (On a [`ManualTimer`](crate::ManualTimer) a
    /// tick that is being waited for comes with the next advance, one of zero too.)
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Begins a new beat with a tick `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.reset_at(Moment::from_nanos(self.sleep.now_ns()) + delay);
    }

    /// Begins a new beat with a tick at a moment of the timer's clock; one in the past is due at
    /// once, and [`Moment::NEVER`] never. Reads no clock.
    pub fn reset_at(&mut self, deadline: Moment) {
        self.next_ns = deadline.as_nanos();
        self.sleep.reset_to(deadline);
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
        // The moment of the next one, by the rule for missed ticks.
        let due_ns = self.next_ns;
        let now_ns = self.sleep.now_ns();
        let tick = self.sleep.tick();
        let late_ns = tick.start_ns(tick.round_up(due_ns)).saturating_add(LATE_NS);
        self.next_ns = self.missed.next_ns(self.period, due_ns, now_ns, late_ns);
        self.sleep_until_next();
        Poll::Ready(Ok(Moment::from_nanos(due_ns)))
    }
}
