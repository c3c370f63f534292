//! Counts and histograms of endings: several tallies, merged when someone asks.

use std::time::Duration;

use hdrhistogram::Histogram;

/// How a produce ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The high watermark passed it.
    Completed,
    /// Its time ran out.
    Expired,
    /// It was ended from outside.
    Cancelled,
}

/// What is known when a produce ends.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// When it was parked, on the run's clock.
    pub parked_at: Duration,
    /// How long it was allowed to wait.
    pub timeout: Duration,
    /// When it ended.
    pub at: Duration,
    /// The length of its line in bytes.
    pub bytes: u32,
}

impl Ended {
    /// How long it waited.
    pub fn waited(&self) -> Duration {
        self.at.saturating_sub(self.parked_at)
    }

    /// How long after its deadline it ended; none if that was before the deadline.
    pub fn lateness(&self) -> Option<Duration> {
        self.at.checked_sub(self.parked_at.saturating_add(self.timeout))
    }
}

/// Times to a thousandth of their size, from a nanosecond up.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

/// What a table says of a distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// Half were at most this long.
    pub p50: Duration,
    /// Of a hundred, 99 were at most this long.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self(
            Histogram::new(3)
                .expect("three significant figures are within what the histogram can do"),
        )
    }
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows as needed, so nothing is out of range.
        let recorded = self.0.record(nanos);
        debug_assert!(recorded.is_ok());
    }

    fn merge(&mut self, other: &Times) {
        let merged = self.0.add(&other.0);
        debug_assert!(merged.is_ok());
    }

    /// Its quantiles; none while it is empty.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let at = |quantile| Duration::from_nanos(self.0.value_at_quantile(quantile));
        let max = Duration::from_nanos(self.0.max());
        (!self.0.is_empty()).then(|| Quantiles { p50: at(0.5), p99: at(0.99), max })
    }
}

/// The endings seen in one place, or merged over several.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Produces that completed.
    pub completed: u64,
    /// Produces that expired.
    pub expired: u64,
    /// Produces that were cancelled.
    pub cancelled: u64,
    /// Bytes of text in the completed ones.
    pub bytes_completed: u64,
    /// How long the completed ones waited.
    pub wait: Times,
    /// How late the expired ones were told.
    pub lateness: Times,
}

impl Tally {
    /// Adds an ending.
    pub fn add(&mut self, ended: &Ended) {
        match ended.ending {
            Ending::Completed => {
                self.completed += 1;
                self.bytes_completed += u64::from(ended.bytes);
                self.wait.add(ended.waited());
            }
            Ending::Expired => {
                self.expired += 1;
                self.lateness.add(ended.lateness().unwrap_or_default());
            }
            Ending::Cancelled => self.cancelled += 1,
        }
    }

    /// Adds the counts of another tally, without its histograms.
    pub fn merge_counts(&mut self, other: &Tally) {
        self.completed += other.completed;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.bytes_completed += other.bytes_completed;
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        self.merge_counts(other);
        self.wait.merge(&other.wait);
        self.lateness.merge(&other.lateness);
    }

    /// How many endings that is.
    pub fn ended(&self) -> u64 {
        self.completed + self.expired + self.cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ending: Ending, at_ms: u64) -> Ended {
        let ms = Duration::from_millis;
        Ended { ending, parked_at: ms(100), timeout: ms(50), at: ms(at_ms), bytes: 7 }
    }

    #[test]
    fn lateness_counts_from_the_deadline_and_is_never_negative() {
        assert_eq!(ended(Ending::Expired, 149).lateness(), None);
        assert_eq!(ended(Ending::Expired, 150).lateness(), Some(Duration::ZERO));
        assert_eq!(ended(Ending::Expired, 152).lateness(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn tallies_merge() {
        let (mut one, mut two) = (Tally::default(), Tally::default());
        one.add(&ended(Ending::Completed, 110));
        two.add(&ended(Ending::Completed, 3_600_100));
        two.add(&ended(Ending::Expired, 151));
        two.add(&ended(Ending::Cancelled, 120));
        one.merge(&two);
        assert_eq!((one.completed, one.expired, one.cancelled, one.ended()), (2, 1, 1, 4));
        assert_eq!(one.bytes_completed, 14);
        let wait = one.wait.quantiles().unwrap();
        assert!(
            wait.p50.abs_diff(Duration::from_millis(10)) < Duration::from_micros(20),
            "{wait:?}"
        );
        assert!(wait.max.abs_diff(Duration::from_secs(3600)) < Duration::from_secs(4), "{wait:?}");
        assert!(Tally::default().wait.quantiles().is_none());
    }
}
