//! The statistics of a timer: counts and histograms of times, and publishing them.

#[cfg(feature = "metrics")]
pub(crate) mod metrics;

/// Implements `Debug` for a type whose parts are the user's, locked, or of no use to a user: shows
/// its name, and one field at most.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ([$($bounds:tt)*] $name:ident$(<$($of:tt),+>)? $(, $field:ident: $($path:tt)+)?) => {
        impl<$($bounds)*> std::fmt::Debug for $name$(<$($of),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$($path)+))?
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use opaque;

/// The counts of a timer, over all its wheels: its own tasks, those of each
/// [`TaskTimer`](crate::TaskTimer) on it, and those of every other owner of wheels. Exact when
/// idle.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimerStats {
    /// Tasks that will fall due. A task of `Duration::MAX` never does, and is in no count.
    pub pending: u64,
    /// Tasks that fell due.
    pub fired: u64,
    /// Tasks that were taken off before they fell due.
    pub cancelled: u64,
    /// Times that a task was handed down to a lower level.
    pub cascaded: u64,
    /// Times that the reaper woke up.
    pub wake_ups: u64,
    /// Wake-ups that found no work: nothing was due any more, and no thread had called.
    pub spurious_wake_ups: u64,
    /// Panics of tasks, handlers, wakers, owners of wheels and executors, of jobs that did not
    /// contain theirs, and of the clock on the reaper or while the reaper is woken. Periodic tasks
    /// that ended because the timer was full count as well.
    pub panics: u64,
    /// Grace periods after a pause of the process
    /// ([`SystemTimerBuilder::grace`](crate::SystemTimerBuilder::grace)).
    pub graces: u64,
    /// Jobs that wait for a worker, each a batch of due tasks; `None` when the executor does not
    /// count them.
    pub executor_queue: Option<u64>,
    /// The durations of the reaper's rounds, each over all shards that are due.
    pub turns: TimeHistogram,
}

/// A histogram of durations, from 10 µs to 10 minutes in steps of 2 to 3, and their exact sum.
/// Recording is O(log buckets) and allocates nothing.
///
/// ```
/// use timer_core::TimeHistogram;
///
/// let mut waits = TimeHistogram::default();
/// waits.record(3_000_000); // 3 ms, in nanoseconds
/// waits.record(4_000_000);
/// let bucket = TimeHistogram::BOUNDS_S.iter().position(|&bound| bound == 0.005).unwrap();
/// assert_eq!((waits.buckets()[bucket], waits.count(), waits.sum_s()), (2, 2, 0.007));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeHistogram {
    buckets: [u64; BUCKETS],
    /// The sum of each bucket in nanoseconds. With a million waits of 30 s a second, a `u64` would
    /// be full after ten minutes.
    sums_ns: [u128; BUCKETS],
}

const BUCKETS: usize = TimeHistogram::BOUNDS_S.len() + 1;

impl TimeHistogram {
    /// The upper bound of each bucket but the last, which has none; in seconds. A recorder whose
    /// histograms have these bounds shows all that is counted;
    /// [`COARSE_BOUNDS_S`](Self::COARSE_BOUNDS_S) make half as many series.
    pub const BOUNDS_S: &[f64] = &[
        0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
        0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ];

    /// Half of [`BOUNDS_S`](Self::BOUNDS_S), for a recorder whose histograms make a series for each
    /// bound; in seconds. They include the bounds that the alerts of `docs/prometheus` compare
    /// with. Each is one of `BOUNDS_S`, so a recorder with these counts each duration in its bucket.
    ///
    /// ```
    /// use timer_core::TimeHistogram;
    ///
    /// let coarse = TimeHistogram::COARSE_BOUNDS_S;
    /// assert_eq!((coarse.len(), TimeHistogram::BOUNDS_S.len()), (12, 24));
    /// assert!(coarse.iter().all(|bound_s| TimeHistogram::BOUNDS_S.contains(bound_s)));
    /// ```
    pub const COARSE_BOUNDS_S: &[f64] = &[
        0.0001, 0.0005, 0.0025, 0.01, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
    ];

    /// Counts a duration in nanoseconds.
    #[inline]
    pub fn record(&mut self, took_ns: u64) {
        let bucket = TimeHistogram::bucket_of(took_ns);
        self.buckets[bucket] += 1;
        self.sums_ns[bucket] += u128::from(took_ns);
    }

    /// Returns the bucket of a duration. A duration that equals a bound divides to that very bound:
    /// both are rounded from the same fraction.
    fn bucket_of(took_ns: u64) -> usize {
        let took_s = took_ns as f64 / 1e9;
        TimeHistogram::BOUNDS_S.partition_point(|&bound_s| bound_s < took_s)
    }

    /// Returns the counts of the buckets; the last one has no upper bound.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sums_ns.iter().sum::<u128>() as f64 / 1e9
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &TimeHistogram) {
        // Bucket by bucket: both have the same bounds.
        for at in 0..BUCKETS {
            self.buckets[at] += other.buckets[at];
            self.sums_ns[at] += other.sums_ns[at];
        }
    }

    /// Returns the counts gained since `earlier`, an older state of the same histogram: the
    /// durations of a minute, from totals a minute apart. A count that is higher in `earlier` comes
    /// out as 0.
    ///
    /// ```
    /// use timer_core::TimeHistogram;
    ///
    /// let mut waits = TimeHistogram::default();
    /// waits.record(3_000_000);
    /// let earlier = waits.clone();
    /// waits.record(4_000_000);
    /// let gained = waits.gained_since(&earlier);
    /// assert_eq!((gained.count(), gained.sum_s()), (1, 0.004));
    /// ```
    pub fn gained_since(&self, earlier: &TimeHistogram) -> TimeHistogram {
        let mut gained = TimeHistogram::default();
        for at in 0..BUCKETS {
            gained.buckets[at] = self.buckets[at].saturating_sub(earlier.buckets[at]);
            gained.sums_ns[at] = self.sums_ns[at].saturating_sub(earlier.sums_ns[at]);
        }
        gained
    }

    /// Returns the count of each bucket that is not empty, and the mean of its durations in
    /// seconds, which lies in the bucket. A recorder that records the mean that many times ends
    /// with the same buckets, count and sum.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn means(&self) -> impl Iterator<Item = (u64, f64)> {
        let filled = (0..BUCKETS).filter(|&at| self.buckets[at] > 0);
        filled.map(|at| {
            // Rounding must not carry the mean over the bucket's bound.
            let mean_s = self.sums_ns[at] as f64 / self.buckets[at] as f64 / 1e9;
            let bound_s = TimeHistogram::BOUNDS_S.get(at).copied().unwrap_or(f64::MAX);
            (self.buckets[at], bound_s.min(mean_s))
        })
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for TimeHistogram {
    /// Writes the buckets (see [`BOUNDS_S`](TimeHistogram::BOUNDS_S)), the sum of each in seconds,
    /// the count and the sum of all.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut histogram = to.serialize_struct("TimeHistogram", 4)?;
        histogram.serialize_field("buckets", &self.buckets)?;
        histogram.serialize_field("sums_s", &self.sums_ns.map(|sum_ns| sum_ns as f64 / 1e9))?;
        histogram.serialize_field("count", &self.count())?;
        histogram.serialize_field("sum_s", &self.sum_s())?;
        histogram.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TimeHistogram {
        /// Counts `count` durations of this many nanoseconds each.
        fn record_many(&mut self, took_ns: u64, count: u64) {
            let bucket = TimeHistogram::bucket_of(took_ns);
            self.buckets[bucket] += count;
            self.sums_ns[bucket] += u128::from(took_ns) * u128::from(count);
        }
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        for (at, &bound_s) in TimeHistogram::BOUNDS_S.iter().enumerate() {
            let bound_ns = (bound_s * 1e9).round() as u64;
            let mut histogram = TimeHistogram::default();
            histogram.record(bound_ns);
            histogram.record(bound_ns + 1);
            assert_eq!(histogram.buckets()[at..at + 2], [1, 1], "{bound_s} s");
        }
        let mut ends = TimeHistogram::default();
        ends.record(0);
        ends.record_many(u64::MAX, 2);
        assert_eq!(ends.buckets()[0], 1);
        assert_eq!(ends.buckets()[24], 2);
        assert_eq!(ends.count(), 3);
        assert_eq!(ends.sum_s(), 2.0 * u64::MAX as f64 / 1e9);
    }

    #[test]
    fn recording_the_means_again_gives_the_same_histogram() {
        let mut total = TimeHistogram::default();
        let mut again = TimeHistogram::default();
        let mut taken = 1;
        for _ in 0..40 {
            let before = total.clone();
            for _ in 0..25 {
                taken = taken * 7 % 700_000_000_003; // from nanoseconds to beyond the last bound
                total.record(taken);
            }
            for (count, mean_s) in total.gained_since(&before).means() {
                let at = TimeHistogram::BOUNDS_S.partition_point(|&bound| bound < mean_s);
                again.buckets[at] += count;
                again.sums_ns[at] += (mean_s * count as f64 * 1e9).round() as u128;
            }
        }
        assert_eq!(again.buckets, total.buckets);
        assert!(
            (again.sum_s() - total.sum_s()).abs() < 1e-6,
            "{again:?} {total:?}"
        );
        assert_eq!(total.gained_since(&total).means().count(), 0);
    }

    #[cfg(feature = "metrics")]
    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicUsize);

    #[cfg(feature = "metrics")]
    impl ::metrics::HistogramFn for Counting {
        fn record(&self, _: f64) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }

        fn record_many(&self, _: f64, count: usize) {
            self.0
                .fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn after_a_gap_a_bounded_share_is_handed_over() {
        let mut total = TimeHistogram::default();
        let mut published = TimeHistogram::default();
        let counting = std::sync::Arc::new(Counting::default());
        let mut hand_over_more = |short, long| {
            total.record_many(1_000_000, short);
            total.record_many(1_000_000_000, long);
            let histogram = ::metrics::Histogram::from_arc(counting.clone());
            total.hand_over(&mut published, &histogram);
            counting.0.swap(0, std::sync::atomic::Ordering::Relaxed)
        };
        assert_eq!(hand_over_more(999_990, 10), 1_000_000); // all of it
        assert_eq!(hand_over_more(9_000_000, 30), 900_000 + 3); // one in ten
        assert_eq!(hand_over_more(36_000_000_000, 1), 999_973 + 1); // of the rare at least one
        assert_eq!(hand_over_more(0, 0), 0);
    }
}
