//! `acks-all-1t`: a produce with acks=all, until the high watermark of its partition has reached
//! its offset. Batches of one to eight produces go to random ones of 64 partitions, at offsets that
//! rise, each with a time-out of 30 s. A batch is parked, and one raise of the high watermark
//! completes it. The time is from the first produce until the last is over, by the number
//! of produces. Rounds are many and short, each with a new contender.
//!
//! `hot-key`: an event on a key for which 10 000 requests wait, none of them ready. It is over when
//! each was checked and waits again. A future that the event wakes checks in a task of its own.
//!
//! `bytes-per-parked-…`: heap in use while a million requests of 16 bytes are parked under random
//! keys of a thousand, one each or three, divided by their number. A future counts in its box, as
//! in a task of its own, but without the task.

use std::sync::Arc;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::arena::{
    Arena, HOUR, Pending, TIMEOUT, all_completed, begin, complete_all, park_all, warmed_up,
};
use crate::{
    produces::{PARTITIONS, Produces, produces},
    request::{Progress, Request},
    rows::row::Run,
    waits::{Waits, waits},
};

/// Produces in a batch, at most.
const BATCH_MAX: u64 = 8;

/// Parks and completes `produces` to partitions that all end at `log_end`; returns the time at the
/// end.
async fn produce<P: Produces>(
    waits: Arc<P>,
    partitions: &'static [Progress],
    log_end: u64,
    produces: u64,
) -> u64 {
    let (mut random, mut log_ends) = (Rng::with_seed(1), [log_end; PARTITIONS]);
    let (clock, mut pending, mut parked) = (SystemClock::new(), Pending::new(), 0);
    while parked < produces {
        let partition = random.usize(0..PARTITIONS);
        let batch = random.u64(1..=BATCH_MAX).min(produces - parked);
        parked += batch;
        let (progress, first) = (&partitions[partition], log_ends[partition] + 1);
        log_ends[partition] += batch;
        for required in first..first + batch {
            let produce = Request { progress, required };
            begin(
                Box::pin(waits.park(partition, TIMEOUT, produce)),
                &mut pending,
            )
            .await;
        }
        progress.reach(log_ends[partition]);
        waits.raise(partition, log_ends[partition]);
        for wait in pending.drain(..) {
            wait.await;
        }
    }
    clock.now_ns()
}

/// Nanoseconds a produce, after a warm-up.
fn acks_all<P: Produces>(produces: u64) -> anyhow::Result<f64> {
    let arena = Arena::<P>::open(1)?;
    warmed_up(produces, |log_end, produces| {
        let partitions: &[Progress] =
            Box::leak((0..PARTITIONS).map(|_| Progress::default()).collect());
        let ns =
            arena.join(arena.spawn(produce(arena.waits.clone(), partitions, log_end, produces)))?;
        let completed: u64 = partitions.iter().map(Progress::completed).sum();
        let ended: u64 = partitions.iter().map(Progress::ended).sum();
        ensure!(
            (completed, ended) == (produces, produces),
            "{}: {completed} completed and {} given up of {produces}",
            P::NAME,
            ended - completed,
        );
        arena.nothing_left()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn acks_all_1t(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let produces = run.sizes.operations as u64;
    for _ in 0..2 * run.sizes.rounds {
        for (form, contenders) in produces!(acks_all) {
            run.each(&format!("{id}-{form}"), "ns", &contenders, produces)?;
        }
    }
    Ok(())
}

/// The number of waiting requests; fewer in tests, which are not optimised.
const HOT: usize = if cfg!(test) { 20 } else { 10_000 };
/// Events a round.
const EVENTS: u64 = if cfg!(test) { 2 } else { 100 };
/// The key that they wait for.
const KEY: u64 = 7;

/// Microseconds an event.
pub(super) fn hot_key<W: Waits>(requests: usize) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(1)?;
    let request = Request {
        progress: Progress::leaked(),
        required: 1,
    };
    let progress = request.progress;
    let park = |_| {
        let waits = arena.waits.clone();
        arena.spawn(async move { waits.park([KEY], HOUR, request).await })
    };
    let tasks: Vec<_> = (0..requests).map(park).collect();
    let (waits, looks) = (arena.waits.clone(), requests as u64 * W::LOOKS);
    let raises = arena.spawn(async move {
        let looked = async |looks| {
            while progress.looks() < looks {
                yield_now().await;
            }
        };
        looked(looks).await;
        let (clock, before) = (SystemClock::new(), progress.looks());
        let begin = clock.now_ns();
        for event in 1..=EVENTS {
            waits.event(KEY);
            looked(before + event * looks).await;
        }
        let spent = clock.now_ns() - begin;
        progress.reach(1);
        waits.event(KEY);
        spent as f64 / 1e3 / EVENTS as f64
    });
    let us = arena.join(raises)?;
    tasks.into_iter().try_for_each(|task| arena.join(task))?;
    all_completed::<W>(progress, requests as u64)?;
    arena.nothing_left()?;
    Ok(us)
}

pub(in crate::rows) fn hot_keys(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    for _ in 0..run.sizes.rounds {
        for (form, contenders) in waits!(hot_key) {
            run.each(&format!("{id}-{form}"), "us an event", &contenders, HOT)?;
        }
    }
    Ok(())
}

/// Bytes a request.
fn parked<W: Waits, const K: usize>(requests: usize) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(1)?;
    let request = Request {
        progress: Progress::leaked(),
        required: 1,
    };
    let mut pending = Pending::with_capacity(requests);
    let counted = allocation_counter::measure(|| {
        arena.block_on(park_all::<W, K>(
            &*arena.waits,
            request,
            0,
            &mut pending,
            requests,
        ));
    });
    ensure!(
        request.progress.ended() == 0,
        "{}: a parked request had gone",
        W::NAME
    );
    arena.block_on(complete_all(&*arena.waits, request, 0, pending, requests))?;
    arena.nothing_left()?;
    Ok(counted.bytes_current as f64 / requests as f64)
}

pub(super) fn parked_under<W: Waits>((requests, keys): (usize, usize)) -> anyhow::Result<f64> {
    if keys == 1 {
        parked::<W, 1>(requests)
    } else {
        parked::<W, 3>(requests)
    }
}

pub(in crate::rows) fn bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let of = (run.sizes.one_m, if id.ends_with("-3keys") { 3 } else { 1 });
    for (form, contenders) in waits!(parked_under) {
        run.each(&format!("{id}-{form}"), "bytes", &contenders, of)?;
    }
    Ok(())
}
