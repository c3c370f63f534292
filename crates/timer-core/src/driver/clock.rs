//! Where time comes from. Nothing else in this crate reads it.

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
/// A timer does not let its clock go back: what it reads is at least what was read before, and a
/// clock that panics stands still for that reading. One that is more than a second behind what it
/// showed before is not waited for: time goes on from there at its pace, so that a clock that was
/// an hour ahead once does not stop the timer for an hour
/// ([`TimerStats::clock_set_back`](crate::TimerStats::clock_set_back) counts it). (All of that
/// costs a word that all threads write, and is spared for a clock that [is
/// steady](Self::is_steady).) A clock that jumps ahead, because the machine was suspended, is
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

    fn is_steady(&self) -> bool {
        true
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

    fn is_steady(&self) -> bool {
        true
    }
}

/// Another's clock, kept from going back and from panicking.
///
/// It stands still while the clock is behind what it showed before, but not for longer than
/// [`BEHIND_MAX_NS`]: further behind, what it showed before was wrong, and time goes on from there
/// at the clock's pace, until the clock shows again what it showed before: then it was only behind
/// for a while. How often it went back is counted.
#[derive(Debug)]
pub(crate) struct Steady<C> {
    clock: C,
    latest_ns: AtomicU64,
    /// What is added to the clock since it went back.
    ahead_ns: AtomicU64,
    set_back: Arc<AtomicU64>,
}

/// A clock is waited for when it is behind by no more than this.
const BEHIND_MAX_NS: u64 = 1_000_000_000;

impl<C: Clock> Steady<C> {
    pub(crate) fn new(clock: C, set_back: Arc<AtomicU64>) -> Self {
        let (latest_ns, ahead_ns) = Default::default();
        Steady { clock, latest_ns, ahead_ns, set_back }
    }

    /// What the clock shows, unless it panics.
    fn read(&self) -> Option<u64> {
        let mut now_ns = None;
        let _ = contain(|| now_ns = Some(self.clock.now_ns()));
        now_ns
    }

    /// The clock shows again what it showed before it went back.
    #[cold]
    fn come_back(&self, ahead_ns: u64) {
        let relaxed = Ordering::Relaxed;
        let _ = self.ahead_ns.compare_exchange(ahead_ns, 0, Ordering::AcqRel, relaxed);
    }

    /// The clock may have gone back a long way, or this thread was stopped since it read it: so it
    /// is read again after what was shown.
    #[cold]
    fn go_on(&self) {
        let ahead_ns = self.ahead_ns.load(Ordering::Acquire);
        let latest_ns = self.latest_ns.load(Ordering::Acquire);
        let Some(now_ns) = self.read() else { return };
        let behind_ns = latest_ns.saturating_sub(now_ns.saturating_add(ahead_ns));
        if behind_ns > BEHIND_MAX_NS {
            let further_ns = ahead_ns.saturating_add(behind_ns);
            let went_on = self.ahead_ns.compare_exchange(
                ahead_ns,
                further_ns,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            self.set_back.fetch_add(u64::from(went_on.is_ok()), Ordering::Relaxed);
        }
    }
}

impl<C: Clock> Clock for Steady<C> {
    fn now_ns(&self) -> u64 {
        let ahead_ns = self.ahead_ns.load(Ordering::Acquire);
        let Some(now_ns) = self.read() else { return self.latest_ns.load(Ordering::Acquire) };
        let now_ns = match ahead_ns {
            0 => now_ns,
            _ if now_ns.saturating_add(BEHIND_MAX_NS) >= self.latest_ns.load(Ordering::Acquire) => {
                self.come_back(ahead_ns);
                now_ns
            }
            _ => now_ns.saturating_add(ahead_ns),
        };
        let latest_ns = self.latest_ns.fetch_max(now_ns, Ordering::AcqRel);
        if latest_ns.saturating_sub(now_ns) > BEHIND_MAX_NS {
            self.go_on();
        }
        latest_ns.max(now_ns)
    }

    fn sleep_max(&self) -> Option<Duration> {
        let mut sleep_max = None;
        let _ = contain(|| sleep_max = self.clock.sleep_max());
        sleep_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows what it is told, and panics at the end of time.
    #[derive(Clone, Debug, Default)]
    struct Told(Arc<AtomicU64>);

    impl Clock for Told {
        fn now_ns(&self) -> u64 {
            let now_ns = self.0.load(Ordering::Acquire);
            assert!(now_ns < u64::MAX, "a clock that panics");
            now_ns
        }
    }

    #[test]
    fn a_clock_that_was_an_hour_ahead_once_is_waited_for_a_second_at_most() {
        const SECOND: u64 = 1_000_000_000;
        let (told, set_back) = (Told::default(), Arc::<AtomicU64>::default());
        let steady = Steady::new(told.clone(), set_back.clone());
        let read = |now_ns| {
            told.0.store(now_ns, Ordering::Release);
            (steady.now_ns(), set_back.load(Ordering::Relaxed))
        };
        assert_eq!(read(5 * SECOND), (5 * SECOND, 0));
        assert_eq!(read(4 * SECOND), (5 * SECOND, 0), "a second behind: it is waited for");
        assert_eq!(read(u64::MAX), (5 * SECOND, 0), "a panic says nothing");
        let hour = 3600 * SECOND;
        assert_eq!(read(hour), (hour, 0));
        assert_eq!(read(6 * SECOND), (hour, 1), "it goes on from there");
        assert_eq!(read(7 * SECOND), (hour + SECOND, 1));
        assert_eq!(read(2 * hour), (2 * hour, 1), "it is where it was before");
        assert_eq!(read(8 * SECOND), (2 * hour, 2));
        assert_eq!(read(10 * SECOND), (2 * hour + 2 * SECOND, 2));
        assert_eq!(
            read(2 * hour + 2 * SECOND),
            (2 * hour + 2 * SECOND, 2),
            "nothing is early by it"
        );
        assert_eq!(read(2 * hour + 3 * SECOND), (2 * hour + 3 * SECOND, 2));
    }
}
