//! Documents that are saved once they have been left alone for two seconds.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{BoxedOperation, CancelReason, OperationId, Outcome, ParkResult, Purgatory, when};

const QUIET: Duration = Duration::from_secs(2);

pub struct Document {
    pub name: &'static str,
    pub text: Arc<Mutex<String>>,
    pub saves: Purgatory<&'static str, BoxedOperation>,
    pub pending: Option<OperationId>,
}

impl Document {
    /// Changes the text. `save` gets the newest, at the latest as the purgatory shuts down. False:
    /// that has happened, and nothing will be saved.
    pub fn edit(&mut self, text: &str, save: impl FnOnce(String) + Send + 'static) -> bool {
        // The text first: a save that is about to run then sees it.
        text.clone_into(&mut self.text.lock().unwrap());
        // A save that is still parked is delayed.
        if let Some(id) = self.pending {
            if self.saves.reschedule(id, QUIET) {
                return true;
            }
        }
        // Without one, a new save is parked.
        let newest = self.text.clone();
        let end = move |outcome| {
            if !matches!(outcome, Outcome::Cancelled(CancelReason::Requested(_))) {
                let text = newest.lock().unwrap().clone();
                save(text);
            }
        };
        let parked = self
            .saves
            .try_complete_else_watch(when(|| false, end), &[self.name], QUIET);
        self.pending = match parked {
            Ok(ParkResult::Parked(id)) => Some(id),
            _ => None,
        };
        self.pending.is_some()
    }

    pub fn discard(&self) -> bool {
        self.saves.cancel_for_key(&self.name, "discarded") > 0
    }
}
