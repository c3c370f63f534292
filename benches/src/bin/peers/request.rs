//! A request that waits until its progress has reached a number. Its outcome is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sink::Sink;

/// A wait in any contender: a future that ends with its request.
pub(crate) trait Wait: Future<Output = ()> + Send {}

impl<F: Future<Output = ()> + Send> Wait for F {}

/// A request of 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) progress: &'static Progress,
    pub(crate) required: u64,
}

/// The number that requests wait for, and counts of their outcomes. It has cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    reached: AtomicU64,
    /// Checks of requests that were not ready.
    vain_checks: AtomicU64,
    completed: AtomicU64,
    given_up: AtomicU64,
    /// Records requests that are given up. For these, `required` is the deadline.
    late: Option<&'static Sink>,
}

impl Request {
    /// Creates a request that waits until a progress of its own has reached 1.
    pub(crate) fn new() -> Request {
        Request {
            progress: Progress::leaked(),
            required: 1,
        }
    }

    /// Checks the condition, and counts the check if it is in vain. The count is exact as long as
    /// one thread checks.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.progress.reached.load(Ordering::Acquire) >= self.required;
        if !ready {
            // A load and a store cost less than an addition, and one thread checks at a time.
            let checks = &self.progress.vain_checks;
            checks.store(checks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        ready
    }

    /// Returns the condition, as `Purgatory::wait` takes it.
    pub(crate) fn condition(self) -> impl FnMut() -> Option<()> + Send {
        move || if self.is_ready() { Some(()) } else { None }
    }

    /// Ends the request: completed, or given up by timeout or for any other reason.
    pub(crate) fn end(self, completed: bool) {
        if completed {
            self.progress.completed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.progress.given_up.fetch_add(1, Ordering::Relaxed);
        if let Some(sink) = self.progress.late {
            sink.fired(self.required);
        }
    }
}

impl Progress {
    /// Creates a progress that is never freed, since requests of all contenders refer to it.
    pub(crate) fn leaked() -> &'static Progress {
        Box::leak(Box::default())
    }

    /// Creates a progress for requests that are never completed; `sink` records each that is given
    /// up.
    pub(crate) fn recording(sink: &'static Sink) -> &'static Progress {
        Box::leak(Box::new(Progress {
            late: Some(sink),
            ..Progress::default()
        }))
    }

    /// Makes ready all requests that require at most `number`. Signal their keys afterwards.
    pub(crate) fn reach(&self, number: u64) {
        self.reached.store(number, Ordering::Release);
    }

    /// Returns how often a request was checked that was not ready yet.
    pub(crate) fn vain_checks(&self) -> u64 {
        self.vain_checks.load(Ordering::Relaxed)
    }

    /// Returns how many requests were completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Returns how many requests have ended, in whatever way.
    pub(crate) fn ended(&self) -> u64 {
        self.completed() + self.given_up.load(Ordering::Relaxed)
    }
}
