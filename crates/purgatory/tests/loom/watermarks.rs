//! Watermarks: advances, removals and epochs of values race waits for them, also waits for several
//! keys. The epochs of sets are in the module `replica_sets`.

use purgatory::{CancelReason, WaitError, Watermarks};
use timer_core::ManualTimer;

use super::{MS, beside, check, ending, failpoints::Failpoint};

/// Creates watermarks on a manual timer.
pub(super) fn watermarks() -> (ManualTimer, Watermarks<u8>) {
    let timer = ManualTimer::new();
    let builder = Watermarks::builder("loom").timer(&timer);
    (timer, builder.build().unwrap())
}

/// The higher of two advances wins: the wait sees it as it is parked, or that advance finds the
/// wait.
#[test]
fn two_advances_against_wait() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let advances = [2, 3].map(|value| {
            beside(&watermarks, move |leader| {
                leader.advance(&1, value).unwrap()
            })
        });
        let mut wait = watermarks.wait_for(&1, 3, MS);
        for advance in advances {
            advance.join().unwrap();
        }
        let ended = (ending(&mut wait), watermarks.value(&1));
        assert_eq!(ended, (Some(Ok(3)), Some(3)));
    });
}

/// An advance races a removal: a value that stays has ended its wait, and a removed one completes
/// none.
#[test]
fn advance_and_removal_against_wait() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (timer, watermarks) = watermarks();
        let leader = beside(&watermarks, |leader| leader.advance(&1, 2));
        let controller = beside(&watermarks, |controller| controller.remove(&1));
        let mut wait = watermarks.wait_for(&1, 2, MS);
        leader.join().unwrap().unwrap();
        let cancelled = controller.join().unwrap();
        match (ending(&mut wait), watermarks.value(&1)) {
            (Some(Ok(2)), _) => assert_eq!(cancelled, 0),
            (Some(Err(WaitError::Cancelled(_))), _) => assert_eq!(cancelled, 1),
            (None, None) => {
                timer.advance(MS); // it came after the removal of the raised value
                assert_eq!(ending(&mut wait), Some(Err(WaitError::Expired)));
                assert_eq!(cancelled, 0);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(watermarks.waits().len(), 0);
    });
}

/// A late advance of the last epoch comes first and is undone, or comes later and is refused.
#[test]
fn epoch_against_late_advance() {
    check(&[Failpoint::EpochComparedUnlocked], || {
        let (timer, watermarks) = watermarks();
        let old_leader = beside(&watermarks, |old_leader| {
            old_leader.in_epoch(&1, 0).advance(9)
        });
        watermarks.begin_epoch(&1, 1, 2).unwrap();
        let mut wait = watermarks.wait_for(&1, 3, MS);
        _ = old_leader.join().unwrap();
        let of = (watermarks.value(&1), watermarks.epoch(&1));
        assert_eq!(of, (Some(2), Some(1)));
        timer.advance(MS);
        assert_eq!(ending(&mut wait), Some(Err(WaitError::Expired)));
    });
}

/// A wait parked before an epoch begins belongs to the last epoch, and a later one to the new.
#[test]
fn epoch_against_wait() {
    check(&[Failpoint::EpochAnswersLast], || {
        let (_timer, watermarks) = watermarks();
        let mut before = watermarks.wait_for(&1, 2, MS);
        let leader = beside(&watermarks, |leader| {
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

/// A wait that names its epoch is cancelled or refused: a value of the next epoch never meets it.
#[test]
fn epoch_against_wait_that_names_its_own() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let leader = beside(&watermarks, |leader| {
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

/// Two keys in different shards are each advanced by a thread of their own.
#[test]
fn values_against_wait_for_each() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let advances =
            [1, 2].map(|key| beside(&watermarks, move |leader| leader.advance(&key, 1).unwrap()));
        let mut wait = watermarks.wait_for_each(&[(1, 1), (2, 1)], MS);
        for advance in advances {
            advance.join().unwrap();
        }
        let ended = (ending(&mut wait), watermarks.waits().len());
        assert_eq!(ended, (Some(Ok(vec![(1, 1), (2, 1)])), 0));
    });
}

/// A wait for two keys is dropped while their values come: none of its parts is left.
#[test]
fn values_against_drop_of_wait_for_each() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, watermarks) = watermarks();
        let wait = watermarks.wait_for_each(&[(1, 1), (2, 1)], MS);
        let never = watermarks.wait_for_each(&[(1, 9), (2, 1)], MS);
        let leader = beside(&watermarks, |leader| _ = leader.advance(&2, 1).unwrap());
        drop((wait, never));
        leader.join().unwrap();
        assert!(watermarks.waits().is_empty());
        assert_eq!(watermarks.lowest_waiting(&1), None);
    });
}
