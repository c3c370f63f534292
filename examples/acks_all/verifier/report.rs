//! The end of a run: its figures, what is wrong with its books, and the table.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use indicatif::HumanCount;

use super::books::{Counts, Problem, Tally};

/// The outcome of a run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// How long the producers produced.
    pub(crate) produced_for: Duration,
    /// Records sent.
    pub(crate) produced: u64,
    /// How their operations ended.
    pub(crate) endings: Tally,
    /// Faults; empty when the books are right.
    pub(crate) problems: Vec<Problem>,
}

impl Report {
    /// Operations that never ended, and acknowledged records that a log lacks.
    pub(crate) fn lost(&self) -> u64 {
        self.problems.iter().map(Problem::lost).sum()
    }

    fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.produced_for.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            completed,
            expired,
            cancelled,
            bytes,
            ..
        } = self.endings.counts;
        let counts = [
            ("produced", self.produced, "records sent"),
            (
                "completed",
                completed,
                "acknowledged: every replica has the record",
            ),
            ("expired", expired, "not acknowledged within --timeout"),
            ("cancelled", cancelled, "still waiting at Ctrl-C"),
            (
                "lost",
                self.lost(),
                "never ended, or acknowledged and missing from a log",
            ),
        ];
        for (name, count, what) in counts {
            writeln!(
                f,
                "{name:<16} {:>14}  {what}",
                HumanCount(count).to_string()
            )?;
        }
        let records = HumanCount(self.per_second(completed) as u64).to_string();
        let mib = self.per_second(bytes) / f64::from(1 << 20);
        let what = format!("records/s acknowledged, {mib:.1} MiB/s of text");
        writeln!(f, "{:<16} {records:>14} {what}", "throughput")?;
        writeln!(f, "{:<16} {:>14} {:>12} {:>12}", "", "p50", "p99", "max")?;
        write_times(f, "wait", &self.endings.wait, "from sent to acknowledged")?;
        let lateness = &self.endings.lateness;
        write_times(
            f,
            "expiry lateness",
            lateness,
            "from the deadline to expired",
        )?;
        let books = match self.problems.len() {
            0 => "right: each operation ended once, each acknowledged record is in every log"
                .to_owned(),
            kinds => format!("WRONG: kinds of fault: {kinds}, told on standard error"),
        };
        writeln!(f, "{:<16} {books}", "books")
    }
}

fn write_times(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    times: &Histogram<u64>,
    what: &str,
) -> fmt::Result {
    let shown = |nanos| match times.is_empty() {
        true => "-".to_owned(),
        false => format!("{:.2?}", Duration::from_nanos(nanos)),
    };
    let [p50, p99] = [0.5, 0.99].map(|quantile| shown(times.value_at_quantile(quantile)));
    let max = shown(times.max());
    writeln!(f, "{name:<16} {p50:>14} {p99:>12} {max:>12}  {what}")
}
