//! Watermark watches, on a manual timer.

use crate::support::{Park, Probe, SECOND, Waiting, assert_empty, waiting};
use purgatory::{Outcome, Watches};

/// Parks a new probe's operation.
fn park(purgatory: &Waiting, watches: Watches<'_, &'static str>) -> Probe {
    Probe::parked(purgatory, watches, SECOND)
}

/// An advance that another follows is checked: one of the watermarks may have been reached before
/// the operation was parked, so that no advance will ever reach its watch.
#[test]
fn the_last_of_several_watermarks_completes() {
    let (_timer, purgatory) = waiting();
    let watermarks = [("a", 5), ("b", 5), ("c", 5)];
    let probe = park(&purgatory, Watches::up_to(&watermarks));
    for (key, checks) in [("b", 2), ("b", 2), ("a", 3)] {
        assert_eq!(
            (purgatory.complete_up_to(&key, 9), probe.checks()),
            (0, checks)
        );
    }
    assert_eq!((purgatory.watched(), purgatory.len()), (3, 1));
    assert_eq!((purgatory.complete_up_to(&"c", 5), probe.checks()), (1, 3));
    assert_eq!(probe.endings(), [Outcome::Completed]);
    let probe = park(&purgatory, Watches::up_to(&watermarks));
    probe.make_ready();
    assert_eq!(
        (purgatory.complete_up_to(&"b", 5), probe.endings()),
        (1, vec![Outcome::Completed])
    );
    assert_empty(&purgatory);
}

/// Each callback uses the key that is being completed.
#[test]
fn thousands_on_one_key_complete_with_nothing_locked() {
    let (_timer, purgatory) = waiting();
    for number in 0..2_000 {
        let inside = purgatory.clone();
        let operation = Probe::new()
            .operation()
            .then(move |_| _ = inside.waiters(&"k"));
        let watches = [("k", number)];
        let form = Watches::up_to(&watches);
        purgatory.park(
            operation,
            if number % 3 == 0 {
                form.checked()
            } else {
                form
            },
            SECOND,
        );
    }
    assert_eq!(purgatory.complete_up_to(&"k", 1_499), 1_000);
    assert_eq!(
        (purgatory.len(), purgatory.cancel_for_key(&"k", "rest")),
        (1_000, 1_000)
    );
    assert_empty(&purgatory);
}

/// An advance that checked at each watch would check 16 000 times.
#[test]
fn advance_checks_once_for_all_met_thresholds() {
    let mut levels: Vec<_> = (1..=16_000)
        .rev()
        .map(|threshold| ("p0", threshold))
        .collect();
    levels.push(("p1", 1));
    for count in [10, 16_001] {
        let count_form = Watches::up_to(&levels[levels.len() - count..]);
        for (watches, again) in [(count_form, 2), (count_form.checked(), 3)] {
            let (_timer, purgatory) = waiting();
            let probe = park(&purgatory, watches);
            let higher = park(&purgatory, Watches::up_to(&[("p0", 16_001)]).checked());
            purgatory.complete_up_to(&"p0", 16_000);
            assert_eq!(probe.checks(), 2, "at parking, and now");
            purgatory.complete_up_to(&"p0", 16_000);
            assert_eq!((probe.checks(), higher.checks()), (again, 1));
        }
    }
}
