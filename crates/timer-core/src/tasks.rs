//! `TaskTimer`: tasks of one type on a timer, run by one handler. What `schedule` and `cancel` of every
//! timer schedule on, with boxed [`TimerTask`](crate::TimerTask)s for tasks.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    executor::{Job, Panicked, contain},
    limit::Limit,
    shards::{ShardGuard, Shards, TimerHandle},
    stats::WheelTally,
    sync::{planted, thread_slot},
    timer::{Driver, ScheduleError, ScheduleErrorReason, TimerClosed, Turns},
    wheel::{MAX_TASKS, Turn},
};

/// Tasks handed over under one lock hold, and in one job.
const BUDGET: usize = 256;

/// Tasks of one type on a shared timer, each run by one handler once its time has come.
///
/// Like [`Timer::schedule`](crate::Timer::schedule), without a box a task, and with the task within
/// reach while it is pending. A handle: clones are the same timer. Made by
/// [`Timer::with_handler`](crate::Timer::with_handler). When the last handle is dropped, pending
/// tasks are dropped unrun.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{ManualTimer, Timer};
///
/// struct Session { id: u32, heartbeats: u32 }
///
/// let timer = ManualTimer::new();
/// let (send, expired) = mpsc::channel();
/// let sessions = timer.with_handler(move |session: Session| send.send(session.id).unwrap())?;
///
/// let handle = sessions.schedule(Duration::from_secs(30), Session { id: 7, heartbeats: 0 })?;
/// timer.advance(Duration::from_secs(29));
/// sessions.with(handle, |session| session.heartbeats += 1);
/// assert!(sessions.reschedule(handle, Duration::from_secs(30))); // a heartbeat
/// timer.advance(Duration::from_secs(29));
/// assert!(expired.try_recv().is_err());
/// timer.advance(Duration::from_secs(1));
/// assert_eq!(expired.try_recv(), Ok(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskTimer<T> {
    tasks: Arc<Tasks<T>>,
}

struct Tasks<T> {
    shards: Shards<T, Closed>,
    driver: Arc<dyn Driver>,
    run: Arc<Run<T>>,
    pending: Option<Limit>,
}

/// True once closed, under each shard's lock.
type Closed = bool;

/// What running a task takes, apart from the wheels.
struct Run<T> {
    handler: Box<dyn Fn(T) + Send + Sync>,
    panicked: AtomicU64,
}

impl<T: Send + 'static> TaskTimer<T> {
    /// Wheels on any driver; [`Timer::with_handler`](crate::Timer::with_handler) is the short way.
    ///
    /// # Errors
    /// [`TimerClosed`] after shutdown.
    pub fn on(
        driver: Arc<dyn Driver>,
        handler: impl Fn(T) + Send + Sync + 'static,
    ) -> Result<Self, TimerClosed> {
        let run = Run { handler: Box::new(handler), panicked: AtomicU64::new(0) };
        let tasks = Arc::new(Tasks {
            shards: Shards::new(&*driver),
            pending: driver.pending_max().map(Limit::new),
            driver,
            run: Arc::new(run),
        });
        let turns: Weak<dyn Turns> = Arc::downgrade(&tasks) as _;
        tasks.driver.attach(tasks.shards.bell(), turns)?;
        Ok(TaskTimer { tasks })
    }

    /// Has the handler run `task` once `delay` has passed. As
    /// [`Timer::schedule`](crate::Timer::schedule).
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full.
    pub fn schedule(&self, delay: Duration, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        let now_ns = self.tasks.driver.now_ns();
        let tick = self.tasks.driver.tick();
        self.tasks.insert(tick.round_down(now_ns), tick.deadline(now_ns, delay), task)
    }

    /// Has the handler run `task` at a moment of the timer's clock; one in the past is due at once.
    /// Reads no clock.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub fn schedule_at(&self, deadline_ns: u64, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        self.tasks.insert(0, self.tasks.driver.tick().round_up(deadline_ns), task)
    }

    /// Takes a pending task back; `None` if it is pending no more. O(1).
    pub fn cancel(&self, handle: TimerHandle) -> Option<T> {
        let task = self.tasks.shards.lock(handle.shard()).remove(handle)?;
        self.tasks.release(1);
        Some(task)
    }

    /// Reaches a pending task; `None` if it is pending no more. `reach` runs under the shard's lock:
    /// it must be short and must not call the timer. O(1).
    pub fn with<R>(&self, handle: TimerHandle, reach: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.tasks.shards.lock(handle.shard()).get_mut(handle).map(reach)
    }

    /// Gives a pending task `delay` from now, earlier or later than before; it keeps its handle,
    /// and nothing is allocated. False if it is pending no more. O(1).
    pub fn reschedule(&self, handle: TimerHandle, delay: Duration) -> bool {
        let now_ns = self.tasks.driver.now_ns();
        let tick = self.tasks.driver.tick();
        let mut shard = self.tasks.shards.lock(handle.shard());
        shard.reschedule(tick.round_down(now_ns), handle, Some(tick.deadline(now_ns, delay)))
    }

    /// True until the task falls due or is cancelled. O(1).
    pub fn is_pending(&self, handle: TimerHandle) -> bool {
        self.tasks.shards.lock(handle.shard()).get_mut(handle).is_some()
    }

    /// Tasks pending. Exact when nothing moves. O(shards).
    pub fn len(&self) -> usize {
        self.tasks.shards.sum(|shard| shard.wheel().len())
    }

    /// True when no task is pending. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The earliest deadline of a pending task, on the timer's clock, rounded up to its tick.
    /// O(shards × (levels + the tasks of one bucket a level)).
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let shards = 0..self.tasks.shards.count();
        let earliest = |shard| self.tasks.shards.lock(shard).wheel().next_deadline();
        shards.filter_map(earliest).min().map(|tick| self.tasks.driver.tick().start_ns(tick))
    }

    /// How many tasks panicked. Each panic was contained.
    pub fn panicked(&self) -> u64 {
        self.tasks.run.panicked.load(Ordering::Relaxed)
    }

    /// Refuses tasks from now on and hands back those that never fired, in no order. The timer
    /// itself goes on.
    pub fn shutdown(&self) -> Vec<T> {
        let mut left = Vec::new();
        for number in 0..self.tasks.shards.count() {
            let mut from = Some(0);
            while let Some(start) = from {
                let before = left.len();
                from = self.tasks.close_some(number, start, &mut left);
                self.tasks.release(left.len() - before);
            }
        }
        left
    }

    pub(crate) fn downgrade(&self) -> WeakTaskTimer<T> {
        WeakTaskTimer { tasks: Arc::downgrade(&self.tasks) }
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.tasks.driver
    }

    /// Counts and reports a panic that a task contained itself.
    pub(crate) fn report(&self, panicked: &Panicked) {
        self.tasks.run.report(panicked, &*self.tasks.driver);
    }
}

/// A handle that keeps nothing alive: for tasks that lie on the very wheels they use.
pub(crate) struct WeakTaskTimer<T> {
    tasks: Weak<Tasks<T>>,
}

impl<T> WeakTaskTimer<T> {
    pub(crate) fn upgrade(&self) -> Option<TaskTimer<T>> {
        self.tasks.upgrade().map(|tasks| TaskTimer { tasks })
    }
}

impl<T> Clone for WeakTaskTimer<T> {
    fn clone(&self) -> Self {
        WeakTaskTimer { tasks: self.tasks.clone() }
    }
}

impl<T> fmt::Debug for WeakTaskTimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakTaskTimer").finish_non_exhaustive()
    }
}

impl<T> Clone for TaskTimer<T> {
    fn clone(&self) -> Self {
        TaskTimer { tasks: self.tasks.clone() }
    }
}

impl<T> fmt::Debug for TaskTimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTimer").field("driver", &self.tasks.driver).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Tasks<T> {
    fn insert(&self, now: u64, deadline: u64, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        if let Some(limit) = self.pending.as_ref().filter(|limit| !limit.acquire()) {
            let reason = ScheduleErrorReason::Full { limit: limit.max() };
            return Err(ScheduleError { task, reason });
        }
        let inserted = self.insert_into(&mut self.shards.lock(thread_slot()), now, deadline, task);
        if inserted.is_err() {
            self.release(1);
        }
        inserted
    }

    fn insert_into(
        &self,
        shard: &mut ShardGuard<'_, T, Closed>,
        now: u64,
        deadline: u64,
        task: T,
    ) -> Result<TimerHandle, ScheduleError<T>> {
        if shard.state {
            return Err(ScheduleError { task, reason: ScheduleErrorReason::Closed });
        }
        shard.insert(now, Some(deadline), task).map_err(|full| {
            let reason = ScheduleErrorReason::Full { limit: MAX_TASKS as usize };
            ScheduleError { task: full.0, reason }
        })
    }

    fn release(&self, count: usize) {
        if let Some(limit) = &self.pending {
            limit.release(count);
        }
    }

    /// Takes out up to `BUDGET` tasks of a shard under one lock hold; returns where to go on.
    fn close_some(&self, number: usize, mut from: u32, left: &mut Vec<T>) -> Option<u32> {
        let mut shard = self.shards.lock(number);
        shard.state = !planted("shutdown closes no shard");
        for _ in 0..BUDGET {
            let handle = shard.first_from(from)?;
            from = handle.id().index();
            left.extend(shard.remove(handle));
        }
        Some(from)
    }
}

impl<T: Send + 'static> Turns for Tasks<T> {
    fn turn(self: Arc<Self>, shard: usize, now: u64) -> Turn {
        let turned = self.shards.turn(shard, now, BUDGET, |_, task, _| Some(task.take()));
        if !turned.due.is_empty() {
            self.release(turned.due.len());
            let (run, driver) = (self.run.clone(), self.driver.clone());
            self.driver.execute(Job::new(move || run.all(turned.due, &*driver)));
        }
        turned.turn
    }

    fn next_due(&self, shard: usize) -> Option<u64> {
        self.shards.lock(shard).wheel().next_due()
    }

    fn tally(&self, now: u64, tally: &mut WheelTally) {
        self.shards.tally(now, tally);
    }

    fn timer_closed(self: Arc<Self>) {
        for number in 0..self.shards.count() {
            self.shards.lock(number).state = true; // what is pending can still be taken back
        }
    }
}

impl<T> Run<T> {
    /// Runs each task of a batch; a panic in one does not reach the next.
    fn all(&self, tasks: Vec<T>, driver: &dyn Driver) {
        for task in tasks {
            if let Err(panicked) = contain(|| (self.handler)(task)) {
                self.report(&panicked, driver);
            }
        }
    }

    fn report(&self, panicked: &Panicked, driver: &dyn Driver) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
        driver.report_panic(panicked);
    }
}
