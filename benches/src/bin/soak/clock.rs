//! The injected clock: the machine's, with jumps forwards and backwards and readings that panic.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use timer_core::{Clock, SystemClock};

/// What it shows at first, so that there is room for jumps backwards.
const ORIGIN_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// A clock that jumps when told to. Clones show the same time.
///
/// It keeps a second count, which no jump backwards touches: the *total* of the time that has
/// really passed and of all jumps forwards. No timer on this clock can have gone on by more, so
/// what expires before that total has grown by its timeout is early, however the timer deals with
/// jumps.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    real: SystemClock,
    offset_ns: AtomicU64,
    forwards_ns: AtomicU64,
    /// Raised before each jump and after it.
    jumps: AtomicU32,
    /// Readings to come that panic, and those that did.
    panics: AtomicU32,
    panicked: AtomicU64,
}

impl JumpingClock {
    pub(crate) fn new() -> Self {
        let (forwards_ns, jumps, panics, panicked) = Default::default();
        let offset_ns = AtomicU64::new(ORIGIN_NS);
        let real = SystemClock::new();
        let shared = Shared { real, offset_ns, forwards_ns, jumps, panics, panicked };
        JumpingClock { shared: Arc::new(shared) }
    }

    /// Time that has really passed.
    pub(crate) fn real_ns(&self) -> u64 {
        self.shared.real.now_ns()
    }

    /// Time that has really passed, and all jumps forwards.
    pub(crate) fn total_ns(&self) -> u64 {
        self.real_ns() + self.shared.forwards_ns.load(SeqCst)
    }

    /// Changes with each jump.
    pub(crate) fn epoch(&self) -> u32 {
        self.shared.jumps.load(SeqCst)
    }

    /// Readings that have panicked.
    pub(crate) fn panicked(&self) -> u64 {
        self.shared.panicked.load(SeqCst)
    }

    pub(crate) fn forwards(&self, by: Duration) {
        let by_ns = by.as_nanos() as u64;
        self.shared.jumps.fetch_add(1, SeqCst);
        self.shared.forwards_ns.fetch_add(by_ns, SeqCst); // first: the total is never behind
        self.shared.offset_ns.fetch_add(by_ns, SeqCst);
        self.shared.jumps.fetch_add(1, SeqCst);
    }

    /// Goes back, at most to its origin.
    pub(crate) fn backwards(&self, by: Duration) {
        let back = |offset_ns: u64| Some(offset_ns.saturating_sub(by.as_nanos() as u64));
        self.shared.jumps.fetch_add(1, SeqCst);
        let _ = self.shared.offset_ns.fetch_update(SeqCst, SeqCst, back);
        self.shared.jumps.fetch_add(1, SeqCst);
    }

    /// The next readings panic, so many.
    pub(crate) fn panic_next(&self, readings: u32) {
        self.shared.panics.store(readings, SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        if self.shared.panics.load(SeqCst) > 0 {
            let one_less = |left: u32| left.checked_sub(1);
            if self.shared.panics.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
                self.shared.panicked.fetch_add(1, SeqCst);
                resume_unwind(Box::new("a clock that panics"));
            }
        }
        self.real_ns() + self.shared.offset_ns.load(SeqCst)
    }

    /// A sleeping thread does not hear of a jump.
    fn sleep_max(&self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_grows_with_jumps_forwards_alone() {
        let clock = JumpingClock::new();
        let hour = Duration::from_secs(3600);
        let hour_ns = hour.as_nanos() as u64;
        clock.forwards(hour);
        let (shown_ns, total_ns) = (clock.now_ns(), clock.total_ns());
        assert!(shown_ns >= ORIGIN_NS + hour_ns && total_ns >= hour_ns);
        clock.backwards(2 * hour);
        assert!(clock.now_ns() < shown_ns && clock.total_ns() >= total_ns);
        assert_eq!(clock.epoch(), 4);
    }
}
