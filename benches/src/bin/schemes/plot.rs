//! One SVG chart for each measure: cost by the number of pending timers, both in decades, a line a
//! scheme. O(1) lies flat, O(n) climbs a decade a decade.

use purgatory_benches::chart::{IntoLogRange, Line, decades, panel, svg, values};

use crate::{
    algorithms::ALL,
    results::{Measure, Results},
};

pub(crate) fn chart(results: &Results, measure: Measure) -> anyhow::Result<String> {
    let line = |name: &'static str| (name.to_owned(), results.series(name, measure));
    let lines: Vec<Line> = ALL.iter().map(|scheme| line(scheme.name)).collect();
    let title = format!("{}, ns: {}", measure.name(), measure.about());
    svg((860, 520), (1, 1), |_, area| {
        let x = decades(values(&lines, |point| point.0)).log_scale();
        let y = decades(values(&lines, |point| point.1)).log_scale();
        panel(area, &title, ("pending timers", x), y, &lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure, trial::Sizes};

    #[test]
    fn every_scheme_has_a_line_in_every_chart() {
        let results = measure(Sizes::TINY, |_| {}).unwrap();
        for measure in Measure::ALL {
            let svg = chart(&results, measure).unwrap();
            for scheme in ALL {
                assert!(svg.contains(scheme.name), "{} in {}", scheme.name, measure.name());
            }
        }
    }
}
