//! The report of a run: its figures, its faults, and the table.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use indicatif::HumanCount;

use super::audit::{Problem, Tally};

/// The outcome of a run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// The time for which the producers produced.
    pub(crate) produced_for: Duration,
    /// Records sent.
    pub(crate) produced: u64,
    /// How their operations ended.
    pub(crate) endings: Tally,
    /// Faults; empty when the self-check passed.
    pub(crate) problems: Vec<Problem>,
}

impl Report {
    /// Returns the number of operations that never ended and acknowledged records that a log lacks.
    pub(crate) fn lost(&self) -> u64 {
        self.problems.iter().map(Problem::lost).sum()
    }

    fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.produced_for.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_counts(f)?;
        self.write_throughput(f)?;

        // Two rows of times, under headings of their own.
        writeln!(f, "{:<16} {:>14} {:>12} {:>12}", "", "p50", "p99", "max")?;
        let wait = &self.endings.wait;
        write_times(f, "wait", wait, "from sent to acknowledged")?;
        let lateness = &self.endings.lateness;
        write_times(
            f,
            "expiry lateness",
            lateness,
            "from the deadline to expired",
        )?;

        self.write_self_check(f)
    }
}

impl Report {
    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.endings.counts;
        // One row for each way to end; `lost` must be 0.
        let rows = [
            ("produced", self.produced, "records sent"),
            (
                "completed",
                counts.completed,
                "acknowledged: every in-sync replica has the record",
            ),
            (
                "expired",
                counts.expired,
                "not acknowledged within --timeout",
            ),
            (
                "cancelled",
                counts.cancelled,
                "still waiting at Ctrl-C, or as the leader changed",
            ),
            (
                "lost",
                self.lost(),
                "never ended, or acknowledged and missing from an in-sync log",
            ),
        ];
        for (name, count, meaning) in rows {
            let count = HumanCount(count).to_string();
            writeln!(f, "{name:<16} {count:>14}  {meaning}")?;
        }
        Ok(())
    }

    fn write_throughput(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.endings.counts;
        // Only acknowledged records count, over the time in which records were sent.
        let records = HumanCount(self.per_second(counts.completed) as u64).to_string();
        let mib = self.per_second(counts.bytes) / f64::from(1 << 20);
        let meaning = format!("records/s acknowledged, {mib:.1} MiB/s of text");
        writeln!(f, "{:<16} {records:>14} {meaning}", "throughput")
    }

    fn write_self_check(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last line is the verdict; scripts read it.
        let result = match self.problems.len() {
            0 => "passed: each operation ended once, each acknowledged record is in every in-sync log"
                .to_owned(),
            kinds => format!("FAILED: kinds of fault: {kinds}, listed on standard error"),
        };
        writeln!(f, "{:<16} {result}", "self-check")
    }
}

fn write_times(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    times: &Histogram<u64>,
    meaning: &str,
) -> fmt::Result {
    // If nothing was measured, show a dash, not zero.
    let shown = |nanos| {
        if times.is_empty() {
            "-".to_owned()
        } else {
            format!("{:.2?}", Duration::from_nanos(nanos))
        }
    };
    let p50 = shown(times.value_at_quantile(0.5));
    let p99 = shown(times.value_at_quantile(0.99));
    let max = shown(times.max());
    writeln!(f, "{name:<16} {p50:>14} {p99:>12} {max:>12}  {meaning}")
}
