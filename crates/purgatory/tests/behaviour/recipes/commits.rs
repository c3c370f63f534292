//! Quorum writes, and topics that are made again.

use std::sync::atomic::AtomicU64;

use purgatory::{WaitError, Watermarks};

use super::{
    guide::{epochs::Topics, quorum_write::Replicas},
    *,
};

fn replicas<const N: usize>() -> (ManualTimer, Replicas<N>) {
    let (timer, purgatory) = by_hand();
    let committed = Watermarks::from(purgatory);
    (timer, Replicas { indices: [0; N].map(AtomicU64::new), committed })
}

#[test]
fn a_write_waits_for_a_majority() {
    every_order_and_early(|| {
        let (timer, replicas) = replicas::<3>();
        replicas.acknowledge(0, 7).unwrap();
        let (waits, replicas) = (replicas.committed.purgatory().clone(), Arc::new(replicas));
        let acknowledges = replicas.clone();
        let complete = move || _ = acknowledges.acknowledge(2, 6).unwrap();
        Wait::new(timer, &waits, 30 * SECOND, move || replicas.committed(5), complete)
    });
    let (_timer, replicas) = replicas::<3>();
    let mut write = replicas.committed(5);
    assert_eq!([5, 5, 6, 9].map(|index| replicas.acknowledge(1, index).unwrap()), [0; 4]);
    assert!(poll(&mut write).is_pending()); // one replica is no majority
    assert_eq!(replicas.acknowledge(1, 2).unwrap(), 0); // late: it has 9 all the same
    assert_eq!([4, 5, 5, 1].map(|index| replicas.acknowledge(2, index).unwrap()), [0, 1, 0, 0]);
    assert_eq!((got(&mut write), replicas.committed.value(&())), (5, Some(5)));
}

/// Of five replicas and of four it is the third, in any order.
#[test]
fn the_answer_that_makes_a_majority_commits() {
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [3, 0, 4, 1, 2]] {
        let (_timer, replicas) = replicas::<5>();
        let mut write = replicas.committed(1);
        assert_eq!(order.map(|replica| replicas.acknowledge(replica, 1).unwrap()), [0, 0, 1, 0, 0]);
        assert_eq!(got(&mut write), 1);
    }
    let replicas = replicas::<4>().1;
    let _write = replicas.committed(1);
    assert_eq!([0, 1, 2, 3].map(|replica| replicas.acknowledge(replica, 1).unwrap()), [0, 0, 1, 0]);
}

fn topics() -> Topics {
    Topics {
        epochs: Mutex::default(),
        made: AtomicU64::new(0),
        ends: Watermarks::from(by_hand().1),
    }
}

#[test]
fn a_topic_made_again_has_nothing_of_the_old() {
    let topics = topics();
    let old = ("orders", topics.create("orders"));
    assert_eq!(topics.append(old, 100), Ok(true));
    let mut ended = topics.fetch(old, 101).unwrap();
    assert_eq!(topics.delete(old), 1);
    let Outcome::Cancelled(removed) = requested("its key was removed") else { unreachable!() };
    assert_eq!(over(&mut ended), Err(WaitError::Cancelled(removed)));
    assert!(topics.fetch(old, 1).is_none());
    let new = ("orders", topics.create("orders"));
    let mut fetch = topics.fetch(new, 1).unwrap();
    assert_eq!((topics.append(old, 101), topics.ends.value(&old)), (Ok(false), None)); // late
    assert_eq!(topics.delete(old), 0); // once more
    assert!(topics.fetch(old, 1).is_none() && poll(&mut fetch).is_pending());
    assert_eq!((topics.append(new, 1), over(&mut fetch)), (Ok(true), Ok(1)));
    assert_eq!(topics.ends.value(&new), Some(1));
    topics.ends.purgatory().nothing_is_left();
}
