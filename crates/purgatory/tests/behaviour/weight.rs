//! A bound on how heavy all that waits may be together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::support::{Later, MS, Park, SECOND, assert_empty, by_hand_with, never, poll};
use purgatory::{
    BoxedOperation, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Purgatory,
    RefusedReason, Replies, Timeout, WaitError,
};
use timer_core::ManualTimer;

/// Weighs what it is told to; the check comes true with the flag.
#[derive(Clone, Default)]
struct Heavy {
    weight: Arc<AtomicU64>,
    ready: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Heavy {
    fn of(weight: u64) -> Self {
        Heavy { weight: Arc::new(weight.into()), ..Heavy::default() }
    }
}

impl DelayedOperation for Heavy {
    fn try_complete(&mut self) -> bool {
        self.ready.load(SeqCst) > 0
    }

    fn on_complete(self, _: Outcome) {}

    fn weight(&self) -> u64 {
        self.asked.fetch_add(1, SeqCst);
        self.weight.load(SeqCst)
    }
}

type Waits<O = Heavy> = Purgatory<&'static str, O>;

const NEVER: Timeout = Timeout::Never;

fn bounded(max: u64) -> (ManualTimer, Waits) {
    by_hand_with(|builder| builder.max_weight(max))
}

#[track_caller]
fn refused(waits: &Waits, weight: u64) -> RefusedReason {
    let refused = waits.try_complete_else_watch(Heavy::of(weight), &["a", "b"], NEVER).unwrap_err();
    let reason = refused.reason;
    assert_eq!(refused.into_inner().weight.load(SeqCst), weight); // handed back
    reason
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let (_timer, waits) = bounded(10);
    let first = waits.park(Heavy::of(7), &["a"], NEVER);
    for _ in 0..3 {
        assert_eq!(refused(&waits, 4), RefusedReason::TooHeavy { weight: 4, limit: 10 });
        assert_eq!((waits.len(), waits.keys(), waits.watched()), (1, 1, 1));
    }
    waits.park(Heavy::of(3), &["a", "b", "c"], NEVER);
    let stats = waits.stats();
    assert_eq!((stats.weight, stats.refused_too_heavy, stats.refused_full), (10, 3, 0));
    assert_eq!(stats.checks, 5);
    assert_eq!(
        refused(&waits, 1).to_string(),
        "a weight of 1 does not fit, of at most 10 together"
    );
    assert_eq!(waits.cancel(first, "gone"), EndResult::Ended);
    assert_eq!(waits.stats().weight, 3);
    waits.park(Heavy::of(7), &["a"], NEVER);
}

#[test]
fn every_ending_gives_its_weight_back() {
    let (timer, waits) = bounded(100);
    let id = |heavy: &Heavy, key| waits.park(heavy.clone(), &[key, "further"], 5 * MS);
    let ends: [fn(&ManualTimer, &Waits, &Heavy, OperationId); 6] = [
        |_, waits, _, id| _ = waits.cancel(id, "gone"),
        |_, waits, _, id| _ = waits.complete(id),
        |_, waits, _, _| _ = waits.cancel_for_key(&"key", "gone"),
        |timer, _, _, _| timer.advance(5 * MS),
        |_, waits, heavy, _| {
            heavy.ready.store(1, SeqCst);
            waits.check_and_complete(&"further");
        },
        |_, waits, _, _| _ = waits.cancel_all("gone"),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let heavy = Heavy::of(90);
        let id = id(&heavy, "key");
        assert_eq!(waits.stats().weight, 90, "way {number}");
        heavy.weight.store(5, SeqCst); // was asked for
        end(&timer, &waits, &heavy, id);
        assert_eq!((waits.stats().weight, heavy.asked.load(SeqCst)), (0, 1), "way {number}");
        assert_empty(&waits);
    }
    waits.park(Heavy::of(100), &["key"], NEVER);
    waits.shutdown(SECOND);
    assert_eq!(waits.stats().weight, 0);
    assert_eq!(refused(&waits, 9), RefusedReason::Closed);
    assert_eq!(waits.stats().weight, 0);
}

#[test]
fn weight_counts_until_the_callback() {
    let later = Later::default();
    let (timer, waits) =
        by_hand_with::<&str, Heavy>(|builder| builder.max_weight(10).executor(later.clone()));
    waits.park(Heavy::of(9), &["a"], MS);
    timer.advance(MS);
    assert_eq!((waits.len(), waits.stats().weight), (0, 9));
    assert!(matches!(refused(&waits, 2), RefusedReason::TooHeavy { .. }));
    later.run();
    assert_eq!(waits.stats().weight, 0);
}

#[test]
fn zero_always_fits_and_too_much_never_wraps() {
    let (_timer, waits) = bounded(u64::MAX);
    waits.park(Heavy::of(1), &["a"], NEVER);
    let too_heavy = RefusedReason::TooHeavy { weight: u64::MAX, limit: u64::MAX };
    assert_eq!(refused(&waits, u64::MAX), too_heavy);
    waits.park(Heavy::of(u64::MAX - 1), &["a"], NEVER);
    assert!(matches!(refused(&waits, 1), RefusedReason::TooHeavy { .. }));
    waits.park(Heavy::of(0), &["a", "b"], NEVER);
    assert_eq!((waits.stats().weight, waits.len()), (u64::MAX, 3));
    waits.cancel_all("gone");
    assert_eq!(waits.stats().weight, 0);
    waits.park(Heavy::of(u64::MAX), &["a"], NEVER);
}

#[test]
fn one_check_true_at_once_has_no_weight() {
    let (_timer, waits) = bounded(1);
    let heavy = Heavy::of(9);
    heavy.ready.store(1, SeqCst);
    let parked = waits.try_complete_else_watch(heavy.clone(), &["a"], SECOND);
    assert_eq!(parked.unwrap(), ParkResult::Ended(Outcome::Completed));
    assert_eq!((heavy.asked.load(SeqCst), waits.stats().weight), (0, 0));
}

#[test]
fn without_the_bound_nobody_asks() {
    let (_timer, waits): (_, Waits) = by_hand_with(|builder| builder);
    let heavy = Heavy::of(9);
    waits.park(heavy.clone(), &["a"], NEVER);
    assert_eq!((heavy.asked.load(SeqCst), waits.stats().weight), (0, 0));
}

#[test]
fn both_bounds_hold_and_a_refusal_keeps_neither() {
    let (_timer, waits) =
        by_hand_with::<&str, Heavy>(|builder| builder.max_weight(9).max_parked(2));
    waits.park(Heavy::of(5), &["a"], NEVER);
    for _ in 0..3 {
        assert!(matches!(refused(&waits, 5), RefusedReason::TooHeavy { .. })); // keeps no place
    }
    let second = waits.park(Heavy::of(1), &["a"], NEVER);
    for _ in 0..3 {
        assert_eq!(refused(&waits, 1), RefusedReason::Full { limit: 2 }); // keeps no weight
    }
    waits.cancel(second, "gone");
    waits.park(Heavy::of(4), &["a"], NEVER);
    assert_eq!(waits.stats().weight, 9);
}

#[test]
fn a_weight_that_panics_parks_nothing() {
    struct Panics;
    impl DelayedOperation for Panics {
        fn try_complete(&mut self) -> bool {
            false
        }
        fn on_complete(self, _: Outcome) {}
        fn weight(&self) -> u64 {
            panic!("in a weight")
        }
    }
    let (_timer, waits) =
        by_hand_with::<&str, BoxedOperation>(|builder| builder.max_weight(9).max_parked(1));
    let park = || waits.try_complete_else_watch(BoxedOperation::new(Panics), &["a"], NEVER);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(park)).is_err());
    assert_eq!((waits.len(), waits.stats().weight), (0, 0));
    waits.park(never(), &["a"], NEVER); // its place is free
}

#[test]
fn boxes_weigh_what_is_in_them_and_waits_one() {
    let (_timer, waits): (_, Waits<BoxedOperation>) = by_hand_with(|builder| builder.max_weight(8));
    waits.park(BoxedOperation::new(Heavy::of(5)), &["a"], NEVER);
    waits.park(never(), &["a"], NEVER);
    let wait = waits.wait(&["a"], NEVER, || None::<()>);
    let event = waits.next_event(&["a"], NEVER);
    let mut refused = waits.wait(&["a"], NEVER, || None::<()>);
    assert_eq!(waits.stats().weight, 8);
    let reason = RefusedReason::TooHeavy { weight: 1, limit: 8 };
    assert_eq!(poll(&mut refused), std::task::Poll::Ready(Err(WaitError::Refused(reason))));
    drop((wait, event));
    assert_eq!(waits.stats().weight, 6);
}

#[test]
fn an_expected_reply_weighs_one() {
    let (_timer, purgatory) = by_hand_with(|builder| builder.max_weight(2));
    let replies: Replies<u32, u32> = purgatory.into();
    let (first, _second) = (replies.expect(1, NEVER).unwrap(), replies.expect(2, NEVER).unwrap());
    let refused = replies.expect(3, NEVER).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::TooHeavy { weight: 1, limit: 2 });
    drop(first);
    let _third = replies.expect(3, NEVER).unwrap();
    replies.fail_all("gone");
    assert_eq!(replies.purgatory().stats().weight, 0);
}
