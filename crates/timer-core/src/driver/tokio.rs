//! A timer on a tokio runtime (feature `tokio`): jobs and the reaper are tasks of the runtime, and
//! the time is that of its clock.

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
    runtime::{Handle, TryCurrentError},
    sync::Notify,
    task,
    time::{Instant, sleep, timeout},
};

use crate::{
    driver::{
        clock::{Clock, Moment, SystemClock},
        driver::Driver,
        executor::{Executor, Job, inside_timer},
        reaper::{Pause, Rounds},
    },
    panics::contain,
};

/// (Feature `tokio`.) A runtime's handle is an [`Executor`], for
/// [`SystemTimerBuilder::executor`](crate::SystemTimerBuilder::executor) and wherever an executor
/// is taken. Its jobs may call `tokio::spawn`, start tokio's timers and use its sockets.
///
/// Each job is a task of the runtime, so it must be short and not block, as any task: a slow
/// callback spawns its work. A runtime that is shut down takes no task. The job then runs where it
/// is refused or dropped, still with the runtime entered, so a `tokio::spawn` in it does not panic,
/// and spawns nothing.
///
/// Every thread that runs tasks counts as [needed](Executor::needs_this_thread), even one of
/// another runtime: a task may have entered a runtime other than its own, and tokio does not tell
/// whose task it is.
///
/// ```
/// use std::time::Duration;
/// use timer_core::SystemTimer;
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
        // A job that is dropped, as by a runtime that takes no task, runs with the runtime entered.
        let runtime = self.clone();
        let inside = Job::new(move || {
            let _entered = if is_ending(&Handle::try_current()) {
                None
            } else {
                Some(runtime.enter())
            };
            inside_timer(|| job.run());
        });
        drop(self.spawn(async move { inside.run() }));
    }

    fn parallelism(&self) -> usize {
        self.metrics().num_workers()
    }

    fn needs_this_thread(&self) -> bool {
        runs_tasks_here()
    }
}

/// Returns true on a thread that ends, once tokio's thread-locals are gone. `Handle::enter` panics
/// there, and in a destructor that would abort the process.
fn is_ending(current: &Result<Handle, TryCurrentError>) -> bool {
    matches!(current, Err(error) if error.is_thread_local_destroyed())
}

/// A waker that remembers its wake-up.
#[derive(Default)]
struct WokenFlag(AtomicBool);

impl std::task::Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns true on a thread that runs a runtime's tasks: in `block_on` or on a worker, but not in
/// `spawn_blocking` or `block_in_place`. On such a thread a task that yields is woken later, by the
/// thread; elsewhere `yield_now` has to wake it at once.
pub fn runs_tasks_here() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    // Poll a yield by hand, once.
    let woken = Arc::new(WokenFlag::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut yielding = pin!(task::yield_now());
    let is_pending = yielding.as_mut().poll(&mut context).is_pending();
    is_pending && !woken.0.load(Ordering::Relaxed)
}

/// Returns true in a task of a runtime that has used up its budget for this poll. The task is woken
/// then, so its future must return `Pending`. A future that is ready spends a part of the budget
/// ([`spend_budget`]). Returns false outside of a task, and for a waker that wakes nothing.
pub fn must_yield(waker: &Waker) -> bool {
    // `Waker::noop` has no data. `will_wake` would not always recognise it, as each crate may have
    // a copy of its functions.
    if task::coop::has_budget_remaining() || waker.data().is_null() {
        return false;
    }
    let mut context = Context::from_waker(waker);
    pin!(task::coop::consume_budget())
        .poll(&mut context)
        .is_pending()
}

/// Spends a part of the budget that a task of a runtime has for this poll; nothing outside of a
/// task.
pub fn spend_budget() {
    if task::coop::has_budget_remaining() {
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(task::coop::consume_budget()).poll(&mut context);
    }
}

/// The clock of a tokio runtime: the machine's, or a clock that a test has paused.
#[derive(Debug)]
pub(crate) struct TokioClock {
    handle: Handle,
    origin: Instant,
    /// Counts from about the same moment.
    machine: SystemClock,
}

impl TokioClock {
    pub(crate) fn new(handle: Handle) -> Self {
        // A paused clock shows its time only inside its runtime.
        let inside = handle.enter();
        let origin = Instant::now();
        drop(inside);
        TokioClock {
            handle,
            origin,
            machine: SystemClock::new(),
        }
    }
}

impl Clock for TokioClock {
    /// Reads the clock inside its runtime: a paused clock is seen only there. The destructors of a
    /// thread that ends read the machine's clock.
    fn now_ns(&self) -> u64 {
        let current = Handle::try_current();
        if is_ending(&current) {
            return self.machine.now_ns();
        }
        // A thread that is inside does not enter again, which costs as much as finding that out.
        let _entered = match current {
            Ok(current) if current.id() == self.handle.id() => None,
            _ => Some(self.handle.enter()),
        };
        let now = Moment::default() + (Instant::now() - self.origin);
        now.min(Moment::LAST).as_nanos()
    }
}

/// Starts a task of `runtime` that advances the wheels. Returns false when the runtime has no time.
/// On a runtime that has been shut down the timer is closed from the beginning.
pub(crate) fn start_reaper(driver: &mut Driver, runtime: &Handle) -> bool {
    // Without `enable_time` the first sleep panics.
    let entered = runtime.enter();
    let has_time = contain(|| drop(sleep(Duration::ZERO))).is_ok();
    drop(entered);
    if !has_time {
        return false;
    }
    // A signal notifies the task.
    let called = Arc::new(Notify::new());
    let notify = called.clone();
    driver.executors_mut().advances_here = runs_tasks_here;
    driver.wake = driver.waker(move || notify.notify_one());
    // From here on the rounds are the runtime's; dropping them closes the timer. A runtime that has
    // been shut down drops them at once.
    let rounds = driver.rounds();
    drop(runtime.spawn(run(rounds, called)));
    true
}

async fn run(mut rounds: Rounds, called: Arc<Notify>) {
    loop {
        // A reaper that is called again in each round waits for nothing below.
        task::coop::consume_budget().await;
        match inside_timer(|| rounds.round()) {
            Pause::None | Pause::Yield => task::yield_now().await,
            Pause::For(wait) => drop(timeout(wait, called.notified()).await),
            Pause::UntilWoken => called.notified().await,
            Pause::Over => return,
        }
    }
}
