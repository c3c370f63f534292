//! `DelayQueue`: values that one owner polls out once their time has come.
//!
//! The queue has a wheel of its own, which only its owner touches, so nothing is locked. Of the
//! shared timer it uses one [`Sleep`], which wakes the owner:
//!
//! - **Wake before**: a registered sleep is over no later than the wheel's first bucket is due.
//!   Earlier work moves the sleep forward. When values are removed the sleep stays, and costs at
//!   most one needless poll. So a poll before the sleep's tick has nothing to look for on the
//!   wheel.
//! - **Due first**: the ids of due values are popped before the wheel is advanced again. A value
//!   that was reset meanwhile is back in a bucket, so its old id in the list yields nothing.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    driver::{clock::Moment, driver::Driver, grace::Grace, must_yield, spend_budget},
    observe::opaque,
    timers::{ScheduleError, TimerError, sleep::Sleep, timer::Timer},
    wheel::{node::TaskId, timing_wheel::TimingWheel},
};

/// The most values that one advance of the wheel finds due, or hands down to a finer level.
const BATCH: usize = 64;

/// Values that each become available after a delay, to the one owner that polls the queue.
///
/// The queue works as tokio-util's queue of that name, but on any runtime: an actor, or a
/// connection's task, polls it beside its socket.
///
/// Values come out in order of the tick of their deadline, and never early. A deadline counts from
/// the call that sets it and rounds up to a tick of the timer; a value without delay is due at
/// once. Values of one tick come out in no order, and so do values whose deadline has already
/// passed when it is set.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{DelayQueue, SystemTimer};
///
/// # pollster::block_on(async {
/// let timer = SystemTimer::new()?; // one for many queues
/// let mut queue = DelayQueue::new(&timer);
/// let ms = Duration::from_millis;
/// queue.insert("second", ms(2))?;
/// let answered = queue.insert("never", ms(1))?;
/// let first = queue.insert("first", ms(60))?;
/// queue.reset(&first, ms(1));
/// assert_eq!(queue.remove(&answered), Some("never"));
///
/// let mut values = Vec::new();
/// while let Some(expired) = queue.next().await {
///     values.push(expired?.value);
/// }
/// assert_eq!(values, ["first", "second"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # As a stream
/// [`poll_expired`](Self::poll_expired) has the signature that `futures::stream::poll_fn` takes:
///
/// ```
/// # use timer_core::{DelayQueue, ManualTimer};
/// # let mut queue = DelayQueue::<u32>::new(&ManualTimer::new());
/// use futures_util::stream; // or `futures::stream`
///
/// let expired = stream::poll_fn(move |context| queue.poll_expired(context));
/// ```
///
/// # In tests
/// On a [`ManualTimer`](crate::ManualTimer) the queue follows the clock that the test advances:
///
/// ```
/// use std::{task::{Context, Poll, Waker}, time::Duration};
/// use timer_core::{DelayQueue, ManualTimer};
///
/// let timer = ManualTimer::new();
/// let mut queue = DelayQueue::new(&timer);
/// queue.insert(7, Duration::from_secs(30))?;
///
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(queue.poll_expired(&mut context).is_pending());
/// timer.advance(Duration::from_secs(30)); // wakes
/// let Poll::Ready(Some(Ok(expired))) = queue.poll_expired(&mut context) else { panic!() };
/// assert_eq!(expired.value, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// [`insert`](Self::insert), [`reset`](Self::reset): a clock read and a place on the wheel, O(1)
/// for common timeouts. [`remove`](Self::remove): O(1). None of them locks anything, except that a
/// value due before all others moves the owner's wake-up, under the lock of one shard of the timer.
/// A queue in which nothing is due wakes no thread. A value costs about 26 bytes beside an `Option`
/// of it; a polled queue takes one place on the timer ([`Timer::sleepers`] counts it).
///
/// # Where your code runs
/// Wakers are called as those of a [`Sleep`] are: by the timer's executor, with nothing locked. If
/// the last value is taken out while a waker waits, the thread that takes it out calls the waker.
/// Values are dropped by the owner's thread: by [`clear`](Self::clear), and with the queue.
///
/// # Which timer
/// A queue keeps its timer's threads running, with or without other handles, until it is dropped.
/// On a timer that follows a tokio runtime's clock (`SystemTimerBuilder::tokio`) the queue follows
/// that clock.
#[must_use = "values come out when it is polled"]
pub struct DelayQueue<T> {
    wheel: TimingWheel<T>,
    /// The ids of values found due (Due first), which are in no bucket of the wheel. An id yields
    /// nothing if its value was removed or reset since.
    due: VecDeque<TaskId>,
    /// Wakes the owner.
    sleep: Sleep,
    /// The tick until which the owner sleeps (Wake before); `u64::MAX` for ever.
    wake_tick: u64,
    /// The last poll was pending, so the owner waits for a value.
    is_awaited: bool,
    grace: Grace,
}

/// The result of looking for due values on the wheel.
enum Found {
    /// Some values are due.
    Due,
    /// No value is due yet, but there are more to hand down.
    More,
    /// No value is due before the owner's wake-up.
    None,
}

/// A value whose time has come, from [`DelayQueue::poll_expired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The key that [`DelayQueue::insert`] returned.
    pub key: TaskId,
    /// The value.
    pub value: T,
}

impl<T> DelayQueue<T> {
    /// Makes an empty queue on `timer`, with its tick and wheel size.
    pub fn new(timer: &Timer) -> Self {
        let driver = &timer.inner().driver;
        let now = driver.config.tick.round_down(driver.now_ns());
        DelayQueue {
            wheel: TimingWheel::new(driver.config.wheel_size, now),
            due: VecDeque::new(),
            sleep: Sleep::until(timer.inner(), Moment::NEVER),
            wake_tick: u64::MAX,
            is_awaited: false,
            grace: Grace::new(None, 0),
        }
    }

    /// Delays due values by `bound` after a pause of the process, so that the owner can first read
    /// what arrived meanwhile, as [`SystemTimerBuilder::grace`](crate::SystemTimerBuilder::grace)
    /// does for tasks. Off by default, and with a bound of zero. O(1).
    ///
    /// For an owner that polls the queue beside a socket: after a pause, values are due whose
    /// heartbeats lie unread. When a poll comes more than `bound` later than the owner was to be
    /// woken, due values wait for one more `bound`. Each such period is followed by a poll that
    /// yields. An owner that was busy for longer than `bound` also counts as paused; an owner that
    /// left an empty queue unpolled does not. After a panic of its [clock](crate::Clock) a timer
    /// wakes no task for 100 ms: with a bound below that, the owner counts as paused.
    ///
    /// While the queue holds values, an owner that waits is woken at least once each `bound`, so
    /// that every pause longer than twice the bound is noticed. With a grace,
    /// [`insert_at`](Self::insert_at) and [`reset_at`](Self::reset_at) read the clock when they
    /// move the wake-up.
    ///
    /// ```
    /// use std::{task::{Context, Waker}, time::Duration};
    /// use timer_core::{DelayQueue, ManualTimer};
    ///
    /// let timer = ManualTimer::new();
    /// let second = Duration::from_secs(1);
    /// let mut sessions = DelayQueue::new(&timer).grace(second);
    /// let kept_alive = sessions.insert("session", 30 * second)?;
    ///
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(sessions.poll_expired(&mut context).is_pending());
    /// timer.pass(60 * second); // the process is stopped
    /// assert!(sessions.poll_expired(&mut context).is_pending());
    /// sessions.reset(&kept_alive, 30 * second); // its socket is read now
    /// timer.advance(second);
    /// assert!(sessions.poll_expired(&mut context).is_pending());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grace(mut self, bound: Duration) -> Self {
        let now_ns = self.driver().now_ns();
        self.grace = Grace::new(Some(bound), now_ns);
        // The wake-up for values that are there already moves within the bound.
        if !self.is_empty() {
            self.sleep_until(self.within_bound(self.wake_tick, now_ns));
        }
        self
    }

    /// Adds a value that is available once `delay` has passed. [`Duration::MAX`] and the like mean
    /// "practically never". The key names the value in this queue and is never used for another.
    ///
    /// If the last poll was pending, or found the queue empty, its waker is called in time.
    ///
    /// # Errors
    /// [`ScheduleError`] hands the value back after the timer's shutdown
    /// ([`TimerError::Closed`]), and when the queue holds [`MAX_TASKS`](crate::MAX_TASKS) values
    /// ([`TimerError::Full`]).
    #[inline]
    pub fn insert(&mut self, value: T, delay: Duration) -> Result<TaskId, ScheduleError<T>> {
        let deadline = self.deadline_after(delay);
        self.put(deadline, value)
    }

    /// Inserts as [`insert`](Self::insert) does, but at a moment of the timer's clock. A moment
    /// before the present tick is due at once, in no order among the due values; [`Moment::NEVER`]
    /// is never due. Reads no clock.
    ///
    /// # Errors
    /// Returns an error as [`insert`](Self::insert) does.
    pub fn insert_at(&mut self, value: T, deadline: Moment) -> Result<TaskId, ScheduleError<T>> {
        let deadline = self.driver().config.tick.deadline_at(deadline);
        self.put(deadline, value)
    }

    /// Returns the tick of the deadline `delay` from now. Reads the clock.
    #[inline]
    fn deadline_after(&mut self, delay: Duration) -> u64 {
        let ticks = self.driver().ticks_after(delay);
        // After an idle time the wheel lags behind the present.
        self.wheel.catch_up(ticks.now);
        // With no time to wait, the value is due now, not at the next tick.
        if delay.is_zero() {
            return ticks.now;
        }
        ticks.deadline
    }

    /// Adds a value that is due at a tick.
    #[inline]
    fn put(&mut self, deadline: u64, value: T) -> Result<TaskId, ScheduleError<T>> {
        if self.driver().is_closed() {
            return Err(ScheduleError::new(value, TimerError::Closed));
        }
        // An owner may leave an empty queue unpolled: it is not late for the earlier wake-up, and
        // the grace period of values that are gone is over.
        if self.is_empty() && self.grace.is_on() {
            self.wake_tick = u64::MAX;
            self.grace.end_period();
        }
        let scheduled = self
            .wheel
            .insert(deadline, value)
            .map_err(ScheduleError::full)?;
        self.wake_by(scheduled.due);
        Ok(scheduled.id)
    }

    /// Takes a value out before it is polled out; `None` if the queue no longer has it. If this was
    /// the last value, an owner that waits is woken: its next poll yields `None`. O(1).
    #[inline]
    pub fn remove(&mut self, key: &TaskId) -> Option<T> {
        let value = self.wheel.cancel(*key);
        self.wake_if_empty();
        value
    }

    /// Reschedules a value to `delay` from now, earlier or later, due already or not; the value
    /// keeps its key. Returns false if the queue no longer has it. O(1).
    pub fn reset(&mut self, key: &TaskId, delay: Duration) -> bool {
        let deadline = self.deadline_after(delay);
        self.move_to(key, deadline)
    }

    /// Resets as [`reset`](Self::reset) does, but to a moment of the timer's clock, as in
    /// [`insert_at`](Self::insert_at).
    pub fn reset_at(&mut self, key: &TaskId, deadline: Moment) -> bool {
        let deadline = self.driver().config.tick.deadline_at(deadline);
        self.move_to(key, deadline)
    }

    /// Reschedules a value to a tick. Returns false if the queue no longer has it.
    fn move_to(&mut self, key: &TaskId, deadline: u64) -> bool {
        let Some(due) = self.wheel.reschedule(*key, deadline) else {
            return false;
        };
        self.wake_by(due);
        true
    }

    /// Returns the value, if the queue still has it. O(1).
    pub fn get(&self, key: &TaskId) -> Option<&T> {
        self.wheel.get(*key)
    }

    /// Returns the value, if the queue still has it. O(1).
    pub fn get_mut(&mut self, key: &TaskId) -> Option<&mut T> {
        self.wheel.get_mut(*key)
    }

    /// Yields the next value whose time has come; `None` when the queue is empty.
    ///
    /// When nothing is due, the context's waker is called once a value is, even one that is
    /// inserted later, or once all values were taken out otherwise. After `None` the waker is
    /// called once a value that was inserted since is due, so an owner that has more to do may poll
    /// an empty queue whenever it is awake. As with every poll function only the latest waker
    /// counts, and it may be called without need.
    ///
    /// A poll does a bounded amount of work: after handing 64 values down to a finer level without
    /// finding one due, it calls the waker and is pending. In a task of tokio that has used up its
    /// cooperative budget a poll yields first (feature `tokio`).
    ///
    /// # Errors
    /// If values are left that are not due yet and the owner gets no wake-up for them:
    /// [`TimerError::Closed`] after the timer's shutdown, which wakes the owner;
    /// [`Forked`](TimerError::Forked) in a child of `fork`, once the timer notices that;
    /// [`Full`](TimerError::Full) if the timer takes no more sleeps. [`drain`](Self::drain) takes
    /// these values back. Due values still come out.
    ///
    /// # Cost
    /// O(1) for a value, one clock read for up to 64 of them. A pending poll also takes the lock of
    /// one shard of the timer; before the wake-up it does not look at the values.
    pub fn poll_expired(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Expired<T>, TimerError>>> {
        if must_yield(context.waker()) {
            if self.next_due_in() == Some(Duration::ZERO) {
                self.driver().count_yield();
            }
            return Poll::Pending;
        }
        self.is_awaited = false;
        loop {
            // 1. A value that was found due before.
            if let Some(expired) = self.pop_due() {
                spend_budget();
                return Poll::Ready(Some(Ok(expired)));
            }
            // 2. Look for more, up to the present.
            match self.find_due() {
                Found::Due => continue,
                Found::More => {
                    self.driver().count_yield();
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Found::None => {}
            }
            // 3. None is due: the owner is woken when the first bucket is due (Wake before).
            let slept = self.sleep.poll_now(context.waker());
            let is_empty = self.wheel.is_empty();
            match slept {
                // Registered even when the queue is empty: a value inserted later wakes the owner.
                Poll::Pending if is_empty => return Poll::Ready(None),
                Poll::Pending => {
                    self.is_awaited = true;
                    return Poll::Pending;
                }
                // The time has come since. The owner is not registered: look again, even by a clock
                // that shows less than it did when the wake-up was set.
                Poll::Ready(Ok(())) => {
                    let tick = self.driver().config.tick;
                    self.wake_tick = self.wake_tick.min(tick.round_down(self.sleep.now_ns()));
                }
                Poll::Ready(Err(_)) if is_empty => return Poll::Ready(None),
                // A closed timer does not wake the owner after a grace period: due values come now.
                Poll::Ready(Err(_)) if self.driver().is_closed() && self.grace.end_period() => {
                    self.wake_tick = 0;
                }
                Poll::Ready(Err(refused)) => return Poll::Ready(Some(Err(refused))),
            }
        }
    }

    /// Waits for the next value whose time has come; `None` when the queue is empty. It yields the
    /// errors of [`poll_expired`](Self::poll_expired).
    ///
    /// # Cancel safety
    /// A dropped call loses nothing: a value leaves the queue only as it is returned.
    pub async fn next(&mut self) -> Option<Result<Expired<T>, TimerError>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// Returns the time until the queue has work: a value is due, or values are handed down to a
    /// finer level. Zero when it has work now, `None` when it is empty. No value is due before that
    /// time. With a [grace](Self::grace) it is at most the bound, rounded up to a tick, and during
    /// a grace period the rest of the period. O(1); reads the clock.
    pub fn next_due_in(&mut self) -> Option<Duration> {
        if self.wheel.is_empty() {
            return None;
        }
        // Ids in the list may be stale. Then the result is too early by one poll.
        let mut due = self.wheel.now();
        if self.due.is_empty() {
            due = self.wheel.next_due()?;
            // With a grace the next poll is due by the wake-up, not before the end of a period.
            if self.grace.is_on() {
                due = self.wake_tick;
            }
        }
        let driver = self.driver();
        let due_ns = driver.config.tick.start_ns(due);
        Some(Duration::from_nanos(due_ns.saturating_sub(driver.now_ns())))
    }

    /// Returns the number of values in the queue, due ones included. O(1).
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Returns true when the queue holds no value. O(1).
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Takes all values out, in no order. An owner that waits is woken, as by
    /// [`remove`](Self::remove). O(n).
    pub fn drain(&mut self) -> Vec<T> {
        self.due.clear();
        let mut values = Vec::with_capacity(self.wheel.len());
        let mut from = 0;
        while let Some(key) = self.wheel.first_from(from) {
            from = key.index();
            values.extend(self.wheel.cancel(key));
        }
        self.wake_if_empty();
        values
    }

    /// Drops all values. Earlier keys then name nothing, and an owner that waits is woken, as after
    /// [`remove`](Self::remove). O(n).
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Looks for due values on the wheel. If there is none, sets the owner's wake-up.
    fn find_due(&mut self) -> Found {
        let now_ns = self.sleep.now_ns();
        let tick = self.driver().config.tick;
        let now = tick.round_down(now_ns);
        // 1. Before the wake-up no bucket is due.
        if now < self.wake_tick {
            self.wheel.catch_up(now);
            return Found::None;
        }
        // 2. After a pause of the process due values wait a while longer.
        if let Some(rest) = self.grace_rest(now_ns) {
            self.sleep_until(tick.deadline(now_ns, rest));
            return Found::None;
        }
        // 3. Take a bounded number. Until the wake-up is set (4) the next poll looks again.
        self.wake_tick = now;
        let due = &mut self.due;
        let advanced = (self.wheel).advance(now, BATCH, |task| due.push_back(task.id()));
        if advanced.fired > 0 {
            return Found::Due;
        }
        // 4. The next wake-up.
        let next_due = advanced.next_due.unwrap_or(u64::MAX);
        if next_due <= now {
            return Found::More;
        }
        let wake_tick = if self.is_empty() {
            next_due
        } else {
            self.within_bound(next_due, now_ns)
        };
        self.sleep_until(wake_tick);
        Found::None
    }

    /// Returns the rest of a grace period that is under way or begins now.
    fn grace_rest(&mut self, now_ns: u64) -> Option<Duration> {
        // A timer that is shut down wakes no owner at the period's end; without values nothing waits.
        if self.driver().is_closed() || self.is_empty() {
            return None;
        }
        let planned_ns = self.driver().config.tick.start_ns(self.wake_tick);
        self.grace.rest(now_ns, planned_ns)
    }

    /// Returns `tick`, or with a grace the tick that is its bound away, if that is earlier.
    fn within_bound(&self, tick: u64, now_ns: u64) -> u64 {
        let last = (self.driver().config.tick).deadline(now_ns, self.grace.bound());
        tick.min(last)
    }

    /// Takes out the first value that was found due and is due still.
    fn pop_due(&mut self) -> Option<Expired<T>> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(value) = self.wheel.take_unscheduled(key) {
                return Some(Expired { key, value });
            }
        }
    }

    /// Wakes an owner that waits for a value, if no value is left.
    fn wake_if_empty(&mut self) {
        if self.is_awaited && self.wheel.is_empty() {
            self.is_awaited = false;
            self.sleep.wake_now();
        }
    }

    /// Moves the owner's wake-up forward to a tick, if it is set to a later one.
    fn wake_by(&mut self, due: u64) {
        if due < self.wake_tick {
            self.sleep_until(due);
            // With a grace the wake-up comes sooner. If the clock panics here, it comes in time.
            if self.grace.is_on() {
                self.sleep_until(self.within_bound(due, self.sleep.now_ns()));
            }
        }
    }

    /// Sets the owner's wake-up to a tick (Wake before).
    fn sleep_until(&mut self, tick: u64) {
        self.wake_tick = tick;
        let until_ns = self.driver().config.tick.start_ns(tick);
        self.sleep.reset_to(Moment::from_nanos(until_ns));
    }

    fn driver(&self) -> &Driver {
        self.sleep.driver()
    }
}

opaque!([T] DelayQueue<T>, len: len());

/// The queue pins no value.
impl<T> Unpin for DelayQueue<T> {}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{timers::manual::ManualTimer, wheel::steps_of};

    #[test]
    fn an_idle_poll_looks_at_no_bucket() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut queue = DelayQueue::new(&ManualTimer::new());
        let mut context = Context::from_waker(Waker::noop());
        for value in 0..1000 {
            queue.insert(value, SECOND * (value + 60)).unwrap();
        }
        assert!(queue.poll_expired(&mut context).is_pending());
        for value in 0..100 {
            // A request that is answered in time leaves an empty bucket.
            let key = queue.insert(value, SECOND * 70).unwrap();
            queue.remove(&key).unwrap();
            let (polled, steps) = steps_of(|| queue.poll_expired(&mut context));
            // The steps find the owner's waker on the timer.
            assert!(polled.is_pending() && steps <= 2, "{steps} steps");
        }
    }
}
