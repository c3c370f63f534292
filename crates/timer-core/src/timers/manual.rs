//! `ManualTimer`: the same wheels and the same hand-over, turned by hand. For tests and
//! simulations.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use crate::{
    driver::{
        clock::{Clock, ManualClock, TickLength, later_ns},
        driver::Driver,
        shards::WheelOwner,
    },
    sync::plain::Mutex,
    timers::{task_timer::Inside, timer::Timer},
    wheel::geometry::WheelSize,
};

/// A timer whose time passes only in [`advance`](Self::advance). A handle: clones are the same
/// timer.
///
/// What falls due runs inline, on the advancing thread, tick by tick; what is overdue goes by its
/// deadline, what has the same in the order it was scheduled (owners of wheels one after the other,
/// in the order they were attached; the timer's tasks are the first one, its sleeps are attached
/// when the first is made).
/// A sleep that is registered while another thread advances beyond its time is woken by the next
/// [`advance`](Self::advance).
/// While a task runs the clock shows its tick, so what it schedules falls due in its turn.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{ManualTimer, Timer};
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
#[derive(Clone, Debug)]
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct ManualTimer {
    inside: Arc<Inside>,
    clock: ManualClock,
    /// Where the running `advance` is going.
    target_ns: Arc<Mutex<Option<u64>>>,
}

impl ManualTimer {
    /// A timer at time 0 with a tick of 1 ms and the default wheel size.
    pub fn new() -> Self {
        ManualTimer::with(TickLength::default(), WheelSize::default())
    }

    /// A timer at time 0 with this tick and wheel size.
    pub fn with(tick: TickLength, wheel_size: WheelSize) -> Self {
        let clock = ManualClock::default();
        let mut driver = Driver::new();
        driver.clock = Arc::new(clock.clone());
        (driver.tick, driver.wheel_size) = (tick, wheel_size);
        (driver.by_hand, driver.inline) = (true, true);
        let inside = Inside::new(driver);
        inside.tasks(); // attached first, they come first in a tick
        ManualTimer {
            inside,
            clock,
            target_ns: Arc::default(),
        }
    }

    /// Lets `by` pass: everything that falls due meanwhile runs here, in order, before this
    /// returns. Called inside one of those tasks (or on another thread meanwhile), it only moves
    /// the running call's goal further and returns at once.
    pub fn advance(&self, by: Duration) {
        {
            let mut target_ns = self.target_ns.lock();
            let from_ns = target_ns.unwrap_or(self.clock.now_ns());
            if target_ns.replace(later_ns(from_ns, by)).is_some() {
                return;
            }
        }
        while self.step() {}
    }

    /// Lets `by` pass without turning the wheels: what a task does that takes its time. What fell
    /// due meanwhile runs, late, in the running or the next [`advance`](Self::advance).
    pub fn pass(&self, by: Duration) {
        let mut target_ns = self.target_ns.lock();
        self.clock.advance_to(later_ns(self.clock.now_ns(), by));
        *target_ns = target_ns.map(|target_ns| later_ns(target_ns, by));
    }

    /// Jumps to the next moment at which anything has work, and does it. False when nothing has, or
    /// an [`advance`](Self::advance) is running, which will come by.
    pub fn advance_to_next(&self) -> bool {
        if self.target_ns.lock().is_some() {
            return false;
        }
        let Some(until) = self.next_due_in() else {
            return false;
        };
        self.advance(until);
        true
    }

    /// How long it is until anything has work: a task is due, or a wheel hands tasks down to a
    /// finer level. `None` when nothing is pending. An event loop sleeps for this long at most,
    /// then calls [`advance`](Self::advance). O(wheels); each wheel is locked for a moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{ManualTimer, Timer};
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
        let due_ns = self.inside.driver.tick.start_ns(self.next_tick()?);
        Some(Duration::from_nanos(
            due_ns.saturating_sub(self.clock.now_ns()),
        ))
    }

    /// The clock this timer shows, to be read (it shows the tick of a task while it runs).
    pub fn clock(&self) -> impl Clock + Clone + use<> {
        self.clock.clone()
    }

    /// Lets `by` pass while the tasks of a runtime run: they run until they wait, then time goes on
    /// to the next moment at which anything has work, and so on to the end of `by`. With zero only
    /// what is due now. For tests on a runtime of one thread.
    ///
    /// Tasks count as waiting once they were let run 64 times and nothing of this timer changed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{ManualTimer, Timer};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() {
    ///     let (timer, second) = (ManualTimer::new(), Duration::from_secs(1));
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
        let target_ns = later_ns(self.clock.now_ns(), by);
        let left = || Duration::from_nanos(target_ns.saturating_sub(self.clock.now_ns()));
        loop {
            self.let_tasks_run().await;
            let Some(next) = self.next_due_in().filter(|&next| next <= left()) else {
                break;
            };
            self.advance(next);
        }
        self.advance(left());
    }

    /// Yields until nothing of this timer has changed for a while.
    async fn let_tasks_run(&self) {
        let (mut seen, mut quiet) = (None, 0);
        poll_fn(|context| {
            let now = Some((
                self.next_tick(),
                self.stats().pending,
                self.stats().cancelled,
            ));
            quiet = if now == seen { quiet + 1 } else { 0 };
            if quiet == 64 {
                return Poll::Ready(());
            }
            seen = now;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// When anything next has work.
    fn next_tick(&self) -> Option<u64> {
        let owners = self.inside.driver.shared.owners();
        let dues = |(owner, shards): &(Arc<dyn WheelOwner>, usize)| {
            (0..*shards).filter_map(|shard| owner.next_due(shard)).min()
        };
        owners.iter().filter_map(dues).min()
    }

    /// One tick that has work, or the last stretch to the goal; false when there.
    fn step(&self) -> bool {
        let Some(target_ns) = *self.target_ns.lock() else {
            return false;
        };
        let Driver { tick, shared, .. } = &*self.inside.driver;
        let next_tick = self
            .next_tick()
            .filter(|&next| next <= tick.round_down(target_ns));
        let Some(next_tick) = next_tick else {
            self.clock.advance_to(target_ns);
            // There, unless another call moved the goal meanwhile.
            let mut goal_ns = self.target_ns.lock();
            let moved = *goal_ns != Some(target_ns);
            *goal_ns = goal_ns.filter(|_| moved);
            return moved;
        };
        self.clock.advance_to(tick.start_ns(next_tick));
        let now_tick = tick.round_down(self.clock.now_ns());
        for (owner, shards) in shared.owners() {
            let is_due = |shard: &usize| owner.next_due(*shard).is_some_and(|due| due <= now_tick);
            for shard in (0..shards).filter(is_due) {
                let advanced = owner.advance(shard, now_tick);
                shared.count(advanced.fired, advanced.cascaded);
            }
            owner.round_over();
        }
        true
    }
}

impl Timer for ManualTimer {
    fn inside(&self) -> &Inside {
        &self.inside
    }
}

impl Default for ManualTimer {
    fn default() -> Self {
        ManualTimer::new()
    }
}
