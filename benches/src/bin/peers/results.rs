//! Results: for each measure and contender one value per round. Ratios and tables show medians.
//!
//! Rows of two threads also know how long a cache line took to move between the processors, before
//! each round. A machine that has two modes shows two groups of values, with a time for each.

use std::fmt::Write as _;

use purgatory_benches::{markdown, median, number};

/// The contender with which all others are compared.
pub(crate) const OURS: &str = "ours";

/// Everything measured in one run, in order.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) measures: Vec<Measure>,
}

/// One thing measured of several contenders. Less is better.
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
    rounds: Vec<Round>,
}

/// One round of a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) value: f64,
    /// The time in which a cache line moved to the other processor, with two threads.
    pub(crate) line_ns: Option<f64>,
}

/// Rounds whose values differ by less than this belong to one mode.
const MODES_DIFFER: f64 = 1.3;

impl Results {
    /// Returns the measure `id`; creates it the first time.
    pub(crate) fn measure(&mut self, id: &str, unit: &'static str) -> &mut Measure {
        // In order of their first values.
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
            // The first measure of its contenders brings all of theirs along.
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
        let line_ns = None;
        self.add_round(name, Round { value, line_ns });
    }

    /// Adds one round of a contender.
    pub(crate) fn add_round(&mut self, name: &'static str, round: Round) {
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => entry.rounds.push(round),
            None => self.entries.push(Entry {
                name,
                rounds: vec![round],
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
            if let Some(modes) = entry.modes() {
                writeln!(text, "    {modes}").expect("a string");
            }
        }
        text
    }

    /// Formats the measure as cells of a table; the best median is bold.
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
    fn values(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.value).collect()
    }

    fn median(&self) -> f64 {
        median(&self.values())
    }

    /// Describes the machine's modes: in each the median, and how long a line took to move. `None`
    /// for a measure of one thread.
    fn modes(&self) -> Option<String> {
        let mode = |rounds: &[Round]| {
            let values: Vec<_> = rounds.iter().map(|round| round.value).collect();
            let lines: Vec<_> = rounds.iter().filter_map(|round| round.line_ns).collect();
            let value = number(median(&values));
            let line = number(median(&lines));
            let times = rounds.len();
            format!("{value} times {times} (a line moves in {line} ns)")
        };
        if self.rounds.iter().any(|round| round.line_ns.is_none()) {
            return None;
        }

        // Split the rounds where neighbours differ most.
        let mut rounds = self.rounds.clone();
        rounds.sort_by(|a, b| a.value.total_cmp(&b.value));
        let step = |at: &usize| rounds[*at].value / rounds[*at - 1].value;
        let split = (1..rounds.len()).max_by(|a, b| step(a).total_cmp(&step(b)));
        let (fast, slow) = rounds.split_at(split.unwrap_or(0));
        if fast.is_empty() || slow[0].value < MODES_DIFFER * fast[fast.len() - 1].value {
            return Some(format!("one mode: {}", mode(&rounds)));
        }
        Some(format!("two modes: {}, {}", mode(fast), mode(slow)))
    }

    /// Returns the least and the greatest value.
    fn range(&self) -> (f64, f64) {
        let values = || self.rounds.iter().map(|round| round.value);
        let least = values().fold(f64::INFINITY, f64::min);
        let greatest = values().fold(f64::NEG_INFINITY, f64::max);
        (least, greatest)
    }
}

/// Formats the ratio; `-` when theirs is 0, or negative because it was early.
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

    #[test]
    fn rounds_of_two_threads_are_split_into_modes() {
        let mut results = Results::default();
        let measure = results.measure("cost-2t", "ns");
        for (value, line_ns) in [(400.0, 40.0), (820.0, 110.0), (410.0, 44.0), (800.0, 90.0)] {
            let line_ns = Some(line_ns);
            measure.add_round(OURS, Round { value, line_ns });
        }
        let block = measure.block();
        let fast = "two modes: 405 times 2 (a line moves in 42.0 ns), ";
        let slow = "810 times 2 (a line moves in 100 ns)\n";
        assert!(block.ends_with(&format!("{fast}{slow}")), "{block}");

        // Values that drift are one mode.
        let measure = results.measure("drift-2t", "ns");
        for value in [400.0, 500.0, 620.0] {
            let line_ns = Some(40.0);
            measure.add_round(OURS, Round { value, line_ns });
        }
        assert!(measure.block().contains("one mode: 500 times 3"));
    }
}
