//! `TaskTimer`: tasks of one type on a timer, run by one handler. What `schedule` and `cancel` of
//! every timer schedule on, with boxed [`TimerTask`](crate::TimerTask)s for tasks.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use crossbeam_utils::CachePadded;

use crate::{
    driver::{
        driver::Driver,
        executor::{Due, Job, contain},
        shards::{ShardState, Shards, TimerHandle, WheelOwner},
    },
    observe::TimerStats,
    sync::{Mutex, failpoint, thread_slot},
    timers::{ScheduleError, TimerError, TimerTask},
    wheel::{
        node::MAX_TASKS,
        timing_wheel::{Advanced, TimingWheel},
    },
};

/// Tasks taken off the wheel under one lock hold.
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
/// let sessions = timer.with_handler(move |session: Session| send.send(session.id).unwrap());
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
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct TaskTimer<T> {
    pub(crate) tasks: Arc<Tasks<T>>,
}

pub(crate) struct Tasks<T> {
    shards: Shards<Shard<T>>,
    driver: Arc<Driver>,
    run: Arc<Run<T>>,
    /// At the timer's shutdown what is pending is run. Else it stays, to be taken back.
    run_at_close: bool,
    /// What fell due in this round.
    round: Mutex<Due<T>>,
}

/// A shard, under its lock.
struct Shard<T> {
    wheel: TimingWheel<T>,
    closed: bool,
}

impl<T> ShardState for Shard<T> {
    type Task = T;

    fn wheel(&mut self) -> &mut TimingWheel<T> {
        &mut self.wheel
    }
}

/// What running a task takes, apart from the wheels.
struct Run<T> {
    handler: Box<dyn Fn(T) + Send + Sync>,
    panicked: AtomicU64,
}

impl<T: Send + 'static> TaskTimer<T> {
    /// Wheels on a driver, all of whose tasks are refused after shutdown; which may
    /// `run_at_close`, before its time, what is pending then.
    pub(crate) fn on(
        driver: Arc<Driver>,
        handler: impl Fn(T) + Send + Sync + 'static,
        run_at_close: bool,
    ) -> Self {
        let tasks = Arc::new(Tasks {
            shards: driver.shards(driver.shard_count, |_, wheel| Shard {
                wheel,
                closed: false,
            }),
            round: Mutex::new(Due::default()),
            run_at_close,
            run: Arc::new(Run {
                handler: Box::new(handler),
                panicked: AtomicU64::new(0),
            }),
            driver,
        });
        if !tasks.driver.attach(&tasks, &tasks.shards) {
            tasks.clone().timer_closed();
        }
        TaskTimer { tasks }
    }

    /// Has the handler run `task` once `delay` has passed. As
    /// [`Timer::schedule`](crate::Timer::schedule).
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full.
    pub fn schedule(&self, delay: Duration, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        let (now, deadline) = self.now_and_deadline(delay);
        self.tasks.insert(now, deadline, task)
    }

    /// Has the handler run `task` at a moment of the timer's clock; one in the past is due at once.
    /// Reads no clock.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub fn schedule_at(&self, deadline_ns: u64, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        let deadline = self.tasks.driver.tick.round_up(deadline_ns);
        self.tasks.insert(0, deadline, task)
    }

    /// Takes a pending task back; `None` if it is pending no more. O(1).
    pub fn cancel(&self, handle: TimerHandle) -> Option<T> {
        self.tasks
            .shards
            .lock(handle.shard())
            .wheel
            .cancel(handle.id())
    }

    /// Cancels a pending task and drops it; true if that kept it from running. O(1).
    pub(crate) fn drop_pending(&self, handle: TimerHandle) -> bool {
        if failpoint!(CancelLooksThenActs) {
            return self.is_pending(handle) && (self.cancel(handle), true).1;
        }
        self.cancel(handle).is_some()
    }

    /// The present and a deadline, in ticks.
    fn now_and_deadline(&self, delay: Duration) -> (u64, u64) {
        let (now_ns, tick) = (self.tasks.driver.now_ns(), self.tasks.driver.tick);
        (tick.round_down(now_ns), tick.deadline(now_ns, delay))
    }

    /// Reaches a pending task; `None` if it is pending no more. `reach` runs under the shard's
    /// lock: it must be short and must not call the timer. O(1).
    pub fn with<R>(&self, handle: TimerHandle, reach: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.tasks
            .shards
            .lock(handle.shard())
            .wheel
            .get_mut(handle.id())
            .map(reach)
    }

    /// Gives a pending task `delay` from now, earlier or later than before; it keeps its handle,
    /// and nothing is allocated. False if it is pending no more. O(1).
    pub fn reschedule(&self, handle: TimerHandle, delay: Duration) -> bool {
        let (now, deadline) = self.now_and_deadline(delay);
        self.reschedule_at(handle, now, deadline)
    }

    /// True until the task falls due or is cancelled. O(1).
    pub fn is_pending(&self, handle: TimerHandle) -> bool {
        self.tasks
            .shards
            .lock(handle.shard())
            .wheel
            .get(handle.id())
            .is_some()
    }

    /// Tasks pending. Exact when nothing moves. O(shards).
    pub fn len(&self) -> usize {
        self.tasks.shards.sum(|shard| shard.wheel.len())
    }

    /// True when no task is pending. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tasks panicked. Each panic was contained.
    pub fn panicked(&self) -> u64 {
        self.tasks.run.panicked.load(Ordering::Relaxed)
    }

    /// Refuses tasks from now on and hands back those that never fired, in no order. The timer
    /// itself goes on.
    pub fn shutdown(&self) -> Vec<T> {
        self.tasks.take_all()
    }

    /// Gives a pending task another tick, seen from `now`. False if it is pending no more.
    pub(crate) fn reschedule_at(&self, handle: TimerHandle, now: u64, deadline: u64) -> bool {
        let mut shard = self.tasks.shards.lock(handle.shard());
        shard.wheel.catch_up(now);
        let due = shard.wheel.reschedule(handle.id(), deadline);
        due.into_iter().for_each(|due| shard.work_at(due));
        due.is_some()
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.tasks.driver
    }

    /// Counts and reports a panic that a task contained itself.
    pub(crate) fn report(&self, message: &str) {
        self.tasks.run.report(message, &self.tasks.driver);
    }
}

impl<T> Clone for TaskTimer<T> {
    fn clone(&self) -> Self {
        TaskTimer {
            tasks: self.tasks.clone(),
        }
    }
}

impl<T> fmt::Debug for TaskTimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTimer")
            .field("driver", &self.tasks.driver)
            .finish_non_exhaustive()
    }
}

/// What the handles of a timer share.
#[derive(Debug)]
pub struct Inside {
    pub(crate) driver: Arc<Driver>,
    /// Made when the first task is scheduled; of a hand-turned timer at once.
    pub(crate) tasks: OnceLock<TaskTimer<Box<dyn TimerTask>>>,
    /// Where sleeps leave their wakers; made when the first one is. The same wheels behind a count
    /// of references for each shard: threads that make and drop sleeps do not write to the same
    /// memory.
    wakers: OnceLock<Box<[Wakers]>>,
}

/// Wakers on wheels, and the count of their users.
pub(crate) type Wakers = Arc<CachePadded<TaskTimer<Waker>>>;

impl Inside {
    /// The inside of a new timer.
    pub(crate) fn new(driver: Driver) -> Arc<Self> {
        let driver = Arc::new(driver);
        Arc::new(Inside {
            driver,
            tasks: OnceLock::new(),
            wakers: OnceLock::new(),
        })
    }

    /// What tasks are scheduled on.
    pub(crate) fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>> {
        self.tasks
            .get_or_init(|| TaskTimer::on(self.driver.clone(), <dyn TimerTask>::run, false))
    }

    /// Where this thread leaves wakers.
    pub(crate) fn wakers(&self) -> &Wakers {
        let wakers = self.wakers.get_or_init(|| {
            let wakers = TaskTimer::on(self.driver.clone(), Waker::wake, true);
            let counted = || Arc::new(CachePadded::new(wakers.clone()));
            std::iter::repeat_with(counted)
                .take(self.driver.shard_count)
                .collect()
        });
        &wakers[thread_slot() & (wakers.len() - 1)]
    }

    /// Panics of tasks and of wakers.
    pub(crate) fn panics(&self) -> u64 {
        let of_tasks = self.tasks.get().map_or(0, TaskTimer::panicked);
        of_tasks + self.of_sleepers(TaskTimer::panicked)
    }

    /// Ends the timer; the tasks that never fired, and the threads that had not ended.
    pub(crate) fn shutdown(&self, limit: Duration) -> (Vec<Box<dyn TimerTask>>, usize) {
        let tasks = || self.tasks.get().map_or_else(Vec::new, TaskTimer::shutdown);
        self.driver.shutdown(limit, tasks)
    }

    /// A number of the sleepers; 0 when there never was one.
    pub(crate) fn of_sleepers<N: Default>(&self, number: impl Fn(&TaskTimer<Waker>) -> N) -> N {
        self.wakers
            .get()
            .map_or_else(N::default, |wakers| number(&wakers[0]))
    }
}

impl<T: Send + 'static> Tasks<T> {
    /// Has the handler run `task` at a tick, seen from another.
    #[inline]
    pub(crate) fn insert(
        &self,
        now_tick: u64,
        deadline: u64,
        task: T,
    ) -> Result<TimerHandle, ScheduleError<T>> {
        let mut shard = self.shards.lock(thread_slot());
        if shard.closed {
            drop(shard);
            return Err(ScheduleError::new(task, TimerError::Closed));
        }
        shard.wheel.catch_up(now_tick);
        let scheduled = shard.wheel.insert(deadline, task).map_err(|task| {
            let reason = TimerError::Full {
                limit: MAX_TASKS as usize,
            };
            ScheduleError::new(task, reason)
        })?;
        shard.work_at(scheduled.due);
        Ok(shard.handle(scheduled.id))
    }

    /// Closes all shards and takes out what is pending.
    fn take_all(&self) -> Vec<T> {
        let mut left = Vec::new();
        for number in 0..self.shards.count() {
            let mut from = Some(0);
            while let Some(start) = from {
                from = self.close_some(number, start, &mut left);
            }
        }
        left
    }

    /// Has tasks run, in jobs.
    fn execute(&self, due: Due<T>) {
        for tasks in due.into_jobs(self.driver.parallelism()) {
            let (run, driver) = (self.run.clone(), self.driver.clone());
            self.driver
                .execute(Job::new(move || run.all(tasks, &driver)));
        }
    }

    /// Takes out up to `BUDGET` tasks of a shard under one lock hold; returns where to go on.
    fn close_some(&self, number: usize, mut from: u32, left: &mut Vec<T>) -> Option<u32> {
        let mut shard = self.shards.lock(number);
        shard.closed = !failpoint!(ShutdownClosesNoShard);
        for _ in 0..BUDGET {
            let id = shard.wheel.first_from(from)?;
            from = id.index();
            left.extend(shard.wheel.cancel(id));
        }
        Some(from)
    }
}

impl<T: Send + 'static> WheelOwner for Tasks<T> {
    fn advance(&self, number: usize, now_tick: u64) -> Advanced {
        let in_order = self.driver.by_hand;
        let budget = if in_order { usize::MAX } else { BUDGET }; // order needs the whole tick
        let mut due = self.round.lock();
        let mut shard = self.shards.lock(number);
        let advanced = shard.wheel.advance(now_tick, budget, |task| {
            let order = in_order.then(|| (task.deadline(), task.id().sequence()));
            due.push(task.take(), order);
        });
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        let due = std::mem::take(&mut *self.round.lock());
        self.execute(due);
        let driver = self.driver.clone();
        if let Some(tasks) = Arc::into_inner(self) {
            // The last handle went meanwhile. Pending tasks are the user's to drop: not here.
            driver.execute(Job::new(move || drop(tasks)));
        }
    }

    fn next_due(&self, shard: usize) -> Option<u64> {
        self.shards.next_due(shard)
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn timer_closed(self: Arc<Self>) {
        for number in 0..self.shards.count() {
            self.shards.lock(number).closed = true; // what is pending can still be taken back
        }
        if self.run_at_close && !failpoint!(ShutdownWakesNoSleeper) {
            let mut due = Due::default();
            self.take_all()
                .into_iter()
                .for_each(|task| due.push(task, None));
            self.execute(due);
        }
    }
}

impl<T> Run<T> {
    /// Runs each task of a batch; a panic in one does not reach the next.
    fn all(&self, tasks: Vec<T>, driver: &Driver) {
        for task in tasks {
            if let Err(message) = contain(|| (self.handler)(task)) {
                self.report(&message, driver);
            }
        }
    }

    fn report(&self, message: &str, driver: &Driver) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
        driver.report_panic(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So no thread waits long for a wheel's lock.
    #[test]
    fn one_turn_hands_over_a_bounded_number_of_tasks() {
        let tasks = TaskTimer::on(Arc::new(Driver::new()), drop::<()>, false); // nobody turns it
        (0..1000).for_each(|_| _ = tasks.schedule_at(0, ()).unwrap());
        let turn = || (tasks.tasks.advance(0, 0).fired, tasks.len());
        let turned: Vec<_> = std::iter::repeat_with(turn).take(4).collect();
        assert_eq!(turned, [(256, 744), (256, 488), (256, 232), (232, 0)]);
    }
}
