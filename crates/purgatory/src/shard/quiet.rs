//! The clock of quiet keys, which have waiters and see no event.

use std::{num::NonZeroU32, time::Duration};

/// A time since the purgatory was built, in units of 50 ms: six years in four bytes, so that a
/// record stays small. All later times count as the same, so no key is quiet then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuietClock(NonZeroU32);

impl QuietClock {
    const UNIT_NS: u64 = 50_000_000;

    /// Rounds a time down to the unit.
    pub(crate) fn at_ns(now_ns: u64) -> Self {
        // Saturating, never wrapping: a wrapped time would make a quiet key look busy.
        let units = u32::try_from(now_ns / Self::UNIT_NS).unwrap_or(u32::MAX);
        QuietClock(NonZeroU32::MIN.saturating_add(units))
    }

    /// Returns the time since an earlier one, to a unit.
    pub(super) fn since(self, earlier: QuietClock) -> Duration {
        let units = self.0.get().saturating_sub(earlier.0.get());
        Duration::from_nanos(u64::from(units) * Self::UNIT_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

    #[test]
    fn quiet_time_counts_on_for_six_years() {
        let start = QuietClock::at_ns(0);
        for days in [0, 49, 50, 500, 2400] {
            let quiet = QuietClock::at_ns(days * DAY_NS).since(start);
            assert_eq!(quiet, Duration::from_nanos(days * DAY_NS));
        }
        let last = QuietClock::at_ns(u64::MAX);
        assert!(last.since(start) > QuietClock::at_ns(2400 * DAY_NS).since(start));
        assert_eq!(last.since(last), Duration::ZERO);
    }
}
