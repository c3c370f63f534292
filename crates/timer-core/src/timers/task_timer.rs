//! `TaskTimer`: tasks of one type on a timer, run by one handler. And [`TimerInner`], which the
//! handles of a timer share: its driver, and two task timers. One has the timer's own tasks, each a
//! boxed [`TimerTask`], the other the wakers of its sleeps.
//!
//! A task lies on the wheel of one shard, under that shard's lock. When it falls due the reaper
//! takes it off, and hands it over in a job, which calls the handler with nothing locked.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

#[cfg(feature = "metrics")]
use crate::observe::metrics::{Sample, SourceName, timer_samples};
use crate::{
    driver::{
        clock::Moment,
        driver::Driver,
        executor::Job,
        executors::{Due, DueQueue},
        handle::TimerHandle,
        owner::{ShardLook, WheelOwner},
        shards::Shards,
        tick::Ticks,
    },
    observe::{TimerStats, opaque},
    panics::contain,
    sync::{Share, Shares, failpoint, thread_slot},
    timers::{ScheduleError, TimerError, TimerTask},
    wheel::timing_wheel::{Advanced, TimingWheel},
};

/// The most tasks that are taken off a wheel under one lock hold.
const BUDGET: usize = 256;

/// Tasks of one type on a shared timer, each run by one handler once its time has come.
///
/// It works as [`Timer::schedule`](crate::Timer::schedule), without a box for each task, and a
/// pending task can be [reached](Self::with). A handle: all clones refer to the same timer. Made by
/// [`Timer::with_handler`](crate::Timer::with_handler). When the last handle is dropped, pending
/// tasks are dropped unrun. After the [shutdown](crate::Timer::shutdown) of the underlying timer
/// they never run, and stay until [`shutdown`](Self::shutdown) or [`cancel`](Self::cancel) takes
/// them back.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::ManualTimer;
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
    pub(super) tasks: Arc<Tasks<T>>,
}

pub(crate) struct Tasks<T> {
    shards: Shards<TimingWheel<T>>,
    driver: Arc<Driver>,
    run: Arc<Run<T>>,
    at_shutdown: AtShutdown<T>,
    due: DueQueue<T>,
}

/// Ends the tasks that are pending when the timer is shut down; with `None` they stay, to be taken
/// back. A function, so that a binary without sleeps has no code for it.
type AtShutdown<T> = Option<fn(&Tasks<T>)>;

/// The handler and the count of its panics, which jobs hold without the wheels.
struct Run<T> {
    handler: Box<dyn Fn(T) + Send + Sync>,
    panicked: AtomicU64,
}

impl<T: Send + 'static> TaskTimer<T> {
    /// Makes a task timer. After the timer's shutdown it is closed from the beginning.
    pub(crate) fn on(
        driver: Arc<Driver>,
        handler: impl Fn(T) + Send + Sync + 'static,
        at_shutdown: AtShutdown<T>,
    ) -> Self {
        // The wheels, the due tasks of a round, and the handler, which is all that jobs hold.
        let tasks = Arc::new(Tasks {
            shards: driver.shards(driver.config.shard_count, (), |(), plan| plan.wheel()),
            due: DueQueue::new(&driver.config),
            at_shutdown,
            run: Arc::new(Run {
                handler: Box::new(handler),
                panicked: AtomicU64::new(0),
            }),
            driver,
        });
        // After the timer's shutdown nothing else would close the shards.
        if !tasks.driver.attach(&tasks, &tasks.shards) {
            tasks.clone().timer_closed();
        }
        TaskTimer { tasks }
    }

    /// Schedules `task` for the handler, once `delay` has passed, as
    /// [`Timer::schedule`](crate::Timer::schedule) does. O(1) for common timeouts: a clock read,
    /// one uncontended lock, a place in the wheel.
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full.
    pub fn schedule(&self, delay: Duration, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        self.tasks
            .insert(self.tasks.driver.ticks_after(delay), task)
    }

    /// Schedules `task` for the handler, at a moment of the timer's clock. A moment in the past is
    /// due at once, [`Moment::NEVER`] never. Reads no clock. O(1) for common timeouts.
    ///
    /// # Errors
    /// Returns an error as [`schedule`](Self::schedule) does.
    pub fn schedule_at(&self, deadline: Moment, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        let deadline = self.tasks.driver.config.tick.deadline_at(deadline);
        self.tasks.insert(Ticks::without_now(deadline), task)
    }

    /// Takes a pending task back; `None` if it is no longer pending. O(1).
    pub fn cancel(&self, handle: TimerHandle) -> Option<T> {
        self.tasks.shards.lock(handle.shard()).cancel(handle.id())
    }

    /// Calls `reach` with a pending task; returns `None` if it is no longer pending. `reach` runs
    /// under the shard's lock: it must be short and must not call the timer. O(1).
    ///
    /// # Panics
    /// A panic of `reach` reaches the caller, with nothing locked. The task stays pending, as
    /// `reach` left it.
    pub fn with<R>(&self, handle: TimerHandle, reach: impl FnOnce(&mut T) -> R) -> Option<R> {
        // If `reach` is not called, it is dropped after unlocking.
        let mut reach = Some(reach);
        let mut shard = self.tasks.shards.lock(handle.shard());
        let task = shard.get_mut(handle.id())?;
        reach.take().map(|reach| reach(task))
    }

    /// Reschedules a pending task to `delay` from now, earlier or later; it keeps its handle and
    /// its memory. Returns false if it is no longer pending. If several threads call, one wins as
    /// [`Timer::reschedule`](crate::Timer::reschedule) says. O(1).
    pub fn reschedule(&self, handle: TimerHandle, delay: Duration) -> bool {
        self.reschedule_at(handle, self.tasks.driver.ticks_after(delay))
    }

    /// Returns true until the task falls due or is cancelled. O(1).
    pub fn is_pending(&self, handle: TimerHandle) -> bool {
        let shard = self.tasks.shards.lock(handle.shard());
        shard.get(handle.id()).is_some()
    }

    /// Returns the number of pending tasks. Exact when idle. O(shards).
    pub fn len(&self) -> usize {
        self.tasks.shards.sum(TimingWheel::len)
    }

    /// Returns true when no task is pending. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tasks that panicked. Each panic was contained. O(1).
    pub fn panicked(&self) -> u64 {
        self.tasks.run.panicked.load(Ordering::Relaxed)
    }

    /// Refuses tasks from now on and hands back those that never fired, in no order. The timer
    /// itself goes on. O(n + shards) for n pending tasks; a shard is locked for a few hundred of
    /// them at a time.
    pub fn shutdown(&self) -> Vec<T> {
        self.tasks.close_and_drain()
    }

    /// Reschedules a pending task to another tick. Returns false if it is not pending.
    pub(super) fn reschedule_at(&self, handle: TimerHandle, ticks: Ticks) -> bool {
        let mut shard = self.tasks.shards.lock(handle.shard());
        shard.catch_up(ticks.now);
        // Earlier or later, the task keeps its node.
        let Some(due) = shard.reschedule(handle.id(), ticks.deadline) else {
            return false;
        };
        shard.work_at(due);
        true
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.tasks.driver
    }

    /// Counts and reports a panic that a task contained itself.
    pub(super) fn report(&self, message: &str) {
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

opaque!([T] TaskTimer<T>, driver: tasks.driver);

/// State that the handles of a timer share.
#[derive(Debug)]
pub(crate) struct TimerInner {
    pub(super) driver: Arc<Driver>,
    /// Made when the first task is scheduled; on a manual timer at once.
    pub(super) tasks: OnceLock<TaskTimer<Box<dyn TimerTask>>>,
    /// The wakers of sleeps; made when the first sleep is. Threads that make and drop sleeps do not
    /// write to the same memory.
    wakers: OnceLock<Shares<TaskTimer<Waker>>>,
    /// Set by the first publish, so that a binary that never publishes has no code for it.
    #[cfg(feature = "metrics")]
    publishing: OnceLock<Publishing>,
}

/// The functions that a published timer calls as its last handle is dropped.
#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Publishing {
    read: fn(&TimerInner) -> Vec<Sample>,
    publish: fn(&TimerInner),
}

/// Wakers on wheels, for the sleeps of some threads.
pub(super) type Wakers = Share<TaskTimer<Waker>>;

impl TimerInner {
    /// Makes the inside of a new timer.
    pub(crate) fn new(driver: Arc<Driver>) -> Arc<Self> {
        Arc::new(TimerInner {
            driver,
            tasks: OnceLock::new(),
            wakers: OnceLock::new(),
            #[cfg(feature = "metrics")]
            publishing: OnceLock::new(),
        })
    }

    /// Returns the timer's own tasks, which are made by the first call.
    pub(super) fn tasks(&self) -> &TaskTimer<Box<dyn TimerTask>> {
        self.tasks
            .get_or_init(|| TaskTimer::on(self.driver.clone(), <dyn TimerTask>::run, None))
    }

    /// Returns the wakers for sleeps that this thread makes.
    pub(super) fn wakers(&self) -> &Wakers {
        // All shares have the same wheels. Sleepers are woken at shutdown.
        let shares = self.wakers.get_or_init(|| {
            let run_early = Some(Tasks::run_early as fn(&_));
            let wakers = TaskTimer::on(self.driver.clone(), Waker::wake, run_early);
            Shares::new(wakers, self.driver.config.shard_count)
        });
        shares.of_this_thread()
    }

    /// Returns the wakers of all sleeps; `None` when there never was one.
    pub(super) fn sleepers(&self) -> Option<&TaskTimer<Waker>> {
        self.wakers.get().map(Shares::value)
    }
}

#[cfg(feature = "metrics")]
impl TimerInner {
    /// Publishes the timer, without the owners of wheels on it.
    pub(super) fn publish(&self) {
        let read = |timer: &TimerInner| timer_samples(timer.driver.stats());
        self.publishing.get_or_init(|| Publishing {
            read,
            publish: TimerInner::publish,
        });
        let name = SourceName {
            label: "timer",
            name: self.driver.config.name.as_str().into(),
        };
        let published = &self.driver.published;
        published.resume(); // the last handle before this one may have gone
        published.publish(&name, false, &|| read(self));
    }
}

#[cfg(feature = "metrics")]
impl Drop for TimerInner {
    fn drop(&mut self) {
        if let Some(Publishing { read, publish }) = self.publishing.get() {
            self.driver.published.withdraw(&|| read(self));
            // A handle that was made while this one was dropped may have published meanwhile.
            // Publish it again: it withdraws in its turn. A drop must not panic.
            let handles = self.driver.handles.lock().upgrade();
            if let Some(Ok(next)) = handles.map(Arc::downcast::<TimerInner>) {
                let _ = contain(|| publish(&next));
            }
        }
    }
}

impl<T: Send + 'static> Tasks<T> {
    /// Schedules `task` for the handler at a tick.
    #[inline]
    pub(super) fn insert(&self, ticks: Ticks, task: T) -> Result<TimerHandle, ScheduleError<T>> {
        // Each thread has a shard of its own, as long as there are enough.
        let mut shard = self.shards.lock(thread_slot());
        if self.shards.is_closed() {
            drop(shard);
            return Err(self.refuse(task));
        }
        // After an idle time the wheel lags behind the present.
        shard.catch_up(ticks.now);
        let scheduled = shard
            .insert(ticks.deadline, task)
            .map_err(ScheduleError::full)?;
        // Earlier work than the reaper expects wakes it, after unlocking (Wake before).
        if shard.work_at(scheduled.due) && self.driver.is_inherited() {
            // A child of `fork` has no thread to wake: refuse this task and all that follow.
            if let Some(task) = shard.cancel(scheduled.id) {
                drop(shard);
                self.close();
                return Err(self.refuse(task));
            }
        }
        Ok(shard.handle(scheduled.id))
    }

    /// Refuses a task: the wheels are closed.
    #[cold]
    fn refuse(&self, task: T) -> ScheduleError<T> {
        let reason = match self.driver.is_inherited() {
            true => TimerError::Forked,
            false => TimerError::Closed,
        };
        ScheduleError::new(task, reason)
    }

    /// Closes all shards. Pending tasks can still be taken back.
    ///
    /// A thread that locks a shard from here on finds it closed: by the lock that is taken here, or
    /// by the mark of a shard that is made later (Seen).
    fn close(&self) {
        if !failpoint!(ShutdownClosesNoShard) {
            self.shards.close();
        }
        for number in self.shards.made() {
            drop(self.shards.lock(number));
        }
    }

    /// Closes all shards and takes the pending tasks out.
    fn close_and_drain(&self) -> Vec<T> {
        // Take a bounded number under one lock hold, so that no thread waits for a large shard.
        self.close();
        let mut unfired = Vec::new();
        for number in self.shards.made() {
            let mut from = Some(0);
            while let Some(start) = from {
                from = self.drain_some(number, start, &mut unfired);
            }
        }
        unfired
    }

    /// Takes out up to `BUDGET` tasks of a shard under one lock hold; returns where to go on.
    fn drain_some(&self, number: usize, mut from: u32, unfired: &mut Vec<T>) -> Option<u32> {
        let mut shard = self.shards.lock(number);
        for _ in 0..BUDGET {
            let id = shard.first_from(from)?;
            from = id.index();
            unfired.extend(shard.cancel(id));
        }
        Some(from)
    }

    /// Runs the pending tasks before their time.
    fn run_early(&self) {
        if !failpoint!(ShutdownWakesNoSleeper) {
            let early = self.close_and_drain();
            self.execute(early.into_iter().collect());
        }
    }

    /// Runs tasks on the timer's executor, in jobs.
    fn execute(&self, due: Due<T>) {
        for tasks in due.into_jobs(self.driver.executors.parallelism()) {
            let run = self.run.clone();
            let driver = self.driver.clone();
            let job = Job::new(move || run.all(tasks, &driver));
            self.driver.executors.execute(job);
        }
    }
}

impl<T: Send + 'static> WheelOwner for Tasks<T> {
    fn advance(&self, number: usize, now_tick: u64) -> Advanced {
        // The due tasks are kept until the round is over.
        let mut due = self.due.lock();
        let budget = due.budget(BUDGET);
        let mut shard = self.shards.lock(number);
        let advanced = shard.advance(now_tick, budget, |task| due.push_due(task));
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        self.execute(self.due.take());
        let driver = self.driver.clone();
        driver.release(self);
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.shards.look(shard)
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn timer_closed(self: Arc<Self>) {
        self.close();
        if let Some(end) = self.at_shutdown {
            end(&self);
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
        driver.executors.panics.count_and_report(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Tasks<T> {
        /// Makes the wheel of shard 0 take no more places than it has.
        pub(crate) fn make_no_place(&self) {
            self.shards.lock(0).make_no_page();
        }
    }
}
