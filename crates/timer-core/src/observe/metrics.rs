//! Publishing through the `metrics` facade (feature `metrics`).
//!
//! A timer counts for itself, and [`SystemTimer::publish`](crate::SystemTimer::publish) hands the
//! sums to whatever recorder is installed. The facade takes no histogram that was filled elsewhere,
//! only values; so what a bucket has counted since the last time is recorded as that many times its
//! mean.

use ::metrics::{Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram};
use ::metrics::{gauge, histogram};

use parking_lot::Mutex;

use crate::observe::{TimeHistogram, TimerStats};

/// A recorder takes values one by one and keeps each until it is rendered, so a program that was
/// not scraped for an hour would hand over for half a minute, and fill the memory. Of more values
/// than this only a share is handed over.
const HANDED_OVER_MAX: u64 = 1_000_000;

/// Hands what `total` has counted since it was `published` to the recorder's histogram: all of it,
/// or of more than a million an even share. What a recorder that panics did not take is lost:
/// nothing is handed over twice.
pub fn hand_over(total: TimeHistogram, published: &mut TimeHistogram, to: &Histogram) {
    let earlier = std::mem::replace(published, total.clone());
    let all: u64 = total.since(&earlier).map(|(count, _)| count).sum();
    let one_in = all.div_ceil(HANDED_OVER_MAX).max(1);
    for (count, mean_s) in total.since(&earlier) {
        to.record_many(mean_s, usize::try_from(count.div_ceil(one_in)).unwrap_or(usize::MAX));
    }
}

/// Hands `stats` to the recorder, labelled with the timer's name, and the `turns` since they were
/// `published`.
pub(crate) fn publish(
    name: &str,
    stats: TimerStats,
    turns: impl FnOnce() -> TimeHistogram,
    published: &Mutex<TimeHistogram>,
) {
    let label = [("timer", name.to_owned())];
    let gauges = [
        ("timer_pending", "Tasks that will fall due", Some(stats.pending)),
        ("timer_executor_queue", "Jobs that wait for the timer's workers", stats.executor_queue),
    ];
    for (name, help, value) in gauges {
        describe_gauge!(name, Unit::Count, help);
        if let Some(value) = value {
            gauge!(name, &label).set(value as f64);
        }
    }
    let counters = [
        ("timer_fired_total", "Tasks that fell due", stats.fired),
        ("timer_cancelled_total", "Tasks taken off before they fell due", stats.cancelled),
        ("timer_cascaded_total", "Times that a task was handed down a level", stats.cascaded),
        ("timer_wake_ups_total", "Times that the reaper woke up", stats.wake_ups),
        (
            "timer_spurious_wake_ups_total",
            "Times that the reaper woke up for nothing",
            stats.spurious_wake_ups,
        ),
        ("timer_panics_total", "Panics of tasks scheduled on the timer itself", stats.panics),
    ];
    for (name, help, value) in counters {
        describe_counter!(name, Unit::Count, help);
        counter!(name, &label).absolute(value);
    }
    const TURN: &str = "timer_turn_seconds";
    let help = "How long a round of the reaper took, over all shards that were due";
    describe_histogram!(TURN, Unit::Seconds, help);
    // Each turn is handed over once. Who is doing so, further up this stack maybe, does it for us.
    // Read under the lock: what was read before it may be older than what was published meanwhile.
    if let Some(mut published) = published.try_lock() {
        hand_over(turns(), &mut published, &histogram!(TURN, &label));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl metrics::HistogramFn for Counting {
        fn record(&self, _: f64) {
            self.0.fetch_add(1, Relaxed);
        }

        fn record_many(&self, _: f64, count: usize) {
            self.0.fetch_add(count, Relaxed);
        }
    }

    #[test]
    fn after_a_gap_a_bounded_share_is_handed_over() {
        let (mut total, mut published) = (TimeHistogram::default(), TimeHistogram::default());
        let counting = Arc::new(Counting::default());
        let mut hand_over_more = |short, long| {
            total.record_many(1_000_000, short);
            total.record_many(1_000_000_000, long);
            hand_over(total.clone(), &mut published, &Histogram::from_arc(counting.clone()));
            counting.0.swap(0, Relaxed)
        };
        assert_eq!(hand_over_more(999_990, 10), 1_000_000); // all of it
        assert_eq!(hand_over_more(9_000_000, 30), 900_000 + 3); // one in ten
        assert_eq!(hand_over_more(36_000_000_000, 1), 999_973 + 1); // of the rare ones at least one
        assert_eq!(hand_over_more(0, 0), 0);
    }
}
