//! Keys whose `Clone` panics: the call that parks unwinds, and nothing is parked.
#![cfg(not(loom))]

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::mpsc,
    thread,
};

use crate::support::{MINUTE, NEVER, assert_empty, by_hand};
use purgatory::{DelayedOperation, Outcome, Purgatory, Watches};

/// A key that cannot be stored.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Uncloneable(u32);

impl Clone for Uncloneable {
    fn clone(&self) -> Self {
        resume_unwind(Box::new("cloned")) // without a message
    }
}

/// Calls its purgatory as it is dropped.
struct LooksBack {
    waits: Purgatory<Uncloneable, LooksBack>,
    seen: mpsc::Sender<usize>,
}

impl DelayedOperation for LooksBack {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Outcome) {}
}

impl Drop for LooksBack {
    fn drop(&mut self) {
        self.seen.send(self.waits.len()).unwrap();
    }
}

/// The operation of a call that unwinds is dropped with nothing locked.
#[test]
fn operation_whose_key_panics_is_dropped_unlocked() {
    let keys = || [Uncloneable(1), Uncloneable(2)];
    type Way = fn(&[Uncloneable; 2]) -> Watches<'_, Uncloneable>;

    let ways: [Way; 3] = [
        |keys| Watches::keys(&keys[..1]),
        |keys| Watches::keys(&keys[..1]).in_turn(),
        |keys| Watches::keys(keys),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let (_timer, waits) = by_hand();
        let (seen, looks) = mpsc::channel();
        let own = waits.clone();
        let parker = thread::spawn(move || {
            let operation = LooksBack {
                waits: own.clone(),
                seen,
            };
            let keys = keys();
            let park = || own.try_complete_else_watch(operation, way(&keys), NEVER);
            assert!(catch_unwind(AssertUnwindSafe(park)).is_err());
        });
        assert_eq!(looks.recv_timeout(MINUTE), Ok(0), "way {number}");
        parker.join().unwrap();
        assert_empty(&waits);
    }
}
