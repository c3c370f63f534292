//! Checks that need a lock of the broker's, and threads that hold it.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
};

use purgatory::Outcome;

use crate::{
    naive::{Busy, Naive},
    script::{AnyPurgatory, Ours, OuterLock, Probe, Sign, Stop, ends},
};

const KEY: u32 = 1;

fn outer_lock() -> (Arc<OuterLock>, Receiver<Sign>) {
    let (signs, seen) = channel();
    (OuterLock::new(signs), seen)
}

/// A checker is inside the check; then it needs the lock that another thread holds while it raises
/// the event. The checker always waits for that thread: returns whether that thread waits for the
/// checker.
fn event_raised_under_the_lock_that_a_check_needs(
    purgatory: &impl AnyPurgatory,
    probe: &Probe,
) -> bool {
    let ((group, signs), inside) = (outer_lock(), Stop::new());
    let (needed, stop) = (group.clone(), inside.clone());
    let operation = probe.acting(move |ready| {
        stop.here();
        drop(needed.lock());
        ready
    });
    purgatory.park(operation, &[KEY]);
    let held = group.lock();
    inside.arm();
    thread::scope(|scope| {
        scope.spawn(|| purgatory.event(KEY));
        inside.reached();
        probe.make_ready();
        purgatory.event(KEY);
        inside.release();
        assert_eq!(signs.recv(), Ok(Sign::Waits), "the checker waits for the lock held here");
        drop(held);
    });
    purgatory.would_wait() > 0
}

/// KAFKA-3994: one thread checked a delayed heartbeat, holding its lock and waiting for the
/// group's; another committed an offset, holding the group's lock and waiting for the heartbeat's.
/// Here an operation under check has no lock to wait for: the second thread leaves a note and goes
/// on.
#[test]
fn kafka_3994_an_event_under_the_checks_lock_returns() {
    let kafka = ends(|| {
        let naive = Naive::new(Busy::Waits);
        event_raised_under_the_lock_that_a_check_needs(&naive, &Probe::new())
    });
    assert!(kafka, "each thread waits for the other");

    let (ours, probe) = (Ours::new(), Probe::new());
    let (purgatory, seen) = (ours.clone(), probe.clone());
    let waits = ends(move || event_raised_under_the_lock_that_a_check_needs(&purgatory, &seen));
    assert!(!waits);
    assert_eq!(probe.endings(), [Outcome::Completed], "the checker acted on the note");
    ours.assert_empty();
}

/// The lock that checks run under is held by a thread that has nothing to do with the operation,
/// while its condition comes true and its event is raised, for the last time.
fn event_while_an_outsider_holds_the_lock(purgatory: &impl AnyPurgatory, probe: &Probe) {
    let (group, signs) = outer_lock();
    purgatory.park_under(&group, probe.operation(), &[KEY]);
    let outsider = group.lock();
    probe.make_ready();
    thread::scope(|scope| {
        scope.spawn(|| {
            purgatory.event(KEY);
            group.sign(Sign::Returned);
        });
        signs.recv().unwrap(); // the event has returned, or its check waits for the lock
        drop(outsider);
    });
}

/// KAFKA-8334: offset commits now and then timed out. They shared the group's lock, and who could
/// not have it left a flag to its holder; but that was no checker, and looked at no flag. Here only
/// who has the operation itself can be left a note, and a check takes the locks it needs by itself.
#[test]
fn kafka_8334_a_lock_that_others_share_loses_nothing() {
    let probe = Probe::new();
    let naive = Naive::new(Busy::LeavesAFlag);
    event_while_an_outsider_holds_the_lock(&naive, &probe);
    assert_eq!(probe.endings(), [], "ready, and nobody looks");
    naive.expire();
    assert_eq!(probe.endings(), [Outcome::Expired]);

    let (ours, probe) = (Ours::new(), Probe::new());
    let (purgatory, seen) = (ours.clone(), probe.clone());
    ends(move || event_while_an_outsider_holds_the_lock(&purgatory, &seen));
    assert_eq!(probe.endings(), [Outcome::Completed]);
    ours.assert_empty();
}

/// A thread that holds a lock parks an operation; meanwhile another raises its event, and its check
/// needs the lock. Returns what that thread did, and whether the parking one waits for it.
fn event_while_a_lock_holder_parks(purgatory: &impl AnyPurgatory, probe: &Probe) -> (Sign, bool) {
    let (state, signs) = outer_lock();
    let held = state.lock();
    let (needed, parking) = (state.clone(), thread::current().id());
    let operation = probe.acting(move |ready| {
        let _held = (thread::current().id() != parking).then(|| needed.lock());
        ready
    });
    let (other, signing, ready) = (purgatory.clone(), state.clone(), probe.clone());
    let (first, seen) = channel();
    purgatory.park_meanwhile(operation, &[KEY], move || {
        ready.make_ready();
        thread::spawn(move || {
            other.event(KEY);
            signing.sign(Sign::Returned);
        });
        first.send(signs.recv().unwrap()).unwrap(); // it has returned, or waits for the lock
    });
    let waits = purgatory.would_wait() > 0;
    drop(held);
    (seen.recv().unwrap(), waits)
}

/// KAFKA-8334, its second part: a parking thread held the transaction state's lock and waited for
/// its operation's, to check it once more; an event held that one and waited for the state's. Here
/// the parking thread has its operation from the first check to the last: an event passes by, and
/// is noted.
#[test]
fn kafka_8334_a_lock_holder_that_parks_does_not_wait() {
    let kafka = ends(|| {
        let naive = Naive::new(Busy::Waits);
        event_while_a_lock_holder_parks(&naive, &Probe::new())
    });
    assert_eq!(kafka, (Sign::Waits, true), "each thread waits for the other");

    let (ours, probe) = (Ours::new(), Probe::new());
    let (purgatory, seen) = (ours.clone(), probe.clone());
    let here = ends(move || event_while_a_lock_holder_parks(&purgatory, &seen));
    assert_eq!(here, (Sign::Returned, false));
    assert_eq!(probe.endings(), [Outcome::Completed], "the parking thread looked again");
    ours.assert_empty();
}
