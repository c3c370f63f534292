//! A request that waits until a number, which its thread raises, has reached another. Its outcome
//! is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sink::Sink;

/// A wait, in any contender: a future that ends when the request is over.
pub(crate) trait Wait: Future<Output = ()> + Send {}

impl<F: Future<Output = ()> + Send> Wait for F {}

/// A request of 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) progress: &'static Progress,
    pub(crate) required: u64,
}

/// The number that requests wait for, and the counts of their outcomes. On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    reached: AtomicU64,
    looks: AtomicU64,
    completed: AtomicU64,
    given_up: AtomicU64,
    /// Told of requests that are given up: what they require is the moment at which they are due.
    late: Option<&'static Sink>,
}

impl Request {
    /// The condition. Looks in vain are counted, exactly while one thread looks.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.progress.reached.load(Ordering::Acquire) >= self.required;
        if !ready {
            self.progress.looks.store(
                self.progress.looks.load(Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
        }
        ready
    }

    /// It is over: completed, or given up by time-out or for any other reason.
    pub(crate) fn over(self, completed: bool) {
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
    /// Never freed: requests of all kinds point at it.
    pub(crate) fn leaked() -> &'static Progress {
        Box::leak(Box::default())
    }

    /// Of requests that nothing completes: a sink is told of each that is given up.
    pub(crate) fn telling(sink: &'static Sink) -> &'static Progress {
        Box::leak(Box::new(Progress {
            late: Some(sink),
            ..Progress::default()
        }))
    }

    /// Makes every request ready that requires no more. An event must follow.
    pub(crate) fn reach(&self, number: u64) {
        self.reached.store(number, Ordering::Release);
    }

    /// How often a request was looked at that was not ready.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// How many are over, in whatever way.
    pub(crate) fn ended(&self) -> u64 {
        self.completed() + self.given_up.load(Ordering::Relaxed)
    }
}
