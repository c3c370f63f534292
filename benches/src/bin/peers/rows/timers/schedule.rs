//! `schedule-cancel-…` and `random-replace-1m`: what a timeout costs that does not come to pass,
//! with the clock read that a delay needs, on one thread and on two. `sleep-…`: the same with
//! futures, each made, polled and dropped, and a time-out around one that is ready.
//!
//! All contenders stand ready with their pending timers; a round is a turn of each.

use super::{
    super::row::Run,
    crew::{Crew, Hire, Work, crew},
};
use crate::{
    contender::Contender,
    floor,
    timers::{Timer, TokioSleep, timers},
};

pub(crate) fn pairs(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let pending = match id.rsplit('-').next() {
        Some("100k") => run.sizes.hundred_k,
        Some("1m") => run.sizes.one_m,
        _ => 0,
    };
    let threads = if id.contains("-2t-") { 2 } else { 1 };
    let hire = Hire { threads, pending, work: Work::ScheduleCancel };
    interleaved(id, run, &timers!(crew, with_closure), hire)
}

pub(crate) fn sleeps(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = if id.ends_with("-1m") { run.sizes.one_m } else { 0 };
    let ready = id.contains("-timeout-");
    let work = if ready { Work::TimeoutReady } else { Work::ScheduleCancel };
    let mut contenders = timers!(crew, sleeps);
    contenders.retain(|one| cfg!(tokio_unstable) || one.name != TokioSleep::<true>::NAME);
    interleaved(id, run, &contenders, Hire { threads, pending, work })
}

pub(crate) fn replace(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let hire = Hire { threads: 1, pending: run.sizes.one_m, work: Work::Replace };
    interleaved(id, run, &timers!(crew, with_closure), hire)
}

fn interleaved(
    id: &'static str,
    run: &mut Run<'_>,
    contenders: &[Contender<Hire, Crew>],
    hire: Hire,
) -> anyhow::Result<()> {
    let (sizes, operations) = (run.sizes, run.sizes.operations);
    let mut crews = Vec::new();
    run.turns(id, 0, contenders, hire, |_, name, crew| crews.push((name, crew)))?;
    for round in 0..sizes.rounds {
        for (name, crew) in &crews {
            run.one(id, "ns", round, name, || crew.work(operations))?;
        }
        let random = match hire.work {
            Work::Replace => floor::random_node(sizes.one_m, operations),
            Work::ScheduleCancel | Work::TimeoutReady => 0.0,
        };
        run.floor(id, "ns", floor::schedule_cancel(operations) + random);
    }
    crews.into_iter().try_for_each(|(_, crew)| crew.go_home())
}
