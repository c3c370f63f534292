//! `tracing` events (feature `tracing`): nothing on the path of an operation that is parked and
//! completed. A subscriber is user code: it is called with nothing locked, and its panics stay
//! here.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))] // nothing is told then

use std::{
    io::Write,
    thread::{self, Thread},
};

use crate::{operation::RefusedReason, sync::plain};

/// A callback on the executor that takes so long is told of.
const SLOW_NS: u64 = 100_000_000;

/// A check that takes longer than this is told of, in debug builds.
const STUCK_NS: u64 = 1_000_000_000;

/// Tells the subscriber, if the feature is on.
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

/// Told by the first shutdown, and by a later one only if it cancelled something.
pub(crate) fn closed(purgatory: &str, first: bool, cancelled: usize) {
    if first || cancelled > 0 {
        tell!(info, purgatory, cancelled, "shut down");
    }
}

/// Runs a callback, and tells of it if that took long by the timer's clock.
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
/// running for more than a second probably waits for a lock that a thread holds while it raises an
/// event.
#[derive(Debug, Default)]
pub(crate) struct Checking(plain::Mutex<Vec<(Thread, u64)>>);

impl Checking {
    /// Runs a check, which does not panic.
    #[inline]
    pub(crate) fn run<T>(&self, now_ns: impl Fn() -> u64, check: impl FnOnce() -> T) -> T {
        if !cfg!(debug_assertions) {
            return check();
        }
        let (here, since_ns) = (thread::current(), now_ns());
        self.0.lock().push((here.clone(), since_ns));
        let checked = check();
        let mut running = self.0.lock();
        let last = running
            .iter()
            .rposition(|(thread, _)| thread.id() == here.id());
        last.map(|at| running.remove(at));
        checked
    }

    /// Tells, once each, of checks that have been running for more than a second on other threads.
    #[inline]
    pub(crate) fn warn_stuck_checks(&self, purgatory: &str, now_ns: impl Fn() -> u64) {
        if cfg!(debug_assertions) && !self.0.lock().is_empty() {
            let (now_ns, here) = (now_ns(), thread::current());
            let mut stuck = Vec::new();
            for (thread, since_ns) in &mut *self.0.lock() {
                if thread.id() != here.id() && now_ns.saturating_sub(*since_ns) > STUCK_NS {
                    *since_ns = u64::MAX; // told
                    stuck.push(thread.clone());
                }
            }
            stuck
                .iter()
                .for_each(|on| stuck_check(purgatory, on, &here));
        }
    }
}

/// Tells of a check that keeps its thread, and of the thread that came by.
fn stuck_check(purgatory: &str, on: &Thread, seen_by: &Thread) {
    let [on, seen_by] = [on, seen_by].map(|thread| thread.name().unwrap_or("unnamed"));
    let what = "a check takes more than a second; does it wait for a lock held while raising?";
    tell!(warn, purgatory, on, seen_by, "{what}");
    if !cfg!(feature = "tracing") {
        let mut stderr = std::io::stderr(); // which may be closed
        let _ = writeln!(
            stderr,
            "purgatory {purgatory}, thread {on}, seen by {seen_by}: {what}"
        );
    }
}
