//! On a tokio runtime (feature `tokio`): jobs as its tasks, time as its clock shows it, and a
//! reaper that is one of its tasks.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    runtime::Handle,
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

/// (Feature `tokio`.) A runtime's handle is an [`Executor`], for
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
/// use timer_core::{SystemTimer, Timer};
/// use tokio::runtime::Handle;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let timer = SystemTimer::builder().executor(Handle::current()).build()?;
/// let (send, told) = tokio::sync::oneshot::channel();
/// let task = || drop(tokio::spawn(async { send.send("from inside the runtime") }));
/// timer.schedule(Duration::from_millis(1), task)?;
/// assert_eq!(told.await?, "from inside the runtime");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Executor for Handle {
    fn execute(&self, job: Job) {
        let inside = Inside {
            handle: self.clone(),
            job: Some(job),
        };
        drop(self.spawn(async move { drop(inside) }));
    }

    fn parallelism(&self) -> usize {
        self.metrics().num_workers()
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
pub fn runs_tasks_here() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let noted = Arc::new(Noted::default());
    let waker = Waker::from(noted.clone());
    let mut turn = pin!(task::yield_now());
    let pending = turn
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending();
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
        driver.turns_here = runs_tasks_here;
        driver.wake = Some(Arc::new(move || notify.notify_one()));
        drop(handle.spawn(run(
            Task {
                rounds: driver.rounds(),
            },
            called,
        )));
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
