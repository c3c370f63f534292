//! The promises of docs/RELIABILITY.md, each in a plain example. Operations, events and expected
//! outcomes are written out: a reference that computes them could repeat its author's mistake. The
//! page names these tests beside the promises.

use crate::support::*;

#[test]
fn an_operation_has_one_outcome_whatever_follows() {
    for first in 0..6 {
        let (timer, purgatory) = waiting();
        let probe = Probe::new();
        let id = purgatory.park(probe.operation(), &["a", "b"], SECOND);
        for way in first..first + 6 {
            match way % 6 {
                0 => {
                    probe.make_ready();
                    purgatory.check_and_complete(&"b");
                }
                1 => timer.advance(SECOND),
                2 => _ = purgatory.cancel(id, "one"),
                3 => _ = purgatory.complete(id),
                4 => _ = purgatory.cancel_for_key(&"a", "all"),
                _ => _ = purgatory.shutdown(MINUTE),
            }
        }
        let outcomes = [
            Completed,
            Expired,
            requested("one"),
            Completed,
            requested("all"),
            SHUTDOWN,
        ];
        assert_eq!(probe.endings(), [outcomes[first].clone()]);
        assert_empty(&purgatory);
    }
}

/// An event comes from another thread after the check and before the keys are watched: one key, and
/// more keys than fit into the entry.
#[test]
fn an_event_between_check_and_watch_is_not_lost() {
    let keys: Vec<u32> = (0..20).collect();
    for keys in [&keys[..1], &keys[..3], &keys[..]] {
        let (_timer, purgatory): (_, Purgatory<u32>) = by_hand();
        let probe = Probe::new();
        let raised = purgatory.clone();
        let seen = Probe::new();
        let mut first = true;
        let operation = probe.operation().on_check(move || {
            if std::mem::take(&mut first) {
                on_another_thread(|| raised.check_and_complete(&0));
            } else {
                seen.make_ready(); // a check that is repeated
            }
        });
        purgatory.park(operation, keys, MINUTE);
        assert_eq!((probe.checks(), purgatory.watched()), (2, keys.len()));
    }
}

/// Each event during a check, from the checking thread or another, leads to another check.
#[test]
fn an_event_during_a_check_is_not_lost() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let inside = purgatory.clone();
    let ready = probe.clone();
    let mut left = 4;
    let operation = probe.operation().on_check(move || {
        left -= 1;
        let event = || assert_eq!(inside.check_and_complete(&"a"), 0);
        match left {
            3 => {} // it is being parked
            2 => event(),
            1 => on_another_thread(event),
            _ => ready.make_ready(),
        }
    });
    purgatory.park(operation, &["a"], MINUTE);
    purgatory.check_and_complete(&"a");
    assert_eq!((probe.checks(), probe.endings()), (4, vec![Completed]));
}

#[test]
fn nothing_expires_early() {
    let (timer, purgatory) = waiting();
    timer.advance(Duration::from_micros(300)); // so that the deadline has to round up
    let short = Probe::parked(&purgatory, &["a"], 20 * MS);
    let at = Probe::parked(
        &purgatory,
        &["a"],
        Timeout::At(Moment::from_nanos(20_300_001)),
    );
    let long = [
        Timeout::After(Duration::MAX),
        Timeout::At(Moment::from_nanos(u64::MAX - 1)),
        Timeout::Never,
    ];
    let long = long.map(|timeout| Probe::parked(&purgatory, &["a"], timeout));
    timer.advance(Duration::from_micros(20_699)); // 20.999 ms: past both, but their tick is 21
    assert!(!short.ended() && !at.ended());
    timer.advance(Duration::from_micros(1));
    assert_eq!(short.endings(), [Expired]);
    assert_eq!(at.endings(), [Expired]);
    timer.advance(Duration::from_secs(100 * 365 * 24 * 3600)); // a hundred years
    assert!(long.iter().all(|probe| !probe.ended()));
    let at = Timeout::At(Moment::from_nanos(9));
    let past = purgatory.try_complete_else_watch(Probe::new().operation(), &["a"], at);
    assert_eq!(past.unwrap(), None);
}

#[test]
fn a_timeout_at_the_end_of_time_is_never_work() {
    let (timer, purgatory) = waiting();
    for timeout in [
        Timeout::After(Duration::MAX),
        Timeout::At(Moment::NEVER),
        Timeout::Never,
    ] {
        Probe::parked(&purgatory, &["a"], timeout);
        assert_eq!(timer.next_due_in(), None);
        assert!(!timer.advance_to_next());
    }
    // Nor does it expire on a clock at its end.
    let (timer, purgatory) = waiting();
    timer.advance(Duration::MAX);
    let never = Probe::parked(&purgatory, &["a"], Timeout::At(Moment::NEVER));
    let short = Probe::parked(&purgatory, &["a"], SECOND);
    timer.advance(Duration::MAX);
    assert!(!never.ended() && !short.ended());
    assert_eq!(purgatory.complete_for_key(&"a"), 2);
}

/// While one thread is in a check and another in a callback, events, cancels and the timer go on.
#[test]
fn no_thread_waits_for_a_check_or_a_callback() {
    let (timer, purgatory): (_, Purgatory<&'static str, BoxedOperation>) = by_hand();
    let checking = Stop::new();
    let calling = Stop::armed();
    let in_callback = calling.clone();
    let (tell, told) = mpsc::channel();
    let tells = tell.clone();
    let tells = move |outcome| tells.send(("checked", outcome)).unwrap();
    let checked = when(false_at(&checking), tells);
    let checked = purgatory.park(checked, &["a"], MINUTE);
    let calls = purgatory.park(when(|| false, move |_| in_callback.here()), &["b"], MINUTE);
    let other = when(
        || false,
        move |outcome| tell.send(("other", outcome)).unwrap(),
    );
    purgatory.park(other, &["c"], SECOND);
    checking.arm();
    let meanwhile = || {
        assert_eq!(purgatory.check_and_complete(&"a"), 0);
        let expected = ReachResult::UnderCheck;
        assert_eq!(purgatory.cancel(checked, "meanwhile"), expected);
        timer.advance(SECOND);
        assert_eq!(told.try_recv(), Ok(("other", Expired)));
    };
    thread::scope(|scope| {
        let checks = scope.spawn(|| purgatory.check_and_complete(&"a"));
        let calls = scope.spawn(|| purgatory.complete(calls));
        checking.meanwhile(|| calling.meanwhile(meanwhile));
        // ThreadSanitizer does not see the end of a scope.
        checks.join().unwrap();
        calls.join().unwrap();
    });
    assert_eq!(told.try_recv(), Ok(("checked", requested("meanwhile"))));
}

/// Its keys and its place in the wheel are free as soon as it has ended; its payload is dropped
/// with its callback.
#[test]
fn an_operation_that_has_ended_leaves_nothing() {
    let later = Later::default();
    let (timer, purgatory): (_, Purgatory<u32>) =
        by_hand_with(|builder| builder.executor(later.clone()));
    let payload = Arc::new(());
    let keys: Vec<u32> = (0..500).collect();
    for way in 0..4 {
        for keys in [&keys[..1], &keys[..]] {
            let held = payload.clone();
            let operation = when(|| false, move |_| drop(held));
            let id = purgatory.park(operation, keys, SECOND);
            assert_eq!(purgatory.watched(), keys.len());
            assert_eq!(Arc::strong_count(&payload), 2);
            match way {
                0 => _ = purgatory.complete(id),
                1 => _ = purgatory.cancel(id, "gone"),
                2 => _ = purgatory.cancel_for_key(&0, "gone"),
                _ => timer.advance(SECOND),
            }
            assert_empty(&purgatory);
            later.run();
            assert_eq!(Arc::strong_count(&payload), 1);
        }
    }
}

#[test]
fn a_full_purgatory_hands_operations_back() {
    let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.max_parked(2));
    assert_eq!(purgatory.max_parked(), Some(2));
    let full = WaitError::Full { limit: 2 };
    for way in 0..4 {
        let probe = Probe::parked(&purgatory, &["a"], MINUTE);
        let id = purgatory.park(Probe::new().operation(), &["a", "b"], MINUTE);
        let third = Probe::new();
        let reason = refused(&purgatory, third.operation(), &["a"]).0;
        assert_eq!(reason, full.clone());
        assert_eq!(third.checks(), 1);
        assert!(!third.ended());
        third.make_ready(); // an operation that need not wait needs no place
        let ended = purgatory.try_complete_else_watch(third.operation(), &["a"], MINUTE);
        assert_eq!(ended.unwrap(), None);
        probe.make_ready();
        assert_eq!(purgatory.check_and_complete(&"a"), 1);
        match way {
            0 => _ = purgatory.cancel(id, "gone"),
            1 => _ = purgatory.complete(id),
            2 => _ = purgatory.cancel_for_key(&"b", "gone"),
            _ => timer.advance(MINUTE),
        }
        assert!(purgatory.is_empty());
    }
    let reason = refused(&purgatory, Probe::new().operation(), &[]).0;
    assert_eq!(reason, WaitError::NoKeys);
}

/// A check and a callback do not return.
#[test]
fn shutdown_with_a_limit_reports_what_remains() {
    let purgatory: Purgatory<u32, BoxedOperation> = Purgatory::new("left").unwrap();
    let checking = Stop::new();
    let calling = Stop::armed();
    let in_callback = calling.clone();
    purgatory.park(when(false_at(&checking), drop), &[1], MINUTE);
    purgatory.park(when(|| false, move |_| in_callback.here()), &[2], MINUTE);
    checking.arm();
    let raising = purgatory.clone();
    let event = thread::spawn(move || raising.check_and_complete(&1));
    checking.meanwhile(|| {
        let left = purgatory.shutdown(Duration::ZERO);
        calling.meanwhile(|| {
            assert_eq!((left, purgatory.len()), (2, 1)); // a callback and a check
            let late = purgatory.try_complete_else_watch(when(|| false, drop), &[1], MINUTE);
            assert_eq!(late.unwrap_err().reason, WaitError::Closed);
        });
    });
    assert_eq!(purgatory.shutdown(MINUTE), 0);
    assert_eq!(event.join().unwrap(), 0);
    assert_eq!(purgatory.stats().cancelled_by_shutdown, 2);
}

#[test]
fn panics_are_contained_and_counted() {
    let (timer, purgatory) = waiting();
    let first = Probe::new();
    let operation = first.operation().on_check(|| panic!("in the first check"));
    let parked = purgatory.try_complete_else_watch(operation, &["a"], MINUTE);
    parked.unwrap();
    let later = Probe::new();
    let mut parked = false;
    let operation = later.operation().on_check(move || {
        assert!(!std::mem::replace(&mut parked, true), "in a later check");
    });
    purgatory.park(operation, &["a"], MINUTE);
    let completed = Probe::new();
    let operation = completed.operation().then(|_| panic!("in a callback"));
    purgatory.park(operation, &["a"], MINUTE);
    let next = Probe::parked(&purgatory, &["a"], MINUTE);
    completed.make_ready();
    next.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 2);
    let expired = Probe::new();
    let operation = expired
        .operation()
        .then(|_| panic!("in an expired callback"));
    purgatory.park(operation, &["a"], MINUTE);
    let last = Probe::parked(&purgatory, &["a"], MINUTE);
    timer.advance(MINUTE);
    let ends = [&first, &later, &completed, &next, &expired, &last].map(Probe::endings);
    let expected = [PANICKED, PANICKED, Completed, Completed, Expired, Expired];
    assert_eq!(ends.concat(), expected);
    assert_eq!(purgatory.stats().panics, 4);
    assert_empty(&purgatory);
}

/// Kafka puts an operation on its timer after the last-chance check, so an operation whose check
/// throws there is watched and never expires.
#[test]
fn a_last_chance_check_that_panics_leaves_no_watch() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let raises = purgatory.clone();
    let mut is_first = true;
    let operation = probe.operation().on_check(move || {
        assert!(mem::take(&mut is_first), "in the last-chance check");
        // An event comes from another thread, so that the operation is checked again once it is
        // watched.
        on_another_thread(|| raises.check_and_complete(&"a"));
    });
    let parked = purgatory.try_complete_else_watch(operation, &["a", "b"], MINUTE);
    parked.unwrap();
    assert_eq!((probe.checks(), probe.endings()), (2, vec![PANICKED]));
    assert_empty(&purgatory);
}

/// One operation is parked late, since its check took long; one is rescheduled and due by now.
#[test]
fn a_clock_jump_expires_in_order_of_deadlines() {
    let (timer, purgatory) = waiting();
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = |name: u32| {
        let order = order.clone();
        Probe::new()
            .operation()
            .then(move |_| order.lock().unwrap().push(name))
    };
    for (name, after_ms) in [
        (70, 70),
        (5, 5),
        (6, 5),
        (4100, 4100),
        (64, 64),
        (1, 1),
        (71, 70),
    ] {
        purgatory.park(noted(name), &["a", "b"], after_ms * MS);
    }
    let id = purgatory.park(noted(3), &["a"], MINUTE);
    let clock = timer.clone();
    let slow = noted(2).on_check(move || clock.pass(5000 * MS));
    purgatory.park(slow, &["c"], 2 * MS);
    assert!(purgatory.reschedule(id, Timeout::At(Moment::from_nanos(3_000_000))));
    timer.advance(Duration::ZERO);
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 5, 6, 64, 70, 71, 4100]);
    assert_empty(&purgatory);
}
