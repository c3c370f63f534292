//! `bytes-per-parked-…`: heap in use while a million requests of 16 bytes are parked under random
//! keys of a thousand, one each or three, divided by their number. A future counts in its box, as
//! in a task of its own, but without the task.
//!
//! Everything runs on the thread whose allocations are counted, the actor too.
//!
//! `empty-purgatory`: heap of a purgatory in which nothing is parked, one of several that share a
//! timer, by the type of its keys. There is one of ours only: what it is compared with are the
//! requests that it is to hold.

use std::slice;

use anyhow::{Context, ensure};
use purgatory::{Purgatory, WatchKey};
use timer_core::SystemTimer;
use tokio::{runtime::Builder, task::coop::unconstrained};

use super::room::{Pending, TIMEOUT, complete_all, nothing_left, park_all};
use crate::{
    contender::Contender,
    request::{Progress, Request},
    results::OURS,
    rows::row::Run,
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

pub(in crate::rows) fn parked_each(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let keys = if id.ends_with("-3keys") { 3 } else { 1 };
    for (form, contenders) in waits!(parked) {
        run.each(&format!("{id}-{form}"), "bytes", 0, &contenders, (run.sizes.one_m, keys))?;
    }
    Ok(())
}

/// So many share the timer, and what grows in it only now and then.
const PURGATORIES: usize = 16;

/// Bytes of each, which must be fit for use.
fn empty_each<K: WatchKey + Send>(key: K) -> anyhow::Result<f64> {
    let timer = SystemTimer::new()?;
    let mut purgatories: Vec<Purgatory<K, Request>> = Vec::with_capacity(PURGATORIES);
    let counted = allocation_counter::measure(|| {
        let build = |_| Purgatory::builder("empty").timer(&timer).build();
        purgatories.extend((0..PURGATORIES).map(build).filter_map(Result::ok));
    });
    ensure!(purgatories.len() == PURGATORIES, "{} of {PURGATORIES} built", purgatories.len());
    let last = purgatories.last().context("there are some")?;
    let request = Request { progress: Progress::leaked(), required: 1 };
    last.try_complete_else_watch(request, slice::from_ref(&key), TIMEOUT)
        .map_err(|refused| refused.reason)?;
    request.progress.reach(1);
    ensure!(last.check_and_complete(&key) == 1 && last.is_empty(), "it does not complete");
    Ok(counted.bytes_current as f64 / PURGATORIES as f64)
}

pub(in crate::rows) fn empty(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let of_number = Contender { name: OURS, measure: |()| empty_each(1_u64) };
    let of_text = Contender { name: OURS, measure: |()| empty_each(String::from("orders-0")) };
    run.each(&format!("{id}-u64"), "bytes", 0, &[of_number], ())?;
    run.each(&format!("{id}-string"), "bytes", 0, &[of_text], ())
}
