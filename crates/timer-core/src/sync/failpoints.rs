//! Failpoints: places in the code that ships where a model can have it go wrong, to show that the
//! model would notice. Without a model checker's `cfg` there are none: the macro is `false`.

/// True when the running model has set this failpoint.
#[cfg(not(any(loom, shuttle)))]
macro_rules! failpoint {
    ($point:ident) => {
        false
    };
}

/// True when the running model has set this failpoint.
#[cfg(any(loom, shuttle))]
macro_rules! failpoint {
    ($point:ident) => {
        $crate::sync::failpoints::Failpoint::$point.is_set()
    };
}

pub(crate) use failpoint;

#[cfg(any(loom, shuttle))]
mod set {
    use std::cell::Cell;

    /// What can be made to go wrong in this crate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Failpoint {
        /// A shard that was given earlier work does not say so.
        NobodyRings,
        /// A shard that was turned keeps the tick by which the reaper meant to come.
        TurnLeavesWakeBefore,
        /// A task is looked for under one hold of the lock and cancelled under another.
        CancelLooksThenActs,
        /// Shards that a shutdown has emptied take tasks.
        ShutdownClosesNoShard,
        /// A poll whose waker came too late waits for it.
        LateWakerWaits,
        /// A sleep that is dropped stays on the wheel.
        DroppedSleepStays,
        /// A shutdown leaves sleepers asleep.
        ShutdownWakesNoSleeper,
    }

    impl Failpoint {
        pub(crate) fn is_set(self) -> bool {
            SET.get() == Some(self)
        }
    }

    // The threads of a model run on one thread of the machine, so a plain thread-local is seen by
    // all of them.
    std::thread_local! {
        static SET: Cell<Option<Failpoint>> = const { Cell::new(None) };
    }

    /// Sets a failpoint, or none, for the models that this thread of the machine runs.
    pub fn plant(failpoint: Option<Failpoint>) {
        SET.set(failpoint);
    }
}

#[cfg(any(loom, shuttle))]
pub use set::{Failpoint, plant};
