//! A request that waits until its owner makes it ready. Its outcome is counted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number that names no request.
const NONE: u32 = u32::MAX;

/// The thread whose requests these are. It has cache lines of its own.
#[repr(align(128))]
pub(crate) struct Owner {
    /// The request that the next check finds ready.
    ready: AtomicU32,
    completed: AtomicU64,
    given_up: AtomicU64,
}

impl Owner {
    /// Creates an owner that is never freed, as requests of all contenders refer to it.
    pub(crate) fn leaked() -> &'static Owner {
        Box::leak(Box::new(Owner {
            ready: AtomicU32::new(NONE),
            completed: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }))
    }

    /// Makes a request ready, and no other.
    pub(crate) fn make_ready(&self, number: u32) {
        self.ready.store(number, Ordering::Release);
    }

    /// Makes none ready.
    pub(crate) fn make_none_ready(&self) {
        self.make_ready(NONE);
    }

    /// Returns how many requests were completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Returns how many requests ended in another way.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// A request of 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) owner: &'static Owner,
    pub(crate) number: u32,
}

impl Request {
    pub(crate) fn is_ready(self) -> bool {
        self.owner.ready.load(Ordering::Acquire) == self.number
    }

    /// Ends the request: completed, or given up by timeout or for any other reason.
    pub(crate) fn end(self, completed: bool) {
        let count = if completed {
            &self.owner.completed
        } else {
            &self.owner.given_up
        };
        count.fetch_add(1, Ordering::Release);
    }
}
