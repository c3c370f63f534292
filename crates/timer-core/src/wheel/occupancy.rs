//! What a wheel holds, as it reports it: plain numbers.

use crate::wheel::geometry::{DueBucket, Geometry};

/// How full a level is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// The ticks that one bucket spans.
    pub bucket_ticks: u64,
    /// Tasks by how many buckets ahead they are: the first is the present one.
    pub buckets: Vec<u64>,
}

/// What owners of wheels report of them.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Occupancy {
    /// As [`TimerStats::pending`](crate::TimerStats::pending).
    pub pending: u64,
    /// As [`TimerStats::cancelled`](crate::TimerStats::cancelled).
    pub cancelled: u64,
    /// As [`TimerStats::levels`](crate::TimerStats::levels).
    pub levels: Vec<LevelStats>,
}

impl Occupancy {
    /// Makes room for a level, and those below.
    pub(crate) fn add_levels(&mut self, geometry: &Geometry, level: usize) {
        for level in self.levels.len()..=level {
            let bucket_ticks = geometry.bucket_ticks(level);
            let buckets = vec![0; geometry.buckets(level)];
            self.levels.push(LevelStats { bucket_ticks, buckets });
        }
    }

    /// Adds what a bucket holds at `now`.
    pub(crate) fn add(&mut self, geometry: &Geometry, bucket: DueBucket, now: u64, tasks: usize) {
        self.add_levels(geometry, bucket.level);
        let ahead = geometry.ahead(bucket.level, bucket.expiration, now);
        let buckets = &mut self.levels[bucket.level].buckets;
        buckets.resize(buckets.len().max(ahead + 1), 0); // another wheel's level 0 may have less
        buckets[ahead] += tasks as u64;
    }
}
