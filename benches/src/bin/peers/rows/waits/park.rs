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
    super::{crew::interleaved, row::Run},
    crew::{Hire, Share, crew},
};
use crate::{floor, waits::waits};

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let count = run.sizes.operations;
    // Twenty keys take as long as many requests.
    let (keys, operations) = match id.rsplit('-').next() {
        Some("3keys") => (3, count),
        Some("20keys") => (20, count / 5),
        _ => (1, count),
    };
    let share = match id {
        _ if id.contains("-fresh-") => Share::Fresh,
        _ if id.contains("-2t-other-") => Share::Apart,
        _ => Share::Same,
    };
    let others = if id.contains("-1m-") { run.sizes.one_m } else { 0 };
    let alone = Hire { threads: 1, keys, share, half_foreign: false, others };
    let both = Hire { threads: 2, half_foreign: id.contains("-half-foreign"), ..alone };
    let on_two = [("", both), ("-slowdown", alone)];
    let hires = if id.contains("-2t-") { &on_two } else { &[("", alone)][..] };
    for (form, contenders) in waits!(crew) {
        interleaved(&format!("{id}-{form}"), run, &contenders, hires, operations, || {
            floor::park_complete(keys, count) + floor::of_form(form, count)
        })?;
    }
    Ok(())
}
