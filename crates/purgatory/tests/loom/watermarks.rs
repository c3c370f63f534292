//! Watermarks: advances and removals of values against waits for them.

use loom::thread;
use purgatory::{WaitError, Watermarks};
use timer_core::ManualTimer;

use super::{MS, check, ending, failpoints::Failpoint};

/// Watermarks on a manual timer.
pub(super) fn watermarks() -> (ManualTimer, Watermarks<u8>) {
    let timer = ManualTimer::new();
    let builder = Watermarks::builder("loom").timer(&timer);
    (timer, builder.build().unwrap())
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
        assert_eq!(ending(&mut wait), Some(Ok(3)));
        assert_eq!(watermarks.waits().len(), 0);
    });
}

/// A wait has no place any more once its future has the value, so that another one can be parked.
#[test]
fn place_of_wait_against_its_value() {
    check(&[Failpoint::AnsweredKeepsPlace], || {
        let timer = ManualTimer::new();
        let builder = Watermarks::builder("loom").timer(&timer).max_parked(1);
        let watermarks: Watermarks<u8> = builder.build().unwrap();
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
                assert_eq!(ending(&mut wait), Some(Err(WaitError::Expired)));
                assert_eq!(cancelled, 0);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(watermarks.waits().len(), 0);
    });
}

/// A late advance of the epoch before comes first and is undone, or comes later and is refused.
#[test]
fn epoch_against_late_advance() {
    check(&[Failpoint::EpochComparedUnlocked], || {
        let (timer, watermarks) = watermarks();
        let old_leader = watermarks.clone();
        let old_leader = thread::spawn(move || old_leader.in_epoch(&1, 0).advance(9));
        watermarks.begin_epoch(&1, 1, 2).unwrap();
        let mut wait = watermarks.wait_for(&1, 3, MS);
        _ = old_leader.join().unwrap();
        let of = (watermarks.value(&1), watermarks.epoch(&1));
        assert_eq!(of, (Some(2), Some(1)));
        timer.advance(MS);
        assert_eq!(ending(&mut wait), Some(Err(WaitError::Expired)));
    });
}
