//! Checks without an event, each so long.
#![cfg(not(loom))]

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use crate::support::{
    Later, MS, Op, PANICKED, Park, Probe, SHUTDOWN, Waiting, assert_empty, by_hand_with, requested,
};
use purgatory::{
    Builder, EndResult, Monitor, OperationId, Outcome, Parked, Timeout, WaitError, Watches,
};
use timer_core::{ManualTimer, Timer};

/// An operation is checked after so long, and again.
const EVERY: Duration = Duration::from_millis(10);
const EXPIRED: [Outcome; 1] = [Outcome::Expired];
const COMPLETED: [Outcome; 1] = [Outcome::Completed];

fn rechecking() -> (ManualTimer, Waiting) {
    by_hand_with(|builder| builder.recheck_every(EVERY))
}

/// With an executor that is late.
fn rechecking_later() -> (ManualTimer, Waiting, Later) {
    let later = Later::default();
    let on_it = later.clone();
    let (timer, purgatory) =
        by_hand_with(|builder| builder.recheck_every(EVERY).executor(on_it.clone()));
    (timer, purgatory, later)
}

/// An operation that has another thread do this as its first recheck runs, and is true then if it
/// is `ready`.
fn at_recheck(probe: &Probe, ready: bool, mut act: impl FnMut() + Send + 'static) -> Op {
    let seen = probe.clone();
    probe.operation().on_check(move || {
        if seen.checks() != 2 {
            return; // the check at park, and later ones
        }
        if ready {
            seen.make_ready();
        }
        let act = &mut act;
        thread::scope(|scope| scope.spawn(act).join().unwrap());
    })
}

#[test]
fn a_forgotten_event_costs_one_interval() {
    let missed: Arc<Mutex<Vec<Parked<&str>>>> = Arc::default();
    let told = missed.clone();
    let hooked = |builder: Builder<&'static str, Op>| {
        let builder = builder.recheck_every(EVERY);
        builder.check_at_expiry(move |parked| told.lock().unwrap().push(parked.clone()))
    };
    let (timer, purgatory) = by_hand_with(hooked);
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a", "b"], 30 * EVERY);
    probe.make_ready();
    timer.advance(EVERY - MS);
    assert!(!probe.ended());
    timer.advance(MS);
    assert_eq!((probe.endings(), probe.checks()), (COMPLETED.into(), 2));
    assert_eq!(purgatory.stats().missed_events, 1);
    let missed = missed.lock().unwrap().pop().unwrap();
    assert_eq!((missed.id, missed.keys, missed.age), (id, vec!["a", "b"], EVERY));
    assert_eq!(missed.expires_in, Some(29 * EVERY));
    assert_empty(&purgatory);
}

#[test]
fn operations_that_end_before_are_not_rechecked() {
    let (timer, purgatory) = rechecking();
    let [by_event, expiring] = [Probe::new(), Probe::new()];
    purgatory.park(by_event.operation(), &["a"], 3 * EVERY);
    purgatory.park(expiring.operation(), &["b"], EVERY);
    timer.advance(EVERY - MS);
    by_event.make_ready();
    purgatory.check_and_complete(&"a");
    expiring.make_ready(); // there is no last check
    timer.advance(4 * EVERY);
    assert_eq!((by_event.endings(), by_event.checks()), (COMPLETED.into(), 2));
    assert_eq!((expiring.endings(), expiring.checks()), (EXPIRED.into(), 1));
    assert_eq!(purgatory.stats().missed_events, 0);
    assert_empty(&purgatory);
}

#[test]
fn each_interval_has_one_check_and_expiry_is_on_time() {
    for keys in [&["a"][..], &["b", "a"]] {
        let (timer, purgatory) = rechecking();
        let probe = Probe::parked(&purgatory, keys, 35 * MS);
        for (passed, checks) in [(9, 1), (1, 2), (9, 2), (1, 3), (10, 4), (4, 4)] {
            timer.advance(passed * MS);
            assert_eq!((probe.checks(), probe.ended()), (checks, false));
        }
        timer.advance(MS);
        assert_eq!((probe.endings(), probe.checks()), (EXPIRED.into(), 4));
        let stats = timer.stats();
        assert_eq!((stats.fired, stats.pending), (1, 0)); // a recheck does not count as fired
        assert_empty(&purgatory);
    }
}

#[test]
fn a_deadline_at_a_recheck_is_only_an_expiry() {
    let (timer, purgatory) = rechecking();
    let probe = Probe::parked(&purgatory, &["a"], 2 * EVERY);
    timer.advance(2 * EVERY);
    assert_eq!((probe.endings(), probe.checks()), (EXPIRED.into(), 2));
}

#[test]
fn a_wait_without_deadline_heals_too() {
    let (timer, purgatory) = rechecking();
    let probe = Probe::parked(&purgatory, &["a"], Timeout::Never);
    timer.advance(100 * EVERY);
    assert_eq!(probe.checks(), 101);
    let [parked] = &purgatory.snapshot(1).oldest[..] else { panic!("one waits") };
    assert_eq!(parked.expires_in, None);
    probe.make_ready();
    timer.advance(EVERY);
    assert_eq!(probe.endings(), COMPLETED);
}

#[test]
fn an_interval_of_zero_is_one_tick() {
    let (timer, purgatory) = by_hand_with(|builder| builder.recheck_every(Duration::ZERO));
    let probe: Probe = Probe::parked::<&str>(&purgatory, &["a"], 5 * MS);
    timer.advance(5 * MS);
    assert_eq!(probe.endings(), EXPIRED);
    assert_eq!(probe.checks(), 5);
}

#[test]
fn an_event_completes_what_waits_for_its_recheck() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::parked(&purgatory, &["a"], 5 * EVERY);
    timer.advance(EVERY);
    assert_eq!((later.len(), probe.checks()), (1, 1)); // handed over, not run
    probe.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!((later.run(), probe.checks()), (1, 2));
    assert_eq!((probe.endings(), purgatory.stats().missed_events), (COMPLETED.into(), 0));
    assert_empty(&purgatory);
}

#[test]
fn a_late_executor_is_given_each_operation_once() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a"], 50 * EVERY);
    timer.advance(10 * EVERY);
    assert_eq!((later.len(), purgatory.stats().callbacks_waiting), (1, 1));
    purgatory.reschedule(id, 50 * EVERY); // does not queue it again either
    timer.advance(10 * EVERY);
    assert_eq!(later.len(), 1);
    later.run();
    assert_eq!((probe.checks(), later.len()), (2, 0));
    timer.advance(EVERY);
    assert_eq!((later.run(), probe.checks()), (1, 3));
    timer.advance(39 * EVERY - MS);
    later.run();
    assert!(!probe.ended());
    timer.advance(MS);
    later.run();
    assert_eq!((probe.endings(), probe.checks()), (EXPIRED.into(), 4));
}

#[test]
fn a_queued_recheck_holds_no_expiry_up() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::parked(&purgatory, &["a"], 2 * EVERY);
    timer.advance(EVERY);
    probe.make_ready();
    timer.advance(EVERY); // its time is up before the executor came to it
    assert!(purgatory.is_empty());
    assert_eq!((later.run(), probe.checks(), probe.endings()), (2, 1, EXPIRED.into()));
}

#[test]
fn a_check_under_way_is_not_repeated() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::new();
    let (clock, executor) = (timer.clone(), later.clone());
    let act = move || {
        clock.advance(EVERY);
        assert_eq!(executor.run(), 1); // the next one, inside this one
    };
    purgatory.park(at_recheck(&probe, false, act), &["a"], 4 * EVERY);
    timer.advance(EVERY);
    assert_eq!((later.run(), probe.checks()), (1, 2));
    timer.advance(EVERY);
    assert_eq!((later.run(), probe.checks()), (1, 3));
}

#[test]
fn an_event_during_a_recheck_is_no_miss() {
    for ready in [true, false] {
        let (timer, purgatory) = rechecking();
        let probe = Probe::new();
        let raises = purgatory.clone();
        let act = move || assert_eq!(raises.check_and_complete(&"a"), 0);
        purgatory.park(at_recheck(&probe, ready, act), &["b", "a"], 3 * EVERY);
        timer.advance(EVERY);
        assert_eq!((probe.ended(), probe.checks()), (ready, if ready { 2 } else { 3 }));
        assert_eq!(purgatory.stats().missed_events, 0);
        timer.advance(2 * EVERY);
        assert_eq!(probe.endings(), if ready { COMPLETED } else { EXPIRED });
    }
}

/// A check that comes true beats what was asked meanwhile; else the operation ends as asked.
#[test]
fn an_end_during_a_recheck_is_left_to_it() {
    for ready in [true, false] {
        for (attempt, end) in
            [requested("late"), Outcome::Completed, requested("late"), SHUTDOWN, Outcome::Expired]
                .into_iter()
                .enumerate()
        {
            let (timer, purgatory) = rechecking();
            let probe = Probe::new();
            let (name, named) = mpsc::channel::<OperationId>();
            let (ends, clock) = (purgatory.clone(), timer.clone());
            let act = move || match attempt {
                0 => assert_eq!(ends.cancel(named.recv().unwrap(), "late"), EndResult::Noted),
                1 => assert_eq!(ends.complete(named.recv().unwrap()), EndResult::Noted),
                2 => assert_eq!(ends.cancel_for_key(&"a", "late"), 0),
                3 => _ = ends.shutdown(Duration::ZERO),
                _ => clock.advance(4 * EVERY), // its time is up
            };
            let operation = at_recheck(&probe, ready, act);
            name.send(purgatory.park(operation, &["a", "b"], 3 * EVERY)).unwrap();
            timer.advance(EVERY);
            assert_eq!(probe.endings(), [if ready { Outcome::Completed } else { end }]);
            assert_eq!(purgatory.stats().missed_events, u64::from(ready));
            assert_empty(&purgatory);
        }
    }
}

#[test]
fn a_new_deadline_during_a_recheck_holds() {
    for (timeout, left) in [(2 * EVERY, 2), (5 * EVERY, 5), (EVERY / 2, 0)] {
        let (timer, purgatory) = rechecking();
        let probe = Probe::new();
        let (name, named) = mpsc::channel::<OperationId>();
        let moves = purgatory.clone();
        let act = move || assert!(moves.reschedule(named.recv().unwrap(), timeout));
        name.send(purgatory.park(at_recheck(&probe, false, act), &["a"], 3 * EVERY)).unwrap();
        timer.advance(EVERY + timeout - MS);
        assert!(!probe.ended());
        timer.advance(MS);
        assert_eq!(probe.endings(), EXPIRED);
        assert_eq!(probe.checks(), 2 + usize::saturating_sub(left, 1));
    }
}

#[test]
fn a_new_deadline_begins_a_new_interval() {
    let (timer, purgatory) = rechecking();
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a"], 5 * MS);
    timer.advance(4 * MS);
    assert!(purgatory.reschedule(id, Timeout::Never));
    timer.advance(EVERY - MS);
    assert_eq!(probe.checks(), 1);
    timer.advance(MS);
    assert_eq!(probe.checks(), 2);
    assert!(purgatory.reschedule(id, 3 * MS));
    timer.advance(2 * MS);
    assert!(!probe.ended());
    timer.advance(MS);
    assert_eq!((probe.endings(), probe.checks()), (EXPIRED.into(), 2));
}

#[test]
fn a_recheck_that_panics_cancels() {
    let (timer, purgatory) = rechecking();
    let [panicking, next] = [Probe::new(), Probe::new()];
    purgatory.park(at_recheck(&panicking, true, || panic!("in a recheck")), &["a"], 3 * EVERY);
    purgatory.park(next.operation(), &["a"], 3 * EVERY);
    next.make_ready();
    timer.advance(EVERY);
    assert_eq!((panicking.endings(), next.endings()), (vec![PANICKED], COMPLETED.into()));
    let stats = purgatory.stats();
    assert_eq!((stats.panics, stats.missed_events), (1, 1));
}

#[test]
fn a_shutdown_leaves_queued_rechecks_nothing() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::parked(&purgatory, &["a"], 5 * EVERY);
    timer.advance(EVERY);
    probe.make_ready();
    purgatory.shutdown(Duration::ZERO);
    later.run();
    assert_eq!((probe.endings(), probe.checks()), (vec![SHUTDOWN], 1));
    timer.advance(5 * EVERY);
    assert_eq!((later.len(), timer.stats().pending), (0, 0));
}

#[test]
fn a_dropped_recheck_runs_where_it_was_dropped() {
    let (timer, purgatory, later) = rechecking_later();
    let probe = Probe::parked(&purgatory, &["a"], 5 * EVERY);
    timer.advance(EVERY);
    probe.make_ready();
    drop(later.take());
    assert_eq!((probe.endings(), probe.checks()), (COMPLETED.into(), 2));
}

#[test]
fn watermarks_counted_or_checked_are_rechecked() {
    let watermarks = [("a", 5), ("b", 7)];
    for checked in [true, false] {
        let (timer, purgatory) = rechecking();
        let watches = Watches::up_to(&watermarks);
        let watches = if checked { watches.checked() } else { watches };
        let probe = Probe::parked(&purgatory, watches, 3 * EVERY);
        purgatory.complete_up_to(&"a", 5);
        probe.make_ready();
        timer.advance(EVERY);
        assert_eq!((probe.endings(), purgatory.stats().missed_events), (COMPLETED.into(), 1));
        assert_empty(&purgatory);
    }
}

#[test]
fn the_next_event_is_not_made_up() {
    let (timer, purgatory) = by_hand_with(|builder| builder.recheck_every(EVERY));
    let event = purgatory.next_event(&["a"], 3 * EVERY);
    timer.advance(3 * EVERY);
    assert_eq!(event.wait_blocking(), Err(WaitError::Expired));
}

#[test]
fn a_monitor_heals_a_key_that_was_forgotten() {
    let (timer, purgatory) = by_hand_with(|builder| builder.recheck_every(EVERY));
    let monitor = Monitor::with(purgatory.clone(), 0);
    let three = |state: &mut u32| (*state >= 3).then_some(*state);
    let wait = monitor.wait(&["right"], 30 * EVERY, three);
    monitor.update_key(&"wrong", |state| *state = 3);
    timer.advance(EVERY);
    assert_eq!(wait.wait_blocking(), Ok(3));
    assert_eq!(purgatory.stats().missed_events, 1);
}

#[cfg(feature = "keyed")]
#[test]
fn watermarks_ask_their_values_again() {
    let (timer, purgatory) = by_hand_with(|builder| builder.recheck_every(EVERY));
    let watermarks = purgatory::Watermarks::from(purgatory.clone());
    let waits = watermarks.wait_for(&"a", 3, 30 * EVERY);
    let quorum = watermarks.wait_for_k(1, &[("a", 3), ("b", 3)], 30 * EVERY);
    timer.advance(2 * EVERY);
    assert_eq!(purgatory.stats().checks, 2 + 4);
    assert_eq!(watermarks.raise(&"a", 3), Ok(2));
    assert_eq!((waits.wait_blocking(), quorum.wait_blocking()), (Ok(3), Ok(vec![("a", 3)])));
    assert_eq!(purgatory.stats().missed_events, 0);
}
