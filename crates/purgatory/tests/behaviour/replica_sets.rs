//! `ReplicaSets`: each method and error, in the orders that a network and its operators give.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use purgatory::{CancelReason, Outcome, ReplicaSets, Rule, WaitError, WaitFuture};
use timer_core::ManualTimer;

use crate::support::{MINUTE, NEVER, poll};

type Sets = ReplicaSets<&'static str, u8>;

const LOG: &str = "orders-0";

fn sets() -> (ManualTimer, Sets) {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::builder("test").timer(&timer).build().unwrap();
    (timer, sets)
}

/// A group in epoch 1 with these values of members 0, 1, ...
fn group(values: &[u64], rule: Rule) -> (ManualTimer, Sets) {
    let (timer, sets) = sets();
    sets.set(&LOG, 1, numbered(values), rule).unwrap();
    (timer, sets)
}

fn numbered(values: &[u64]) -> Vec<(u8, u64)> {
    (0..).zip(values.iter().copied()).collect()
}

/// The end of a wait that is over.
fn ending(wait: &mut WaitFuture<u64>) -> Option<Result<u64, WaitError>> {
    match poll(wait) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
}

fn parked(sets: &Sets, value: u64) -> WaitFuture<u64> {
    let mut wait = sets.wait_for(&LOG, value, NEVER);
    assert_eq!(ending(&mut wait), None);
    wait
}

fn epoch_over(epoch: u64, present: u64) -> Result<u64, WaitError> {
    Err(WaitError::Cancelled(CancelReason::EpochOver {
        epoch,
        present,
    }))
}

fn other_epoch(named: u64, present: u64) -> WaitError {
    WaitError::OtherEpoch { named, present }
}

fn behind(value: u64, needed: u64) -> WaitError {
    WaitError::Behind { by: needed - value }
}

#[test]
fn without_a_set_nothing_is_known() {
    let (_timer, sets) = sets();
    assert_eq!(sets.report(&LOG, &0, 5), Err(WaitError::NoGroup));
    assert_eq!(sets.report_in(&LOG, 1, &0, 5), Err(WaitError::NoGroup));
    assert_eq!(sets.join(&LOG, 0, 5), Err(WaitError::NoGroup));
    assert_eq!(sets.leave(&LOG, &0), Err(WaitError::NoGroup));
    assert_eq!(sets.replace(&LOG, &0, 1, 5), Err(WaitError::NoGroup));
    assert_eq!((sets.watermark(&LOG), sets.epoch(&LOG)), (None, None));
    assert!(sets.members(&LOG).is_empty() && sets.lagging(&LOG).is_empty());
    assert_eq!(sets.remove(&LOG), 0);
}

#[test]
fn first_epoch_0_takes_earlier_waits() {
    let (_timer, sets) = sets();
    let mut met = parked(&sets, 5);
    let mut more = parked(&sets, 6);
    assert_eq!(sets.set(&LOG, 0, [(0, 9), (1, 5)], Rule::all()), Ok(1));
    assert_eq!(ending(&mut met), Some(Ok(5)));
    assert_eq!(sets.report(&LOG, &1, 6), Ok(1));
    assert_eq!(ending(&mut more), Some(Ok(6)));
}

/// A record of the last leader may have been replaced by one of this leader at the same place.
#[test]
fn new_epoch_answers_no_wait_of_the_last() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut old = parked(&sets, 9);
    assert_eq!(sets.set(&LOG, 2, [(0, 12)], Rule::all()), Ok(1));
    assert_eq!(sets.watermark(&LOG), Some(12));
    assert_eq!(ending(&mut old), Some(epoch_over(1, 2)));
    let late = sets.wait_for_in(&LOG, 1, 9, NEVER).wait_blocking();
    let other = WaitError::OtherEpoch {
        named: 1,
        present: 2,
    };
    assert_eq!(late, Err(other));
    assert_eq!(sets.wait_for_in(&LOG, 2, 9, NEVER).wait_blocking(), Ok(12));
}

/// What a follower reported to the last leader is no record of the next one.
#[test]
fn next_leader_begins_with_the_same_members() {
    let (timer, sets) = group(&[9, 5, 7], Rule::all().floor(2));
    sets.lagging(&LOG);
    timer.advance(MINUTE);
    let mut old = parked(&sets, 6);
    assert_eq!(sets.begin_epoch(&LOG, 2, &1, 6), Ok(1));
    assert_eq!(ending(&mut old), Some(epoch_over(1, 2)));
    assert_eq!(sets.members(&LOG), [(0, 5), (1, 6), (2, 5)]);
    assert_eq!(sets.watermark(&LOG), Some(5));
    let lagging = sets.lagging(&LOG);
    let members: Vec<_> = lagging.iter().map(|last| last.0).collect();
    assert_eq!(members, [0, 2]);
    assert!(lagging.iter().all(|last| last.2 == Duration::ZERO), "anew");
    // Each reports anew, and the epoch started at the leader's log end.
    let mut new = parked(&sets, 7);
    assert_eq!(sets.report_in(&LOG, 1, &0, 9), Err(other_epoch(1, 2)));
    assert_eq!(sets.report(&LOG, &1, 7), Ok(0));
    assert_eq!(sets.report(&LOG, &2, 7), Ok(0));
    assert_eq!(ending(&mut new), None, "what 0 has may be another record 7");
    assert_eq!(sets.join(&LOG, 3, 5), Err(behind(5, 6)));
    assert_eq!(sets.report(&LOG, &0, 7), Ok(1));
    assert_eq!(ending(&mut new), Some(Ok(7)));
    // The rule stays, with its floor.
    sets.leave(&LOG, &2).unwrap();
    sets.leave(&LOG, &0).unwrap();
    sets.begin_epoch(&LOG, 3, &1, 8).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(7), "one member of two");
}

#[test]
fn refused_leader_changes_nothing() {
    let (_timer, empty) = sets();
    assert_eq!(empty.begin_epoch(&LOG, 1, &0, 5), Err(WaitError::NoGroup));
    let mut unset = parked(&empty, 5);
    assert_eq!(empty.begin_epoch(&LOG, 1, &0, 5), Err(WaitError::NoGroup));
    assert_eq!(ending(&mut unset), None);

    let (_timer, sets) = group(&[9, 5], Rule::all());
    let mut wait = parked(&sets, 6);
    assert_eq!(sets.begin_epoch(&LOG, 2, &7, 9), Err(WaitError::NoMember));
    assert_eq!(sets.begin_epoch(&LOG, 2, &1, 4), Err(behind(4, 5)));
    for epoch in [0, 1] {
        let begun = sets.begin_epoch(&LOG, epoch, &0, 9);
        assert_eq!(begun, Err(other_epoch(epoch, 1)), "an epoch begins once");
    }
    assert_eq!((sets.epoch(&LOG), ending(&mut wait)), (Some(1), None));
    assert_eq!(sets.members(&LOG), [(0, 9), (1, 5)]);
    sets.close(&LOG, "the partition moves");
    let closed = WaitError::KeyClosed;
    assert_eq!(sets.begin_epoch(&LOG, 2, &0, 9), Err(closed));
}

#[test]
fn callback_of_an_epoch_is_called_for_that_alone() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |number: u8| {
        let told = told.clone();
        move |outcome| told.lock().unwrap().push((number, outcome))
    };
    sets.park_in(&LOG, 1, 9, NEVER, tell(1)).unwrap();
    sets.set(&LOG, 2, [(0, 12)], Rule::all()).unwrap();
    let over = CancelReason::EpochOver {
        epoch: 1,
        present: 2,
    };
    let late = sets.park_in(&LOG, 1, 9, NEVER, tell(2)).unwrap_err();
    let other = WaitError::OtherEpoch {
        named: 1,
        present: 2,
    };
    assert_eq!(late.reason, other);
    sets.park_in(&LOG, 2, 13, NEVER, tell(3)).unwrap();
    sets.report(&LOG, &0, 13).unwrap();
    let ends = [(1, Outcome::Cancelled(over)), (3, Outcome::Completed)];
    assert_eq!(*told.lock().unwrap(), ends);
}

#[test]
fn late_reports_of_an_earlier_epoch_are_refused() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    sets.set(&LOG, 2, [(0, 7), (1, 5)], Rule::all()).unwrap();
    assert_eq!(sets.report_in(&LOG, 1, &1, 9), Err(other_epoch(1, 2)));
    assert_eq!(sets.report_in(&LOG, 3, &1, 9), Err(other_epoch(3, 2)));
    assert_eq!(sets.members(&LOG), [(0, 7), (1, 5)]);
    for epoch in [0, 1, 2] {
        let set = sets.set(&LOG, epoch, [(0, 9)], Rule::all());
        assert_eq!(set, Err(other_epoch(epoch, 2)), "an epoch begins once");
    }
    assert_eq!(sets.members(&LOG).len(), 2);
}

#[test]
fn refused_sets_change_nothing() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut wait = parked(&sets, 6);
    let lacks = sets.set(&LOG, 2, [(0, 4), (1, 3)], Rule::all());
    assert_eq!(lacks, Err(behind(4, 5)), "it was acknowledged");
    let twice = sets.set(&LOG, 2, [(0, 9), (1, 9), (0, 9)], Rule::all());
    assert_eq!(twice, Err(WaitError::IsMember));
    assert_eq!((sets.epoch(&LOG), ending(&mut wait)), (Some(1), None));
    assert_eq!(sets.remove(&LOG), 1);
    sets.set(&LOG, 1, [(0, 4), (1, 3)], Rule::all()).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(3), "it starts anew");
}

#[test]
fn report_of_what_is_acknowledged_is_no_loss() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    assert_eq!(sets.watermark(&LOG), Some(5));
    assert_eq!(sets.report(&LOG, &0, 5), Ok(0));
    assert_eq!(sets.report(&LOG, &0, 4), Err(behind(4, 5)));
}

/// In Raft a follower is behind the commit index nearly always.
#[test]
fn slow_minority_is_no_error() {
    let (_timer, sets) = group(&[4, 0, 0], Rule::majority());
    sets.report(&LOG, &0, 9).unwrap();
    sets.report(&LOG, &1, 9).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(9));
    assert_eq!(sets.report(&LOG, &2, 3), Ok(0));
    assert_eq!(sets.report(&LOG, &2, 8), Ok(0));
    assert_eq!(sets.report(&LOG, &1, 8), Err(behind(8, 9)), "it lost 9");
    assert_eq!(sets.watermark(&LOG), Some(9));
}

#[test]
fn joiner_needs_the_watermark_and_the_start() {
    let (_timer, sets) = group(&[7, 5], Rule::all());
    assert_eq!(sets.watermark(&LOG), Some(5));
    assert_eq!(sets.join(&LOG, 2, 4), Err(behind(4, 7)), "below both");
    assert_eq!(sets.join(&LOG, 2, 6), Err(behind(6, 7)), "below the start");
    assert_eq!(sets.join(&LOG, 2, 7), Ok(0));
    assert_eq!(sets.join(&LOG, 2, 7), Err(WaitError::IsMember));
    sets.report(&LOG, &0, 9).unwrap();
    sets.report(&LOG, &1, 9).unwrap();
    sets.report(&LOG, &2, 8).unwrap();
    assert_eq!(sets.join(&LOG, 3, 7), Err(behind(7, 8)), "acknowledged");
    assert_eq!(sets.join(&LOG, 3, 10), Ok(0), "above the leader's");
    assert_eq!(sets.watermark(&LOG), Some(8));
}

#[test]
fn joiner_of_an_earlier_epoch_is_refused() {
    let (_timer, sets) = group(&[9, 9], Rule::all());
    sets.set(&LOG, 3, numbered(&[9, 9]), Rule::all()).unwrap();
    assert_eq!(sets.join_in(&LOG, 1, 2, 9), Err(other_epoch(1, 3)));
    assert_eq!(sets.members(&LOG).len(), 2);
    assert_eq!(sets.join_in(&LOG, 3, 2, 8), Err(behind(8, 9)));
    assert_eq!(sets.join_in(&LOG, 3, 2, 9), Ok(0));
    assert_eq!(sets.join_in(&"no log", 3, 2, 9), Err(WaitError::NoGroup));
    assert_eq!(sets.members(&LOG), [(0, 9), (1, 9), (2, 9)]);
}

#[test]
fn floor_holds_the_watermark_and_lets_it_go() {
    let (_timer, sets) = group(&[5, 5], Rule::all().floor(2));
    let mut wait = parked(&sets, 6);
    sets.report(&LOG, &0, 9).unwrap();
    assert_eq!(sets.leave(&LOG, &1), Ok(0), "one is too few");
    assert_eq!((sets.watermark(&LOG), ending(&mut wait)), (Some(5), None));
    assert_eq!(sets.report(&LOG, &0, 10), Ok(0));
    assert_eq!(sets.join(&LOG, 1, 4), Err(behind(4, 5)));
    assert_eq!(sets.join(&LOG, 1, 8), Ok(1), "two are enough");
    assert_eq!(ending(&mut wait), Some(Ok(8)));
}

#[test]
fn last_member_that_leaves_acknowledges_nothing() {
    let (_timer, sets) = group(&[5], Rule::all());
    let mut wait = parked(&sets, 6);
    assert_eq!(sets.leave(&LOG, &0), Ok(0));
    assert_eq!(sets.leave(&LOG, &0), Err(WaitError::NoMember));
    assert_eq!((sets.watermark(&LOG), sets.epoch(&LOG)), (Some(5), Some(1)));
    assert_eq!(sets.report(&LOG, &0, 9), Err(WaitError::NoMember), "late");
    assert_eq!(sets.join(&LOG, 1, 4), Err(behind(4, 5)));
    assert_eq!(sets.join(&LOG, 1, 6), Ok(1));
    assert_eq!(ending(&mut wait), Some(Ok(6)));
}

#[test]
fn replacing_is_leaving_and_joining_in_one_step() {
    let (_timer, sets) = group(&[9, 5, 5], Rule::all().floor(3));
    assert_eq!(sets.replace(&LOG, &7, 8, 9), Err(WaitError::NoMember));
    assert_eq!(sets.replace(&LOG, &1, 2, 9), Err(WaitError::IsMember));
    assert_eq!(sets.replace(&LOG, &1, 3, 8), Err(behind(8, 9)));
    assert_eq!(sets.members(&LOG), [(0, 9), (1, 5), (2, 5)]);
    let mut wait = parked(&sets, 9);
    assert_eq!(sets.replace(&LOG, &1, 3, 9), Ok(0));
    assert_eq!(sets.replace(&LOG, &2, 2, 9), Ok(1), "it was made anew");
    assert_eq!(sets.members(&LOG), [(0, 9), (3, 9), (2, 9)]);
    assert_eq!(ending(&mut wait), Some(Ok(9)));
}

#[test]
fn majority_counts_its_own_epoch_only() {
    let (_timer, sets) = group(&[7, 7, 7], Rule::majority());
    assert_eq!(sets.watermark(&LOG), Some(0), "all is of earlier terms");
    let mut wait = parked(&sets, 6);
    sets.report(&LOG, &0, 8).unwrap();
    assert_eq!(ending(&mut wait), None);
    assert_eq!(sets.report(&LOG, &2, 8), Ok(1));
    assert_eq!(ending(&mut wait), Some(Ok(8)));
    let (_timer, sets) = group(&[1, 0, 0, 0, 0], Rule::majority());
    for member in 0..3 {
        assert_eq!(sets.watermark(&LOG), Some(0));
        sets.report(&LOG, &member, 2).unwrap();
    }
    assert_eq!(sets.watermark(&LOG), Some(2), "three of five");
}

#[test]
fn members_that_come_and_go_move_a_majority() {
    let (_timer, sets) = group(&[1, 0], Rule::majority());
    sets.report(&LOG, &0, 9).unwrap();
    assert_eq!(sets.join(&LOG, 2, 9), Ok(0));
    assert_eq!(sets.watermark(&LOG), Some(9), "two of three");
    let (_timer, sets) = group(&[1, 0, 0, 0], Rule::majority());
    sets.report(&LOG, &0, 9).unwrap();
    sets.report(&LOG, &1, 9).unwrap();
    let mut wait = parked(&sets, 9);
    assert_eq!(sets.leave(&LOG, &3), Ok(1), "two of three");
    assert_eq!(ending(&mut wait), Some(Ok(9)));
}

#[test]
fn fixed_number_of_members_has_to_be_there() {
    let (_timer, sets) = group(&[1, 0, 0], Rule::at_least(2));
    sets.report(&LOG, &0, 9).unwrap();
    sets.report(&LOG, &2, 8).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(8));
    sets.leave(&LOG, &2).unwrap();
    sets.leave(&LOG, &1).unwrap();
    sets.report(&LOG, &0, 12).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(8), "one is fewer than two");
    assert_eq!(sets.join(&LOG, 1, 10), Ok(0));
    assert_eq!(sets.watermark(&LOG), Some(10));
}

/// A wait below the floor is cancelled if the leader says so, with the numbers.
#[test]
fn waits_below_the_floor_say_so() {
    let (_timer, sets) = group(&[9, 9, 9], Rule::all().floor(2));
    let mut wait = parked(&sets, 10);
    sets.leave(&LOG, &2).unwrap();
    assert_eq!(sets.below_floor(&LOG), None);
    assert_eq!(sets.cancel_below_floor(&LOG), 0, "two are enough");
    assert_eq!(ending(&mut wait), None);

    sets.leave(&LOG, &1).unwrap();
    let too_few = CancelReason::BelowFloor {
        members: 1,
        floor: 2,
    };
    assert_eq!(sets.below_floor(&LOG), Some(too_few.clone()));
    assert_eq!((sets.epoch(&LOG), sets.watermark(&LOG)), (Some(1), Some(9)));
    assert_eq!(ending(&mut wait), None, "another member may come");
    assert_eq!(sets.cancel_below_floor(&LOG), 1);
    let below = WaitError::Cancelled(too_few);
    let told = "cancelled: too few replicas: 1, and the floor is 2";
    assert_eq!(
        (below.to_string().as_str(), below.is_shutdown()),
        (told, false)
    );
    assert_eq!(ending(&mut wait), Some(Err(below)));

    // The group goes on: a later wait is met once the set has grown.
    let mut later = parked(&sets, 10);
    sets.report(&LOG, &0, 10).unwrap();
    assert_eq!(sets.join(&LOG, 1, 10), Ok(1));
    assert_eq!(ending(&mut later), Some(Ok(10)));
    assert_eq!(sets.waits().stats().cancelled, 1);
}

#[test]
fn fewest_members_are_those_that_the_rule_needs() {
    let below = |rule: Rule, members: &[u64]| {
        let (_timer, sets) = group(members, rule);
        sets.below_floor(&LOG)
    };
    let too_few = |members, floor| Some(CancelReason::BelowFloor { members, floor });
    assert_eq!(below(Rule::all(), &[]), too_few(0, 1));
    assert_eq!(below(Rule::all(), &[1]), None);
    assert_eq!(below(Rule::majority().floor(3), &[1, 1]), too_few(2, 3));
    assert_eq!(below(Rule::at_least(2), &[1]), too_few(1, 2));
    assert_eq!(below(Rule::at_least(2).floor(3), &[1, 1]), too_few(2, 3));
    assert_eq!(below(Rule::at_least(2).floor(3), &[1, 1, 1]), None);
    let (_timer, sets) = sets();
    let mut wait = parked(&sets, 1);
    assert_eq!(
        (sets.below_floor(&LOG), sets.cancel_below_floor(&LOG)),
        (None, 0)
    );
    assert_eq!(ending(&mut wait), None, "a group without a set");
}

#[test]
fn looks_remember_since_when_a_member_lags() {
    let (timer, sets) = group(&[9, 7, 8], Rule::all());
    let seconds = |sets: &Sets| -> Vec<(u8, u64, u64)> {
        let lagging = sets.lagging(&LOG).into_iter();
        let shown = lagging.map(|(name, value, lagged_for)| (name, value, lagged_for.as_secs()));
        shown.collect()
    };
    timer.advance(MINUTE);
    assert_eq!(seconds(&sets), [(1, 7, 0), (2, 8, 0)]);
    timer.advance(Duration::from_secs(5));
    sets.report(&LOG, &1, 8).unwrap(); // nearer, not there
    sets.report(&LOG, &2, 9).unwrap(); // caught up
    assert_eq!(seconds(&sets), [(1, 8, 5)]);
    sets.report(&LOG, &0, 10).unwrap();
    timer.advance(Duration::from_secs(5));
    assert_eq!(seconds(&sets), [(1, 8, 10), (2, 9, 0)]);
    sets.report(&LOG, &1, 11).unwrap(); // it has most now
    assert_eq!(seconds(&sets), [(2, 9, 0), (0, 10, 0)]);
    sets.set(&LOG, 2, [(1, 11), (2, 9)], Rule::all()).unwrap();
    assert_eq!(seconds(&sets), [(2, 9, 0)], "anew in a new epoch");
    // It catches up and lags again between two looks: from then on.
    timer.advance(Duration::from_secs(5));
    sets.report(&LOG, &2, 11).unwrap();
    sets.report(&LOG, &1, 12).unwrap();
    assert_eq!(seconds(&sets), [(2, 11, 0)], "it had caught up");
}

#[test]
fn late_report_after_removal_finds_no_group() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut wait = parked(&sets, 6);
    assert_eq!(sets.remove(&LOG), 1);
    assert!(matches!(
        ending(&mut wait),
        Some(Err(WaitError::Cancelled(CancelReason::Requested(_))))
    ));
    assert_eq!(sets.report_in(&LOG, 1, &0, 9), Err(WaitError::NoGroup));
    let mut unset = parked(&sets, 6);
    assert_eq!(sets.remove(&LOG), 1, "a wait without a set");
    assert!(ending(&mut unset).unwrap().is_err());
    assert!(sets.waits().is_empty());
}

#[test]
fn closed_group_ends_waits_and_refuses_the_rest() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut wait = parked(&sets, 6);
    assert_eq!(sets.close(&LOG, "the partition moves"), 1);
    assert!(ending(&mut wait).unwrap().unwrap_err().is_shutdown());
    let late = sets.wait_for(&LOG, 5, NEVER).wait_blocking();
    assert!(late.unwrap_err().is_shutdown());
    let refused = Err(WaitError::KeyClosed);
    for member in [0, 1] {
        assert_eq!(sets.report(&LOG, &member, 9), refused);
    }
    assert_eq!(sets.watermark(&LOG), Some(5), "a refused report counts");
    assert_eq!(sets.members(&LOG), [(0, 5), (1, 5)]);
    assert_eq!(sets.leave(&LOG, &0), refused);
    assert_eq!(sets.set(&LOG, 2, [(0, 9)], Rule::all()), refused);
    assert_eq!(sets.remove(&LOG), 0);
    assert_eq!(sets.set(&LOG, 1, [(0, 9)], Rule::all()), Ok(0));
}

#[test]
fn callbacks_call_back() {
    let (_timer, sets) = group(&[9, 5], Rule::all());
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let seen = outcomes.clone();
    let other = sets.clone();
    let then = move |outcome| {
        seen.lock().unwrap().push(outcome);
        other.report(&LOG, &1, 9).unwrap();
        assert_eq!(other.watermark(&LOG), Some(9));
        other.leave(&LOG, &1).unwrap();
        other.set(&LOG, 2, [(3, 20)], Rule::all()).unwrap();
    };
    sets.park(&LOG, 6, NEVER, then).unwrap();
    let mut next = parked(&sets, 9);
    let mut last = parked(&sets, 20);
    assert_eq!(sets.report(&LOG, &1, 7), Ok(1));
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::Completed]);
    assert_eq!(ending(&mut next), Some(Ok(9)));
    assert_eq!(ending(&mut last), Some(epoch_over(1, 2)));
    assert_eq!(sets.members(&LOG), [(3, 20)]);
}

/// The thing that a member's code does at its next call.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Fails {
    Never,
    Eq,
    Clone,
}

/// A member whose `Eq` and `Clone` panic when told to, and whose `Drop` calls back.
struct Hostile {
    number: u8,
    fails: Arc<AtomicU8>,
    calls: Weak<dyn Fn() + Send + Sync>,
}

impl Hostile {
    fn fails(&self, at: Fails) {
        assert!(self.fails.load(SeqCst) != at as u8, "a member's code");
    }

    fn like(&self, number: u8) -> Self {
        Hostile {
            number,
            fails: self.fails.clone(),
            calls: self.calls.clone(),
        }
    }
}

impl PartialEq for Hostile {
    fn eq(&self, other: &Self) -> bool {
        self.fails(Fails::Eq);
        self.number == other.number
    }
}

impl Eq for Hostile {}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        self.fails(Fails::Clone);
        self.like(self.number)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if let Some(call) = self.calls.upgrade() {
            call();
        }
    }
}

#[test]
fn panics_of_members_change_nothing_and_lock_nothing() {
    let sets: ReplicaSets<u8, Hostile> = ReplicaSets::new("test").unwrap();
    let calls: Arc<dyn Fn() + Send + Sync> = Arc::new(|| ());
    let a = Hostile {
        number: 0,
        fails: Arc::default(),
        calls: Arc::downgrade(&calls),
    };
    let b = a.like(1);
    let set = [(a.clone(), 9), (b.clone(), 5)];
    sets.set(&1, 1, set, Rule::all()).unwrap();
    let mut wait = sets.wait_for(&1, 7, NEVER);
    let panics = |at: Fails, act: &dyn Fn()| {
        a.fails.store(at as u8, SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
        a.fails.store(Fails::Never as u8, SeqCst);
        let values: Vec<(u8, u64)> = sets
            .members(&1)
            .iter()
            .map(|(member, value)| (member.number, *value))
            .collect();
        assert_eq!(values, [(0, 9), (1, 5)]);
    };
    panics(Fails::Eq, &|| _ = sets.report(&1, &b, 7));
    panics(Fails::Eq, &|| _ = sets.join(&1, a.like(2), 9));
    panics(Fails::Eq, &|| _ = sets.leave(&1, &b));
    panics(Fails::Eq, &|| _ = sets.replace(&1, &b, a.like(2), 9));
    let next = || vec![(a.like(0), 9), (a.like(1), 9)];
    panics(Fails::Eq, &|| _ = sets.set(&1, 2, next(), Rule::all()));
    panics(Fails::Clone, &|| _ = sets.members(&1));
    panics(Fails::Clone, &|| _ = sets.lagging(&1));
    assert_eq!(ending(&mut wait), None);
    assert_eq!(sets.report(&1, &b, 7), Ok(1));
    assert_eq!(ending(&mut wait), Some(Ok(7)));
}

/// A member is dropped with nothing locked: its `Drop` may ask for the group.
#[test]
fn members_that_go_are_dropped_unlocked() {
    let sets: ReplicaSets<u8, Hostile> = ReplicaSets::new("test").unwrap();
    let other = sets.clone();
    let drops = Arc::new(AtomicU8::new(0));
    let counted = drops.clone();
    let calls: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        _ = other.watermark(&1);
        _ = other.join(&9, unheard(), 0); // a group that is not there
        counted.fetch_add(1, SeqCst);
    });
    let a = Hostile {
        number: 0,
        fails: Arc::default(),
        calls: Arc::downgrade(&calls),
    };
    let set = || vec![(a.like(0), 9), (a.like(1), 9), (a.like(2), 9)];
    let dropped = |act: &dyn Fn(), count: u8| {
        drops.store(0, SeqCst);
        act();
        assert_eq!(drops.load(SeqCst), count);
    };
    dropped(&|| _ = sets.set(&1, 1, set(), Rule::all()), 0);
    dropped(&|| _ = sets.set(&1, 1, set(), Rule::all()).unwrap_err(), 3);
    dropped(&|| _ = sets.set(&1, 2, set(), Rule::all()), 3);
    dropped(&|| _ = sets.join(&1, a.like(2), 9).unwrap_err(), 1);
    dropped(&|| _ = sets.join(&1, a.like(3), 8).unwrap_err(), 1);
    dropped(&|| _ = sets.join(&2, a.like(3), 9).unwrap_err(), 1);
    dropped(&|| _ = sets.replace(&1, &a, a.like(3), 8).unwrap_err(), 1);
    dropped(&|| _ = sets.replace(&1, &a, a.like(3), 9).unwrap(), 1);
    let third = a.like(3);
    dropped(&|| _ = sets.leave(&1, &third).unwrap(), 1);
    dropped(&|| _ = sets.remove(&1), 2);
}

/// A member whose drop calls nobody.
fn unheard() -> Hostile {
    let nobody: Weak<fn()> = Weak::new();
    Hostile {
        number: 200,
        fails: Arc::default(),
        calls: nobody,
    }
}

#[test]
fn values_and_groups_may_be_of_other_types() {
    let sets = ReplicaSets::<String, char>::new("test").unwrap();
    let sets = sets.with_values::<i64>();
    sets.set("a", 0, [('x', -5), ('y', -9)], Rule::all())
        .unwrap();
    assert_eq!(sets.watermark("a"), Some(-9));
    let mut wait = sets.wait_for("a", -5, NEVER);
    let low = sets.report("a", &'y', -12).unwrap_err();
    let text = "it is 3 behind what it needs to be in the replica set";
    assert_eq!(low.to_string(), text);
    assert_eq!(sets.report("a", &'y', -4), Ok(1));
    assert_eq!(poll(&mut wait), Poll::Ready(Ok(-5)));
}
