//! Watermark watches, and the threshold purgatory on top of them, under the hand-turned clock.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::support::{Park, Probe, SECOND, Waiting, assert_empty, by_hand, waiting};
use purgatory::{BoxedOperation, CancelReason, Outcome, Purgatory, WaitError, Watches};

/// Parks a new probe's operation.
fn park(purgatory: &Waiting, watches: Watches<'_, &'static str>) -> Probe {
    Probe::parked(purgatory, watches, SECOND)
}

#[test]
fn a_rise_completes_what_it_reaches_unchecked() {
    let (_timer, purgatory) = waiting();
    let probes: Vec<_> =
        (1..=10).map(|offset| park(&purgatory, Watches::up_to(&[("p0", offset)]))).collect();
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.waiters(&"p0")), (10, 10, 10));
    assert_eq!(purgatory.complete_up_to(&"p1", 10), 0);
    assert_eq!(purgatory.complete_up_to(&"p0", 0), 0);
    assert_eq!(purgatory.complete_up_to(&"p0", 4), 4);
    assert_eq!(purgatory.complete_up_to(&"p0", 4), 0);
    assert_eq!(purgatory.complete_up_to(&"p0", 2), 0); // a lower value meets nothing new
    assert_eq!(purgatory.check_and_complete(&"p0"), 0); // touches plain watches only
    assert!(probes[..4].iter().all(|probe| probe.endings() == [Outcome::Completed]));
    assert!(probes.iter().all(|probe| probe.checks() == 1), "checked at parking only");
    assert_eq!(purgatory.complete_up_to(&"p0", u64::MAX), 6);
    assert_empty(&purgatory);
}

#[test]
fn the_last_of_several_watermarks_completes() {
    let (_timer, purgatory) = waiting();
    let probe = park(&purgatory, Watches::up_to(&[("a", 5), ("b", 5), ("c", 5)]));
    assert_eq!(purgatory.complete_up_to(&"b", 9), 0);
    assert_eq!(purgatory.complete_up_to(&"b", 9), 0); // its watch has been taken
    assert_eq!(probe.checks(), 2);
    assert_eq!(purgatory.complete_up_to(&"a", 9), 0);
    assert_eq!(probe.checks(), 3);
    assert_eq!((purgatory.watched(), purgatory.len()), (3, 1));
    assert_eq!(purgatory.complete_up_to(&"c", 5), 1);
    assert_eq!((probe.checks(), probe.endings()), (3, vec![Outcome::Completed]));
    assert_empty(&purgatory);
}

/// One of its watermarks was reached before it parked, so no rise will ever meet that watch.
#[test]
fn a_watermark_reached_before_parking_is_not_awaited() {
    let (_timer, purgatory) = waiting();
    let values = [Arc::new(AtomicU64::new(50)), Arc::new(AtomicU64::new(10))];
    let probe = Probe::new();
    let operation = probe.operation();
    let (seen, ready) = (values.clone(), probe.clone());
    let operation = operation.on_check(move || {
        if seen[0].load(SeqCst) >= 42 && seen[1].load(SeqCst) >= 20 {
            ready.make_ready();
        }
    });
    purgatory.park(operation, Watches::up_to(&[("a", 42), ("b", 20)]), SECOND);
    values[1].store(20, SeqCst);
    assert_eq!(purgatory.complete_up_to(&"b", 20), 1);
    assert_eq!(probe.endings(), [Outcome::Completed]);
    assert_empty(&purgatory);
}

#[test]
fn in_the_check_form_a_met_watch_stays() {
    let (_timer, purgatory) = waiting();
    let probe = park(&purgatory, Watches::up_to(&[("k", 5)]).checked());
    assert_eq!((purgatory.complete_up_to(&"k", 4), probe.checks()), (0, 1)); // not met
    assert_eq!((purgatory.complete_up_to(&"k", 5), probe.checks()), (0, 2)); // met
    assert_eq!((purgatory.complete_up_to(&"k", 6), probe.checks()), (0, 3)); // stays met
    assert_eq!((purgatory.complete_up_to(&"k", 1), probe.checks()), (0, 4)); // by whatever comes
    assert_eq!((purgatory.check_and_complete(&"k"), probe.checks()), (0, 4)); // but a rise
    probe.make_ready();
    assert_eq!(purgatory.complete_up_to(&"k", 6), 1);
    assert_eq!(probe.endings(), [Outcome::Completed]);
    assert_empty(&purgatory);
}

#[test]
fn thousands_on_one_key_complete_with_nothing_locked() {
    let (_timer, purgatory) = waiting();
    for number in 0..2_000 {
        let inside = purgatory.clone();
        // Each callback uses the key that is being completed.
        let operation = Probe::new().operation().then(move |_| _ = inside.waiters(&"k"));
        let watches = [("k", number)];
        let form = Watches::up_to(&watches);
        let form = if number % 3 == 0 { form.checked() } else { form };
        purgatory.park(operation, form, SECOND);
    }
    assert_eq!(purgatory.complete_up_to(&"k", 1_499), 1_000);
    assert_eq!((purgatory.len(), purgatory.cancel_for_key(&"k", "rest")), (1_000, 1_000));
    assert_empty(&purgatory);
}

#[test]
fn a_wait_on_a_watermark_takes_its_value_at_the_end() {
    let (_timer, purgatory): (_, Purgatory<u8, BoxedOperation>) = by_hand();
    let log = Arc::new(Mutex::new(vec!['a']));
    let (seen, watches) = (log.clone(), [(1, 2)]);
    let second = purgatory
        .wait(Watches::up_to(&watches), SECOND, move || seen.lock().unwrap().get(1).copied());
    log.lock().unwrap().push('b');
    assert_eq!(purgatory.complete_up_to(&1, 2), 1);
    assert_eq!(second.wait_blocking(), Ok('b'));

    let panics = purgatory.wait(Watches::up_to(&watches), SECOND, {
        let mut first = true;
        move || if std::mem::take(&mut first) { None::<()> } else { panic!("no value") }
    });
    assert_eq!(purgatory.complete_up_to(&1, 2), 1);
    assert_eq!(panics.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    assert_eq!(purgatory.stats().panics, 1);
}

/// A rise that looked at each watch would check 16 000 times.
#[test]
fn a_rise_checks_once_for_all_thresholds_it_meets() {
    let mut levels: Vec<_> = (1..=16_000).rev().map(|threshold| ("p0", threshold)).collect();
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
            assert_eq!(probe.checks(), again);
            assert_eq!(higher.checks(), 1);
        }
    }
}
