//! `hierarchical_hash_wheel_timer`'s cancellable wheel, turned tick by tick as its docs show.

use std::time::Duration;

use hierarchical_hash_wheel_timer::{IdOnlyTimerEntry, wheels::cancellable::QuadWheelWithOverflow};

use super::core::Core;

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
