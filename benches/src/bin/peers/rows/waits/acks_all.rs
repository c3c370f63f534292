//! `acks-all-…`: a produce with acks=all, until the high watermark of its partition has reached its
//! offset. There are 64 partitions; batches of one to eight produces go to random ones, at offsets
//! that rise, each with a time-out of 30 s; one raise of the high watermark completes a batch.
//!
//! On one thread (`1t`) a batch is parked, then raised. On two (`2t`) one thread parks and hands
//! each batch over to the other, which raises it; no more than 512 batches are handed over and not
//! yet taken, 4096 produces. Both give way while they have nothing to do. What is measured is the
//! time from the first produce until the last is over, by the number of produces, so 1000 divided
//! by it is millions a second. It takes two processors that are free.
//!
//! Two threads that contend are in lockstep or are not, at a different speed, and stay so for a
//! while: rounds are many and short, each with new threads and a new contender.
//!
//! `…-callback` compares what calls back, on the thread that raises; `…-future` what is awaited, by
//! the thread that parks. The floor is a lock pair and a clock read to park, and a lock pair a
//! batch to raise, the latter on one thread only: on two the thread that parks has more to do.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::ensure;
use crossbeam_utils::Backoff;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::room::{Pending, Room, TIMEOUT, begin, poll_once, warmed_up};
use crate::{
    floor,
    produces::{PARTITIONS, Partition, Produce, Produces, produces},
    rows::row::Run,
};

/// Produces in a batch, at most and in the mean.
const BATCH_MAX: u64 = 8;
const BATCH_MEAN: f64 = (1 + BATCH_MAX) as f64 / 2.0;
/// Batches on their way from one thread to the other.
const HANDED_OVER_MAX: usize = 512;
/// Futures that the thread that parks leaves alone before it waits for the first.
const PENDING_MAX: usize = HANDED_OVER_MAX * BATCH_MAX as usize / 2;

/// One contender's round.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcksAll {
    pub(super) threads: usize,
    pub(super) produces: u64,
    /// A batch is handed over before it is parked and not after: a race, to be won by nobody.
    pub(super) early: bool,
}

/// Consecutive offsets of one partition.
#[derive(Clone, Copy)]
struct Batch {
    partition: usize,
    first: u64,
    last: u64,
}

/// What is produced: batches to random partitions.
struct Producer {
    random: Rng,
    log_ends: [u64; PARTITIONS],
}

impl Producer {
    /// All partitions end at `log_end`.
    fn new(log_end: u64) -> Self {
        Producer { random: Rng::with_seed(1), log_ends: [log_end; PARTITIONS] }
    }

    fn next(&mut self, produces_max: u64) -> Batch {
        let partition = self.random.usize(0..PARTITIONS);
        let produces = self.random.u64(1..=BATCH_MAX).min(produces_max);
        let log_end = &mut self.log_ends[partition];
        let first = *log_end + 1;
        *log_end += produces;
        Batch { partition, first, last: *log_end }
    }
}

/// A ring for one thread that puts in and one that takes out: what is to be raised. A slot holds an
/// offset and a partition in one word, and 0 when it is free.
struct HandOver([AtomicU64; HANDED_OVER_MAX]);

impl HandOver {
    fn new() -> Self {
        HandOver([const { AtomicU64::new(0) }; HANDED_OVER_MAX])
    }

    /// Puts in the batch of this number, once there is room.
    fn put(&self, number: usize, batch: Batch) {
        let (slot, backoff) = (&self.0[number % HANDED_OVER_MAX], Backoff::new());
        while slot.load(Ordering::Acquire) != 0 {
            backoff.snooze();
        }
        slot.store(batch.last * PARTITIONS as u64 + batch.partition as u64, Ordering::Release);
    }

    /// Takes out the batch of this number, once it is there: partition and offset.
    fn take(&self, number: usize) -> (usize, u64) {
        let (slot, backoff) = (&self.0[number % HANDED_OVER_MAX], Backoff::new());
        loop {
            match slot.load(Ordering::Acquire) {
                0 => backoff.snooze(),
                word => {
                    slot.store(0, Ordering::Release);
                    let partitions = PARTITIONS as u64;
                    return ((word % partitions) as usize, word / partitions);
                }
            }
        }
    }
}

/// A contender at work.
struct Work<P> {
    waits: Arc<P>,
    partitions: &'static [Partition],
    /// Where all of them end.
    log_end: u64,
    clock: SystemClock,
}

/// The moments at which a thread began and was done.
type Span = (u64, u64);

impl<P: Produces> Work<P> {
    async fn park<'a>(&'a self, batch: Batch, pending: &mut Pending<'a>) {
        for offset in batch.first..=batch.last {
            let produce = Produce { partition: &self.partitions[batch.partition], offset };
            begin(Box::pin(self.waits.park(batch.partition, TIMEOUT, produce)), pending).await;
        }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.partitions[partition].reach(high_watermark);
        self.waits.raise(partition, high_watermark);
    }

    async fn alone(self, produces: u64) -> Span {
        let (mut producer, mut pending, mut parked) =
            (Producer::new(self.log_end), Pending::new(), 0);
        let begin_ns = self.clock.now_ns();
        while parked < produces {
            let batch = producer.next(produces - parked);
            parked += batch.last + 1 - batch.first;
            self.park(batch, &mut pending).await;
            self.raise(batch.partition, batch.last);
            for wait in pending.drain(..) {
                wait.await;
            }
        }
        (begin_ns, self.clock.now_ns())
    }

    async fn parker(self, produces: u64, hand_over: &HandOver, early: bool) -> Span {
        let (mut producer, mut pending, mut parked) =
            (Producer::new(self.log_end), Pending::new(), 0);
        let begin_ns = self.clock.now_ns();
        for number in 0.. {
            if parked == produces {
                break;
            }
            let batch = producer.next(produces - parked);
            parked += batch.last + 1 - batch.first;
            if early {
                hand_over.put(number, batch);
            }
            self.park(batch, &mut pending).await;
            if !early {
                hand_over.put(number, batch);
            }
            until_over(&mut pending, PENDING_MAX).await;
        }
        until_over(&mut pending, 0).await;
        (begin_ns, self.clock.now_ns())
    }

    fn raiser(self, produces: u64, hand_over: &HandOver) -> Span {
        let (mut raised, mut high_watermarks) = (0, [self.log_end; PARTITIONS]);
        let begin_ns = self.clock.now_ns();
        for number in 0.. {
            if raised == produces {
                break;
            }
            let (partition, high_watermark) = hand_over.take(number);
            self.raise(partition, high_watermark);
            raised += high_watermark - high_watermarks[partition];
            high_watermarks[partition] = high_watermark;
        }
        (begin_ns, self.clock.now_ns())
    }
}

/// Waits until so many pend at most. The thread does not sleep, or it would be woken by the other
/// on that one's processor.
async fn until_over(pending: &mut Pending<'_>, may_pend: usize) {
    let backoff = Backoff::new();
    while pending.len() > may_pend {
        if poll_once(pending[0].as_mut()).await.is_pending() {
            backoff.snooze();
        } else {
            pending.pop_front();
            backoff.reset();
        }
    }
}

impl AcksAll {
    /// Nanoseconds from the first produce until the last is over.
    fn work<P: Produces>(self, room: &Room<P>, log_end: u64, produces: u64) -> anyhow::Result<u64> {
        let early = self.early;
        let (partitions, clock) = (Partition::leaked(), SystemClock::new());
        let work = || Work { waits: room.waits.clone(), partitions, log_end, clock };
        let spans = if self.threads == 1 {
            let work = work();
            let span = room.join(room.spawn(async move { work.alone(produces).await }))?;
            (span, span)
        } else {
            let (parks, raises, hand_over) = (work(), work(), Arc::new(HandOver::new()));
            let hands_over = hand_over.clone();
            room.both(
                async move { parks.parker(produces, &hands_over, early).await },
                async move { raises.raiser(produces, &hand_over) },
            )?
        };
        let ((a_begins, a_ends), (b_begins, b_ends)) = spans;
        let completed: u64 = partitions.iter().map(Partition::completed).sum();
        let ended: u64 = partitions.iter().map(Partition::ended).sum();
        ensure!(
            (completed, ended) == (produces, produces),
            "{}: {completed} completed and {} given up of {produces}",
            P::NAME,
            ended - completed,
        );
        room.nothing_left()?;
        Ok(a_ends.max(b_ends) - a_begins.min(b_begins))
    }
}

/// Nanoseconds a produce, after a warm-up.
pub(super) fn acks_all<P: Produces>(row: AcksAll) -> anyhow::Result<f64> {
    let room = Room::<P>::open(1)?;
    warmed_up(row.produces, |log_end, produces| row.work(&room, log_end, produces))
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let operations = run.sizes.operations;
    let (threads, raised_with) =
        if id.ends_with("-2t") { (2, f64::INFINITY) } else { (1, BATCH_MEAN) };
    let row = AcksAll { threads, produces: operations as u64, early: false };
    for round in 0..run.sizes.short_rounds {
        for (form, contenders) in produces!(acks_all) {
            let measure = format!("{id}-{form}");
            run.each(&measure, "ns", round, &contenders, row)?;
            let floor = floor::acks_all(raised_with, operations);
            run.floor(&measure, "ns", floor + floor::of_form(form, operations));
        }
    }
    Ok(())
}
