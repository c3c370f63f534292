//! The four kinds of load.

use std::time::Duration;

use timer_core::TimeHistogram;

use crate::load::{Load, Seen, Work};

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) shown: fn(&Seen) -> f64,
    /// As it is, then with advice followed.
    pub(crate) ways: &'static [(&'static str, Load)],
    /// A second, rising.
    pub(crate) rates: [u64; 5],
}

/// How long a step's load lasts.
pub(crate) const WINDOW: Duration = Duration::from_millis(300);

const COMPUTES: Work = Work::Compute(Duration::from_micros(20));
const BLOCKS: Work = Work::Block(Duration::from_millis(10));

const fn expiries(timers: usize, workers: usize, work: Work) -> Load {
    Load::Expiries { timers, workers, work }
}

pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        name: "executor",
        about: "expiries, callbacks that compute for 20 µs",
        metric: "purgatory_callbacks_waiting, most",
        shown: |seen| seen.waiting as f64,
        ways: &[
            ("one worker", expiries(1, 1, COMPUTES)),
            ("two workers", expiries(1, 2, COMPUTES)),
        ],
        rates: [10_000, 25_000, 40_000, 55_000, 75_000],
    },
    Kind {
        name: "reaper",
        about: "expiries, callbacks that do nothing",
        metric: "rate(timer_turn_seconds_sum), the busiest timer's",
        shown: |seen| seen.turning,
        ways: &[
            ("one timer", expiries(1, 1, Work::Nothing)),
            ("two timers", expiries(2, 1, Work::Nothing)),
            ("two inline timers", expiries(2, 0, Work::Nothing)),
        ],
        rates: [500_000, 1_000_000, 2_000_000, 2_500_000, 3_000_000],
    },
    Kind {
        name: "checks",
        about: "events for 100 waiters, checks of 100 µs",
        metric: "rate(purgatory_check_seconds_sum)",
        shown: |seen| seen.checking,
        ways: &[("one key", Load::Events { keys: 1 }), ("ten keys", Load::Events { keys: 10 })],
        rates: [30, 50, 80, 120, 200],
    },
    Kind {
        name: "slow-callbacks",
        about: "expiries, callbacks that block for 10 ms",
        metric: "purgatory_callback_delay_seconds, p99's bucket",
        shown: |seen| p99_s(&seen.delay),
        ways: &[("one worker", expiries(1, 1, BLOCKS)), ("four workers", expiries(1, 4, BLOCKS))],
        rates: [30, 50, 80, 120, 200],
    },
];

/// The upper bound of the bucket it is in.
fn p99_s(times: &TimeHistogram) -> f64 {
    let (all, mut so_far) = (times.count() as f64, 0);
    let bucket = times.buckets().iter().position(|count| {
        so_far += count;
        so_far as f64 >= 0.99 * all
    });
    bucket.and_then(|at| TimeHistogram::BOUNDS_S.get(at)).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_runs_all_ways() {
        for kind in &KINDS {
            for (_, load) in kind.ways {
                let step = load.step(kind.rates[0], Duration::from_millis(80), kind.shown).unwrap();
                assert!(step[1] > 0.0 && step[4] >= 0.0, "{}: {step:?}", kind.name);
            }
        }
    }

    #[test]
    fn a_percentile_is_told_by_the_bound_of_its_bucket() {
        let mut times = TimeHistogram::default();
        times.record_many(20_000, 99);
        times.record(1_000_000_000);
        assert_eq!(p99_s(&times), 0.000_025);
        times.record(1_000_000_000);
        assert_eq!(p99_s(&times), 1.0);
    }
}
