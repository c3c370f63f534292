//! Quorum writes, and topics that are made again.

use purgatory::{RefusedReason, ReplicaError, ReplicaSets, WaitError, Watermarks};

use super::{
    guide::{epochs::Topics, quorum_write::Replicas},
    *,
};
use crate::support::requested;

/// Replicas of a first term, whose logs are empty.
fn replicas(count: usize) -> Replicas {
    let timer = ManualTimer::new();
    let replicas = Replicas {
        indices: ReplicaSets::builder("test").timer(&timer).build().unwrap(),
    };
    replicas.lead(1, &vec![0; count]).unwrap();
    replicas
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
        let replicas = replicas(5);
        let mut write = replicas.committed(1, 1);
        assert_eq!(
            order.map(|replica| replicas.acknowledge(1, replica, 1).unwrap()),
            [0, 0, 1, 0, 0]
        );
        assert_eq!(got(&mut write), 1);
    }
    let four = replicas(4);
    let _write = four.committed(1, 1);
    assert_eq!(
        [0, 1, 2, 3].map(|replica| four.acknowledge(1, replica, 1).unwrap()),
        [0, 0, 1, 0]
    );
    let three = replicas(3);
    let mut write = three.committed(1, 5);
    assert_eq!(
        [9, 9].map(|index| three.acknowledge(1, 1, index).unwrap()),
        [0, 0]
    );
    assert_eq!(three.acknowledge(1, 2, 5).unwrap(), 1);
    assert_eq!(got(&mut write), 5);
    nothing_waits(&three.indices.waits());
}

/// Raft, section 5.4.2: entry 5 of term 1 is on a majority, and is committed with one of term 2.
#[test]
fn entry_of_an_earlier_term_is_not_committed_by_counting() {
    let replicas = replicas(3);
    let old = replicas.committed(1, 5);
    assert_eq!(replicas.acknowledge(1, 0, 5), Ok(0));
    // The first replica leads again. That of term 1 is on two of three.
    assert_eq!(replicas.lead(2, &[5, 0, 0]), Ok(1));
    assert_eq!(replicas.acknowledge(2, 1, 5), Ok(0));
    assert_eq!(replicas.indices.watermark(&()), Some(0));
    let mut write = replicas.committed(2, 6);
    assert_eq!(replicas.acknowledge(2, 0, 6), Ok(0));
    assert_eq!(replicas.acknowledge(2, 1, 6), Ok(1));
    assert_eq!(got(&mut write), 6);
    assert!(matches!(over(&mut { old }), Err(WaitError::Cancelled(_))));
    let late = RefusedReason::OtherEpoch {
        named: 1,
        present: 2,
    };
    let refused = replicas.acknowledge(1, 2, 9);
    assert_eq!(refused, Err(ReplicaError::Refused(late)));
}

fn topics() -> Topics {
    let timer = ManualTimer::new();
    Topics {
        ends: Watermarks::builder("test").timer(&timer).build().unwrap(),
    }
}

/// A client that fetches from the old leader's end waits until the new leader has come that far.
#[test]
fn a_log_cut_back_goes_on_under_its_new_leader() {
    let topics = topics();
    assert_eq!(topics.create("orders", 1), Ok(0));
    assert_eq!(topics.append("orders", 1, 100), Ok(true));
    let mut fetch = topics.fetch("orders", 101);
    assert_eq!(topics.lead("orders", 2, 80), Ok(0));
    assert_eq!(topics.append("orders", 1, 101), Ok(false)); // late
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(topics.ends.value("orders"), Some(80));
    assert_eq!(topics.append("orders", 2, 101), Ok(true));
    assert_eq!(got(&mut fetch), 101);
    let older = topics.lead("orders", 2, 0);
    assert_eq!(
        older,
        Err(RefusedReason::OtherEpoch {
            named: 2,
            present: 2
        })
    );
}

#[test]
fn a_topic_made_again_has_nothing_of_the_old() {
    let topics = topics();
    topics.create("orders", 1).unwrap();
    assert_eq!(topics.append("orders", 1, 100), Ok(true));
    let mut deleted = topics.fetch("orders", 101);
    assert_eq!(topics.delete("orders"), 1);
    let Outcome::Cancelled(removed) = requested("its key was removed") else {
        unreachable!()
    };
    assert_eq!(over(&mut deleted), Err(WaitError::Cancelled(removed)));
    assert_eq!(topics.append("orders", 1, 101), Ok(false)); // late, and no topic
    assert_eq!(topics.ends.value("orders"), None);

    // Made again at once, without a deletion in between.
    assert_eq!(topics.create("orders", 2), Ok(0));
    let mut of_second = topics.fetch("orders", 1);
    assert_eq!(topics.create("orders", 3), Ok(1));
    assert!(matches!(over(&mut of_second), Err(WaitError::Cancelled(_))));
    let mut fetch = topics.fetch("orders", 1);
    assert_eq!(topics.append("orders", 2, 101), Ok(false));
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(topics.append("orders", 3, 1), Ok(true));
    assert_eq!(over(&mut fetch), Ok(1));
    nothing_waits(&topics.ends.waits());
}
