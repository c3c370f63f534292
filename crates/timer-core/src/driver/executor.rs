//! Where expired tasks run: as a rule not on the reaper, so that a slow callback cannot delay the
//! wheel.
//!
//! A [`Job`] is a batch of them. *It runs, whatever happens to it*: an executor that drops a job
//! runs it on the dropping thread, so what expired still ends.

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::{
    driver::panics::contain,
    sync::{JoinHandle, spawn, thread_local},
};

/// Work for an [`Executor`]. Runs once: by [`run`](Self::run), or else when it is dropped.
pub struct Job {
    work: Option<Box<dyn FnOnce(Ran) + Send>>,
}

/// How a job came to run.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Its executor ran it.
    AsAsked,
    /// Its executor dropped it.
    Dropped,
}

impl Job {
    /// A job that calls `work`.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Job::told(|_| work())
    }

    /// A job whose `work` is told whether its executor dropped it.
    #[doc(hidden)]
    pub fn told(work: impl FnOnce(Ran) + Send + 'static) -> Self {
        Job { work: Some(Box::new(work)) }
    }

    /// Runs the job. A panic in it stays in it.
    pub fn run(mut self) {
        self.run_once(Ran::AsAsked);
    }

    fn run_once(&mut self, ran: Ran) {
        if let Some(work) = self.work.take() {
            let _ = contain(|| work(ran));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.run_once(Ran::Dropped);
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

/// What fell due together, in jobs of [`JOB_TASKS`] at most, and small enough that each of
/// `parallelism` threads gets one.
pub fn jobs<T>(due: Vec<T>, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
    let size = due.len().div_ceil(parallelism.max(1)).clamp(1, JOB_TASKS);
    let mut due = due.into_iter();
    std::iter::from_fn(move || {
        let job: Vec<T> = due.by_ref().take(size).collect();
        (!job.is_empty()).then_some(job)
    })
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
        Due { tasks: Vec::new(), order: Vec::new() }
    }
}

impl<T> Due<T> {
    /// Adds a task; with its deadline and place in the order of insertion, if order matters.
    #[inline]
    pub fn push(&mut self, task: T, order: Option<(u64, u64)>) {
        self.tasks.push(task);
        self.order.extend(order);
    }

    /// True when nothing fell due.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks in jobs of [`JOB_TASKS`](crate::JOB_TASKS) at most, and few enough that each of
    /// `parallelism` threads gets one.
    pub fn into_jobs(self, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
        let Due { mut tasks, mut order } = self;
        if order.len() == tasks.len() {
            tasks = sorted(tasks, &mut order);
        }
        jobs(tasks, parallelism)
    }
}

fn sorted<T>(tasks: Vec<T>, order: &mut Vec<(u64, u64)>) -> Vec<T> {
    let mut sorted: Vec<_> = order.drain(..).zip(tasks).collect();
    sorted.sort_unstable_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, task)| task).collect()
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

/// Counts the work under way, for a thread that waits until it is over.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<(Mutex<usize>, Condvar)>);

/// One thing under way.
#[derive(Debug)]
pub struct UnderWay(Latch);

impl Latch {
    /// One more is under way, until what is returned is dropped.
    pub fn begin(&self) -> UnderWay {
        *self.0.0.lock() += 1;
        UnderWay(self.clone())
    }

    /// Waits until nothing is under way, at most for so long; returns what is then.
    pub fn wait(&self, limit: Duration) -> usize {
        let (count, over) = &*self.0;
        let mut count = count.lock();
        let _ = over.wait_while_for(&mut count, |count| *count > 0, limit);
        *count
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (count, over) = &*self.0.0;
        *count.lock() -= 1;
        over.notify_all();
    }
}

/// The default executor: worker threads on one queue. Idle workers sleep.
///
/// Dropping it (or [`close`](Self::close)) lets the workers finish what is queued and end.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    count: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    running: Latch,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    queued: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// A wait of this or longer ends with what it waits for alone: a thread is joined, so that its
/// thread-locals are gone, too.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(1 << 32);

/// A queue with room for more jobs than this is given back when it empties.
const KEPT_JOBS: usize = 1024;

impl Workers {
    /// Starts `count` workers (at least one), named `name-0`, `name-1`, …
    ///
    /// # Errors
    /// The operating system's, when it has no thread to give.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        let shared = Arc::new(Shared::default());
        let count = count.max(1);
        let (threads, running) = (Mutex::default(), Latch::default());
        let workers = Workers { shared, count, threads, running };
        (0..count).try_fold(workers, |mut workers, number| {
            let (shared, running) = (workers.shared.clone(), workers.running.begin());
            let work = move || {
                inside_timer(|| shared.work());
                drop(running);
            };
            let thread = spawn(&format!("{name}-{number}"), work)?;
            workers.threads.get_mut().push(thread);
            Ok(workers)
        })
    }

    /// Takes no more jobs (later ones run where they are handed in) and lets the workers finish.
    pub fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_all();
    }

    /// Waits until the workers have finished, after [`close`](Self::close), for at most `limit`;
    /// returns how many have not. Not for a timer's thread to call without a limit.
    pub fn join(&self, limit: Duration) -> usize {
        if limit < UNLIMITED {
            return self.running.wait(limit);
        }
        let mut threads = self.threads.lock(); // kept: another caller waits, too
        for thread in threads.drain(..) {
            let _ = thread.join(); // a worker contains its panics
        }
        0
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
    let before = OF_A_TIMER.try_with(|of_a_timer| of_a_timer.replace(true)).unwrap_or(true);
    let _outside = Outside(before);
    work()
}

/// True on a reaper or worker of any timer, and in a runtime's task while it does their work: there
/// nobody waits for such a thread, which may be waiting for this one.
pub fn on_timer_thread() -> bool {
    OF_A_TIMER.try_with(Cell::get).unwrap_or(true)
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Executor for Workers {
    fn execute(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            drop(queue);
            return job.run();
        }
        queue.jobs.push_back(job);
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        self.shared.arrived.notify_one();
    }

    fn queued(&self) -> Option<u64> {
        Some(self.shared.queued.load(Ordering::Relaxed))
    }

    fn parallelism(&self) -> usize {
        self.count
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next_job() {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            job.run();
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                if queue.jobs.is_empty() && queue.jobs.capacity() > KEPT_JOBS {
                    queue.jobs = VecDeque::new(); // a peak is given back
                }
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            self.arrived.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn workers_finish_their_queue_after_close_and_outlive_a_panic() {
        let workers = Workers::start("test", 2).unwrap();
        let (done, results) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            workers.execute(Job::new(move || {
                done.send(number).unwrap();
                assert!(number % 7 != 0, "a panic in job {number}");
            }));
        }
        workers.close();
        workers.join(Duration::MAX);
        drop(done);
        assert_eq!(results.iter().count(), 100);
        assert_eq!(workers.queued(), Some(0));
    }

    #[test]
    fn what_fell_due_is_parted_among_the_threads_there_are() {
        let sizes = |due: usize, parallelism| -> Vec<usize> {
            jobs(vec![(); due], parallelism).map(|job| job.len()).collect()
        };
        assert_eq!(sizes(0, 4), []);
        assert_eq!(sizes(3, 8), [1, 1, 1]);
        assert_eq!(sizes(10, 4), [3, 3, 3, 1]);
        assert_eq!(sizes(130, 1), [64, 64, 2]);
        assert!(jobs((0..200).collect(), 2).flatten().eq(0..200));
    }

    #[test]
    fn a_job_dropped_unrun_runs_on_the_dropping_thread() {
        let (done, results) = mpsc::channel();
        drop(Job::new(move || done.send(std::thread::current().id()).unwrap()));
        assert_eq!(results.recv().unwrap(), std::thread::current().id());
    }

    #[test]
    fn a_job_handed_to_closed_workers_still_runs() {
        let workers = Workers::start("test", 1).unwrap();
        workers.close();
        let (done, results) = mpsc::channel();
        workers.execute(Job::new(move || done.send(()).unwrap()));
        assert_eq!(results.recv(), Ok(()));
    }

    #[test]
    fn what_fell_due_is_put_into_the_order_of_insertion() {
        let mut due = Due::default();
        for (task, at, sequence) in [('d', 7, 9), ('b', 7, 1), ('c', 7, 2), ('a', 6, 4)] {
            due.push(task, Some((at, sequence)));
        }
        assert!(due.into_jobs(1).flatten().eq(['a', 'b', 'c', 'd']));
    }
}
