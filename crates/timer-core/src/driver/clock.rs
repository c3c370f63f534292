//! Where time comes from. Nothing else in this crate reads it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A source of time: nanoseconds since an origin of its own.
///
/// It must be monotonic, on any thread, and must not panic. A wheel ignores a time earlier than its
/// present, so a clock that goes back makes what was scheduled before late, and what is scheduled
/// then may fire early by as much. A clock that jumps ahead, because the machine was suspended, is
/// caught up with in bounded steps.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Nanoseconds since the clock's origin; `u64::MAX` (584 years) is the end of time. May be
    /// called under a lock of whoever keeps wheels, and must not call back.
    fn now_ns(&self) -> u64;

    /// The longest a thread may sleep before it must look at this clock again, while it waits for
    /// one of its moments. `None`, for a clock that keeps step with a sleeping thread, is the
    /// default.
    fn sleep_max(&self) -> Option<Duration> {
        None
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

    /// An `Instant` as a moment of this clock, in nanoseconds: what
    /// [`schedule_at`](crate::Timer::schedule_at) of a timer on it takes, and `Timeout::At` of a
    /// purgatory on that. One before the clock's origin is 0.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use timer_core::{SystemClock, SystemTimer, Timer};
    ///
    /// let clock = SystemClock::new();
    /// let timer = SystemTimer::builder().clock(clock).build()?;
    /// let until = Instant::now() + Duration::from_millis(5); // it came with the request
    /// let (send, fired) = std::sync::mpsc::channel();
    /// timer.schedule_at(clock.timeout_at(until), move || send.send(Instant::now()).unwrap())?;
    /// assert!(fired.recv()? >= until);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout_at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin);
        since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into())
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the time")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.timeout_at(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
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
}
