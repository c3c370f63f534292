//! Watermarks by key, and quorums of them, in the orders that a network produces.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{MINUTE, SECOND, assert_empty, by_hand, over, poll, requested};
use purgatory::{
    EndResult,
    Outcome::{Cancelled, Completed, Expired},
    Purgatory, RefusedReason, WaitError, WaitFuture, WatermarkWait, Watermarks,
};
use timer_core::ManualTimer;

type Waits = Purgatory<u32, WatermarkWait>;

/// Creates watermarks on a manual timer, with their purgatory for inspection.
fn watermarks() -> (ManualTimer, Waits, Watermarks<u32>) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Watermarks::from(waits))
}

#[track_caller]
fn fails<T: std::fmt::Debug>(mut wait: WaitFuture<T>) -> WaitError {
    over(&mut wait).unwrap_err()
}

#[test]
fn advances_complete_waits_early_twice_low_and_late() {
    let (timer, waits, watermarks) = watermarks();
    assert_eq!(
        (watermarks.value(&1), watermarks.advance(&1, 5)),
        (None, Ok(0))
    );
    assert_eq!(over(&mut watermarks.wait_for(&1, 5, SECOND)), Ok(5));
    // A key without a value counts as 0.
    assert_eq!(over(&mut watermarks.wait_for(&2, 0, SECOND)), Ok(0));
    let mut seven = watermarks.wait_for(&1, 7, SECOND);
    let nine = watermarks.wait_for(&1, 9, SECOND);
    let other = watermarks.wait_for(&2, 7, SECOND);
    assert_eq!(
        [6, 8, 8, 3].map(|to| watermarks.advance(&1, to)),
        [Ok(0), Ok(1), Ok(0), Ok(0)]
    );
    assert_eq!(
        (watermarks.value(&1), watermarks.purgatory().len()),
        (Some(8), 2)
    ); // does not fall
    assert_eq!(over(&mut seven), Ok(8));
    timer.advance(SECOND);
    assert_eq!(
        (watermarks.advance(&1, 9), watermarks.advance(&2, 9)),
        (Ok(0), Ok(0))
    );
    assert_eq!(
        (fails(nine), fails(other)),
        (WaitError::Expired, WaitError::Expired)
    );
    assert_eq!((watermarks.value(&2), watermarks.keys()), (Some(9), 2)); // values stay
    assert_empty(&waits);
}

#[test]
fn additions_add_up_over_threads() {
    let votes: Watermarks<String> = Watermarks::new("votes").unwrap();
    let elected = votes.wait_for(&"term".to_owned(), 4000, MINUTE);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    _ = votes.add("term", 1).unwrap();
                }
            });
        }
    });
    assert_eq!(
        (elected.wait_blocking(), votes.value("term")),
        (Ok(4000), Some(4000))
    );
    assert_eq!(
        (votes.add("term", u64::MAX), votes.value("term")),
        (Ok(0), Some(u64::MAX))
    );
    assert_eq!((votes.remove("term"), votes.keys()), (0, 0));
}

#[test]
fn callbacks_by_threshold_may_advance_and_panic() {
    let (timer, waits, watermarks) = watermarks();
    let order = Arc::new(Mutex::new(Vec::new()));
    for threshold in [3, 1, 2, 31] {
        let order = order.clone();
        let again = watermarks.clone();
        let then = move |outcome| {
            order.lock().unwrap().push((threshold, outcome));
            assert_eq!(again.advance(&1, 10 * threshold), Ok(0)); // later, but it is raised
            assert!(again.value(&1) >= Some(10 * threshold));
            panic!("in a callback");
        };
        watermarks.park(&1, threshold, SECOND, then).unwrap();
    }
    let mut chained = watermarks.wait_for(&1, 30, SECOND);
    assert_eq!(
        (watermarks.advance(&1, 3), over(&mut chained)),
        (Ok(3), Ok(30))
    );
    timer.advance(SECOND);
    let expected = [
        (1, Completed),
        (2, Completed),
        (3, Completed),
        (31, Expired),
    ];
    assert_eq!(
        (&**order.lock().unwrap(), waits.stats().panics),
        (&expected[..], 4)
    );
    assert_empty(&waits);
}

/// A late advance of it completes nothing.
#[test]
fn a_removed_key_cancels_its_waits_and_begins_anew() {
    let (_timer, waits, watermarks) = watermarks();
    for key in [1, 2] {
        _ = watermarks.advance(&key, 5).unwrap();
    }
    let one = watermarks.wait_for(&1, 6, SECOND);
    let quorum = watermarks.wait_for_k(1, &[(1, 6), (2, 6)], SECOND);
    let mut two = watermarks.wait_for(&2, 6, SECOND);
    assert_eq!([1, 1, 9].map(|key| watermarks.remove(&key)), [2, 0, 0]);
    let Cancelled(removed) = requested("its key was removed") else {
        unreachable!()
    };
    let removed = WaitError::Cancelled(removed);
    assert_eq!((fails(one), fails(quorum)), (removed.clone(), removed));
    assert_eq!(
        (watermarks.value(&1), poll(&mut two).is_pending()),
        (None, true)
    );
    let mut anew = watermarks.wait_for(&1, 3, SECOND);
    assert_eq!(watermarks.advance(&1, 2), Ok(0));
    assert!(poll(&mut anew).is_pending());
    assert_eq!((watermarks.advance(&1, 3), over(&mut anew)), (Ok(1), Ok(3)));
    assert_eq!((watermarks.advance(&2, 6), over(&mut two)), (Ok(1), Ok(6)));
    assert_empty(&waits);
}

/// A callback needs no value.
#[test]
fn complete_gives_a_watermarks_wait_no_value() {
    let (_timer, waits, watermarks) = watermarks();
    let mut wait = watermarks.wait_for(&1, 3, SECOND);
    assert_eq!(waits.complete(wait.id().unwrap()), EndResult::NoValue);
    assert_eq!((watermarks.advance(&1, 3), over(&mut wait)), (Ok(1), Ok(3)));
    let parked = watermarks.park(&1, 4, SECOND, drop).unwrap();
    assert_eq!(waits.complete(parked.id().unwrap()), EndResult::Ended);
    assert_empty(&waits);
}

#[test]
fn keys_are_bounded_and_removal_frees_a_place() {
    let (_timer, waits): (_, Waits) = by_hand();
    let watermarks = Watermarks::with_keys_max(waits, 2);
    assert_eq!(
        (watermarks.advance(&1, 1), watermarks.advance(&2, 1)),
        (Ok(0), Ok(0))
    );
    let mut three = watermarks.wait_for(&3, 1, SECOND); // a wait needs no place
    let error = watermarks.advance(&3, 1).unwrap_err();
    assert!(matches!(error, RefusedReason::TooManyKeys { limit: 2, .. }));
    assert_eq!(
        error.to_string(),
        "no more than 2 keys can have a watermark"
    );
    assert_eq!(
        (watermarks.value(&3), poll(&mut three).is_pending()),
        (None, true)
    );
    // No place comes of it.
    assert_eq!(
        (watermarks.advance(&1, 2), watermarks.remove(&9)),
        (Ok(0), 0)
    );
    assert!(watermarks.advance(&3, 1).is_err());
    watermarks.remove(&1);
    assert_eq!(
        (watermarks.advance(&3, 1), over(&mut three)),
        (Ok(1), Ok(1))
    );
    assert_eq!(
        (watermarks.advance(&1, 1).is_err(), watermarks.keys()),
        (true, 2)
    );
}

#[test]
fn k_of_n_complete_with_the_kth_in_any_order() {
    let levels = [(1, 5), (2, 5), (3, 5)];
    for early in 0..=3 {
        for order in [[1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
            let (_timer, waits, watermarks) = watermarks();
            for key in &order[..early] {
                _ = watermarks.advance(key, 5).unwrap();
            }
            let mut quorum = watermarks.wait_for_k(2, &levels, SECOND);
            for (at, key) in order.iter().enumerate().skip(early) {
                assert_eq!(
                    (watermarks.advance(key, 4), watermarks.advance(&9, 9)),
                    (Ok(0), Ok(0))
                );
                assert_eq!(watermarks.advance(key, 5), Ok(usize::from(at == 1)));
            }
            let mut reached = order[..early.max(2)].to_vec();
            reached.sort_unstable();
            let reached = reached.into_iter().map(|key| (key, 5)).collect();
            assert_eq!(
                over(&mut quorum),
                Ok(reached),
                "{early} of {order:?} before"
            );
            assert_empty(&waits);
        }
    }
}

#[test]
fn a_quorum_that_cannot_be_is_an_error() {
    let (_timer, waits, watermarks) = watermarks();
    let refused = |k, levels: &[(u32, u64)]| fails(watermarks.wait_for_k(k, levels, SECOND));
    for (k, levels) in [(0, &[(1, 5)][..]), (2, &[(1, 5)]), (1, &[])] {
        let reason = RefusedReason::NoQuorum { k, n: levels.len() };
        assert_eq!(refused(k, levels), WaitError::Refused(reason));
    }
    let no_quorum = refused(3, &[(1, 5), (2, 5)]).to_string();
    assert_eq!(
        no_quorum,
        "not parked: 3 of 2 keys is no quorum: between 1 and 2 are"
    );
    let twice = refused(2, &[(1, 5), (2, 5), (1, 7)]);
    assert_eq!(
        twice.to_string(),
        "not parked: a key comes twice in the quorum"
    );
    assert_empty(&waits);
}
