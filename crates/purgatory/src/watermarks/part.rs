//! One key of a wait for the values of several: [`Part`], which reports to the cell of the whole.

use std::sync::Weak;

use crate::operation::Outcome;

/// The place of one key in a wait for several.
pub(crate) struct Part {
    cell: Weak<dyn Cell>,
    number: usize,
}

/// A cell, whatever its keys.
pub(crate) trait Cell: Send + Sync {
    /// Records the end of a part, with nothing locked.
    fn ended(&self, number: usize, outcome: Outcome, value: u64);
}

impl Part {
    /// Makes the part with this number.
    pub(crate) fn new(cell: Weak<dyn Cell>, number: usize) -> Self {
        Part { cell, number }
    }

    /// Reports the end of this part, with nothing locked.
    pub(crate) fn ended(self, outcome: Outcome, value: u64) {
        if let Some(cell) = self.cell.upgrade() {
            cell.ended(self.number, outcome, value);
        }
    }
}
