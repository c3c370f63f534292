//! acks=all in every order.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use purgatory::{
    CancelReason, EndResult,
    Outcome::{self, Cancelled, Completed, Expired},
    ParkResult, RefusedReason,
};
use timer_core::ManualTimer;

use super::{Later, MS, SECOND, by_hand, by_hand_and_late, guide::acks_all::Partition};

type Answers = mpsc::Receiver<(u64, Outcome)>;
type Client = mpsc::Sender<(u64, Outcome)>;

fn partition() -> (ManualTimer, Partition, Client, Answers) {
    let (timer, produces) = by_hand();
    let (client, answers) = mpsc::channel();
    (
        timer,
        Partition { name: "orders-0", high_watermark: Arc::default(), produces },
        client,
        answers,
    )
}

fn late_partition() -> (ManualTimer, Partition, Later) {
    let (timer, produces, later) = by_hand_and_late();
    (timer, Partition { name: "orders-0", high_watermark: Arc::default(), produces }, later)
}

/// Parks a produce whose client is told its offset and how it ended.
fn produce(orders: &Partition, offset: u64, client: &Client) -> Result<ParkResult, RefusedReason> {
    let client = client.clone();
    let answer = move |outcome| _ = client.send((offset, outcome)); // it may have gone
    orders.produce(offset, answer).map_err(RefusedReason::from)
}

#[track_caller]
fn answered(answers: &Answers, expected: &[(u64, Outcome)]) {
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn what_was_replicated_before_is_answered_at_once() {
    let (_timer, orders, client, answers) = partition();
    assert_eq!(orders.replicated(2), 0);
    assert_eq!(produce(&orders, 2, &client).unwrap(), ParkResult::Ended(Completed));
    assert!(matches!(produce(&orders, 3, &client), Ok(ParkResult::Parked(_))));
    answered(&answers, &[(2, Completed)]);
}

#[test]
fn a_rise_completes_what_it_reaches_and_twice_or_lower_it_completes_nothing() {
    let (_timer, orders, client, answers) = partition();
    for offset in [3, 1, 2] {
        produce(&orders, offset, &client).unwrap();
    }
    assert_eq!([2, 2, 1].map(|offset| orders.replicated(offset)), [2, 0, 0]);
    answered(&answers, &[(1, Completed), (2, Completed)]);
    // The watermark has not fallen.
    assert_eq!(produce(&orders, 2, &client).unwrap(), ParkResult::Ended(Completed));
    assert_eq!(orders.replicated(9), 1);
    answered(&answers, &[(2, Completed), (3, Completed)]);
    super::nothing_is_left(&orders.produces);
}

#[test]
fn what_is_never_replicated_expires_and_a_late_rise_changes_nothing() {
    let (timer, orders, client, answers) = partition();
    produce(&orders, 1, &client).unwrap();
    timer.advance(30 * SECOND - MS);
    answered(&answers, &[]);
    timer.advance(MS);
    answered(&answers, &[(1, Expired)]);
    assert_eq!(orders.replicated(1), 0);
    answered(&answers, &[]);
    super::nothing_is_left(&orders.produces);
}

#[test]
fn a_rise_between_an_expiry_and_its_callback_changes_nothing() {
    let (timer, orders, later) = late_partition();
    let (client, answers) = mpsc::channel();
    produce(&orders, 1, &client).unwrap();
    timer.advance(30 * SECOND);
    assert_eq!(orders.replicated(1), 0);
    later.run();
    answered(&answers, &[(1, Expired)]);
    super::nothing_is_left(&orders.produces);
}

#[test]
fn a_client_that_has_gone_does_no_harm() {
    let (_timer, orders, client, answers) = partition();
    drop(answers);
    produce(&orders, 1, &client).unwrap();
    assert_eq!(orders.replicated(1), 1);
    // Or its request is cancelled as its connection closes.
    let ParkResult::Parked(id) = produce(&orders, 2, &client).unwrap() else {
        panic!("it must wait")
    };
    assert_eq!(orders.produces.cancel(id, "connection closed"), EndResult::Ended);
    assert_eq!(orders.replicated(2), 0);
    super::nothing_is_left(&orders.produces);
}

#[test]
fn the_same_offset_again_after_the_leader_has_changed() {
    let (_timer, orders, client, answers) = partition();
    let moved = Cancelled(CancelReason::Requested("not the leader".into()));
    produce(&orders, 1, &client).unwrap();
    assert_eq!(orders.produces.cancel_for_key(&"orders-0", "not the leader"), 1);
    produce(&orders, 1, &client).unwrap();
    assert_eq!(orders.replicated(1), 1);
    answered(&answers, &[(1, moved), (1, Completed)]);
}

#[test]
fn a_shutdown_answers_what_waits_and_hands_back_what_comes_later() {
    let (_timer, orders, client, answers) = partition();
    orders.replicated(1);
    produce(&orders, 2, &client).unwrap();
    orders.produces.shutdown(SECOND);
    assert_eq!(produce(&orders, 2, &client), Err(RefusedReason::Closed));
    assert_eq!(produce(&orders, 1, &client).unwrap(), ParkResult::Ended(Completed));
    answered(&answers, &[(2, Cancelled(CancelReason::Shutdown)), (1, Completed)]);
    super::nothing_is_left(&orders.produces);
}

/// What the answer of one parks is of a watermark that has risen.
#[test]
fn a_produce_inside_an_answer_finds_the_watermark_that_completed_it() {
    let (_timer, orders, client, answers) = partition();
    let orders = Arc::new(orders);
    let (inside, told) = (orders.clone(), client.clone());
    let answer = move |_| {
        assert_eq!(produce(&inside, 2, &told), Ok(ParkResult::Ended(Completed)));
    };
    orders.produce(1, answer).unwrap();
    assert_eq!(orders.replicated(2), 1);
    answered(&answers, &[(2, Completed)]);
    super::nothing_is_left(&orders.produces);
}

/// Rises race with parks, and with the clock or not. Without, all that is reached completes.
#[test]
fn of_many_each_is_answered_once() {
    of_many(false);
    of_many(true);
}

fn of_many(time_passes: bool) {
    const THREADS: u64 = 3;
    const EACH: u64 = 1000;
    let (timer, orders, client, answers) = partition();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (orders, client) = (&orders, client.clone());
            scope.spawn(move || {
                for at in 0..EACH {
                    produce(orders, at * THREADS + thread + 1, &client).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for offset in 1..=THREADS * EACH / 2 {
                orders.replicated(offset);
                thread::yield_now();
            }
        });
        if time_passes {
            scope.spawn(|| (0..100).for_each(|_| timer.advance(SECOND)));
        }
    });
    timer.advance(30 * SECOND);
    let mut told: Vec<_> = answers.try_iter().collect();
    told.sort_by_key(|(offset, _)| *offset);
    assert!(told.iter().map(|(offset, _)| *offset).eq(1..=THREADS * EACH));
    let completed = told.iter().filter(|(_, outcome)| *outcome == Completed).count() as u64;
    let stats = orders.produces.stats();
    assert!(time_passes || completed == THREADS * EACH / 2);
    let by_stats = (stats.ended_at_once + stats.completed, stats.expired);
    assert_eq!(by_stats, (completed, THREADS * EACH - completed));
    assert!(told[told.len() / 2..].iter().all(|(_, outcome)| *outcome == Expired));
    super::nothing_is_left(&orders.produces);
}
