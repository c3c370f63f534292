//! An executor that can be stalled: it holds its jobs for a while, and then drops some of them.

use std::{mem, sync::Arc};

use parking_lot::Mutex;
use timer_core::{Executor, Job, Workers};

/// Of the jobs that were held so many are dropped when they are let go, one in this many: those
/// run where they are dropped.
const DROPPED: usize = 8;

/// Hands jobs to workers, but while it is stalled. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Stall {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workers: Workers,
    /// `None` while it is not stalled.
    held: Mutex<Option<Vec<Job>>>,
}

impl Stall {
    pub(crate) fn new(name: &str, workers: usize) -> anyhow::Result<Self> {
        let workers = Workers::start(name, workers)?;
        Ok(Stall { shared: Arc::new(Shared { workers, held: Mutex::default() }) })
    }

    /// Holds jobs from here on.
    pub(crate) fn begin(&self) {
        self.shared.held.lock().get_or_insert_default();
    }

    /// Lets the jobs go that were held.
    pub(crate) fn end(&self) {
        let held = mem::take(&mut *self.shared.held.lock()).unwrap_or_default();
        for (at, job) in held.into_iter().enumerate() {
            if at % DROPPED == DROPPED - 1 {
                drop(job);
            } else {
                self.shared.workers.execute(job);
            }
        }
    }

    /// Waits until the workers have ended; no more jobs are to come.
    pub(crate) fn join(&self) {
        self.end();
        self.shared.workers.close();
        self.shared.workers.join(std::time::Duration::MAX);
    }
}

impl Executor for Stall {
    fn execute(&self, job: Job) {
        let mut held = self.shared.held.lock();
        match &mut *held {
            Some(held) => held.push(job),
            None => {
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
