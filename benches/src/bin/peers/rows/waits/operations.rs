//! `hot-key`: a signal to a key under which 10 000 requests wait, none of them ready. It ends when
//! each request was checked and waits again. A future that the signal wakes checks in a task of its
//! own.
//!
//! `bytes-per-parked-1key`: heap in use while a million requests of 16 bytes are parked, divided by
//! their number. Each waits under one random key of a thousand. A future counts in its box, as it
//! would in a task of its own, but without the task.

use std::sync::Arc;

use anyhow::ensure;
use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::arena::{Arena, HOUR, Pending, check_completed, complete_all, park_all};
use crate::{
    heap::counted,
    request::{Progress, Request},
    rows::row::Run,
    waits::{Waits, waits},
};

/// A round sends as many signals as one signal makes checks in vain, divided by this.
const CHECKS_A_SIGNAL: u64 = 100;
/// The key under which the requests wait.
const KEY: u64 = 7;

/// Measures microseconds per signal.
pub(super) fn hot_key<W: Waits>(requests: usize) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(1)?;
    let request = Request::new();
    let progress = request.progress;
    // Park all, each in a task of its own.
    let park = |_| {
        let waits = arena.waits.clone();
        arena.spawn(async move { waits.park([KEY], HOUR, request).await })
    };
    let tasks: Vec<_> = (0..requests).map(park).collect();

    // Signal them in vain, which is measured, and finally complete them.
    let checks = requests as u64 * W::VAIN_CHECKS;
    let us = arena.join(arena.spawn(signal_in_vain(arena.waits.clone(), progress, checks)))?;

    // All must have been completed, and nothing may remain.
    for task in tasks {
        arena.join(task)?;
    }
    check_completed::<W>(progress, requests as u64)?;
    arena.check_empty()?;
    Ok(us)
}

/// Signals the hot key until all is measured, then completes the requests. Each signal makes
/// `checks` checks in vain. Returns microseconds per signal.
async fn signal_in_vain<W: Waits>(waits: Arc<W>, progress: &'static Progress, checks: u64) -> f64 {
    // All requests have parked once each was checked.
    until_checked(progress, checks).await;

    // A signal has ended once each request was checked again.
    let signals = checks.div_ceil(CHECKS_A_SIGNAL);
    let before = progress.vain_checks();
    let clock = SystemClock::new();
    let begin_ns = clock.now_ns();
    for signal in 1..=signals {
        waits.signal(KEY);
        until_checked(progress, before + signal * checks).await;
    }
    let spent_ns = clock.now_ns() - begin_ns;

    progress.reach(1);
    waits.signal(KEY);
    spent_ns as f64 / 1e3 / signals as f64
}

/// Yields until this many checks in vain were made.
async fn until_checked(progress: &Progress, vain_checks: u64) {
    while progress.vain_checks() < vain_checks {
        yield_now().await;
    }
}

pub(in crate::rows) fn hot_keys(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    for _ in 0..run.sizes.rounds {
        run.each_form(id, "us an event", waits!(hot_key), run.sizes.hot)?;
    }
    Ok(())
}

/// Measures bytes of heap per request.
pub(super) fn bytes_parked<W: Waits>(requests: usize) -> anyhow::Result<f64> {
    let arena = Arena::<W>::open(1)?;
    let request = Request::new();
    // The list of pending waits is not counted, so it must not grow meanwhile.
    let mut pending = Pending::with_capacity(requests);
    let waits = &*arena.waits;
    let counted = counted(|| {
        arena.block_on(park_all(waits, request, 0, &mut pending, requests));
    });
    let ended = request.progress.ended();
    ensure!(ended == 0, "{}: {ended} ended while parked", W::NAME);

    // All requests must have waited, and can be completed.
    arena.block_on(complete_all(waits, request, 0, pending, requests))?;
    arena.check_empty()?;
    Ok(counted.bytes / requests as f64)
}

pub(in crate::rows) fn bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    run.each_form(id, "bytes", waits!(bytes_parked), run.sizes.one_m)
}
