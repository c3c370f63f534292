//! A bound on how heavy all operations that wait may be together.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use crate::support::{MS, NEVER, Park, SECOND, assert_empty, by_hand_with, never, over, refused};
use purgatory::{
    BoxedOperation, DelayedOperation, OperationId, Outcome, ParkResult, Purgatory,
    RefusedReason::{self, Closed, Full},
    Replies, WaitError,
};
use timer_core::ManualTimer;

/// An operation of this weight.
#[derive(Clone, Default)]
struct Heavy {
    weight: Arc<AtomicU64>,
    ready: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

/// Its `weight` panics.
const PANICS: u64 = 666;

impl Heavy {
    fn of(weight: u64) -> Self {
        Heavy {
            weight: Arc::new(weight.into()),
            ..Heavy::default()
        }
    }
}

impl DelayedOperation for Heavy {
    fn try_complete(&mut self) -> bool {
        self.ready.load(SeqCst)
    }

    fn on_complete(self, _: Outcome) {}

    fn weight(&self) -> u64 {
        self.asked.fetch_add(1, SeqCst);
        assert_ne!(self.weight.load(SeqCst), PANICS);
        self.weight.load(SeqCst)
    }
}

type Waits<O = Heavy> = Purgatory<&'static str, O>;

fn bounded(max: u64) -> (ManualTimer, Waits) {
    by_hand_with(|builder| builder.max_weight(max).max_parked(9))
}

fn too_heavy(weight: u64, limit: u64) -> RefusedReason {
    RefusedReason::TooHeavy { weight, limit }
}

#[track_caller]
fn reason(waits: &Waits, weight: u64) -> RefusedReason {
    let (reason, back) = refused(waits, Heavy::of(weight), &["a", "b"]);
    assert_eq!(back.weight.load(SeqCst), weight);
    reason
}

#[test]
fn operation_over_the_bound_is_refused() {
    let (_timer, waits) = bounded(10);
    let first = waits.park(Heavy::of(7), &["a"], NEVER);
    for _ in 0..3 {
        assert_eq!(reason(&waits, 4), too_heavy(4, 10));
        assert_eq!(reason(&waits, u64::MAX), too_heavy(u64::MAX, 10)); // the sum would wrap
        assert_eq!((waits.len(), waits.keys(), waits.watched()), (1, 1, 1));
    }
    waits.park(Heavy::of(3), &["a", "b", "c"], NEVER);
    let stats = waits.stats();
    assert_eq!(
        (stats.weight, stats.refused_too_heavy, stats.refused_full),
        (10, 6, 0)
    );
    assert_eq!(stats.checks, 8);
    let says = reason(&waits, 1).to_string();
    assert_eq!(says, "a weight of 1 would exceed the limit of 10");
    waits.cancel(first, "gone");
    assert_eq!(waits.stats().weight, 3);
    waits.park(Heavy::of(7), &["a"], NEVER);
    // An operation that ends at once has no weight.
    let heavy = Heavy {
        ready: Arc::new(true.into()),
        ..Heavy::of(99)
    };
    let ended = waits
        .try_complete_else_watch(heavy.clone(), &["a"], SECOND)
        .unwrap();
    assert_eq!(
        (ended, heavy.asked.load(SeqCst)),
        (ParkResult::Ended(Outcome::Completed), 0)
    );
}

#[test]
fn every_ending_gives_its_weight_back() {
    let (timer, waits) = bounded(100);
    let ends: [fn(&ManualTimer, &Waits, &Heavy, OperationId); 6] = [
        |_, waits, _, id| _ = waits.cancel(id, "gone"),
        |_, waits, _, id| _ = waits.complete(id),
        |_, waits, _, _| _ = waits.cancel_for_key(&"key", "gone"),
        |timer, _, _, _| timer.advance(5 * MS),
        |_, waits, heavy, _| {
            heavy.ready.store(true, SeqCst);
            waits.check_and_complete(&"further");
        },
        |_, waits, _, _| _ = waits.cancel_all("gone"),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let heavy = Heavy::of(90);
        let id = waits.park(heavy.clone(), &["key", "further"], 5 * MS);
        assert_eq!(waits.stats().weight, 90, "way {number}");
        heavy.weight.store(5, SeqCst); // was asked for
        end(&timer, &waits, &heavy, id);
        assert_eq!(
            (waits.stats().weight, heavy.asked.load(SeqCst)),
            (0, 1),
            "way {number}"
        );
        assert_empty(&waits);
    }
    waits.park(Heavy::of(100), &["key"], NEVER);
    waits.shutdown(SECOND);
    assert_eq!((waits.stats().weight, reason(&waits, 9)), (0, Closed));
    assert_eq!(waits.stats().weight, 0);
}

/// A refusal by one bound, or a weight that panics, keeps nothing of the other.
#[test]
fn both_bounds_hold_and_a_refusal_keeps_neither() {
    let (_timer, waits): (_, Waits) = by_hand_with(|builder| builder.max_weight(9).max_parked(2));
    waits.park(Heavy::of(5), &["a"], NEVER);
    for _ in 0..3 {
        assert_eq!(reason(&waits, 5), too_heavy(5, 9)); // keeps no place
        let park = || waits.park(Heavy::of(PANICS), &["a"], NEVER);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(park)).is_err());
    }
    let second = waits.park(Heavy::of(1), &["a"], NEVER);
    for _ in 0..3 {
        assert_eq!(reason(&waits, 1), Full { limit: 2 }); // keeps no weight
    }
    waits.cancel(second, "gone");
    waits.park(Heavy::of(4), &["a"], NEVER);
    assert_eq!(waits.stats().weight, 9);
}

#[test]
fn boxes_weigh_their_content_and_waits_one() {
    let (_timer, waits): (_, Waits<BoxedOperation>) = by_hand_with(|builder| builder.max_weight(8));
    waits.park(BoxedOperation::new(Heavy::of(5)), &["a"], NEVER);
    waits.park(never(), &["a"], NEVER);
    let wait = waits.wait(&["a"], NEVER, || None::<()>);
    let event = waits.next_event(&["a"], NEVER);
    let reason = Err(WaitError::Refused(too_heavy(1, 8)));
    assert_eq!(over(&mut waits.wait(&["a"], NEVER, || None::<()>)), reason);
    drop((wait, event));
    assert_eq!(waits.stats().weight, 6);

    let replies: Replies<u32, u32> = Replies::over(by_hand_with(|builder| builder.max_weight(2)).1);
    let first = replies.expect(1, NEVER).unwrap();
    let _second = replies.expect(2, NEVER).unwrap();
    assert_eq!(
        replies.expect(3, NEVER).unwrap_err().reason,
        too_heavy(1, 2)
    );
    drop(first);
    let _third = replies.expect(3, NEVER).unwrap();
    replies.fail_all("gone");
    assert_eq!(replies.purgatory().stats().weight, 0);

    let (_timer, unbounded): (_, Waits) = by_hand_with(|builder| builder);
    let heavy = Heavy::of(9);
    unbounded.park(heavy.clone(), &["a"], NEVER);
    assert_eq!((heavy.asked.load(SeqCst), unbounded.stats().weight), (0, 0)); // not asked
}
