//! `ManualTimer`: the same wheels and the same hand-over, turned by hand. For tests and simulations.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    clock::{Clock, ManualClock},
    executor::{Job, Panicked},
    geometry::WheelSize,
    shards::Bell,
    stats::{CancelledOnGone, TimerStats, TurnCounts},
    tasks::TaskTimer,
    tick::TickLength,
    timer::{Driver, Timer, TimerClosed, TimerTask, Turns},
};

/// A timer whose time passes only in [`advance`](Self::advance). A handle: clones are the same
/// timer.
///
/// What falls due runs inline, on the advancing thread, tick by tick; what is overdue goes by its
/// deadline, what has the same in the order it was scheduled (owners of wheels one after the other,
/// in the order they were attached).
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
pub struct ManualTimer {
    inner: Arc<Inner>,
    tasks: TaskTimer<Box<dyn TimerTask>>,
}

#[derive(Debug)]
struct Inner {
    clock: ManualClock,
    tick: TickLength,
    wheel_size: WheelSize,
    state: Mutex<State>,
    counts: Mutex<TurnCounts>,
    gone: CancelledOnGone,
}

#[derive(Default)]
struct State {
    owners: Vec<Weak<dyn Turns>>,
    /// Where the running `advance` is going.
    target_ns: Option<u64>,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("target_ns", &self.target_ns).finish_non_exhaustive()
    }
}

impl ManualTimer {
    /// A timer at time 0 with a tick of 1 ms and the default wheel size.
    pub fn new() -> Self {
        ManualTimer::with(TickLength::default(), WheelSize::default())
    }

    /// A timer at time 0 with this tick and wheel size.
    pub fn with(tick: TickLength, wheel_size: WheelSize) -> Self {
        let inner = Arc::new(Inner {
            clock: ManualClock::new(),
            tick,
            wheel_size,
            state: Mutex::default(),
            counts: Mutex::default(),
            gone: CancelledOnGone::default(),
        });
        let tasks = TaskTimer::on(inner.clone(), |task: Box<dyn TimerTask>| task.run());
        let Ok(tasks) = tasks else { unreachable!("a new timer is open") };
        ManualTimer { inner, tasks }
    }

    /// Lets `by` pass: everything that falls due meanwhile runs here, in order, before this
    /// returns. Called inside one of those tasks (or on another thread meanwhile), it only moves
    /// the running call's goal further and returns at once.
    pub fn advance(&self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        {
            let mut state = self.inner.state.lock();
            let from_ns = state.target_ns.unwrap_or(self.inner.clock.now_ns());
            let running = state.target_ns.is_some();
            state.target_ns = Some(from_ns.saturating_add(by_ns));
            if running {
                return;
            }
        }
        let unwinding = Done(&self.inner);
        while self.inner.step() {}
        std::mem::forget(unwinding);
    }

    /// Lets `by` pass without turning the wheels: what a task does that takes its time. What fell
    /// due meanwhile runs, late, in the running or the next [`advance`](Self::advance).
    pub fn pass(&self, by: Duration) {
        self.inner.clock.advance(by);
        let mut state = self.inner.state.lock();
        if let Some(target_ns) = &mut state.target_ns {
            let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            *target_ns = target_ns.saturating_add(by_ns);
        }
    }

    /// Jumps to the next moment at which anything has work, and does it. False when nothing has, or
    /// an [`advance`](Self::advance) is running, which will come by.
    pub fn advance_to_next(&self) -> bool {
        if self.inner.state.lock().target_ns.is_some() {
            return false;
        }
        let Some(next) = self.inner.next_due() else { return false };
        let due_ns = self.inner.tick.start_ns(next);
        self.advance(Duration::from_nanos(due_ns.saturating_sub(self.inner.clock.now_ns())));
        true
    }

    /// The clock this timer shows, to be read (it shows the tick of a task while it runs).
    pub fn clock(&self) -> impl Clock + Clone + use<> {
        self.inner.clock.clone()
    }
}

impl Timer for ManualTimer {
    fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>> {
        &self.tasks
    }

    fn driver(&self) -> Arc<dyn Driver> {
        self.inner.clone()
    }

    /// The reaper's counts stay 0: there is none.
    fn stats(&self) -> TimerStats {
        let now = self.inner.tick.round_down(self.inner.clock.now_ns());
        let counts = self.inner.counts.lock().clone();
        counts.stats(now, &self.inner.owners(), &self.inner.gone, self.panicked())
    }

    fn shutdown(&self) -> Vec<Box<dyn TimerTask>> {
        self.inner.state.lock().closed = true;
        let left = self.tasks.shutdown();
        self.inner.owners().into_iter().for_each(Turns::timer_closed);
        left
    }
}

impl Default for ManualTimer {
    fn default() -> Self {
        ManualTimer::new()
    }
}

/// Ends a running `advance` when a panic does.
struct Done<'a>(&'a Inner);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.state.lock().target_ns = None;
    }
}

impl Inner {
    fn owners(&self) -> Vec<Arc<dyn Turns>> {
        self.state.lock().owners.iter().filter_map(Weak::upgrade).collect()
    }

    fn next_due(&self) -> Option<u64> {
        self.owners().iter().filter_map(|owner| owner.next_due(0)).min()
    }

    /// One tick that has work, or the last stretch to the goal; false when there.
    fn step(&self) -> bool {
        let Some(target_ns) = self.state.lock().target_ns else { return false };
        let target = self.tick.round_down(target_ns);
        let owners = self.owners();
        let next = owners.iter().filter_map(|owner| owner.next_due(0)).min();
        let Some(next) = next.filter(|&next| next <= target) else {
            self.clock.advance_to(target_ns);
            // There, unless somebody moved the goal meanwhile.
            let mut state = self.state.lock();
            let moved = state.target_ns != Some(target_ns);
            state.target_ns = state.target_ns.filter(|_| moved);
            return moved;
        };
        self.clock.advance_to(self.tick.start_ns(next));
        let now = self.tick.round_down(self.clock.now_ns());
        for owner in &owners {
            if owner.next_due(0).is_some_and(|due| due <= now) {
                let turn = owner.clone().turn(0, now);
                self.counts.lock().turned(turn.fired as u64, turn.cascaded as u64);
            }
        }
        true
    }
}

impl Driver for Inner {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn tick(&self) -> TickLength {
        self.tick
    }

    fn wheel_size(&self) -> WheelSize {
        self.wheel_size
    }

    fn shards(&self) -> usize {
        1
    }

    fn in_order(&self) -> bool {
        true
    }

    fn bell(&self) -> Arc<Bell> {
        Arc::new(Bell::new(None, self.gone.count.clone()))
    }

    fn attach(&self, _: &Arc<Bell>, wheels: Weak<dyn Turns>) -> Result<(), TimerClosed> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(TimerClosed);
        }
        state.owners.retain(|owner| owner.strong_count() > 0);
        state.owners.push(wheels);
        Ok(())
    }

    fn execute(&self, job: Job) {
        job.run();
    }

    fn executes_inline(&self) -> bool {
        true
    }

    fn pending_max(&self) -> Option<usize> {
        None
    }

    fn report_panic(&self, _: &Panicked) {} // the program's panic hook has been told
}
