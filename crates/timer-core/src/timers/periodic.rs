//! Tasks that run again and again, and [`Interval`], a beat to be awaited.
//!
//! A task that runs again and again: each run puts the task back onto the wheel when it is over.
//!
//! So a run never overlaps the next, a slow one makes none pile up, and stopping from inside the
//! task is no special case. The task is boxed once and moves between wheel and executor.

use std::{
    error::Error,
    fmt,
    future::poll_fn,
    hash::{BuildHasher, Hasher, RandomState},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    driver::{
        clock::later_ns,
        executor::{Latch, on_timer_thread},
        panics::contain,
        shards::TimerHandle,
    },
    timers::{
        TimerTask,
        errors::ScheduleErrorReason,
        sleep::{Sleep, Sleeps},
        task_timer::{TaskTimer, WeakTaskTimer},
    },
};

/// How a periodic task's next start follows from its last run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// From start to start; missed ones fall out.
    Rate(Duration),
    /// From end to start.
    Delay(Duration),
}

impl Pace {
    fn period(self) -> Duration {
        match self {
            Pace::Rate(period) | Pace::Delay(period) => period,
        }
    }

    /// The start after the one that was due at `last_ns`, its run having ended at `now_ns`.
    pub(crate) fn next_ns(self, last_ns: u64, now_ns: u64) -> u64 {
        match self {
            Pace::Delay(delay) => later_ns(now_ns, delay),
            Pace::Rate(period) => {
                let period_ns = later_ns(0, period);
                let missed = now_ns.saturating_sub(last_ns) / period_ns;
                let periods = missed.saturating_add(1);
                last_ns.saturating_add(period_ns.saturating_mul(periods))
            }
        }
    }
}

/// A task that runs again and again, until it is cancelled or the timer is shut down or dropped.
///
/// A panic in one run is contained, counted and reported, and the next run comes. Dropping this
/// lets the task go on.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{ManualTimer, Timer};
///
/// let timer = ManualTimer::new();
/// let (send, beats) = mpsc::channel();
/// let second = Duration::from_secs(1);
/// let heartbeat = timer.schedule_at_fixed_rate(second, second, move || send.send(()).unwrap())?;
/// timer.advance(3 * second);
/// heartbeat.cancel();
/// timer.advance(3 * second);
/// assert_eq!(beats.try_iter().count(), 3);
/// # Ok::<(), timer_core::PeriodicError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Periodic {
    state: Arc<Mutex<State>>,
    /// A run that was begun.
    running: Latch,
    /// The thread it is on.
    run_by: Arc<Mutex<Option<ThreadId>>>,
    /// Weak: the task lies on these wheels, and must not keep its timer alive.
    tasks: WeakTaskTimer<Box<dyn TimerTask>>,
}

#[derive(Debug)]
enum State {
    Waiting(TimerHandle),
    Running,
    Over,
}

impl Periodic {
    /// A delay below `period`, at random: for the first start of a task that many run, so that they
    /// do not all run at one moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{ManualTimer, Periodic, Timer};
    ///
    /// let (timer, minute) = (ManualTimer::new(), Duration::from_secs(60));
    /// let first = Periodic::first_after(minute);
    /// let cleaner = timer.schedule_at_fixed_rate(first, minute, || println!("cleaned"))?;
    /// # assert!(first < minute && cleaner.cancel());
    /// # Ok::<(), timer_core::PeriodicError>(())
    /// ```
    pub fn first_after(period: Duration) -> Duration {
        let random = RandomState::new().build_hasher().finish(); // its keys are random
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let below_ns = (u128::from(random) * u128::from(period_ns)) >> 64;
        Duration::from_nanos(below_ns as u64)
    }

    /// Ends it: after this returned no run is begun. One that was begun before goes on, and its
    /// task may only then be called: nobody waits for it here
    /// ([`cancel_and_wait`](Self::cancel_and_wait) does). From inside the task: this run is the
    /// last. False if it was over already.
    pub fn cancel(&self) -> bool {
        let state = std::mem::replace(&mut *self.state.lock(), State::Over);
        match state {
            State::Waiting(handle) => {
                drop(self.tasks.upgrade().and_then(|tasks| tasks.cancel(handle)));
                true
            }
            State::Running => true,
            State::Over => false,
        }
    }

    /// As [`cancel`](Self::cancel), and waits until a run that was begun is over: after this
    /// returned true the task is not called and does not run. On a thread of a timer, and inside
    /// the task, it waits for nobody, and is false while a run goes on. (A lock that the task takes
    /// must not be held meanwhile; and on an executor of your own two tasks must not wait for each
    /// other.)
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
    /// use timer_core::{SystemTimer, Timer};
    ///
    /// let timer = SystemTimer::new()?;
    /// let (ms, over) = (Duration::from_millis(1), Arc::new(AtomicBool::new(false)));
    /// let seen = over.clone();
    /// let beat = timer.schedule_at_fixed_rate(ms, ms, move || assert!(!seen.load(SeqCst)))?;
    /// assert!(beat.cancel_and_wait());
    /// over.store(true, SeqCst);
    /// # timer.shutdown(Duration::MAX);
    /// # assert_eq!(timer.stats().panics, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_and_wait(&self) -> bool {
        self.cancel();
        let own_run = *self.run_by.lock() == Some(thread::current().id());
        let limit = if own_run || on_timer_thread() { Duration::ZERO } else { Duration::MAX };
        self.running.wait(limit) == 0
    }

    /// True until it is cancelled or the timer is shut down. (It does not keep its timer alive:
    /// once that was dropped it never runs again, yet this stays true.)
    pub fn is_active(&self) -> bool {
        !matches!(*self.state.lock(), State::Over)
    }
}

struct Task<F> {
    act: F,
    pace: Pace,
    due_ns: u64,
    periodic: Periodic,
}

pub(crate) fn start(
    tasks: &TaskTimer<Box<dyn TimerTask>>,
    first: Duration,
    pace: Pace,
    act: impl FnMut() + Send + 'static,
) -> Result<Periodic, PeriodicError> {
    if pace.period().is_zero() {
        return Err(PeriodicError::ZeroPeriod);
    }
    let due_ns = later_ns(tasks.driver().now_ns(), first);
    let periodic = Periodic {
        state: Arc::new(Mutex::new(State::Running)),
        running: Latch::default(),
        run_by: Arc::default(),
        tasks: tasks.downgrade(),
    };
    let task = Box::new(Task { act, pace, due_ns, periodic: periodic.clone() });
    task.put_back(tasks).map_err(PeriodicError::NotScheduled)?;
    Ok(periodic)
}

impl<F: FnMut() + Send + 'static> Task<F> {
    /// Puts the task onto the wheel, unless it was cancelled meanwhile.
    fn put_back(
        self: Box<Self>,
        tasks: &TaskTimer<Box<dyn TimerTask>>,
    ) -> Result<(), ScheduleErrorReason> {
        let (periodic, due_ns) = (self.periodic.clone(), self.due_ns);
        let mut state = periodic.state.lock();
        if matches!(*state, State::Over) {
            drop(state); // the task is dropped with nothing locked
            return Ok(());
        }
        match tasks.schedule_at(due_ns, self) {
            Ok(handle) => {
                *state = State::Waiting(handle);
                Ok(())
            }
            Err(refused) => {
                *state = State::Over;
                drop(state);
                Err(refused.reason)
            }
        }
    }
}

impl<F: FnMut() + Send + 'static> TimerTask for Task<F> {
    fn run(mut self: Box<Self>) {
        let running = {
            let mut state = self.periodic.state.lock();
            if matches!(*state, State::Over) {
                return;
            }
            *state = State::Running;
            *self.periodic.run_by.lock() = Some(thread::current().id());
            self.periodic.running.begin()
        };
        let result = contain(|| (self.act)());
        *self.periodic.run_by.lock() = None;
        drop(running);
        let Some(tasks) = self.periodic.tasks.upgrade() else { return };
        self.due_ns = self.pace.next_ns(self.due_ns, tasks.driver().now_ns());
        let _ = self.put_back(&tasks); // refused: the timer was shut down
        if let Err(panicked) = result {
            tasks.report(&panicked);
        }
    }
}

/// A periodic task could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeriodicError {
    /// A period of zero would run without end.
    ZeroPeriod,
    /// The timer is shut down or full.
    NotScheduled(ScheduleErrorReason),
}

impl fmt::Display for PeriodicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeriodicError::ZeroPeriod => f.write_str("a period of 0 s; it must be above zero"),
            PeriodicError::NotScheduled(reason) => write!(f, "not scheduled: {reason}"),
        }
    }
}

impl Error for PeriodicError {}

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
    fn a_fixed_rate_keeps_its_beat_and_lets_missed_starts_fall_out() {
        let rate = Pace::Rate(Duration::from_nanos(10));
        assert_eq!(rate.next_ns(100, 100), 110);
        assert_eq!(rate.next_ns(100, 109), 110);
        assert_eq!(rate.next_ns(100, 110), 120);
        assert_eq!(rate.next_ns(100, 157), 160);
        assert_eq!(Pace::Rate(Duration::MAX).next_ns(100, 110), u64::MAX);
    }

    #[test]
    fn a_fixed_delay_counts_from_the_end() {
        assert_eq!(Pace::Delay(Duration::from_nanos(10)).next_ns(100, 157), 167);
    }

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
