//! Where requests wait: a contender in a runtime, the keys they wait for, and what is done to many.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Barrier,
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

/// Requests wait under random ones of so many keys.
pub(super) const KEYS: u64 = 1000;
/// The timeout of a request that is completed soon, and of one that stays.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// After which a request counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A contender in a runtime of its own.
pub(super) struct Room<W> {
    runtime: Arc<Runtime>,
    pub(super) waits: Arc<W>,
}

/// A task of a room, to be joined.
pub(super) struct Task<T>(mpsc::Receiver<T>);

impl<W: Peer> Room<W> {
    pub(super) fn open(workers: usize) -> anyhow::Result<Self> {
        Self::with(workers, W::start)
    }

    /// Of one that is started in another way, inside the runtime.
    pub(super) fn with(
        workers: usize,
        start: impl FnOnce() -> anyhow::Result<W>,
    ) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_time().build()?;
        let waits = {
            let _inside = runtime.enter();
            Arc::new(start()?)
        };
        Ok(Room { runtime: Arc::new(runtime), waits })
    }

    /// To be asked when all requests are over.
    pub(super) fn nothing_left(&self) -> anyhow::Result<()> {
        nothing_left(&*self.waits)
    }

    /// Starts a task. It is not made to yield every so often: it stands for many that are short.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let (tell, ended) = mpsc::channel();
        self.runtime.spawn(unconstrained(async move { _ = tell.send(task.await) }));
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

    /// Runs two tasks on threads of their own, begun together; what they came to.
    pub(super) fn both<A: Send + 'static, B: Send + 'static>(
        &self,
        first: impl Future<Output = A> + Send + 'static,
        second: impl Future<Output = B> + Send + 'static,
    ) -> anyhow::Result<(A, B)> {
        let together = Arc::new(Barrier::new(2));
        let other = together.clone();
        let first = self.thread(async move {
            together.wait();
            first.await
        });
        let second = self.thread(async move {
            other.wait();
            second.await
        });
        Ok((self.join(first)?, self.join(second)?))
    }

    /// What the task came to. An error when it waits for a request that got lost.
    pub(super) fn join<T>(&self, task: Task<T>) -> anyhow::Result<T> {
        let ended = task.0.recv_timeout(PATIENCE);
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            std::mem::forget(self.runtime.clone()); // to drop it would be to wait for the task
            bail!("{}: a request was lost", W::NAME);
        }
        ended.with_context(|| format!("{}: a task failed", W::NAME))
    }
}

/// Nanoseconds each of so many, after an eighth as many to warm up: `work` does some from a number
/// on, and tells how long it took.
pub(super) fn warmed_up(
    count: u64,
    work: impl Fn(u64, u64) -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let before = count.div_ceil(8);
    work(0, before)?;
    Ok(work(before, count)? as f64 / count as f64)
}

pub(super) fn nothing_left<W: Peer>(waits: &W) -> anyhow::Result<()> {
    let left = waits.left();
    ensure!(left == 0, "{}: {left} of what waits is still held", W::NAME);
    Ok(())
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

/// Where a request's keys come from.
pub(super) enum Keys {
    /// Random ones of [`KEYS`] from the first on.
    Random(Rng, u64),
    /// Never used before or again: the next one.
    Fresh(u64),
}

impl Keys {
    pub(super) fn next<const K: usize>(&mut self) -> [u64; K] {
        std::array::from_fn(|_| match self {
            Keys::Random(random, first) => *first + random.u64(0..KEYS),
            Keys::Fresh(next) => {
                *next += 1;
                *next
            }
        })
    }
}

/// What pends, if its form knows that, in the order in which it was parked.
pub(super) type Pending<'a> = VecDeque<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Has a wait registered with its task, by a first poll; it is kept if it pends.
pub(super) async fn begin<'a>(
    mut wait: Pin<Box<impl Future<Output = ()> + Send + 'a>>,
    pending: &mut Pending<'a>,
) {
    if poll_once(wait.as_mut()).await.is_pending() {
        pending.push_back(wait);
    }
}

/// Parks so many requests that stay, under `K` random keys each from `first` on.
pub(super) async fn park_all<'a, W: Waits, const K: usize>(
    waits: &'a W,
    request: Request,
    first: u64,
    pending: &mut Pending<'a>,
    requests: usize,
) {
    let mut keys = Keys::Random(Rng::with_seed(1), first);
    for _ in 0..requests {
        begin(Box::pin(waits.park(keys.next::<K>(), HOUR, request)), pending).await;
    }
    waits.settle().await;
}

/// Completes them.
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
