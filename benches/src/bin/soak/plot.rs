//! Memory, rate and lateness over time, as one SVG: three charts, one below the other.

use purgatory_benches::chart::{Line, from_zero, panel, svg};

use crate::{report::mib, series::Sample};

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
