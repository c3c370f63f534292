//! Callbacks inside a tokio runtime (feature `tokio`): [`TokioExecutor`].

use timer_core::{Executor, Job};
use tokio::runtime::{Handle, TryCurrentError};

/// An [`Executor`] on a tokio runtime, for [`Builder::executor`](crate::Builder::executor) or
/// [`SystemTimerBuilder::executor`](timer_core::SystemTimerBuilder::executor): what it runs may call
/// `tokio::spawn`, start tokio's timers and use its sockets. That is the callbacks of what expired, and with
/// [`callbacks_on_executor`](crate::Builder::callbacks_on_executor) all.
///
/// Each job is a task of the runtime, so what it runs must be short and not block, as any task: a callback that
/// takes its time spawns it. A runtime that is shut down takes no task; the job then runs where it is refused or
/// dropped, still with the runtime entered, so a `tokio::spawn` in it does not panic, and spawns nothing.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{Outcome, Purgatory, TokioExecutor, when};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let fetches = Purgatory::builder("fetch")
///     .executor(TokioExecutor::current()?) // of the runtime that this is called in
///     .callbacks_on_executor()
///     .build()?;
/// let (answer, answered) = tokio::sync::oneshot::channel();
/// let fetch = when(|| false, |outcome: Outcome| {
///     tokio::spawn(async move { answer.send(outcome) }); // expired, and still inside the runtime
/// });
/// fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_millis(1))?;
/// assert_eq!(answered.await?, Outcome::Expired);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioExecutor {
    handle: Handle,
}

impl TokioExecutor {
    /// On this runtime.
    pub fn new(handle: Handle) -> Self {
        TokioExecutor { handle }
    }

    /// On the runtime that the caller is in.
    ///
    /// # Errors
    /// tokio's, when it is in none.
    pub fn current() -> Result<Self, TryCurrentError> {
        Handle::try_current().map(TokioExecutor::new)
    }
}

/// A job that runs inside its runtime, also when it is dropped.
struct Inside {
    handle: Handle,
    job: Option<Job>,
}

impl Inside {
    fn run(mut self) {
        if let Some(job) = self.job.take() {
            let _inside = self.handle.enter();
            job.run();
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let _inside = self.handle.enter();
            drop(job); // it runs
        }
    }
}

impl Executor for TokioExecutor {
    fn execute(&self, job: Job) {
        let inside = Inside { handle: self.handle.clone(), job: Some(job) };
        drop(self.handle.spawn(async move { inside.run() }));
    }

    fn parallelism(&self) -> usize {
        self.handle.metrics().num_workers()
    }
}
