//! The end of the run, as all threads hear of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// Raised once. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    raised: AtomicBool,
    pauses: Mutex<()>,
    over: Condvar,
}

impl Stop {
    pub(crate) fn raise(&self) {
        self.shared.raised.store(true, SeqCst);
        let _pauses = self.shared.pauses.lock(); // a thread that pauses looks before it waits
        self.shared.over.notify_all();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.shared.raised.load(SeqCst)
    }

    /// Waits so long, or until it is raised.
    pub(crate) fn pause(&self, time: Duration) {
        let mut pauses = self.shared.pauses.lock();
        if !self.is_raised() {
            self.shared.over.wait_for(&mut pauses, time);
        }
    }
}
