//! Watermarks: advances and removals of values against waits for them.

use loom::thread;
use purgatory::{Purgatory, WaitError, Watermarks, sync::Failpoint};
use timer_core::ManualTimer;

use super::{MS, by_hand, check, ending};

/// Watermarks on a manual timer.
fn watermarks() -> (ManualTimer, Watermarks<u8>) {
    let (timer, purgatory) = by_hand();
    (timer, Watermarks::over(purgatory))
}

/// Either the wait sees the value as it parks, or the advance finds the wait.
#[test]
fn advance_against_wait_for() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let leader = watermarks.clone();
        let leader = thread::spawn(move || leader.advance(&1, 3));
        let mut wait = watermarks.wait_for(&1, 2, MS);
        leader.join().unwrap().unwrap();
        assert_eq!(
            (ending(&mut wait), watermarks.purgatory().len()),
            (Some(Ok(3)), 0)
        );
    });
}

/// A wait has no place any more once its future has the value, so that another one can be parked.
#[test]
fn place_of_wait_against_its_value() {
    check(&[Failpoint::AnsweredKeepsPlace], || {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("loom").timer(&timer).max_parked(1);
        let watermarks: Watermarks<u8> = Watermarks::over(purgatory.build().unwrap());
        let mut wait = watermarks.wait_for(&1, 2, MS);
        let leader = watermarks.clone();
        let leader = thread::spawn(move || leader.advance(&1, 3));
        if ending(&mut wait).is_some() {
            let next = watermarks.wait_for(&1, 4, MS);
            assert!(next.id().is_some(), "there is no place");
        }
        leader.join().unwrap().unwrap();
    });
}

/// The higher of two advances stays, and each wait that they reach ends.
#[test]
fn two_advances_against_wait() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (_timer, watermarks) = watermarks();
        let advances = [2, 3].map(|value| {
            let leader = watermarks.clone();
            thread::spawn(move || leader.advance(&1, value))
        });
        let mut wait = watermarks.wait_for(&1, 3, MS);
        for advance in advances {
            _ = advance.join().unwrap().unwrap();
        }
        let ended = (ending(&mut wait), watermarks.value(&1));
        assert_eq!(ended, (Some(Ok(3)), Some(3)));
    });
}

/// A value that stays has ended its wait; a removed value completes nothing.
#[test]
fn advance_and_removal_against_wait() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let (timer, watermarks) = watermarks();
        let leader = watermarks.clone();
        let controller = watermarks.clone();
        let leader = thread::spawn(move || leader.advance(&1, 2));
        let controller = thread::spawn(move || controller.remove(&1));
        let mut wait = watermarks.wait_for(&1, 2, MS);
        leader.join().unwrap().unwrap();
        let cancelled = controller.join().unwrap();
        match (ending(&mut wait), watermarks.value(&1)) {
            (Some(Ok(2)), _) => assert_eq!(cancelled, 0),
            (Some(Err(WaitError::Cancelled(_))), _) => assert_eq!(cancelled, 1),
            (None, None) => {
                timer.advance(MS); // it came after the removal of what was raised
                assert_eq!(
                    (ending(&mut wait), cancelled),
                    (Some(Err(WaitError::Expired)), 0)
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(watermarks.purgatory().len(), 0);
    });
}

/// Two of three, one of them reached before: the second advance ends the wait, or was seen as it
/// parked.
#[test]
fn advance_against_waiting_for_two_of_three() {
    check(&[Failpoint::QuorumTrustsItsFirstLook], || {
        let (_timer, watermarks) = watermarks();
        watermarks.advance(&1, 1).unwrap();
        let replica = watermarks.clone();
        let replica = thread::spawn(move || replica.advance(&2, 1));
        let quorum = [(1, 1), (2, 1), (3, 1)];
        let mut wait = watermarks.wait_for_k(2, &quorum, MS);
        replica.join().unwrap().unwrap();
        assert_eq!(
            (ending(&mut wait), watermarks.purgatory().len()),
            (Some(Ok(vec![(1, 1), (2, 1)])), 0)
        );
    });
}

/// A key that is removed while a wait for all is parked has left it, or is waited for anew.
#[test]
fn remove_against_waiting_for_all() {
    check(&[Failpoint::QuorumTrustsItsFirstLook], || {
        let (_timer, watermarks) = watermarks();
        watermarks.advance(&1, 1).unwrap();
        let controller = watermarks.clone();
        let controller = thread::spawn(move || controller.remove(&2));
        let mut wait = watermarks.wait_for_all(&[(1, 1), (2, 1)], MS);
        controller.join().unwrap();
        let expected = match ending(&mut wait) {
            Some(ended) => return assert_eq!(ended, Ok(vec![(1, 1)])),
            None => Ok(vec![(1, 1), (2, 1)]),
        };
        assert_eq!(
            watermarks.advance(&2, 1),
            Ok(1),
            "it came after the removal"
        );
        assert_eq!(ending(&mut wait), Some(expected));
    });
}

/// All that are left: an advance and a removal come in any order, and the last of them ends the
/// wait.
#[test]
fn remove_against_advance() {
    check(&[Failpoint::RemovalJudgesNothing], || {
        let (_timer, watermarks) = watermarks();
        let mut wait = watermarks.wait_for_all(&[(1, 1), (2, 1)], MS);
        let controller = watermarks.clone();
        let controller = thread::spawn(move || controller.remove(&2));
        let completed = watermarks.advance(&1, 1).unwrap();
        let removed = controller.join().unwrap();
        assert_eq!(completed + removed, 1);
        assert_eq!(ending(&mut wait), Some(Ok(vec![(1, 1)])));
        assert_eq!(watermarks.purgatory().len(), 0);
    });
}

/// One is met and taken back before the other is: the two are never met together, though a
/// judgement that has read the first one goes on to the second.
#[test]
fn judgement_against_a_value_taken_back() {
    check(&[Failpoint::JudgementTrustsTornReading], || {
        let (_timer, watermarks) = watermarks();
        let mut wait = watermarks.wait_for_k(2, &[(1, 1), (2, 1)], MS);
        let new_leader = watermarks.clone();
        let new_leader = thread::spawn(move || {
            new_leader.reset(&1, 1, 0).unwrap();
            new_leader.advance(&2, 1)
        });
        _ = watermarks.advance_in(&1, 0, 1); // refused, if it comes second
        assert_eq!(new_leader.join().unwrap(), Ok(0));
        assert_eq!(ending(&mut wait), None, "counted after it was taken back");
        assert_eq!(watermarks.advance(&1, 1), Ok(1));
        assert_eq!(ending(&mut wait), Some(Ok(vec![(1, 1), (2, 1)])));
    });
}

/// The same with a key that is removed: it is out of the quorum before the second one is met.
#[test]
fn judgement_against_a_removed_key() {
    let faults = [
        Failpoint::JudgementTrustsTornReading,
        Failpoint::RemovalTakesNothingBack,
    ];
    check(&faults, || {
        let (_timer, watermarks) = watermarks();
        let mut wait = watermarks.wait_for_k(2, &[(1, 1), (2, 1), (3, 1)], MS);
        let controller = watermarks.clone();
        let controller = thread::spawn(move || {
            controller.remove(&1);
            controller.advance(&2, 1)
        });
        watermarks.advance(&1, 1).unwrap();
        assert_eq!(controller.join().unwrap(), Ok(0));
        assert_eq!(ending(&mut wait), None, "counted after it was removed");
        assert_eq!(watermarks.advance(&3, 1), Ok(1));
        assert_eq!(ending(&mut wait), Some(Ok(vec![(2, 1), (3, 1)])));
    });
}

/// The same while the wait parks: the values that it reads were never there together.
#[test]
fn parking_against_a_value_taken_back() {
    let faults = [
        Failpoint::ParkTrustsTornReading,
        Failpoint::JudgementTrustsTornReading,
    ];
    check(&faults, || {
        let (_timer, watermarks) = watermarks();
        watermarks.advance(&1, 1).unwrap();
        let new_leader = watermarks.clone();
        let new_leader = thread::spawn(move || {
            new_leader.reset(&1, 1, 0).unwrap();
            new_leader.advance(&2, 1)
        });
        let mut wait = watermarks.wait_for_k(2, &[(1, 1), (2, 1)], MS);
        assert_eq!(new_leader.join().unwrap(), Ok(0));
        assert_eq!(ending(&mut wait), None, "counted after it was taken back");
        assert_eq!(watermarks.advance(&1, 1), Ok(1));
        assert_eq!(ending(&mut wait), Some(Ok(vec![(1, 1), (2, 1)])));
    });
}

/// A late advance of the epoch before comes first and is undone, or comes later and is refused.
#[test]
fn reset_against_late_advance() {
    check(&[Failpoint::EpochComparedUnlocked], || {
        let (timer, watermarks) = watermarks();
        let old_leader = watermarks.clone();
        let old_leader = thread::spawn(move || old_leader.advance_in(&1, 0, 9));
        watermarks.reset(&1, 1, 2).unwrap();
        let mut wait = watermarks.wait_for(&1, 3, MS);
        _ = old_leader.join().unwrap();
        let of = (watermarks.value(&1), watermarks.epoch(&1));
        assert_eq!(of, (Some(2), Some(1)));
        timer.advance(MS);
        assert_eq!(ending(&mut wait), Some(Err(WaitError::Expired)));
    });
}
