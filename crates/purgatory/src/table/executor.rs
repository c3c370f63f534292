//! The executor of a purgatory's jobs: its own, or the timer's.

use std::sync::Arc;

use timer_core::{
    Executor, Job,
    driver::{self, Driver},
};

/// The executor for work that the calling thread is not to do.
#[derive(Clone)]
pub(crate) struct JobExecutor {
    pub(crate) driver: Arc<Driver>,
    /// `None`: the timer's.
    own: Option<Arc<driver::Executors>>,
}

impl JobExecutor {
    /// Returns the purgatory's own executor, or without one the timer's.
    pub(crate) fn new(driver: Arc<Driver>, own: Option<Arc<dyn Executor>>) -> Self {
        let own = own.map(|own| Arc::new(driver.executors().with_own(own)));
        JobExecutor { driver, own }
    }

    fn of_jobs(&self) -> &driver::Executors {
        match &self.own {
            Some(own) => own,
            None => self.driver.executors(),
        }
    }

    /// Hands a job over. An executor that panics has dropped the job, and so run it.
    pub(crate) fn execute(&self, job: Job) {
        self.of_jobs().execute(job);
    }

    /// Returns how many threads run jobs; 1 if the executor panics.
    pub(crate) fn parallelism(&self) -> usize {
        self.of_jobs().parallelism()
    }

    /// Returns true if its jobs may need the calling thread to run.
    pub(crate) fn needs_this_thread(&self) -> bool {
        self.of_jobs().need_this_thread()
    }

    /// Returns true if jobs run on the thread that hands them over.
    pub(crate) fn runs_in_place(&self) -> bool {
        self.of_jobs().run_in_place()
    }
}
