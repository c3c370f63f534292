//! An arena: a contender in a runtime, random keys to wait under, and work on many requests.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    task::Poll,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use tokio::{
    runtime::{Builder, Runtime},
    task::coop::unconstrained,
};

use crate::{
    contender::Peer,
    request::{Progress, Request},
    waits::Waits,
};

/// The number of keys; requests wait under random keys.
pub(super) const KEYS: u64 = 1000;
/// The timeouts of a request that is completed soon, and of a request that stays.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// A request counts as lost after this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A contender in a runtime of its own.
pub(super) struct Arena<W> {
    runtime: Arc<Runtime>,
    pub(super) waits: Arc<W>,
}

/// A running task of an arena, to be joined.
pub(super) struct Task<T>(mpsc::Receiver<T>);

impl<W: Peer> Arena<W> {
    /// Starts the contender in a runtime with this many workers.
    pub(super) fn open(workers: usize) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_time()
            .build()?;
        // A peer may use tokio's time when it starts.
        let waits = {
            let _inside = runtime.enter();
            Arc::new(W::start()?)
        };
        Ok(Arena {
            runtime: Arc::new(runtime),
            waits,
        })
    }

    /// Checks that the contender holds nothing. Call it after all requests have ended.
    pub(super) fn check_empty(&self) -> anyhow::Result<()> {
        // The contender counts requests and keys, as far as it can.
        let remaining = self.waits.remaining();
        ensure!(
            remaining == 0,
            "{}: still holds {remaining} requests or keys",
            W::NAME
        );
        Ok(())
    }

    /// Runs a task on this thread.
    pub(super) fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(unconstrained(task))
    }

    /// Starts a task without tokio's cooperative budget, since it stands for many short tasks.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let (sender, ended) = mpsc::channel();
        self.runtime.spawn(unconstrained(async move {
            _ = sender.send(task.await);
        }));
        Task(ended)
    }

    /// Starts a task on a thread of its own, where it surely runs beside others and may block. (A
    /// worker that blocks or does not yield can delay another task in its queue.)
    pub(super) fn thread<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        // The runtime's time driver also serves this thread.
        let (sender, ended) = mpsc::channel();
        let runtime = self.runtime.clone();
        std::thread::spawn(move || {
            _ = sender.send(runtime.block_on(unconstrained(task)));
        });
        Task(ended)
    }

    /// Waits for the task's result.
    ///
    /// # Errors
    /// When the task waits for a request that was lost.
    pub(super) fn join<T>(&self, task: Task<T>) -> anyhow::Result<T> {
        // A task that panics drops its sender, which is not a timeout.
        let ended = task.0.recv_timeout(PATIENCE);
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            // Dropping the runtime would wait for the task.
            std::mem::forget(self.runtime.clone());
            bail!("{}: a request was lost", W::NAME);
        }
        ended.with_context(|| format!("{}: a task failed", W::NAME))
    }
}

/// Measures nanoseconds per operation over `count` operations, after an eighth as many to warm up.
/// `work` gets the number of the first operation and the number of operations, and returns how long
/// they took.
pub(super) fn warmed_up(
    count: u64,
    work: impl Fn(u64, u64) -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let before = count.div_ceil(8);
    work(0, before)?;
    Ok(work(before, count)? as f64 / count as f64)
}

/// Checks that each request was completed once.
pub(super) fn check_completed<W: Peer>(progress: &Progress, requests: u64) -> anyhow::Result<()> {
    check_counts::<W>(progress.completed(), progress.ended(), requests)
}

/// Checks that all `requests` were completed and none was given up.
pub(super) fn check_counts<W: Peer>(
    completed: u64,
    ended: u64,
    requests: u64,
) -> anyhow::Result<()> {
    ensure!(
        completed == requests && ended == requests,
        "{}: {completed} completed and {} given up of {requests}",
        W::NAME,
        ended - completed,
    );
    Ok(())
}

/// Random keys out of the [`KEYS`] keys from `first` on.
pub(super) struct Keys {
    random: Rng,
    first: u64,
}

impl Keys {
    pub(super) fn new(seed: u64, first: u64) -> Self {
        Keys {
            random: Rng::with_seed(seed),
            first,
        }
    }

    pub(super) fn next<const K: usize>(&mut self) -> [u64; K] {
        std::array::from_fn(|_| self.first + self.random.u64(0..KEYS))
    }
}

/// Pending waits, in the order in which they were parked.
pub(super) type Pending<'a, T = ()> = VecDeque<Pin<Box<dyn Future<Output = T> + Send + 'a>>>;

/// Polls a wait for the first time, which registers it with its task. Keeps the wait if it is
/// pending.
pub(super) async fn begin<'a, T>(
    mut wait: Pin<Box<impl Future<Output = T> + Send + 'a>>,
    pending: &mut Pending<'a, T>,
) {
    if poll_once(wait.as_mut()).await.is_pending() {
        pending.push_back(wait);
    }
}

/// Parks requests that stay, each under one random key out of the [`KEYS`] keys from `first` on.
pub(super) async fn park_all<'a, W: Waits>(
    waits: &'a W,
    request: Request,
    first: u64,
    pending: &mut Pending<'a>,
    requests: usize,
) {
    let mut keys = Keys::new(1, first);
    for _ in 0..requests {
        let wait = waits.park(keys.next::<1>(), HOUR, request);
        begin(Box::pin(wait), pending).await;
    }
}

/// Completes the requests of [`park_all`].
pub(super) async fn complete_all<W: Waits>(
    waits: &W,
    request: Request,
    first: u64,
    pending: Pending<'_>,
    requests: usize,
) -> anyhow::Result<()> {
    request.progress.reach(request.required);
    // Each request waits under one of these keys.
    for key in first..first + KEYS {
        waits.signal(key);
    }
    for wait in pending {
        wait.await;
    }
    check_completed::<W>(request.progress, requests as u64)
}

/// Polls once, in the current task.
pub(super) fn poll_once<F: Future + ?Sized>(
    mut future: Pin<&mut F>,
) -> impl Future<Output = Poll<F::Output>> {
    poll_fn(move |context| Poll::Ready(future.as_mut().poll(context)))
}
