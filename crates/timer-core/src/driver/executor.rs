//! Where expired tasks run: as a rule not on the reaper, so that a slow callback cannot delay the
//! wheel.
//!
//! A [`Job`] is a batch of them. *It runs, whatever happens to it*: an executor that drops a job
//! runs it on the dropping thread, so what expired still ends. A panic of the user's code goes no
//! further than [`contain`].

use std::{
    any::Any,
    cell::Cell,
    collections::VecDeque,
    fmt, io,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, PoisonError},
    time::Duration,
};

use crate::sync::{self, JoinHandle, Latch, plain::Mutex, spawn, thread_local};

/// Calls `work` and keeps a panic from going further.
///
/// # Errors
/// What the panic said, when it was text.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(message)
}

#[cold]
fn message(payload: Box<dyn Any + Send>) -> String {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let constant = payload.downcast_ref::<&'static str>().copied();
    let message = owned.or(constant).unwrap_or("no message").to_owned();
    // The payload is the user's: its `Drop` may panic, and so may the payload of that panic.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        forget(second);
    }
    message
}

/// Work for an [`Executor`]. Runs once: by [`run`](Self::run), or else when it is dropped.
pub struct Job {
    work: Option<Box<dyn FnOnce() + Send>>,
}

impl Job {
    /// A job that calls `work`.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Job {
            work: Some(Box::new(work)),
        }
    }

    /// Runs the job. A panic in it stays in it.
    pub fn run(self) {
        drop(self);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let _ = contain(work);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// Runs jobs on threads of its own.
///
/// It must run or drop each job that it takes. A job holds what it came from: an executor that
/// keeps jobs and runs none keeps the timer, the purgatory and what expired alive.
pub trait Executor: Send + Sync + fmt::Debug + 'static {
    /// Takes a job to be run soon. Must neither block nor run it before returning: the caller is
    /// the reaper, or a thread in the middle of an event.
    fn execute(&self, job: Job);

    /// Jobs that wait to be run, if it tells.
    fn queued(&self) -> Option<u64> {
        None
    }

    /// How many threads run jobs: what falls due together is parted among this many. One unless it
    /// tells.
    fn parallelism(&self) -> usize {
        1
    }

    /// True when the calling thread is one that runs jobs, between two of them: an event loop, or a
    /// thread of a runtime. If it blocked, its jobs would wait for it, so a purgatory refuses a
    /// blocking wait there. (A timer's own threads are known without this.)
    fn needs_this_thread(&self) -> bool {
        false
    }
}

/// Tasks that one job runs at most.
pub const JOB_TASKS: usize = 64;

/// What fell due in a round, in the order in which it is to be told: as it came off the wheels, or,
/// for a timer that promises it, in that of (tick, insertion).
#[derive(Debug)]
pub struct Due<T> {
    tasks: Vec<T>,
    /// Deadline and sequence of each, where order matters.
    order: Vec<(u64, u64)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due {
            tasks: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl<T> Due<T> {
    /// Adds a task; with its deadline and place in the order of insertion, if order matters.
    pub fn push(&mut self, task: T, order: Option<(u64, u64)>) {
        self.tasks.push(task);
        self.order.extend(order);
    }

    /// The tasks in jobs of [`JOB_TASKS`](crate::JOB_TASKS) at most, and small enough that each of
    /// `parallelism` threads gets one.
    pub fn into_jobs(self, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
        let Due { mut tasks, order } = self;
        if !order.is_empty() {
            let mut places: Vec<_> = (0..order.len()).collect();
            places.sort_unstable_by_key(|&at| order[at]);
            let mut as_found: Vec<_> = tasks.into_iter().map(Some).collect();
            tasks = places
                .into_iter()
                .filter_map(|at| as_found[at].take())
                .collect();
        }
        let size = tasks.len().div_ceil(parallelism.max(1)).clamp(1, JOB_TASKS);
        let mut tasks = tasks.into_iter();
        std::iter::from_fn(move || {
            let job: Vec<T> = tasks.by_ref().take(size).collect();
            (!job.is_empty()).then_some(job)
        })
    }
}

/// Runs each job at once, on the thread that hands it in: the reaper's, for what expired. A slow
/// task then delays all others, so only for a timer that nobody else shares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inline;

impl Executor for Inline {
    fn execute(&self, job: Job) {
        job.run();
    }
}

/// Threads of a timer's own.
#[derive(Debug)]
pub(crate) struct Threads {
    handles: sync::Mutex<Vec<JoinHandle<()>>>,
    running: Latch,
}

/// A wait of this or longer ends with what it waits for alone: a thread is joined, so that its
/// thread-locals are gone, too.
const UNLIMITED: Duration = Duration::from_secs(1 << 32);

impl Threads {
    pub(crate) fn new() -> Self {
        Threads {
            handles: sync::Mutex::new(Vec::new()),
            running: Latch::default(),
        }
    }

    pub(crate) fn start(&self, name: &str, work: Job) -> io::Result<()> {
        let running = self.running.begin();
        let thread = spawn(name, move || {
            inside_timer(|| work.run());
            drop(running);
        })?;
        self.handles.lock().push(thread);
        Ok(())
    }

    /// Waits until the threads have ended, for at most `limit`; returns how many have not.
    pub(crate) fn join(&self, limit: Duration) -> usize {
        if limit < UNLIMITED {
            return self.running.wait(limit);
        }
        let mut handles = self.handles.lock(); // kept: another caller waits, too
        handles.drain(..).for_each(|thread| _ = thread.join()); // each contains its panics
        0
    }
}

/// An empty queue keeps memory for at most this many jobs.
const QUEUE_KEPT: usize = 64;

/// The default executor: worker threads on one queue. Idle workers sleep.
///
/// Dropping it (or [`close`](Self::close)) lets the workers finish what is queued and end.
#[derive(Debug)]
pub struct Workers {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    count: usize,
    threads: Threads,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Workers {
    /// Starts `count` workers (at least one), named `name-0`, `name-1`, …
    ///
    /// # Errors
    /// The operating system's, when it has no thread to give.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        let (queue, threads) = (Arc::default(), Threads::new());
        let workers = Workers {
            queue,
            count: count.max(1),
            threads,
        };
        for number in 0..workers.count {
            let queue = workers.queue.clone();
            let next_job = move || {
                let (queue, arrived) = &*queue;
                let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.closed;
                let waited = arrived.wait_while(queue.lock(), idle);
                let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
                let job = queue.jobs.pop_front();
                if queue.jobs.is_empty() {
                    queue.jobs.shrink_to(QUEUE_KEPT); // a peak is given back
                }
                job
            };
            let work = move || {
                while let Some(job) = next_job() {
                    job.run();
                }
            };
            workers
                .threads
                .start(&format!("{name}-{number}"), Job::new(work))?;
        }
        Ok(workers)
    }

    /// Takes no more jobs (later ones run where they are handed in) and lets the workers finish.
    pub fn close(&self) {
        self.queue.0.lock().closed = true;
        self.queue.1.notify_all();
    }

    /// Waits until the workers have finished, after [`close`](Self::close), for at most `limit`;
    /// returns how many have not. Not for a timer's thread to call without a limit.
    pub fn join(&self, limit: Duration) -> usize {
        self.threads.join(limit)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "a model's cannot be")]
    static OF_A_TIMER: Cell<bool> = Cell::new(false);
}

/// Runs what is a timer's to run: the whole of a thread that one started, or a part of a runtime's
/// task.
pub(crate) fn inside_timer<T>(work: impl FnOnce() -> T) -> T {
    struct Outside(bool);
    impl Drop for Outside {
        fn drop(&mut self) {
            let _ = OF_A_TIMER.try_with(|of_a_timer| of_a_timer.set(self.0));
        }
    }
    let before = OF_A_TIMER
        .try_with(|of_a_timer| of_a_timer.replace(true))
        .unwrap_or(true);
    let _outside = Outside(before);
    work()
}

/// True on a timer's thread: see [`Driver::on_timer_thread`](crate::driver::Driver).
pub(crate) fn on_timer_thread() -> bool {
    OF_A_TIMER.try_with(Cell::get).unwrap_or(true)
}

impl Executor for Workers {
    fn execute(&self, job: Job) {
        let mut queue = self.queue.0.lock();
        if !queue.closed {
            queue.jobs.push_back(job);
            self.queue.1.notify_one();
            return;
        }
        drop(queue);
        job.run();
    }

    fn queued(&self) -> Option<u64> {
        Some(self.queue.0.lock().jobs.len() as u64)
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
        (0..99).for_each(|number| workers.execute(job(number)));
        workers.close();
        workers.execute(job(99)); // at once, here
        workers.join(Duration::MAX);
        drop(done);
        assert_eq!(results.iter().count(), 100);
        assert_eq!(workers.queued(), Some(0));
    }

    #[test]
    fn due_tasks_are_parted_among_the_threads() {
        let due = |count: u32| {
            let mut due = Due::default();
            (0..count).for_each(|task| due.push(task, None));
            due
        };
        let sizes = |count, parallelism| -> Vec<usize> {
            due(count)
                .into_jobs(parallelism)
                .map(|job| job.len())
                .collect()
        };
        assert_eq!(sizes(0, 4), []);
        assert_eq!(sizes(3, 8), [1, 1, 1]);
        assert_eq!(sizes(10, 4), [3, 3, 3, 1]);
        assert_eq!(sizes(130, 1), [64, 64, 2]);
        assert!(due(200).into_jobs(2).flatten().eq(0..200));
    }
}
