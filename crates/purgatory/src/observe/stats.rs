//! Adding up what the rooms have counted, when somebody asks.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    paths::core::Core,
    words::{
        watches::WatchKey,
        {
            operation::DelayedOperation,
            stats::{Stats, Times},
        },
    },
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Adds up what the rooms counted.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        (0..self.rooms.count()).for_each(|room| self.rooms.lock(room).add_to(&mut stats));
        self.counts.add_to(&mut stats);
        if O::CHECKED {
            stats.add_first_checks();
        }
        stats.checks += self.counts.looks.load(Relaxed);
        stats.events = self.versions.events();
        stats
    }

    /// Adds up what the rooms have timed; those that have not begun begin now.
    pub(crate) fn times(&self) -> Times {
        let mut times = Times::default();
        for room in 0..self.rooms.count() {
            times.add(self.rooms.lock(room).timed.get_or_insert_default());
        }
        times.callback_delay = self.callback_delay.get_or_init(Default::default).lock().clone();
        times
    }
}
