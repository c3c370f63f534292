//! Keys are looked up by any borrowed form, as in a `HashMap`; and what an event does that is
//! raised inside a check or callback.
#![cfg(not(loom))]

use std::{
    borrow::Borrow,
    cell::{Cell, RefCell},
    hash::{Hash, Hasher},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use crate::support::{Op, Park, Probe, by_hand, waiting};
use purgatory::{
    LocalPurgatory, Monitor, Outcome, ParkResult, Purgatory, Replies, Timeout, Watches, when,
};

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
fn strings_and_vectors_are_looked_up_by_what_they_borrow() {
    let texts: Purgatory<String, Op> = Purgatory::new("texts").unwrap();
    let bytes: Purgatory<Vec<u8>, Op> = Purgatory::new("bytes").unwrap();
    let never = || Probe::new().operation();
    for _ in 0..2 {
        texts.park(never(), &["a".to_owned()], Timeout::Never);
        bytes.park(never(), &[vec![1, 2]], Timeout::Never);
    }
    assert_eq!((texts.waiters("a"), texts.waiters("b"), texts.waiters(&"a".to_owned())), (2, 0, 2));
    assert_eq!((bytes.waiters(&[1, 2][..]), bytes.waiters([1, 2].as_slice())), (2, 2));
    assert_eq!((texts.check_and_complete("a"), texts.complete_up_to("a", 5)), (0, 0));
    assert_eq!((texts.stats().checks, texts.stats().events), (4, 2));
    assert_eq!((texts.cancel_for_key("a", "gone"), bytes.complete_for_key(&[1, 2][..])), (2, 2));

    texts.park(never(), &["c".to_owned()], Timeout::Never);
    assert_eq!(texts.check_and_complete_all(["c", "d"]), 0);
    assert_eq!(texts.stats().events, 4);

    let monitor: Monitor<String, u32> = Monitor::new("monitor", 0).unwrap();
    let mut seen = monitor.wait(&["a".to_owned()], Timeout::Never, |&mut n| (n > 0).then_some(n));
    monitor.update_key("a", |n| *n += 1);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(Pin::new(&mut seen).poll(&mut context), Poll::Ready(Ok(1)));
    let replies: Replies<String, u32> = Replies::new("replies").unwrap();
    let reply = replies.expect("a".to_owned(), Timeout::Never).unwrap();
    assert_eq!((replies.deliver("b", 1), replies.deliver("a", 2)), (Err(1), Ok(())));
    assert_eq!(reply.wait_blocking(), Ok(2));

    let local: LocalPurgatory<String> = LocalPurgatory::new();
    let park = |key: &str| {
        let watermark = [(key.to_owned(), 5)];
        let watches = Watches::up_to(&watermark);
        local.park(when(|| false, drop), watches, Timeout::Never);
    };
    ["a", "b", "c"].into_iter().for_each(park);
    assert_eq!((local.waiters("a"), local.complete_up_to("a", 5)), (1, 1));
    assert_eq!((local.cancel_for_key("b", "gone"), local.complete_for_key("c")), (1, 1));
    assert_eq!((local.check_and_complete("a"), local.len()), (0, 0));
}

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

#[test]
fn the_same_on_one_thread() {
    for keys in [&["a"][..], &["b", "a"]] {
        for second in [true, false] {
            let waits = LocalPurgatory::<&str>::new();
            let (checks, told) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
            let (counted, endings, inside) = (checks.clone(), told.clone(), waits.clone());
            let check = move || {
                counted.set(counted.get() + 1);
                if counted.get() == 1 {
                    assert_eq!(inside.check_and_complete("a"), 0);
                }
                second && counted.get() == 2
            };
            let operation = when(check, move |outcome| endings.borrow_mut().push(outcome));
            let park =
                waits.try_complete_else_watch(operation.into(), keys, Timeout::Never).unwrap();
            assert_eq!(checks.get(), 2);
            if second {
                assert_eq!(park, ParkResult::Ended(Outcome::Completed));
                assert_eq!(told.take(), [Outcome::Completed]);
            } else {
                assert!(matches!(park, ParkResult::Parked(_)) && told.take().is_empty());
            }
            let stats = waits.stats();
            assert_eq!((stats.events, stats.checks, stats.parked), (1, 2, u64::from(!second)));
            waits.cancel_all("the closure holds a handle");
        }
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
