//! Keys whose own code panics.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use purgatory::failpoints::Failpoint;
use purgatory::{DelayedOperation, Outcome, Purgatory};
use shuttle::thread;
use timer_core::ManualTimer;

use crate::{
    schedules::check_unwinding,
    world::{MS, join},
};

/// A key whose clone panics when it is a 4.
#[derive(PartialEq, Eq, Hash)]
struct Fragile(u8);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(self.0 != 4, "a panic in a key");
        Fragile(self.0)
    }
}

struct Op {
    ready: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.ready.load(Relaxed)
    }

    fn on_complete(self, _: Outcome) {
        self.ended.fetch_add(1, Relaxed);
    }
}

/// The last key panics when the others are watched already: nothing was parked, whatever was noted
/// meanwhile, and the place among those that may be parked is free again.
#[test]
fn the_last_of_several_panics_while_it_is_being_watched() {
    check_unwinding(&[Failpoint::WithdrawnLeavesWatches], || {
        let timer = ManualTimer::new();
        let builder = Purgatory::builder("fragile").timer(&timer).max_parked(1);
        let purgatory: Purgatory<Fragile, Op> = builder.build().unwrap();
        let (ready, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let op = || Op { ready: ready.clone(), ended: ended.clone() };
        let threads = [1, 2].map(|key| {
            let (purgatory, ready) = (purgatory.clone(), ready.clone());
            thread::spawn(move || {
                ready.store(true, Relaxed);
                purgatory.check_and_complete(&Fragile(key));
                purgatory.cancel_for_key(&Fragile(key), "meanwhile");
            })
        });
        let passing = timer.clone();
        let time = thread::spawn(move || passing.advance(MS));
        let keys = [1, 2, 4].map(Fragile);
        let parked = catch_unwind(AssertUnwindSafe(|| {
            drop(purgatory.try_complete_else_watch(op(), &keys, MS).unwrap());
        }));
        join(threads);
        time.join().unwrap();
        assert_eq!(ended.load(Relaxed), usize::from(parked.is_ok())); // its first check came true
        let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
        assert_eq!((left, Arc::strong_count(&ended)), ((0, 0, 0), 1), "left behind");
        ready.store(false, Relaxed);
        assert!(purgatory.try_complete_else_watch(op(), &keys[..2], MS).is_ok());
        assert!(purgatory.try_complete_else_watch(op(), &keys[..2], MS).is_err());
    });
}
