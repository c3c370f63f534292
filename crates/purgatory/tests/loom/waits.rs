//! Futures that are dropped, and waits that a call completes without a value.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use purgatory::{BoxedOperation, sync::Failpoint};

use super::{MS, assert_nothing_left, by_hand, check, ending};

/// A future is dropped while an event has its condition checked, which then yields a value or does
/// not. No fault fits the first case: the event ends an abandoned operation.
#[test]
fn future_drop_against_event() {
    for (faults, yields) in [
        (&[][..], true),
        (&[Failpoint::DroppedFutureLeavesOperation], false),
    ] {
        check(faults, move || {
            let (_timer, purgatory) = by_hand::<BoxedOperation>();
            let flag = Arc::new(AtomicBool::new(false));
            let value = std::sync::Arc::new(());
            let seen = flag.clone();
            let yielded = value.clone();
            let condition = move || seen.load(Relaxed).then(|| yielded.clone());
            let future = purgatory.wait(&[1], MS, condition);
            let other = purgatory.clone();
            let event = thread::spawn(move || {
                flag.store(yields, Relaxed);
                other.check_and_complete(&1);
            });
            drop(future);
            event.join().unwrap();
            assert_nothing_left(&purgatory);
            assert_eq!(
                std::sync::Arc::strong_count(&value),
                1,
                "a value was not dropped"
            );
        });
    }
}

/// A call completes a wait, by its id or its key, while an event has its condition checked. However
/// they meet, the wait gets its value and is never cancelled without one.
#[test]
fn complete_of_a_wait_against_its_event() {
    for by_key in [false, true] {
        check(&[Failpoint::EventLeavesNoNote], move || {
            let (_timer, purgatory) = by_hand::<BoxedOperation>();
            let flag = Arc::new(AtomicBool::new(false));
            let seen = flag.clone();
            let mut wait = purgatory.wait(&[1], MS, move || seen.load(Relaxed));
            let id = wait.id().expect("the flag is not set");
            let other = purgatory.clone();
            let completes = thread::spawn(move || {
                if by_key {
                    other.complete_for_key(&1);
                } else {
                    other.complete(id);
                }
            });
            flag.store(true, Relaxed);
            purgatory.check_and_complete(&1);
            completes.join().unwrap();
            assert_eq!(ending(&mut wait), Some(Ok(())));
            assert_nothing_left(&purgatory);
        });
    }
}
