//! The end of the run, as all threads hear of it.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

/// Raised once. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub(crate) fn raise(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.0.lock()
    }

    /// Waits so long, or until it is raised.
    pub(crate) fn pause(&self, time: Duration) {
        self.0.1.wait_while_for(&mut self.0.0.lock(), |raised| !*raised, time);
    }
}
