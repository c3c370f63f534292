//! A row, and what it works with: sizes, results, and who takes part.

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::{named::Named, results::Results, sizes::Sizes};

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
    pub(super) fn takes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    pub(super) fn contenders<C: Named>(&self, all: &[C]) -> Vec<C> {
        all.iter().copied().filter(|contender| self.takes(contender.name())).collect()
    }

    /// Has a contender measured once, if it takes part.
    pub(super) fn one(
        &mut self,
        id: &str,
        unit: &'static str,
        round: usize,
        name: &'static str,
        measured: impl FnOnce() -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        if self.takes(name) {
            self.at(id, name, round);
            let value = measured()?;
            self.results.measure(id, unit).add(name, value);
        }
        Ok(())
    }

    /// Has each of these measured once.
    pub(super) fn each<C: Named>(
        &mut self,
        id: &str,
        unit: &'static str,
        round: usize,
        contenders: &[C],
        measured: impl Fn(C) -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        let mut all = contenders.iter();
        all.try_for_each(|&one| self.one(id, unit, round, one.name(), || measured(one)))
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
            self.results.measure(&format!("{id}-{quantile}"), "ms late").add(name, ms);
        }
    }

    /// Tells who is at work.
    pub(super) fn at(&self, row: &str, who: &str, round: usize) {
        self.progress.set_message(format!("{row}: {who}, round {}", round + 1));
        self.progress.tick();
    }
}
