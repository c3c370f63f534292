//! `park-complete-…`: what a request costs that has to wait and is completed by an event, under one
//! key, three or twenty: random ones of a thousand, keys never used before or again (`fresh`), and
//! a thousand while a million others wait for other keys (`1m`).
//!
//! On two threads, per thread, each thread has keys of its own (`other-…`), both have the same
//! (`same-keys`), and of the same each completes half of the other's (`half-foreign`). `…-slowdown`
//! is their time in times of one thread's that is alone, measured in the same round: 1 is as good
//! as it gets, and 2 divided by it is how many times as much gets done. It takes two processors
//! that are free: where the threads must share one, all have a slowdown of 2, and nobody meets.
//!
//! `…-callback` compares what calls back, `…-future` what is awaited. The floor is a lock pair for
//! each key and one for the deadline, to put a request there, as many to take it off again, and
//! a clock read; of a future the allocation of what both sides share as well.

use super::{
    super::row::Run,
    crew::{Crew, Hire, Share, crew},
};
use crate::{floor, waits::waits};

/// How many keys a request of the row waits for.
fn keys(id: &str) -> usize {
    let (_, last) = id.rsplit_once('-').expect("several words");
    match last {
        "3keys" => 3,
        "20keys" => 20,
        _ => 1,
    }
}

/// The rows on one thread.
pub(in crate::rows) fn alone(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let keys = keys(id);
    let share = if id.contains("-fresh-") { Share::Fresh } else { Share::Same };
    let others = if id.contains("-1m-") { run.sizes.one_m } else { 0 };
    let hire = Hire { threads: 1, keys, share, half_foreign: false, others };
    interleaved(id, run, &[("", hire)])
}

/// The rows on two threads.
pub(in crate::rows) fn pairs(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let half_foreign = id.contains("-half-foreign");
    let share = if id.contains("-2t-other-") { Share::Apart } else { Share::Same };
    let alone = Hire { threads: 1, keys: keys(id), share, half_foreign: false, others: 0 };
    interleaved(id, run, &[("", Hire { threads: 2, half_foreign, ..alone }), ("-slowdown", alone)])
}

/// One crew for each measure of a contender; a second one's time is what the first's is divided by.
fn interleaved(id: &'static str, run: &mut Run<'_>, hires: &[(&str, Hire)]) -> anyhow::Result<()> {
    let sizes = run.sizes;
    // Twenty keys take as long as many requests.
    let operations = if keys(id) > 3 { sizes.operations / 5 } else { sizes.operations };
    for (form, contenders) in waits!(crew) {
        let mut crews: Vec<(&str, Vec<Box<dyn Crew>>)> = Vec::new();
        for one in contenders {
            if run.begins(id, 0, one.name) {
                let hired = hires.iter().map(|(_, hire)| (one.measure)(*hire));
                crews.push((one.name, hired.collect::<Result<_, _>>()?));
            }
        }
        for round in 0..sizes.rounds {
            for (name, crews) in &mut crews {
                run.begins(id, round, name);
                let mut first = None;
                for (crew, (suffix, _)) in crews.iter_mut().zip(hires) {
                    let ns = crew.work(operations)?;
                    let (value, unit) = match first {
                        None => (ns, "ns"),
                        Some(first) => (first / ns, "times one thread's"),
                    };
                    first.get_or_insert(ns);
                    run.add(&format!("{id}-{form}{suffix}"), unit, name, value);
                }
            }
            let floor = floor::park_complete(keys(id), sizes.operations);
            let of_form = floor::of_form(form, sizes.operations);
            run.floor(&format!("{id}-{form}"), "ns", floor + of_form);
        }
        crews.into_iter().flat_map(|(_, crews)| crews).try_for_each(Crew::go_home)?;
    }
    Ok(())
}
