//! `local-1key`: what a request costs that has to wait and is completed by an event, under one of a
//! thousand keys, in a `LocalPurgatory` (here `ours`) beside a `Purgatory` used from one thread:
//! what the lock, the versions and the clock cost a program that needs none of them. The callback
//! form, with neither a runtime nor a future around it. The local one is told the time once for
//! each window of requests, as an event loop tells it.

use anyhow::ensure;
use fastrand::Rng;
use purgatory::{LocalPurgatory, ParkResult, Purgatory};
use timer_core::{Clock, SystemClock};

use super::room::{KEYS, TIMEOUT};
use crate::{
    request::{Progress, Request},
    results::OURS,
    rows::row::Run,
};

/// How many requests are parked before they are completed.
const WINDOW: u64 = 64;

/// Parks and completes so many requests, `turn` before each window; nanoseconds each.
fn work(
    operations: usize,
    mut turn: impl FnMut(),
    park: impl Fn(u64, Request) -> bool,
    event: impl Fn(u64) -> usize,
) -> anyhow::Result<f64> {
    let (clock, progress) = (SystemClock::new(), Progress::leaked());
    let mut random = Rng::with_seed(1);
    let windows = (operations as u64).div_ceil(WINDOW);
    let mut keys = [0; WINDOW as usize];
    let (mut parked, mut completed) = (0, 0);
    let begin = clock.now_ns();
    for window in 1..=windows {
        turn();
        let required = window * WINDOW;
        for key in &mut keys {
            *key = random.u64(..KEYS);
            parked += u64::from(park(*key, Request { progress, required }));
        }
        progress.reach(required);
        completed += keys.iter().map(|&key| event(key)).sum::<usize>() as u64;
    }
    let took = clock.now_ns() - begin;
    let all = windows * WINDOW;
    ensure!((parked, completed, progress.completed()) == (all, all, all), "requests were lost");
    Ok(took as f64 / all as f64)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (operations, clock) = (run.sizes.operations, SystemClock::new());
    let shared: Purgatory<u64, Request> = Purgatory::new("shared")?;
    let local: LocalPurgatory<u64, Request> = LocalPurgatory::new();
    let is_parked = |park: Option<ParkResult>| matches!(park, Some(ParkResult::Parked(_)));
    for round in 0..run.sizes.rounds {
        if run.begins(id, round, OURS) {
            let park = |key, request| {
                is_parked(local.try_complete_else_watch(request, &[key], TIMEOUT).ok())
            };
            let event = |key| local.check_and_complete(&key);
            let ns = work(operations, || local.advance(clock.now_ns()), park, event)?;
            run.add(id, "ns", OURS, ns);
        }
        if run.begins(id, round, "purgatory") {
            let park = |key, request| {
                is_parked(shared.try_complete_else_watch(request, &[key], TIMEOUT).ok())
            };
            let ns = work(operations, || (), park, |key| shared.check_and_complete(&key))?;
            run.add(id, "ns", "purgatory", ns);
        }
        let left = [local.len(), local.keys(), shared.len(), shared.keys()];
        ensure!(left == [0; 4], "something is left: {left:?}");
    }
    Ok(())
}
