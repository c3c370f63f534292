//! `advance-1m`: what it costs to turn a core over a second of virtual time, tick by tick, in which
//! a million timers fall due at random. Filling it is not measured. (tokio's wheels turn only with
//! its clock and runtime, and async-io's timers live in its reactor.)

use std::hint::black_box;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::super::row::Run;
use crate::{
    floor,
    results::{FLOOR, OURS},
    timers::{DeadlineMap, HashedCore, LazyHeap, NexusCore, OursWheel, OursWithin, core::Core},
};

const TICKS: u64 = 1000;

/// Nanoseconds a timer.
pub(super) fn turn<C: Core>(timers: usize, seed: u64) -> anyhow::Result<f64> {
    let mut core = C::default();
    let mut random = Rng::with_seed(seed);
    (0..timers as u64).for_each(|id| core.insert(random.u64(1..=TICKS), id));
    let (mut fired, mut sum) = (0, 0);
    let clock = SystemClock::new();
    let begin = clock.now_ns();
    for now in 0..=TICKS + OursWithin::TOLERANCE {
        core.advance(now, |id| {
            fired += 1;
            sum += id;
        });
    }
    let spent = clock.now_ns() - begin;
    let all = timers as u64;
    ensure!((fired, black_box(sum)) == (all, all * (all - 1) / 2), "{}: {fired} fired", C::NAME);
    Ok(spent as f64 / timers as f64)
}

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (timers, unit) = (run.sizes.one_m, "ns a timer");
    for round in 0..run.sizes.rounds {
        let seed = round as u64;
        run.one(id, unit, round, OURS, || turn::<OursWheel>(timers, seed))?;
        run.one(id, unit, round, OursWithin::NAME, || turn::<OursWithin>(timers, seed))?;
        run.one(id, unit, round, "hashed-wheel", || turn::<HashedCore>(timers, seed))?;
        run.one(id, unit, round, NexusCore::NAME, || turn::<NexusCore>(timers, seed))?;
        run.one(id, unit, round, "btree-map", || turn::<DeadlineMap>(timers, seed))?;
        run.one(id, unit, round, "binary-heap", || turn::<LazyHeap>(timers, seed))?;
        run.results.measure(id, unit).add(FLOOR, floor::random_node(timers, timers));
    }
    Ok(())
}
