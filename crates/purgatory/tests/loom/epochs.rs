//! Epochs of `Watermarks` against the waits of the last one, and waits for several keys. The module
//! `replica_sets` has those of sets.

use loom::thread;
use purgatory::{CancelReason, WaitError, Watermarks};
use timer_core::ManualTimer;

use super::{MS, check, ending, failpoints::Failpoint};

fn watermarks() -> (ManualTimer, Watermarks<u8>) {
    let timer = ManualTimer::new();
    let watermarks = Watermarks::on(&timer, "loom").unwrap();
    (timer, watermarks)
}

/// A wait that was parked before belongs to the last epoch; one that comes later, to the new.
#[test]
fn replica_epoch_against_wait() {
    check(&[Failpoint::EpochAnswersLast], || {
        let (_timer, watermarks) = watermarks();
        let mut before = watermarks.wait_for(&1, 2, MS);
        let leader = watermarks.clone();
        let leader = thread::spawn(move || {
            let ended = leader.begin_epoch(&1, 1, 2).unwrap();
            ended + leader.in_epoch(&1, 1).advance(3).unwrap()
        });
        let mut wait = watermarks.wait_for(&1, 3, MS);
        let ended = leader.join().unwrap();
        let over = WaitError::Cancelled(CancelReason::EpochOver {
            epoch: 0,
            present: 1,
        });
        assert_eq!(ending(&mut before), Some(Err(over.clone())));
        match ending(&mut wait) {
            Some(Err(error)) => assert_eq!((error, ended), (over, 2)),
            Some(Ok(value)) => assert!(value == 3 && ended <= 2),
            None => panic!("it goes on"),
        }
    });
}

/// A wait that names its epoch is cancelled or refused: the next one never meets it.
#[test]
fn replica_epoch_against_wait_that_names_its_own() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let leader = watermarks.clone();
        let leader = thread::spawn(move || {
            leader.begin_epoch(&1, 1, 0).unwrap();
            leader.in_epoch(&1, 1).advance(3).unwrap();
        });
        let mut wait = watermarks.in_epoch(&1, 0).wait_for(2, MS);
        leader.join().unwrap();
        let ended = ending(&mut wait);
        let is_over = matches!(
            ended,
            Some(Err(
                WaitError::Cancelled(CancelReason::EpochOver { .. }) | WaitError::OtherEpoch { .. }
            ))
        );
        assert!(is_over, "{ended:?}");
        assert!(watermarks.waits().is_empty());
    });
}

/// A late advance of the last epoch comes before the new one, or is refused.
#[test]
fn replica_epoch_against_late_advance() {
    check(&[Failpoint::EpochComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let old_leader = watermarks.clone();
        let old_leader = thread::spawn(move || _ = old_leader.in_epoch(&1, 0).advance(9));
        watermarks.begin_epoch(&1, 1, 2).unwrap();
        let mut wait = watermarks.wait_for(&1, 3, MS);
        old_leader.join().unwrap();
        assert_eq!(ending(&mut wait), None);
        let of = (watermarks.value(&1), watermarks.epoch(&1));
        assert_eq!(of, (Some(2), Some(1)));
    });
}

/// Each of two keys in a shard of its own is advanced by a thread of its own.
#[test]
fn replica_values_against_wait_for_each() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let advances = [1, 2].map(|key| {
            let leader = watermarks.clone();
            thread::spawn(move || _ = leader.advance(&key, 1).unwrap())
        });
        let mut wait = watermarks.wait_for_each(&[(1, 1), (2, 1)], MS);
        for advance in advances {
            advance.join().unwrap();
        }
        let ended = (ending(&mut wait), watermarks.waits().len());
        assert_eq!(ended, (Some(Ok(vec![(1, 1), (2, 1)])), 0));
    });
}

/// A wait for two keys is dropped while they are reached: none of its parts stays.
#[test]
fn replica_values_against_drop_of_wait_for_each() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, watermarks) = watermarks();
        let wait = watermarks.wait_for_each(&[(1, 1), (2, 1)], MS);
        let never = watermarks.wait_for_each(&[(1, 9), (2, 1)], MS);
        let leader = watermarks.clone();
        let leader = thread::spawn(move || _ = leader.advance(&2, 1).unwrap());
        drop((wait, never));
        leader.join().unwrap();
        assert!(watermarks.waits().is_empty());
        assert_eq!(watermarks.lowest_waiting(&1), None);
    });
}
