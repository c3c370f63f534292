//! A sink counts the timers that fire and records how late, or early, each of them is.
//!
//! Recording costs the thread on which timers fire a clock read, a lock and a histogram.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::Duration,
};

use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};
use purgatory_benches::process_cpu_ns;
use timer_core::{Clock, SystemClock};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Sink {
    /// The clock of all moments recorded here.
    pub(crate) clock: SystemClock,
    /// The number of timers that are to fire.
    pub(crate) expected: u64,
    fired: AtomicU64,
    lateness: Mutex<Lateness>,
    done: Mutex<bool>,
    ended: Condvar,
}

/// Lateness of the timers that fired, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    pub(crate) ns: Histogram<u64>,
    pub(crate) early: u64,
}

impl Sink {
    /// Creates a sink that expects `expected` timers to fire. It is never freed, since timers of
    /// all kinds refer to it.
    pub(crate) fn leaked(expected: u64) -> &'static Sink {
        // A round leaks one: some hundred bytes, and a histogram.
        Box::leak(Box::new(Sink {
            clock: SystemClock::new(),
            expected,
            fired: AtomicU64::new(0),
            lateness: Mutex::new(Lateness {
                ns: histogram(),
                early: 0,
            }),
            done: Mutex::new(false),
            ended: Condvar::new(),
        }))
    }

    /// Records that a timer with the deadline `due_ns` has fired.
    pub(crate) fn fired(&self, due_ns: u64) {
        let now = self.clock.now_ns();
        let mut lateness = self.lateness.lock();
        lateness.early += u64::from(now < due_ns);
        lateness.ns.saturating_record(now.saturating_sub(due_ns));
        drop(lateness);
        // The last timer wakes the waiting thread.
        let before = self.fired.fetch_add(1, Relaxed);
        if before + 1 == self.expected {
            *self.done.lock() = true;
            self.ended.notify_all();
        }
    }

    /// Waits until the expected number of timers have fired; returns the process's processor time
    /// meanwhile, in nanoseconds. Returns `None` after a minute.
    pub(crate) fn wait(&self) -> Option<u64> {
        let before_ns = process_cpu_ns();
        // A lost timer must not block the run.
        let mut done = self.done.lock();
        self.ended
            .wait_while_for(&mut done, |done| !*done, PATIENCE);
        if *done {
            Some(process_cpu_ns() - before_ns)
        } else {
            None
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.fired.load(Relaxed)
    }

    pub(crate) fn lateness(&self) -> Lateness {
        self.lateness.lock().clone()
    }
}

/// Creates a histogram of nanoseconds up to a minute, to two digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("legal bounds")
}

/// A waker that records in a sink that its timer has fired.
pub(crate) struct SinkWaker {
    sink: &'static Sink,
    due_ns: u64,
}

impl SinkWaker {
    pub(crate) fn waker(sink: &'static Sink, due_ns: u64) -> Waker {
        Waker::from(Arc::new(SinkWaker { sink, due_ns }))
    }
}

impl Wake for SinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.sink.fired(self.due_ns);
    }
}
