//! `tracing` events (feature `tracing`), and warnings in debug builds. Nothing here is on the path
//! of an operation that is parked and completed. A subscriber is user code: it is called with
//! nothing locked, and its panics are contained.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))] // nothing is reported then

use std::{
    io::Write,
    thread::{self, Thread},
};

use crate::{error::RefusedReason, sync::plain};

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

pub(crate) fn refused(purgatory: &str, reason: RefusedReason) {
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

/// Runs a callback, and reports it if that took long by the timer's clock.
pub(crate) fn slow(purgatory: &str, now_ns: impl Fn() -> u64, callback: impl FnOnce()) {
    if !cfg!(feature = "tracing") {
        return callback();
    }
    let began_ns = now_ns();
    callback();
    let took_ns = now_ns().saturating_sub(began_ns);
    if took_ns >= SLOW_NS {
        tell!(
            warn,
            purgatory,
            seconds = took_ns as f64 / 1e9,
            "a callback kept the executor"
        );
    }
}

/// Checks that run now, known in debug builds only: each thread, and since when. One that has been
/// running for more than a second probably waits for a lock that a thread holds while it signals a
/// key.
#[derive(Debug, Default)]
pub(crate) struct Checking(plain::Mutex<Vec<(Thread, u64)>>);

/// A check that runs, until this is dropped.
#[must_use = "dropped at once, the check counts as over"]
pub(crate) struct Running<'a> {
    /// In debug builds.
    registered: Option<&'a Checking>,
}

impl Checking {
    /// Registers a check that this thread begins. Free in release builds.
    #[inline]
    pub(crate) fn begin(&self, now_ns: impl FnOnce() -> u64) -> Running<'_> {
        if !cfg!(debug_assertions) {
            return Running { registered: None };
        }
        let since_ns = now_ns();
        self.0.lock().push((thread::current(), since_ns));
        Running {
            registered: Some(self),
        }
    }

    /// Warns, once each, of checks that have been running for more than a second on other threads.
    #[inline]
    pub(crate) fn warn_stuck_checks(&self, purgatory: &str, now_ns: impl FnOnce() -> u64) {
        if cfg!(debug_assertions) && !self.0.lock().is_empty() {
            self.find_stuck(purgatory, now_ns());
        }
    }

    fn find_stuck(&self, purgatory: &str, now_ns: u64) {
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
    #[inline]
    fn drop(&mut self) {
        let Some(checking) = self.registered else {
            return;
        };
        let here = thread::current().id();
        let mut running = checking.0.lock();
        // The last of this thread's: a check may call into the purgatory, which checks others.
        if let Some(at) = running.iter().rposition(|(thread, _)| thread.id() == here) {
            running.remove(at);
        }
    }
}

/// Warns of a check that keeps its thread, on behalf of another thread that came by.
fn warn_stuck_check(purgatory: &str, on: &Thread, seen_by: &Thread) {
    let on = on.name().unwrap_or("unnamed");
    let seen_by = seen_by.name().unwrap_or("unnamed");
    let what = "a check takes more than a second; does it wait for a lock held while signalling?";
    tell!(warn, purgatory, on, seen_by, "{what}");
    if !cfg!(feature = "tracing") {
        let mut stderr = std::io::stderr(); // which may be closed
        let _ = writeln!(
            stderr,
            "purgatory {purgatory}, thread {on}, seen by {seen_by}: {what}"
        );
    }
}
