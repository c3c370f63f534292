//! `queue-…`: a job of a queue that a consumer waits for, with a time-out of 30 s, from the wait
//! until it was taken, by the number of jobs.
//!
//! On one thread (`1t`) 64 consumers wait, 64 jobs are put, and the consumers take them. On two
//! (`2t`) one thread puts jobs, at most 512 ahead, and the other takes them one after the other,
//! and waits when there is none.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    task::Poll,
};

use anyhow::ensure;
use crossbeam_utils::Backoff;
use timer_core::{Clock, SystemClock};

use super::{
    super::row::Run,
    room::{Room, poll_once},
};
use crate::queues::{mutex_notify::Notified, ours::Ours, queue::Queue};

/// Consumers on one thread.
const WINDOW: u64 = 64;
/// Jobs that may lie in the queue, on two.
const AHEAD_MAX: u64 = 512;

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
fn measure<Q: Queue>(threads: usize, jobs: u64) -> anyhow::Result<f64> {
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
        run.one(id, "ns", round, Ours::NAME, || measure::<Ours>(threads, jobs))?;
        run.one(id, "ns", round, Notified::NAME, || measure::<Notified>(threads, jobs))?;
    }
    Ok(())
}
