//! `empty-purgatory`: heap of a purgatory in which nothing is parked, one of several that share a
//! timer, by the type of its keys. There is one of ours only: what it is compared with are the
//! requests that it is to hold.

use std::time::Duration;

use anyhow::{Context, ensure};
use purgatory::{Purgatory, WatchKey};
use timer_core::SystemTimer;

use super::super::row::Run;
use crate::{
    request::{Progress, Request},
    results::OURS,
};

/// So many share the timer, and what grows in it only now and then.
const PURGATORIES: usize = 16;

/// Bytes of each, which must be fit for use.
fn bytes<K: WatchKey + Send>(key: K) -> anyhow::Result<f64> {
    let timer = SystemTimer::new()?;
    let mut purgatories: Vec<Purgatory<K, Request>> = Vec::with_capacity(PURGATORIES);
    let counted = allocation_counter::measure(|| {
        let build = |_| Purgatory::builder("empty").timer(&timer).build();
        purgatories.extend((0..PURGATORIES).map(build).filter_map(Result::ok));
    });
    ensure!(purgatories.len() == PURGATORIES, "{} of {PURGATORIES} built", purgatories.len());
    let last = purgatories.last().context("there are some")?;
    let request = Request { progress: Progress::leaked(), required: 1 };
    last.try_complete_else_watch(request, std::slice::from_ref(&key), Duration::from_secs(30))
        .map_err(|refused| refused.reason)?;
    request.progress.reach(1);
    ensure!(last.check_and_complete(&key) == 1 && last.is_empty(), "it does not complete");
    Ok(counted.bytes_current as f64 / PURGATORIES as f64)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    run.one(&format!("{id}-u64"), "bytes", 0, OURS, || bytes(1_u64))?;
    run.one(&format!("{id}-string"), "bytes", 0, OURS, || bytes(String::from("orders-0")))
}
