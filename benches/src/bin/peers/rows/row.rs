//! A row, and what it works with: sizes, results, and who takes part.

use anyhow::Context;
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

    /// Tells who is at work.
    pub(super) fn at(&self, row: &str, who: &str, round: usize) {
        self.progress.set_message(format!("{row}: {who}, round {}", round + 1));
        self.progress.tick();
    }
}
