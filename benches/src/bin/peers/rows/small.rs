//! `bytes-idle`, `bytes-100` and `make-drop`: the cost of each form while little or nothing waits,
//! for a program that makes one instance for each tenant or timeline. All instances have the
//! default settings and share one timer, which exists before.
//!
//! `bytes-idle` is the heap that an instance takes; `bytes-100`, with 100 waits under keys of their
//! own, each with 250 bytes in its operation or boxed future. `make-drop` is the time to make and
//! drop an instance, and `make-drop-…-allocations` the number of allocations meanwhile. The peers
//! are hand-written: a map of oneshots, in a `DashMap` or, as in a program that makes many of them,
//! behind one lock; for permits, tokio's semaphore.

use std::{collections::HashMap, pin::Pin, time::Duration};

use anyhow::ensure;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use purgatory::{Permits, Purgatory, Replies, Watermarks, when};
use timer_core::{Clock, SystemClock, SystemTimer};
use tokio::sync::{Semaphore, oneshot};

use super::row::Run;
use crate::{contender::contenders, heap::counted, results::OURS};

/// The number of requests that wait in `bytes-100`.
const WAITS: u64 = 100;
/// The payload of each request.
const PAYLOAD: [u8; 250] = [1; 250];
/// A timeout that does not expire meanwhile.
const LONG: Duration = Duration::from_secs(30);

/// A pending wait, with its payload.
type Pending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A form, or its hand-written peer.
trait Small: Sized {
    /// The name in the output.
    const NAME: &'static str = OURS;

    /// Makes an instance.
    fn make(timer: &SystemTimer) -> anyhow::Result<Self>;

    /// Makes a request wait under a key of its own. Returns `None` if the instance holds all of it,
    /// as an operation.
    fn wait(&self, number: u64) -> Option<Pending>;
}

/// Keeps a payload until the request's wait is over.
fn with_payload(wait: impl Future<Output: Send> + Send + 'static) -> Option<Pending> {
    let payload = PAYLOAD;
    Some(Box::pin(async move {
        let _ = wait.await;
        assert_eq!(payload[0], 1);
    }))
}

/// A purgatory of operations.
struct Callbacks(Purgatory<u64>);
/// A purgatory whose waits are futures.
struct Futures(Purgatory<u64>);

impl Small for Callbacks {
    fn make(timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Callbacks(Purgatory::builder("small").timer(timer).build()?))
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        let payload = PAYLOAD;
        let operation = when(|| false, move |_| assert_eq!(payload[0], 1));
        let parked = self.0.try_complete_else_watch(operation, &[number], LONG);
        parked.expect("a free slot");
        None
    }
}

impl Small for Futures {
    fn make(timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Futures(Purgatory::builder("small").timer(timer).build()?))
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        with_payload(self.0.wait(&[number], LONG, || None::<()>))
    }
}

impl Small for Watermarks<u64> {
    fn make(timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Watermarks::builder("small").timer(timer).build()?)
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        with_payload(self.wait_for(&number, 1, LONG))
    }
}

impl Small for Replies<u64, u64> {
    fn make(timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Replies::builder("small").timer(timer).build()?)
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        with_payload(self.expect(number, LONG).expect("a free key"))
    }
}

impl Small for Permits {
    fn make(timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Permits::builder("small").timer(timer).limit(0).build()?)
    }

    fn wait(&self, _number: u64) -> Option<Pending> {
        with_payload(self.acquire(1, LONG))
    }
}

/// A map of senders, by key, with a lock for each of its shards.
struct Oneshots(std::sync::Arc<DashMap<u64, oneshot::Sender<()>, RandomState>>);

impl Small for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn make(_timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Oneshots(std::sync::Arc::default()))
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        let (sender, receiver) = oneshot::channel();
        self.0.insert(number, sender);
        with_payload(receiver)
    }
}

/// A map of senders, by key, behind one lock.
struct Locked(std::sync::Arc<Mutex<HashMap<u64, oneshot::Sender<()>, RandomState>>>);

impl Small for Locked {
    const NAME: &'static str = "mutex-oneshot";

    fn make(_timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Locked(std::sync::Arc::default()))
    }

    fn wait(&self, number: u64) -> Option<Pending> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().insert(number, sender);
        with_payload(receiver)
    }
}

/// tokio's semaphore, without a permit.
struct Queue(std::sync::Arc<Semaphore>);

impl Small for Queue {
    const NAME: &'static str = "tokio-semaphore";

    fn make(_timer: &SystemTimer) -> anyhow::Result<Self> {
        Ok(Queue(std::sync::Arc::new(Semaphore::new(0))))
    }

    fn wait(&self, _number: u64) -> Option<Pending> {
        let semaphore = self.0.clone();
        with_payload(async move { semaphore.acquire_owned().await })
    }
}

/// Measures the heap that an instance takes with this many waits.
fn bytes<S: Small>(waits: u64) -> anyhow::Result<f64> {
    let timer = SystemTimer::new()?;
    // The first instance allocates the timer's own list of owners.
    drop(S::make(&timer)?);
    let mut pending = Vec::with_capacity(waits as usize);
    let mut made = None;
    let counted = counted(|| {
        let small = S::make(&timer);
        if let Ok(small) = &small {
            pending.extend((0..waits).filter_map(|number| small.wait(number)));
            // A future waits once it has been polled.
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            for wait in &mut pending {
                assert!(wait.as_mut().poll(&mut context).is_pending());
            }
        }
        made = Some(small);
    });
    let is_made = made.is_some_and(|made| made.is_ok());
    ensure!(is_made, "{} was not made", S::NAME);
    Ok(counted.bytes)
}

/// Measures nanoseconds to make an instance and drop it.
fn make_drop<S: Small>(count: usize) -> anyhow::Result<f64> {
    let timer = SystemTimer::new()?;
    drop(S::make(&timer)?);
    let clock = SystemClock::new();
    let begin_ns = clock.now_ns();
    for _ in 0..count {
        drop(S::make(&timer)?);
    }
    Ok((clock.now_ns() - begin_ns) as f64 / count as f64)
}

/// Counts the allocations for making an instance and dropping it: the mean of many.
fn allocations<S: Small>(count: usize) -> anyhow::Result<f64> {
    let timer = SystemTimer::new()?;
    let mut made = 0;
    let counted = counted(|| {
        made = (0..count).filter(|_| S::make(&timer).is_ok()).count();
    });
    ensure!(made == count, "{} was not made", S::NAME);
    Ok(counted.allocations / count as f64)
}

/// Lists the contenders of each form, for one function.
macro_rules! forms {
    ($measure:ident) => {
        [
            ("callback", contenders!($measure, Small: Callbacks, Oneshots, Locked)),
            ("future", contenders!($measure, Small: Futures, Oneshots, Locked)),
            ("watermarks", contenders!($measure, Small: Watermarks<u64>, Oneshots, Locked)),
            ("replies", contenders!($measure, Small: Replies<u64, u64>, Oneshots, Locked)),
            ("permits", contenders!($measure, Small: Permits, Queue)),
        ]
    };
}

pub(super) fn run_bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let waits = if id == "bytes-idle" { 0 } else { WAITS };
    run.each_form(id, "bytes", forms!(bytes), waits)
}

pub(super) fn run_make_drop(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let count = run.sizes.operations;
    for _ in 0..run.sizes.rounds {
        run.each_form(id, "ns", forms!(make_drop), count)?;
    }
    Ok(())
}

pub(super) fn run_allocations(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // Each of 1000 is dropped before the next is made, so the allocations for the timer's own list
    // hardly count.
    run.each_form(id, "allocations", forms!(allocations), 1000)
}
