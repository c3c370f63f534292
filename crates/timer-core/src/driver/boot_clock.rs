//! `BootClock`, where the platform has one (feature `boot-clock`).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::driver::clock::Clock;

/// The machine's monotonic clock that goes on while the machine is suspended: nanoseconds since it
/// booted (Linux, Android; feature `boot-clock`).
///
/// What fell due during a suspend fires soon after it. A sleeping thread does not feel a suspend,
/// so while something is pending the reaper looks at this clock once a second.
///
/// ```
/// use timer_core::{BootClock, SystemTimer};
///
/// let timer = SystemTimer::builder().clock(BootClock::new()).build()?;
/// # Ok::<(), timer_core::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BootClock;

impl BootClock {
    /// The clock.
    pub fn new() -> Self {
        BootClock
    }
}

impl Clock for BootClock {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }

    fn sleep_max(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn is_steady(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::clock::SystemClock;

    #[test]
    fn the_boot_clock_goes_on_and_is_ahead_of_a_clock_made_now() {
        let clock = BootClock::new();
        let before = clock.now_ns();
        assert!(before > SystemClock::new().now_ns());
        assert!(clock.now_ns() >= before);
    }
}
