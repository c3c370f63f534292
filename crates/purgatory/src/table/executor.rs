//! The executor of a purgatory's jobs: its own, or the timer's.

use std::{ops::Deref, sync::Arc};

use timer_core::{
    Executor,
    driver::{Driver, Executors},
};

/// The executor for work that the calling thread is not to do.
#[derive(Clone)]
pub(crate) struct JobExecutor {
    pub(crate) driver: Arc<Driver>,
    /// `None`: the timer's.
    own: Option<Arc<Executors>>,
}

impl JobExecutor {
    /// Returns the purgatory's own executor, or without one the timer's.
    pub(crate) fn new(driver: Arc<Driver>, own: Option<Arc<dyn Executor>>) -> Self {
        let own = own.map(|own| Arc::new(driver.executors.with_own(own)));
        JobExecutor { driver, own }
    }
}

/// It executes jobs as that executor does.
impl Deref for JobExecutor {
    type Target = Executors;

    fn deref(&self) -> &Executors {
        match &self.own {
            Some(own) => own,
            None => &self.driver.executors,
        }
    }
}
