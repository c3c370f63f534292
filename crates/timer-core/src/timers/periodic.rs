//! Tasks that run again and again: [`Periodic`].
//!
//! At the end of each run a periodic task is put back onto the wheel. So a run never overlaps the
//! next, runs do not pile up behind a slow one, and stopping from inside the task is no special
//! case. The task is boxed once and moves between wheel and executor.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    panic::resume_unwind,
    sync::{Arc, Condvar, Weak},
    thread::{self, ThreadId},
    time::Duration,
};

use crate::{
    driver::{
        clock::{Moment, later_ns},
        executor::on_timer_thread,
        handle::TimerHandle,
        home::Home,
    },
    panics::contain,
    sync::plain::Mutex,
    timers::{
        TimerError, TimerTask,
        task_timer::{TaskTimer, Tasks},
    },
};

/// The tasks of a timer.
type Boxed = Box<dyn TimerTask>;

/// The rule by which a periodic task's next start follows from its last run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// From start to start; missed starts are skipped.
    Rate(Duration),
    /// From end to start.
    Delay(Duration),
}

impl Pace {
    /// Returns the start after the one that was due at `last_ns`, its run having ended at `now_ns`.
    pub(super) fn next_ns(self, last_ns: u64, now_ns: u64) -> u64 {
        match self {
            Pace::Delay(delay) => later_ns(now_ns, delay),
            Pace::Rate(period) => {
                let period_ns = later_ns(0, period);
                // Starts that have passed meanwhile are skipped, and the beat is kept.
                let missed = now_ns.saturating_sub(last_ns) / period_ns;
                let periods = missed.saturating_add(1);
                last_ns.saturating_add(period_ns.saturating_mul(periods))
            }
        }
    }
}

/// A task that runs again and again, until it is cancelled or the timer is shut down or dropped.
///
/// A panic in one run is contained, counted and reported, and the task runs again. If the timer is
/// full at the end of a run ([`TimerError::Full`]), the task ends, which is counted and reported as
/// a panic is. Dropping this handle does not cancel the task.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::ManualTimer;
///
/// let timer = ManualTimer::new();
/// let (send, beats) = mpsc::channel();
/// let second = Duration::from_secs(1);
/// let heartbeat = timer.schedule_at_fixed_rate(second, second, move || send.send(()).unwrap())?;
/// timer.advance(3 * second);
/// heartbeat.cancel();
/// timer.advance(3 * second);
/// assert_eq!(beats.try_iter().count(), 3);
/// # Ok::<(), timer_core::TimerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Periodic {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    run_over: Condvar,
    /// The process that scheduled the task. A run under way at a fork does not exist in the child.
    home: Home,
    /// Weak: the task lies on these wheels, and must not keep its timer alive.
    tasks: Weak<Tasks<Boxed>>,
}

#[derive(Debug, Default)]
struct State {
    /// The pending run; none while the task runs.
    waiting: Option<TimerHandle>,
    /// The thread of the run that has begun and is not over.
    run_by: Option<ThreadId>,
    over: bool,
}

impl Shared {
    fn tasks(&self) -> Option<TaskTimer<Boxed>> {
        self.tasks.upgrade().map(|tasks| TaskTimer { tasks })
    }
}

impl Periodic {
    /// Returns a random delay below `period`, for the first start of a task that many programs run,
    /// so that they do not all run at one moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{ManualTimer, Periodic};
    ///
    /// let timer = ManualTimer::new();
    /// let minute = Duration::from_secs(60);
    /// let first = Periodic::first_after(minute);
    /// let cleaner = timer.schedule_at_fixed_rate(first, minute, || println!("cleaned"))?;
    /// # assert!(first < minute && cleaner.cancel());
    /// # Ok::<(), timer_core::TimerError>(())
    /// ```
    pub fn first_after(period: Duration) -> Duration {
        // The upper 64 bits of the product are uniform below the period.
        let random = RandomState::new().build_hasher().finish(); // its keys are random
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let below_ns = (u128::from(random) * u128::from(period_ns)) >> 64;
        Duration::from_nanos(below_ns as u64)
    }

    /// Cancels the task: no run begins after this returns. A run that began before goes on, even if
    /// it has not called the task yet; [`cancel_and_wait`](Self::cancel_and_wait) waits for it.
    /// Called inside the task, it makes this run the last. Returns false if it was cancelled already.
    pub fn cancel(&self) -> bool {
        let mut state = self.shared.state.lock();
        let was_over = std::mem::replace(&mut state.over, true);
        let waiting = state.waiting.take();
        drop(state);
        // The task is dropped with nothing locked.
        if let Some(handle) = waiting {
            if let Some(tasks) = self.shared.tasks() {
                drop(tasks.cancel(handle));
            }
        }
        !was_over
    }

    /// Cancels the task and waits until a run that began is over. Once this has returned true, the
    /// task neither runs nor is called. On a thread of a timer, inside the task, and in a child of
    /// `fork` for a task of its parent, the call does not wait, and returns false while a run goes
    /// on. (Hold no lock that the task takes. On an executor of your own two tasks must not wait
    /// for each other.)
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
    /// use timer_core::SystemTimer;
    ///
    /// let timer = SystemTimer::new()?;
    /// let ms = Duration::from_millis(1);
    /// let over = Arc::new(AtomicBool::new(false));
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
        let state = self.shared.state.lock();
        let Some(thread) = state.run_by else {
            return true;
        };
        // Inside the task, or on a timer's thread, the call might wait for itself.
        let runs_here = thread == thread::current().id();
        if runs_here || on_timer_thread() || self.shared.home.is_elsewhere() {
            return false;
        }
        let is_running = |state: &mut State| state.run_by.is_some();
        drop(self.shared.run_over.wait_while(state, is_running));
        true
    }

    /// Returns true until the task is cancelled, has ended because its timer was full, or its timer
    /// is shut down or dropped: then no run falls due any more. A run that fell due before still
    /// begins, as every task does, unless it is cancelled. O(1).
    pub fn is_active(&self) -> bool {
        if self.shared.state.lock().over {
            return false;
        }
        // With nothing locked: this may be the last reference to the tasks, and then drops them.
        let tasks = self.shared.tasks();
        tasks.is_some_and(|tasks| !tasks.driver().is_closed())
    }
}

struct Task<F> {
    act: F,
    pace: Pace,
    due_ns: u64,
    shared: Arc<Shared>,
}

pub(super) fn start(
    tasks: &TaskTimer<Boxed>,
    first: Duration,
    pace: Pace,
    act: impl FnMut() + Send + 'static,
) -> Result<Periodic, TimerError> {
    // 1. A period of zero would run without end.
    let (Pace::Rate(period) | Pace::Delay(period)) = pace;
    if period.is_zero() {
        return Err(TimerError::ZeroPeriod);
    }
    // 2. The state that handle and task share, and the first start.
    let due_ns = later_ns(tasks.driver().now_ns(), first);
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        run_over: Condvar::new(),
        home: Home::here(),
        tasks: Arc::downgrade(&tasks.tasks),
    });
    let task = Box::new(Task {
        act,
        pace,
        due_ns,
        shared: shared.clone(),
    });
    // 3. The task goes onto the wheel as after each run.
    task.put_back(tasks)?;
    Ok(Periodic { shared })
}

impl<F: FnMut() + Send + 'static> Task<F> {
    /// Puts the task onto the wheel, unless it was cancelled meanwhile.
    fn put_back(self: Box<Self>, tasks: &TaskTimer<Boxed>) -> Result<(), TimerError> {
        let shared = self.shared.clone();
        let due_ns = self.due_ns;
        // Locked during the insertion, so that a cancel comes before it or finds the handle.
        let mut state = shared.state.lock();
        if state.over {
            drop(state); // the task is dropped with nothing locked
            return Ok(());
        }
        match tasks.schedule_at(Moment::from_nanos(due_ns), self) {
            Ok(handle) => {
                state.waiting = Some(handle);
                Ok(())
            }
            Err(refused) => {
                state.over = true;
                drop(state); // before the task is dropped
                Err(refused.reason)
            }
        }
    }
}

impl<F: FnMut() + Send + 'static> TimerTask for Task<F> {
    fn run(mut self: Box<Self>) {
        // 1. It may have been cancelled since it left the wheel.
        let mut state = self.shared.state.lock();
        if state.over {
            return;
        }
        state.waiting = None;
        state.run_by = Some(thread::current().id());
        drop(state);
        // 2. The run, with nothing locked. `cancel_and_wait` waits for its end.
        let result = contain(|| (self.act)());
        self.shared.state.lock().run_by = None;
        self.shared.run_over.notify_all();
        // 3. It goes back onto the wheel, unless the timer is gone.
        let Some(tasks) = self.shared.tasks() else {
            drop(self);
            // The job that runs this task still has the panic hook: let the panic go on to it.
            if let Err(panicked) = result {
                resume_unwind(Box::new(panicked));
            }
            return;
        };
        // If the clock panics, the run counts as having taken no time.
        let ended_ns = contain(|| tasks.driver().now_ns());
        let counted_ns = *ended_ns.as_ref().unwrap_or(&self.due_ns);
        self.due_ns = self.pace.next_ns(self.due_ns, counted_ns);
        // A task that is not put back is dropped here, and may panic.
        let put_back = contain(|| self.put_back(&tasks));
        // After a shutdown the task just ends. If it finds no place, report that as a panic.
        let full = match put_back {
            Ok(Err(full @ TimerError::Full { .. })) => {
                Some(format!("a periodic task has ended: {full}"))
            }
            _ => None,
        };
        let told = [result.err(), ended_ns.err(), put_back.err(), full];
        for message in told.into_iter().flatten() {
            tasks.report(&message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::{
        driver::{
            clock::{Clock, DriverClock},
            config::Panics,
            driver::Driver,
            owner::WheelOwner,
        },
        sync::plain,
    };

    const MS: Duration = Duration::from_millis(1);

    /// A clock that stands at 0, and panics once after it was told to.
    #[derive(Debug)]
    struct Panicking(Arc<AtomicBool>);

    impl Clock for Panicking {
        fn now_ns(&self) -> u64 {
            assert!(!self.0.swap(false, SeqCst), "the clock panics");
            0
        }
    }

    #[test]
    fn a_clock_that_panics_after_a_run_ends_no_task() {
        for pace in [Pace::Rate(MS), Pace::Delay(MS)] {
            let panics = Arc::new(AtomicBool::new(false));
            let reported = Arc::new(plain::Mutex::default());
            let mut driver = Driver::new();
            driver.clock = DriverClock::User(Arc::new(Panicking(panics.clone())));
            let hook: Arc<plain::Mutex<Vec<String>>> = reported.clone();
            let report = move |said: &str| hook.lock().push(said.to_owned());
            driver.executors_mut().panics = Arc::new(Panics::new(report));
            let tasks = TaskTimer::on(Arc::new(driver), <dyn TimerTask>::run, None);
            let act = move || panics.store(true, SeqCst);
            let beat = start(&tasks, MS, pace, act).unwrap();
            // After each run the clock panics, and the next run follows.
            for run in 1..=3 {
                assert_eq!(tasks.tasks.advance(0, run).fired, 1, "{pace:?}, run {run}");
                tasks.tasks.clone().round_over();
                assert_eq!((tasks.panicked(), tasks.len()), (run, 1));
            }
            assert_eq!(*reported.lock(), ["the clock panics"; 3]);
            assert!(beat.cancel() && tasks.is_empty());
        }
    }

    #[test]
    fn a_periodic_task_that_finds_no_place_is_reported() {
        let reported = Arc::new(plain::Mutex::default());
        let hook: Arc<plain::Mutex<Vec<String>>> = reported.clone();
        let report = move |said: &str| hook.lock().push(said.to_owned());
        let mut driver = Driver::new();
        driver.executors_mut().panics = Arc::new(Panics::new(report));
        let tasks = TaskTimer::on(Arc::new(driver), <dyn TimerTask>::run, None);
        // During its run the other tasks take all places.
        let others = tasks.clone();
        let take_all = move || {
            others.tasks.make_no_place();
            while others.schedule_at(Moment::NEVER, Box::new(|| ())).is_ok() {}
        };
        let beat = start(&tasks, MS, Pace::Rate(MS), take_all).unwrap();
        assert_eq!(tasks.tasks.advance(0, 1_000_000).fired, 1);
        tasks.tasks.clone().round_over();
        let said = "a periodic task has ended: 67108864 tasks are pending already";
        assert_eq!(*reported.lock(), [said]);
        assert_eq!((tasks.panicked(), tasks.driver().stats().panics), (1, 1));
        assert!(!beat.is_active() && !beat.cancel());
    }

    #[test]
    fn a_fixed_rate_keeps_its_beat_and_skips_missed_runs() {
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
}
