//! What was measured second by second, and its chart.

use purgatory_benches::{
    chart::{Line, from_zero, panel, svg},
    grouped,
};

/// No more are kept, so that the soak's own memory stays as it is.
pub(crate) const SAMPLES_MAX: usize = 2048;

/// Some seconds of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// When they were over, from the start of the run.
    pub(crate) at_s: f64,
    pub(crate) seconds: f64,
    /// Operations parked in them.
    pub(crate) operations: u64,
    /// Operations that were open at their end, at most.
    pub(crate) open: u64,
    pub(crate) live_bytes: u64,
    pub(crate) rss_bytes: u64,
    /// Of what expired in them and over whose wait the clock did not jump.
    pub(crate) lateness_p50_ms: f64,
    pub(crate) lateness_max_ms: f64,
    /// Idle memory, if there was a standstill in them.
    pub(crate) idle_bytes: Option<u64>,
}

impl Sample {
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// One line while it runs; so many operations so far.
    pub(crate) fn line(&self, operations: u64) -> String {
        let Sample { at_s, open, live_bytes, rss_bytes, lateness_max_ms, .. } = *self;
        format!(
            "{at_s:>7.0} s  {:>7} a second  {:>14} operations  {:>7} open  {:>6.1} MiB live  \
             {:>6.1} MiB resident  late {lateness_max_ms:>6.1} ms at most",
            grouped(self.rate() as u64),
            grouped(operations),
            grouped(open),
            mib(live_bytes),
            mib(rss_bytes),
        )
    }

    fn and(self, next: Sample) -> Sample {
        Sample {
            at_s: next.at_s,
            seconds: self.seconds + next.seconds,
            operations: self.operations + next.operations,
            open: self.open.max(next.open),
            live_bytes: self.live_bytes.max(next.live_bytes),
            rss_bytes: self.rss_bytes.max(next.rss_bytes),
            lateness_p50_ms: self.lateness_p50_ms.max(next.lateness_p50_ms),
            lateness_max_ms: self.lateness_max_ms.max(next.lateness_max_ms),
            idle_bytes: next.idle_bytes.or(self.idle_bytes),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Adds a sample. When there are too many, two become one.
pub(crate) fn push(samples: &mut Vec<Sample>, sample: Sample) {
    if samples.len() == SAMPLES_MAX {
        for at in 0..SAMPLES_MAX / 2 {
            samples[at] = samples[2 * at].and(samples[2 * at + 1]);
        }
        samples.truncate(SAMPLES_MAX / 2);
    }
    samples.push(sample);
}

/// A line's name and values; a sample may have none.
type Of = (&'static str, fn(&Sample) -> Option<f64>);

const PANELS: [(&str, &[Of]); 3] = [
    (
        "memory [MiB]",
        &[
            ("live", |sample| Some(mib(sample.live_bytes))),
            ("live, idle", |sample| sample.idle_bytes.map(mib)),
            ("resident", |sample| Some(mib(sample.rss_bytes))),
        ],
    ),
    (
        "operations parked a second, and open [1000]",
        &[
            ("parked", |sample| Some(sample.rate() / 1000.0)),
            ("open", |sample| Some(sample.open as f64 / 1000.0)),
        ],
    ),
    (
        "expired late, by the timer's clock [ms]",
        &[
            ("median", |sample| Some(sample.lateness_p50_ms)),
            ("most", |sample| Some(sample.lateness_max_ms)),
        ],
    ),
];

/// The chart, as SVG.
pub(crate) fn chart(samples: &[Sample]) -> anyhow::Result<String> {
    let end_s = samples.last().map_or(1.0, |sample| sample.at_s);
    let (unit, per_unit) = if end_s > 300.0 { ("minutes", 60.0) } else { ("seconds", 1.0) };
    svg((860, 780), (3, 1), |at, area| {
        let (title, of) = PANELS[at];
        let line = |(name, of): &Of| -> Line {
            let point = |sample: &Sample| Some((sample.at_s / per_unit, of(sample)?));
            ((*name).to_owned(), samples.iter().filter_map(point).collect())
        };
        let lines: Vec<_> = of.iter().map(line).collect();
        panel(area, title, (unit, 0.0..end_s / per_unit), from_zero(&lines), &lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_coarser_samples_and_loses_none() {
        let mut samples = Vec::new();
        for second in 1..=5 * SAMPLES_MAX as u64 {
            let sample = Sample { seconds: 1.0, operations: 3, ..Sample::default() };
            push(&mut samples, Sample { at_s: second as f64, live_bytes: second, ..sample });
        }
        assert!(samples.len() <= SAMPLES_MAX && samples.len() >= SAMPLES_MAX / 2);
        assert!(samples.iter().all(|sample| sample.rate() == 3.0));
        assert!(samples.is_sorted_by_key(|sample| sample.live_bytes));
        let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
        assert_eq!(seconds, samples.last().unwrap().at_s);
    }

    #[test]
    fn all_three_charts_are_drawn() {
        let sample = |at: u32| Sample {
            at_s: at.into(),
            seconds: 1.0,
            operations: 1000,
            idle_bytes: at.is_multiple_of(3).then_some(5 << 20),
            ..Sample::default()
        };
        let svg = chart(&(1..20).map(sample).collect::<Vec<_>>()).unwrap();
        for name in ["memory", "resident", "live, idle", "parked", "median", "seconds"] {
            assert!(svg.contains(name), "{name}");
        }
        assert!(chart(&[]).is_ok());
    }
}
