//! Values by key that only rise, and quorums of them: in the orders a network has, against a model
//! in virtual time with replicas that crash, and on real threads, counted.
//! `TEST_EFFORT` says how many runs there are beside the model: 60 without it.

use std::{
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use crate::support::{SECOND, by_hand, poll};
use purgatory::{
    BoxedOperation, CancelReason, Outcome, ParkResult, Purgatory, RefusedReason, WaitError,
    Watermarks,
};
use timer_core::ManualTimer;

type Waits = Purgatory<u32, BoxedOperation>;

#[test]
fn a_key_is_looked_up_by_what_it_is_borrowed_as() {
    let watermarks: Watermarks<String> = Watermarks::new("watermarks").unwrap();
    watermarks.raise(&"a".to_owned(), 3).unwrap();
    assert_eq!((watermarks.value("a"), watermarks.remove("a"), watermarks.keys()), (Some(3), 0, 0));
}

/// Watermarks under a hand-turned clock, and their purgatory to look into.
fn watermarks() -> (ManualTimer, Waits, Watermarks<u32>) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Watermarks::from(waits))
}

fn removed() -> CancelReason {
    CancelReason::Requested("its key was removed".into())
}

#[track_caller]
fn nothing_is_left(waits: &Waits) {
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
}

#[test]
fn rises_complete_waits_early_twice_low_and_late() {
    let (timer, waits, watermarks) = watermarks();
    assert_eq!((watermarks.value(&1), watermarks.raise(&1, 5)), (None, Ok(0)));
    assert_eq!(watermarks.wait_for(&1, 5, SECOND).wait_blocking(), Ok(5));
    // Reached by what was never raised.
    assert_eq!(watermarks.wait_for(&2, 0, SECOND).wait_blocking(), Ok(0));
    let mut seven = watermarks.wait_for(&1, 7, SECOND);
    let mut nine = watermarks.wait_for(&1, 9, SECOND);
    let mut other = watermarks.wait_for(&2, 7, SECOND);
    assert_eq!((watermarks.raise(&1, 6), watermarks.raise(&1, 8)), (Ok(0), Ok(1)));
    assert_eq!((watermarks.raise(&1, 8), watermarks.raise(&1, 3)), (Ok(0), Ok(0)));
    assert_eq!(watermarks.value(&1), Some(8)); // it does not fall
    assert_eq!(watermarks.purgatory().stats().parked, 2);
    assert_eq!((poll(&mut seven), poll(&mut nine)), (Poll::Ready(Ok(8)), Poll::Pending));
    timer.advance(SECOND);
    assert_eq!((watermarks.raise(&1, 9), watermarks.raise(&2, 9)), (Ok(0), Ok(0)));
    let expired = || Poll::Ready(Err(WaitError::Expired));
    assert_eq!((poll(&mut nine), poll(&mut other)), (expired(), expired()));
    assert_eq!((watermarks.value(&2), watermarks.keys()), (Some(9), 2)); // values stay
    nothing_is_left(&waits);
}

#[test]
fn callbacks_go_by_threshold_may_raise_and_may_panic() {
    let (timer, waits, watermarks) = watermarks();
    let order = Arc::new(Mutex::new(Vec::new()));
    for threshold in [3, 1, 2] {
        let (order, again) = (order.clone(), watermarks.clone());
        let then = move |outcome| {
            order.lock().unwrap().push((threshold, outcome));
            assert_eq!(again.raise(&1, 10 * threshold), Ok(0)); // later, but it is raised
            assert!(again.value(&1) >= Some(10 * threshold));
            panic!("in a callback");
        };
        assert!(matches!(watermarks.park(&1, threshold, SECOND, then), Ok(ParkResult::Parked(_))));
    }
    let mut chained = watermarks.wait_for(&1, 30, SECOND);
    assert_eq!(watermarks.raise(&1, 3), Ok(3));
    let completed = [1, 2, 3].map(|threshold| (threshold, Outcome::Completed));
    assert_eq!(*order.lock().unwrap(), completed);
    assert_eq!((poll(&mut chained), waits.stats().panics), (Poll::Ready(Ok(30)), 3));
    let expired = order.clone();
    let then = move |outcome| expired.lock().unwrap().push((0, outcome));
    watermarks.park(&1, 31, SECOND, then).unwrap();
    timer.advance(SECOND);
    assert_eq!(order.lock().unwrap().last(), Some(&(0, Outcome::Expired)));
    nothing_is_left(&waits);
}

#[test]
fn a_removed_key_cancels_its_waits_and_begins_anew() {
    let (_timer, waits, watermarks) = watermarks();
    watermarks.raise(&1, 5).unwrap();
    watermarks.raise(&2, 5).unwrap();
    let one = watermarks.wait_for(&1, 6, SECOND);
    let quorum = watermarks.wait_for_k(1, &[(1, 6), (2, 6)], SECOND);
    let mut two = watermarks.wait_for(&2, 6, SECOND);
    assert_eq!((watermarks.remove(&1), watermarks.remove(&1), watermarks.remove(&9)), (2, 0, 0));
    assert_eq!(one.wait_blocking(), Err(WaitError::Cancelled(removed())));
    assert_eq!(quorum.wait_blocking(), Err(WaitError::Cancelled(removed())));
    assert_eq!((watermarks.value(&1), poll(&mut two)), (None, Poll::Pending));
    let mut anew = watermarks.wait_for(&1, 3, SECOND);
    assert_eq!((poll(&mut anew), watermarks.raise(&1, 2)), (Poll::Pending, Ok(0)));
    assert_eq!((watermarks.raise(&1, 3), poll(&mut anew)), (Ok(1), Poll::Ready(Ok(3))));
    assert_eq!((watermarks.raise(&2, 6), poll(&mut two)), (Ok(1), Poll::Ready(Ok(6))));
    nothing_is_left(&waits);
}

/// A rise that took its value along, and raises its event when the key has been removed.
#[test]
fn the_late_event_of_a_removed_key_completes_nothing() {
    let (_timer, waits, watermarks) = watermarks();
    watermarks.raise(&1, 5).unwrap();
    watermarks.remove(&1);
    let mut anew = watermarks.wait_for(&1, 3, SECOND);
    assert_eq!(waits.complete_up_to(&1, 5), 0);
    assert_eq!(poll(&mut anew), Poll::Pending);
    assert_eq!((watermarks.raise(&1, 3), poll(&mut anew)), (Ok(1), Poll::Ready(Ok(3))));
    nothing_is_left(&waits);
}

#[test]
fn keys_are_bounded_and_a_removed_one_makes_room() {
    let (_timer, waits): (_, Waits) = by_hand();
    let watermarks = Watermarks::with_keys_max(waits, 2);
    assert_eq!((watermarks.raise(&1, 1), watermarks.raise(&2, 1)), (Ok(0), Ok(0)));
    let mut three = watermarks.wait_for(&3, 1, SECOND); // a wait needs no place
    let error = watermarks.raise(&3, 1).unwrap_err();
    assert!(matches!(error, RefusedReason::TooManyKeys { limit: 2, .. }));
    assert_eq!(error.to_string(), "no more than 2 keys can have a watermark");
    assert_eq!((watermarks.value(&3), poll(&mut three)), (None, Poll::Pending));
    // No place comes of it.
    assert_eq!((watermarks.raise(&1, 2), watermarks.remove(&9)), (Ok(0), 0));
    assert!(watermarks.raise(&3, 1).is_err());
    watermarks.remove(&1);
    assert_eq!((watermarks.raise(&3, 1), poll(&mut three)), (Ok(1), Poll::Ready(Ok(1))));
    assert_eq!((watermarks.raise(&1, 1).is_err(), watermarks.keys()), (true, 2));
}

#[test]
fn k_of_n_complete_with_the_kth_in_any_order() {
    let levels = [(1, 5), (2, 5), (3, 5)];
    for before in 0..8u32 {
        for order in [[1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
            let (_timer, waits, watermarks) = watermarks();
            let (early, late): (Vec<u32>, Vec<u32>) =
                order.into_iter().partition(|key| before & 1 << (key - 1) != 0);
            early.iter().for_each(|key| _ = watermarks.raise(key, 5).unwrap());
            let mut quorum = watermarks.wait_for_k(2, &levels, SECOND);
            let mut reached = early;
            for key in late {
                if reached.len() < 2 {
                    assert_eq!(
                        (watermarks.raise(&key, 4), watermarks.raise(&9, 9)),
                        (Ok(0), Ok(0))
                    );
                    assert!(poll(&mut quorum).is_pending());
                    let completes = usize::from(reached.len() == 1);
                    assert_eq!(watermarks.raise(&key, 5), Ok(completes));
                    reached.push(key);
                } else {
                    assert_eq!(watermarks.raise(&key, 5), Ok(0));
                }
            }
            let count = (before.count_ones() as usize).max(2);
            reached.truncate(count);
            reached.sort_unstable();
            let reached: Vec<_> = reached.into_iter().map(|key| (key, 5)).collect();
            assert_eq!(poll(&mut quorum), Poll::Ready(Ok(reached)), "before {before:b}");
            nothing_is_left(&waits);
        }
    }
}

#[test]
fn what_is_no_quorum_is_an_error() {
    let (_timer, waits, watermarks) = watermarks();
    let refused =
        |k, levels: &[(u32, u64)]| match poll(&mut watermarks.wait_for_k(k, levels, SECOND)) {
            Poll::Ready(Err(WaitError::Refused(reason))) => Some(reason),
            _ => None,
        };
    assert_eq!(refused(0, &[(1, 5)]), Some(RefusedReason::NoQuorum { k: 0, n: 1 }));
    assert_eq!(refused(2, &[(1, 5)]), Some(RefusedReason::NoQuorum { k: 2, n: 1 }));
    assert_eq!(refused(1, &[]), Some(RefusedReason::NoQuorum { k: 1, n: 0 }));
    assert_eq!(refused(2, &[(1, 5), (2, 5), (1, 7)]), Some(RefusedReason::RepeatedKey));
    assert_eq!(refused(1, &[(1, 5)]), None);
    nothing_is_left(&waits);
}

#[test]
fn a_wait_that_is_dropped_or_shut_down_leaves_nothing() {
    let (_timer, waits, watermarks) = watermarks();
    drop(watermarks.wait_for(&1, 5, SECOND));
    drop(watermarks.wait_for_k(2, &[(1, 5), (2, 5)], SECOND));
    nothing_is_left(&waits);
    let reached = watermarks.wait_for(&1, 5, SECOND);
    assert_eq!(watermarks.raise(&1, 5), Ok(1));
    drop(reached);
    nothing_is_left(&waits);

    let waiting = watermarks.wait_for(&1, 6, SECOND);
    watermarks.purgatory().shutdown(Duration::from_secs(60));
    assert_eq!(waiting.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    assert_eq!(watermarks.wait_for(&1, 5, SECOND).wait_blocking(), Ok(5)); // needs not wait
    let closed = RefusedReason::Closed;
    assert_eq!(watermarks.wait_for(&1, 6, SECOND).wait_blocking(), Err(WaitError::Refused(closed)));
    assert_eq!(watermarks.park(&1, 6, SECOND, drop).unwrap_err().reason, closed);
    assert_eq!((watermarks.raise(&1, 7), watermarks.value(&1)), (Ok(0), Some(7)));
    nothing_is_left(&waits);
}

#[test]
fn a_wait_that_is_over_keeps_no_keys_and_values() {
    let (key, other) = (Arc::<str>::from("1"), Arc::<str>::from("2"));
    let watermarks = Watermarks::with_keys_max(Purgatory::new("keys").unwrap(), 1);
    let one = watermarks.wait_for(&key, 1, SECOND * 60);
    let levels = [(key.clone(), 1), (other.clone(), 1)];
    let quorum = watermarks.wait_for_k(1, &levels, SECOND * 60);
    watermarks.park(&key, 1, SECOND * 60, drop).unwrap();
    assert_eq!(watermarks.raise(&key, 1), Ok(3));
    assert!(watermarks.raise(&other, 1).is_err());
    watermarks.remove(&key);
    drop((levels, quorum));
    assert_eq!((Arc::strong_count(&key), Arc::strong_count(&other)), (1, 1));
    assert_eq!(one.wait_blocking(), Ok(1));
}
