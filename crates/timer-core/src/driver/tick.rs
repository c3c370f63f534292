//! Ticks, the unit in which wheels count time. Only this file converts nanoseconds to ticks.
//!
//! A clock counts the nanoseconds since its origin; the wheel only knows whole ticks. *Deadlines
//! round up, the present rounds down*: a task due at `d` ns sits at tick `ceil(d / tick)`, and the
//! wheel advances to `floor(now / tick)`. So a task can only be reached when `now >= d`. That is
//! the whole of "never early", for any tick.

use std::{num::NonZeroU64, time::Duration};

use crate::{driver::clock::Moment, wheel::geometry::OutOfBounds};

/// The length of one tick: the resolution of a wheel.
///
/// A task fires at the first tick at or after its deadline, so a longer tick means fewer buckets
/// and wake-ups, and up to one tick more lateness. It never makes a task early.
///
/// ```
/// use std::time::Duration;
/// use timer_core::TickLength;
///
/// let tick = TickLength::new(Duration::from_millis(10))?;
/// assert_eq!(tick.round_up(10_000_001), 2); // a deadline: up
/// assert_eq!(tick.round_down(19_999_999), 1); // the present: down
///
/// let error = TickLength::new(Duration::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "0ns is not between 100µs and 86400s");
/// # Ok::<(), timer_core::OutOfBounds<Duration>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TickLength {
    nanos: NonZeroU64,
}

impl TickLength {
    /// One millisecond, Kafka's tick and the default.
    pub const MILLISECOND: TickLength = TickLength {
        nanos: NonZeroU64::new(1_000_000).expect("not zero"),
    };
    /// The shortest tick: 100 µs. Below it a thread's wake-up costs more than the tick.
    pub const MIN: Duration = Duration::from_micros(100);
    /// The longest tick: one day.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Makes a tick of `length`.
    ///
    /// # Errors
    /// [`OutOfBounds`] outside [`MIN`](Self::MIN)`..=`[`MAX`](Self::MAX).
    pub fn new(length: Duration) -> Result<TickLength, OutOfBounds<Duration>> {
        OutOfBounds::check(length, Self::MIN, Self::MAX)?;
        // Within the bounds it is not zero, and fits into 64 bits.
        let nanos = NonZeroU64::MIN.saturating_add(length.as_nanos() as u64 - 1);
        Ok(TickLength { nanos })
    }

    /// Returns the tick's length.
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.nanos.get())
    }

    /// Returns the first tick at or after `time_ns`, which is how deadlines become ticks.
    pub fn round_up(self, time_ns: u64) -> u64 {
        time_ns.div_ceil(self.nanos.get())
    }

    /// Returns the last tick at or before `time_ns`, which is how the present becomes a tick.
    pub fn round_down(self, time_ns: u64) -> u64 {
        time_ns / self.nanos
    }

    /// Returns the tick of a deadline `delay` after `now_ns`, rounded up. A deadline beyond `u64`
    /// nanoseconds is at `u64::MAX`, which is never: no clock gets there, so no wheel works towards
    /// it.
    #[inline]
    pub fn deadline(self, now_ns: u64, delay: Duration) -> u64 {
        self.deadline_at(Moment::from_nanos(now_ns) + delay)
    }

    /// Returns the tick of a deadline at a moment, rounded up; `u64::MAX` for
    /// [`Moment::NEVER`].
    pub(crate) fn deadline_at(self, deadline: Moment) -> u64 {
        match deadline {
            Moment::NEVER => u64::MAX,
            deadline => self.round_up(deadline.as_nanos()),
        }
    }

    /// Returns the moment at which `tick` begins, in nanoseconds; `u64::MAX` for one beyond that.
    pub fn start_ns(self, tick: u64) -> u64 {
        tick.saturating_mul(self.nanos.get())
    }
}

impl Default for TickLength {
    fn default() -> Self {
        TickLength::MILLISECOND
    }
}

/// A deadline, and the present from which a wheel looks at it; both in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub(crate) now: u64,
    pub(crate) deadline: u64,
}

impl Ticks {
    /// Makes ticks without reading a clock: the wheel keeps its own present, which is later.
    pub(crate) fn without_now(deadline: u64) -> Ticks {
        Ticks { now: 0, deadline }
    }
}
