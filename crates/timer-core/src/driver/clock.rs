//! Clocks, and the moments that they show. Nothing else in this crate reads the time.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Add,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A moment of one clock, in nanoseconds since the clock's origin: a `u64`, so up to 584 years.
///
/// [`Timer::now`](crate::Timer::now) returns the present of a timer, and a timer takes moments as
/// deadlines. Adding a duration never overflows: beyond the end of time the sum is
/// [`NEVER`](Self::NEVER). Moments of different clocks can be compared, but the result means
/// nothing.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{ManualTimer, Moment};
///
/// let timer = ManualTimer::new();
/// let began = timer.now();
/// let deadline = began + Duration::from_secs(30);
/// timer.schedule_at(deadline, || ())?;
/// timer.advance(Duration::from_secs(10));
/// assert_eq!(timer.now().since(began), Duration::from_secs(10));
/// assert_eq!(deadline.since(timer.now()), Duration::from_secs(20));
/// assert_eq!(began + Duration::MAX, Moment::NEVER);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The end of time. No timer's clock shows it, however far it is advanced: a deadline at it is
    /// never reached.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The latest moment that a clock shows.
    pub(crate) const LAST: Moment = Moment(u64::MAX - 1);

    /// Returns the moment `nanos` nanoseconds after the clock's origin, as [`Clock::now_ns`] counts
    /// them.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` until this moment; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// Returns the moment that much later; [`NEVER`](Self::NEVER) beyond the end of time.
    fn add(self, delay: Duration) -> Moment {
        Moment(later_ns(self.0, delay))
    }
}

/// A source of time: nanoseconds since an origin of its own.
///
/// A clock must be monotonic, on any thread, and must not panic. A clock that goes back makes tasks
/// late that were scheduled before, and tasks that are scheduled after may fire early by as much.
/// When a clock jumps ahead, the timer catches up in bounded steps. A panic reaches the caller
/// of a scheduling method. A panic on the reaper is contained, counted
/// ([`TimerStats::panics`](crate::TimerStats::panics)) and reported, and the reaper tries again 100
/// ms later; a panic after a run of a periodic task counts as that task's. With a
/// [grace](crate::SystemTimerBuilder::grace) a call that wakes the reaper reads the clock once
/// more, and a panic of that read is contained and counted.
///
/// # Deadlines of the wall clock
/// A timer on the machine's wall clock takes deadlines such as `expires_at` of a token: a
/// `SystemTime` becomes a moment. If the wall clock is set ahead, deadlines come sooner. If it is
/// set back, this clock stands still until the wall clock has caught up, and so does every delay.
///
/// ```
/// use std::{
///     sync::atomic::{AtomicU64, Ordering},
///     time::{Duration, SystemTime, UNIX_EPOCH},
/// };
/// use timer_core::{Clock, Moment, SystemTimer};
///
/// /// The wall clock since the Unix epoch, which never goes back: the latest time that it showed.
/// #[derive(Debug, Default)]
/// struct WallClock(AtomicU64);
///
/// fn moment(time: SystemTime) -> Moment {
///     Moment::default() + time.duration_since(UNIX_EPOCH).unwrap_or_default()
/// }
///
/// impl Clock for WallClock {
///     fn now_ns(&self) -> u64 {
///         let now_ns = moment(SystemTime::now()).as_nanos();
///         self.0.fetch_max(now_ns, Ordering::AcqRel).max(now_ns)
///     }
///     fn sleep_max(&self) -> Option<Duration> {
///         Some(Duration::from_secs(1)) // it may be set ahead while a thread sleeps
///     }
/// }
///
/// let timer = SystemTimer::builder().clock(WallClock::default()).build()?;
/// let expires_at = SystemTime::now() + Duration::from_millis(5); // it came with the token
/// let (send, fired) = std::sync::mpsc::channel();
/// timer.schedule_at(moment(expires_at), move || send.send(SystemTime::now()).unwrap())?;
/// assert!(fired.recv()? >= expires_at);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Time in suspend
/// On Linux std's `Instant` stands still while the machine is suspended. `CLOCK_BOOTTIME`, which the
/// crate `rustix` reads, does not: a deadline that passes during a suspend is found within
/// [`sleep_max`](Self::sleep_max) after it.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use std::time::Duration;
/// use rustix::time::{ClockId, clock_gettime}; // rustix = { version = "1", features = ["time"] }
/// use timer_core::{Clock, SystemTimer};
///
/// /// The time since the machine booted, suspended or not.
/// #[derive(Debug)]
/// struct BootClock;
///
/// impl Clock for BootClock {
///     fn now_ns(&self) -> u64 {
///         let now = clock_gettime(ClockId::Boottime);
///         now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
///     }
///     fn sleep_max(&self) -> Option<Duration> {
///         Some(Duration::from_secs(1)) // a thread's sleep counts no suspend
///     }
/// }
///
/// let timer = SystemTimer::builder().clock(BootClock).build().unwrap();
/// let (send, fired) = std::sync::mpsc::channel();
/// timer.schedule(Duration::from_millis(5), move || send.send(()).unwrap()).unwrap();
/// fired.recv().unwrap();
/// # }
/// ```
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns the nanoseconds since the clock's origin, below `u64::MAX` (584 years), which is
    /// [`Moment::NEVER`]. May be called under the lock of a wheel, and must not call the timer.
    ///
    /// A plain number, since clocks are written by hand and read on the hot path;
    /// [`now`](Self::now) is the same as a moment.
    fn now_ns(&self) -> u64;

    /// Returns the present, as a moment of this clock.
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now_ns())
    }

    /// Returns the longest time that a thread may sleep before it must look at this clock again,
    /// while it waits for one of its moments: a jump ahead is found at most this much later. While
    /// anything is pending the reaper wakes that often. `None`, the default, is for a clock that
    /// keeps step with a sleeping thread.
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
    /// The origin as a number, where an `Instant` can be read as one.
    origin_ns: Option<u64>,
}

/// An `Instant` as a number of nanoseconds, from an origin of std's. To subtract two `Instant`s
/// takes 60 instructions more, of the 150 of a clock read.
///
/// An `Instant` hands this number to a hasher: its seconds and its nanoseconds, as its `Hash` is
/// derived today. Each new clock tests whether that is so.
#[derive(Default)]
struct Reading {
    ns: u64,
}

impl Reading {
    /// Reads an instant, modulo 2^64.
    fn ns(instant: Instant) -> u64 {
        let mut reading = Reading::default();
        instant.hash(&mut reading);
        reading.finish()
    }

    /// Reads an origin; `None` if readings are no such numbers.
    fn origin_ns(origin: Instant) -> Option<u64> {
        let origin_ns = Self::ns(origin);
        let second = Duration::from_secs(1);
        let later = [
            Duration::from_nanos(1),
            second,
            second / 3,
            second * 2 / 3,
            second * 86_400,
        ];
        let is_right = later.into_iter().all(|later| {
            let read = origin.checked_add(later).map(Self::ns);
            read == Some(origin_ns.wrapping_add(whole_ns(later)))
        });
        is_right.then_some(origin_ns)
    }

    /// Returns the time from an origin to an instant that is not earlier, both read: up to 292 years.
    #[inline]
    fn since(now_ns: u64, origin_ns: u64) -> u64 {
        // If the clock goes back nevertheless, it stands at its origin.
        (now_ns.wrapping_sub(origin_ns) as i64).max(0) as u64
    }
}

impl Hasher for Reading {
    fn write_i64(&mut self, secs: i64) {
        self.write_u64(secs as u64);
    }

    fn write_u64(&mut self, secs: u64) {
        self.ns = self.ns.wrapping_add(secs.wrapping_mul(1_000_000_000));
    }

    fn write_u32(&mut self, nanos: u32) {
        self.ns = self.ns.wrapping_add(nanos.into());
    }

    fn write(&mut self, _: &[u8]) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.ns
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the time"
)]
impl SystemClock {
    /// Makes a clock whose origin is now.
    pub fn new() -> Self {
        let origin = Instant::now();
        SystemClock {
            origin,
            origin_ns: Reading::origin_ns(origin),
        }
    }

    /// Converts an `Instant` to a moment of this clock, for
    /// [`schedule_at`](crate::Timer::schedule_at) of a timer on it. An `Instant` before the clock's
    /// origin becomes that origin.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use timer_core::{SystemClock, SystemTimer};
    ///
    /// let clock = SystemClock::new();
    /// let timer = SystemTimer::builder().clock(clock).build()?;
    /// let until = Instant::now() + Duration::from_millis(5); // it came with the request
    /// let (send, fired) = std::sync::mpsc::channel();
    /// timer.schedule_at(clock.moment(until), move || send.send(Instant::now()).unwrap())?;
    /// assert!(fired.recv()? >= until);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn moment(&self, instant: Instant) -> Moment {
        let since = instant.saturating_duration_since(self.origin);
        Moment(whole_ns(since))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the time"
)]
impl Clock for SystemClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        let now = Instant::now();
        match self.origin_ns {
            Some(origin_ns) => Reading::since(Reading::ns(now), origin_ns),
            None => self.moment(now).as_nanos(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

/// The clock of a [`ManualTimer`](crate::ManualTimer). Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// Moves the clock ahead to `now_ns`, or to the last moment before the end of time; a time in
    /// the past changes nothing.
    pub(crate) fn advance_to(&self, now_ns: u64) {
        let now_ns = now_ns.min(Moment::LAST.as_nanos());
        self.now_ns.fetch_max(now_ns, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }
}

/// The clock of a driver.
#[derive(Clone, Debug)]
pub(crate) enum DriverClock {
    /// The machine's, which most timers use: read without a call through a table.
    Machine(SystemClock),
    /// Another one of this crate's.
    Own(Arc<dyn Clock>),
    /// A clock of the program's: reading it runs the user's code.
    User(Arc<dyn Clock>),
}

impl Clock for DriverClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        match self {
            DriverClock::Machine(clock) => clock.now_ns(),
            DriverClock::Own(clock) | DriverClock::User(clock) => clock.now_ns(),
        }
    }

    fn sleep_max(&self) -> Option<Duration> {
        match self {
            DriverClock::Machine(clock) => clock.sleep_max(),
            DriverClock::Own(clock) | DriverClock::User(clock) => clock.sleep_max(),
        }
    }
}

/// Returns the moment `delay` after another, in nanoseconds; `u64::MAX` when it lies beyond them.
pub(crate) fn later_ns(from_ns: u64, delay: Duration) -> u64 {
    from_ns.saturating_add(whole_ns(delay))
}

/// Returns a duration in nanoseconds; `u64::MAX` for a longer one.
fn whole_ns(duration: Duration) -> u64 {
    // `as_nanos` counts in 128 bits, which takes twice the steps.
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(duration.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the `Hash` of an `Instant` changes, clocks subtract: this test says that reads cost more.
    #[test]
    fn an_instant_reads_as_a_number() {
        let clock = SystemClock::new();
        let origin_ns = clock.origin_ns.expect("seconds and nanoseconds");
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let later = Duration::new(random.u64(0..1 << 32), random.u32(0..1_000_000_000));
            let read_ns = Reading::since(Reading::ns(clock.origin + later), origin_ns);
            assert_eq!(u128::from(read_ns), later.as_nanos());
        }
        assert_eq!(Reading::since(origin_ns.wrapping_sub(1), origin_ns), 0);
        assert_eq!(Reading::since(3, u64::MAX - 3), 7);
    }

    #[test]
    fn subtracting_clock_agrees_with_a_reading_clock() {
        let reads = SystemClock::new();
        let subtracts = SystemClock {
            origin_ns: None,
            ..reads
        };
        let before_ns = reads.now_ns();
        let between_ns = subtracts.now_ns();
        assert!((before_ns..=reads.now_ns()).contains(&between_ns));
    }
}
