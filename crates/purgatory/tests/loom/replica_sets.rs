//! Replica sets: reports race changes of the set.

use purgatory::{CancelReason, ReplicaSets, Rule, WaitError};
use timer_core::ManualTimer;

use super::{MS, beside, check, ending, failpoints::Failpoint};

const GROUP: u8 = 1;
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;

struct Sets {
    sets: ReplicaSets<u8, u8>,
    _timer: ManualTimer,
}

impl Sets {
    /// Creates a group in epoch 0.
    fn new(members: &[(u8, u64)], rule: Rule) -> Self {
        let _timer = ManualTimer::new();
        let sets = ReplicaSets::builder("loom").timer(&_timer);
        let sets: ReplicaSets<u8, u8> = sets.build().unwrap();
        let log_end = members.iter().map(|of| of.1).max().unwrap();
        let members = members.iter().copied();
        sets.set(&GROUP, 0, members, log_end, rule).unwrap();
        Sets { sets, _timer }
    }

    /// Waits for a value in this epoch.
    fn wait(&self, epoch: u64, value: u64) -> purgatory::WaitFuture<u64> {
        self.sets.in_epoch(&GROUP, epoch).wait_for(value, MS)
    }
}

fn epoch_over(ended: Option<Result<u64, WaitError>>) -> bool {
    matches!(
        ended,
        Some(Err(WaitError::Cancelled(CancelReason::EpochOver { .. })))
    )
}

/// A member joins while an epoch begins: it is in the last epoch, and in the new one with the
/// others, or it is refused.
#[test]
fn join_against_an_epoch_of_the_same_members() {
    check(&[Failpoint::SetChangedInCopy], || {
        let model = Sets::new(&[(A, 0)], Rule::all());
        let mut old = model.wait(0, 1);
        let join = beside(&model.sets, |sets| sets.in_epoch(&GROUP, 0).join(B, 0));
        assert_eq!(model.sets.begin_epoch(&GROUP, 1, &A, 0), Ok(1));
        let joined = join.join().unwrap();
        assert!(epoch_over(ending(&mut old)));
        let members = model.sets.members(&GROUP);
        match joined {
            Ok(_) => assert_eq!(members, [(A, 0), (B, 0)], "it has joined"),
            Err(_) => assert_eq!(members, [(A, 0)]),
        }
    });
}

/// An acknowledging report races a new epoch: it comes first, or it is refused.
#[test]
fn acknowledging_report_against_a_new_epoch() {
    check(&[Failpoint::ReportEpochComparedUnlocked], || {
        let model = Sets::new(&[(A, 1), (B, 0)], Rule::all());
        let mut old = model.wait(0, 1);
        let report = beside(&model.sets, |sets| sets.in_epoch(&GROUP, 0).report(&B, 1));
        let ended = model.sets.set(&GROUP, 1, [(A, 1), (B, 0)], 1, Rule::all());
        let reported = report.join().unwrap();
        match ending(&mut old) {
            Some(Ok(1)) => assert_eq!((reported, ended), (Ok(1), Ok(0))),
            ended => {
                assert!(epoch_over(ended));
                assert!(matches!(reported, Err(WaitError::OtherEpoch { .. })));
            }
        }
        assert_eq!(model.sets.epoch(&GROUP), Some(1));
    });
}

/// A leader steps down in its own epoch. A report comes first or is refused; a wait is met,
/// cancelled or refused, and is never left.
#[test]
fn stepping_down_against_wait_and_report() {
    let faults = [
        Failpoint::ValueComparedUnlocked,
        Failpoint::ReportAdvancesUnlocked,
        Failpoint::EpochAnswersLast,
    ];
    check(&faults, || {
        let model = Sets::new(&[(A, 1), (B, 0)], Rule::all());
        let report = beside(&model.sets, |sets| sets.in_epoch(&GROUP, 0).report(&B, 1));
        let leader = beside(&model.sets, |sets| sets.follow(&GROUP, 0).unwrap());
        let mut wait = model.wait(0, 1);
        let reported = report.join().unwrap();
        let over = leader.join().unwrap();
        match ending(&mut wait) {
            Some(Ok(1)) => assert!(reported.is_ok() && over == 0),
            Some(Err(WaitError::NoGroup)) => assert_eq!((reported.unwrap_or(0), over), (0, 0)),
            ended => {
                assert!(epoch_over(ended));
                assert_eq!((reported, over), (Err(WaitError::NoGroup), 1));
            }
        }
        assert_eq!(model.sets.waits().len(), 0);
    });
}

/// A report races the removal of its group: the wait ends once, and nothing of the group is left.
#[test]
fn report_against_removal() {
    check(&[Failpoint::ReportAdvancesUnlocked], || {
        let model = Sets::new(&[(A, 1), (B, 0)], Rule::all());
        let mut wait = model.wait(0, 1);
        let report = beside(&model.sets, |sets| sets.in_epoch(&GROUP, 0).report(&B, 1));
        let removed = model.sets.remove(&GROUP);
        let reported = report.join().unwrap();
        match ending(&mut wait) {
            Some(Ok(_)) => assert_eq!((reported, removed), (Ok(1), 0)),
            Some(Err(_)) => assert_eq!((reported, removed), (Err(WaitError::NoGroup), 1)),
            None => panic!("it goes on"),
        }
        let mut later = model.sets.in_epoch(&GROUP, 0).wait_for(1, MS);
        assert_eq!(ending(&mut later), Some(Err(WaitError::NoGroup)));
    });
}

/// A group is removed while one of the same name is made: there is none, or one that works.
#[test]
fn removal_of_no_set_against_a_first_set() {
    check(&[], || {
        let timer = ManualTimer::new();
        let sets = ReplicaSets::<u8, u8>::builder("loom").timer(&timer);
        let sets = sets.build().unwrap();
        let remove = beside(&sets, |other| _ = other.remove(&GROUP));
        sets.set(&GROUP, 1, [(A, 0)], 0, Rule::all()).unwrap();
        remove.join().unwrap();
        if sets.epoch(&GROUP).is_some() {
            let mut wait = sets.in_epoch(&GROUP, 1).wait_for(1, MS);
            assert_eq!(sets.in_epoch(&GROUP, 1).report(&A, 1), Ok(1));
            assert_eq!(ending(&mut wait), Some(Ok(1)));
        }
    });
}

/// A group is removed and made again in the same epoch: no value of the new group meets a wait of
/// the removed one.
#[test]
fn removal_against_the_next_set_of_the_same_epoch() {
    check(&[Failpoint::RemovalCancelsUnlocked], || {
        let timer = ManualTimer::new();
        let sets = ReplicaSets::<u8, u8>::builder("loom").timer(&timer);
        let sets = sets.build().unwrap();
        sets.set(&GROUP, 0, [(A, 0)], 0, Rule::all()).unwrap();
        let mut wait = sets.in_epoch(&GROUP, 0).wait_for(1, MS);
        let next = beside(&sets, |other| {
            other.set(&GROUP, 0, [(A, 1)], 1, Rule::all())
        });
        assert_eq!(sets.remove(&GROUP), 1);
        if let Ok(met) = next.join().unwrap() {
            assert_eq!(met, 0);
        }
        assert!(matches!(ending(&mut wait), Some(Err(_))));
    });
}

/// A member that lacks the record joins before it is acknowledged and holds it back, or is refused.
#[test]
fn report_against_join() {
    check(&[Failpoint::JoinerNeedsNothing], || {
        let model = Sets::new(&[(A, 1), (B, 0)], Rule::all());
        // In epoch 1 the leader starts at 0, so B has all that it has.
        model
            .sets
            .set(&GROUP, 1, [(A, 0), (B, 0)], 0, Rule::all())
            .unwrap();
        model.sets.in_epoch(&GROUP, 1).report(&A, 1).unwrap();
        let mut wait = model.wait(1, 1);
        let report = beside(&model.sets, |sets| {
            sets.in_epoch(&GROUP, 1).report(&B, 1).unwrap()
        });
        let joined = model.sets.in_epoch(&GROUP, 1).join(C, 0);
        let reported = report.join().unwrap();
        match joined {
            Ok(0) => {
                assert_eq!((reported, ending(&mut wait)), (0, None), "without C");
                assert_eq!(model.sets.in_epoch(&GROUP, 1).report(&C, 1), Ok(1));
            }
            refused => {
                let behind = WaitError::Behind { by: 1 };
                assert_eq!((refused, reported), (Err(behind), 1));
            }
        }
        assert_eq!(ending(&mut wait), Some(Ok(1)));
    });
}

/// A wait sees the watermark as it is parked, or the report finds the wait. Its callback runs once.
#[test]
fn report_against_park() {
    check(&[Failpoint::ValueComparedUnlocked], || {
        let model = Sets::new(&[(A, 1), (B, 0)], Rule::all());
        let report = beside(&model.sets, |sets| {
            sets.in_epoch(&GROUP, 0).report(&B, 1).unwrap()
        });
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = calls.clone();
        let then = move |_| _ = counted.fetch_add(1, super::SeqCst);
        model.sets.in_epoch(&GROUP, 0).park(1, MS, then).unwrap();
        report.join().unwrap();
        assert_eq!(calls.load(super::SeqCst), 1);
    });
}

#[test]
fn report_against_report() {
    check(&[Failpoint::SetChangedInCopy], || {
        let model = Sets::new(&[(A, 0), (B, 0)], Rule::all());
        let mut wait = model.wait(0, 1);
        let report = beside(&model.sets, |sets| {
            sets.in_epoch(&GROUP, 0).report(&A, 1).unwrap()
        });
        let own = model.sets.in_epoch(&GROUP, 0).report(&B, 1).unwrap();
        assert_eq!(report.join().unwrap() + own, 1);
        assert_eq!(ending(&mut wait), Some(Ok(1)));
        assert_eq!(model.sets.watermark(&GROUP), Some(1));
    });
}
