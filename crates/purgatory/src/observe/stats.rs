//! Adding up what the rooms have counted, when somebody asks.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    paths::core::Core,
    room::times::Times,
    sync::Ordering,
    words::{
        watches::WatchKey,
        {operation::DelayedOperation, stats::Stats},
    },
};

impl<K, O> Core<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    /// Adds up what the rooms counted.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        (0..self.rooms.count()).for_each(|room| self.rooms.lock(room).add_to(&mut stats));
        let at_once = self.at_once.iter();
        stats.ended_at_once = at_once.map(|count| count.load(Ordering::Relaxed)).sum();
        stats.panics = self.counts.panics.load(Relaxed);
        stats.refused = self.counts.refusals();
        if O::CHECKED {
            stats.add_first_checks();
        }
        stats.checks += self.counts.looks.load(Relaxed);
        stats.missed_events = self.last_checks.as_ref().map_or(0, |last| last.missed());
        stats.events = self.versions.events();
        stats.callbacks_waiting = self.counts.callbacks_waiting.load(Relaxed);
        stats.deferred = self.deferred_len() as u64;
        stats
    }

    /// Adds up what the rooms have timed; those that have not begun begin now.
    pub(crate) fn times(&self) -> Times {
        let mut times = Times::default();
        let rooms = self.rooms.count();
        for room in 0..rooms {
            self.rooms.lock(room).timed.get_or_insert_default().look(rooms, &mut times);
        }
        times.callback_delay = self.callback_delay.get_or_init(Default::default).lock().clone();
        times
    }
}
