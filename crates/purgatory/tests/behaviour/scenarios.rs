//! What a purgatory does, one thing at a time: the real wheel under a hand-turned clock.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use crate::support::{
    DROPPED, MINUTE, MS, Op, PANICKED, Park, Probe, SHUTDOWN, Waiting, assert_empty, by_hand,
    by_hand_with, requested, waiting,
};
use purgatory::{EndResult, Outcome, ParkResult, Purgatory, RefusedReason, Timeout, Watches};
use timer_core::{BuildError, Clock, Timer};

fn is_parked(park: &ParkResult) -> bool {
    matches!(park, ParkResult::Parked(_))
}

#[track_caller]
fn park(purgatory: &Waiting, probe: &Probe, keys: &[&'static str]) -> ParkResult {
    purgatory.try_complete_else_watch(probe.operation(), keys, MINUTE).unwrap()
}

// Kafka's own scenarios (DelayedOperationTest).

#[test]
fn two_operations_on_two_keys_end_each_by_its_own_event() {
    let (_timer, purgatory) = waiting();
    let (one, two) = (Probe::new(), Probe::new());
    assert_eq!(purgatory.check_and_complete(&"test1"), 0);
    assert!(is_parked(&park(&purgatory, &one, &["test1"])));
    assert_eq!(purgatory.check_and_complete(&"test1"), 0);
    assert!(is_parked(&park(&purgatory, &two, &["test2"])));
    assert_eq!(purgatory.check_and_complete(&"test2"), 0);
    one.make_ready();
    assert_eq!(purgatory.check_and_complete(&"test1"), 1);
    assert_eq!(purgatory.check_and_complete(&"test1"), 0);
    two.make_ready();
    assert_eq!(purgatory.check_and_complete(&"test2"), 1);
    assert_eq!(purgatory.check_and_complete(&"test2"), 0);
    assert_eq!(one.endings(), [Outcome::Completed]);
    assert_eq!(two.endings(), [Outcome::Completed]);
    assert_empty(&purgatory);
}

#[test]
fn a_20_ms_operation_expires_at_20_ms_and_a_200_s_one_does_not() {
    let (timer, purgatory) = waiting();
    let (short, long) = (Probe::new(), Probe::new());
    timer.advance(Duration::from_micros(300)); // so that the deadline has to round up
    purgatory.park(short.operation(), &["a"], 20 * MS);
    purgatory.park(long.operation(), &["b"], 200_000 * MS);
    timer.advance(20 * MS); // 20.3 ms: the deadline itself; its tick is 21
    assert!(!short.ended());
    timer.advance(Duration::from_micros(699));
    assert!(!short.ended());
    timer.advance(Duration::from_micros(1));
    assert_eq!(short.endings(), [Outcome::Expired]);
    assert!(!long.ended());
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 1, 1));
}

#[test]
fn counts_follow_at_once_on_one_two_and_three_keys() {
    let (_timer, purgatory) = waiting();
    let probes = [Probe::new(), Probe::new(), Probe::new()];
    park(&purgatory, &probes[0], &["test1"]);
    park(&purgatory, &probes[1], &["test1", "test2"]);
    park(&purgatory, &probes[2], &["test1", "test2", "test3"]);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (3, 6, 3));
    probes[1].make_ready();
    assert_eq!(purgatory.check_and_complete(&"test2"), 1);
    assert_eq!((purgatory.len(), purgatory.watched()), (2, 4));
    probes[2].make_ready();
    assert_eq!(purgatory.check_and_complete(&"test3"), 1);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 1, 1));
    probes[0].make_ready();
    assert_eq!(purgatory.check_and_complete(&"test1"), 1);
    assert_empty(&purgatory);
}

#[test]
fn cancel_for_key_ends_each_of_its_operations_and_no_other() {
    let (_timer, purgatory) = waiting();
    let probes = [Probe::new(), Probe::new(), Probe::new()];
    park(&purgatory, &probes[0], &["key1"]);
    park(&purgatory, &probes[1], &["key1", "key2"]);
    park(&purgatory, &probes[2], &["key2"]);
    assert_eq!(purgatory.cancel_for_key(&"key1", "leader moved"), 2);
    assert_eq!(probes[0].endings(), [requested("leader moved")]);
    assert_eq!(probes[1].endings(), [requested("leader moved")]);
    assert!(!probes[2].ended());
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 1, 1));
    assert_eq!(purgatory.cancel_for_key(&"unknown", "no reason"), 0);
}

#[test]
fn an_operation_whose_condition_holds_is_not_parked() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    probe.make_ready();
    assert_eq!(park(&purgatory, &probe, &["a"]), ParkResult::Ended(Outcome::Completed));
    assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Completed], 1));
    assert_eq!((purgatory.stats().ended_at_once, purgatory.stats().parked_total), (1, 0));
    assert_empty(&purgatory);
}

// Parking.

/// The event comes from another thread, between the first check and the watch; for one key, and
/// for so many that the home's lock is not kept meanwhile.
#[test]
fn an_event_between_check_and_watch_makes_the_parker_look_again() {
    const MANY: [&str; 20] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t",
    ];
    for keys in [&MANY[..1], &MANY[..3], &MANY[..]] {
        let (_timer, purgatory) = waiting();
        let probe = Probe::new();
        let (other, ready) = (purgatory.clone(), probe.clone());
        let mut first = true;
        let operation = probe.operation().on_check(move || {
            if std::mem::take(&mut first) {
                let (other, ready) = (other.clone(), ready.clone());
                // The check itself then sees the condition true or not; make it miss it.
                let raise = move || {
                    assert_eq!(other.check_and_complete(&"a"), 0);
                    drop(ready);
                };
                std::thread::spawn(raise).join().unwrap();
            }
        });
        let parked = purgatory.try_complete_else_watch(operation, keys, MINUTE).unwrap();
        assert!(is_parked(&parked));
        assert_eq!(probe.checks(), 2);
        assert_eq!(purgatory.watched(), keys.len());
    }
}

#[test]
fn repeated_keys_count_once() {
    let (_timer, purgatory) = waiting();
    for repeats in [2, 40] {
        let probe = Probe::new();
        let keys = ["a", "b"].repeat(repeats);
        park(&purgatory, &probe, &keys);
        assert_eq!((purgatory.watched(), purgatory.keys()), (2, 2));
        probe.make_ready();
        assert_eq!(purgatory.check_and_complete(&"a"), 1);
        assert_empty(&purgatory);
    }
}

#[test]
fn hundreds_of_keys_are_all_let_go_at_once() {
    let (_timer, purgatory): (_, Purgatory<u32, Op>) = by_hand();
    let keys: Vec<u32> = (0..500).collect();
    let probe = Probe::parked(&purgatory, &keys, MINUTE);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 500, 500));
    probe.make_ready();
    assert_eq!(purgatory.check_and_complete(&250), 1);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
}

#[test]
fn no_watch_is_refused_and_the_operation_comes_back() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    for none in [Watches::keys(&[]), Watches::up_to(&[])] {
        let refused = purgatory.try_complete_else_watch(probe.operation(), none, MINUTE);
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason, RefusedReason::NoKeys);
        drop(refused.into_inner());
    }
    assert_eq!((probe.checks(), probe.ended()), (0, false));
}

#[test]
fn a_zero_timeout_is_one_check_then_expired() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let parked =
        purgatory.try_complete_else_watch(probe.operation(), &["a"], Duration::ZERO).unwrap();
    assert_eq!(parked, ParkResult::Ended(Outcome::Expired));
    assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Expired], 1));
    assert_empty(&purgatory);
}

// Events.

#[test]
fn those_of_a_key_that_are_ready_end_in_the_order_they_were_parked() {
    let (_timer, purgatory) = waiting();
    let watches = [&["a"][..], &["b", "a"], &["c", "a"], &["d", "e", "a"], &["a", "f"]];
    let order = Arc::new(Mutex::new(Vec::new()));
    let probes: Vec<_> = (0..1000).map(|_| Probe::new()).collect();
    for (number, probe) in probes.iter().enumerate() {
        let order = order.clone();
        let operation = probe.operation().then(move |_| order.lock().unwrap().push(number));
        let keys = watches[number % watches.len()];
        purgatory.park(operation, keys, MINUTE);
    }
    probes.iter().step_by(3).for_each(Probe::make_ready);
    assert_eq!((purgatory.check_and_complete(&"a"), purgatory.len()), (334, 666));
    let first = std::mem::take(&mut *order.lock().unwrap());
    assert!(first.into_iter().eq((0..1000).step_by(3)));
    probes.iter().for_each(Probe::make_ready);
    assert_eq!(purgatory.check_and_complete(&"a"), 666);
    assert!(order.lock().unwrap().iter().copied().eq((0..1000).filter(|number| number % 3 > 0)));
    assert_empty(&purgatory);
}

// Expiry.

#[test]
fn expiries_run_in_order_of_tick_then_of_parking() {
    let (timer, purgatory) = waiting();
    let order = Arc::new(Mutex::new(Vec::new()));
    let delays = [70, 5, 5, 130, 64, 5, 70, 1, 4100, 70];
    let probes: Vec<_> = delays.iter().map(|_| Probe::new()).collect();
    for (number, (&delay, probe)) in delays.iter().zip(&probes).enumerate() {
        let order = order.clone();
        let operation = probe.operation().then(move |_| order.lock().unwrap().push(number));
        let key = ["a", "b", "c", "d"][number % 4];
        purgatory.park(operation, &[key], delay * MS);
        timer.advance(Duration::ZERO);
    }
    timer.advance(5000 * MS);
    assert_eq!(*order.lock().unwrap(), [7, 1, 2, 5, 4, 0, 6, 9, 3, 8]);
    assert_empty(&purgatory);
}

/// One is parked late, since its check took so long, and one is rescheduled to be due by now.
#[test]
fn what_is_overdue_expires_in_order_of_deadline_wherever_the_wheel_stands() {
    for catches_up in [false, true] {
        let (timer, purgatory) = waiting();
        let (first, late, other) = (Probe::new(), Probe::new(), Probe::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let noted = |name| {
            let order = order.clone();
            move |_| order.lock().unwrap().push(name)
        };
        let operation = first.operation().then(noted("rescheduled"));
        let id = purgatory.park(operation, &["a"], 100 * MS);
        let (clock, inside) = (timer.clone(), purgatory.clone());
        let takes_long = late.operation().then(noted("late")).on_check(move || {
            clock.advance(12 * MS);
            if catches_up {
                inside.park(other.operation(), &["b"], 100 * MS);
            }
        });
        purgatory.park(takes_long, &["a"], MS);
        assert!(purgatory.reschedule(id, Timeout::At(timer.clock().now_ns())));
        timer.advance(Duration::ZERO);
        assert_eq!(*order.lock().unwrap(), ["late", "rescheduled"], "{catches_up}");
    }
}

#[test]
fn one_timer_serves_several_purgatories() {
    let (timer, first) = waiting();
    let second: Purgatory<u32, Op> = Purgatory::builder("second").timer(&timer).build().unwrap();
    let (one, two) = (Probe::new(), Probe::new());
    first.park(one.operation(), &["a"], 10 * MS);
    second.park(two.operation(), &[1], 20 * MS);
    timer.advance(10 * MS);
    assert!(one.ended() && !two.ended());
    timer.advance(10 * MS);
    assert_eq!(two.endings(), [Outcome::Expired]);
}

// Cancelling one.

#[test]
fn one_is_cancelled_or_completed_by_its_id_once_whatever_its_check_says() {
    let (timer, purgatory) = waiting();
    let probes = [Probe::new(), Probe::new()];
    let ids = probes.each_ref().map(|one| purgatory.park(one.operation(), &["a", "b"], MINUTE));
    assert_eq!(purgatory.cancel(ids[0], "client left"), EndResult::Ended);
    assert_eq!(purgatory.complete(ids[1]), EndResult::Ended);
    for id in ids {
        assert_eq!(
            (purgatory.cancel(id, "again"), purgatory.complete(id)),
            (EndResult::Gone, EndResult::Gone)
        );
        assert!(!purgatory.reschedule(id, MS));
    }
    timer.advance(2 * MINUTE);
    assert_eq!(probes[0].endings(), [requested("client left")]);
    assert_eq!((probes[1].endings(), probes[1].checks()), (vec![Outcome::Completed], 1));
    assert_empty(&purgatory);
}

#[test]
fn a_timeout_can_be_made_longer_shorter_and_taken_away() {
    let (timer, purgatory) = waiting();
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a"], 100 * MS);
    timer.advance(90 * MS);
    assert!(purgatory.reschedule(id, MINUTE)); // longer
    timer.advance(100 * MS);
    assert!(purgatory.reschedule(id, Timeout::Never));
    timer.advance(10 * MINUTE);
    assert!(!probe.ended());
    assert!(purgatory.reschedule(id, 20 * MS)); // shorter
    timer.advance(19 * MS);
    assert!(!probe.ended());
    timer.advance(MS);
    assert_eq!(probe.endings(), [Outcome::Expired]);
    assert!(!purgatory.reschedule(id, MINUTE));
    assert_empty(&purgatory);
}

#[test]
fn a_noted_end_is_not_taken_back_by_a_longer_timeout() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let handle = Arc::new(Mutex::new(None));
    let (other, id) = (purgatory.clone(), handle.clone());
    let operation = probe.operation().on_check(move || {
        if let Some(id) = *id.lock().unwrap() {
            assert_eq!(other.cancel(id, "first"), EndResult::Noted);
            assert_eq!(other.complete(id), EndResult::Noted); // the first noted wins
            assert!(!other.reschedule(id, MINUTE));
        }
    });
    let id = purgatory.park(operation, &["a"], MINUTE);
    *handle.lock().unwrap() = Some(id);
    purgatory.check_and_complete(&"a");
    assert_eq!(probe.endings(), [requested("first")]);
}

#[test]
fn a_deadline_is_a_moment_of_the_timers_clock() {
    let (timer, purgatory) = waiting();
    timer.advance(10 * MS);
    let (past, ahead) = (Probe::new(), Probe::new());
    let at = |probe: &Probe, deadline_ns| {
        let timeout = Timeout::At(deadline_ns);
        purgatory.try_complete_else_watch(probe.operation(), &["a"], timeout).unwrap()
    };
    assert_eq!(at(&past, 10_000_000), ParkResult::Ended(Outcome::Expired));
    assert!(is_parked(&at(&ahead, 12_000_001)));
    timer.advance(2 * MS);
    assert!(!ahead.ended());
    timer.advance(MS);
    assert_eq!(ahead.endings(), [Outcome::Expired]);
}

#[test]
fn a_limit_refuses_what_would_have_to_wait_and_hands_it_back() {
    let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.max_parked(2));
    let probes: Vec<_> = (0..4).map(|_| Probe::new()).collect();
    let first = purgatory.park(probes[0].operation(), &["a"], MINUTE);
    park(&purgatory, &probes[1], &["a"]);
    let refuse = |probe: &Probe| {
        let refused = purgatory.try_complete_else_watch(probe.operation(), &["a"], MINUTE);
        assert_eq!(refused.unwrap_err().reason, RefusedReason::Full { limit: 2 });
    };
    refuse(&probes[2]);
    assert_eq!(probes[2].checks(), 1); // the first check ran
    probes[3].make_ready();
    assert_eq!(park(&purgatory, &probes[3], &["a"]), ParkResult::Ended(Outcome::Completed));

    purgatory.cancel(first, "makes room");
    park(&purgatory, &probes[2], &["a"]);
    refuse(&Probe::new());
    timer.advance(MINUTE); // both expire, and give their places back
    let (fifth, sixth) = (Probe::new(), Probe::new());
    park(&purgatory, &fifth, &["a"]);
    park(&purgatory, &sixth, &["a"]);
    refuse(&Probe::new());
    purgatory.cancel_for_key(&"a", "all");
    // The place is free by the time the callback runs.
    let (last, inside, within) = (Probe::new(), purgatory.clone(), Probe::new());
    let parked_inside = within.clone();
    let operation = last.operation().then(move |_| drop(park(&inside, &parked_inside, &["b"])));
    purgatory.park(operation, &["a"], MINUTE);
    park(&purgatory, &Probe::new(), &["c"]);
    last.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!(purgatory.len(), 2);
}

#[test]
fn cancelling_inside_the_check_is_noted_and_acted_on() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let handle = Arc::new(Mutex::new(None));
    let (other, id, answers) = (purgatory.clone(), handle.clone(), mpsc::channel());
    let answer = answers.0;
    let operation = probe.operation().on_check(move || {
        if let Some(id) = *id.lock().unwrap() {
            answer.send(other.cancel(id, "from within")).unwrap();
        }
    });
    let id = purgatory.park(operation, &["a"], MINUTE);
    *handle.lock().unwrap() = Some(id);
    assert_eq!(purgatory.check_and_complete(&"a"), 0);
    assert_eq!(answers.1.try_recv(), Ok(EndResult::Noted));
    assert_eq!(probe.endings(), [requested("from within")]);
    assert_empty(&purgatory);
}

// Callbacks that call back.

#[test]
fn a_callback_may_raise_events_park_and_cancel() {
    let (timer, purgatory) = waiting();
    let probes: Vec<_> = (0..4).map(|_| Probe::new()).collect();
    let (inside, rest) = (purgatory.clone(), probes.clone());
    let (counts, seen) = mpsc::channel();
    let operation = probes[0].operation().then(move |_| {
        rest[1].make_ready();
        counts.send(inside.check_and_complete(&"b")).unwrap();
        counts.send(usize::from(rest[1].ended())).unwrap();
        assert!(is_parked(&park(&inside, &rest[3], &["d"])));
        counts.send(inside.cancel_for_key(&"c", "by a callback")).unwrap();
        counts.send(usize::from(rest[2].ended())).unwrap();
    });
    purgatory.park(operation, &["a"], MINUTE);
    park(&purgatory, &probes[1], &["b"]);
    park(&purgatory, &probes[2], &["c"]);
    probes[0].make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    // Nested: the event returned 0, the cancel its count, and both callbacks waited.
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 0, 1, 0]);
    assert_eq!(probes[1].endings(), [Outcome::Completed]);
    assert_eq!(probes[2].endings(), [requested("by a callback")]);
    assert_eq!(purgatory.len(), 1);
    timer.advance(MINUTE);
    assert_eq!(probes[3].endings(), [Outcome::Expired]);
    assert_empty(&purgatory);
}

#[test]
fn an_expired_callback_may_call_back_and_park_itself_anew() {
    let (timer, purgatory) = waiting();
    let (first, second, other) = (Probe::new(), Probe::new(), Probe::new());
    let (inside, again, ready) = (purgatory.clone(), second.clone(), other.clone());
    let operation = first.operation().then(move |outcome| {
        assert_eq!(outcome, Outcome::Expired);
        ready.make_ready();
        inside.check_and_complete(&"b");
        inside.park(again.operation(), &["a"], 10 * MS);
    });
    purgatory.park(operation, &["a"], 10 * MS);
    park(&purgatory, &other, &["b"]);
    timer.advance(25 * MS);
    assert_eq!(other.endings(), [Outcome::Completed]);
    assert_eq!(second.endings(), [Outcome::Expired]);
    assert_empty(&purgatory);
}

#[test]
fn a_check_that_raises_its_own_event_is_checked_again_not_for_ever() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let (inside, mut left) = (purgatory.clone(), 3);
    let operation = probe.operation().on_check(move || {
        if left > 0 {
            left -= 1;
            inside.check_and_complete(&"a");
        }
    });
    purgatory.park(operation, &["a"], MINUTE);
    assert_eq!(probe.checks(), 4); // one at the park, one more for each event
    assert_eq!(purgatory.len(), 1);
}

// Panics.

#[test]
fn a_panicking_callback_is_contained_and_the_rest_of_the_walk_goes_on() {
    let (_timer, purgatory) = waiting();
    let probes = [Probe::new(), Probe::new(), Probe::new()];
    park(&purgatory, &probes[0], &["a"]);
    let operation = probes[1].operation().then(|_| panic!("in a callback"));
    purgatory.park(operation, &["a"], MINUTE);
    park(&purgatory, &probes[2], &["a"]);
    probes.iter().for_each(Probe::make_ready);
    assert_eq!(purgatory.check_and_complete(&"a"), 3);
    assert!(probes.iter().all(|probe| probe.endings() == [Outcome::Completed]));
    assert_eq!(purgatory.stats().panics, 1);
    assert_empty(&purgatory);
}

#[test]
fn a_panicking_check_ends_its_operation_as_cancelled() {
    let (_timer, purgatory) = waiting();
    let probes = [Probe::new(), Probe::new(), Probe::new()];
    park(&purgatory, &probes[0], &["a", "b"]);
    let mut first = true;
    let operation = probes[1].operation().on_check(move || {
        assert!(std::mem::take(&mut first), "in a check");
    });
    purgatory.park(operation, &["a", "b"], MINUTE);
    park(&purgatory, &probes[2], &["a"]);
    probes[2].make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!(probes[1].endings(), [PANICKED]);
    assert_eq!(probes[2].endings(), [Outcome::Completed]);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.stats().panics), (1, 2, 1));
}

#[test]
fn a_first_check_that_panics_ends_the_operation_unparked() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let operation = probe.operation().on_check(|| panic!("in the first check"));
    let parked = purgatory.try_complete_else_watch(operation, &["a"], MINUTE).unwrap();
    assert_eq!(parked, ParkResult::Ended(PANICKED));
    assert_eq!(probe.endings(), [PANICKED]);
    assert_empty(&purgatory);
}

#[test]
fn a_panicking_expiry_callback_leaves_the_reaper_alive() {
    let (timer, purgatory) = waiting();
    let (one, two) = (Probe::new(), Probe::new());
    let operation = one.operation().then(|_| panic!("in an expired callback"));
    purgatory.park(operation, &["a"], 10 * MS);
    purgatory.park(two.operation(), &["a"], 10 * MS);
    timer.advance(10 * MS);
    assert_eq!((one.endings(), two.endings()), (vec![Outcome::Expired], vec![Outcome::Expired]));
    assert_empty(&purgatory);
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

// Shutdown and drop.

#[test]
fn shutdown_ends_everything_parked_and_refuses_what_comes_later() {
    let (timer, purgatory) = waiting();
    let probes: Vec<_> = (0..1000).map(|_| Probe::new()).collect();
    for probe in &probes {
        park(&purgatory, probe, &["a", "b"]);
    }
    let never = Probe::parked(&purgatory, &["c"], Timeout::Never);
    purgatory.shutdown(Duration::from_secs(60));
    assert!(probes.iter().chain([&never]).all(|probe| probe.endings() == [SHUTDOWN]));
    assert_empty(&purgatory);

    let late = Probe::new();
    let refused = purgatory.try_complete_else_watch(late.operation(), &["a"], MINUTE).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Closed);
    drop(refused);
    assert!(!late.ended());
    late.make_ready();
    assert_eq!(park(&purgatory, &late, &["a"]), ParkResult::Ended(Outcome::Completed));
    purgatory.shutdown(Duration::from_secs(60));
    timer.advance(2 * MINUTE);
    assert!(probes.iter().all(|probe| probe.endings().len() == 1));
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_callback() {
    let (timer, purgatory) = waiting();
    let (first, second) = (Probe::new(), Probe::new());
    let slot = Arc::new(Mutex::new(None));
    let last = slot.clone();
    let operation = first.operation().then(move |_| drop(last.lock().unwrap().take()));
    purgatory.park(operation, &["a"], 10 * MS);
    park(&purgatory, &second, &["b"]);
    *slot.lock().unwrap() = Some(purgatory); // the only handle
    timer.advance(10 * MS);
    assert!(slot.lock().unwrap().is_none());
    assert_eq!((first.endings(), second.endings()), (vec![Outcome::Expired], vec![DROPPED]));
}

#[test]
fn shutting_the_timer_down_ends_what_it_would_have_expired() {
    let (timer, purgatory) = waiting();
    let probe = Probe::parked(&purgatory, &["a"], MINUTE);
    timer.shutdown(Duration::MAX);
    assert_eq!(probe.endings(), [SHUTDOWN]);
    assert_empty(&purgatory);
    let build = Purgatory::<u32, Op>::builder("late").timer(&timer).build();
    assert!(matches!(build, Err(BuildError::Closed)));
}
