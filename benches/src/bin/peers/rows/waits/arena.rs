//! A contender in a runtime, the keys that requests wait for, and work on many requests.

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

/// The number of keys; requests wait under random ones.
pub(super) const KEYS: u64 = 1000;
/// The timeout of a request that is completed soon, and of one that stays.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// A request counts as lost after this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A contender in a runtime of its own.
pub(super) struct Arena<W> {
    runtime: Arc<Runtime>,
    pub(super) waits: Arc<W>,
}

/// A task of a arena, to be joined.
pub(super) struct Task<T>(mpsc::Receiver<T>);

impl<W: Peer> Arena<W> {
    pub(super) fn open(workers: usize) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_time()
            .build()?;
        let waits = {
            let _inside = runtime.enter();
            Arc::new(W::start()?)
        };
        Ok(Arena {
            runtime: Arc::new(runtime),
            waits,
        })
    }

    /// Checks that the contender holds nothing. To be called when all requests are over.
    pub(super) fn nothing_left(&self) -> anyhow::Result<()> {
        let left = self.waits.left();
        ensure!(left == 0, "{}: {left} of what waits is still held", W::NAME);
        Ok(())
    }

    /// Runs a task on this thread.
    pub(super) fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(unconstrained(task))
    }

    /// Starts a task. It is not made to yield every so often: it stands for many that are short.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let (tell, ended) = mpsc::channel();
        self.runtime
            .spawn(unconstrained(async move { _ = tell.send(task.await) }));
        Task(ended)
    }

    /// The same on a thread of its own: at the same time as others for certain, and it may block. A
    /// worker that blocks, or does not yield, can hold back a task that it took along.
    pub(super) fn thread<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let (tell, ended) = mpsc::channel();
        let runtime = self.runtime.clone();
        std::thread::spawn(move || _ = tell.send(runtime.block_on(unconstrained(task))));
        Task(ended)
    }

    /// The result of the task. An error when it waits for a request that got lost.
    pub(super) fn join<T>(&self, task: Task<T>) -> anyhow::Result<T> {
        let ended = task.0.recv_timeout(PATIENCE);
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            std::mem::forget(self.runtime.clone()); // to drop it would be to wait for the task
            bail!("{}: a request was lost", W::NAME);
        }
        ended.with_context(|| format!("{}: a task failed", W::NAME))
    }
}

/// Nanoseconds for each of `count`, after an eighth as many to warm up. `work` does some from a
/// number on, and returns how long it took.
pub(super) fn warmed_up(
    count: u64,
    work: impl Fn(u64, u64) -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let before = count.div_ceil(8);
    work(0, before)?;
    Ok(work(before, count)? as f64 / count as f64)
}

/// Every one of these requests must have been completed, once.
pub(super) fn all_completed<W: Peer>(progress: &Progress, requests: u64) -> anyhow::Result<()> {
    let (completed, ended) = (progress.completed(), progress.ended());
    let name = W::NAME;
    ensure!(
        (completed, ended) == (requests, requests),
        "{name}: {completed} completed and {} given up of {requests}",
        ended - completed,
    );
    Ok(())
}

/// Random ones of [`KEYS`] keys, from the first on.
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

/// Waits that pend, in the order in which they were parked.
pub(super) type Pending<'a, T = ()> = VecDeque<Pin<Box<dyn Future<Output = T> + Send + 'a>>>;

/// Has a wait registered with its task, by a first poll; it is kept if it pends.
pub(super) async fn begin<'a, T>(
    mut wait: Pin<Box<impl Future<Output = T> + Send + 'a>>,
    pending: &mut Pending<'a, T>,
) {
    if poll_once(wait.as_mut()).await.is_pending() {
        pending.push_back(wait);
    }
}

/// Parks requests that stay, under `K` random keys each from `first` on.
pub(super) async fn park_all<'a, W: Waits, const K: usize>(
    waits: &'a W,
    request: Request,
    first: u64,
    pending: &mut Pending<'a>,
    requests: usize,
) {
    let mut keys = Keys::new(1, first);
    for _ in 0..requests {
        begin(
            Box::pin(waits.park(keys.next::<K>(), HOUR, request)),
            pending,
        )
        .await;
    }
}

/// Completes these requests.
pub(super) async fn complete_all<W: Waits>(
    waits: &W,
    request: Request,
    first: u64,
    pending: Pending<'_>,
    requests: usize,
) -> anyhow::Result<()> {
    request.progress.reach(request.required);
    (first..first + KEYS).for_each(|key| waits.event(key));
    for wait in pending {
        wait.await;
    }
    all_completed::<W>(request.progress, requests as u64)
}

/// Polls once, as the task that runs.
pub(super) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
