//! The results: for each scheme and number of pending timers one value a round and measure.

use std::collections::BTreeMap;

use purgatory_benches::{grouped, markdown, median, number};

use crate::{
    algorithms::{ALL, Contender},
    trial::Costs,
};

/// The measures, each with its subject.
pub(crate) const MEASURES: [(&str, &str); 4] = [
    ("start", "one timer more"),
    ("stop", "a random pending timer"),
    ("tick", "one tick, nothing due"),
    ("expire", "all ticks until the last has fired, a timer"),
];

/// Nanoseconds by scheme, measure and number of pending timers, one value a round; `None` once the
/// scheme was given up.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<(&'static str, usize, usize), Option<Vec<f64>>>);

impl Results {
    /// Adds one trial's costs.
    pub(crate) fn add(&mut self, scheme: &'static str, pending: usize, costs: Costs) {
        for (measure, cost) in costs.into_iter().enumerate() {
            let values = self
                .0
                .entry((scheme, measure, pending))
                .or_insert(Some(Vec::new()));
            match cost {
                Some(ns) => values.iter_mut().for_each(|values| values.push(ns)),
                None => *values = None,
            }
        }
    }

    /// True when a measure was given up, so that more timers need not be tried.
    pub(crate) fn is_stopped(&self, scheme: &'static str, measure: usize) -> bool {
        let mut values = self
            .0
            .range((scheme, measure, 0)..=(scheme, measure, usize::MAX));
        values.any(|(_, values)| values.is_none())
    }

    /// The medians of one measure, as the pending timers grow.
    pub(crate) fn table(&self, measure: usize, sizes: &[usize]) -> String {
        let (name, about) = MEASURES[measure];
        let head = [format!("{name}, ns: {about}"), "claim".into()].into_iter();
        let head: Vec<_> = head
            .chain(sizes.iter().map(|&n| grouped(n as u64)))
            .collect();
        let row = |scheme: &Contender| {
            let cell = |&pending: &usize| match self.0.get(&(scheme.name, measure, pending)) {
                Some(Some(values)) => number(median(values)),
                _ => "–".into(),
            };
            let about = [scheme.name, scheme.claim[measure]].map(String::from);
            about.into_iter().chain(sizes.iter().map(cell)).collect()
        };
        let rows: Vec<_> = ALL.iter().map(row).collect();
        markdown(&head, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_medians_and_stops_stay() {
        let mut results = Results::default();
        let costs = |start, expire| [Some(start), Some(2.0), Some(3.0), expire];
        for start in [30.0, 10.0, 20.0] {
            results.add("delay-heap", 10, costs(start, Some(1.0)));
        }
        assert!(!results.is_stopped("delay-heap", 3));
        results.add("delay-heap", 100, costs(40.0, None));
        results.add("delay-heap", 100, costs(40.0, Some(1.0)));
        assert!(results.is_stopped("delay-heap", 3) && !results.is_stopped("delay-heap", 0));
        let starts = results.table(0, &[10, 100]);
        assert!(
            starts.contains("| delay-heap | O(log n) | 20.0 | 40.0 |"),
            "{starts}"
        );
        let expiries = results.table(3, &[10, 100]);
        assert!(
            expiries.contains("| delay-heap | O(log n) | 1.00 | – |"),
            "{expiries}"
        );
    }
}
