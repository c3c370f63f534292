//! `schedule-cancel-…` and `random-replace-1m`: what a timeout costs that does not come to pass,
//! with the clock read that a delay needs, on one thread and on two.
//!
//! All contenders stand ready with their pending timers; a round is a turn of each.

use super::{
    super::{Named, Run},
    crew::{Crew, Hire, Work},
};
use crate::{floor, results::FLOOR, sizes::Sizes, timers::Contender};

pub(crate) fn pairs(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let pending = match id.rsplit('-').next() {
        Some("100k") => sizes.hundred_k,
        Some("1m") => sizes.one_m,
        _ => 0,
    };
    let threads = if id.contains("-2t-") { 2 } else { 1 };
    let hire = Hire { threads, pending, work: Work::ScheduleCancel };
    interleaved(id, run, &hire, |sizes| floor::schedule_cancel(sizes.primitives))
}

pub(crate) fn replace(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let hire = Hire { threads: 1, pending: run.sizes.one_m, work: Work::Replace };
    interleaved(id, run, &hire, |sizes| {
        floor::schedule_cancel(sizes.primitives) + floor::random_node(sizes.one_m, sizes.primitives)
    })
}

fn interleaved(
    id: &'static str,
    run: &mut Run<'_>,
    hire: &Hire,
    floor: fn(Sizes) -> f64,
) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let mut crews: Vec<(&str, Crew)> = Vec::new();
    for contender in run.contenders(&Contender::WITH_CLOSURE) {
        run.at(id, contender.name(), 0);
        crews.push((contender.name(), contender.visit(hire)?));
    }
    for round in 0..sizes.rounds {
        for (name, crew) in &crews {
            run.at(id, name, round);
            let ns = crew.work(sizes.operations)?;
            run.results.measure(id, "ns").add(name, ns);
        }
        run.results.measure(id, "ns").add(FLOOR, floor(sizes));
    }
    crews.into_iter().try_for_each(|(_, crew)| crew.go_home())
}
