//! `Sleep`: a future that is ready at its time, on any runtime; and [`timeout`], which limits how
//! long another future may take.
//!
//! The wheel keeps the waker of the task that polled last, in a [`TaskTimer`] whose handler wakes
//! it. *The wheel decides*: a sleep is registered exactly while its handle is pending there. A poll
//! of an unregistered sleep reads the clock, and registers the sleep if it is early. Its time or the
//! timer's shutdown takes the waker off the wheel; the poll that follows finds out which of the two
//! it was, and no poll is needed before.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use crate::{
    driver::{
        clock::Moment,
        driver::Driver,
        handle::TimerHandle,
        must_yield, spend_budget,
        tick::{TickLength, Ticks},
    },
    observe::opaque,
    panics::contain,
    sync::failpoint,
    timers::{
        TimerError,
        task_timer::{TimerInner, Wakers},
    },
};

/// A future that is ready once its time has come, never before. On a machine that keeps up it is at
/// most one tick late; with no time to wait it is ready at its first poll. Made by
/// [`Timer::sleep`](crate::Timer::sleep). `Send`, `Sync` and `Unpin`, for any runtime.
///
/// The time counts from the call that made the sleep. From the first poll that finds it early until
/// it is ready or dropped, the sleep takes a place on the timer's wheel, with the waker of the
/// latest poll. (The first poll does not ask a [`SystemTimer`](crate::SystemTimer) for the time
/// again: if it comes too late, the sleep registers and is woken soon.) In a task of tokio that has
/// used up its cooperative budget a sleep yields first (feature `tokio`); in a [`timeout`] it does
/// not.
///
/// ```
/// use std::{future::Future, pin::pin, task::{Context, Poll, Waker}, time::Duration};
/// use timer_core::ManualTimer;
///
/// let timer = ManualTimer::new();
/// let mut sleep = pin!(timer.sleep(Duration::from_millis(5)));
/// let mut context = Context::from_waker(Waker::noop()); // your runtime's
///
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
/// timer.advance(Duration::from_millis(4));
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
/// timer.advance(Duration::from_millis(1)); // wakes
/// assert_eq!(sleep.as_mut().poll(&mut context), Poll::Ready(Ok(())));
/// ```
///
/// # Errors
/// Polled before its time, a sleep yields a [`TimerError`] when it gets no place on the wheel:
/// `Closed` after the timer's shutdown, which wakes all sleepers. The next poll tries again. Polled
/// after its time has come, a sleep yields no error on any timer.
///
/// # Cost
/// Making a sleep: a clock read. Each poll, and the drop of a registered sleep: an uncontended
/// lock. (The first poll reads the clock again on a `ManualTimer`, and for a sleep until a moment.)
/// All O(1).
///
/// # Cancel safety
/// Dropping a sleep takes its waker off the wheel at once. A sleep that was ready yields the same
/// at each later poll, until it is [reset](Self::reset).
///
/// # Where wakers run
/// A waker is called by the timer's executor (with a [`ManualTimer`](crate::ManualTimer) on the
/// advancing thread), cloned by the polling thread, and dropped by a thread that polls with another
/// waker, drops the sleep, or wakes. Nothing is locked in any of these cases. A panic of a wake is
/// contained and counted ([`Timer::stats`](crate::Timer::stats)); a panic of a clone or a drop
/// reaches its caller and changes nothing.
///
/// # Which timer
/// A sleep keeps its timer's threads running, with or without other handles, until it is dropped.
#[must_use = "it sleeps when polled"]
pub struct Sleep {
    wakers: Wakers,
    deadline: Moment,
    registration: Registration,
}

/// The place of a sleep's waker, as far as the sleep knows.
#[derive(Clone, Copy, Debug)]
enum Registration {
    /// The sleep is not on the wheel yet; it was made at this moment. A reaper finds overdue sleeps
    /// by itself, so the first poll need not read the clock once more.
    Fresh { now_ns: u64 },
    /// The sleep is on the wheel.
    On(TimerHandle),
    /// The sleep is not on the wheel.
    Off,
}

impl Sleep {
    pub(super) fn after(timer: &TimerInner, delay: Duration) -> Self {
        // On a manual timer an overdue task waits for the next advance, so the first poll must
        // look.
        let now_ns = timer.driver.now_ns();
        let mut sleep = Sleep::until(timer, Moment::from_nanos(now_ns) + delay);
        if !timer.driver.config.manual {
            sleep.registration = Registration::Fresh { now_ns };
        }
        sleep
    }

    pub(super) fn until(timer: &TimerInner, deadline: Moment) -> Self {
        Sleep {
            wakers: timer.wakers().clone(),
            deadline,
            registration: Registration::Off,
        }
    }

    /// Returns true when the sleep's time has come. (A registered sleep is ready at the tick that
    /// follows.) Reads the clock.
    pub fn is_due(&self) -> bool {
        self.is_due_at(self.now_ns())
    }

    /// Reschedules the sleep to `delay` from now, earlier or later than before, over or not. A
    /// registered sleep stays registered, with its waker; any other is registered by the next poll.
    /// O(1).
    pub fn reset(&mut self, delay: Duration) {
        let now_ns = self.now_ns();
        let mut deadline = Moment::from_nanos(now_ns) + delay;
        // With no time to wait, the deadline is the present tick: a registered sleep is due at
        // once.
        if delay.is_zero() {
            let tick = self.tick();
            deadline = Moment::from_nanos(tick.start_ns(tick.round_down(now_ns)));
        }
        self.reset_to(deadline);
    }

    /// Resets as [`reset`](Self::reset) does, but to a moment of the timer's clock. A moment in the
    /// past is due at once, [`Moment::NEVER`] never. Reads no clock.
    pub fn reset_to(&mut self, deadline: Moment) {
        self.deadline = deadline;
        if let Registration::On(handle) = self.registration {
            let ticks = Ticks::without_now(self.tick().deadline_at(deadline));
            if self.wakers.reschedule_at(handle, ticks) {
                return;
            }
        }
        // The waker has left the wheel and is called, so a poll follows.
        self.registration = Registration::Off;
    }

    /// Wakes the task that polled last, on this thread, if the sleep is registered. The poll that
    /// follows registers it anew. A panic of the waker is contained, counted and reported.
    pub(super) fn wake_now(&mut self) {
        let Registration::On(handle) = self.registration else {
            return;
        };
        self.registration = Registration::Off;
        // `None`: the time has come meanwhile, and the timer's executor wakes the task.
        let Some(waker) = self.wakers.cancel(handle) else {
            return;
        };
        if let Err(panicked) = contain(|| waker.wake()) {
            self.wakers.report(&panicked);
        }
    }

    /// Returns the present, on the timer's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.driver().now_ns()
    }

    /// Returns the inside of the timer.
    #[inline]
    pub(super) fn driver(&self) -> &Driver {
        self.wakers.driver()
    }

    /// Returns true when the time has come by `now_ns`, to the nanosecond. The end of time never
    /// comes.
    fn is_due_at(&self, now_ns: u64) -> bool {
        Moment::from_nanos(now_ns) >= self.deadline && self.deadline != Moment::NEVER
    }

    pub(super) fn tick(&self) -> TickLength {
        self.driver().config.tick
    }

    /// Polls without a look at the task's cooperative budget.
    pub(super) fn poll_now(&mut self, waker: &Waker) -> Poll<Result<(), TimerError>> {
        // 1. A registered sleep is not due: the wheel would have let its waker go.
        let now_ns = match self.registration {
            Registration::Fresh { now_ns } => now_ns,
            Registration::On(handle) if self.keep(handle, waker) => return Poll::Pending,
            Registration::On(_) | Registration::Off => self.now_ns(),
        };
        // 2. The clock decides for any other. A sleep with no time to wait is ready at once.
        self.registration = Registration::Off;
        if self.is_due_at(now_ns) {
            return Poll::Ready(Ok(()));
        }
        // 3. Early: the waker goes onto the wheel.
        let ticks = Ticks {
            now: self.tick().round_down(now_ns),
            deadline: self.tick().deadline_at(self.deadline),
        };
        match self.wakers.tasks.insert(ticks, waker.clone()) {
            Ok(handle) => {
                self.registration = Registration::On(handle);
                Poll::Pending
            }
            // The wheel has refused, as after a shutdown. The sleep's time may have come since.
            Err(_) if self.is_due() => Poll::Ready(Ok(())),
            Err(refused) => Poll::Ready(Err(refused.reason)),
        }
    }

    /// Leaves this waker on the wheel. Returns false if the sleep is no longer registered.
    fn keep(&self, handle: TimerHandle, waker: &Waker) -> bool {
        match self.wakers.with(handle, |kept| kept.will_wake(waker)) {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
        }
        // Another waker: clone it, and drop the earlier one, with nothing locked.
        let mut other = waker.clone();
        let replaced = self
            .wakers
            .with(handle, |kept| std::mem::swap(kept, &mut other));
        drop(other); // the earlier one, or, if this came too late, the clone
        replaced.is_some() || failpoint!(LateWakerWaits)
    }
}

impl Future for Sleep {
    type Output = Result<(), TimerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if must_yield(context.waker()) {
            if self.is_due() {
                self.driver().count_yield();
            }
            return Poll::Pending;
        }
        let slept = self.poll_now(context.waker());
        if slept.is_ready() {
            spend_budget();
        }
        slept
    }
}

opaque!([] Sleep, deadline: deadline);

impl Drop for Sleep {
    fn drop(&mut self) {
        if failpoint!(DroppedSleepStays) {
            return;
        }
        if let Registration::On(handle) = self.registration {
            drop(self.wakers.cancel(handle));
        }
    }
}

/// Awaits `future` until `sleep` is over, and yields the output of `future` or an error. For any
/// runtime; `Send` and `Sync` as `future` is.
///
/// The time counts from the making of the [`Sleep`], which ends after a delay
/// ([`Timer::sleep`](crate::Timer::sleep)) or at a moment
/// ([`Timer::sleep_until`](crate::Timer::sleep_until)). `future` is polled first, so it is in time
/// if it is ready when the time is up. If it is ready at once, the timeout costs a clock read and
/// nothing on the wheel. Costs, cancel safety and the thread that runs wakers are those of a
/// `Sleep`.
///
/// `future` is dropped when the time is up. To go on with it, lend it: `&mut future`, or
/// `future.as_mut()` of a pinned one, is itself a future.
///
/// ```
/// use std::{pin::pin, time::Duration};
/// use timer_core::{SystemTimer, TimerError, timeout};
///
/// # pollster::block_on(async {
/// let timer = SystemTimer::new()?;
/// let ms = Duration::from_millis(1);
/// let mut answer = pin!(timer.sleep(30 * ms)); // a slow answer
/// let first = timeout(timer.sleep(ms), answer.as_mut()).await;
/// assert_eq!(first, Err(TimerError::Elapsed));
/// answer.await?; // it was not lost
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`TimerError::Elapsed`]; or the error of the sleep, when `future` is not ready and the sleep
/// cannot limit it.
pub async fn timeout<F: IntoFuture>(mut sleep: Sleep, future: F) -> Result<F::Output, TimerError> {
    let mut future = pin!(future.into_future());
    poll_fn(|context| {
        // `future` is polled first: it is in time as long as it is ready.
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        // The limit holds even if `future` has used up the budget of its task.
        let slept = ready!(sleep.poll_now(context.waker()));
        Poll::Ready(Err(slept.err().unwrap_or(TimerError::Elapsed)))
    })
    .await
}
