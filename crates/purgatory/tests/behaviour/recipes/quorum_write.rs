//! A quorum write: which answer commits.

use std::sync::{Arc, atomic::AtomicU64};

use purgatory::Watermarks;
use timer_core::ManualTimer;

use super::{SECOND, Wait, by_hand, every_order, got, guide::quorum_write::Replicas, poll};

fn replicas<const N: usize>() -> (ManualTimer, Replicas<N>) {
    let (timer, purgatory) = by_hand();
    let committed = Watermarks::from(purgatory);
    (timer, Replicas { indices: [0; N].map(AtomicU64::new), committed })
}

#[test]
fn a_write_waits_for_a_majority() {
    every_order(|| {
        let (timer, replicas) = replicas::<3>();
        replicas.acknowledge(0, 7).unwrap();
        let (waits, replicas) = (replicas.committed.purgatory().clone(), Arc::new(replicas));
        let acknowledges = replicas.clone();
        let wait = Wait { timer, waits, limit: 30 * SECOND, remembers: true };
        let complete = move || _ = acknowledges.acknowledge(2, 6).unwrap();
        (wait, move || replicas.committed(5), complete)
    });
}

#[test]
fn one_replica_that_answers_often_is_no_majority() {
    let (_timer, replicas) = replicas::<3>();
    let mut write = replicas.committed(5);
    assert_eq!([5, 5, 6, 9].map(|index| replicas.acknowledge(1, index).unwrap()), [0; 4]);
    assert!(poll(&mut write).is_pending());
    assert_eq!(replicas.acknowledge(1, 2).unwrap(), 0); // late: it has 9 all the same
    assert_eq!([4, 5, 5, 1].map(|index| replicas.acknowledge(2, index).unwrap()), [0, 1, 0, 0]);
    assert_eq!((got(&mut write), replicas.committed.value(&())), (5, Some(5)));
}

/// In each order of the answers of five the third commits; of four it is the third, too.
#[test]
fn the_answer_that_makes_a_majority_commits() {
    for order in 0..5_usize.pow(5) {
        let order: [usize; 5] = std::array::from_fn(|at| order / 5_usize.pow(at as u32) % 5);
        if (0..5).any(|replica| !order.contains(&replica)) {
            continue;
        }
        let (_timer, replicas) = replicas::<5>();
        let mut write = replicas.committed(1);
        assert_eq!(order.map(|replica| replicas.acknowledge(replica, 1).unwrap()), [0, 0, 1, 0, 0]);
        assert_eq!(got(&mut write), 1);
    }
    let (_timer, replicas) = replicas::<4>();
    let _write = replicas.committed(1);
    assert_eq!([0, 1, 2, 3].map(|replica| replicas.acknowledge(replica, 1).unwrap()), [0, 0, 1, 0]);
}
