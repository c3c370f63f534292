//! Ending many at once, why something was cancelled, and what a refusal is as an error.
#![cfg(not(loom))]

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
};

use crate::support::{
    DROPPED, MINUTE, Park, Probe, SECOND, SHUTDOWN, Waiting, by_hand_with, never, requested,
    waiting,
};
use purgatory::{
    BoxedOperation, CancelReason, EndResult, LocalPurgatory, Monitor, OperationId, Outcome,
    Purgatory, RefusedReason, Replies, Timeout, WaitError, Watches, when,
};

/// Nobody has to name the kind of operation.
#[test]
fn without_a_type_of_operation_it_takes_any() {
    let purgatory: Purgatory<&str> = Purgatory::new("any").unwrap();
    let boxed: &Purgatory<&str, BoxedOperation> = &purgatory;
    boxed.park(never(), &["a"], Timeout::Never);
    let wait = purgatory.wait(&["a"], MINUTE, || None::<()>);
    assert_eq!(purgatory.len(), 2);
    drop(wait);
    let local: LocalPurgatory<u32> = LocalPurgatory::new();
    local.park(when(|| false, drop), &[1], Timeout::Never);
    assert_eq!(local.len(), 1);
}

/// Parks under these keys an operation that tells its number when it ends.
fn park_numbered(
    purgatory: &Waiting,
    keys: &[&'static str],
    number: usize,
    told: &Arc<Mutex<Vec<(usize, Outcome)>>>,
) -> OperationId {
    let told = told.clone();
    let tell = move |outcome| told.lock().unwrap().push((number, outcome));
    purgatory.park(Probe::new().operation().then(tell), keys, Timeout::Never)
}

#[test]
fn complete_each_ends_many_in_their_order_and_leaves_nothing_behind() {
    let (_timer, purgatory) = waiting();
    let told = Arc::default();
    let lists: [&[&str]; 4] = [&["a", "b", "c"], &["b"], &["c", "a"], &["d", "b", "a", "e"]];
    let many: Vec<&str> = (0..100).map(|key| &*format!("k{key}").leak()).collect();
    let mut ids: Vec<_> = (0..200)
        .map(|number| park_numbered(&purgatory, lists[number % 4], number, &told))
        .collect();
    ids.push(park_numbered(&purgatory, &many, 200, &told));
    let stays = park_numbered(&purgatory, &["a", "b"], 201, &told);
    assert_eq!(purgatory.complete(ids[7]), EndResult::Ended);
    ids.push(ids[3]); // twice

    assert_eq!(purgatory.complete_each(&ids), 200);
    let expected: Vec<_> = [7].into_iter().chain((0..=200).filter(|&number| number != 7)).collect();
    let seen: Vec<usize> = told.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(seen, expected);
    assert!(told.lock().unwrap().iter().all(|(_, outcome)| *outcome == Outcome::Completed));
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 2, 2));
    assert_eq!((purgatory.waiters("a"), purgatory.waiters("b")), (1, 1));
    assert_eq!((purgatory.complete_each(&ids), purgatory.complete_each(&[])), (0, 0));
    assert_eq!(purgatory.complete_each(&[stays]), 1);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
}

#[test]
fn complete_each_leaves_a_note_where_a_check_is_under_way_and_passes_by_others_ids() {
    let (_timer, mine) = waiting();
    let (_other_timer, other) = waiting();
    let told = Arc::default();
    let foreign = park_numbered(&other, &["a"], 0, &told);
    let free = park_numbered(&mine, &["b"], 1, &told);
    let (probe, ids) = (Probe::new(), Arc::new(Mutex::new(Vec::new())));
    let (completes, named) = (mine.clone(), ids.clone());
    let operation = probe.operation().on_check(move || {
        let ids = named.lock().unwrap().clone();
        if !ids.is_empty() {
            assert_eq!(completes.complete_each(&ids), 1); // not the one under check
        }
    });
    let held = mine.park(operation, &["a"], Timeout::Never);
    *ids.lock().unwrap() = vec![foreign, held, free];
    mine.check_and_complete("a");
    assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Completed], 2)); // by the note
    assert_eq!(*told.lock().unwrap(), [(1, Outcome::Completed)]);
    assert_eq!((mine.len(), mine.watched(), other.len()), (0, 0, 1));
}

/// What has a purgatory inside lets it be looked at, and ended with a limit.
#[test]
fn monitors_and_replies_show_where_they_wait() {
    let monitor = Monitor::new("monitor", 0).unwrap();
    let replies: Replies<u32, ()> = Replies::new("replies").unwrap();
    let wait = monitor.wait(&["a"], Timeout::Never, |_: &mut i32| None::<()>);
    let reply = replies.expect(1, Timeout::Never).unwrap();
    assert_eq!(monitor.purgatory().snapshot(1).busiest[0].key, "a");
    assert_eq!(replies.purgatory().snapshot(1).oldest[0].keys, [1]);
    assert!(monitor.purgatory().shutdown_timeout(MINUTE).is_nothing());
    assert_eq!(wait.block(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    drop(reply);
    assert!(replies.purgatory().is_empty());
}

#[test]
fn cancel_all_ends_everything_and_leaves_the_purgatory_open() {
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
fn cancel_all_and_complete_for_key_leave_a_note_where_a_check_runs() {
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
fn complete_for_key_ends_what_waits_for_it_without_a_check() {
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
fn the_same_on_one_thread() {
    let waits = LocalPurgatory::<&str>::new();
    let endings = Rc::new(std::cell::RefCell::new(Vec::new()));
    let park = |key: &'static str| {
        let told = endings.clone();
        let wait = when(|| false, move |outcome| told.borrow_mut().push((key, outcome)));
        waits.park(wait, &[key], Timeout::Never);
    };
    ["a", "b", "c", "d"].into_iter().for_each(park);
    assert_eq!((waits.complete_for_key(&"b"), waits.cancel_all("moved")), (1, 3));
    park("e");
    let stats = waits.stats();
    drop(waits);
    let moved = |key| (key, requested("moved"));
    let expected = [("b", Outcome::Completed), moved("a"), moved("c"), moved("d"), ("e", DROPPED)];
    assert_eq!(*endings.borrow(), expected);
    assert_eq!((stats.completed, stats.cancelled), (1, 3));
}

#[test]
fn dropping_the_last_handle_is_told_apart_from_a_shutdown() {
    let (_timer, purgatory) = waiting();
    let (clone, dropped) = (purgatory.clone(), Probe::parked(&purgatory, &["a"], Timeout::Never));
    drop(purgatory);
    assert!(!dropped.ended());
    drop(clone);
    assert_eq!(dropped.endings(), [DROPPED]);

    let (_timer, second) = waiting();
    let shut_down = Probe::parked(&second, &["a"], Timeout::Never);
    second.shutdown();
    assert_eq!(shut_down.endings(), [SHUTDOWN]);
    let stats = second.stats();
    assert_eq!((stats.cancelled_by_shutdown, stats.cancelled_by_drop), (1, 0));
}

/// As many programs do: `?` on whatever comes.
fn park_or_fail(purgatory: &Purgatory<u32>, told: Arc<Mutex<Vec<Outcome>>>) -> anyhow::Result<()> {
    let operation = when(|| false, move |outcome| told.lock().unwrap().push(outcome));
    purgatory.try_complete_else_watch(operation.into(), &[1], Timeout::Never)?;
    Ok(())
}

#[test]
fn a_refusal_goes_into_anyhow_with_its_operation() {
    let (_timer, purgatory) = by_hand_with(|builder| builder.max_parked(1));
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    park_or_fail(&purgatory, told.clone()).unwrap();
    let error = park_or_fail(&purgatory, told.clone()).unwrap_err();
    assert_eq!(error.to_string(), "the operation was not parked: no more than 1 can be parked");
    let refused = error.downcast::<purgatory::Refused<BoxedOperation>>().unwrap();
    let (operation, reason) = refused.into_parts();
    assert_eq!(reason, RefusedReason::Full { limit: 1 });
    purgatory.cancel_all("room");
    purgatory.park(operation, &[1], Timeout::Never);
    assert_eq!(told.lock().unwrap().len(), 1);
}

/// What is not `Send` stays here; why it was refused does not.
#[test]
fn why_something_was_refused_goes_into_anyhow_alone() {
    fn park(waits: &LocalPurgatory<u32>) -> anyhow::Result<()> {
        let rc = Rc::new(());
        let operation = when(|| false, move |_| drop(rc));
        waits
            .try_complete_else_watch(operation.into(), &[], Timeout::Never)
            .map_err(RefusedReason::from)?;
        Ok(())
    }
    let error = park(&LocalPurgatory::new()).unwrap_err();
    assert_eq!(error.downcast::<RefusedReason>().unwrap(), RefusedReason::NoKeys);
}
