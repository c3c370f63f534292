//! Data structures of timers that can be turned without a clock, behind [`Core`].

use std::time::{Duration, Instant};

use hierarchical_hash_wheel_timer::{IdOnlyTimerEntry, wheels::cancellable::QuadWheelWithOverflow};
use nexus_timer::Wheel;
use timer_core::{TimingWheel, WheelSize};

/// Of `nexus-timer`'s wheel, as large as its own docs make it.
const CHUNK: usize = 4096;

/// Ordered timers without clock, lock or thread: time is told in ticks.
pub(crate) trait Core: Default {
    const NAME: &'static str;

    fn insert(&mut self, deadline: u64, id: u64);

    /// Hands over every timer due at `now`.
    fn advance(&mut self, now: u64, sink: impl FnMut(u64));
}

/// The bare `TimingWheel`.
pub(crate) struct OursWheel(TimingWheel<u64>);

impl Default for OursWheel {
    fn default() -> Self {
        OursWheel(TimingWheel::new(WheelSize::default(), 0))
    }
}

impl Core for OursWheel {
    const NAME: &'static str = "ours-wheel";

    fn insert(&mut self, deadline: u64, id: u64) {
        self.0.insert(deadline, id).expect("room");
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        self.0.advance(now, usize::MAX, |task| sink(task.take()));
    }
}

/// `hierarchical_hash_wheel_timer`'s cancellable wheel, turned tick by tick as its docs show.
#[derive(Default)]
pub(crate) struct HashedCore {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u64>>,
    now: u64,
}

impl Core for HashedCore {
    const NAME: &'static str = "hashed-wheel";

    fn insert(&mut self, deadline: u64, id: u64) {
        let entry = IdOnlyTimerEntry::new(id, Duration::from_millis(deadline - self.now));
        self.wheel.insert(entry).expect("a deadline in the future");
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while self.now < now {
            self.now += 1;
            self.wheel.tick().into_iter().for_each(|entry| sink(entry.id));
        }
    }
}

/// `nexus-timer`'s wheel, which leaves a timer where it was put (Linux' since 2016). It is for one
/// thread, and may be a tick early.
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
