//! `park-complete-…`: the cost of a request that has to wait and is completed by an event. It waits
//! under one key or three, random ones of a thousand; in `1m` a million others wait for other keys.
//! On two threads, per thread, each thread has keys of its own (`other-keys`), both have the same
//! (`same-keys`), and of the same each completes half of the other's (`half-foreign`). It takes two
//! processors that are free.
//!
//! `…-callback` compares callbacks, `…-future` awaited futures.
//!
//! Others that stay parked meanwhile are completed in the end, and nothing may be left.
//!
//! Each thread has a runtime at hand for tokio's timeouts. It parks a window of requests, makes
//! them ready, raises the event of each one's first key, and goes on when all are over. One of
//! several threads may park more windows before that, and does not sleep: it would be woken on the
//! worker of another thread, which does not yield. A future that pends is boxed, as it would be in
//! a task of its own.
//!
//! With `half_foreign` a thread leaves the events of half its window to the other one, and raises
//! the events that are left to it.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicU64, Ordering},
};

use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::arena::{
    Arena, KEYS, Keys, Pending, TIMEOUT, all_completed, begin, complete_all, park_all, poll_once,
};
use crate::{
    request::{Progress, Request},
    rows::row::Run,
    waits::{Waits, waits},
};

/// How many requests a thread parks before it completes them.
const WINDOW: u64 = 64;
/// How many of its requests may be left to others before it waits for them. With a window's worth
/// two threads go in lockstep, and a third of what is measured is waiting.
const LEFT_MAX: u64 = 8 * WINDOW;
/// The first of the keys under which the others wait.
const OTHERS: u64 = 1 << 40;

/// What threads do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: usize,
    /// How many keys a request waits for: one or three.
    pub(super) keys: usize,
    /// Each thread has keys of its own.
    pub(super) apart: bool,
    pub(super) half_foreign: bool,
    /// Requests that stay parked, under one key each.
    pub(super) others: usize,
    /// Of each thread.
    pub(super) operations: u64,
}

/// Nanoseconds a request, of the slowest thread.
pub(super) fn park<W: Waits>(work: Work) -> anyhow::Result<f64> {
    if work.keys == 1 {
        with_others::<W, 1>(work)
    } else {
        with_others::<W, 3>(work)
    }
}

fn with_others<W: Waits, const K: usize>(work: Work) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(work.threads)?;
    let (waits, mut pending) = (arena.waits.clone(), Pending::new());
    let others = Request {
        progress: Progress::leaked(),
        required: 1,
    };
    arena.block_on(park_all::<W, 1>(
        &*waits,
        others,
        OTHERS,
        &mut pending,
        work.others,
    ));
    together::<W, K>(&arena, work)?; // warms up
    let ns = together::<W, K>(&arena, work)?;
    arena.block_on(complete_all(&*waits, others, OTHERS, pending, work.others))?;
    arena.nothing_left()?;
    Ok(ns)
}

/// Has all threads begin together.
fn together<W: Waits, const K: usize>(arena: &Arena<W>, of: Work) -> anyhow::Result<f64> {
    let together = Arc::new(Barrier::new(of.threads));
    let left: [Arc<AtomicU64>; 2] = Default::default();
    let member = |thread: usize| {
        let first = if of.apart { thread as u64 * KEYS } else { 0 };
        let keys = Keys::new(of.operations + thread as u64, first);
        let swap = of.half_foreign.then(|| Swap::new(thread, &left));
        let (waits, together) = (arena.waits.clone(), together.clone());
        let alone = of.threads == 1;
        let mut member = Member::<W, K> {
            waits,
            progress: Progress::leaked(),
            parked: 0,
            alone,
            swap,
        };
        arena.thread(async move {
            let clock = SystemClock::new();
            together.wait();
            let begin = clock.now_ns();
            member.work(of.operations, keys).await;
            let took = clock.now_ns() - begin;
            all_completed::<W>(member.progress, of.operations)?;
            anyhow::Ok(took as f64 / of.operations as f64)
        })
    };
    let members: Vec<_> = (0..of.threads).map(member).collect();
    let spent = members.into_iter().map(|member| arena.join(member)?);
    let spent: anyhow::Result<Vec<f64>> = spent.collect();
    Ok(spent?.into_iter().fold(0.0, f64::max))
}

/// What two threads leave to each other: requests whose keys both draw alike.
struct Swap {
    given: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    given_keys: Keys,
    received_keys: Keys,
    /// How many events I have raised for the other.
    raised: u64,
}

impl Swap {
    fn new(thread: usize, left: &[Arc<AtomicU64>; 2]) -> Self {
        let keys = |thread| Keys::new(!(thread as u64), 0);
        let other = 1 - thread;
        let (given, received) = (left[thread].clone(), left[other].clone());
        let (given_keys, received_keys) = (keys(thread), keys(other));
        Swap {
            given,
            received,
            given_keys,
            received_keys,
            raised: 0,
        }
    }
}

struct Member<W, const K: usize> {
    waits: Arc<W>,
    progress: &'static Progress,
    parked: u64,
    alone: bool,
    swap: Option<Swap>,
}

impl<W: Waits, const K: usize> Member<W, K> {
    async fn work(&mut self, operations: u64, mut keys: Keys) {
        let waits = self.waits.clone();
        let (mut pending, mut events) = (Pending::new(), Vec::with_capacity(WINDOW as usize));
        let may_stay = if self.alone { 0 } else { LEFT_MAX };
        while self.parked < operations {
            let window = WINDOW.min(operations - self.parked);
            let given = if self.swap.is_some() { window / 2 } else { 0 };
            for at in 0..window {
                let keys = match &mut self.swap {
                    Some(swap) if at < given => swap.given_keys.next::<K>(),
                    _ => keys.next::<K>(),
                };
                self.parked += 1;
                let request = Request {
                    progress: self.progress,
                    required: self.parked,
                };
                begin(Box::pin(waits.park(keys, TIMEOUT, request)), &mut pending).await;
                events.extend((at >= given).then_some(keys[0]));
            }
            self.progress.reach(self.parked);
            if let Some(swap) = &self.swap {
                swap.given.fetch_add(given, Ordering::Release);
            }
            events.drain(..).for_each(|key| waits.event(key));
            self.until_over(&mut pending, may_stay).await;
        }
        self.until_over(&mut pending, 0).await;
        while let Some(swap) = &self.swap
            && swap.raised < swap.given.load(Ordering::Acquire)
        {
            self.raise_or_yield().await;
        }
    }

    /// Waits until at most `may_stay` requests are not over.
    async fn until_over(&mut self, pending: &mut Pending<'_>, may_stay: u64) {
        while self.parked.saturating_sub(self.progress.ended()) > may_stay {
            match pending.pop_front() {
                Some(wait) if self.alone => wait.await,
                Some(mut wait) => {
                    if poll_once(wait.as_mut()).await.is_pending() {
                        pending.push_front(wait);
                        self.raise_or_yield().await;
                    }
                }
                None => self.raise_or_yield().await,
            }
        }
    }

    /// Raises the events that the other thread has left to this one.
    async fn raise_or_yield(&mut self) {
        if let Some(swap) = &mut self.swap {
            let received = swap.received.load(Ordering::Acquire);
            if swap.raised < received {
                for _ in swap.raised..received {
                    self.waits.event(swap.received_keys.next::<K>()[0]);
                }
                swap.raised = received;
                return;
            }
        }
        std::thread::yield_now(); // the other thread may have no processor
        yield_now().await;
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let work = Work {
        threads: if id.contains("-2t-") { 2 } else { 1 },
        keys: if id.ends_with("-3keys") { 3 } else { 1 },
        apart: id.contains("-other-"),
        half_foreign: id.contains("-half-foreign"),
        others: if id.contains("-1m-") {
            run.sizes.one_m
        } else {
            0
        },
        operations: run.sizes.operations as u64,
    };
    for _ in 0..run.sizes.rounds {
        for (form, contenders) in waits!(park) {
            run.each(&format!("{id}-{form}"), "ns", &contenders, work)?;
        }
    }
    Ok(())
}
