//! `acks-all-…`: a produce with acks=all, until the high watermark of its partition has reached its
//! offset. Batches of one to eight produces go to random partitions of 64, at increasing offsets,
//! each with a timeout of 30 s. One advance of the high watermark completes a batch. The figure is
//! the time from the first produce until the last has ended, divided by their number. Rounds are
//! many and short, each with a new contender.
//!
//! On one thread (`1t`) a batch is parked, then completed. On two (`2t`) one thread produces and
//! awaits, the other advances, a window of 64 or a little more at a time. Each produce is a task,
//! polled again only once it was woken; a thread sleeps while it has nothing to do. The row needs
//! two free processors.
//!
//! `watermark-advance`: advances of one high watermark, by one offset each, while nothing waits. The
//! figure is for one advance.

use std::{
    ops::Range,
    sync::{Arc, mpsc},
};

use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::{
    arena::{Arena, Pending, TIMEOUT, begin, check_counts, warmed_up},
    tasks::{Tasks, run_until, run_woken},
};
use crate::{
    produces::{PARTITIONS, Produces, produces},
    request::{Progress, Request},
    rows::row::Run,
};

/// The maximum number of produces in a batch.
const BATCH_MAX: u64 = 8;
/// The number of produces that are parked, at least, before the other thread learns of them.
const WINDOW: u64 = 64;
/// The number of produces that may be pending while a thread goes on beside the other.
const AHEAD_MAX: usize = 512;

/// The produces of a round, and on how many threads: one or two.
#[derive(Clone, Copy)]
struct Producing {
    threads: usize,
    produces: u64,
}

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

    /// Appends a batch to a random partition, until there are no more.
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

/// Parks and awaits produces, on the first of two threads; returns the time at the end. Each window
/// of batches that wait is told to the other thread.
async fn produce_ahead<P: Produces>(
    waits: Arc<P>,
    partitions: &'static [Progress],
    mut logs: Logs,
    appended: mpsc::Sender<Vec<Batch>>,
) -> u64 {
    let mut tasks = Tasks::new();
    let clock = SystemClock::new();
    while logs.remaining > 0 {
        // Start a window of tasks.
        let mut window = Vec::new();
        let until = logs.remaining.saturating_sub(WINDOW);
        while logs.remaining > until
            && let Some(batch) = logs.append()
        {
            let progress = &partitions[batch.partition];
            for required in batch.offsets.clone() {
                let produce = Request { progress, required };
                tasks.push(waits.park(batch.partition, TIMEOUT, produce));
            }
            window.push(batch);
        }
        // A task parks its produce when it is first polled; then it may be completed.
        run_woken(&mut tasks).await;
        appended.send(window).expect("the other thread advances");
        run_until(&mut tasks, AHEAD_MAX).await;
    }
    run_until(&mut tasks, 0).await;
    clock.now_ns()
}

/// Advances high watermarks, on the second of two threads; sleeps while nothing is appended.
async fn advance<P: Produces>(
    waits: Arc<P>,
    partitions: &'static [Progress],
    appended: mpsc::Receiver<Vec<Batch>>,
) {
    for batch in appended.iter().flatten() {
        batch.advance(&*waits, partitions);
    }
}

/// Measures nanoseconds per produce, after a warm-up.
fn acks_all<P: Produces>(of: Producing) -> anyhow::Result<f64> {
    let arena = Arena::<P>::open(1)?;
    warmed_up(of.produces, |log_end, produces| {
        // Leaked, as requests of all contenders refer to it.
        let partitions: Box<[Progress]> = (0..PARTITIONS).map(|_| Progress::default()).collect();
        let partitions: &[Progress] = Box::leak(partitions);
        let waits = arena.waits.clone();
        let logs = Logs::new(log_end, produces);
        let ns = if of.threads == 1 {
            arena.join(arena.spawn(produce(waits, partitions, logs)))?
        } else {
            let (appended, waiting) = mpsc::channel();
            let advances = arena.thread(advance(waits.clone(), partitions, waiting));
            let producer = arena.thread(produce_ahead(waits, partitions, logs, appended));
            let ns = arena.join(producer)?;
            arena.join(advances)?;
            ns
        };

        let completed = partitions.iter().map(Progress::completed).sum();
        let ended = partitions.iter().map(Progress::ended).sum();
        check_counts::<P>(completed, ended, produces)?;
        arena.check_empty()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let of = Producing {
        threads: if id.ends_with("-2t") { 2 } else { 1 },
        produces: run.sizes.operations as u64,
    };
    // Twice the rounds, as they are short.
    for _ in 0..2 * run.sizes.rounds {
        for (form, contenders) in produces!(acks_all) {
            // On two threads a produce is a task, and a callback is none.
            if of.threads == 1 || form == "future" {
                run.each(&format!("{id}-{form}"), "ns", &contenders, of)?;
            }
        }
    }
    Ok(())
}

/// Measures nanoseconds per advance of one partition's high watermark, after a warm-up.
fn advances<P: Produces>(advances: u64) -> anyhow::Result<f64> {
    let arena = Arena::<P>::open(1)?;
    warmed_up(advances, |first, advances| {
        let clock = SystemClock::new();
        for offset in first..first + advances {
            arena.waits.advance(0, offset + 1);
        }
        Ok(clock.now_ns())
    })
}

pub(in crate::rows) fn run_advances(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let count = run.sizes.operations as u64;
    for _ in 0..2 * run.sizes.rounds {
        // The form of the waits makes no difference while there are none.
        for (form, contenders) in produces!(advances) {
            if form == "callback" {
                run.each(id, "ns", &contenders, count)?;
            }
        }
    }
    Ok(())
}
