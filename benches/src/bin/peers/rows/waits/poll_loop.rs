//! `poll-loop`: the time from the arrival of data to its answer. 256 long-poll fetches, each of a
//! partition of its own, wait at most half a second for their data, which arrives at a random
//! moment.
//!
//! The contender `poll-loop` has no purgatory: it checks, sleeps for half of the remaining time,
//! and checks again, until less than a millisecond remains.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use fastrand::Rng;
use hdrhistogram::Histogram;
use purgatory::{BoxedOperation, Purgatory};
use timer_core::{Clock, SystemClock, SystemTimer};
use tokio::{runtime::Builder, time::sleep};

use crate::{contender::Contender, results::OURS, rows::row::Run, sink::histogram};

const FETCHES: usize = 256;
const TIMEOUT: Duration = Duration::from_millis(500);
/// The latest arrival of data after its fetch.
const DATA_WITHIN_MS: u64 = 400;
/// The loop gives up when less time than this remains.
const LEAST: Duration = Duration::from_millis(1);
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// The storage of a partition: the moment at which data was appended, or 0 before that.
#[derive(Default)]
struct Partition(AtomicU64);

impl Partition {
    fn has_data(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Returns the condition of a fetch, as `Purgatory::wait` takes it.
    fn condition(partitions: Arc<[Partition]>, at: usize) -> impl FnMut() -> Option<()> + Send {
        move || {
            if partitions[at].has_data() {
                Some(())
            } else {
                None
            }
        }
    }
}

/// Polls until there is data; false when the time ran out.
async fn poll(partition: &Partition, clock: &SystemClock) -> bool {
    let end_ns = clock.now_ns() + TIMEOUT.as_nanos() as u64;
    loop {
        if partition.has_data() {
            return true;
        }
        // Sleep for half of the remaining time, ever shorter towards the end.
        let remaining = Duration::from_nanos(end_ns.saturating_sub(clock.now_ns()));
        if remaining < LEAST {
            return false;
        }
        sleep(remaining / 2).await;
    }
}

/// The storage, the clock and the way to wait that all fetches of a round share.
#[derive(Clone)]
struct Fetches {
    partitions: Arc<[Partition]>,
    clock: SystemClock,
    /// `None` in the polling loop.
    purgatory: Option<Purgatory<usize, BoxedOperation>>,
}

impl Fetches {
    /// Fetches from a partition; returns the moment of the answer, or `None` if none came in time.
    /// The data arrives after `arrival`.
    async fn fetch(self, at: usize, arrival: Duration) -> anyhow::Result<Option<u64>> {
        // Another task appends the data meanwhile.
        let appends = tokio::spawn(self.clone().append(at, arrival));
        let found = match &self.purgatory {
            None => poll(&self.partitions[at], &self.clock).await,
            Some(purgatory) => {
                let condition = Partition::condition(self.partitions.clone(), at);
                purgatory.wait(&[at], TIMEOUT, condition).await.is_ok()
            }
        };
        let answered_ns = self.clock.now_ns();
        appends.await?;
        Ok(if found { Some(answered_ns) } else { None })
    }

    /// Appends data to a partition, and signals it.
    async fn append(self, at: usize, arrival: Duration) {
        sleep(arrival).await;
        self.partitions[at]
            .0
            .store(self.clock.now_ns(), Ordering::Release);
        if let Some(purgatory) = &self.purgatory {
            purgatory.check_and_complete(&at);
        }
    }
}

/// Measures how late the answers are, in nanoseconds.
fn measure(purgatory: Option<Purgatory<usize, BoxedOperation>>) -> anyhow::Result<Histogram<u64>> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()?;
    let fetches = Fetches {
        partitions: (0..FETCHES).map(|_| Partition::default()).collect(),
        clock: SystemClock::new(),
        purgatory,
    };

    // Start all fetches.
    let mut random = Rng::with_seed(17);
    let mut tasks = Vec::with_capacity(FETCHES);
    for at in 0..FETCHES {
        let arrival = Duration::from_millis(random.u64(1..DATA_WITHIN_MS));
        tasks.push(runtime.spawn(fetches.clone().fetch(at, arrival)));
    }

    // Each fetch must be answered, however late.
    let mut late = histogram();
    for (task, partition) in tasks.into_iter().zip(&*fetches.partitions) {
        let answered_ns = runtime.block_on(task)??;
        let answered_ns = answered_ns.context("a fetch was given up though its data was there")?;
        let appended_ns = partition.0.load(Ordering::Relaxed);
        late.record(answered_ns.saturating_sub(appended_ns))?;
    }
    Ok(late)
}

fn ours(_work: ()) -> anyhow::Result<Histogram<u64>> {
    let timer = SystemTimer::new()?;
    measure(Some(Purgatory::builder("fetch").timer(&timer).build()?))
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = [
        Contender::new(OURS, ours),
        Contender::new("poll-loop", |()| measure(None)),
    ];
    // Rounds are in real time: half a second each.
    for _ in 0..run.sizes.rounds {
        run.turns(&contenders, (), |run, name, late| {
            run.quantiles_ms(&format!("{id}-late"), name, &late, &QUANTILES);
        })?;
    }
    Ok(())
}
