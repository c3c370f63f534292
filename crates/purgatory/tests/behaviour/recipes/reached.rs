//! Held pulls, and lock waits: parked operations that are told what has changed, or reached.

use super::{
    guide::{
        held_pulls::Broker,
        lock_waits::{LockWaits, Waiter, dump, end_deadlock, update},
    },
    *,
};
use crate::support::Park;
use purgatory::EndResult;

/// Only messages after the pull count; a pull of another tag waits out its time.
#[test]
fn a_pull_gets_messages_of_its_tag() {
    let (timer, pulls) = by_hand();
    let broker = Broker {
        log: Arc::default(),
        pulls,
    };
    let (client, answers) = mpsc::channel();
    assert_eq!(broker.store(("red", 1)), 0);
    for tag in ["red", "blue", "red"] {
        broker.pull(tag, client.clone(), SECOND).unwrap();
    }
    assert!(answers.try_recv().is_err(), "all are held");
    assert_eq!(broker.store(("red", 2)), 2);
    reported(&answers, &[vec![("red", 2)], vec![("red", 2)]]);
    timer.advance(SECOND);
    reported(&answers, &[vec![]]);
    nothing_is_left(&broker.pulls);
}

/// A waiter whose time is up is out of reach.
#[test]
fn a_lock_wait_that_expired_is_out_of_reach() {
    let (timer, waits): (_, LockWaits) = by_hand();
    let (client, outcomes) = mpsc::channel();
    let waiter = Waiter {
        transaction: 2,
        holder: 1,
        client,
    };
    let id = waits.park(waiter, &["row"], SECOND);
    assert_eq!(dump(&waits), [("row", 2, 1)]);
    timer.advance(SECOND);
    reported(&outcomes, &[Outcome::Expired]);
    assert!(!update(&waits, id, 3));
    assert_eq!(end_deadlock(&waits, id, vec![2, 1, 2]), EndResult::Gone);
    assert!(dump(&waits).is_empty());
    nothing_is_left(&waits);
}
