//! The end of a run: its figures, what is wrong with its books, and the table.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::HumanCount;

use crate::books::{Counts, Problem, Tally};

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Report {
    /// How long the producers produced.
    pub produced_for: Duration,
    /// Records sent.
    pub produced: u64,
    /// How their operations ended.
    pub endings: Tally,
    /// What is wrong; empty when the books are right.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Operations that never ended, and acknowledged records that an in-sync log lacks.
    pub fn lost(&self) -> u64 {
        let losses = self.problems.iter().filter(|problem| problem.fault.is_loss());
        losses.map(|problem| problem.count).sum()
    }

    fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.produced_for.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { completed, expired, cancelled, bytes_completed } = self.endings.counts;
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
        let mib = self.per_second(bytes_completed) / f64::from(1 << 20);
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
    use crate::books::{Ended, Ending, Fault};

    fn report(problems: Vec<Problem>) -> Report {
        let mut endings = Tally::default();
        let ms = Duration::from_millis;
        let (ending, bytes) = (Ending::Completed, 1 << 20);
        let completed = Ended { ending, waited: ms(2), timeout: ms(9), bytes };
        (0..3000).for_each(|_| endings.add(&completed));
        Report { produced_for: ms(2000), produced: 3001, endings, problems }
    }

    #[test]
    fn the_table_has_every_figure() {
        let table = report(Vec::new()).to_string();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0], ["produced", "3,001", "records", "sent"]);
        assert_eq!(lines[1][..3], ["completed", "3,000", "acknowledged:"]);
        assert_eq!(lines[4][..4], ["lost", "0", "never", "ended,"]);
        assert_eq!(lines[5][..3], ["throughput", "1,500", "records/s"]);
        assert!(table.contains("1500.0 MiB/s"), "{table}");
        assert_eq!(lines[7][..5], ["wait", "2.00ms", "2.00ms", "2.00ms", "from"]);
        assert_eq!(lines[8][..6], ["expiry", "lateness", "-", "-", "-", "from"]);
        assert_eq!(lines[9][..2], ["books", "right:"]);
    }

    #[test]
    fn losses_are_counted_and_other_faults_only_told() {
        let problem = |fault, count| Problem { fault, count, first: String::new() };
        let problems = [(Fault::NeverEnded, 2), (Fault::MissingFromLog, 3), (Fault::Refused, 4)];
        let report = report(problems.map(|(fault, count)| problem(fault, count)).to_vec());
        assert_eq!(report.lost(), 5);
        assert!(report.to_string().contains("WRONG: kinds of fault: 3"));
    }
}
