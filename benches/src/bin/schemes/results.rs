//! Results: for each scheme and number of pending timers, one value per round and measure.

use std::collections::BTreeMap;

use purgatory_benches::{grouped, markdown, median, number};

use crate::{
    algorithms::{ALL, Contender},
    trial::Costs,
};

/// The measures, each with what it measures.
pub(crate) const MEASURES: [(&str, &str); 4] = [
    ("start", "one timer more"),
    ("stop", "a random pending timer"),
    ("tick", "one tick, nothing due"),
    ("expire", "all ticks until the last has fired, a timer"),
];

/// Nanoseconds by scheme, measure and number of pending timers, one value per round; `None` once
/// the scheme was stopped.
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
            // A measure that was stopped once stays so, whatever later rounds say.
            match (cost, &mut *values) {
                (Some(ns), Some(values)) => values.push(ns),
                (Some(_), None) => {}
                (None, _) => *values = None,
            }
        }
    }

    /// Returns whether a measure was stopped, so that more timers need not be tried.
    pub(crate) fn is_stopped(&self, scheme: &'static str, measure: usize) -> bool {
        // With any number of timers.
        let mut values = self
            .0
            .range((scheme, measure, 0)..=(scheme, measure, usize::MAX));
        values.any(|(_, values)| values.is_none())
    }

    /// Formats the medians of one measure by number of pending timers.
    pub(crate) fn table(&self, measure: usize, sizes: &[usize]) -> String {
        let (name, about) = MEASURES[measure];
        let mut head = vec![format!("{name}, ns: {about}"), "claim".to_owned()];
        head.extend(sizes.iter().map(|&pending| grouped(pending as u64)));

        // A row for each scheme: its name, the claimed cost, and a median for each size.
        let row = |scheme: &Contender| {
            let cell = |&pending: &usize| match self.0.get(&(scheme.name, measure, pending)) {
                Some(Some(values)) => number(median(values)),
                _ => "–".into(),
            };
            let mut cells = vec![scheme.name.to_owned(), scheme.claim[measure].to_owned()];
            cells.extend(sizes.iter().map(cell));
            cells
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
        // The table shows the median of three rounds.
        let costs = |start, expire| [Some(start), Some(2.0), Some(3.0), expire];
        for start in [30.0, 10.0, 20.0] {
            results.add("delay-heap", 10, costs(start, Some(1.0)));
        }

        // A stop is for one measure, and a later round does not undo it.
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
