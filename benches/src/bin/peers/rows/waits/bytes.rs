//! `bytes-per-parked-…`: heap in use while a million requests of 16 bytes are parked under random
//! keys of a thousand, one each or three, divided by their number. A future counts in its box, as
//! in a task of its own, but without the task.
//!
//! Everything runs on the thread whose allocations are counted, the actor too.

use anyhow::ensure;
use tokio::{runtime::Builder, task::coop::unconstrained};

use super::{
    super::row::Run,
    room::{Pending, complete_all, nothing_left, park_all},
};
use crate::{
    request::{Progress, Request},
    waits::{Waits, waits},
};

/// Bytes a request, of so many under `K` keys each.
fn under<W: Waits, const K: usize>(requests: usize) -> anyhow::Result<f64> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let waits = runtime.block_on(async { W::start() })?;
    let request = Request { progress: Progress::leaked(), required: 1 };
    let mut pending = Pending::with_capacity(requests);
    let counted = allocation_counter::measure(|| {
        let parks = park_all::<W, K>(&waits, request, 0, &mut pending, requests);
        runtime.block_on(unconstrained(parks));
    });
    ensure!(request.progress.ended() == 0, "{}: a parked request had gone", W::NAME);
    let completes = complete_all(&waits, request, 0, pending, requests);
    runtime.block_on(unconstrained(completes))?;
    nothing_left(&waits)?;
    Ok(counted.bytes_current as f64 / requests as f64)
}

pub(super) fn parked<W: Waits>((requests, keys): (usize, usize)) -> anyhow::Result<f64> {
    if keys == 1 { under::<W, 1>(requests) } else { under::<W, 3>(requests) }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let keys = if id.ends_with("-3keys") { 3 } else { 1 };
    for (form, contenders) in waits!(parked) {
        run.each(&format!("{id}-{form}"), "bytes", 0, &contenders, (run.sizes.one_m, keys))?;
    }
    Ok(())
}
