//! Futures that are dropped.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use purgatory::{BoxedOperation, sync::Failpoint};

use super::{MS, assert_nothing_left, by_hand, check};

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
