//! The end of a run: its figures, what is wrong with its books, and the table.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use indicatif::HumanCount;

use super::books::{Counts, Problem, Tally};

/// What a run came to.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// How long the producers produced.
    pub(crate) produced_for: Duration,
    /// Records sent.
    pub(crate) produced: u64,
    /// How their operations ended.
    pub(crate) endings: Tally,
    /// What is wrong; empty when the books are right.
    pub(crate) problems: Vec<Problem>,
}

impl Report {
    /// Operations that never ended, and acknowledged records that an in-sync log lacks.
    pub(crate) fn lost(&self) -> u64 {
        self.problems.iter().map(Problem::lost).sum()
    }

    fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.produced_for.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { completed, expired, cancelled, bytes, .. } = self.endings.counts;
        let counts = [
            ("produced", self.produced, "records sent"),
            ("completed", completed, "acknowledged: every in-sync replica has the record"),
            ("expired", expired, "not acknowledged within --timeout"),
            ("cancelled", cancelled, "still waiting at Ctrl-C"),
            ("lost", self.lost(), "never ended, or acknowledged and missing from an in-sync log"),
        ];
        for (name, count, what) in counts {
            writeln!(f, "{name:<16} {:>14}  {what}", HumanCount(count).to_string())?;
        }
        let records = HumanCount(self.per_second(completed) as u64).to_string();
        let mib = self.per_second(bytes) / f64::from(1 << 20);
        let what = format!("records/s acknowledged, {mib:.1} MiB/s of text");
        writeln!(f, "{:<16} {records:>14} {what}", "throughput")?;
        writeln!(f, "{:<16} {:>14} {:>12} {:>12}", "", "p50", "p99", "max")?;
        write_times(f, "wait", &self.endings.wait, "from sent to acknowledged")?;
        let lateness = &self.endings.lateness;
        write_times(f, "expiry lateness", lateness, "from the deadline to expired")?;
        let books = match self.problems.len() {
            0 => {
                "right: each operation ended once, each acknowledged record is in every in-sync log"
                    .to_owned()
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::partition::Partition;
    use crate::verifier::books::{Books, MISSING, NEVER_ENDED, REFUSED};

    #[test]
    fn the_table_has_every_figure() {
        let (books, ms) = (Books::new(2, Duration::from_millis(9)), Duration::from_millis);
        let partitions = [0, 1].map(Partition::new);
        for number in 0..3000 {
            let answer = if number < 2 { Answer::TimedOut } else { Answer::Acknowledged };
            let waited = if number < 2 { ms(12) } else { ms(2) };
            books.enter(&partitions[number % 2], answer, 0, waited, 1 << 20);
        }
        let (endings, problems) = (books.totals(), Vec::new());
        let mut report = Report { produced_for: ms(2000), produced: 3001, endings, problems };
        let right = "\
produced                  3,001  records sent
completed                 2,998  acknowledged: every in-sync replica has the record
expired                       2  not acknowledged within --timeout
cancelled                     0  still waiting at Ctrl-C
lost                          0  never ended, or acknowledged and missing from an in-sync log
throughput                1,499 records/s acknowledged, 1499.0 MiB/s of text
                            p50          p99          max
wait                     2.00ms       2.00ms       2.00ms  from sent to acknowledged
expiry lateness          3.00ms       3.00ms       3.00ms  from the deadline to expired
books            right: each operation ended once, each acknowledged record is in every in-sync log
";
        assert_eq!(report.to_string(), right);
        report.endings = Tally::default();
        let nothing = "\nwait                          -            -            -  from";
        assert!(report.to_string().contains(nothing));

        for (fault, count) in [(NEVER_ENDED, 2), (MISSING, 3), (REFUSED, 4)] {
            report.problems.push(Problem { fault, count, first: String::new() });
        }
        assert_eq!(report.lost(), 5);
        assert!(report.to_string().contains("WRONG: kinds of fault: 3"));
    }
}
