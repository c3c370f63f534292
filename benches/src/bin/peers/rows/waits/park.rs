//! `park-complete-…`: the cost of a request that has to wait and is completed by a signal. It waits
//! under one or three random keys of a thousand; in `1m` a million other requests wait under other
//! keys. The rows of two threads give the cost per thread and need two free processors: each thread
//! has keys of its own (`other-keys`), both have the same (`same-keys`), or each also completes
//! half of the other's requests (`half-foreign`).
//!
//! `…-callback` compares callbacks, `…-future` awaited futures.
//!
//! The requests that stay parked meanwhile are completed at the end, and then the contender must be
//! empty.
//!
//! Each thread has a runtime for tokio's timeouts. It parks a window of requests, makes them ready,
//! signals the first key of each, and goes on when all have ended. A thread beside others may park
//! more windows before that, and polls instead of sleeping: it would be woken on another thread's
//! worker, which does not yield. A pending future is boxed, as it would be in a task of its own.
//!
//! With `half-foreign` a thread leaves the signals for half its window to the other thread, and
//! makes the signals that the other has left to it.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicU64, Ordering},
};

use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::arena::{
    Arena, KEYS, Keys, Pending, TIMEOUT, begin, check_completed, complete_all, park_all, poll_once,
};
use crate::{
    request::{Progress, Request},
    rows::row::Run,
    waits::{Waits, waits},
};

/// The number of requests that a thread parks before it completes them.
const WINDOW: u64 = 64;
/// The number of its requests that may be left to the other thread before it waits for them. With
/// only a window's worth, two threads run in lockstep and spend a third of the time waiting.
const REMAINING_MAX: u64 = 8 * WINDOW;
/// The first key under which the requests that stay wait.
const OTHERS: u64 = 1 << 40;

/// The work of the threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: usize,
    /// The number of keys under which a request waits: one or three.
    pub(super) keys: usize,
    /// Whether each thread has keys of its own.
    pub(super) apart: bool,
    /// Whether each thread completes half of the other's requests.
    pub(super) half_foreign: bool,
    /// Requests that stay parked, under one key each.
    pub(super) others: usize,
    /// Requests of each thread.
    pub(super) operations: u64,
}

/// Measures nanoseconds per request of the slowest thread.
pub(super) fn park<W: Waits>(work: Work) -> anyhow::Result<f64> {
    if work.keys == 1 {
        with_others::<W, 1>(work)
    } else {
        with_others::<W, 3>(work)
    }
}

/// Does the work while others stay parked.
fn with_others<W: Waits, const K: usize>(work: Work) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(work.threads)?;
    let waits = &*arena.waits;
    let others = Request {
        progress: Progress::leaked(),
        required: 1,
    };
    let mut pending = Pending::new();
    let parks = park_all::<W, 1>(waits, others, OTHERS, &mut pending, work.others);
    arena.block_on(parks);

    // The first time warms up.
    together::<W, K>(&arena, work)?;
    let ns = together::<W, K>(&arena, work)?;

    let completes = complete_all(waits, others, OTHERS, pending, work.others);
    arena.block_on(completes)?;
    arena.check_empty()?;
    Ok(ns)
}

/// Does the work on threads that begin together; returns nanoseconds per request of the slowest.
fn together<W: Waits, const K: usize>(arena: &Arena<W>, of: Work) -> anyhow::Result<f64> {
    let together = Arc::new(Barrier::new(of.threads));
    let given: [Arc<AtomicU64>; 2] = Default::default();

    // A thread's clock starts when all are there.
    let member = |thread: usize| {
        let first = if of.apart { thread as u64 * KEYS } else { 0 };
        let keys = Keys::new(of.operations + thread as u64, first);
        let swap = if of.half_foreign {
            Some(Swap::new(thread, &given))
        } else {
            None
        };
        let mut member = Member::<W, K> {
            waits: arena.waits.clone(),
            progress: Progress::leaked(),
            parked: 0,
            alone: of.threads == 1,
            swap,
        };
        let together = together.clone();
        arena.thread(async move {
            let clock = SystemClock::new();
            together.wait();
            let begin_ns = clock.now_ns();
            member.work(of.operations, keys).await;
            let took_ns = clock.now_ns() - begin_ns;
            check_completed::<W>(member.progress, of.operations)?;
            anyhow::Ok(took_ns as f64 / of.operations as f64)
        })
    };

    // Start all before the first is joined.
    let members: Vec<_> = (0..of.threads).map(member).collect();
    let mut slowest_ns = 0.0;
    for member in members {
        slowest_ns = f64::max(slowest_ns, arena.join(member)??);
    }
    Ok(slowest_ns)
}

/// The requests that two threads leave to each other. Both draw the keys of these from the same
/// seed.
struct Swap {
    given: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    given_keys: Keys,
    received_keys: Keys,
    /// Signals made for the other thread.
    signalled: u64,
}

impl Swap {
    /// Creates one thread's part; `given` counts what each thread has left to the other.
    fn new(thread: usize, given: &[Arc<AtomicU64>; 2]) -> Self {
        // Both threads draw these keys, from the same two seeds.
        let other = 1 - thread;
        let keys = |thread| Keys::new(!(thread as u64), 0);
        Swap {
            given: given[thread].clone(),
            received: given[other].clone(),
            given_keys: keys(thread),
            received_keys: keys(other),
            signalled: 0,
        }
    }
}

/// One thread's work.
struct Member<W, const K: usize> {
    waits: Arc<W>,
    progress: &'static Progress,
    parked: u64,
    alone: bool,
    swap: Option<Swap>,
}

impl<W: Waits, const K: usize> Member<W, K> {
    async fn work(&mut self, operations: u64, mut own_keys: Keys) {
        let waits = self.waits.clone();
        let mut pending = Pending::new();
        let mut to_signal = Vec::with_capacity(WINDOW as usize);
        let remaining_max = if self.alone { 0 } else { REMAINING_MAX };
        while self.parked < operations {
            // Park a window; the other thread signals the first half of it, if there are two.
            let window = WINDOW.min(operations - self.parked);
            let given = if self.swap.is_some() { window / 2 } else { 0 };
            for at in 0..window {
                let keys = match &mut self.swap {
                    Some(swap) if at < given => swap.given_keys.next::<K>(),
                    _ => own_keys.next::<K>(),
                };
                self.parked += 1;
                let request = Request {
                    progress: self.progress,
                    required: self.parked,
                };
                begin(Box::pin(waits.park(keys, TIMEOUT, request)), &mut pending).await;
                if at >= given {
                    to_signal.push(keys[0]);
                }
            }

            // Make all of it ready, then signal.
            self.progress.reach(self.parked);
            if let Some(swap) = &self.swap {
                swap.given.fetch_add(given, Ordering::Release);
            }
            for key in to_signal.drain(..) {
                waits.signal(key);
            }
            self.until_ended(&mut pending, remaining_max).await;
        }

        // The other thread may still wait for signals of this one.
        self.until_ended(&mut pending, 0).await;
        while let Some(swap) = &self.swap
            && swap.signalled < swap.given.load(Ordering::Acquire)
        {
            self.signal_or_yield().await;
        }
    }

    /// Waits until at most `remaining_max` requests have not ended.
    async fn until_ended(&mut self, pending: &mut Pending<'_>, remaining_max: u64) {
        while self.parked.saturating_sub(self.progress.ended()) > remaining_max {
            // Alone, sleep until the first wait ends. Beside another thread, poll it and help.
            match pending.pop_front() {
                Some(wait) if self.alone => wait.await,
                Some(mut wait) => {
                    if poll_once(wait.as_mut()).await.is_pending() {
                        pending.push_front(wait);
                        self.signal_or_yield().await;
                    }
                }
                None => self.signal_or_yield().await,
            }
        }
    }

    /// Makes the signals that the other thread has left to this one; yields if there are none.
    async fn signal_or_yield(&mut self) {
        if let Some(swap) = &mut self.swap {
            // The other thread has made these ready before it counted them.
            let received = swap.received.load(Ordering::Acquire);
            if swap.signalled < received {
                for _ in swap.signalled..received {
                    self.waits.signal(swap.received_keys.next::<K>()[0]);
                }
                swap.signalled = received;
                return;
            }
        }
        // The other thread may have no processor.
        std::thread::yield_now();
        yield_now().await;
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // The row's name says what it does.
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
