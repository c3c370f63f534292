//! On a tokio runtime (feature `tokio`): jobs as its tasks ([`TokioExecutor`]), time as its clock
//! shows it, and a reaper that is one of its tasks.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Handle, TryCurrentError},
    sync::Notify,
    task,
    time::{Instant, sleep, timeout},
};

use crate::{
    driver::clock::TickLength,
    driver::{
        clock::Clock,
        executor::{Executor, Job, inside_timer},
        panics::contain,
        reaper::{Pause, Reaper, Rounds, Wake},
    },
};

/// (Feature `tokio`.) An [`Executor`] on a tokio runtime, for
/// [`SystemTimerBuilder::executor`](crate::SystemTimerBuilder::executor) or a purgatory's
/// `Builder::executor`: what it runs may call `tokio::spawn`, start tokio's timers and use its
/// sockets.
///
/// Each job is a task of the runtime, so what it runs must be short and not block, as any task: a
/// callback that takes its time spawns it. A runtime that is shut down takes no task; the job then
/// runs where it is refused or dropped, still with the runtime entered (but in a thread-local's
/// destructor, where none can be), so a `tokio::spawn` in it does not panic, and spawns nothing.
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

/// A job that runs inside its runtime, also when it is dropped.
struct Inside {
    handle: Handle,
    job: Option<Job>,
}

impl Inside {
    fn run(mut self) {
        if let Some(job) = self.job.take() {
            let _inside = self.handle.enter();
            inside_timer(|| job.run());
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let _inside = self.handle.enter();
            inside_timer(|| drop(job)); // it runs
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

    fn needs_this_thread(&self) -> bool {
        runs_tasks_here()
    }
}

/// A waker that notes its wake-up.
#[derive(Default)]
struct Noted(AtomicBool);

impl std::task::Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// True on a thread that runs a runtime's tasks: in `block_on` or on a worker, but not in
/// `spawn_blocking` or `block_in_place`. There a task that yields is woken later, by that thread;
/// elsewhere `yield_now` has to wake it at once.
pub(crate) fn runs_tasks_here() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let noted = Arc::new(Noted::default());
    let waker = Waker::from(noted.clone());
    let mut turn = pin!(task::yield_now());
    let pending = turn.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
    pending && !noted.0.load(Ordering::Relaxed)
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

    /// A paused clock is seen from inside its runtime alone.
    fn read_inside_ns(&self) -> u64 {
        let _inside = self.handle.enter();
        self.since_origin_ns(Instant::now())
    }

    /// In a thread-local's destructor no runtime can be entered any more: another thread reads it.
    #[cold]
    fn read_elsewhere_ns(&self) -> u64 {
        let read = thread::scope(|scope| {
            let reader = thread::Builder::new().spawn_scoped(scope, || self.read_inside_ns());
            reader.ok().and_then(|reader| reader.join().ok())
        });
        read.unwrap_or_else(|| self.since_origin_ns(machine_now()))
    }

    fn since_origin_ns(&self, now: Instant) -> u64 {
        u64::try_from((now - self.origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[expect(clippy::disallowed_methods, reason = "where tokio's clock cannot be had")]
fn machine_now() -> Instant {
    Instant::from_std(std::time::Instant::now())
}

impl Clock for TokioClock {
    fn now_ns(&self) -> u64 {
        match Handle::try_current() {
            Err(error) if error.is_thread_local_destroyed() => self.read_elsewhere_ns(),
            _ => self.read_inside_ns(),
        }
    }
}

/// Starts a reaper as a task of a runtime; `None` when that has no time.
pub(crate) fn start(handle: &Handle, clock: Arc<dyn Clock>, tick: TickLength) -> Option<Reaper> {
    let inside = handle.enter();
    let has_time = contain(|| drop(sleep(Duration::ZERO))).is_ok();
    drop(inside);
    if !has_time {
        return None;
    }
    let called = Arc::new(Notify::new());
    let (reaper, rounds) = Reaper::new(clock, tick, Wake::Task(called.clone()));
    drop(handle.spawn(run(Task { rounds }, called)));
    Some(reaper)
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
