//! Keys are looked up by any borrowed form, as in a `HashMap`; and what an event does that is
//! raised inside a check or callback.
#![cfg(not(loom))]

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::support::{Op, Park, Probe, by_hand, waiting};
use purgatory::{Outcome, ParkResult, Purgatory, Timeout};

/// A key whose clones are counted, looked up by its number.
#[derive(Debug)]
struct Counted {
    number: u32,
    clones: Arc<AtomicUsize>,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, SeqCst);
        Counted { number: self.number, clones: self.clones.clone() }
    }
}

impl Borrow<u32> for Counted {
    fn borrow(&self) -> &u32 {
        &self.number
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Counted {}

#[test]
fn only_an_event_inside_a_callback_for_which_somebody_waits_clones_a_key() {
    let clones = Arc::new(AtomicUsize::new(0));
    let key = |number| Counted { number, clones: clones.clone() };
    let (_timer, purgatory): (_, Purgatory<Counted, Op>) = by_hand();
    let (first, second) = (Probe::new(), Probe::new());
    let inside = purgatory.clone();
    let raise = move |_| {
        for number in [1, 2, 3] {
            assert_eq!(
                (inside.check_and_complete(&number), inside.complete_up_to(&number, 1)),
                (0, 0)
            );
        }
    };
    purgatory.park(first.operation().then(raise), &[key(0)], Timeout::Never);
    purgatory.park(second.operation(), &[key(2)], Timeout::Never);
    assert_eq!(clones.load(SeqCst), 2); // what is stored
    first.make_ready();
    second.make_ready();
    assert_eq!(purgatory.check_and_complete(&0), 1);
    assert_eq!((second.endings(), purgatory.len()), (vec![Outcome::Completed], 0));
    assert_eq!(clones.load(SeqCst), 4); // an event and a rise of 2
    assert_eq!(purgatory.stats().events, 7); // each once
}

/// Nobody waits for the key yet, so nothing is queued; the version tells.
#[test]
fn an_event_that_a_first_check_raises_has_it_checked_again() {
    for keys in [&["a"][..], &["b", "a"]] {
        let (_timer, purgatory) = waiting();
        let (probe, seen, inside) = (Probe::new(), Probe::new(), purgatory.clone());
        let checks = Arc::new(AtomicUsize::new(0));
        let counted = checks.clone();
        let ready = probe.clone();
        let ops = probe.operation().on_check(move || {
            if counted.fetch_add(1, SeqCst) == 0 {
                assert_eq!(inside.check_and_complete(&"a"), 0);
            } else {
                ready.make_ready();
            }
        });
        let ended = purgatory.try_complete_else_watch(ops, keys, Timeout::Never).unwrap();
        assert_eq!((ended, checks.load(SeqCst)), (ParkResult::Ended(Outcome::Completed), 2));
        assert_eq!((probe.endings(), seen.checks()), (vec![Outcome::Completed], 0));
        assert_eq!((purgatory.len(), purgatory.keys()), (0, 0));
    }
}

/// An event that is queued finds those who waited when it was raised.
#[test]
fn an_event_inside_a_callback_checks_what_waited_then() {
    let (_timer, purgatory) = waiting();
    let (first, waiting, later) = (Probe::new(), Probe::new(), Probe::new());
    let inside = purgatory.clone();
    let operation = later.operation();
    let raise = move |_| {
        assert_eq!(inside.check_and_complete(&"b"), 0);
        assert_eq!(inside.check_and_complete(&"c"), 0); // nobody waits for it
        inside.park(operation, &["c"], Timeout::Never);
    };
    purgatory.park(first.operation().then(raise), &["a"], Timeout::Never);
    purgatory.park(waiting.operation(), &["b"], Timeout::Never);
    first.make_ready();
    waiting.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!(waiting.endings(), [Outcome::Completed]);
    assert_eq!((later.checks(), purgatory.len()), (1, 1));
    assert_eq!(purgatory.stats().events, 3);
}
