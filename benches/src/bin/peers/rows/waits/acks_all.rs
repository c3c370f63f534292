//! `acks-all-…`: a produce with acks=all, which waits until the high watermark of its partition has
//! reached its offset. Batches of one to eight produces go to random partitions of 64, at
//! increasing offsets, each with a timeout of 30 s. One advance of the high watermark completes a
//! batch. The figure is the time from the first produce until the last has ended, divided by their
//! number. Rounds are many and short, each with a new contender.
//!
//! On one thread (`1t`) a batch is parked, then completed.

use std::{
    collections::BTreeMap, future::poll_fn, ops::Range, sync::Arc, task::Poll, time::Duration,
};

use crossbeam_utils::CachePadded;
use fastrand::Rng;
use parking_lot::Mutex;
use purgatory::{Outcome, Watermarks};
use smallvec::SmallVec;
use timer_core::{Clock, SystemClock};

use super::arena::{Arena, Pending, TIMEOUT, begin, check_counts, warmed_up};
use crate::{
    contender::{Awaited, Peer, contenders},
    request::{Progress, Request, Wait},
    rows::row::Run,
    waits::{Oneshots, Waits},
};

/// The number of partitions.
const PARTITIONS: usize = 64;

/// A contender in which produces wait until the high watermark of their partition has reached their
/// offset. A produce is a [`Request`] that requires an offset.
///
/// They come in two forms: a callback, called by the thread that advances the high watermark, and a
/// future that is awaited.
trait Produces: Peer {
    /// Parks a produce to a partition. In the future form it waits once the future was polled, and
    /// [`Request::end`] is called before the future ends. In the callback form the future is ready
    /// at once.
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait;

    /// Completes the produces that the advanced high watermark of a partition has reached.
    fn advance(&self, partition: usize, high_watermark: u64);
}

/// The high watermarks of partitions.
impl Peer for Watermarks<u64> {
    fn start() -> anyhow::Result<Self> {
        Ok(Watermarks::new("ours")?)
    }

    fn remaining(&self) -> usize {
        let waits = self.waits();
        waits.len() + waits.keys()
    }
}

impl Produces for Watermarks<u64> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let then = move |outcome| produce.end(outcome == Outcome::Completed);
        _ = self
            .park(&(partition as u64), produce.required, timeout, then)
            .expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn advance(&self, partition: usize, high_watermark: u64) {
        _ = self
            .advance(&(partition as u64), high_watermark)
            .expect("a place for its value");
    }
}

impl Produces for Awaited<Watermarks<u64>> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let wait = (self.0).wait_for(&(partition as u64), produce.required, timeout);
        async move { produce.end(wait.await.is_ok()) }
    }

    fn advance(&self, partition: usize, high_watermark: u64) {
        Produces::advance(&self.0, partition, high_watermark);
    }
}

/// Produces that the high watermark has reached, to be ended after unlocking.
type Reached = SmallVec<[Request; 8]>;

/// The produces that wait for one partition, by offset and a number that makes the key unique.
#[derive(Default)]
struct Waiting {
    produces: BTreeMap<(u64, u64), Request>,
    number: u64,
    high_watermark: u64,
}

/// The hand-written callback: for each partition, a mutex over the high watermark and a `BTreeMap`
/// of waiting produces. It calls back without the lock. It has no timeouts, which favours it. Its
/// methods are inlined, in whichever codegen unit the compiler puts the rows.
struct Locked(Box<[CachePadded<Mutex<Waiting>>]>);

impl Peer for Locked {
    const NAME: &'static str = "btree-map";

    fn start() -> anyhow::Result<Self> {
        Ok(Locked(
            (0..PARTITIONS).map(|_| CachePadded::default()).collect(),
        ))
    }

    fn remaining(&self) -> usize {
        let produces = |partition: &CachePadded<Mutex<Waiting>>| partition.lock().produces.len();
        self.0.iter().map(produces).sum()
    }
}

impl Produces for Locked {
    #[inline]
    fn park(&self, partition: usize, _: Duration, produce: Request) -> impl Wait {
        // A produce up to the high watermark need not wait, and ends without the lock.
        let mut waiting = self.0[partition].lock();
        if produce.required > waiting.high_watermark {
            waiting.number += 1;
            let key = (produce.required, waiting.number);
            waiting.produces.insert(key, produce);
        } else {
            drop(waiting);
            produce.end(true);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    #[inline]
    fn advance(&self, partition: usize, high_watermark: u64) {
        // Under the lock: remove the produces that are reached.
        let mut reached = Reached::new();
        let mut waiting = self.0[partition].lock();
        waiting.high_watermark = waiting.high_watermark.max(high_watermark);
        while let Some(first) = waiting.produces.first_entry()
            && first.key().0 <= high_watermark
        {
            reached.push(first.remove());
        }
        drop(waiting);

        // Without the lock: call back.
        for produce in reached {
            produce.end(true);
        }
    }
}

/// A partition's whole list is removed: no produce waits beyond the high watermark.
impl Produces for Oneshots {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        Waits::park(self, [partition as u64], timeout, produce)
    }

    fn advance(&self, partition: usize, _: u64) {
        self.signal(partition as u64);
    }
}

/// The maximum number of produces in a batch.
const BATCH_MAX: u64 = 8;

/// The logs of all partitions, to which batches are appended.
struct Logs {
    random: Rng,
    ends: [u64; PARTITIONS],
    remaining: u64,
}

/// Produces appended to one partition, by their offsets.
struct Batch {
    partition: usize,
    offsets: Range<u64>,
}

impl Logs {
    /// Creates logs that all end at `log_end`, to which `produces` produces are appended.
    fn new(log_end: u64, produces: u64) -> Self {
        Logs {
            random: Rng::with_seed(1),
            ends: [log_end; PARTITIONS],
            remaining: produces,
        }
    }

    /// Appends a batch to a random partition; returns `None` after the last produce.
    fn append(&mut self) -> Option<Batch> {
        let partition = self.random.usize(0..PARTITIONS);
        let batch = self.random.u64(1..=BATCH_MAX).min(self.remaining);
        self.remaining -= batch;
        let first = self.ends[partition] + 1;
        self.ends[partition] += batch;
        let offsets = first..first + batch;
        if offsets.is_empty() {
            None
        } else {
            Some(Batch { partition, offsets })
        }
    }
}

impl Batch {
    /// Advances the high watermark of the partition to the log's end, which completes the batch.
    fn advance<P: Produces>(&self, waits: &P, partitions: &[Progress]) {
        let log_end = self.offsets.end - 1;
        partitions[self.partition].reach(log_end);
        waits.advance(self.partition, log_end);
    }
}

/// Parks and completes produces, a batch at a time; returns the time at the end.
async fn produce<P: Produces>(
    waits: Arc<P>,
    partitions: &'static [Progress],
    mut logs: Logs,
) -> u64 {
    let mut pending = Pending::new();
    let clock = SystemClock::new();
    while let Some(batch) = logs.append() {
        let progress = &partitions[batch.partition];
        for required in batch.offsets.clone() {
            let wait = waits.park(batch.partition, TIMEOUT, Request { progress, required });
            begin(Box::pin(wait), &mut pending).await;
        }
        batch.advance(&*waits, partitions);
        for wait in pending.drain(..) {
            wait.await;
        }
    }
    clock.now_ns()
}

/// Measures nanoseconds per produce, after a warm-up.
fn acks_all<P: Produces>(produces: u64) -> anyhow::Result<f64> {
    let arena = Arena::<P>::open(1)?;
    warmed_up(produces, |log_end, produces| {
        // Never freed, since requests of all contenders refer to it.
        let partitions: Box<[Progress]> = (0..PARTITIONS).map(|_| Progress::default()).collect();
        let partitions: &[Progress] = Box::leak(partitions);
        let waits = arena.waits.clone();
        let logs = Logs::new(log_end, produces);
        let ns = arena.join(arena.spawn(produce(waits, partitions, logs)))?;

        let completed = partitions.iter().map(Progress::completed).sum();
        let ended = partitions.iter().map(Progress::ended).sum();
        check_counts::<P>(completed, ended, produces)?;
        arena.check_empty()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let count = run.sizes.operations as u64;
    // Rounds are short: do twice as many.
    for _ in 0..2 * run.sizes.rounds {
        let callbacks = contenders!(acks_all, Peer: Watermarks<u64>, Locked);
        run.each(&format!("{id}-callback"), "ns", &callbacks, count)?;
        let futures = contenders!(acks_all, Peer: Awaited<Watermarks<u64>>, Oneshots);
        run.each(&format!("{id}-future"), "ns", &futures, count)?;
    }
    Ok(())
}
