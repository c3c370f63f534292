//! `nexus-timer`'s wheel, which leaves a timer where it was put (Linux' since 2016). It is for one
//! thread, and may be a tick early.

use std::time::{Duration, Instant};

use nexus_timer::Wheel;

use super::core::Core;

/// As large as its own docs make it.
const CHUNK: usize = 4096;

pub(crate) struct NexusCore {
    wheel: Wheel<u64>,
    began: Instant,
    due: Vec<u64>,
}

impl Default for NexusCore {
    #[expect(clippy::disallowed_methods, reason = "its wheel counts from an Instant")]
    fn default() -> Self {
        let began = Instant::now();
        NexusCore { wheel: Wheel::unbounded(CHUNK, began), began, due: Vec::new() }
    }
}

impl NexusCore {
    fn at(&self, tick: u64) -> Instant {
        self.began + Duration::from_millis(tick)
    }
}

impl Core for NexusCore {
    const NAME: &'static str = "nexus-timer";

    fn insert(&mut self, deadline: u64, id: u64) {
        self.wheel.schedule_forget(self.at(deadline), id);
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        self.wheel.poll(self.at(now), &mut self.due);
        self.due.drain(..).for_each(&mut sink);
    }
}
