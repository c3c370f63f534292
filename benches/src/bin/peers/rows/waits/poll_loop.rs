//! `poll-loop`: how long an answer takes after its data is there. 256 long-poll fetches, each of a
//! partition of its own, wait at most half a second for their data, which comes at a random moment.
//!
//! The contender `poll-loop` has no purgatory: it looks, sleeps for half of the time that is left,
//! and looks again until less than a millisecond is left.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use fastrand::Rng;
use hdrhistogram::Histogram;
use purgatory::{BoxedOperation, Purgatory};
use timer_core::{Clock, SystemClock, SystemTimer};
use tokio::{runtime::Builder, time::sleep};

use crate::{contender::Contender, results::OURS, rows::row::Run, sink::histogram};

const FETCHES: usize = 256;
const TIMEOUT: Duration = Duration::from_millis(500);
/// Data comes at the latest so long after its fetch.
const DATA_WITHIN_MS: u64 = 400;
/// With less time left than this the loop gives up.
const LEAST: Duration = Duration::from_millis(1);
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// A partition's storage: when data was appended, 0 while there is none.
#[derive(Default)]
struct Partition(AtomicU64);

impl Partition {
    fn look(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// The loop. False when its time ran out.
async fn poll(partition: &Partition, clock: &SystemClock) -> bool {
    let end_ns = clock.now_ns() + TIMEOUT.as_nanos() as u64;
    loop {
        if partition.look() {
            return true;
        }
        let left = Duration::from_nanos(end_ns.saturating_sub(clock.now_ns()));
        if left < LEAST {
            return false;
        }
        sleep(left / 2).await;
    }
}

/// How late the answers are.
fn measure(purgatory: Option<Purgatory<usize, BoxedOperation>>) -> anyhow::Result<Histogram<u64>> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()?;
    let clock = SystemClock::new();
    let partitions: Arc<[Partition]> = (0..FETCHES).map(|_| Partition::default()).collect();
    let mut random = Rng::with_seed(17);
    let fetches = (0..FETCHES).map(|at| {
        let (partitions, purgatory) = (partitions.clone(), purgatory.clone());
        let data_ms = random.u64(1..DATA_WITHIN_MS);
        async move {
            let (storage, raises) = (partitions.clone(), purgatory.clone());
            let appends = tokio::spawn(async move {
                sleep(Duration::from_millis(data_ms)).await;
                storage[at].0.store(clock.now_ns(), Ordering::Release);
                raises
                    .into_iter()
                    .for_each(|raises| _ = raises.check_and_complete(&at));
            });
            let found = match &purgatory {
                None => poll(&partitions[at], &clock).await,
                Some(purgatory) => {
                    let storage = partitions.clone();
                    let data = move || storage[at].look().then_some(());
                    purgatory.wait(&[at], TIMEOUT, data).await.is_ok()
                }
            };
            let answered_ns = clock.now_ns();
            appends.await.map(|()| found.then_some(answered_ns))
        }
    });
    let fetches: Vec<_> = fetches.map(|fetch| runtime.spawn(fetch)).collect();
    let mut late = histogram();
    for (fetch, partition) in fetches.into_iter().zip(&*partitions) {
        let answered_ns = runtime.block_on(fetch)??;
        ensure!(
            answered_ns.is_some(),
            "a fetch was given up though its data was there"
        );
        let appended_ns = partition.0.load(Ordering::Relaxed);
        late.record(answered_ns.unwrap_or_default().saturating_sub(appended_ns))?;
    }
    Ok(late)
}

fn ours((): ()) -> anyhow::Result<Histogram<u64>> {
    measure(Some(
        Purgatory::builder("fetch")
            .timer(&SystemTimer::new()?)
            .build()?,
    ))
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = [
        Contender {
            name: OURS,
            measure: ours,
        },
        Contender {
            name: "poll-loop",
            measure: |()| measure(None),
        },
    ];
    for _ in 0..run.sizes.rounds {
        run.turns(&contenders, (), |run, name, late| {
            run.quantiles_ms(&format!("{id}-late"), name, &late, &QUANTILES);
        })?;
    }
    Ok(())
}
