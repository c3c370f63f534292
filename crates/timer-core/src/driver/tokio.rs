//! On a tokio runtime (feature `tokio`): jobs as its tasks ([`TokioExecutor`]), time as its clock
//! shows it, and a reaper that is one of its tasks.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, TryCurrentError},
    sync::Notify,
    task,
    time::{Instant, sleep, timeout},
};

use crate::driver::{
    clock::Clock,
    driver::Driver,
    executor::{Executor, Job, contain, inside_timer},
    reaper::{Pause, Rounds},
};

/// An [`Executor`] on a tokio runtime, for
/// [`SystemTimerBuilder::executor`](crate::SystemTimerBuilder::executor) or a purgatory's
/// `Builder::executor`: what it runs may call `tokio::spawn`, start tokio's timers and use its
/// sockets.
///
/// Each job is a task of the runtime, so what it runs must be short and not block, as any task: a
/// callback that takes its time spawns it. A runtime that is shut down takes no task; the job then
/// runs where it is refused or dropped, still with the runtime entered, so a `tokio::spawn` in it
/// does not panic, and spawns nothing.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{SystemTimer, Timer, TokioExecutor};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let executor = TokioExecutor::current()?; // of the runtime that this is called in
/// let timer = SystemTimer::builder().executor(executor).build()?;
/// let (send, told) = tokio::sync::oneshot::channel();
/// let task = || drop(tokio::spawn(async { send.send("from inside the runtime") }));
/// timer.schedule(Duration::from_millis(1), task)?;
/// assert_eq!(told.await?, "from inside the runtime");
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

/// A job that runs inside its runtime, where it is dropped.
struct Inside {
    handle: Handle,
    job: Option<Job>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _inside = self.handle.enter();
        inside_timer(|| drop(self.job.take())); // it runs
    }
}

impl Executor for TokioExecutor {
    fn execute(&self, job: Job) {
        let inside = Inside { handle: self.handle.clone(), job: Some(job) };
        drop(self.handle.spawn(async move { drop(inside) }));
    }

    fn parallelism(&self) -> usize {
        self.handle.metrics().num_workers()
    }
}

/// The clock of a tokio runtime: the machine's, or in a test the one that it has paused.
#[derive(Debug)]
pub(crate) struct TokioClock {
    handle: Handle,
    origin: Instant,
}

impl TokioClock {
    pub(crate) fn new(handle: Handle) -> Self {
        let inside = handle.enter();
        let origin = Instant::now();
        drop(inside);
        TokioClock { handle, origin }
    }
}

impl Clock for TokioClock {
    /// A paused clock is seen from inside its runtime alone.
    fn now_ns(&self) -> u64 {
        let _inside = self.handle.enter();
        u64::try_from((Instant::now() - self.origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Has a task of a runtime turn the wheels; false when that has no time.
pub(crate) fn start_reaper(driver: &mut Driver, handle: &Handle) -> bool {
    let inside = handle.enter();
    let has_time = contain(|| drop(sleep(Duration::ZERO))).is_ok();
    drop(inside);
    if has_time {
        let called = Arc::new(Notify::new());
        let notify = called.clone();
        driver.wake = Some(Arc::new(move || notify.notify_one()));
        drop(handle.spawn(run(Task { rounds: driver.rounds() }, called)));
    }
    has_time
}

/// The rounds, while they are a task. When the runtime drops that, the timer is closed.
struct Task {
    rounds: Rounds,
}

impl Drop for Task {
    fn drop(&mut self) {
        inside_timer(|| self.rounds.abandon());
    }
}

async fn run(mut reaper: Task, called: Arc<Notify>) {
    loop {
        match inside_timer(|| reaper.rounds.round()) {
            Pause::None | Pause::Yield => task::yield_now().await,
            Pause::For(wait) => drop(timeout(wait, called.notified()).await),
            Pause::UntilWoken => called.notified().await,
            Pause::Over => return,
        }
    }
}
