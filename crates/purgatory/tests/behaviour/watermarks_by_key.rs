//! Values by key that only rise, and quorums of them: in the orders a network has, against a model
//! in virtual time with replicas that crash, and on real threads, counted.
//! `TEST_EFFORT` says how many runs there are beside the model: 60 without it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    thread,
    time::Duration,
};

use crate::support::{MS, SECOND, by_hand, poll};
use purgatory::{
    BoxedOperation, CancelReason, Outcome, ParkResult, Purgatory, RefusedReason, WaitError,
    WaitFuture, Watermarks,
};
use timer_core::ManualTimer;

use crate::effort::effort;

/// Without `TEST_EFFORT`.
const SEEDS: u64 = 60;

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
fn a_rise_before_the_wait_after_it_twice_too_low_and_too_late() {
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
fn a_key_that_is_removed_cancels_its_waits_and_begins_anew() {
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
fn the_event_of_a_rise_that_comes_after_a_removal_completes_nothing() {
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
fn one_more_key_than_the_bound_is_an_error_and_a_removed_one_makes_room() {
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
fn k_of_n_complete_with_the_kth_whichever_it_is_and_whenever_the_others_came() {
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
fn a_wait_keeps_neither_keys_nor_values_when_it_is_over() {
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

/// A leader appends and waits for two of three, or three of five; replicas fetch, fall behind,
/// crash and come back with less, and one leaves the cluster at times. Beside it, how far each has
/// come, in a map.
#[test]
fn quorums_under_crashes_in_virtual_time_end_as_the_model_says() {
    struct Write {
        quorum: WaitFuture<Vec<(u32, u64)>>,
        k: usize,
        levels: Vec<(u32, u64)>,
        deadline_ms: u64,
    }
    let (seeds, mut ends) = (effort(SEEDS), [0; 3]);
    for seed in 0..seeds {
        let (timer, waits, watermarks) = watermarks();
        let mut random = fastrand::Rng::with_seed(seed);
        let (n, mut log_end, mut open) = (random.u32(1..=5), 0, Vec::<Write>::new());
        let mut fetched = BTreeMap::<u32, u64>::new(); // what the leader knows of each
        let mut up: Vec<bool> = vec![true; n as usize];
        for now_ms in 1..300 {
            timer.advance(MS);
            let mut left = None;
            let replica = random.u32(0..n);
            match random.u32(0..20) {
                0..6 => {
                    log_end += 1;
                    let k = random.usize(1..=n as usize);
                    let levels: Vec<_> = (0..n).map(|replica| (replica, log_end)).collect();
                    let timeout_ms = random.u64(1..40);
                    let timeout = Duration::from_millis(timeout_ms);
                    let quorum = watermarks.wait_for_k(k, &levels, timeout);
                    open.push(Write { quorum, k, levels, deadline_ms: now_ms + timeout_ms });
                }
                6..15 if up[replica as usize] => {
                    let value = random.u64(0..=log_end); // out of order, or again
                    watermarks.raise(&replica, value).unwrap();
                    let known = fetched.entry(replica).or_default();
                    *known = value.max(*known);
                }
                15 => up[replica as usize] = false,
                16..19 => up[replica as usize] = true,
                19 if random.bool() => {
                    watermarks.remove(&replica);
                    fetched.remove(&replica);
                    left = Some(replica);
                }
                _ => {}
            }
            open.retain_mut(|write| {
                let known = |key: &u32| fetched.get(key).copied().unwrap_or(0);
                let levels = write.levels.iter();
                let reached: Vec<_> = levels
                    .filter(|(key, level)| known(key) >= *level)
                    .map(|(key, _)| (*key, known(key)))
                    .collect();
                let (end, expected) = if write.deadline_ms <= now_ms {
                    (0, Poll::Ready(Err(WaitError::Expired)))
                } else if left.is_some() {
                    (1, Poll::Ready(Err(WaitError::Cancelled(removed()))))
                } else if reached.len() >= write.k {
                    (2, Poll::Ready(Ok(reached)))
                } else {
                    (0, Poll::Pending)
                };
                assert_eq!(poll(&mut write.quorum), expected, "seed {seed}, at {now_ms} ms");
                ends[end] += u64::from(expected.is_ready());
                expected.is_pending()
            });
            let known = (0..n).map(|key| fetched.get(&key).copied());
            assert!(known.eq((0..n).map(|key| watermarks.value(&key))));
            assert_eq!(waits.len(), open.len());
        }
        drop(open);
        nothing_is_left(&waits);
    }
    assert!(ends.iter().all(|&end| end > 3 * seeds), "expired, cancelled, completed: {ends:?}");
}

/// Threads raise and remove, others wait: each wait ends once, with a value that was reached, and
/// none is missed.
#[test]
fn every_wait_ends_once_on_real_threads() {
    const RISES: u64 = 3000;
    let watermarks: Watermarks<u32> = Watermarks::new("stress").unwrap();
    let [completed, cancelled, parked] = [const { AtomicUsize::new(0) }; 3].map(Arc::new);
    let missed = Arc::new(AtomicUsize::new(0));
    let value = AtomicU64::new(0);
    thread::scope(|scope| {
        let (watermarks, value) = (&watermarks, &value);
        let raisers = [0, 1].map(|_| {
            scope.spawn(move || {
                loop {
                    let next = value.fetch_add(1, SeqCst) + 1;
                    (0..3).for_each(|key| _ = watermarks.raise(&key, next).unwrap());
                    if next % 50 == 0 {
                        watermarks.remove(&3);
                    }
                    watermarks.raise(&3, next).unwrap();
                    if next >= RISES {
                        return;
                    }
                }
            })
        });
        let waiters = [0, 1].map(|waiter| {
            let (completed, cancelled) = (completed.clone(), cancelled.clone());
            let (parked, missed) = (parked.clone(), missed.clone());
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(waiter);
                while value.load(SeqCst) < RISES {
                    let threshold = (value.load(SeqCst) + random.u64(0..5)).min(RISES);
                    let (completed, cancelled) = (completed.clone(), cancelled.clone());
                    let missed = missed.clone();
                    let then = move |outcome| match outcome {
                        Outcome::Completed => _ = completed.fetch_add(1, SeqCst),
                        Outcome::Cancelled(reason) if reason == removed() => {
                            cancelled.fetch_add(1, SeqCst);
                        }
                        _ => _ = missed.fetch_add(1, SeqCst),
                    };
                    let key = random.u32(0..4);
                    watermarks.park(&key, threshold, SECOND * 600, then).unwrap();
                    parked.fetch_add(1, SeqCst);
                    if random.u8(0..4) == 0 {
                        let levels = [0, 1, 2].map(|key| (key, threshold));
                        let quorum = watermarks.wait_for_k(2, &levels, SECOND * 600);
                        let reached = quorum.wait_blocking().unwrap();
                        assert!(reached.len() >= 2);
                        assert!(reached.iter().all(|&(_, value)| value >= threshold));
                    }
                }
            })
        });
        raisers.into_iter().for_each(|raiser| raiser.join().unwrap());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(watermarks.purgatory().len(), 0); // each key's value is all that was waited for
    let [completed, cancelled, parked, missed] =
        [completed, cancelled, parked, missed].map(|count| count.load(SeqCst));
    assert_eq!((completed + cancelled, missed), (parked, 0));
}

/// Kafka's scenarios for its raft's threshold purgatory, on one watermark.
mod threshold {
    use super::*;

    fn threshold() -> (ManualTimer, Watermarks<()>) {
        let (timer, purgatory) = by_hand();
        (timer, Watermarks::from(purgatory))
    }

    #[test]
    fn rises_complete_what_they_reach() {
        let (_timer, applied) = threshold();
        let [three, one, also_one] = [3, 1, 1].map(|index| applied.wait_for(&(), index, SECOND));
        assert_eq!(applied.raise(&(), 1), Ok(2));
        assert_eq!((one.wait_blocking(), also_one.wait_blocking()), (Ok(1), Ok(1)));
        assert_eq!((applied.raise(&(), 2), applied.raise(&(), 5)), (Ok(0), Ok(1)));
        assert_eq!(three.wait_blocking(), Ok(5));
        assert_eq!((applied.raise(&(), 2), applied.value(&())), (Ok(0), Some(5))); // never back
        assert_eq!(applied.wait_for(&(), 5, SECOND).wait_blocking(), Ok(5)); // at once
    }

    #[test]
    fn one_rise_completes_in_order_of_thresholds() {
        let (_timer, applied) = threshold();
        let order = Arc::new(Mutex::new(Vec::new()));
        for threshold in [4, 2, 3, 1, 2] {
            let order = order.clone();
            let then = move |_| order.lock().unwrap().push(threshold);
            applied.park(&(), threshold, SECOND, then).unwrap();
        }
        assert_eq!(applied.raise(&(), 3), Ok(4));
        assert_eq!(*order.lock().unwrap(), [1, 2, 2, 3]);
    }

    #[test]
    fn time_cancel_and_shutdown_end_what_is_not_reached() {
        let (timer, applied) = threshold();
        let soon = applied.wait_for(&(), 1, 10 * MS);
        let late = applied.wait_for(&(), 1, SECOND);
        timer.advance(10 * MS);
        assert_eq!(soon.wait_blocking(), Err(WaitError::Expired));
        assert_eq!(applied.purgatory().cancel_for_key(&(), "resigned"), 1);
        let resigned = CancelReason::Requested("resigned".into());
        assert_eq!(late.wait_blocking(), Err(WaitError::Cancelled(resigned)));
        let rest = applied.wait_for(&(), 5, SECOND);
        applied.purgatory().shutdown(SECOND);
        assert_eq!(rest.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    }
}
