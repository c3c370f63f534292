//! A row, and its context: sizes, results, and the contenders that take part.

use anyhow::Context;
use hdrhistogram::Histogram;

use crate::{contender::Contender, results::Results, sizes::Sizes};

/// Measures one row.
type Measure = fn(&'static str, &mut Run<'_>) -> anyhow::Result<()>;

/// One row, or several measured together.
pub(crate) struct Row {
    /// The identifiers of its measures begin with this.
    pub(crate) id: &'static str,
    /// The question that it answers.
    pub(crate) question: &'static str,
    run: Measure,
}

pub(super) const fn row(id: &'static str, question: &'static str, run: Measure) -> Row {
    Row { id, question, run }
}

impl Row {
    /// Measures, and adds to the results. An error when a contender did not do as it should.
    pub(crate) fn run(&self, run: &mut Run<'_>) -> anyhow::Result<()> {
        (self.run)(self.id, run).with_context(|| format!("row {}", self.id))
    }
}

/// The context of a row.
pub(crate) struct Run<'a> {
    pub(crate) sizes: Sizes,
    pub(crate) results: &'a mut Results,
    /// Parts of the names of the contenders that take part; all when empty.
    pub(crate) only: &'a [String],
}

impl Run<'_> {
    /// Measures each of these once, if it takes part; `add` gets the result.
    pub(super) fn turns<A: Copy, R>(
        &mut self,
        contenders: &[Contender<A, R>],
        of: A,
        mut add: impl FnMut(&mut Self, &'static str, R),
    ) -> anyhow::Result<()> {
        for one in contenders {
            let takes_part = self.only.iter().any(|part| one.name.contains(part));
            if takes_part || self.only.is_empty() {
                add(self, one.name, (one.measure)(of)?);
            }
        }
        Ok(())
    }

    /// The same for contenders whose result is one value of a measure.
    pub(super) fn each<A: Copy>(
        &mut self,
        id: &str,
        unit: &'static str,
        contenders: &[Contender<A, f64>],
        of: A,
    ) -> anyhow::Result<()> {
        self.turns(contenders, of, |run, name, value| {
            run.add(id, unit, name, value)
        })
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
        for (quantile, share) in quantiles {
            let ms = ns.value_at_quantile(*share) as f64 / 1e6;
            self.add(&format!("{id}-{quantile}"), "ms late", name, ms);
        }
    }
}
