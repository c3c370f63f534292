//! Faults of the soak: a clock that jumps, and an executor that stalls. A stalled executor holds
//! its jobs for a while and then drops some of them.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use timer_core::{Clock, Executor, Job, SystemClock, Workers};

/// A clock that jumps on demand. Clones show the same time.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    real: SystemClock,
    offset_ns: Arc<AtomicU64>,
}

impl JumpingClock {
    pub(crate) fn new() -> Self {
        JumpingClock {
            real: SystemClock::new(),
            offset_ns: Arc::default(),
        }
    }

    /// Returns the time that has really passed.
    pub(crate) fn real_ns(&self) -> u64 {
        self.real.now_ns()
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.offset_ns.fetch_add(by.as_nanos() as u64, SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        self.real_ns() + self.offset_ns.load(SeqCst)
    }

    /// Limits sleeps, as a jump does not wake a sleeping thread.
    fn sleep_max(&self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

/// One held job in this many is dropped on release. A dropped job runs on the dropping thread.
const DROPPED: usize = 8;

/// An executor that hands jobs to workers, except while it is stalled. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Stall {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workers: Workers,
    /// Held jobs; `None` while it is not stalled.
    held: Mutex<Option<Vec<Job>>>,
}

impl Stall {
    pub(crate) fn new(name: &str, workers: usize) -> anyhow::Result<Self> {
        let workers = Workers::start(name, workers)?;
        Ok(Stall {
            shared: Arc::new(Shared {
                workers,
                held: Mutex::default(),
            }),
        })
    }

    /// Holds jobs from now on.
    pub(crate) fn begin(&self) {
        self.shared.held.lock().get_or_insert_default();
    }

    /// Releases the held jobs, and drops some of them.
    pub(crate) fn end(&self) {
        let held = mem::take(&mut *self.shared.held.lock()).unwrap_or_default();
        for (at, job) in held.into_iter().enumerate() {
            // Spread the dropped ones evenly.
            if at % DROPPED == DROPPED - 1 {
                drop(job);
            } else {
                self.shared.workers.execute(job);
            }
        }
    }

    /// Ends the workers, and waits for them. No more jobs may come.
    pub(crate) fn join(&self) {
        self.end();
        self.shared.workers.close();
        self.shared.workers.join(std::time::Duration::MAX);
    }
}

impl Executor for Stall {
    fn execute(&self, job: Job) {
        // While it is stalled, jobs wait for the end of that.
        let mut held = self.shared.held.lock();
        match &mut *held {
            Some(held) => held.push(job),
            None => {
                // A closed executor runs the job here, and it may come back.
                drop(held);
                self.shared.workers.execute(job);
            }
        }
    }

    fn queued(&self) -> Option<u64> {
        self.shared.workers.queued()
    }

    fn parallelism(&self) -> usize {
        self.shared.workers.parallelism()
    }
}
