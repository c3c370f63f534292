//! A queue whose consumers wait for its jobs: [`Queue`], which each contender is in its own way.

use std::time::Duration;

/// The time-out of each wait: none comes to it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) trait Queue: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;

    /// Inside a runtime with tokio's time.
    fn start() -> anyhow::Result<Self>;

    /// A job that is there or comes; `None` if none came in time.
    fn take(&self) -> impl Future<Output = Option<u64>> + Send;

    fn put(&self, job: u64);

    /// How many jobs, and waits for one, are left.
    fn left(&self) -> usize;
}
