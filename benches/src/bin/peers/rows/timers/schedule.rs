//! `schedule-cancel-…` and `random-replace-1m`: what a timeout costs that does not come to pass,
//! with the clock read that a delay needs, on one thread and on two. `sleep-…`: the same with
//! futures, each made, polled and dropped, and a time-out around one that is ready.
//!
//! All contenders stand ready with their pending timers.

use super::{
    super::{
        crew::{Crew, interleaved},
        row::Run,
    },
    crew::{Hire, Work, crew},
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
    measure(id, run, &timers!(crew, with_closure), hire)
}

pub(crate) fn sleeps(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = if id.ends_with("-1m") { run.sizes.one_m } else { 0 };
    let ready = id.contains("-timeout-");
    let work = if ready { Work::TimeoutReady } else { Work::ScheduleCancel };
    let mut contenders = timers!(crew, sleeps);
    contenders.retain(|one| cfg!(tokio_unstable) || one.name != TokioSleep::<true>::NAME);
    measure(id, run, &contenders, Hire { threads, pending, work })
}

pub(crate) fn replace(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let hire = Hire { threads: 1, pending: run.sizes.one_m, work: Work::Replace };
    measure(id, run, &timers!(crew, with_closure), hire)
}

fn measure(
    id: &'static str,
    run: &mut Run<'_>,
    contenders: &[Contender<Hire, Box<dyn Crew>>],
    hire: Hire,
) -> anyhow::Result<()> {
    let (nodes, operations) = (run.sizes.one_m, run.sizes.operations);
    interleaved(id, run, contenders, &[("", hire)], operations, || {
        let random = match hire.work {
            Work::Replace => floor::random_node(nodes, operations),
            Work::ScheduleCancel | Work::TimeoutReady => 0.0,
        };
        floor::schedule_cancel(operations) + random
    })
}
