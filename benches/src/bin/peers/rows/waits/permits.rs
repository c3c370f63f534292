//! `permits-…`: the time in which a task takes the one permit of a semaphore, with a timeout, and
//! returns it. In `permits-free` the permit is free. In `permits-queue` 64 tasks wait for it, and
//! it goes from one to the next in the order of their arrival; a task is polled again only once it
//! is woken.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::ensure;
use purgatory::{Permit, Permits};
use timer_core::{Clock, SystemClock};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{
    arena::{Arena, TIMEOUT, warmed_up},
    tasks::{Tasks, run_until, run_woken},
};
use crate::{
    contender::{Peer, contenders},
    rows::row::Run,
};

/// The number of tasks that wait for the permit.
const WINDOW: u64 = 64;

/// A contender with one permit.
trait OnePermit: Peer {
    /// The permit. Dropping it returns it.
    type Permit<'a>: Send;

    /// Takes the permit, in turn; returns `None` if it did not come free in time.
    fn acquire(&self) -> impl Future<Output = Option<Self::Permit<'_>>> + Send;
}

impl Peer for Permits {
    fn start() -> anyhow::Result<Self> {
        Ok(Permits::new("permits", 1)?)
    }

    fn remaining(&self) -> usize {
        self.waits().len()
    }
}

impl OnePermit for Permits {
    type Permit<'a> = Permit;

    async fn acquire(&self) -> Option<Permit> {
        self.acquire(1, TIMEOUT).await.ok()
    }
}

/// tokio's semaphore and its `timeout`.
struct TokioSemaphore(Semaphore);

impl Peer for TokioSemaphore {
    const NAME: &'static str = "tokio-semaphore";

    fn start() -> anyhow::Result<Self> {
        Ok(TokioSemaphore(Semaphore::new(1)))
    }

    fn remaining(&self) -> usize {
        1 - self.0.available_permits() // it does not report how many wait
    }
}

impl OnePermit for TokioSemaphore {
    type Permit<'a> = SemaphorePermit<'a>;

    async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        timeout(TIMEOUT, self.0.acquire()).await.ok()?.ok()
    }
}

/// Takes the free permit and returns it, `requests` times; returns how long that took, in
/// nanoseconds.
async fn take_free<P: OnePermit>(permits: Arc<P>, requests: u64) -> u64 {
    let clock = SystemClock::new();
    for _ in 0..requests {
        let permit = permits.acquire().await;
        assert!(permit.is_some(), "the permit is free");
    }
    clock.now_ns()
}

/// Waits for the permit as task `number` in line, and returns it.
async fn take_in_turn<P: OnePermit>(permits: &P, number: u64, served: &AtomicU64) {
    let permit = permits.acquire().await;
    assert!(permit.is_some(), "the permit comes free in time");
    assert_eq!(served.fetch_add(1, Relaxed), number, "out of turn");
}

/// Queues tasks for the permit and serves them all, a window at a time; returns how long that took,
/// in nanoseconds.
async fn take_queued<P: OnePermit>(permits: Arc<P>, requests: u64) -> u64 {
    let clock = SystemClock::new();
    let served = AtomicU64::new(0);
    for window in (0..requests).step_by(WINDOW as usize) {
        // 1. While the permit is held, a window of tasks asks for it.
        let held = permits.acquire().await;
        let mut tasks = Tasks::new();
        for number in window..requests.min(window + WINDOW) {
            tasks.push(take_in_turn(&*permits, number, &served));
        }
        run_woken(&mut tasks).await;
        assert_eq!(served.load(Relaxed), window, "the permit was held");
        // 2. The permit is returned, and goes from task to task.
        drop(held);
        run_until(&mut tasks, 0).await;
    }
    assert_eq!(served.load(Relaxed), requests);
    clock.now_ns()
}

/// Measures nanoseconds per request, for this many requests, with the permit free or not.
fn time_each<P: OnePermit>((requests, is_free): (u64, bool)) -> anyhow::Result<f64> {
    let arena = Arena::<P>::open(1)?;
    warmed_up(requests, |_, requests| {
        let permits = arena.waits.clone();
        let ns = if is_free {
            arena.join(arena.thread(take_free(permits, requests)))?
        } else {
            arena.join(arena.thread(take_queued(permits, requests)))?
        };
        ensure!(ns > 0, "{}: no time passed", P::NAME);
        arena.check_empty()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let asking = (run.sizes.operations as u64, id.ends_with("-free"));
    // Rounds are short: do twice as many.
    for _ in 0..2 * run.sizes.rounds {
        let contenders = contenders!(time_each, Peer: Permits, TokioSemaphore);
        run.each(id, "ns", &contenders, asking)?;
    }
    Ok(())
}
