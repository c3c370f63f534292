//! Quorum writes, and topics that are made again.

use std::sync::atomic::AtomicU64;

use purgatory::{WaitError, Watermarks};

use super::{
    guide::{epochs::Topics, quorum_write::Replicas},
    *,
};
use crate::support::requested;

fn replicas<const N: usize>() -> Replicas<N> {
    let committed = Watermarks::over(by_hand().1);
    Replicas {
        indices: [0; N].map(AtomicU64::new),
        committed,
    }
}

/// The third of five replicas and the third of four, in any order. A late answer changes nothing.
#[test]
fn the_answer_that_makes_a_majority_commits() {
    for order in [
        [0, 1, 2, 3, 4],
        [4, 3, 2, 1, 0],
        [2, 4, 0, 3, 1],
        [3, 0, 4, 1, 2],
    ] {
        let replicas = replicas::<5>();
        let mut write = replicas.committed(1);
        assert_eq!(
            order.map(|replica| replicas.acknowledge(replica, 1).unwrap()),
            [0, 0, 1, 0, 0]
        );
        assert_eq!(got(&mut write), 1);
    }
    let four = replicas::<4>();
    let _write = four.committed(1);
    assert_eq!(
        [0, 1, 2, 3].map(|replica| four.acknowledge(replica, 1).unwrap()),
        [0, 0, 1, 0]
    );
    let three = replicas::<3>();
    let mut write = three.committed(5);
    assert_eq!(
        [9, 2].map(|index| three.acknowledge(1, index).unwrap()),
        [0, 0]
    );
    assert_eq!(three.acknowledge(2, 5).unwrap(), 1);
    assert_eq!(got(&mut write), 5);
}

fn topics() -> Topics {
    Topics {
        epochs: Mutex::default(),
        made: AtomicU64::new(0),
        ends: Watermarks::over(by_hand().1),
    }
}

/// Otherwise fetches of the first would wait for a topic that is gone.
#[test]
fn a_topic_is_not_made_twice() {
    let topics = topics();
    let orders = ("orders", topics.create("orders").unwrap());
    let mut fetch = topics.fetch(orders, 1).unwrap();
    assert_eq!(topics.create("orders"), None);
    assert_eq!(topics.append(orders, 1), Ok(true));
    assert_eq!(got(&mut fetch), 1);
}

#[test]
fn a_topic_made_again_has_nothing_of_the_old() {
    let topics = topics();
    let old = ("orders", topics.create("orders").unwrap());
    assert_eq!(topics.append(old, 100), Ok(true));
    let mut ended = topics.fetch(old, 101).unwrap();
    assert_eq!(topics.delete(old), 1);
    let Outcome::Cancelled(removed) = requested("its key was removed") else {
        unreachable!()
    };
    assert_eq!(over(&mut ended), Err(WaitError::Cancelled(removed)));
    assert!(topics.fetch(old, 1).is_none());
    let new = ("orders", topics.create("orders").unwrap());
    let mut fetch = topics.fetch(new, 1).unwrap();
    assert_eq!(topics.append(old, 101), Ok(false)); // late
    assert_eq!(topics.ends.value(&old), None);
    assert_eq!(topics.delete(old), 0); // once more
    assert!(topics.fetch(old, 1).is_none());
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(topics.append(new, 1), Ok(true));
    assert_eq!(over(&mut fetch), Ok(1));
    assert_eq!(topics.ends.value(&new), Some(1));
    nothing_is_left(topics.ends.purgatory());
}
