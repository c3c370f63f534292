//! The operation of a wait, as the box sees it. It shares a *cell* with its future.

use std::sync::Arc;

use crate::operation::Outcome;

/// The operation's view of a cell. The operation lets go of the cell as it answers the future.
pub(crate) trait Waiting: Send + Sync {
    /// Evaluates the condition. Returns true once it has given its value.
    fn check(&self) -> bool;
    /// Answers the future. The outcome is borrowed, since it is mostly only read.
    fn end(self: Arc<Self>, outcome: &Outcome);
    /// Answers the future of an operation that is dropped without an end.
    fn lose(self: Arc<Self>);
}

/// The operation of a wait. If it is dropped without an end, it answers
/// [`Panicked`](crate::CancelReason::Panicked).
pub(crate) struct WaitOperation {
    /// `None` once it has ended.
    cell: Option<Arc<dyn Waiting>>,
}

impl WaitOperation {
    pub(crate) fn new(cell: Arc<dyn Waiting>) -> Self {
        WaitOperation { cell: Some(cell) }
    }

    /// Checks the condition.
    pub(crate) fn check(&self) -> bool {
        self.cell.as_ref().is_none_or(|cell| cell.check())
    }

    /// Answers the future.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        if let Some(cell) = self.cell.take() {
            cell.end(outcome);
        }
    }
}

impl Drop for WaitOperation {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.lose();
        }
    }
}
