//! Watermarks by key, and quorums of them, in the orders that a network produces.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    Later, MINUTE, SECOND, assert_empty, by_hand, by_hand_with, over, poll, race, requested,
};
use purgatory::{
    CancelReason, EndResult,
    Outcome::{Cancelled, Completed, Expired},
    Purgatory, RefusedReason, WaitError, WaitFuture, WatermarkWait, Watermarks,
};
use timer_core::ManualTimer;

type Waits = Purgatory<u32, WatermarkWait>;

/// Creates watermarks on a manual timer, with their purgatory for inspection.
fn watermarks() -> (ManualTimer, Waits, Watermarks<u32>) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Watermarks::over(waits))
}

/// `str` is the borrowed form of both, and `String` is what it makes.
#[test]
fn keys_are_passed_as_they_can_be_copied() {
    let (_timer, strings) = by_hand();
    let strings: Watermarks<String> = Watermarks::over(strings);
    let mut wait = strings.wait_for("orders", 7, MINUTE);
    assert_eq!(strings.advance("orders", 7), Ok(1));
    assert_eq!(over(&mut wait), Ok(7));

    let (_timer, shared) = by_hand();
    let shared: Watermarks<Arc<str>> = Watermarks::over(shared);
    let orders: Arc<str> = "orders".into();
    let mut wait = shared.wait_for(&orders, 7, MINUTE);
    assert_eq!(shared.advance(&orders, 7), Ok(1));
    assert_eq!((over(&mut wait), shared.value("orders")), (Ok(7), Some(7)));
}

#[track_caller]
fn fails<T: std::fmt::Debug>(mut wait: WaitFuture<T>) -> WaitError {
    over(&mut wait).unwrap_err()
}

/// Its answer lies where it waits. The value is that of the advance, though others came since.
#[test]
fn a_wait_for_a_value_takes_no_allocation() {
    let (_timer, waits, watermarks) = watermarks();
    let mut last = 0;
    let mut ask = || {
        let mut wait = watermarks.wait_for(&1, last + 1, SECOND);
        assert!(poll(&mut wait).is_pending());
        let dropped = watermarks.wait_for(&1, last + 9, SECOND);
        assert_eq!(watermarks.advance(&1, last + 2), Ok(1));
        assert_eq!(watermarks.advance(&1, last + 3), Ok(0));
        assert_eq!(waits.len(), 1); // an answer that is not taken counts nowhere
        drop(dropped);
        assert_eq!(over(&mut wait), Ok(last + 2));
        last += 3;
    };
    ask(); // what the shard keeps
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            ask();
        }
    });
    assert_eq!((counted.count_total, counted.count_current), (0, 0));
    assert_empty(&waits);
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
    let elected = votes.wait_for("term", 4000, MINUTE);
    let vote = |_| {
        for _ in 0..1000 {
            _ = votes.add("term", 1).unwrap();
        }
    };
    race(4, vote);
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
    let mut quorum = quorum;
    assert_eq!([1, 1, 9].map(|key| watermarks.remove(&key)), [1, 0, 0]);
    let Cancelled(removed) = requested("its key was removed") else {
        unreachable!()
    };
    assert_eq!(fails(one), WaitError::Cancelled(removed));
    assert!(poll(&mut quorum).is_pending()); // the other key may still reach it
    assert_eq!(
        (watermarks.value(&1), poll(&mut two).is_pending()),
        (None, true)
    );
    let mut anew = watermarks.wait_for(&1, 3, SECOND);
    assert_eq!(watermarks.advance(&1, 2), Ok(0));
    assert!(poll(&mut anew).is_pending());
    assert_eq!((watermarks.advance(&1, 9), over(&mut anew)), (Ok(1), Ok(9)));
    assert!(poll(&mut quorum).is_pending()); // key 1 has left it for good
    assert_eq!((watermarks.advance(&2, 6), over(&mut two)), (Ok(2), Ok(6)));
    assert_eq!(over(&mut quorum), Ok(vec![(2, 6)]));
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
        "the limit of 2 keys with a value is reached"
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
        "not parked: a quorum of 3 is not possible with 2 keys"
    );
    let twice = refused(2, &[(1, 5), (2, 5), (1, 7)]);
    assert_eq!(
        twice.to_string(),
        "not parked: a key comes twice in the quorum"
    );
    assert_empty(&waits);
}

/// All means all that are left, whatever the order of their advances and removals.
#[test]
fn wait_for_all_goes_on_without_a_removed_key() {
    let levels = [(1, 5), (2, 5), (3, 5)];
    for left in 1..=3 {
        let (_timer, waits, watermarks) = watermarks();
        let mut all = watermarks.wait_for_all(&levels, SECOND);
        let mut rest = Vec::new();
        for key in [1, 2, 3] {
            assert!(poll(&mut all).is_pending(), "before {key}");
            let is_last = usize::from(key == 3);
            if key == left {
                assert_eq!(watermarks.remove(&key), is_last);
            } else {
                assert_eq!(watermarks.advance(&key, 5), Ok(is_last));
                rest.push((key, 5));
            }
        }
        assert_eq!(over(&mut all), Ok(rest));
        assert_empty(&waits);
    }
}

/// A key that is removed has left the waits that were parked before, also when it had reached its
/// threshold; a wait that comes later knows it anew.
#[test]
fn removed_key_leaves_earlier_quorums_for_good() {
    let (_timer, waits, watermarks) = watermarks();
    let levels = [(1, 5), (2, 5), (3, 5)];
    let mut two = watermarks.wait_for_k(2, &levels, SECOND);
    assert_eq!(
        (watermarks.advance(&1, 5), watermarks.remove(&1)),
        (Ok(0), 0)
    );
    assert_eq!(watermarks.advance(&1, 6), Ok(0)); // none of theirs any more
    assert_eq!(
        (watermarks.advance(&2, 5), poll(&mut two).is_pending()),
        (Ok(0), true)
    );
    let mut later = watermarks.wait_for_k(2, &levels, SECOND);
    assert_eq!(over(&mut later), Ok(vec![(1, 6), (2, 5)]));
    assert_eq!(watermarks.advance(&3, 7), Ok(1));
    assert_eq!(over(&mut two), Ok(vec![(2, 5), (3, 7)]));
    assert_empty(&waits);
}

#[test]
fn quorum_ends_at_once_when_too_few_keys_are_left() {
    let (_timer, waits, watermarks) = watermarks();
    let levels = [(1, 5), (2, 5), (3, 5)];
    let two = watermarks.wait_for_k(2, &levels, SECOND);
    let all = watermarks.wait_for_all(&levels, SECOND);
    assert_eq!([1, 3, 2].map(|key| watermarks.remove(&key)), [0, 1, 1]);
    let lost = |left, needed| WaitError::Cancelled(CancelReason::QuorumLost { left, needed });
    assert_eq!(fails(two), lost(1, 2));
    let none = fails(all);
    assert_eq!(none, lost(0, 1));
    assert_eq!(
        none.to_string(),
        "cancelled: its quorum has lost too many keys: 0 left, 1 needed"
    );
    assert_empty(&waits);
}

/// A key with a value and no waiter is not among the keys of the purgatory.
#[test]
fn key_with_a_value_alone_has_no_waiters() {
    let (_timer, waits, watermarks) = watermarks();
    for key in 0..100 {
        _ = watermarks.advance(&key, 5).unwrap();
    }
    assert_empty(&waits);
    let keys = || waits.snapshot(9).key_count;
    assert_eq!((watermarks.keys(), keys(), waits.waiters(&7)), (100, 0, 0));
    let wait = watermarks.wait_for(&7, 6, SECOND);
    assert_eq!((keys(), waits.waiters(&7)), (1, 1));
    drop(wait);
    assert_eq!((watermarks.value(&7), keys()), (Some(5), 0));
    for key in 0..100 {
        assert_eq!(watermarks.remove(&key), 0);
    }
    assert_eq!((watermarks.keys(), watermarks.value(&7)), (0, None));
    assert_empty(&waits);
}

#[test]
fn lowest_waiting_skips_waits_that_have_left() {
    let (_timer, waits, watermarks) = watermarks();
    assert_eq!(watermarks.lowest_waiting(&1), None);
    let mut parked: Vec<_> = [9, 3, 7, 5, 3]
        .map(|threshold| watermarks.wait_for(&1, threshold, SECOND))
        .into();
    assert_eq!(watermarks.lowest_waiting(&1), Some(3));
    drop(parked.remove(1));
    assert_eq!(watermarks.lowest_waiting(&1), Some(3));
    assert_eq!(
        (watermarks.advance(&1, 4), watermarks.lowest_waiting(&1)),
        (Ok(1), Some(5))
    );
    drop(parked.remove(2));
    assert_eq!(watermarks.lowest_waiting(&1), Some(7));
    drop(parked);
    assert_eq!(watermarks.lowest_waiting(&1), None);
    assert_empty(&waits);
}

#[test]
fn refused_wait_hands_its_callback_back() {
    let (_timer, waits, watermarks) = watermarks();
    waits.shutdown(SECOND);
    let (told, ended) = std::sync::mpsc::channel();
    let refused = watermarks.park(&1, 5, SECOND, move |outcome| told.send(outcome).unwrap());
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Closed);
    refused.into_inner()(Expired);
    assert_eq!(ended.try_recv(), Ok(Expired));
    // Values need no open purgatory.
    assert_eq!(
        (watermarks.advance(&1, 5), watermarks.value(&1)),
        (Ok(0), Some(5))
    );
    assert_eq!(over(&mut watermarks.wait_for(&1, 5, SECOND)), Ok(5));
}

/// A value that went back: waits for more go on, a quorum counts the key no more, and a late
/// advance of the epoch before changes nothing.
#[test]
fn reset_lowers_the_value_in_a_new_epoch() {
    let (_timer, waits, watermarks) = watermarks();
    assert_eq!(watermarks.epoch(&1), None);
    assert_eq!(watermarks.advance_in(&1, 0, 100), Ok(0));
    let mut both = watermarks.wait_for_all(&[(1, 90), (2, 5)], SECOND);
    let mut more = watermarks.wait_for(&1, 120, SECOND);
    assert_eq!(watermarks.reset(&1, 3, 80), Ok(0));
    assert_eq!(
        (watermarks.value(&1), watermarks.epoch(&1)),
        (Some(80), Some(3))
    );
    let mut ninety = watermarks.wait_for(&1, 90, SECOND);
    for late in [0, 2, 4] {
        let other = RefusedReason::OtherEpoch { present: 3 };
        assert_eq!(watermarks.advance_in(&1, late, 200), Err(other));
    }
    assert_eq!(
        watermarks.reset(&1, 3, 200).unwrap_err().to_string(),
        "the key is in epoch 3"
    );
    assert_eq!(watermarks.advance(&2, 5), Ok(0)); // key 1 has gone back below 90
    assert!(
        [&mut more, &mut ninety]
            .into_iter()
            .all(|wait| poll(wait).is_pending())
    );
    assert!(poll(&mut both).is_pending());
    assert_eq!(watermarks.lowest_waiting(&1), Some(90));
    assert_eq!(watermarks.advance_in(&1, 3, 95), Ok(2));
    assert_eq!(
        (over(&mut ninety), over(&mut both)),
        (Ok(95), Ok(vec![(1, 95), (2, 5)]))
    );
    assert_eq!(
        (watermarks.reset(&1, 4, 120), over(&mut more)),
        (Ok(1), Ok(120))
    );
    // A removal forgets the epoch.
    watermarks.remove(&1);
    assert_eq!(
        (watermarks.advance_in(&1, 0, 7), watermarks.epoch(&1)),
        (Ok(0), Some(0))
    );
    assert_empty(&waits);
}

#[test]
fn reset_may_cancel_the_waits_for_more() {
    let (_timer, waits, watermarks) = watermarks();
    watermarks.advance(&1, 50).unwrap();
    let mut sixty = watermarks.wait_for(&1, 60, SECOND);
    let eighty = watermarks.wait_for(&1, 80, SECOND);
    let both = watermarks.wait_for_all(&[(1, 40), (2, 5)], SECOND);
    let mut low = watermarks.wait_for_all(&[(1, 70), (2, 5)], SECOND);
    let high = watermarks.wait_for_all(&[(2, 5), (1, 71)], SECOND);
    assert_eq!(watermarks.reset_and_cancel(&1, 1, 70), Ok(3)); // sixty, eighty and high
    assert_eq!(over(&mut sixty), Ok(70));
    let Cancelled(reset) = requested("its key was reset") else {
        unreachable!()
    };
    let reset = WaitError::Cancelled(reset);
    assert_eq!((fails(eighty), fails(high)), (reset.clone(), reset.clone()));
    assert!(poll(&mut low).is_pending());
    assert_eq!(watermarks.reset_and_cancel(&1, 2, 30), Ok(2));
    assert_eq!((fails(both), fails(low)), (reset.clone(), reset));
    assert_empty(&waits);
}

/// A key is copied when it is new, not for each wait.
#[test]
fn waits_take_borrowed_forms_of_their_key() {
    let (_timer, waits) = by_hand();
    let ends: Watermarks<String> = Watermarks::over(waits);
    let mut first = ends.wait_for("orders-0", 5, SECOND);
    let (send, ended) = std::sync::mpsc::channel();
    let then = move |outcome| send.send(outcome).unwrap();
    ends.park("orders-0", 4, SECOND, then).unwrap();
    assert_eq!(ends.purgatory().keys(), 1);
    let mut second = None;
    let wait = || second = Some(ends.wait_for("orders-0", 6, SECOND));
    let borrowed = allocation_counter::measure(wait).count_total;
    let owned = "orders-0".to_owned();
    let mut third = None;
    let wait = || third = Some(ends.wait_for(&owned, 6, SECOND));
    assert_eq!(borrowed, allocation_counter::measure(wait).count_total);
    assert_eq!(ends.advance("orders-0", 5), Ok(2));
    assert_eq!((over(&mut first), ended.recv()), (Ok(5), Ok(Completed)));
    assert_eq!(ends.advance("orders-0", 6), Ok(2));
    assert_eq!(over(&mut second.unwrap()), Ok(6));
    assert_eq!(over(&mut third.unwrap()), Ok(6));
}

/// Its source is alive, though no wait is reached.
#[test]
fn key_whose_value_advances_is_not_quiet() {
    const ZERO: Duration = Duration::ZERO;

    let (timer, waits, watermarks) = watermarks();
    let quietest = || waits.snapshot(1).quietest;
    let wait = watermarks.wait_for(&1, 9, MINUTE);
    assert_eq!(quietest(), [(1, ZERO)]);
    timer.advance(SECOND);
    assert_eq!(quietest(), [(1, SECOND)]);
    assert_eq!(watermarks.advance(&1, 5), Ok(0));
    assert_eq!(quietest(), [(1, ZERO)], "an advance");
    timer.advance(SECOND);
    assert_eq!(watermarks.reset_and_cancel(&1, 1, 9), Ok(1));
    assert_eq!((over(&mut { wait }), quietest()), (Ok(9), vec![]));

    let wait = watermarks.wait_for(&1, 19, MINUTE);
    assert_eq!(quietest(), [(1, ZERO)]);
    timer.advance(SECOND);
    assert_eq!(watermarks.reset(&1, 2, 8), Ok(0));
    assert_eq!(quietest(), [(1, ZERO)], "an epoch");
    drop(wait);
    assert_empty(&waits);
}

/// The executor, which wakes its task, is late.
#[test]
fn an_expired_waits_place_is_free_once_it_is_ready() {
    let later = Later::default();
    let (timer, waits): (_, Waits) = by_hand_with(|b| b.executor(later.clone()).max_parked(1));
    let values = Watermarks::over(waits);
    let wait = values.wait_for(&1, 5, SECOND);
    timer.advance(SECOND);
    assert_eq!(fails(wait), WaitError::Expired);
    assert!(poll(&mut values.wait_for(&1, 5, SECOND)).is_pending());
}

/// The values lie in the purgatory, and so does their number.
#[test]
fn watermarks_over_one_purgatory_count_together() {
    let (_timer, waits) = by_hand();
    let first = Watermarks::over(waits.clone());
    let second = Watermarks::with_keys_max(waits, 1);
    assert_eq!(first.advance(&1, 1), Ok(0));
    assert_eq!((first.keys(), second.keys()), (1, 1));
    let full = RefusedReason::TooManyKeys { limit: 1 };
    assert_eq!(second.advance(&2, 1), Err(full));
    assert_eq!(second.remove(&1), 0);
    assert_eq!((first.keys(), second.keys()), (0, 0));
    assert_eq!(second.advance(&2, 1), Ok(0));
    assert_eq!(first.advance(&3, 1), Ok(0)); // it has no bound
}
