//! The search for the earliest deadline in steps, for an owner who holds a lock meanwhile.

use crate::wheel::{geometry::DueBucket, timing_wheel::TimingWheel};

/// How far a search for the earliest deadline has come, and what it found.
#[derive(Debug)]
pub struct DeadlineSearch {
    /// The earliest found.
    pub earliest: Option<u64>,
    /// The level above the one that is searched; `None` before the first.
    level: Option<usize>,
    /// The bucket that is searched.
    bucket: Option<DueBucket>,
    /// What is below this position is to be seen.
    from: usize,
}

impl Default for DeadlineSearch {
    fn default() -> Self {
        DeadlineSearch { earliest: None, level: None, bucket: None, from: usize::MAX }
    }
}

impl<T> TimingWheel<T> {
    /// Goes on with a search for [`next_deadline`](Self::next_deadline), so that no lock need be
    /// held over a whole bucket; true when it is over. A task that stays what it is while the
    /// search lasts is found; and time may pass meanwhile. O(levels + budget).
    #[doc(hidden)]
    pub fn search_deadline(&self, search: &mut DeadlineSearch, mut budget: usize) -> bool {
        let mut found = |deadline: Option<u64>| {
            search.earliest = search.earliest.into_iter().chain(deadline).min();
        };
        // From the coarse to the fine: that way tasks go as time passes.
        if search.level.is_none() {
            if let Some(late) = &self.late {
                found(late.earliest_below(&self.nodes, &mut search.from, &mut budget));
                if search.from > 0 {
                    return false;
                }
            }
            (search.level, search.bucket) = (Some(self.level_count()), None);
        }
        while let Some(level) = search.level.and_then(|above| above.checked_sub(1)) {
            if let Some(bucket) = self.buckets.earliest_of(level, self.now) {
                if search.bucket != Some(bucket) {
                    (search.bucket, search.from) = (Some(bucket), usize::MAX);
                }
                let (queue, from) = (&self.buckets, &mut search.from);
                found(queue.earliest_below(&self.nodes, bucket, from, &mut budget));
                if search.from > 0 {
                    return false;
                }
            }
            (search.level, search.bucket) = (Some(level), None);
        }
        true
    }
}
