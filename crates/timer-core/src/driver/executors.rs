//! Due tasks on their way to an executor. [`DueQueue`] gathers the tasks that fall due in a round
//! of the reaper, [`Due`] splits them into jobs, and [`Executors`] has the executor that runs
//! these: the timer's, or one of the wheels' owner.

use std::{collections::BinaryHeap, sync::Arc};

use crate::{
    driver::{
        config::{Config, Panics},
        executor::{Executor, JOB_TASKS, Job},
        home::Home,
    },
    sync::{Mutex, MutexGuard},
    wheel::timing_wheel::DueTask,
};

/// The executor of an owner of wheels: its own, or else the timer's. Without either, jobs run on the
/// thread that hands them in, which is the reaper for expired tasks. Panics of executors, and of the
/// jobs that are handed over, are contained, counted by the timer, and reported to its hook.
#[derive(Clone, Debug)]
pub struct Executors {
    pub(crate) of_timer: Option<Arc<dyn Executor>>,
    of_owner: Option<Arc<dyn Executor>>,
    /// Returns true on a thread that advances the timer's wheels between two tasks that it runs.
    pub(super) advances_here: fn() -> bool,
    /// The process in which the wheels are advanced.
    pub(crate) home: Home,
    /// The timer's: all owners have the same.
    pub(crate) panics: Arc<Panics>,
}

impl Executors {
    /// Makes the executors of a timer whose tasks run in place.
    pub(crate) fn in_place() -> Self {
        Executors {
            of_timer: None,
            of_owner: None,
            advances_here: || false,
            home: Home::default(),
            panics: Arc::default(),
        }
    }

    /// Returns the executors of an owner of wheels that has its own.
    pub fn with_own(&self, own: Arc<dyn Executor>) -> Self {
        Executors {
            of_owner: Some(own),
            ..self.clone()
        }
    }

    /// Returns the executor that runs the owner's jobs; `None` if they run in place.
    fn executor(&self) -> Option<&dyn Executor> {
        self.of_owner.as_deref().or(self.of_timer.as_deref())
    }

    /// Hands a job over. An executor that panics has dropped the job, and so has run it.
    pub fn execute(&self, job: Job) {
        let job = job.counted_by(&self.panics);
        match self.executor() {
            Some(executor) => drop(self.panics.contain(|| executor.execute(job))),
            None => job.run(),
        }
    }

    /// Returns the number of threads that run jobs, as far as that is known; at least 1.
    pub fn parallelism(&self) -> usize {
        let ask = |executor: &dyn Executor| self.panics.contain(|| executor.parallelism());
        self.executor().and_then(ask).unwrap_or(1).max(1)
    }

    /// Returns the number of waiting jobs, if the executor counts them.
    pub fn queued(&self) -> Option<u64> {
        let executor = self.executor()?;
        self.panics.contain(|| executor.queued())?
    }

    /// Returns true when no wheel would be advanced, or no job run, while the calling thread
    /// blocks. In a child of `fork` this is always so.
    pub fn needs_this_thread(&self) -> bool {
        if self.home.is_elsewhere() {
            return true;
        }
        // Wheels are advanced here, or expired tasks of the timer or the owner run here. An executor
        // that panics needs no thread.
        let needs = |executor: &Arc<dyn Executor>| {
            let asked = self.panics.contain(|| executor.needs_this_thread());
            asked.unwrap_or(false)
        };
        let mut executors = self.of_timer.iter().chain(&self.of_owner);
        (self.advances_here)() || executors.any(needs)
    }

    /// Returns true when jobs run on the thread that hands them in.
    pub fn runs_in_place(&self) -> bool {
        self.of_owner.is_none() && self.of_timer.is_none()
    }
}

/// Tasks that fell due, in the order in which they are to be run: as they came off the wheels, or,
/// on a manual timer, in the order of (tick, insertion).
#[derive(Debug)]
pub struct Due<T> {
    tasks: Vec<T>,
    /// Deadline and sequence of each, where order matters.
    order: Option<Vec<(u64, u64)>>,
}

impl<T> FromIterator<T> for Due<T> {
    fn from_iter<I: IntoIterator<Item = T>>(tasks: I) -> Self {
        let mut due = Due::new(false);
        for task in tasks {
            due.tasks.push(task);
        }
        due
    }
}

impl<T> Due<T> {
    fn new(in_order: bool) -> Self {
        Due {
            tasks: Vec::new(),
            order: in_order.then(Vec::new),
        }
    }

    /// Adds a task with its deadline and its place in the order of insertion.
    pub fn push(&mut self, task: T, order: (u64, u64)) {
        self.tasks.push(task);
        if let Some(all) = &mut self.order {
            all.push(order);
        }
    }

    /// Returns how many tasks to take off a wheel under one lock hold: `budget`, but without a
    /// bound where order matters, which needs the whole tick.
    pub fn budget(&self, budget: usize) -> usize {
        if self.order.is_some() {
            usize::MAX
        } else {
            budget
        }
    }

    /// Takes a task that fell due off its wheel, and adds it.
    pub(crate) fn push_due(&mut self, task: DueTask<'_, T>) {
        // Looked up only where order matters.
        if let Some(all) = &mut self.order {
            all.push((task.deadline(), task.id().sequence()));
        }
        self.tasks.push(task.take());
    }

    /// Returns the tasks in jobs of [`JOB_TASKS`](crate::JOB_TASKS) at most, and small enough that
    /// each of `parallelism` threads gets one.
    pub fn into_jobs(self, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
        // Where order matters, the shards' tasks are sorted together.
        let mut tasks = self.tasks;
        if let Some(order) = &self.order {
            tasks = sorted(tasks, order);
        }
        // As many jobs as threads, unless that would make a job too long.
        let size = tasks.len().div_ceil(parallelism.max(1)).clamp(1, JOB_TASKS);
        let mut tasks = tasks.into_iter();
        std::iter::from_fn(move || {
            let mut job = Vec::with_capacity(size.min(tasks.len()));
            for task in tasks.by_ref() {
                job.push(task);
                if job.len() == size {
                    break;
                }
            }
            if job.is_empty() { None } else { Some(job) }
        })
    }
}

/// Returns the tasks, sorted by the key of each.
fn sorted<T>(tasks: Vec<T>, order: &[(u64, u64)]) -> Vec<T> {
    let mut tasks: Vec<_> = tasks.into_iter().map(Some).collect();
    let in_order = places_in_order(order).into_iter();
    in_order.filter_map(|place| tasks[place].take()).collect()
}

/// Returns the places of tasks, by deadline and then by insertion. Separate from [`sorted`], which
/// is compiled for each type of task.
fn places_in_order(order: &[(u64, u64)]) -> Vec<usize> {
    // A slice's sort would be 15 KB of code.
    let places: BinaryHeap<_> = order.iter().zip(0..).collect();
    let sorted = places.into_sorted_vec().into_iter();
    sorted.map(|(_, place)| place).collect()
}

/// The tasks that fell due in the round under way, of one owner of wheels.
///
/// An owner fills it in [`advance`](super::WheelOwner::advance), and in
/// [`round_over`](super::WheelOwner::round_over) takes it and [releases](super::Driver::release)
/// itself.
#[derive(Debug)]
pub struct DueQueue<T>(Mutex<Due<T>>);

impl<T> DueQueue<T> {
    /// Makes an empty queue. Order matters on a manual timer.
    pub fn new(config: &Config) -> Self {
        DueQueue(Mutex::new(Due::new(config.manual)))
    }

    /// Locks the queue, to push tasks while a wheel is advanced.
    pub fn lock(&self) -> MutexGuard<'_, Due<T>> {
        self.0.lock()
    }

    /// Takes the tasks that the round found due.
    pub fn take(&self) -> Due<T> {
        let mut due = self.0.lock();
        let empty = Due::new(due.order.is_some());
        std::mem::replace(&mut *due, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_tasks_are_split_among_the_threads() {
        let sizes = |count: u32, parallelism| -> Vec<usize> {
            let due = Due::from_iter(0..count);
            due.into_jobs(parallelism).map(|job| job.len()).collect()
        };
        assert_eq!(sizes(0, 4), []);
        assert_eq!(sizes(3, 8), [1, 1, 1]);
        assert_eq!(sizes(10, 4), [3, 3, 3, 1]);
        assert_eq!(sizes(130, 1), [64, 64, 2]);
        let due = Due::from_iter(0..200);
        assert!(due.into_jobs(2).flatten().eq(0..200));
    }

    #[test]
    fn a_manual_timers_tasks_are_sorted() {
        let mut due = Due::new(true);
        for (task, order) in [(2, (7, 2)), (3, (8, 1)), (1, (7, 1))] {
            due.push(task, order);
        }
        assert!(due.into_jobs(1).flatten().eq([1, 2, 3]));
    }
}
