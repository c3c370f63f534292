//! What one event takes.
//!
//! `hot-key`: an event on a key for which 10 000 requests wait, none of them ready: until each was
//! looked at, and waits again. A future that is told by the event looks in a task of its own. The
//! floor is to write to each request's memory.
//!
//! `event-tail`: how long an event takes that completes a request, from the call until the request
//! has said that it is over, while another thread parks and completes under the same thousand
//! keys. Two clock reads are in it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fastrand::Rng;
use hdrhistogram::Histogram;
use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::room::{HOUR, Keys, Room, TIMEOUT, all_completed, poll_once};
use crate::{
    floor,
    request::{Progress, Request},
    rows::row::Run,
    sink::histogram,
    waits::{Waits, waits},
};

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
/// So many wait in `hot-key`; fewer in tests, which are not optimised.
const HOT: usize = if cfg!(test) { 20 } else { 10_000 };
/// What they wait for.
const KEY: u64 = 7;

/// Microseconds an event.
pub(super) fn hot_key<W: Waits>((requests, events): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<W>::open(1)?;
    let request = Request { progress: Progress::leaked(), required: 1 };
    let progress = request.progress;
    let park = |_| {
        let waits = room.waits.clone();
        room.spawn(async move { waits.park([KEY], HOUR, request).await })
    };
    let tasks: Vec<_> = (0..requests).map(park).collect();
    let (waits, looks) = (room.waits.clone(), requests as u64 * W::LOOKS);
    let raises = room.spawn(async move {
        let looked = async |looks| {
            while progress.looks() < looks {
                yield_now().await;
            }
        };
        looked(looks).await;
        waits.settle().await;
        let (clock, before) = (SystemClock::new(), progress.looks());
        let begin = clock.now_ns();
        for event in 1..=events {
            waits.event(KEY);
            looked(before + event * looks).await;
        }
        let spent = clock.now_ns() - begin;
        progress.reach(1);
        waits.event(KEY);
        spent as f64 / 1e3 / events as f64
    });
    let us = room.join(raises)?;
    tasks.into_iter().try_for_each(|task| room.join(task))?;
    all_completed::<W>(progress, requests as u64)?;
    room.nothing_left()?;
    Ok(us)
}

pub(in crate::rows) fn hot_keys(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (hot, events) = (HOT, run.sizes.hot_events);
    for round in 0..run.sizes.rounds {
        for (form, contenders) in waits!(hot_key) {
            let measure = format!("{id}-{form}");
            run.each(&measure, "us an event", round, &contenders, (hot, events))?;
            run.floor(&measure, "us an event", floor::random_node(hot, hot) * hot as f64 / 1e3);
        }
    }
    Ok(())
}

/// Parks a request and completes it; nanoseconds of the latter.
async fn once<W: Waits>(waits: &W, request: Request, key: u64, clock: SystemClock) -> u64 {
    let mut wait = pin!(waits.park([key], TIMEOUT, request));
    let parked = poll_once(wait.as_mut()).await;
    waits.settle().await;
    request.progress.reach(request.required);
    let begin = clock.now_ns();
    waits.event(key);
    if parked.is_pending() {
        wait.await;
    }
    clock.now_ns() - begin
}

/// Nanoseconds an event took, of so many.
pub(super) fn tail<W: Waits>(events: u64) -> anyhow::Result<Histogram<u64>> {
    let room = Room::<W>::open(2)?;
    let stop = Arc::new(AtomicBool::new(false));
    let work = |seed: u64, events: u64| {
        let (waits, stop) = (room.waits.clone(), stop.clone());
        async move {
            let mut keys = Keys::Random(Rng::with_seed(seed), 0);
            let (clock, progress) = (SystemClock::new(), Progress::leaked());
            let (mut took, mut required) = (histogram(), 0);
            while required < events && !stop.load(Relaxed) {
                required += 1;
                let [key] = keys.next();
                let request = Request { progress, required };
                took.saturating_record(once(&*waits, request, key, clock).await);
                yield_now().await; // the other may have been woken on this worker
            }
            stop.store(true, Relaxed);
            all_completed::<W>(progress, required).map(|()| took)
        }
    };
    let (measured, load) = room.both(work(1, events), work(2, u64::MAX))?;
    load?;
    room.nothing_left()?;
    measured
}

pub(in crate::rows) fn tails(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let events = run.sizes.operations as u64;
    for round in 0..run.sizes.rounds {
        for (form, contenders) in waits!(tail) {
            run.turns(id, round, &contenders, events, |run, name, took| {
                for (quantile, share) in QUANTILES {
                    let ns = took.value_at_quantile(share) as f64;
                    run.add(&format!("{id}-{form}-{quantile}"), "ns", name, ns);
                }
            })?;
        }
    }
    Ok(())
}
