//! `advance-1m`: what it costs to turn a core over a second of virtual time, tick by tick, in which
//! a million timers fall due at random. Filling it is not measured. (tokio's wheels turn only with
//! its clock and runtime, and async-io's timers live in its reactor.)
//!
//! `longest-insert-1m`: the longest of a million insertions.

use std::hint::black_box;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use crate::{
    contender::contenders,
    floor,
    results::OURS,
    rows::row::Run,
    timers::{Core, DeadlineMap, HashedCore, LazyHeap, NexusCore, OursWheel},
};

const TICKS: u64 = 1000;

/// Nanoseconds a timer.
pub(super) fn turn<C: Core>((timers, seed): (usize, u64)) -> anyhow::Result<f64> {
    let mut core = C::default();
    let mut random = Rng::with_seed(seed);
    (0..timers as u64).for_each(|id| core.insert(random.u64(1..=TICKS), id));
    let (mut fired, mut sum) = (0, 0);
    let clock = SystemClock::new();
    let begin = clock.now_ns();
    for now in 0..=TICKS {
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

/// The longest of a million insertions, in microseconds: how long a lock over it would be held.
pub(super) fn longest_insert<C: Core>((timers, seed): (usize, u64)) -> anyhow::Result<f64> {
    let (mut core, mut random) = (C::default(), Rng::with_seed(seed));
    let clock = SystemClock::new();
    let (mut longest_ns, mut before_ns) = (0, clock.now_ns());
    for id in 0..timers as u64 {
        core.insert(random.u64(1..=60 * TICKS), id);
        let now_ns = clock.now_ns();
        longest_ns = longest_ns.max(now_ns - before_ns);
        before_ns = now_ns;
    }
    Ok(longest_ns as f64 / 1e3)
}

pub(crate) fn longest(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let mut contenders =
        contenders!(longest_insert, Core: OursWheel, HashedCore, NexusCore, DeadlineMap, LazyHeap);
    contenders[0].name = OURS;
    for round in 0..run.sizes.rounds {
        run.each(id, "us", round, &contenders, (run.sizes.one_m, round as u64))?;
    }
    Ok(())
}

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (timers, unit) = (run.sizes.one_m, "ns a timer");
    let mut contenders = contenders!(turn, Core:
        OursWheel, HashedCore, NexusCore, DeadlineMap, LazyHeap);
    contenders[0].name = OURS;
    for round in 0..run.sizes.rounds {
        run.each(id, unit, round, &contenders, (timers, round as u64))?;
        run.floor(id, unit, floor::random_node(timers, timers));
    }
    Ok(())
}
