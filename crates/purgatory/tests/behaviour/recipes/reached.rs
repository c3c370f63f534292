//! Held pulls and lock waits: parked operations that learn what has changed, or that a call
//! reaches.

use super::{
    guide::{held_pulls::Broker, lock_waits::RowLocks},
    *,
};

/// Only messages after the pull count; a pull of another tag waits until its timeout.
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
    // A pull that comes while the broker stops is answered, too, by its caller.
    broker.pull("red", client.clone(), SECOND).unwrap();
    assert_eq!(broker.stop(SECOND), 0);
    reported(&answers, &[vec![]]);
    assert!(broker.pull("red", client, SECOND).is_err());
    nothing_is_left(&broker.pulls);
}

fn locks() -> (ManualTimer, RowLocks) {
    let timer = ManualTimer::new();
    let rows = Permits::keyed_builder("rows").timer(&timer).build();
    (timer, RowLocks::new(rows.unwrap()))
}

/// A lock wait whose time is up cannot be reached.
#[test]
fn a_lock_wait_that_expired_is_out_of_reach() {
    let (timer, locks) = locks();
    let held = got(&mut Box::pin(locks.lock("row", 1, SECOND)));
    let mut waits = Box::pin(locks.lock("row", 2, SECOND));
    assert_eq!(locks.dump(), [("row", 2, Some(1))]);
    timer.advance(SECOND);
    assert_eq!(locks.end_deadlock(2, vec![2, 1, 2]), ReachResult::Gone);
    assert_eq!(over(&mut waits).err(), Some(WaitError::Expired));
    assert!(locks.dump().is_empty());
    drop(held);
    assert_nothing_waits(&locks.rows.waits());
    assert_eq!(locks.rows.taken_for(&"row"), 0);
}

/// A dropped transaction is not listed, and the next one gets the lock.
#[test]
fn a_transaction_that_goes_passes_its_lock_on() {
    let (_timer, locks) = locks();
    let held = got(&mut Box::pin(locks.lock("row", 1, SECOND)));
    let second = locks.lock("row", 2, SECOND);
    let mut third = Box::pin(locks.lock("row", 3, SECOND));
    drop(held);
    drop(second); // it had the lock
    let held = got(&mut third);
    let fourth = locks.lock("row", 4, SECOND);
    assert_eq!(locks.dump(), [("row", 4, Some(3))]);
    drop(fourth); // it waited
    assert!(locks.dump().is_empty());
    drop(held);
    assert_nothing_waits(&locks.rows.waits());
}
