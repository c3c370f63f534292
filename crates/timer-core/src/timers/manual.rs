//! `ManualTimer`: the same wheels and the same hand-over, with a clock that the program advances.
//! For tests, simulations and event loops.

use std::{
    future::poll_fn,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use crate::{
    driver::{
        agenda::{Agenda, DueOwner},
        clock::{Clock, DriverClock, ManualClock, later_ns},
        driver::Driver,
        executor::{inside_timer, on_timer_thread},
        owners::Shared,
        tick::TickLength,
    },
    observe::opaque,
    sync::plain::Mutex,
    timers::timer::Timer,
    wheel::geometry::WheelSize,
};

/// A timer whose time passes only in [`advance`](Self::advance). A handle: all clones refer to the
/// same timer. It derefs to [`Timer`], whose methods schedule, sleep and shut down.
///
/// Due tasks run inline, on the advancing thread, tick by tick. Overdue tasks run in the order of
/// their deadlines. Tasks with the same deadline run in the order in which they were first
/// scheduled, which rescheduling does not change. Owners of wheels come one after the other, in the
/// order in which they were attached. The timer's tasks are the first; its sleeps are attached when
/// the first one is made.
///
/// A sleep that is registered while another thread advances beyond its time is woken by the next
/// [`advance`](Self::advance). While a task runs, the clock shows the task's tick, so tasks that it
/// schedules fall due in order.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::ManualTimer;
///
/// let timer = ManualTimer::new();
/// let (send, fired) = mpsc::channel();
/// timer.schedule(Duration::from_millis(350), move || send.send(350).unwrap())?;
/// timer.advance(Duration::from_millis(349));
/// assert!(fired.try_recv().is_err());
/// timer.advance(Duration::from_millis(1));
/// assert_eq!(fired.try_recv(), Ok(350));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct ManualTimer {
    timer: Timer,
    clock: ManualClock,
    /// The goal of the running `advance`.
    target_ns: Arc<Mutex<Option<u64>>>,
    agenda: Arc<Agenda>,
}

impl ManualTimer {
    /// Makes a timer at time 0 with a tick of 1 ms and the default wheel size.
    pub fn new() -> Self {
        ManualTimer::with(TickLength::default(), WheelSize::default())
    }

    /// Makes a timer at time 0 with this tick and wheel size.
    pub fn with(tick: TickLength, wheel_size: WheelSize) -> Self {
        // A new driver's jobs run in place: on the advancing thread, before `advance` returns.
        let clock = ManualClock::default();
        let mut driver = Driver::new();
        driver.clock = DriverClock::Own(Arc::new(clock.clone()));
        driver.config.tick = tick;
        driver.config.wheel_size = wheel_size;
        driver.config.manual = true;
        let timer = Arc::new(driver).timer();
        timer.inner().tasks(); // attached first, they come first in a tick
        ManualTimer {
            timer,
            clock,
            target_ns: Arc::default(),
            agenda: Arc::default(),
        }
    }

    /// Advances the clock by `by`. All tasks that fall due run on this thread, in order, before the
    /// call returns. Called inside one of those tasks (or on another thread meanwhile), it only
    /// moves the running call's goal further and returns at once. For blocking waits, a task counts
    /// as running on a timer's thread.
    ///
    /// Time jumps from one tick that has work to the next, however long `by` is. Each of these
    /// ticks costs O(owners of wheels), beside the tasks that are due or handed down; a wheel is
    /// locked only if it is due, or was locked since the last tick. After shutdown the call moves
    /// only the clock.
    ///
    /// # Panics
    /// A panic of an owner of wheels ([`WheelOwner`](crate::driver::WheelOwner)) ends this call. A
    /// panic of a task does not.
    pub fn advance(&self, by: Duration) {
        self.advance_from(|goal_ns| later_ns(goal_ns, by));
    }

    /// Advances to the goal that `further` computes from the present goal, or from now if no call
    /// is running.
    fn advance_from(&self, further: impl FnOnce(u64) -> u64) {
        // 1. Set the goal. A running call goes on to the new goal.
        let mut target_ns = self.target_ns.lock();
        let from_ns = target_ns.unwrap_or(self.clock.now_ns());
        let is_running = target_ns.replace(further(from_ns)).is_some();
        drop(target_ns);
        if is_running {
            return;
        }
        // 2. Go from tick to tick until the goal is reached, with nothing locked. If an owner of
        //    wheels panics, clear the goal, so that no later call takes this one for running.
        let stepped = catch_unwind(AssertUnwindSafe(|| while self.step() {}));
        if let Err(panicked) = stepped {
            *self.target_ns.lock() = None;
            resume_unwind(panicked);
        }
    }

    /// Advances the clock by `by`, but not the wheels, as a slow task does. Tasks that fell due
    /// meanwhile run late, in the running or the next [`advance`](Self::advance). O(1).
    pub fn pass(&self, by: Duration) {
        let mut target_ns = self.target_ns.lock();
        self.clock.advance_to(later_ns(self.clock.now_ns(), by));
        // A running `advance` still covers the stretch that it was asked for.
        if let Some(target_ns) = &mut *target_ns {
            *target_ns = later_ns(*target_ns, by);
        }
    }

    /// Returns true while an [`advance`](Self::advance) is running.
    fn is_advancing(&self) -> bool {
        self.target_ns.lock().is_some()
    }

    /// Advances to the next moment at which any wheel has work, and does that work. Returns false
    /// when no wheel has any, or while an [`advance`](Self::advance) is running.
    pub fn advance_to_next(&self) -> bool {
        if self.is_advancing() {
            return false;
        }
        let Some(due_ns) = self.next_due_ns() else {
            return false;
        };
        // The goal is a moment, not a duration: another thread may have advanced meanwhile.
        self.advance_from(|goal_ns| goal_ns.max(due_ns));
        true
    }

    /// Returns the time until any wheel has work: a task is due, or tasks are handed down to a
    /// finer level. `None` when nothing is pending, or only at the end of time, and after shutdown.
    /// An event loop sleeps for this long at most, then calls [`advance`](Self::advance). The time
    /// counts from this timer's clock, so subtract the time that the loop has worked since the last
    /// advance, or tasks are late. O(owners of wheels); each wheel that was locked since the last
    /// call is locked for a moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// assert_eq!(timer.next_due_in(), None);
    /// let ms = Duration::from_millis;
    /// let task = timer.schedule(ms(15), || ())?;
    /// assert_eq!(timer.next_due_in(), Some(ms(15)));
    /// timer.advance(ms(5));
    /// assert_eq!(timer.next_due_in(), Some(ms(10)));
    /// timer.cancel(task);
    /// assert_eq!(timer.next_due_in(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_due_in(&self) -> Option<Duration> {
        let until_ns = self.next_due_ns()?.saturating_sub(self.clock.now_ns());
        Some(Duration::from_nanos(until_ns))
    }

    /// Returns a clock that reads this timer's time. While a task runs, it shows the task's tick.
    pub fn clock(&self) -> impl Clock + Clone + use<> {
        self.clock.clone()
    }

    /// Advances the clock by `by` while a runtime's tasks run. The tasks run until they all wait,
    /// then time goes on to the next moment at which any wheel has work, and so on to the end of
    /// `by`. With a `by` of zero only due tasks run. For tests on a runtime of one thread.
    ///
    /// Tasks count as waiting once this call has let them run 64 times and nothing of this timer
    /// has changed. (A `DelayQueue` or a sleep that yields with more to do counts as a change.)
    /// While another thread advances, this call waits for it. But inside a task of any timer, for
    /// example in a `block_on`, it does not wait: it moves the goal of the running call, as
    /// [`advance`](Self::advance) does.
    ///
    /// # Cancel safety
    /// A dropped call leaves the clock part-way, at the last moment whose work it has done. No work
    /// is lost and none is done twice, but nothing goes on by itself either: the next call counts
    /// `by` from where the clock is ([`Timer::now`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::ManualTimer;
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() {
    ///     let timer = ManualTimer::new();
    ///     let second = Duration::from_secs(1);
    ///     let sleeper = timer.clone();
    ///     let ten_beats = tokio::spawn(async move {
    ///         for _ in 0..10 {
    ///             sleeper.sleep(second).await.unwrap();
    ///         }
    ///     });
    ///     timer.settle(9 * second).await;
    ///     assert!(!ten_beats.is_finished());
    ///     timer.settle(second).await;
    ///     assert!(ten_beats.is_finished());
    /// }
    /// ```
    pub async fn settle(&self, by: Duration) {
        let end = self.clock.now() + by;
        loop {
            self.let_tasks_run().await;
            // Inside a task the clock stands still, and only the goal moves.
            let is_inside = self.is_advancing() && on_timer_thread();
            // Ask once: another thread may cancel the next task meanwhile.
            let until_ns = end.max(self.clock.now()).as_nanos();
            match self.next_due_ns() {
                Some(due_ns) if due_ns <= until_ns && !is_inside => {
                    self.advance_from(|goal_ns| goal_ns.max(due_ns));
                }
                _ => break,
            }
        }
        // The last stretch has no work.
        self.advance_from(|goal_ns| goal_ns.max(end.as_nanos()));
    }

    /// Returns the state that the timer's owners of wheels share.
    fn shared(&self) -> &Shared {
        &self.timer.inner().driver.shared
    }

    /// Yields until nothing of this timer has changed for a while.
    async fn let_tasks_run(&self) {
        let mut seen = None;
        let mut quiet = 0;
        poll_fn(|context| {
            // A change shows that a task did something.
            let now = Some(self.agenda.changes(self.shared()));
            // After 64 times in a row without a change, the tasks wait. While another thread
            // advances, do not count: a goal of this call would be added to that of the other.
            let is_elsewhere = self.is_advancing() && !on_timer_thread();
            if now != seen {
                quiet = 0;
            } else if !is_elsewhere {
                quiet += 1;
            }
            if quiet == 64 {
                return Poll::Ready(());
            }
            seen = now;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns the tick at which any wheel next has work; `None` for never, and after shutdown.
    fn next_tick(&self) -> Option<u64> {
        if self.shared().is_closed() {
            return None;
        }
        let next_tick = self.agenda.next_due(self.shared())?;
        // No clock reaches the end of time.
        match self.tick().start_ns(next_tick) {
            u64::MAX => None,
            _ => Some(next_tick),
        }
    }

    /// Returns the moment at which any wheel next has work, as [`next_tick`](Self::next_tick) does.
    fn next_due_ns(&self) -> Option<u64> {
        Some(self.tick().start_ns(self.next_tick()?))
    }

    /// Does the work of one owner at the next tick that has any, or moves the clock to the goal.
    /// Returns false once the goal is reached.
    fn step(&self) -> bool {
        // 1. The next tick with work, if it is not beyond the goal.
        let Some(target_ns) = *self.target_ns.lock() else {
            return false;
        };
        let tick = self.tick();
        let next_tick = match self.next_tick() {
            Some(next_tick) if next_tick <= tick.round_down(target_ns) => next_tick,
            _ => return self.reach(target_ns),
        };
        // 2. While its tasks run, the clock shows their tick.
        self.clock.advance_to(tick.start_ns(next_tick));
        let now_tick = tick.round_down(self.clock.now_ns());
        // 3. The first owner that is due runs its tasks. The next step goes on with the others. The
        //    tasks count as on a timer's thread: a blocking wait in one would wait for this very
        //    call.
        if let Some(owner) = self.agenda.first_due(self.shared(), now_tick) {
            inside_timer(|| self.advance_owner(owner, now_tick));
        }
        true
    }

    /// Advances the shards of an owner that are due, and runs their tasks.
    fn advance_owner(&self, owner: DueOwner, now_tick: u64) {
        let advance_all = || {
            for shard in owner.shards {
                let advanced = owner.wheels.advance(shard, now_tick);
                self.shared().count(advanced);
            }
        };
        // A panic holds back no task that fell due before it.
        let advanced = catch_unwind(AssertUnwindSafe(advance_all));
        owner.wheels.round_over();
        if let Err(panicked) = advanced {
            resume_unwind(panicked);
        }
    }

    /// Ends an `advance` at its goal. Returns true if another call has moved the goal meanwhile.
    fn reach(&self, target_ns: u64) -> bool {
        self.clock.advance_to(target_ns);
        let mut goal_ns = self.target_ns.lock();
        if *goal_ns != Some(target_ns) {
            return true;
        }
        *goal_ns = None;
        false
    }
}

impl Deref for ManualTimer {
    type Target = Timer;

    fn deref(&self) -> &Timer {
        &self.timer
    }
}

impl From<ManualTimer> for Timer {
    fn from(manual: ManualTimer) -> Self {
        manual.timer
    }
}

impl Default for ManualTimer {
    fn default() -> Self {
        ManualTimer::new()
    }
}

opaque!([] ManualTimer, now: timer.now());
