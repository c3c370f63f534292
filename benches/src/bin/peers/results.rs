//! What was measured: for each measure and contender one value a round. Ratios and the table are
//! made of the medians.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// The name under which a measure's floor stands among the contenders.
pub(crate) const FLOOR: &str = "floor";
/// The contender that all others are compared with.
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

/// One contender's values, one a round.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    values: Vec<f64>,
}

impl Results {
    /// The measure `id`, made if need be.
    pub(crate) fn measure(&mut self, id: &str, unit: &'static str) -> &mut Measure {
        let at = self.measures.iter().position(|measure| measure.id == id);
        let at = at.unwrap_or_else(|| {
            self.measures.push(Measure { id: id.to_owned(), unit, entries: Vec::new() });
            self.measures.len() - 1
        });
        &mut self.measures[at]
    }

    /// True when one was measured whose name contains this.
    pub(crate) fn has_contender(&self, part: &str) -> bool {
        let mut entries = self.measures.iter().flat_map(|measure| &measure.entries);
        entries.any(|entry| entry.name.contains(part))
    }
}

impl Measure {
    /// Adds one round's value of a contender.
    pub(crate) fn add(&mut self, name: &'static str, value: f64) {
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => entry.values.push(value),
            None => self.entries.push(Entry { name, values: vec![value] }),
        }
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.entries.iter().find(|entry| entry.name == name).map(Entry::median)
    }

    /// The block of the table that stands for this measure.
    pub(crate) fn table(&self) -> String {
        let ours = self.median(OURS);
        let mut text = format!("\n{}  [{}]\n", self.id, self.unit);
        for entry in &self.entries {
            let (name, median) = (entry.name, shown(entry.median()));
            let least = entry.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = entry.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let spread = format!("{} .. {}", shown(least), shown(most));
            let ratio = ours.map_or("-".into(), |ours| ratio(ours, entry.median()));
            let line = format!("  {name:<17}{median:>10}   {spread:<24} ours/this {ratio}");
            writeln!(text, "{}", line.trim_end()).expect("a string");
        }
        text
    }

    /// `RATIO` and `FLOOR` lines, to be found by a machine.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(ours) = self.median(OURS) else { return Vec::new() };
        let others = self.entries.iter().filter(|entry| entry.name != OURS);
        let line = |entry: &Entry| {
            let (id, name, theirs) = (&self.id, entry.name, entry.median());
            let (ratio, ours, theirs) = (ratio(ours, theirs), shown(ours), shown(theirs));
            match name {
                FLOOR => format!("FLOOR {id} {ours} {theirs} {ratio}"),
                _ => format!("RATIO {id} {name} {ours} {theirs} {ratio}"),
            }
        };
        others.map(line).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let contenders: Vec<_> = self.entries.iter().map(Entry::json).collect();
        json!({ "measure": self.id, "unit": self.unit, "contenders": contenders })
    }
}

impl Entry {
    pub(crate) fn median(&self) -> f64 {
        purgatory_benches::median(&self.values)
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "median": self.median(), "rounds": self.values })
    }
}

/// Three digits or so.
pub(crate) fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// `-` where there is nothing to divide by, or theirs was early.
fn ratio(ours: f64, theirs: f64) -> String {
    if theirs <= 0.0 { "-".into() } else { format!("{:.3}", ours / theirs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_become_ratio_and_floor_lines() {
        let mut results = Results::default();
        for (name, values) in [(OURS, [90.0, 80.0, 10.0]), ("peer", [160.0, 1.0, 900.0])] {
            values.iter().for_each(|value| results.measure("cost", "ns").add(name, *value));
        }
        [40.0, 60.0].iter().for_each(|value| results.measure("cost", "ns").add(FLOOR, *value));
        let lines = results.measures[0].lines();
        assert_eq!(lines, ["RATIO cost peer 80.0 160 0.500", "FLOOR cost 80.0 50.0 1.600"]);
        assert_eq!(ratio(0.0, 0.0), "-");
        assert!(results.has_contender("pee") && !results.has_contender("nobody"));
    }
}
