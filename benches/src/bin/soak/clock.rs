//! The injected clock: the machine's, with jumps forwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use timer_core::{Clock, SystemClock};

/// A clock that jumps when told to. Clones show the same time.
///
/// No timer on this clock can have gone on by more than its *total*: the time that has really
/// passed and all jumps. So what expires before that has grown by its timeout is early.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    real: SystemClock,
    forwards_ns: AtomicU64,
    /// Raised before each jump and after it.
    jumps: AtomicU32,
}

impl JumpingClock {
    pub(crate) fn new() -> Self {
        let (forwards_ns, jumps) = Default::default();
        let shared = Shared { real: SystemClock::new(), forwards_ns, jumps };
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

    pub(crate) fn forwards(&self, by: Duration) {
        let by_ns = by.as_nanos() as u64;
        self.shared.jumps.fetch_add(1, SeqCst);
        self.shared.forwards_ns.fetch_add(by_ns, SeqCst);
        self.shared.jumps.fetch_add(1, SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        self.total_ns()
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
        assert!(clock.now_ns() >= hour_ns && clock.total_ns() >= hour_ns);
        assert_eq!(clock.epoch(), 2);
    }
}
