//! Topics that are deleted and made again: nothing of the old one touches the new.

use std::{
    sync::{Mutex, atomic::AtomicU64},
    task::Poll,
};

use purgatory::{CancelReason, Purgatory, WaitError, Watermarks};

use super::{by_hand, guide::epochs::Topics, nothing_is_left, poll};

const REMOVED: WaitError = WaitError::Cancelled(CancelReason::Requested(
    std::borrow::Cow::Borrowed("its key was removed"),
));

fn topics() -> Topics {
    let (_timer, ends): (_, Purgatory<_>) = by_hand();
    let (epochs, made) = (Mutex::default(), AtomicU64::new(0));
    Topics { epochs, made, ends: Watermarks::from(ends) }
}

#[test]
fn a_fetch_of_the_new_topic_waits_for_its_own_end() {
    let topics = topics();
    let old = ("orders", topics.create("orders"));
    assert_eq!(topics.append(old, 100), Ok(true));
    assert_eq!(topics.delete(old), 0);
    let new = ("orders", topics.create("orders"));
    let mut fetch = topics.fetch(new, 1).unwrap();
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(topics.append(old, 101), Ok(false)); // late
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(topics.append(new, 1), Ok(true));
    assert_eq!(poll(&mut fetch), Poll::Ready(Ok(1)));
    assert_eq!(topics.ends.value(&old), None);
    nothing_is_left(topics.ends.purgatory());
}

#[test]
fn a_deletion_ends_fetches_and_refuses_later_ones() {
    let topics = topics();
    let old = ("orders", topics.create("orders"));
    let mut fetch = topics.fetch(old, 1).unwrap();
    assert_eq!(topics.delete(old), 1);
    assert_eq!(poll(&mut fetch), Poll::Ready(Err(REMOVED)));
    assert!(topics.fetch(old, 1).is_none());
    let new = ("orders", topics.create("orders"));
    assert!(topics.fetch(old, 1).is_none() && topics.fetch(new, 1).is_some());
    nothing_is_left(topics.ends.purgatory());
}

#[test]
fn a_second_deletion_leaves_the_new_topic_alone() {
    let topics = topics();
    let old = ("orders", topics.create("orders"));
    topics.delete(old);
    let new = ("orders", topics.create("orders"));
    assert_eq!(topics.delete(old), 0);
    assert_eq!(topics.append(new, 1), Ok(true));
    assert_eq!(topics.ends.value(&new), Some(1));
}
