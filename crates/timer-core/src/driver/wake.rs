//! `Wake`: how the reaper is told that there is something to do before what it waits for.

#[cfg(feature = "tokio")]
use std::sync::Arc;

use crate::sync::Unparker;

/// Wakes the reaper, or keeps it from its next sleep.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    Thread(Unparker),
    #[cfg(feature = "tokio")]
    Task(Arc<tokio::sync::Notify>),
}

impl Wake {
    pub(crate) fn wake(&self) {
        match self {
            Wake::Thread(reaper) => reaper.unpark(),
            #[cfg(feature = "tokio")]
            Wake::Task(reaper) => reaper.notify_one(),
        }
    }
}
