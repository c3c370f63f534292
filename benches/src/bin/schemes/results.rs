//! What was measured: for each scheme and number of pending timers one value a round and measure.

use std::collections::BTreeMap;

use purgatory_benches::{
    chart::{IntoLogRange, Line, decades, panel, svg, values},
    grouped, median, number,
};

use crate::{
    algorithms::ALL,
    trial::{Cost, Costs},
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    Start,
    Stop,
    Tick,
    Expire,
}

impl Measure {
    pub(crate) const ALL: [Measure; 4] =
        [Measure::Start, Measure::Stop, Measure::Tick, Measure::Expire];

    pub(crate) fn name(self) -> &'static str {
        ["start", "stop", "tick", "expire"][self as usize]
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Measure::Start => "one timer more",
            Measure::Stop => "a random pending timer",
            Measure::Tick => "one tick, nothing due",
            Measure::Expire => "all ticks until the last has fired, a timer",
        }
    }
}

/// Everything measured in one run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// By scheme, measure and number of pending timers: nanoseconds, one value a round.
    values: BTreeMap<(&'static str, Measure, usize), Vec<f64>>,
    /// Where a scheme was given up, and why; with `Start` as a whole.
    stops: BTreeMap<(&'static str, Measure), String>,
}

impl Results {
    /// Adds one trial's costs.
    pub(crate) fn add(&mut self, scheme: &'static str, pending: usize, costs: Costs) {
        for (measure, cost) in Measure::ALL.into_iter().zip(costs) {
            match cost {
                Cost::Ns(ns) => self.values.entry((scheme, measure, pending)).or_default().push(ns),
                Cost::Stopped(why) => {
                    let why = format!("{scheme} stopped with {pending} pending: {why}");
                    self.stops.insert((scheme, measure), why);
                }
                Cost::Skipped => {}
            }
        }
    }

    /// Medians by the number of pending timers.
    pub(crate) fn series(&self, scheme: &'static str, measure: Measure) -> Vec<(f64, f64)> {
        let points = self.values.range((scheme, measure, 0)..=(scheme, measure, usize::MAX));
        points.map(|((.., pending), values)| (*pending as f64, median(values))).collect()
    }

    /// True when it was given up, so that more need not be tried.
    pub(crate) fn is_stopped(&self, scheme: &'static str, measure: Measure) -> bool {
        [Measure::Start, measure].iter().any(|&of| self.stops.contains_key(&(scheme, of)))
    }

    /// The medians of one measure, in nanoseconds, as the pending timers grow.
    pub(crate) fn table(&self, measure: Measure, sizes: &[usize]) -> String {
        let mut text = format!("\n{}, ns: {}\n", measure.name(), measure.about());
        text += &format!("{:<16}{:<11}", "", "claim");
        sizes.iter().for_each(|&pending| text += &format!("{:>12}", grouped(pending as u64)));
        for scheme in ALL {
            text += &format!("\n{:<16}{:<11}", scheme.name, scheme.claim[measure as usize]);
            for &pending in sizes {
                let values = self.values.get(&(scheme.name, measure, pending));
                let cell = values.map_or("stopped".into(), |values| number(median(values)));
                text += &format!("{cell:>12}");
            }
        }
        text.push('\n');
        let stops = self.stops.iter().filter(|((_, of), _)| *of == measure);
        stops.for_each(|(_, why)| text += &format!("  {why}\n"));
        text
    }

    /// The same as one SVG chart, both axes in decades, a line a scheme: O(1) lies flat, O(n)
    /// climbs a decade a decade.
    pub(crate) fn chart(&self, measure: Measure) -> anyhow::Result<String> {
        let line = |name: &'static str| (name.to_owned(), self.series(name, measure));
        let lines: Vec<Line> = ALL.iter().map(|scheme| line(scheme.name)).collect();
        let title = format!("{}, ns: {}", measure.name(), measure.about());
        svg((860, 520), (1, 1), |_, area| {
            let x = decades(values(&lines, |point| point.0)).log_scale();
            let y = decades(values(&lines, |point| point.1)).log_scale();
            panel(area, &title, ("pending timers", x), y, &lines)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_medians_and_what_was_stopped_stays_stopped() {
        let mut results = Results::default();
        let costs = |start, expire| [Cost::Ns(start), Cost::Ns(2.0), Cost::Ns(3.0), expire];
        for start in [30.0, 10.0, 20.0] {
            results.add("delay-heap", 10, costs(start, Cost::Ns(1.0)));
        }
        assert!(!results.is_stopped("delay-heap", Measure::Expire));
        results.add("delay-heap", 100, costs(40.0, Cost::Stopped("1 s".into())));
        assert_eq!(results.series("delay-heap", Measure::Start), [(10.0, 20.0), (100.0, 40.0)]);
        assert!(results.is_stopped("delay-heap", Measure::Expire));
        assert!(!results.is_stopped("delay-heap", Measure::Start));
        let table = results.table(Measure::Expire, &[10, 100]);
        assert!(table.contains("O(log n)           1.00     stopped"), "{table}");
        assert!(table.contains("delay-heap stopped with 100 pending: 1 s"), "{table}");
    }
}
