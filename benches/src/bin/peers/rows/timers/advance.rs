//! `advance-1m`: what it costs to turn a core over a second of virtual time, tick by tick, in which
//! a million timers fall due at random. Filling it is not measured.

use std::hint::black_box;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::super::row::Run;
use crate::{
    floor,
    results::{FLOOR, LeftOut, OURS},
    timers::{DeadlineMap, HashedCore, LazyHeap, NexusCore, OursWheel, core::Core},
};

const TICKS: u64 = 1000;

const LEFT_OUT: [LeftOut; 2] = [
    LeftOut("tokio-sleep, delay-queue", "their wheels turn only with tokio's clock and runtime"),
    LeftOut("async-io", "its timers live in the reactor"),
];

/// Nanoseconds a timer.
pub(super) fn turn<C: Core>(timers: usize, seed: u64) -> anyhow::Result<f64> {
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

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    type Turn = fn(usize, u64) -> anyhow::Result<f64>;
    let cores: [(&str, Turn); 5] = [
        (OURS, turn::<OursWheel>),
        (HashedCore::NAME, turn::<HashedCore>),
        (NexusCore::NAME, turn::<NexusCore>),
        (<DeadlineMap as Core>::NAME, turn::<DeadlineMap>),
        (<LazyHeap as Core>::NAME, turn::<LazyHeap>),
    ];
    let timers = run.sizes.one_m;
    for round in 0..run.sizes.rounds {
        for (name, turn) in cores {
            if !run.takes(name) {
                continue;
            }
            run.at(id, name, round);
            let ns = turn(timers, round as u64)?;
            run.results.measure(id, "ns a timer").add(name, ns);
        }
        run.results.measure(id, "ns a timer").add(FLOOR, floor::random_node(timers, timers));
    }
    run.results.measure(id, "ns a timer").left_out = &LEFT_OUT;
    Ok(())
}
