//! The operation of a wait, as the box sees it: what it shares with its future is a *cell*.

use std::sync::Arc;

use crate::operation::Outcome;

/// The result of a check of a wait's condition.
pub(crate) enum ConditionCheck {
    Waits,
    /// It has given its value.
    CameTrue,
    /// The future was dropped while the operation was held: it is not to come true.
    Deserted,
}

/// The operation's view of a cell. It lets go of it as it answers the future.
pub(crate) trait Waiting: Send + Sync {
    /// Evaluates the condition.
    fn check(&self) -> ConditionCheck;
    /// Answers the future. The outcome is not moved: it is mostly looked at.
    fn end(self: Arc<Self>, outcome: &Outcome);
    /// Answers the future of an operation that is dropped without an end.
    fn lose(self: Arc<Self>);
    /// Cancels the operation of a future that was dropped, in the entry that it was parked in.
    fn cancel_deserted(self: Arc<Self>);
}

/// The operation of a wait. Dropped without an end, it answers
/// [`Panicked`](crate::CancelReason::Panicked).
pub(crate) struct WaitOperation {
    /// `None` once it has ended.
    cell: Option<Arc<dyn Waiting>>,
}

impl WaitOperation {
    pub(crate) fn new(cell: Arc<dyn Waiting>) -> Self {
        WaitOperation { cell: Some(cell) }
    }

    /// Checks the condition. That of a future that was dropped never comes true; if the operation
    /// is still where it was parked for that future, it leaves.
    pub(crate) fn check(&self) -> bool {
        let Some(cell) = &self.cell else {
            return true;
        };
        match cell.check() {
            ConditionCheck::CameTrue => true,
            ConditionCheck::Waits => false,
            ConditionCheck::Deserted => {
                cell.clone().cancel_deserted();
                false
            }
        }
    }

    /// Answers the future.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        if let Some(cell) = self.cell.take() {
            cell.end(outcome);
        }
    }

    /// True for the operation of the cell at this address.
    pub(crate) fn is_at(&self, cell: *const ()) -> bool {
        self.cell
            .as_ref()
            .is_some_and(|own| Arc::as_ptr(own).cast::<()>() == cell)
    }
}

impl Drop for WaitOperation {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.lose();
        }
    }
}
