//! Locks of the broker's that checks and callbacks need, and threads that hold them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::channel,
    },
    thread,
};

use purgatory::Outcome::Completed;

use crate::{
    script::{Ours, OuterLock, Probe, Sign, here},
    support::Stop,
};

const KEY: u32 = 1;

/// A checker inside the check needs a lock that another thread holds while it signals the key. The
/// checker always waits for that thread.
fn event_raised_under_the_lock_that_a_check_needs(purgatory: &Ours, probe: &Probe) {
    let (group, signs) = OuterLock::new();
    let inside = Stop::new();
    let needed = group.clone();
    let stop = inside.clone();
    let operation = probe.acting(move |ready| {
        stop.here();
        drop(needed.lock());
        ready
    });
    purgatory.park(operation, &[KEY]);
    let held = group.lock();
    inside.arm();
    thread::scope(|scope| {
        let checker = scope.spawn(|| purgatory.event(KEY));
        inside.meanwhile(|| {
            probe.make_ready();
            purgatory.event(KEY);
        });
        assert_eq!(
            signs.recv(),
            Ok(Sign::Waits),
            "the checker waits for the lock held here"
        );
        drop(held);
        checker.join().unwrap(); // ThreadSanitizer does not see the end of a scope
    });
}

/// KAFKA-3994: one thread checked a delayed heartbeat, holding its lock and waiting for the
/// group's; another committed an offset, holding the group's lock and waiting for the heartbeat's.
/// Here an operation under check has no lock to wait for: the second thread leaves a request, on
/// which the checker acts, and goes on.
#[test]
fn kafka_3994_an_event_under_the_checks_lock_returns() {
    let (_, ends) = here(event_raised_under_the_lock_that_a_check_needs);
    assert_eq!(ends, [Completed]);
}

/// An unrelated thread holds the lock under which checks run, while the condition becomes true and
/// its key is signalled for the last time.
fn event_while_an_outsider_holds_the_lock(purgatory: &Ours, probe: &Probe) {
    let (group, signs) = OuterLock::new();
    purgatory.park_with(probe.operation(), &[KEY], Some(&group), None);
    let outsider = group.lock();
    probe.make_ready();
    thread::scope(|scope| {
        let signals = scope.spawn(|| {
            purgatory.event(KEY);
            group.sign(Sign::Returned);
        });
        signs.recv().unwrap(); // the event has returned, or its check waits for the lock
        drop(outsider);
        signals.join().unwrap();
    });
}

/// KAFKA-8334: offset commits now and then timed out. They shared the group's lock, and a thread
/// that did not get it left a flag to its holder; but that was no checker, and read no flag. Here a
/// request goes to the holder of the operation itself, and a check takes the locks that it needs.
#[test]
fn kafka_8334_a_lock_that_others_share_loses_nothing() {
    assert_eq!(here(event_while_an_outsider_holds_the_lock).1, [Completed]);
}

/// A thread that holds a lock parks an operation; meanwhile another signals its key, and its check
/// needs the lock. Returns what that thread did.
fn event_while_a_lock_holder_parks(purgatory: &Ours, probe: &Probe) -> Sign {
    let (state, signs) = OuterLock::new();
    let held = state.lock();
    let needed = state.clone();
    let parking = thread::current().id();
    let operation = probe.acting(move |ready| {
        let _held = (thread::current().id() != parking).then(|| needed.lock());
        ready
    });
    let other = purgatory.clone();
    let signing = state.clone();
    let ready = probe.clone();
    let (first, seen) = channel();
    let meanwhile = move || {
        ready.make_ready();
        thread::spawn(move || {
            other.event(KEY);
            signing.sign(Sign::Returned);
        });
        first.send(signs.recv().unwrap()).unwrap(); // it has returned, or waits for the lock
    };
    purgatory.park_with(operation, &[KEY], None, Some(Box::new(meanwhile)));
    drop(held);
    seen.recv().unwrap()
}

/// KAFKA-8334, second part: a parking thread held the transaction state's lock and waited for its
/// operation's, to check it once more; an event held that one and waited for the state's. Here the
/// parking thread holds its operation from the first check to the last: an event requests a
/// recheck, and the parking thread checks again.
#[test]
fn kafka_8334_a_lock_holder_that_parks_does_not_wait() {
    let ours = here(event_while_a_lock_holder_parks);
    assert_eq!(ours, (Sign::Returned, vec![Completed]));
}

/// Each operation's callback makes the next one ready and signals its key. Returns the maximum
/// number of callbacks under way at once.
fn chain(purgatory: &Ours, last: &Probe) -> usize {
    let depth = Arc::new(AtomicUsize::new(0));
    let deepest = Arc::new(AtomicUsize::new(0));
    let links: Vec<_> = (0..LINKS)
        .map(|_| Probe::default())
        .chain([last.clone()])
        .collect();
    for (key, (probe, next)) in (0..).zip(links.iter().zip(&links[1..])) {
        let raises = purgatory.clone();
        let next = next.clone();
        let depth = depth.clone();
        let deepest = deepest.clone();
        let then = move || {
            deepest.fetch_max(depth.fetch_add(1, SeqCst) + 1, SeqCst);
            next.make_ready();
            raises.event(key + 1);
            depth.fetch_sub(1, SeqCst);
        };
        purgatory.park(probe.acting_and_then(|ready| ready, then), &[key]);
    }
    purgatory.park(last.operation(), &[LINKS]);
    links[0].make_ready();
    purgatory.event(0);
    deepest.load(SeqCst)
}

const LINKS: u32 = 100;

/// KAFKA-17509: a completed share fetch completed the next one from its callback, and so on, each
/// under the locks of all before it. Here a callback runs without a lock, and its signals take
/// effect after it has returned.
#[test]
fn kafka_17509_a_callback_that_signals_runs_alone() {
    assert_eq!(here(chain), (1, vec![Completed]));
}

/// A thread changes a partition under the partition's lock, and signals while it holds it; the
/// callback needs that lock. Returns whether the callback got it.
fn callback_needs_the_lock_of_its_caller(purgatory: &Ours, probe: &Probe) -> bool {
    let (partition, _signs) = OuterLock::new();
    let (send, had) = channel();
    let needed = partition.clone();
    let then = move || send.send(needed.try_lock().is_some()).unwrap();
    purgatory.park(probe.acting_and_then(|ready| ready, then), &[KEY]);
    let held = partition.lock();
    probe.make_ready();
    purgatory.event_under(held, KEY);
    had.try_recv().unwrap()
}

/// KAFKA-17509 again, and why Kafka has its action queue: an action that the purgatory runs needs a
/// lock which the thread already has.
#[test]
fn kafka_17509_a_callback_can_have_its_callers_lock() {
    assert_eq!(
        here(callback_needs_the_lock_of_its_caller),
        (true, vec![Completed])
    );
}
