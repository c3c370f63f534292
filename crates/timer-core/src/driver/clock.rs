//! Where time comes from. Nothing else in this crate reads it (but `boot_clock`, its other file).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::driver::panics::contain;

/// A source of time: nanoseconds since an origin of its own.
///
/// A timer does not let its clock go back: what it reads is at least what was read before, and a clock
/// that panics stands still for that reading. (That costs a word that all threads write, and is
/// spared for a clock that [is steady](Self::is_steady).) A clock that jumps ahead, because the machine
/// was suspended, is caught up with in bounded steps.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Nanoseconds since the clock's origin; `u64::MAX` (584 years) is the end of time. May be called under
    /// a lock of whoever keeps wheels, and must not call back.
    fn now_ns(&self) -> u64;

    /// The longest a thread may sleep before it must look at this clock again, while it waits for
    /// one of its moments. `None`, for a clock that keeps step with a sleeping thread, is the
    /// default.
    fn sleep_max(&self) -> Option<Duration> {
        None
    }

    /// True for a clock that promises never to go back, on any thread, and never to panic.
    fn is_steady(&self) -> bool {
        false
    }
}

/// The machine's monotonic clock, counted from when this value was made.
///
/// It does not go back, and on Linux it stands still while the machine is suspended.
///
/// ```
/// use timer_core::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now_ns();
/// assert!(clock.now_ns() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the time")]
impl SystemClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        SystemClock { origin: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.origin)
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        let elapsed = self.elapsed();
        elapsed
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(elapsed.subsec_nanos().into())
    }

    fn is_steady(&self) -> bool {
        true
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

/// Moments of a clock as `Instant`s, for those who tell the time in them: counted from the present.
#[cfg(feature = "hyper")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instants {
    origin: Instant,
    origin_ns: u64,
}

#[cfg(feature = "hyper")]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the time")]
impl Instants {
    /// With `now_ns` on the clock.
    pub(crate) fn new(now_ns: u64) -> Self {
        Instants { origin: Instant::now(), origin_ns: now_ns }
    }

    /// A moment of the clock, from the origin on; the origin itself when it lies beyond what an `Instant`
    /// can tell.
    pub(crate) fn at_ns(&self, ns: u64) -> Instant {
        let since = Duration::from_nanos(ns.saturating_sub(self.origin_ns));
        self.origin.checked_add(since).unwrap_or(self.origin)
    }

    /// A moment on the clock; what lies before the origin is the origin.
    pub(crate) fn to_ns(self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin).as_nanos();
        self.origin_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// A clock turned by hand. Clones show the same time.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_millis(3));
/// assert_eq!(clock.now_ns(), 3_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows 0.
    pub fn new() -> Self {
        ManualClock::default()
    }

    /// Moves the clock ahead, at most to the end of time.
    pub fn advance(&self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let ahead = |now_ns: u64| Some(now_ns.saturating_add(by_ns));
        let _ = self.now_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, ahead);
    }

    /// Moves the clock ahead to `now_ns`; one in the past changes nothing.
    pub fn advance_to(&self, now_ns: u64) {
        self.now_ns.fetch_max(now_ns, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    fn is_steady(&self) -> bool {
        true
    }
}

/// Another's clock, kept from going back and from panicking.
#[derive(Debug)]
pub(crate) struct Steady<C> {
    clock: C,
    latest_ns: AtomicU64,
}

impl<C: Clock> Steady<C> {
    pub(crate) fn new(clock: C) -> Self {
        Steady { clock, latest_ns: AtomicU64::new(0) }
    }
}

impl<C: Clock> Clock for Steady<C> {
    fn now_ns(&self) -> u64 {
        let mut now_ns = 0;
        let _ = contain(|| now_ns = self.clock.now_ns());
        self.latest_ns.fetch_max(now_ns, Ordering::AcqRel).max(now_ns)
    }

    fn sleep_max(&self) -> Option<Duration> {
        let mut sleep_max = None;
        let _ = contain(|| sleep_max = self.clock.sleep_max());
        sleep_max
    }
}
