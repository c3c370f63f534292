//! An event for one: `check_and_complete_one`, and a monitor's `update_one`.
#![cfg(not(loom))]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::support::{Park, Probe, SECOND, Waiting, waiting};
use purgatory::{
    CancelReason, EndResult, Monitor, OperationId, Outcome, Purgatory, Timeout, Watches,
};
use timer_core::ManualTimer;

const COMPLETED: Outcome = Outcome::Completed;

fn park(purgatory: &Waiting, keys: &[&'static str]) -> Probe {
    Probe::parked(purgatory, keys, Timeout::Never)
}

/// How often each was checked since it was parked, and whether it has ended.
fn seen(probes: &[Probe]) -> Vec<(usize, bool)> {
    probes.iter().map(|probe| (probe.checks() - 1, probe.ended())).collect()
}

#[test]
fn the_first_that_completes_is_the_last_checked() {
    let (_timer, purgatory) = waiting();
    assert!(!purgatory.check_and_complete_one(&"a"));
    let probes = [["a", "b"], ["a", "c"], ["b", "a"]].map(|keys| park(&purgatory, &keys));
    assert!(!purgatory.check_and_complete_one(&"a"));
    assert_eq!(seen(&probes), [(1, false); 3]);
    probes[1..].iter().for_each(Probe::make_ready);
    assert!(purgatory.check_and_complete_one(&"a"));
    assert_eq!(seen(&probes), [(2, false), (2, true), (1, false)]);
    assert!(purgatory.check_and_complete_one(&"a"));
    assert_eq!(seen(&probes), [(3, false), (2, true), (2, true)]);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (1, 2, 2));
}

/// It is cancelled, and the next has the change.
#[test]
fn one_whose_check_panics_does_not_use_the_event_up() {
    let (_timer, purgatory) = waiting();
    let (breaks, mut parked) = (Probe::new(), false);
    let operation = breaks.operation().on_check(move || {
        assert!(!parked, "a check");
        parked = true;
    });
    purgatory.park(operation, &["a"], Timeout::Never);
    let next = park(&purgatory, &["a"]);
    next.make_ready();
    assert!(purgatory.check_and_complete_one(&"a"));
    assert_eq!(breaks.endings(), [Outcome::Cancelled(CancelReason::Panicked)]);
    assert_eq!(next.endings(), [Outcome::Completed]);
}

/// One that is completed by somebody else while the event has it under check has not used the event
/// up.
#[test]
fn what_another_completes_meanwhile_uses_no_event() {
    let timer = ManualTimer::new();
    for by_watermark in [false, true] {
        let purgatory: Waiting = Purgatory::builder("one").timer(&timer).build().unwrap();
        let (first, id) = (Probe::new(), Arc::new(Mutex::new(None::<OperationId>)));
        let (ends, of) = (purgatory.clone(), id.clone());
        let operation = first.operation().on_check(move || {
            let Some(id) = *of.lock().unwrap() else { return }; // its first check
            thread::scope(|scope| {
                let ended = scope.spawn(|| match by_watermark {
                    false => assert_eq!(ends.complete(id), EndResult::Noted),
                    true => assert_eq!(ends.complete_up_to(&"w", 1), 0),
                });
                ended.join().unwrap(); // ThreadSanitizer sees this, not the scope's end
            });
        });
        let watermark = [("w", 1)];
        let watches = match by_watermark {
            false => Watches::keys(&["a"]),
            true => Watches::up_to(&watermark).with_keys(&["a"]),
        };
        let parked = purgatory.park(operation, watches, Timeout::Never);
        *id.lock().unwrap() = Some(parked);
        let second = park(&purgatory, &["a"]);
        second.make_ready();
        assert!(purgatory.check_and_complete_one(&"a"));
        assert_eq!((first.endings(), second.endings()), (vec![COMPLETED], vec![COMPLETED]));
    }
}

/// Inside a callback it is the outermost call's to complete one; and so is a change in a first
/// check.
#[test]
fn from_inside_it_waits_for_the_outermost_call() {
    let (_timer, purgatory) = waiting();
    let waiting = [park(&purgatory, &["a"]), park(&purgatory, &["a"])];
    waiting.iter().for_each(Probe::make_ready);
    let (raises, told) = (purgatory.clone(), waiting.clone());
    let outer = Probe::new();
    outer.make_ready();
    let raise = move |_| {
        assert!(!raises.check_and_complete_one(&"a"));
        assert!(!told[0].ended());
    };
    purgatory.try_complete_else_watch(outer.operation().then(raise), &["b"], SECOND).unwrap();
    assert_eq!(seen(&waiting), [(1, true), (0, false)]);

    let (raises, own) = (purgatory.clone(), Probe::new());
    let changed = own.clone();
    let in_check = own.operation().on_check(move || {
        changed.make_ready(); // seen by this check already: raised for the one that waits
        raises.check_and_complete_one(&"a");
    });
    purgatory.try_complete_else_watch(in_check, &["c"], SECOND).unwrap();
    assert_eq!((own.endings(), purgatory.len()), (vec![Outcome::Completed], 0));
}

#[test]
fn a_monitors_change_for_one_looks_no_further() {
    let queue = Monitor::new("queue", Vec::new()).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let take = || {
        let looks = looks.clone();
        queue.wait(&["jobs"], SECOND * 60, move |jobs: &mut Vec<u32>| {
            looks.fetch_add(1, SeqCst);
            jobs.pop()
        })
    };
    let (first, second, third) = (take(), take(), take());
    assert_eq!(queue.update_one(&"jobs", |jobs| jobs.push(1)), ());
    assert_eq!((first.wait_blocking(), looks.load(SeqCst), queue.purgatory().len()), (Ok(1), 4, 2));

    // A change that panics may have changed anything.
    let panics = AssertUnwindSafe(|| {
        queue.update_one(&"jobs", |jobs| {
            jobs.extend([2, 3]);
            panic!("a change");
        });
    });
    assert!(catch_unwind(panics).is_err());
    assert_eq!((second.wait_blocking(), third.wait_blocking()), (Ok(3), Ok(2)));
}
