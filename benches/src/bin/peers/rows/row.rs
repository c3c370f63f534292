//! A row, and what it works with: sizes, results, and who takes part.

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::{
    contender::Contender,
    results::{FLOOR, OURS, Results},
    sink::Lateness,
    sizes::Sizes,
};

/// One row, or several measured together.
pub(crate) struct Row {
    /// What it measures: the identifiers of its measures begin so.
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
    pub(super) run: fn(&'static str, &mut Run<'_>) -> anyhow::Result<()>,
}

impl Row {
    /// Measures, and adds to the results. An error when a contender did not do as it should.
    pub(crate) fn run(&self, run: &mut Run<'_>) -> anyhow::Result<()> {
        (self.run)(self.id, run).with_context(|| format!("row {}", self.id))
    }
}

/// What a row works with.
pub(crate) struct Run<'a> {
    pub(crate) sizes: Sizes,
    pub(crate) results: &'a mut Results,
    pub(crate) progress: &'a ProgressBar,
    /// Parts of names: who takes part. All when empty.
    pub(crate) only: &'a [String],
}

impl Run<'_> {
    /// Has each of these measured once, if it takes part; `add` is told what came of it.
    pub(super) fn turns<A: Copy, R>(
        &mut self,
        id: &str,
        round: usize,
        contenders: &[Contender<A, R>],
        of: A,
        mut add: impl FnMut(&mut Self, &'static str, R),
    ) -> anyhow::Result<()> {
        for one in contenders {
            if self.begins(id, round, one.name) {
                add(self, one.name, (one.measure)(of)?);
            }
        }
        Ok(())
    }

    /// The same with what comes to one value of a measure.
    pub(super) fn each<A: Copy>(
        &mut self,
        id: &str,
        unit: &'static str,
        round: usize,
        contenders: &[Contender<A, f64>],
        of: A,
    ) -> anyhow::Result<()> {
        self.turns(id, round, contenders, of, |run, name, value| run.add(id, unit, name, value))
    }

    /// Tells who is at work. False for one that takes no part.
    pub(super) fn begins(&self, id: &str, round: usize, name: &str) -> bool {
        let takes = self.only.is_empty() || self.only.iter().any(|part| name.contains(part));
        if takes {
            self.progress.set_message(format!("{id}: {name}, round {}", round + 1));
            self.progress.tick();
        }
        takes
    }

    /// Adds one round's value of a contender or a floor.
    pub(super) fn add(&mut self, id: &str, unit: &'static str, name: &'static str, value: f64) {
        self.results.measure(id, unit).add(name, value);
    }

    pub(super) fn floor(&mut self, id: &str, unit: &'static str, value: f64) {
        self.add(id, unit, FLOOR, value);
    }

    /// Adds how late a contender was, of ours also after the deadline rounded up to its tick.
    pub(super) fn lateness(
        &mut self,
        id: &str,
        name: &'static str,
        lateness: &Lateness,
        quantiles: &[(&str, f64)],
    ) {
        self.quantiles_ms(id, name, &lateness.asked, quantiles);
        if name == OURS {
            self.quantiles_ms(id, "ours-rounded", &lateness.rounded, quantiles);
        }
    }

    /// Adds quantiles of what was measured of a contender, in milliseconds.
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
