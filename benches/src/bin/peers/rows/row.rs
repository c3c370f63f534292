//! A row and its context: sizes, results, and the contenders that take part.

use anyhow::Context;
use hdrhistogram::Histogram;

use crate::{contender::Contender, results::Results, sizes::Sizes};

/// Measures one row.
type Measure = fn(&'static str, &mut Run<'_>) -> anyhow::Result<()>;

/// One row, or several that are measured together.
pub(crate) struct Row {
    /// The prefix of the identifiers of its measures.
    pub(crate) id: &'static str,
    /// The question that the row answers.
    pub(crate) question: &'static str,
    pub(super) run: Measure,
}

impl Row {
    /// Takes the row's measures, and adds them to the results.
    ///
    /// # Errors
    /// When a contender failed its self-check.
    pub(crate) fn run(&self, run: &mut Run<'_>) -> anyhow::Result<()> {
        (self.run)(self.id, run).with_context(|| format!("row {}", self.id))
    }
}

/// The context of a row.
pub(crate) struct Run<'a> {
    pub(crate) sizes: Sizes,
    pub(crate) results: &'a mut Results,
    /// Patterns for the names of measures. Without a pattern, all are made.
    pub(crate) measures: &'a [String],
    /// Patterns for the names of contenders. Without a pattern, all take part.
    pub(crate) contenders: &'a [String],
}

/// Returns whether a name contains one of the patterns, or there are no patterns.
fn is_wanted(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|part| name.contains(part))
}

impl Run<'_> {
    /// Measures each contender that takes part once; calls `add` with each result.
    pub(super) fn turns<A: Copy, R>(
        &mut self,
        contenders: &[Contender<A, R>],
        of: A,
        mut add: impl FnMut(&mut Self, &'static str, R),
    ) -> anyhow::Result<()> {
        for one in contenders {
            if is_wanted(self.contenders, one.name) {
                add(self, one.name, (one.measure)(of)?);
            }
        }
        Ok(())
    }

    /// If `id` is wanted, measures each contender that takes part once; adds each result as a value
    /// of `id`.
    pub(super) fn each<A: Copy>(
        &mut self,
        id: &str,
        unit: &'static str,
        contenders: &[Contender<A, f64>],
        of: A,
    ) -> anyhow::Result<()> {
        if !is_wanted(self.measures, id) {
            return Ok(());
        }
        self.turns(contenders, of, |run, name, value| {
            run.add(id, unit, name, value);
        })
    }

    /// Measures each form like [`each`](Self::each), under the name of the row and the form.
    pub(super) fn each_form<A: Copy>(
        &mut self,
        id: &str,
        unit: &'static str,
        forms: impl IntoIterator<Item = (&'static str, Vec<Contender<A, f64>>)>,
        of: A,
    ) -> anyhow::Result<()> {
        for (form, contenders) in forms {
            self.each(&format!("{id}-{form}"), unit, &contenders, of)?;
        }
        Ok(())
    }

    /// Adds one round's value of a contender.
    pub(super) fn add(&mut self, id: &str, unit: &'static str, name: &'static str, value: f64) {
        self.results.measure(id, unit).add(name, value);
    }

    /// Adds quantiles of a contender's times, in milliseconds.
    pub(super) fn quantiles_ms(
        &mut self,
        id: &str,
        name: &'static str,
        ns: &Histogram<u64>,
        quantiles: &[(&str, f64)],
    ) {
        // Each quantile is a measure of its own.
        for (quantile, share) in quantiles {
            let ms = ns.value_at_quantile(*share) as f64 / 1e6;
            self.add(&format!("{id}-{quantile}"), "ms late", name, ms);
        }
    }
}
