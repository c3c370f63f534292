//! Callbacks that raise events and take locks; and operations that are given up without one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
    mpsc::channel,
};

use purgatory::{CancelReason, Outcome};

use crate::{
    naive::{Busy, Naive},
    script::{AnyPurgatory, Ours, OuterLock, Probe, ends},
};

/// Each operation's callback makes the next one ready and raises its event. Returns how many
/// callbacks were under way at once.
fn chain(purgatory: &impl AnyPurgatory, probes: &[Probe]) -> usize {
    let (depth, deepest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for (key, (probe, next)) in (0..).zip(probes.iter().zip(&probes[1..])) {
        let (raises, next) = (purgatory.clone(), next.clone());
        let (depth, deepest) = (depth.clone(), deepest.clone());
        let operation = probe.operation().then(move || {
            deepest.fetch_max(depth.fetch_add(1, SeqCst) + 1, SeqCst);
            next.make_ready();
            raises.event(key + 1);
            depth.fetch_sub(1, SeqCst);
        });
        purgatory.park(operation, &[key]);
    }
    let last = probes.len() - 1;
    purgatory.park(probes[last].operation(), &[last as u32]);
    probes[0].make_ready();
    purgatory.event(0);
    deepest.load(SeqCst)
}

const LINKS: usize = 100;

/// KAFKA-17509: a share fetch that completed completed the next from its callback, and so on, each
/// under the locks of all before it. Here a callback runs with nothing locked, and what it raises
/// waits until it has returned.
#[test]
fn kafka_17509_a_callback_that_raises_runs_alone() {
    let probes: Vec<_> = (0..=LINKS).map(|_| Probe::new()).collect();
    assert_eq!(chain(&Naive::new(Busy::Waits), &probes), LINKS, "each inside the one before");

    let (ours, probes) = (Ours::new(), probes.iter().map(|_| Probe::new()).collect::<Vec<_>>());
    let (purgatory, seen) = (ours.clone(), probes.clone());
    assert_eq!(ends(move || chain(&purgatory, &seen)), 1);
    assert!(probes.iter().all(|probe| probe.endings() == [Outcome::Completed]));
    ours.assert_empty();
}

/// A thread changes a partition under the partition's lock, and raises the event while it has it;
/// the callback needs that lock. Returns whether it could have it.
fn callback_that_needs_the_lock_of_its_caller(
    purgatory: &impl AnyPurgatory,
    probe: &Probe,
) -> bool {
    let partition = OuterLock::new(channel().0);
    let (needed, (send, had)) = (partition.clone(), channel());
    let operation = probe.operation().then(move || {
        send.send(needed.try_lock().is_some()).unwrap();
    });
    purgatory.park(operation, &[1]);
    let held = partition.lock();
    probe.make_ready();
    purgatory.event_from_under_a_lock(1);
    drop(held);
    purgatory.lock_released();
    had.try_recv().unwrap()
}

/// KAFKA-17509 again, and why Kafka has its action queue: an action that the purgatory runs needs a
/// lock which the thread already has. Here such a thread defers the event until it has let go.
#[test]
fn kafka_17509_a_callback_can_have_its_callers_lock() {
    let naive = Naive::new(Busy::Waits);
    let kafka = callback_that_needs_the_lock_of_its_caller(&naive, &Probe::new());
    assert!(!kafka, "the thread waits for itself");

    let (ours, probe) = (Ours::new(), Probe::new());
    assert!(callback_that_needs_the_lock_of_its_caller(&ours, &probe));
    assert_eq!(probe.endings(), [Outcome::Completed]);
    ours.assert_empty();
}

/// Two operations wait, one of them under a second key too; the first key is given up.
fn give_up_a_key(purgatory: &impl AnyPurgatory) -> [Probe; 2] {
    let probes = [Probe::new(), Probe::new()];
    purgatory.park(probes[0].operation(), &[1]);
    purgatory.park(probes[1].operation(), &[1, 2]);
    assert_eq!(purgatory.cancel(1), 2);
    purgatory.expire();
    probes
}

/// Kafka's `cancelForKey` stops the timers of what it returns and completes nothing, so that a
/// request is answered by its caller or by nobody. Here each operation is told that it was given
/// up.
#[test]
fn what_is_given_up_for_a_key_is_told_so() {
    let naive = Naive::new(Busy::Waits);
    assert!(give_up_a_key(&naive).iter().all(|probe| probe.endings().is_empty()), "never told");
    assert_eq!(naive.watched(), 1, "still in the list of its other key");

    let ours = Ours::new();
    let given_up = [Outcome::Cancelled(CancelReason::Requested("given up".into()))];
    assert!(give_up_a_key(&ours).iter().all(|probe| probe.endings() == given_up));
    ours.assert_empty();
}
