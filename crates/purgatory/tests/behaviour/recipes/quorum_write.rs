//! A quorum write in every order.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use purgatory::{WaitError, Watermarks};
use timer_core::ManualTimer;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, guide::quorum_write::Replicas, off_runtime, on_runtimes,
    poll,
};

fn replicas<const N: usize>() -> (ManualTimer, Replicas<N>) {
    let (timer, purgatory) = by_hand();
    let committed = Watermarks::from(purgatory);
    (timer, Replicas { indices: [0; N].map(AtomicU64::new), committed })
}

#[test]
fn what_is_committed_before_is_told_at_once_with_the_index_that_is() {
    let (_timer, replicas) = replicas::<3>();
    assert_eq!((replicas.acknowledge(0, 7).unwrap(), replicas.acknowledge(2, 6).unwrap()), (0, 0));
    assert_eq!(poll(&mut replicas.committed(5)), Ok(6).into());
    assert!(poll(&mut replicas.committed(7)).is_pending());
}

#[test]
fn one_replica_is_no_majority_however_often_it_answers() {
    let (_timer, replicas) = replicas::<3>();
    let mut write = replicas.committed(5);
    assert_eq!([5, 5, 6, 9].map(|index| replicas.acknowledge(1, index).unwrap()), [0; 4]);
    assert!(poll(&mut write).is_pending());
    assert_eq!(replicas.acknowledge(1, 2).unwrap(), 0); // late: it has 9 all the same
    assert_eq!([4, 5, 5, 1].map(|index| replicas.acknowledge(2, index).unwrap()), [0, 1, 0, 0]);
    assert_eq!((poll(&mut write), replicas.committed.value(&()).unwrap()), (Ok(5).into(), 5));
}

/// In each order of the answers of five: the third commits.
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
        assert_eq!(poll(&mut write), Ok(1).into());
    }
    // Of four it is the third, too.
    let (_timer, replicas) = replicas::<4>();
    let _write = replicas.committed(1);
    assert_eq!([0, 1, 2, 3].map(|replica| replicas.acknowledge(replica, 1).unwrap()), [0, 0, 1, 0]);
}

#[test]
fn without_a_majority_the_time_runs_out() {
    on_runtimes(|runtime| {
        let (timer, replicas) = replicas::<3>();
        let write = runtime.spawn(replicas.committed(5));
        replicas.acknowledge(0, 5).unwrap();
        timer.advance(30 * SECOND - MS);
        assert_eq!(replicas.committed.purgatory().len(), 1);
        off_runtime(|| timer.advance(MS));
        assert_eq!(replicas.acknowledge(1, 5).unwrap(), 0);
        assert_eq!(runtime.block_on(write).unwrap(), Err(WaitError::Expired));
        assert_eq!(runtime.block_on(replicas.committed(5)), Ok(5)); // though late, it is committed
    });
}

#[test]
fn a_client_that_goes_leaves_nothing_and_may_ask_for_the_same_again() {
    let (_timer, replicas) = replicas::<3>();
    let gone = replicas.committed(5);
    let [mut first, mut again] = [replicas.committed(5), replicas.committed(5)];
    drop(gone);
    assert_eq!(replicas.committed.purgatory().len(), 2);
    assert_eq!((replicas.acknowledge(0, 5).unwrap(), replicas.acknowledge(1, 5).unwrap()), (0, 2));
    assert_eq!((poll(&mut first), poll(&mut again)), (Ok(5).into(), Ok(5).into()));
    assert_eq!(replicas.committed.purgatory().len(), 0);
}

#[test]
fn a_shutdown_ends_what_waits() {
    let (_timer, replicas) = replicas::<3>();
    replicas.acknowledge(0, 4).unwrap();
    replicas.acknowledge(1, 4).unwrap();
    let mut write = replicas.committed(5);
    replicas.committed.purgatory().shutdown(SECOND);
    assert_eq!(poll(&mut write), Err(SHUTDOWN).into());
    assert_eq!(poll(&mut replicas.committed(5)), Err(CLOSED).into());
    assert_eq!(poll(&mut replicas.committed(4)), Ok(4).into());
}

/// Each write is told once, and not before two replicas have it.
#[test]
fn of_many_writes_each_is_told_when_two_have_it() {
    const WRITES: u64 = 2000;
    let (_timer, replicas) = replicas::<3>();
    thread::scope(|scope| {
        for replica in 0..3 {
            let replicas = &replicas;
            let upto = if replica == 2 { WRITES / 2 } else { WRITES };
            scope.spawn(move || {
                (1..=upto).for_each(|index| _ = replicas.acknowledge(replica, index).unwrap())
            });
        }
        let told = scope.spawn(|| {
            let have =
                |index| replicas.indices.iter().filter(move |have| have.load(SeqCst) >= index);
            let told = |index| {
                let committed = replicas.committed(index).wait_blocking().unwrap();
                assert!(committed >= index && have(committed).count() >= 2, "{index}");
            };
            (1..=WRITES).map(told).count() as u64
        });
        assert_eq!(told.join().unwrap(), WRITES);
    });
    assert_eq!(
        (replicas.committed.purgatory().len(), replicas.committed.value(&()).unwrap()),
        (0, WRITES)
    );
}
