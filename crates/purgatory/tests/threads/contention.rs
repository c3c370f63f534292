//! A few operations and many threads on a real timer. Nothing sleeps to be right.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use crate::support::{MINUTE, Park, Probe, Waiting};
use purgatory::{CancelReason, EndResult, Outcome, ParkResult, Purgatory, Watches};
use timer_core::{ManualTimer, SystemTimer};

/// KAFKA-6653: a completion is lost when the thread that makes the condition true finds the
/// operation under check by a thread that saw it false. 100 operations, 20 attempts each from 20
/// threads.
#[test]
fn kafka_6653_no_completion_is_lost_under_contention() {
    let purgatory: Waiting = Purgatory::new("6653").unwrap();
    for _ in 0..100 {
        let probe = Probe::new();
        let (send, ended) = mpsc::channel();
        let operation = probe.operation().on_check(std::thread::yield_now);
        let operation = operation.then(move |outcome| send.send(outcome).unwrap());
        purgatory.park(operation, &["key"], MINUTE);
        let attempts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    if attempts.fetch_add(1, SeqCst) == 19 {
                        probe.make_ready();
                    }
                    purgatory.check_and_complete(&"key");
                });
            }
        });
        // Here, or on the worker if it was asked to look again too often here.
        assert_eq!(ended.recv(), Ok(Outcome::Completed));
        assert_eq!(probe.endings(), [Outcome::Completed]);
    }
    assert!(purgatory.is_empty());
}

/// KAFKA-3994 and KAFKA-8334: checks take locks of the user's, in opposite orders, while two
/// threads raise the events of both. Kafka deadlocked, because a thread waited for an operation
/// under check by another; here no thread does.
#[test]
fn kafka_3994_8334_checks_that_lock_do_not_deadlock() {
    let purgatory: Waiting = Purgatory::new("8334").unwrap();
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    for round in 0..200 {
        let probes = [Probe::new(), Probe::new()];
        for (probe, order) in probes.iter().zip([[0, 1], [1, 0]]) {
            let locks = order.map(|lock| locks[lock].clone());
            let operation = probe.operation().on_check(move || {
                for lock in &locks {
                    drop(lock.lock().unwrap());
                }
            });
            purgatory.park(operation, &["one", "two"], MINUTE);
        }
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for (probe, key) in probes.iter().zip(["one", "two"]) {
                let (purgatory, start) = (&purgatory, &start);
                scope.spawn(move || {
                    start.wait();
                    probe.make_ready();
                    purgatory.check_and_complete(&key);
                });
            }
        });
        assert!(probes.iter().all(|probe| probe.endings() == [Outcome::Completed]), "{round}");
    }
}

/// The purgatory keeps what it needs of a timer whose own handles are gone.
#[test]
fn a_timer_dropped_before_its_purgatory_goes_on() {
    let timer = SystemTimer::new().unwrap();
    let purgatory: Waiting = Purgatory::builder("left").timer(&timer).build().unwrap();
    drop(timer);
    let (send, ended) = mpsc::channel();
    let operation = Probe::new().operation().then(move |outcome| send.send(outcome).unwrap());
    purgatory.park(operation, &["key"], Duration::from_millis(2));
    assert_eq!(ended.recv(), Ok(Outcome::Expired));
}

#[test]
fn a_purgatory_dropped_in_its_own_timers_callback() {
    let purgatory: Waiting = Purgatory::new("inside").unwrap();
    let (send, ended) = mpsc::channel();
    let other = Probe::parked(&purgatory, &["other"], MINUTE);
    let slot = Arc::new(Mutex::new(Some(purgatory.clone())));
    let operation = Probe::new().operation().then(move |outcome| {
        drop(slot.lock().unwrap().take());
        send.send(outcome).unwrap();
    });
    purgatory.park(operation, &["key"], Duration::from_millis(2));
    drop(purgatory);
    assert_eq!(ended.recv(), Ok(Outcome::Expired));
    while !other.ended() {
        std::thread::yield_now(); // told once the outer callback has returned
    }
    assert_eq!(other.endings(), [Outcome::Cancelled(CancelReason::Dropped)]);
}

/// A rise completes some by count, and has others checked: no callback of the first finds the
/// others held.
#[test]
fn callbacks_of_a_rise_run_while_nothing_is_held() {
    let waiting: Waiting = Purgatory::builder("rise").timer(&ManualTimer::new()).build().unwrap();
    let (met, counted) = (Probe::new(), Probe::new());
    let at = [("key", 5)];
    let id = waiting.park(met.operation(), Watches::up_to(&at).checked(), MINUTE);
    let inside = waiting.clone();
    let ends = counted.operation().then(move |_| assert_eq!(inside.complete(id), EndResult::Ended));
    waiting.park(ends, Watches::up_to(&at), MINUTE);
    assert_eq!(waiting.complete_up_to(&"key", 5), 1);
    assert_eq!((met.endings(), met.checks()), (vec![Outcome::Completed], 1));
    assert_eq!((waiting.stats().panics, waiting.len()), (0, 0));
}

/// An event comes by while an operation is parked, and the second look finds it ready: its place,
/// too, is free by the time its callback runs.
#[test]
fn a_place_comes_back_before_the_callback() {
    for keys in [&["a"][..], &["a", "b"]] {
        let purgatory: Waiting = Purgatory::builder("one").max_parked(1).build().unwrap();
        let (probe, next) = (Probe::new(), Probe::new());
        let (seen, raising) = (probe.clone(), purgatory.clone());
        let on_check = move || match seen.checks() {
            1 => {
                let raising = raising.clone();
                std::thread::spawn(move || raising.check_and_complete(&"a")).join().unwrap();
            }
            _ => seen.make_ready(),
        };
        let (inside, parked) = (purgatory.clone(), next.operation());
        let then = move |_| assert!(inside.try_complete_else_watch(parked, &["c"], MINUTE).is_ok());
        let operation = probe.operation().on_check(on_check).then(then);
        let park = |operation| purgatory.try_complete_else_watch(operation, keys, MINUTE);
        assert_eq!(park(operation).unwrap(), ParkResult::Ended(Outcome::Completed));
        assert_eq!((probe.checks(), purgatory.len(), purgatory.stats().panics), (2, 1, 0));
        assert!(park(Probe::new().operation()).is_err(), "a place was given back twice");
    }
}
