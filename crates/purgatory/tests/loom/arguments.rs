//! Events with an argument, which an operation remembers.

use std::any::Any;

use loom::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use purgatory::{DelayedOperation, Outcome, Purgatory};

use super::{MS, assert_nothing_left, by_hand, check, failpoints::Failpoint};

/// An operation that waits for both flags. An argument is the number of the flag that was set, and
/// the check looks only at that one. A check without an argument looks at both.
struct Told {
    flags: [Arc<AtomicBool>; 2],
    told: [bool; 2],
}

impl Told {
    fn look_at(&mut self, flag: usize) {
        self.told[flag] |= self.flags[flag].load(Relaxed);
    }
}

impl DelayedOperation for Told {
    fn try_complete(&mut self) -> bool {
        self.look_at(0);
        self.look_at(1);
        self.told == [true; 2]
    }

    fn try_complete_with(&mut self, event: &dyn Any) -> bool {
        self.look_at(*event.downcast_ref().expect("the number of a flag"));
        self.told == [true; 2]
    }

    fn on_complete(self, outcome: Outcome) {
        assert_eq!(outcome, Outcome::Completed);
    }
}

fn set(purgatory: &Purgatory<u8, Told>, flags: &[Arc<AtomicBool>; 2], flag: usize) {
    flags[flag].store(true, Relaxed);
    purgatory.check_and_complete_with(&1, &flag);
}

/// Two events with an argument each race the park of the operation, or come after it. However they
/// interleave, the operation learns of both.
fn told_of_both(faults: &[Failpoint], parked_first: bool, keys: &'static [u8]) {
    check(faults, move || {
        let (_timer, purgatory) = by_hand();
        let flags = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let operation = Told {
            flags: flags.clone(),
            told: [false; 2],
        };
        let other_flags = flags.clone();
        let other = purgatory.clone();
        if parked_first {
            purgatory
                .try_complete_else_watch(operation, keys, MS)
                .unwrap();
            let raises = loom::thread::spawn(move || set(&other, &other_flags, 1));
            set(&purgatory, &flags, 0);
            raises.join().unwrap();
        } else {
            let raises = loom::thread::spawn(move || {
                set(&other, &other_flags, 0);
                set(&other, &other_flags, 1);
            });
            purgatory
                .try_complete_else_watch(operation, keys, MS)
                .unwrap();
            raises.join().unwrap();
        }
        assert_nothing_left(&purgatory);
    });
}

#[test]
fn event_with_argument_against_another() {
    told_of_both(&[Failpoint::EventLeavesNoRequest], true, &[1]);
    told_of_both(&[Failpoint::EventLeavesNoRequest], true, &[2, 1]);
}

#[test]
fn park_against_events_with_arguments() {
    told_of_both(&[Failpoint::ParkSkipsVersionCheck], false, &[1]);
    told_of_both(&[Failpoint::EventLeavesNoRequest], false, &[2, 1]);
}
