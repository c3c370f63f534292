//! `park-complete-…`: the cost of a request that has to wait and is completed by a signal. It waits
//! under one or three random keys of a thousand; in `1m` a million other requests wait under other
//! keys. The row of two threads gives the cost per thread and needs two free processors: each thread
//! has keys of its own (`other-keys`).
//!
//! `…-callback` compares our callbacks with the best hand-written callbacks, and with the awaited
//! future that programs commonly have. That future is boxed and polled as in `…-future`, which
//! compares awaited futures.
//!
//! The requests that stay parked meanwhile are completed at the end; then the contender must be
//! empty.
//!
//! Each thread has a runtime for tokio's timeouts. It parks a window of requests, makes them ready,
//! signals the first key of each, and goes on when all have ended. A single thread awaits one
//! request after the other; a pending future is boxed, as it would be in a task of its own.
//!
//! If there are two threads, each may park more windows before its requests have ended. Each future
//! is a task of its own, polled again only once its waker was called (see [`Tasks`]); the thread
//! sleeps when no task is ready. Callbacks are no tasks and wake nothing, so a thread yields while
//! it waits for them.

use std::{
    pin::pin,
    sync::{Arc, Barrier},
};

use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::{
    arena::{
        Arena, KEYS, Keys, Pending, TIMEOUT, begin, check_completed, complete_all, park_all,
        poll_once,
    },
    tasks::{Tasks, poll_woken, run_woken},
};
use crate::{
    request::{Progress, Request, Wait},
    rows::row::Run,
    waits::{Waits, waits},
};

/// The number of requests that a thread parks before it completes them.
const WINDOW: u64 = 64;
/// If there are two threads: how many of its requests may not have ended before a thread waits for
/// them. With only one window, the threads would run in lockstep.
const REMAINING_MAX: u64 = 8 * WINDOW;
/// The first key under which the requests that stay wait.
const OTHERS: u64 = 1 << 40;

/// The work of the threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: usize,
    /// The number of keys under which a request waits: one or three.
    pub(super) keys: usize,
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

/// Does the work while other requests stay parked.
fn with_others<W: Waits, const K: usize>(work: Work) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(work.threads)?;
    let waits = &*arena.waits;
    let others = Request::new();
    let mut pending = Pending::new();
    let parks = park_all(waits, others, OTHERS, &mut pending, work.others);
    arena.block_on(parks);

    // The first run warms up.
    together::<W, K>(&arena, work)?;
    let ns = together::<W, K>(&arena, work)?;

    let completes = complete_all(waits, others, OTHERS, pending, work.others);
    arena.block_on(completes)?;
    arena.check_empty()?;
    Ok(ns)
}

/// Does the work on threads that begin together. Returns nanoseconds per request of the slowest
/// thread.
fn together<W: Waits, const K: usize>(arena: &Arena<W>, of: Work) -> anyhow::Result<f64> {
    let together = Arc::new(Barrier::new(of.threads));

    // A thread's clock starts when all threads have arrived.
    let member = |thread: usize| {
        let keys = Keys::new(of.operations + thread as u64, thread as u64 * KEYS);
        let mut member = Member::<W, K> {
            waits: arena.waits.clone(),
            progress: Progress::leaked(),
            parked: 0,
        };
        let together = together.clone();
        arena.thread(async move {
            let clock = SystemClock::new();
            together.wait();
            let begin_ns = clock.now_ns();
            if of.threads == 1 {
                member.work_alone(of.operations, keys).await;
            } else {
                member.work_beside(of.operations, keys).await;
            }
            let took_ns = clock.now_ns() - begin_ns;
            check_completed::<W>(member.progress, of.operations)?;
            anyhow::Ok(took_ns as f64 / of.operations as f64)
        })
    };

    // Start all threads before the first is joined.
    let members: Vec<_> = (0..of.threads).map(member).collect();
    let mut slowest_ns = 0.0;
    for member in members {
        slowest_ns = f64::max(slowest_ns, arena.join(member)??);
    }
    Ok(slowest_ns)
}

/// The work of one thread.
struct Member<W, const K: usize> {
    waits: Arc<W>,
    progress: &'static Progress,
    parked: u64,
}

impl<W: Waits, const K: usize> Member<W, K> {
    /// Counts the request that is parked next.
    fn request(&mut self) -> Request {
        self.parked += 1;
        Request {
            progress: self.progress,
            required: self.parked,
        }
    }

    async fn work_alone(&mut self, operations: u64, mut keys: Keys) {
        let waits = self.waits.clone();
        let mut pending = Pending::new();
        let mut to_signal = Vec::with_capacity(WINDOW as usize);
        while self.parked < operations {
            // Park a window.
            for _ in 0..WINDOW.min(operations - self.parked) {
                let keys = keys.next::<K>();
                let wait = waits.park(keys, TIMEOUT, self.request());
                begin(Box::pin(wait), &mut pending).await;
                to_signal.push(keys[0]);
            }

            // Make the whole window ready, signal, and await each.
            self.progress.reach(self.parked);
            for key in to_signal.drain(..) {
                waits.signal(key);
            }
            for wait in pending.drain(..) {
                wait.await;
            }
        }
    }

    async fn work_beside(&mut self, operations: u64, mut keys: Keys) {
        let waits = self.waits.clone();
        let mut tasks = Tasks::new();
        let mut to_signal = Vec::with_capacity(WINDOW as usize);
        while self.parked < operations {
            // Start a window of tasks.
            for _ in 0..WINDOW.min(operations - self.parked) {
                let keys = keys.next::<K>();
                let wait = waits.park(keys, TIMEOUT, self.request());
                if W::CALLS_BACK {
                    _ = poll_once(pin!(wait)).await;
                } else {
                    tasks.push(wait);
                }
                to_signal.push(keys[0]);
            }
            // A task parks its request when it is first polled.
            run_woken(&mut tasks).await;

            // Make the whole window ready, then signal.
            self.progress.reach(self.parked);
            for key in to_signal.drain(..) {
                waits.signal(key);
            }
            self.until_ended(&mut tasks, REMAINING_MAX).await;
        }
        self.until_ended(&mut tasks, 0).await;
    }

    /// Runs tasks until at most `remaining_max` requests have not ended; sleeps while none is ready.
    async fn until_ended(&mut self, tasks: &mut Tasks<impl Wait>, remaining_max: u64) {
        run_woken(tasks).await;
        while self.parked.saturating_sub(self.progress.ended()) > remaining_max {
            if W::CALLS_BACK {
                // The other thread may be waiting for a processor.
                std::thread::yield_now();
                yield_now().await;
            } else {
                std::future::poll_fn(|context| poll_woken(tasks, context)).await;
            }
        }
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // The row's name states its work.
    let work = Work {
        threads: if id.contains("-2t-") { 2 } else { 1 },
        keys: if id.ends_with("-3keys") { 3 } else { 1 },
        others: if id.contains("-1m-") {
            run.sizes.one_m
        } else {
            0
        },
        operations: run.sizes.operations as u64,
    };
    for _ in 0..run.sizes.rounds {
        run.each_form(id, "ns", waits!(park), work)?;
    }
    Ok(())
}
