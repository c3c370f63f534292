//! `ManualTimer`: the same wheels and the same hand-over, turned by hand. For tests and
//! simulations.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    driver::{
        bell::Bell,
        clock::{Clock, ManualClock},
        counts::{AdvanceCounts, CancelledOnDropped},
        executor::Job,
        panics::Panicked,
        spi::{Driver, Sealed, Settings, TimerClosed, WheelOwner},
    },
    observe::stats::TimerStats,
    timers::{
        sleep::Sleeps,
        task::TimerTask,
        task_timer::TaskTimer,
        timer::{Timer, TimerLeft},
    },
    wheel::{geometry::WheelSize, tick::TickLength},
};

/// A timer whose time passes only in [`advance`](Self::advance). A handle: clones are the same
/// timer.
///
/// What falls due runs inline, on the advancing thread, tick by tick; what is overdue goes by its
/// deadline, what has the same in the order it was scheduled (owners of wheels one after the other,
/// in the order they were attached; the timer's sleeps are one, attached when the first is made).
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
    shared: Arc<Shared>,
    tasks: TaskTimer<Box<dyn TimerTask>>,
    sleeps: Sleeps,
}

#[derive(Debug)]
struct Shared {
    clock: ManualClock,
    settings: Settings,
    state: Mutex<State>,
    counts: Mutex<AdvanceCounts>,
    gone: CancelledOnDropped,
}

#[derive(Default)]
struct State {
    owners: Vec<(usize, Weak<dyn WheelOwner>)>,
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
        let shared = Arc::new(Shared {
            clock: ManualClock::new(),
            settings: Settings {
                tick,
                wheel_size,
                shard_count: 1,
                in_order: true,
                finds_overdue: false,
                inline: true,
                pending_max: None,
            },
            state: Mutex::default(),
            counts: Mutex::default(),
            gone: CancelledOnDropped::default(),
        });
        let tasks = TaskTimer::on(shared.clone(), |task: Box<dyn TimerTask>| task.run());
        let Ok(tasks) = tasks else { unreachable!("a new timer is open") };
        let sleeps = Sleeps::on(shared.clone());
        ManualTimer { shared, tasks, sleeps }
    }

    /// Lets `by` pass: everything that falls due meanwhile runs here, in order, before this
    /// returns. Called inside one of those tasks (or on another thread meanwhile), it only moves
    /// the running call's goal further and returns at once.
    pub fn advance(&self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        {
            let mut state = self.shared.state.lock();
            let from_ns = state.target_ns.unwrap_or(self.shared.clock.now_ns());
            let running = state.target_ns.is_some();
            state.target_ns = Some(from_ns.saturating_add(by_ns));
            if running {
                return;
            }
        }
        let unwinding = Done(&self.shared);
        while self.shared.step() {}
        std::mem::forget(unwinding);
    }

    /// Lets `by` pass without turning the wheels: what a task does that takes its time. What fell
    /// due meanwhile runs, late, in the running or the next [`advance`](Self::advance).
    pub fn pass(&self, by: Duration) {
        self.shared.clock.advance(by);
        let mut state = self.shared.state.lock();
        if let Some(target_ns) = &mut state.target_ns {
            let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            *target_ns = target_ns.saturating_add(by_ns);
        }
    }

    /// Jumps to the next moment at which anything has work, and does it. False when nothing has, or
    /// an [`advance`](Self::advance) is running, which will come by.
    pub fn advance_to_next(&self) -> bool {
        if self.shared.state.lock().target_ns.is_some() {
            return false;
        }
        let Some(next_tick) = earliest(&self.shared.dues()) else { return false };
        let due_ns = self.shared.settings.tick.start_ns(next_tick);
        self.advance(Duration::from_nanos(due_ns.saturating_sub(self.shared.clock.now_ns())));
        true
    }

    /// The clock this timer shows, to be read (it shows the tick of a task while it runs).
    pub fn clock(&self) -> impl Clock + Clone + use<> {
        self.shared.clock.clone()
    }
}

impl Timer for ManualTimer {
    fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>> {
        &self.tasks
    }

    fn sleeps(&self) -> &Sleeps {
        &self.sleeps
    }

    fn driver(&self) -> Arc<dyn Driver> {
        self.shared.clone()
    }

    /// The reaper's counts stay 0: there is none.
    fn stats(&self) -> TimerStats {
        let counts = self.shared.counts.lock().clone();
        counts.stats(&self.shared.owners(), &self.shared.gone, self.panicked())
    }

    fn shutdown(&self, _: Duration) -> TimerLeft {
        self.shared.state.lock().closed = true;
        let unfired = self.tasks.shutdown();
        self.shared.owners().into_iter().for_each(WheelOwner::timer_closed);
        TimerLeft { unfired, threads: 0 }
    }
}

impl Default for ManualTimer {
    fn default() -> Self {
        ManualTimer::new()
    }
}

/// Ends a running `advance` when a panic does.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.state.lock().target_ns = None;
    }
}

type OwnersDues = (Arc<dyn WheelOwner>, Vec<Option<u64>>);

/// When anything next has work.
fn earliest(dues: &[OwnersDues]) -> Option<u64> {
    dues.iter().flat_map(|(_, dues)| dues).filter_map(|&due| due).min()
}

impl Shared {
    fn owners(&self) -> Vec<Arc<dyn WheelOwner>> {
        self.state.lock().owners.iter().filter_map(|(_, owner)| owner.upgrade()).collect()
    }

    /// Of each owner, when each of its shards next has work.
    fn dues(&self) -> Vec<OwnersDues> {
        let owners = self.state.lock().owners.clone();
        let dues = owners.into_iter().filter_map(|(shards, owner)| {
            let owner = owner.upgrade()?;
            let dues = (0..shards).map(|shard| owner.next_due(shard)).collect();
            Some((owner, dues))
        });
        dues.collect()
    }

    /// One tick that has work, or the last stretch to the goal; false when there.
    fn step(&self) -> bool {
        let Some(target_ns) = self.state.lock().target_ns else { return false };
        let target_tick = self.settings.tick.round_down(target_ns);
        let owners = self.dues();
        let Some(next_tick) = earliest(&owners).filter(|&next_tick| next_tick <= target_tick)
        else {
            self.clock.advance_to(target_ns);
            // There, unless somebody moved the goal meanwhile.
            let mut state = self.state.lock();
            let moved = state.target_ns != Some(target_ns);
            state.target_ns = state.target_ns.filter(|_| moved);
            return moved;
        };
        self.clock.advance_to(self.settings.tick.start_ns(next_tick));
        let now_tick = self.settings.tick.round_down(self.clock.now_ns());
        for (owner, dues) in owners {
            let due = dues.iter().map(|due| due.is_some_and(|due| due <= now_tick));
            for (shard, _) in due.enumerate().filter(|&(_, due)| due) {
                let advanced = owner.advance(shard, now_tick);
                self.counts.lock().add(advanced.fired as u64, advanced.cascaded as u64);
            }
            owner.round_over();
        }
        true
    }
}

impl Sealed for Shared {}

impl Driver for Shared {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn bell(&self, shards: usize) -> Arc<Bell> {
        Arc::new(Bell::new(shards, None, self.gone.count.clone()))
    }

    fn attach(&self, bell: &Arc<Bell>, wheels: Weak<dyn WheelOwner>) -> Result<(), TimerClosed> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(TimerClosed);
        }
        state.owners.retain(|(_, owner)| owner.strong_count() > 0);
        state.owners.push((bell.shard_count(), wheels));
        Ok(())
    }

    fn execute(&self, job: Job) {
        job.run();
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn report_panic(&self, _: &Panicked) {} // the program's panic hook has been told
}
