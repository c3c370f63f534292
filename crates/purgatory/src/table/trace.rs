//! `tracing` events (feature `tracing`), and warnings in debug builds. Nothing here is on the path
//! of an operation that is parked and completed. A subscriber is user code: it is called with
//! nothing locked, and its panics are contained.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))] // nothing is reported then

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, Thread},
};

use timer_core::driver::{contain, runs_tasks_here};

use crate::{error::WaitError, sync::plain};

/// A callback that keeps the executor this long is reported.
const SLOW_NS: u64 = 100_000_000;

/// A check that takes longer than this is reported, in debug builds.
const STUCK_NS: u64 = 1_000_000_000;

/// Calls the subscriber, if the feature is on.
macro_rules! tell {
    ($level:ident, $($what:tt)*) => {
        #[cfg(feature = "tracing")]
        let _ = timer_core::driver::contain(|| tracing::$level!($($what)*));
    };
}

pub(crate) fn refused(purgatory: &str, reason: &WaitError) {
    tell!(debug, purgatory, %reason, "an operation was not parked");
}

pub(crate) fn panicked(purgatory: &str, panicked: &str) {
    tell!(
        error,
        purgatory,
        panic = panicked,
        "a check or callback panicked"
    );
}

pub(crate) fn missed(purgatory: &str) {
    tell!(warn, purgatory, "a condition came true without an event");
}

/// Reports the first shutdown, and a later one only if it cancelled something.
pub(crate) fn closed(purgatory: &str, first: bool, cancelled: usize) {
    if first || cancelled > 0 {
        tell!(info, purgatory, cancelled, "shut down");
    }
}

/// Runs a callback, and reports it if it took long by the timer's clock, which may fail.
pub(crate) fn slow(purgatory: &str, now_ns: impl Fn() -> Option<u64>, callback: impl FnOnce()) {
    if !cfg!(feature = "tracing") {
        return callback();
    }
    // 1. Run the callback.
    let began_ns = now_ns();
    callback();
    // 2. Report it if it was slow and both readings of the clock succeeded.
    let (Some(began_ns), Some(ended_ns)) = (began_ns, now_ns()) else {
        return;
    };
    let took_ns = ended_ns.saturating_sub(began_ns);
    if took_ns >= SLOW_NS {
        tell!(
            warn,
            purgatory,
            seconds = took_ns as f64 / 1e9,
            "a callback kept the executor"
        );
    }
}

/// The checks that run now: the thread and start time of each, known in debug builds only. A check
/// that has run for more than a second probably waits for a lock that a thread holds while it
/// signals a key.
#[derive(Debug, Default)]
pub(crate) struct Checking(plain::Mutex<Vec<(Thread, u64)>>);

/// A running check. Dropping this ends it.
#[must_use = "dropped at once, the check counts as over"]
pub(crate) struct Running<'a>(&'a Checking);

impl Checking {
    /// Registers a check that this thread begins.
    pub(crate) fn begin(&self, now_ns: u64) -> Running<'_> {
        self.0.lock().push((thread::current(), now_ns));
        Running(self)
    }

    /// Warns, once for each, of checks on other threads that have run for more than a second by the
    /// timer's clock, which may fail.
    pub(crate) fn warn_stuck_checks(&self, purgatory: &str, now_ns: impl FnOnce() -> Option<u64>) {
        // In the usual case the clock is not read.
        if self.0.lock().is_empty() {
            return;
        }
        let Some(now_ns) = now_ns() else { return };
        let here = thread::current();
        let mut stuck = Vec::new();
        for (thread, since_ns) in &mut *self.0.lock() {
            if thread.id() != here.id() && now_ns.saturating_sub(*since_ns) > STUCK_NS {
                *since_ns = u64::MAX; // reported
                stuck.push(thread.clone());
            }
        }
        // With nothing locked: a subscriber is user code.
        for on in stuck {
            warn_stuck_check(purgatory, &on, &here);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut running = self.0.0.lock();
        // Remove the last of this thread: a check may call into the purgatory, which runs other
        // checks.
        if let Some(at) = running.iter().rposition(|(thread, _)| thread.id() == here) {
            running.remove(at);
        }
    }
}

/// Warns of a check that keeps its thread, as seen by another thread.
fn warn_stuck_check(purgatory: &str, on: &Thread, seen_by: &Thread) {
    let on = on.name().unwrap_or("unnamed");
    let seen_by = seen_by.name().unwrap_or("unnamed");
    let what = "a check takes more than a second; does it wait for a lock held while signalling?";
    tell!(warn, purgatory, on, seen_by, "{what}");
    print(format_args!(
        "purgatory {purgatory}, thread {on}, seen by {seen_by}: {what}"
    ));
}

/// Warns, once, of a blocking wait on a thread that runs a tokio runtime's tasks.
pub(crate) fn blocks_runtime(purgatory: &str, has_warned: &AtomicBool) {
    if runs_tasks_here() && !has_warned.swap(true, Relaxed) {
        let what = "wait_blocking blocks a thread that runs a tokio runtime's tasks; await the \
                    future, or use spawn_blocking";
        tell!(warn, purgatory, "{what}");
        print(format_args!("purgatory {purgatory}: {what}"));
    }
}

/// Prints a warning to stderr, unless subscribers are told (feature `tracing`).
fn print(warning: fmt::Arguments<'_>) {
    if !cfg!(feature = "tracing") {
        // This panics if stderr is closed.
        let _ = contain(|| eprintln!("{warning}"));
    }
}
