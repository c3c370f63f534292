//! Ending many at once or with the timer, why something was cancelled, and what a refusal is as an
//! error.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use crate::support::{
    DROPPED, MINUTE, MS, Op, Park, Probe, SECOND, SHUTDOWN, Waiting, assert_empty, by_hand_with,
    requested, waiting,
};
use purgatory::{
    BoxedOperation, EndResult, Outcome, ParkResult, Purgatory, RefusedReason, Timeout, Watches,
    when,
};
use timer_core::{BuildError, Timer};

#[test]
fn cancel_all_ends_all_and_leaves_the_purgatory_open() {
    let (_timer, purgatory) = waiting();
    let probes: Vec<_> = std::iter::repeat_with(Probe::new).take(300).collect();
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let keys: Vec<&'static str> = keys.into_iter().map(|key| &*key.leak()).collect();
    for (number, probe) in probes.iter().enumerate() {
        let two = [keys[number % 100], keys[(number * 7 + 1) % 100]];
        purgatory.park(probe.operation(), &two, Timeout::Never);
    }
    let levels = [("k1", 5)];
    let watermark = Probe::parked(&purgatory, Watches::up_to(&levels), Timeout::Never);

    let (again, parks) = (Probe::new(), purgatory.clone());
    let operation = again.operation();
    let parking = Probe::new();
    let park = move |_| _ = parks.try_complete_else_watch(operation, &["new"], Timeout::Never);
    purgatory.park(parking.operation().then(park), &["k0"], Timeout::Never);

    assert_eq!(purgatory.cancel_all("moved away"), 302);
    let moved = requested("moved away");
    assert!(probes.iter().all(|probe| probe.endings() == [moved.clone()]));
    assert_eq!((watermark.endings(), parking.endings()), (vec![moved.clone()], vec![moved]));
    // Parked by a callback.
    assert_eq!((purgatory.len(), purgatory.keys(), again.ended()), (1, 1, false));
    let stats = purgatory.stats();
    assert_eq!(
        (stats.cancelled, stats.cancelled_by_shutdown, stats.cancelled_by_drop),
        (302, 0, 0)
    );
    assert_eq!(purgatory.cancel_all("again"), 1);
    assert_eq!(purgatory.cancel_all("again"), 0);
}

/// One that is under check is left a note; so cancel_all does not count it, and it ends all the
/// same.
#[test]
fn ending_all_leaves_a_note_where_a_check_runs() {
    for complete in [false, true] {
        let (_timer, purgatory) = waiting();
        let (probe, inside) = (Probe::new(), purgatory.clone());
        let operation = probe.operation().on_check(move || {
            let ended =
                if complete { inside.complete_for_key(&"a") } else { inside.cancel_all("now") };
            assert_eq!(ended, 0);
        });
        purgatory.park(operation, &["a"], Timeout::Never);
        assert!(!probe.ended()); // was not parked yet
        purgatory.check_and_complete(&"a");
        let ended = if complete { Outcome::Completed } else { requested("now") };
        assert_eq!((probe.endings(), purgatory.len()), (vec![ended], 0));
    }
}

#[test]
fn complete_for_key_completes_without_a_check() {
    let (timer, purgatory) = waiting();
    let level = [("a", 9), ("b", 9)];
    let watches = [Watches::keys(&["a"]), Watches::keys(&["b", "a"]), Watches::up_to(&level)];
    let probes = watches.map(|watches| Probe::parked(&purgatory, watches, SECOND));
    let other = Probe::parked(&purgatory, &["b"], SECOND);
    assert_eq!(purgatory.complete_for_key(&"a"), 3);
    for probe in probes {
        assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Completed], 1));
    }
    assert_eq!((other.ended(), purgatory.len(), purgatory.watched()), (false, 1, 1));
    assert_eq!(purgatory.complete_for_key(&"a"), 0);
    timer.advance(SECOND);
    assert_eq!(other.endings(), [Outcome::Expired]);
    assert_eq!(purgatory.stats().completed, 3);
}

#[test]
fn a_dropped_handle_is_told_apart_from_a_shutdown() {
    let (_timer, purgatory) = waiting();
    let (clone, dropped) = (purgatory.clone(), Probe::parked(&purgatory, &["a"], Timeout::Never));
    drop(purgatory);
    assert!(!dropped.ended());
    drop(clone);
    assert_eq!(dropped.endings(), [DROPPED]);

    let (_timer, second) = waiting();
    let shut_down = Probe::parked(&second, &["a"], Timeout::Never);
    second.shutdown(std::time::Duration::from_secs(60));
    assert_eq!(shut_down.endings(), [SHUTDOWN]);
    let stats = second.stats();
    assert_eq!((stats.cancelled_by_shutdown, stats.cancelled_by_drop), (1, 0));
}

/// As many programs do: `?` on whatever comes.
fn park_or_fail(purgatory: &Purgatory<u32>, told: Arc<Mutex<Vec<Outcome>>>) -> anyhow::Result<()> {
    let operation = when(|| false, move |outcome| told.lock().unwrap().push(outcome));
    purgatory.try_complete_else_watch(operation, &[1], Timeout::Never)?;
    Ok(())
}

#[test]
fn a_refusal_goes_into_anyhow_with_its_operation() {
    let (_timer, purgatory) = by_hand_with(|builder| builder.max_parked(1));
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    park_or_fail(&purgatory, told.clone()).unwrap();
    let error = park_or_fail(&purgatory, told.clone()).unwrap_err();
    assert_eq!(error.to_string(), "not parked: no more than 1 can be parked");
    let refused = error.downcast::<purgatory::Refused<BoxedOperation>>().unwrap();
    assert_eq!(refused.reason, RefusedReason::Full { limit: 1 });
    purgatory.cancel_all("room");
    purgatory.park(refused.into_inner(), &[1], Timeout::Never);
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn an_id_names_nothing_to_another_purgatory() {
    let (timer, mine) = waiting();
    let other: Waiting = Purgatory::builder("other").timer(&timer).build().unwrap();
    let (probe, innocent) = (Probe::new(), Probe::new());
    let id = mine.park(probe.operation(), &["k"], 5 * MS);
    other.park(innocent.operation(), &["k"], 5 * MS);
    assert_eq!((other.cancel(id, "mine"), other.complete(id)), (EndResult::Gone, EndResult::Gone));
    assert!(!other.reschedule(id, MS));
    assert_eq!((other.len(), mine.cancel(id, "mine")), (1, EndResult::Ended));
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_callback() {
    let (timer, purgatory) = waiting();
    let (first, second) = (Probe::new(), Probe::parked(&purgatory, &["b"], MINUTE));
    let slot = Arc::new(Mutex::new(None));
    let last = slot.clone();
    let operation = first.operation().then(move |_| drop(last.lock().unwrap().take()));
    purgatory.park(operation, &["a"], MS);
    *slot.lock().unwrap() = Some(purgatory); // the only handle
    timer.advance(MS);
    assert!(slot.lock().unwrap().is_none());
    assert_eq!((first.endings(), second.endings()), (vec![Outcome::Expired], vec![DROPPED]));
}

#[test]
fn a_timers_shutdown_ends_what_it_would_have_expired() {
    let (timer, purgatory) = waiting();
    let probe = Probe::parked(&purgatory, &["a"], MINUTE);
    timer.shutdown(MINUTE);
    assert_eq!(probe.endings(), [SHUTDOWN]);
    assert_empty(&purgatory);
    let build = Purgatory::<u32, Op>::builder("late").timer(&timer).build();
    assert!(matches!(build, Err(BuildError::Closed)));
}

#[test]
fn a_shutdown_ends_all_and_refuses_what_comes_later() {
    let (_timer, purgatory) = waiting();
    let probes: Vec<_> =
        (0..1000).map(|_| Probe::parked(&purgatory, &["a", "b"], Timeout::Never)).collect();
    purgatory.shutdown(MINUTE);
    assert!(probes.iter().all(|probe| probe.endings() == [SHUTDOWN]));
    assert_empty(&purgatory);
    let late = Probe::new();
    let refused = purgatory.try_complete_else_watch(late.operation(), &["a"], MINUTE);
    assert_eq!(refused.unwrap_err().reason, RefusedReason::Closed);
    late.make_ready();
    let ended = purgatory.try_complete_else_watch(late.operation(), &["a"], MINUTE);
    assert_eq!(ended.unwrap(), ParkResult::Ended(Outcome::Completed));
}
