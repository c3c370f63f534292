//! `queue-…`: a job of a queue that a consumer waits for, with a time-out of 30 s, from the wait
//! until it was taken, by the number of jobs.
//!
//! On one thread (`1t`) 64 consumers wait, 64 jobs are put, and the consumers take them. On two
//! (`2t`) one thread puts jobs, at most 512 ahead, and the other takes them one after the other,
//! and waits when there is none.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    task::Poll,
    time::Duration,
};

use anyhow::ensure;
use crossbeam_utils::Backoff;
use parking_lot::Mutex;
use purgatory::Monitor;
use timer_core::{Clock, SystemClock};
use tokio::{sync::Notify, time::timeout};

use super::{
    super::row::Run,
    room::{Room, poll_once},
};
use crate::{contender::contenders, results::OURS};

/// Consumers on one thread.
const WINDOW: u64 = 64;
/// Jobs that may lie in the queue, on two.
const AHEAD_MAX: u64 = 512;

/// The one key of ours.
const JOBS: u8 = 0;

/// The time-out of each wait: none comes to it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A queue whose consumers wait for its jobs.
trait Queue: Sized + Send + Sync + 'static {
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

/// Ours: `Monitor`, with one key.
struct Ours(Monitor<u8, VecDeque<u64>>);

impl Queue for Ours {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Ours(Monitor::new("queue", VecDeque::new())?))
    }

    fn take(&self) -> impl Future<Output = Option<u64>> + Send {
        let job = self.0.wait(&[JOBS], TIMEOUT, |jobs| jobs.pop_front());
        async { job.await.ok() }
    }

    fn put(&self, job: u64) {
        self.0.update_one(&JOBS, |jobs| jobs.push_back(job));
    }

    fn left(&self) -> usize {
        self.0.read(|jobs| jobs.len()) + self.0.waiting()
    }
}

/// Written by hand: a queue in a mutex, tokio's `Notify`, which keeps one wake-up for the next that
/// comes, and its `timeout`.
#[derive(Default)]
struct Notified {
    jobs: Mutex<VecDeque<u64>>,
    put: Notify,
}

impl Queue for Notified {
    const NAME: &'static str = "mutex-notify";

    fn start() -> anyhow::Result<Self> {
        Ok(Notified::default())
    }

    async fn take(&self) -> Option<u64> {
        let job = async {
            loop {
                if let Some(job) = self.jobs.lock().pop_front() {
                    return job;
                }
                self.put.notified().await;
            }
        };
        timeout(TIMEOUT, job).await.ok()
    }

    fn put(&self, job: u64) {
        self.jobs.lock().push_back(job);
        self.put.notify_one();
    }

    fn left(&self) -> usize {
        self.jobs.lock().len()
    }
}

type Take<'a> = Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>;

/// The sum of so many jobs.
fn sum_of(jobs: u64) -> u64 {
    jobs * (jobs - 1) / 2
}

/// The sum of the jobs that were taken, and nanoseconds; zero jobs if a wait was no wait.
async fn alone<Q: Queue>(queue: &Q, jobs: u64) -> (u64, u64) {
    let (clock, mut sum, mut waits) = (SystemClock::new(), 0, Vec::with_capacity(WINDOW as usize));
    for first in (0..jobs).step_by(WINDOW as usize) {
        let window = first..jobs.min(first + WINDOW);
        for _ in window.clone() {
            let mut take: Take<'_> = Box::pin(queue.take());
            if poll_once(take.as_mut()).await != Poll::Pending {
                return (0, 0);
            }
            waits.push(take);
        }
        window.for_each(|job| queue.put(job));
        for take in waits.drain(..) {
            sum += take.await.unwrap_or_default();
        }
    }
    (sum, clock.now_ns())
}

async fn consumer<Q: Queue>(queue: &Q, jobs: u64, taken: &AtomicU64) -> (u64, u64) {
    let (clock, mut sum) = (SystemClock::new(), 0);
    for job in 0..jobs {
        sum += queue.take().await.unwrap_or_default();
        taken.store(job + 1, Release);
    }
    (sum, clock.now_ns())
}

fn producer<Q: Queue>(queue: &Q, jobs: u64, taken: &AtomicU64) {
    let backoff = Backoff::new();
    for job in 0..jobs {
        while job - taken.load(Acquire) > AHEAD_MAX {
            backoff.snooze();
        }
        backoff.reset();
        queue.put(job);
    }
}

/// Nanoseconds a job, after a warm-up.
fn measure<Q: Queue>((threads, jobs): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<Q>::with(Q::NAME, 1, Q::start)?;
    let mut took_ns = 0;
    for jobs in [jobs.div_ceil(8), jobs] {
        let queue = room.waits.clone();
        let (sum, ns) = if threads == 1 {
            room.join(room.spawn(async move { alone(&*queue, jobs).await }))?
        } else {
            let (puts, taken) = (queue.clone(), Arc::new(AtomicU64::new(0)));
            let told = taken.clone();
            let takes = async move { consumer(&*queue, jobs, &told).await };
            room.both(takes, async move { producer(&*puts, jobs, &taken) })?.0
        };
        let left = room.waits.left();
        ensure!(sum == sum_of(jobs) && left == 0, "{}: a job was lost, or {left} left", Q::NAME);
        took_ns = ns;
    }
    Ok(took_ns as f64 / jobs as f64)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.ends_with("-2t") { 2 } else { 1 };
    let jobs = run.sizes.operations as u64;
    for round in 0..run.sizes.short_rounds {
        let contenders = contenders!(measure, Queue: Ours, Notified);
        run.each(id, "ns", round, &contenders, (threads, jobs))?;
    }
    Ok(())
}
