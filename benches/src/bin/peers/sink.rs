//! Where timers tell that they have fired: counts them, and notes how late they are (or how early).
//!
//! Noting costs the thread that fires: a count for a burst; a clock read, a lock and a histogram
//! for lateness.

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

/// The record that a sink keeps of the timers that fire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noted {
    /// When the last fired.
    Last,
    /// How late each is, after the deadline asked for.
    Lateness,
}

#[derive(Debug)]
pub(crate) struct Sink {
    clock: SystemClock,
    expected: u64,
    fired: AtomicU64,
    last_ns: AtomicU64,
    noted: Noted,
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
    /// A sink that expects this many timers to fire. It is never freed, as timers of all kinds
    /// refer to it.
    pub(crate) fn leaked(expected: u64, noted: Noted) -> &'static Sink {
        Box::leak(Box::new(Sink {
            clock: SystemClock::new(),
            expected,
            fired: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            noted,
            lateness: Mutex::new(Lateness {
                ns: histogram(),
                early: 0,
            }),
            done: Mutex::new(false),
            ended: Condvar::new(),
        }))
    }

    /// Of timers that must not fire.
    pub(crate) fn for_none() -> &'static Sink {
        Sink::leaked(0, Noted::Last)
    }

    /// The clock in which moments are told.
    pub(crate) fn clock(&self) -> SystemClock {
        self.clock
    }

    /// A timer that was due at `due_ns` fires.
    pub(crate) fn fired(&self, due_ns: u64) {
        if let Noted::Lateness = self.noted {
            let now = self.clock.now_ns();
            let mut lateness = self.lateness.lock();
            lateness.early += u64::from(now < due_ns);
            lateness.ns.saturating_record(now.saturating_sub(due_ns));
        }
        let before = self.fired.fetch_add(1, Relaxed);
        if before + 1 == self.expected {
            self.last_ns.store(self.clock.now_ns(), Relaxed);
            *self.done.lock() = true;
            self.ended.notify_all();
        }
    }

    /// Waits until as many as expected have fired: nanoseconds of the process on the processors
    /// meanwhile. `None` when that takes longer than a minute.
    pub(crate) fn wait(&self) -> Option<u64> {
        let before_ns = process_cpu_ns();
        let mut done = self.done.lock();
        self.ended
            .wait_while_for(&mut done, |done| !*done, PATIENCE);
        done.then(|| process_cpu_ns() - before_ns)
    }

    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    pub(crate) fn count(&self) -> u64 {
        self.fired.load(Relaxed)
    }

    /// When the last fired.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns.load(Relaxed)
    }

    pub(crate) fn lateness(&self) -> Lateness {
        self.lateness.lock().clone()
    }
}

/// A histogram of nanoseconds up to a minute, to two digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("legal bounds")
}

/// A waker that tells a sink.
pub(crate) struct TellsSink {
    sink: &'static Sink,
    due_ns: u64,
}

impl TellsSink {
    pub(crate) fn waker(sink: &'static Sink, due_ns: u64) -> Waker {
        Waker::from(Arc::new(TellsSink { sink, due_ns }))
    }
}

impl Wake for TellsSink {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.sink.fired(self.due_ns);
    }
}
