//! Results: for each measure and contender one value per round. Ratios and tables show medians.

use std::fmt::Write as _;

use purgatory_benches::{markdown, median, number};

/// The contender with which all others are compared.
pub(crate) const OURS: &str = "ours";

/// Everything measured in one run, in order.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) measures: Vec<Measure>,
}

/// One measure of several contenders. Less is better.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) id: String,
    pub(crate) unit: &'static str,
    pub(crate) entries: Vec<Entry>,
}

/// One contender's rounds.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    values: Vec<f64>,
}

impl Results {
    /// Returns the measure `id`; creates it the first time.
    pub(crate) fn measure(&mut self, id: &str, unit: &'static str) -> &mut Measure {
        // Measures are in the order of their first values.
        if let Some(at) = self.measures.iter().position(|measure| measure.id == id) {
            return &mut self.measures[at];
        }
        self.measures.push_mut(Measure {
            id: id.to_owned(),
            unit,
            entries: Vec::new(),
        })
    }

    /// Formats the medians as Markdown tables, one for all measures with the same contenders.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        let mut printed = Vec::new();
        for measure in &self.measures {
            let names = measure.names();
            if printed.contains(&names) {
                continue;
            }
            // The first measure with these contenders prints all the others that have the same.
            let same = self.measures.iter().filter(|other| other.names() == names);
            let rows: Vec<_> = same.map(Measure::row).collect();
            let head: Vec<_> = ["row", "unit"].into_iter().chain(names.clone()).collect();
            write!(text, "\n{}", markdown(&head, &rows)).expect("a string");
            printed.push(names);
        }
        text
    }
}

impl Measure {
    /// Adds one round's value of a contender.
    pub(crate) fn add(&mut self, name: &'static str, value: f64) {
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => entry.values.push(value),
            None => self.entries.push(Entry {
                name,
                values: vec![value],
            }),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.name).collect()
    }

    /// Formats the measure in full: medians, spreads, and our median divided by each.
    pub(crate) fn block(&self) -> String {
        let ours = self
            .entries
            .iter()
            .find(|entry| entry.name == OURS)
            .map(Entry::median);
        // Each figure is one word, for tools that read columns.
        let number = |value| number(value).replace(' ', "");

        let mut text = format!("\n{}  [{}]\n", self.id, self.unit);
        for entry in &self.entries {
            let name = entry.name;
            let median = number(entry.median());
            let (least, most) = entry.range();
            let spread = format!("{} .. {}", number(least), number(most));
            let ratio = ours.map_or("-".into(), |ours| ratio(ours, entry.median()));
            writeln!(
                text,
                "  {name:<17}{median:>10}   {spread:<24} ours/this {ratio}"
            )
            .expect("a string");
        }
        text
    }

    /// Formats the measure as the cells of a table row; the best median is bold.
    fn row(&self) -> Vec<String> {
        let medians: Vec<_> = self.entries.iter().map(Entry::median).collect();
        // A single contender is not the best of anything.
        let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let cell = |median: &f64| match number(*median) {
            shown if medians.len() > 1 && *median == best => format!("**{shown}**"),
            shown => shown,
        };
        let about = [self.id.clone(), self.unit.to_owned()];
        about.into_iter().chain(medians.iter().map(cell)).collect()
    }
}

impl Entry {
    fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Returns the smallest and the largest value.
    fn range(&self) -> (f64, f64) {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        (sorted[0], sorted[sorted.len() - 1])
    }
}

/// Formats the ratio; `-` when `theirs` is 0, or negative, as for a timer that fired early.
fn ratio(ours: f64, theirs: f64) -> String {
    if theirs <= 0.0 {
        "-".into()
    } else {
        format!("{:.3}", ours / theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_become_ratios_and_tables() {
        let mut results = Results::default();
        // Two measures with two contenders, and one with a single contender.
        for (name, values) in [(OURS, [90.0, 80.0, 10.0]), ("peer", [160.0, 1.0, 900.0])] {
            for value in values {
                results.measure("cost", "ns").add(name, value);
                results.measure("more", "ms").add(name, value);
            }
        }
        results.measure("alone", "ns").add(OURS, 1.0);

        // Tables have medians, the best in bold, and one table for each set of contenders.
        let tables = results.tables();
        assert!(
            tables.contains("| row | unit | ours | peer |\n|---|---|---|---|\n"),
            "{tables}"
        );
        assert!(
            tables.contains("| cost | ns | **80.0** | 160 |\n| more | ms |"),
            "{tables}"
        );
        assert!(
            tables.ends_with("\n\n| row | unit | ours |\n|---|---|---|\n| alone | ns | 1.00 |\n")
        );

        // A block has the spread and the ratio.
        let block = results.measures[0].block();
        assert!(
            block.contains("1.00 .. 900") && block.contains("ours/this 0.500"),
            "{block}"
        );
        assert_eq!(ratio(0.0, 0.0), "-");
    }
}
