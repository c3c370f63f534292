//! `schedule-cancel-…` and `random-replace-1m`: what a timeout costs that does not come to pass,
//! with the clock read that a delay needs, on one thread and on two. `sleep-…`: the same with
//! futures, each made, polled and dropped, and a time-out around one that is ready.
//!
//! All contenders stand ready with their pending timers; a round is a turn of each.

use super::{
    super::row::Run,
    crew::{Crew, Hire, Work},
};
use crate::{floor, named::Named, results::FLOOR, sizes::Sizes, timers::Contender};

pub(crate) fn pairs(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let pending = match id.rsplit('-').next() {
        Some("100k") => sizes.hundred_k,
        Some("1m") => sizes.one_m,
        _ => 0,
    };
    let threads = if id.contains("-2t-") { 2 } else { 1 };
    let hire = Hire { threads, pending, work: Work::ScheduleCancel };
    interleaved(id, run, &Contender::WITH_CLOSURE, &hire, |sizes| {
        floor::schedule_cancel(sizes.primitives)
    })
}

pub(crate) fn sleeps(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = if id.ends_with("-1m") { run.sizes.one_m } else { 0 };
    let ready = id.contains("-timeout-");
    let work = if ready { Work::TimeoutReady } else { Work::ScheduleCancel };
    let hire = Hire { threads, pending, work };
    interleaved(id, run, Contender::SLEEPS, &hire, |sizes| floor::schedule_cancel(sizes.primitives))
}

pub(crate) fn replace(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let hire = Hire { threads: 1, pending: run.sizes.one_m, work: Work::Replace };
    interleaved(id, run, &Contender::WITH_CLOSURE, &hire, |sizes| {
        floor::schedule_cancel(sizes.primitives) + floor::random_node(sizes.one_m, sizes.primitives)
    })
}

fn interleaved(
    id: &'static str,
    run: &mut Run<'_>,
    contenders: &[Contender],
    hire: &Hire,
    floor: fn(Sizes) -> f64,
) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let mut crews: Vec<(&'static str, Crew)> = Vec::new();
    for contender in run.contenders(contenders) {
        run.at(id, contender.name(), 0);
        crews.push((contender.name(), contender.visit(hire)?));
    }
    for round in 0..sizes.rounds {
        for (name, crew) in &crews {
            run.one(id, "ns", round, name, || crew.work(sizes.operations))?;
        }
        run.results.measure(id, "ns").add(FLOOR, floor(sizes));
    }
    crews.into_iter().try_for_each(|(_, crew)| crew.go_home())
}
