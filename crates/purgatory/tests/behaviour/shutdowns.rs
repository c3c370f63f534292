//! Shutdowns. One that waits for operations under check is woken when the last of them ends,
//! whichever thread checks it.

use std::sync::mpsc::{self, Receiver};

use crate::support::*;

/// Shuts down without a limit on another thread, and returns once `watched` has ended. By then
/// every operation that is not under check is cancelled, and the others have a pending end.
fn begin_shutdown(purgatory: &Waiting, watched: &Probe) -> Receiver<usize> {
    let (done, left) = mpsc::channel();
    let closing = purgatory.clone();
    thread::spawn(move || done.send(closing.shutdown(Duration::MAX)));
    while !watched.ended() {
        thread::yield_now();
    }
    left
}

/// Asserts that a shutdown returns with nothing left; fails if it hangs.
#[track_caller]
fn assert_over(left: &Receiver<usize>) {
    let left = left.recv_timeout(MINUTE).expect("the shutdown hangs");
    assert_eq!(left, 0);
}

#[test]
fn shutdown_waits_for_the_check_of_an_event() {
    for satisfied in [false, true] {
        let (_timer, purgatory) = waiting();
        let watched = Probe::parked(&purgatory, &["b"], NEVER);
        let probe = Probe::new();
        let stop = Stop::new();
        let held = stop.clone();
        let operation = probe.operation().on_check(move || held.here());
        purgatory.park(operation, &["a"], NEVER);

        stop.arm();
        let signals = purgatory.clone();
        let event = thread::spawn(move || signals.check_and_complete(&"a"));
        let left = stop.meanwhile(|| {
            let left = begin_shutdown(&purgatory, &watched);
            assert!(left.try_recv().is_err(), "a check is still running");
            if satisfied {
                probe.make_ready();
            }
            left
        });
        assert_over(&left);
        event.join().unwrap();
        let outcome = if satisfied { Completed } else { SHUTDOWN };
        assert_eq!(probe.endings(), [outcome]);
        assert_empty(&purgatory);
    }
}

/// The holder ends the operation and calls it back; only then does the shutdown return.
#[test]
fn shutdown_waits_for_callbacks_of_checked_operations() {
    let (_timer, purgatory): (_, Purgatory<&str>) = by_hand();
    let watched = Probe::new();
    let operation = watched.operation();
    let watch = when(|| false, move |outcome| operation.on_complete(outcome));
    purgatory.park(watch, &["b"], NEVER);
    let stop = Stop::new();
    let (returns, shutdown) = mpsc::channel();
    let (tells, seen) = mpsc::channel();
    // A shutdown that does not wait for this callback returns meanwhile.
    let then = move |_| tells.send(shutdown.recv_timeout(20 * MS)).unwrap();
    purgatory.park(when(false_at(&stop), then), &["a"], NEVER);

    stop.arm();
    let signals = purgatory.clone();
    let event = thread::spawn(move || signals.check_and_complete(&"a"));
    let closes = purgatory.clone();
    let closing = stop.meanwhile(|| {
        let closing = thread::spawn(move || returns.send(closes.shutdown(Duration::MAX)).is_ok());
        while !watched.ended() {
            thread::yield_now();
        }
        closing
    });
    assert!(seen.recv().unwrap().is_err(), "it did not wait");
    event.join().unwrap();
    closing.join().unwrap();
    assert_empty(&purgatory);
}

/// An operation that was cancelled before the shutdown may still be in its callback.
#[test]
fn shutdown_ignores_callbacks_of_earlier_cancels() {
    let (_timer, purgatory): (_, Purgatory<&str>) = by_hand();
    let checking = Stop::new();
    let calling = Stop::armed();
    let in_callback = calling.clone();
    let operation = when(false_at(&checking), move |_| in_callback.here());
    purgatory.park(operation, &["a"], NEVER);
    checking.arm();
    let signals = purgatory.clone();
    let event = thread::spawn(move || signals.check_and_complete(&"a"));
    checking.meanwhile(|| assert_eq!(purgatory.cancel_all("over"), 0));
    calling.meanwhile(|| assert_eq!(purgatory.shutdown(MINUTE), 0));
    event.join().unwrap();
    assert_empty(&purgatory);
}

/// An event between the first check and the registration makes the parking thread check the
/// operation again, when it is already in the shard.
#[test]
fn shutdown_waits_for_the_check_of_a_parking_thread() {
    let (_timer, purgatory) = waiting();
    let watched = Probe::parked(&purgatory, &["b"], NEVER);
    let probe = Probe::new();
    let stop = Stop::new();
    let held = stop.clone();
    let signals = purgatory.clone();
    let mut first = true;
    let operation = probe.operation().on_check(move || {
        if std::mem::replace(&mut first, false) {
            signals.check_and_complete(&"a");
            held.arm();
        } else {
            held.here();
        }
    });

    let parks = purgatory.clone();
    let parking = thread::spawn(move || parks.try_park(operation, Watches::keys(&["a"]), NEVER));
    let left = stop.meanwhile(|| begin_shutdown(&purgatory, &watched));
    assert_over(&left);
    parking.join().unwrap();
    assert_eq!(probe.endings(), [SHUTDOWN]);
    assert_empty(&purgatory);
}

#[test]
fn shutdown_waits_for_a_last_check_on_the_executor() {
    let executor = Later::default();
    let (timer, purgatory): (_, Waiting) =
        by_hand_with(|builder| builder.executor(executor.clone()).check_at_expiry(|_| ()));
    let probe = Probe::parked(&purgatory, &["a"], MS);
    timer.advance(MS);
    assert_eq!(executor.len(), 1);

    let (done, left) = mpsc::channel();
    let closing = purgatory.clone();
    thread::spawn(move || done.send(closing.shutdown(Duration::MAX)));
    while purgatory
        .try_complete_else_watch(Probe::new().operation(), &["a"], NEVER)
        .is_ok()
    {
        thread::yield_now();
    }
    let over = loop {
        executor.run(); // callbacks of the operations parked above, too
        match left.try_recv() {
            Ok(over) => break over,
            Err(_) => thread::yield_now(),
        }
    };
    assert_eq!(over, 0);
    assert_eq!(probe.endings().len(), 1);
    assert_empty(&purgatory);
}

/// Waits that would end at once, or have no time to wait, are refused, too: a loop of waits ends,
/// whatever its condition says.
#[test]
fn each_form_refuses_all_once_its_timer_was_shut_down() {
    let timer = ManualTimer::new();
    let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
    let places = Permits::on(&timer, "places", 9).unwrap();
    let purgatory: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    let replies: Replies<u32, u32> = Replies::on(&timer, "replies").unwrap();
    let scope = ReplyScope::<&str>::on(&timer, "scopes").unwrap();
    assert_eq!(ends.advance(&1, 5), Ok(0));
    let is_refused = |ended| match ended {
        Err(WaitError::Closed) => true,
        Ok(()) | Err(WaitError::Expired) => false,
        Err(other) => panic!("{other}"),
    };
    let closed = || {
        let place = |timeout| places.acquire(1, timeout).wait_blocking().map(drop);
        let met = [
            ends.wait_for(&1, 5, MINUTE).wait_blocking().map(drop),
            purgatory.wait(&[1], MINUTE, || true).wait_blocking(),
            place(MINUTE),
            place(Duration::ZERO),
        ];
        let without_time = [
            replies.expect(1, Duration::ZERO).is_err(),
            scope.expect(Duration::ZERO).is_err(),
        ];
        let told = [
            ends.waits().is_closed(),
            places.waits().is_closed(),
            purgatory.is_closed(),
            replies.waits().is_closed(),
            scope.waits().is_closed(),
        ];
        (met.map(is_refused), without_time, told)
    };
    assert_eq!(closed(), ([false; 4], [false; 2], [false; 5]));
    timer.shutdown(Duration::ZERO);
    assert_eq!(closed(), ([true; 4], [true; 2], [true; 5]));
    let operation = when(|| true, |_| panic!("it was handed back"));
    assert_eq!(refused(&purgatory, operation, &[1]).0, WaitError::Closed);
    // Values go on.
    assert_eq!((ends.advance(&1, 6), ends.value(&1)), (Ok(0), Some(6)));
}

/// A shutdown waits for callbacks that the executor still has, and counts those that are late at
/// its limit.
fn waits_for_late_callbacks(later: &Later, shutdown: impl Fn(Duration) -> usize + Send + 'static) {
    assert_eq!(shutdown(Duration::ZERO), 3);
    let (begins, begun) = mpsc::channel();
    let closing = thread::spawn(move || {
        begins.send(()).unwrap();
        shutdown(Duration::MAX)
    });
    begun.recv().unwrap();
    for _ in 0..1000 {
        thread::yield_now();
        assert!(!closing.is_finished(), "a callback has not run");
    }
    later.run();
    assert_eq!(closing.join().unwrap(), 0);
}

/// Leases and keys are no waits, so they are not counted; the shutdown still waits for their ends.
#[test]
fn shutdown_of_permits_counts_the_waits_alone() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Permits::<u32>::keyed_builder("test").timer(&timer);
    let permits = builder.executor(later.clone()).build().unwrap();
    let lease = |key: u32| permits.lease_for(&key, 1, MINUTE, MINUTE).wait_blocking();
    let leases = [1, 2].map(|key| lease(key).unwrap());
    let task = Woken::task();
    let mut lost = Box::pin(leases[0].lost());
    assert!(task.poll(&mut lost).is_pending());
    let futures = [(); 3].map(|()| permits.acquire_for(&1, 1, MINUTE));
    let waits = permits.waits();
    waits_for_late_callbacks(&later, move |limit| waits.shutdown(limit));
    assert_eq!(task.times(), 1);
    drop((futures, lost, leases));
}

/// A purgatory counts them, and so do the waits of a form.
#[test]
fn shutdown_counts_the_callbacks_that_are_late() {
    let later = Later::default();
    let (_timer, purgatory): (_, Waiting) =
        by_hand_with(|builder| builder.executor(later.clone()).callbacks_on_executor());
    let (_timer, waits, values) = watermarks_with::<u32>(|builder| builder.executor(later.clone()));
    for _ in 0..3 {
        Probe::parked(&purgatory, &["a"], MINUTE);
        values.park(&1, 10, MINUTE, drop).unwrap();
    }
    waits_for_late_callbacks(&later, move |limit| purgatory.shutdown(limit));
    waits_for_late_callbacks(&later, move |limit| waits.shutdown(limit));
}

/// The nested shutdown counts the one callback that is under way, and not a shutdown.
#[test]
fn shutdown_inside_a_callback_counts_that_callback() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let (_timer, purgatory): (_, Purgatory<&str>) = by_hand();
    let (inside, lefts) = (purgatory.clone(), left.clone());
    let then = move |_| lefts.lock().unwrap().push(inside.shutdown(Duration::ZERO));
    purgatory.park(when(|| false, then), &["a"], NEVER);
    assert_eq!(purgatory.shutdown(MINUTE), 0);

    let (_timer, waits, values) = watermarks::<u32>();
    for _ in 0..2 {
        let (inside, lefts) = (waits.clone(), left.clone());
        let then = move |_| lefts.lock().unwrap().push(inside.shutdown(Duration::ZERO));
        values.park(&1, 1, NEVER, then).unwrap();
    }
    assert_eq!(waits.shutdown(MINUTE), 0);
    assert_eq!(*left.lock().unwrap(), [1, 2, 1]);
}

/// A cancel calls back where it is made; a shutdown leaves that to the executor, as an expiry does.
#[test]
fn callbacks_and_wakers_of_a_shutdown_run_on_executor() {
    let timer = system_timer(|builder| builder.name("end"));
    let waits: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    let values: Watermarks<u32> = Watermarks::on(&timer, "values").unwrap();
    let (send, told) = mpsc::channel();
    let tells = || {
        let send = send.clone();
        move || _ = send.send(thread::current().name().map(str::to_owned))
    };
    let park = || {
        let tell = tells();
        waits.park(when(|| false, move |_| tell()), &[1], NEVER)
    };
    assert_eq!(waits.cancel(park(), "over"), ReachResult::Reached(()));
    assert_eq!(
        told.try_recv().unwrap().as_deref(),
        thread::current().name()
    );

    park();
    let mut wait = values.wait_for(&1, 1, NEVER);
    assert!(poll_by(&mut wait, &waker(tells())).is_pending());
    assert_eq!(waits.shutdown(Duration::MAX), 0);
    assert_eq!(values.waits().shutdown(Duration::MAX), 0);
    let on_worker = Some("end-worker-0".to_owned());
    assert_eq!(
        told.try_iter().collect::<Vec<_>>(),
        [on_worker.clone(), on_worker]
    );
}
