//! Executors, which run expired tasks: as a rule not on the reaper, so that a slow callback cannot
//! delay the wheel.
//!
//! A [`Job`] is a batch of tasks. *It runs, whatever happens to it*: an executor that drops a job
//! runs it on the dropping thread, so each expired task still ends. A panic of user code goes no
//! further than [`contain`].

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Condvar, PoisonError},
    time::Duration,
};

use crate::{
    driver::{config::Panics, home::Home},
    observe::opaque,
    panics::contain,
    sync::{self, JoinHandle, Latch, plain::Mutex, spawn, thread_local},
};

/// Work for an [`Executor`]. Runs once: by [`run`](Self::run), or else when it is dropped.
pub struct Job {
    work: Option<Box<dyn FnOnce() + Send>>,
    /// Counts a panic of the job; `None` until a timer or [`Workers`] takes it.
    panics: Option<Arc<Panics>>,
}

impl Job {
    /// Makes a job that calls `work`.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Job {
            work: Some(Box::new(work)),
            panics: None,
        }
    }

    /// Runs the job. A panic in it is contained, and counted by the timer that took the job, or
    /// else by the [`Workers`].
    pub fn run(self) {
        drop(self);
    }

    /// Makes `panics` count a panic of the job, unless others do already.
    pub(super) fn counted_by(mut self, panics: &Arc<Panics>) -> Job {
        self.panics.get_or_insert_with(|| panics.clone());
        self
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        match &self.panics {
            Some(panics) => drop(panics.contain(work)),
            None => drop(contain(work)),
        }
    }
}

opaque!([] Job);

/// Runs jobs on threads of its own.
///
/// An executor must run or drop each job that it takes. A job holds a reference to its source: an
/// executor that keeps jobs and runs none keeps the timer and the expired tasks alive. The last job
/// of a timer without handles drops the executor, on a thread of the executor's own: its `Drop`
/// must not wait for that thread.
pub trait Executor: Send + Sync + fmt::Debug + 'static {
    /// Takes a job to be run soon. Must neither block nor run the job before returning: the caller
    /// is the reaper, or a thread in the middle of an event.
    fn execute(&self, job: Job);

    /// Returns the number of jobs that wait to be run; `None` if the executor does not count them.
    fn queued(&self) -> Option<u64> {
        None
    }

    /// Returns the number of threads that run jobs: tasks that fall due together are split among
    /// this many. One by default.
    fn parallelism(&self) -> usize {
        1
    }

    /// Returns true when the calling thread is one that runs jobs, between two of them: an event
    /// loop, or a thread of a runtime. If it blocked, its jobs would wait for it, so blocking waits
    /// are refused there. (A timer's own threads are known without this.)
    fn needs_this_thread(&self) -> bool {
        false
    }
}

/// The most tasks that one job runs.
pub const JOB_TASKS: usize = 64;

/// A timer's own threads, in the process that makes this value.
pub(super) struct Threads {
    handles: sync::Mutex<Vec<JoinHandle<()>>>,
    running: Latch,
    home: Home,
}

/// A limit this long joins the threads, so that their thread-locals are dropped as well.
const UNLIMITED: Duration = Duration::from_secs(1 << 32);

impl Threads {
    pub(crate) fn new() -> Self {
        Threads {
            handles: sync::Mutex::new(Vec::new()),
            running: Latch::default(),
            home: Home::here(),
        }
    }

    /// Runs `work` on a thread of this name. If the operating system refuses a thread, `work` is
    /// dropped; a [`Job`] would run here.
    pub(super) fn start(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        // Counted from here on, even if the thread has not begun yet.
        let running = self.running.begin();
        let thread = spawn(name, move || {
            // The mark stays: thread-locals are dropped after the work, and may shut a timer down.
            let _ = OF_A_TIMER.try_with(|of_a_timer| of_a_timer.set(true));
            let _ = contain(work);
            drop(running);
        })?;
        self.handles.lock().push(thread);
        Ok(())
    }

    /// Waits until the threads have ended, for at most `limit`; returns how many have not. A child
    /// of `fork` has none of them to wait for, and std's `join` would panic.
    pub(super) fn join(&self, limit: Duration) -> usize {
        if self.home.is_elsewhere() {
            return self.running.wait(Duration::ZERO);
        }
        // With a limit, wait only for the end of the work.
        if limit < UNLIMITED {
            return self.running.wait(limit);
        }
        // Keep the lock, so that another caller waits as well.
        let mut handles = self.handles.lock();
        for thread in handles.drain(..) {
            let _ = thread.join(); // it contains its panics
        }
        0
    }
}

/// An empty queue keeps memory for at most this many jobs.
const QUEUE_KEPT: usize = 64;

/// The default executor: worker threads on one queue. Idle workers sleep.
///
/// Dropping it (or [`close`](Self::close)) lets the workers finish what is queued and end.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{Executor, Job, Workers};
///
/// let workers = Workers::start("callbacks", 2)?; // threads callbacks-0 and callbacks-1
/// let (send, done) = mpsc::channel();
/// workers.execute(Job::new(move || send.send("done").unwrap()));
/// assert_eq!(done.recv()?, "done");
/// workers.close();
/// assert_eq!(workers.join(Duration::MAX), 0); // all have ended
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Workers {
    queue: Arc<Queue>,
    count: usize,
    threads: Threads,
    /// Counts panics of jobs that no timer handed over.
    panics: Arc<Panics>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// A job has come, or the queue was closed.
    arrived: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    /// Workers that wait for a job, or have been woken for one and have not come yet.
    idle: usize,
    closed: bool,
}

impl Queue {
    /// Waits for a job; `None` once the queue is closed and empty.
    fn next_job(&self) -> Option<Job> {
        // After a spurious wake-up, wait on.
        let is_idle = |state: &mut QueueState| state.jobs.is_empty() && !state.closed;
        let mut state = self.state.lock();
        state.idle += 1;
        let waited = self.arrived.wait_while(state, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if state.jobs.is_empty() {
            state.jobs.shrink_to(QUEUE_KEPT); // a peak is given back
        }
        job
    }
}

impl Workers {
    /// Starts `count` workers (at least one), named `name-0`, `name-1`, … A NUL character in the
    /// name becomes a question mark.
    ///
    /// # Errors
    /// The operating system's error, when it does not start a thread.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        // If a thread cannot be started, dropping this ends the threads that have begun.
        let workers = Workers {
            queue: Arc::default(),
            count: count.max(1),
            threads: Threads::new(),
            panics: Arc::default(),
        };
        let name = name.replace('\0', "?");
        for number in 0..workers.count {
            // Each worker runs jobs until the queue is closed and empty.
            let queue = workers.queue.clone();
            let work = move || {
                while let Some(job) = queue.next_job() {
                    job.run();
                }
            };
            let name = format!("{name}-{number}");
            workers.threads.start(&name, Box::new(work))?;
        }
        Ok(workers)
    }

    /// Takes no more jobs (later ones run on the thread that hands them in) and lets the workers
    /// finish.
    pub fn close(&self) {
        self.queue.state.lock().closed = true;
        self.queue.arrived.notify_all();
    }

    /// Waits until the workers have finished, after [`close`](Self::close), for at most `limit`;
    /// returns how many have not. A timer's thread must not call it without a limit. In a child of
    /// `fork`, which has none of these threads, it does not wait.
    pub fn join(&self, limit: Duration) -> usize {
        self.threads.join(limit)
    }

    /// Returns the number of jobs that panicked. Each panic was contained. Panics of a timer's jobs
    /// are counted by the timer alone ([`TimerStats::panics`](crate::TimerStats::panics)). O(1).
    pub fn panicked(&self) -> u64 {
        self.panics.count()
    }
}

// Each timer links this through its `dyn Executor`, so it leaves out the queue and the threads.
opaque!([] Workers, count: count);

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "a model's cannot be")]
    /// True on a timer's own threads, and on other threads while they do a timer's work.
    static OF_A_TIMER: Cell<bool> = Cell::new(false);
}

/// Marks this thread, which may be one of a runtime, as a timer's while `work` runs.
pub(crate) fn inside_timer<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the mark, even if `work` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = OF_A_TIMER.try_with(|of_a_timer| of_a_timer.set(self.0));
        }
    }
    // A thread that ends has no mark any more, and counts as a timer's.
    let before = OF_A_TIMER.try_with(|of_a_timer| of_a_timer.replace(true));
    let _restore = Restore(before.unwrap_or(true));
    work()
}

/// Returns true on a reaper or worker of any timer, and on another thread while it does their work:
/// in a runtime's task, or while it advances a manual timer. Code there must not wait for such a
/// thread, which may be waiting for this one.
pub fn on_timer_thread() -> bool {
    OF_A_TIMER.try_with(Cell::get).unwrap_or(true)
}

impl Executor for Workers {
    fn execute(&self, job: Job) {
        let job = job.counted_by(&self.panics);
        let mut state = self.queue.state.lock();
        if !state.closed {
            state.jobs.push_back(job);
            // Wake a worker after unlocking, or it would wait for the lock. While all are busy,
            // wake none.
            let has_idle = state.idle > 0;
            drop(state);
            if has_idle {
                self.queue.arrived.notify_one();
            }
            return;
        }
        // Closed: the job runs here, with nothing locked.
        drop(state);
        job.run();
    }

    fn queued(&self) -> Option<u64> {
        Some(self.queue.state.lock().jobs.len() as u64)
    }

    fn parallelism(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn workers_finish_their_queue_and_outlive_a_panic() {
        let workers = Workers::start("test", 2).unwrap();
        let (done, results) = mpsc::channel();
        let job = |number| {
            let done = done.clone();
            Job::new(move || {
                done.send(number).unwrap();
                assert!(number % 7 != 0, "a panic in job {number}");
            })
        };
        for number in 0..99 {
            workers.execute(job(number));
        }
        workers.close();
        workers.execute(job(99)); // at once, here
        workers.join(Duration::MAX);
        drop(done);
        assert_eq!(results.iter().count(), 100);
        assert_eq!(workers.panicked(), 15, "those of 0, 7, .. 98");
        assert_eq!(workers.queued(), Some(0));
    }

    /// A busy worker finishes its queue first.
    #[test]
    fn workers_end_when_they_are_dropped() {
        let workers = Workers::start("test", 1).unwrap();
        let queue = Arc::downgrade(&workers.queue);
        let (go_on, told) = mpsc::channel::<()>();
        let waits = move || assert!(told.recv().is_err());
        workers.execute(Job::new(waits));
        let (done, results) = mpsc::channel();
        let done = move || done.send(()).unwrap();
        workers.execute(Job::new(done.clone()));
        workers.execute(Job::new(done));
        while workers.queued() != Some(2) {
            std::thread::yield_now(); // until the worker has the first
        }
        drop(workers);
        drop(go_on);
        assert_eq!(results.iter().count(), 2);
        while queue.strong_count() > 0 {
            std::thread::yield_now(); // for ever, if the worker waited for a job
        }
    }
}
