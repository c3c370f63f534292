//! `ReplicaSets`: callbacks, members' own code, other types. (Each call beside a reference:
//! `models/replica_sets`.)

use std::{cell::Cell, sync::atomic::AtomicU8};

use crate::support::*;

type Sets = ReplicaSets<&'static str, u8>;

const LOG: &str = "orders-0";

fn sets() -> (ManualTimer, Sets) {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::on(&timer, "test").unwrap();
    (timer, sets)
}

/// A group in epoch 1 with these values of members 0, 1, ...
fn group(values: &[u64], rule: Rule) -> (ManualTimer, Sets) {
    let (timer, sets) = sets();
    let log_end = values.iter().copied().max().unwrap_or(0);
    sets.set(&LOG, 1, numbered(values), log_end, rule).unwrap();
    (timer, sets)
}

/// The group in epoch 1.
fn led(sets: &Sets) -> InEpoch<'_, Sets, &'static str> {
    sets.in_epoch(&LOG, 1)
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
    let mut wait = led(sets).wait_for(value, NEVER);
    assert_eq!(ending(&mut wait), None);
    wait
}

/// The end of a wait of epoch 1, as epoch 2 has begun.
fn epoch_1_over() -> Option<Result<u64, WaitError>> {
    Some(Err(WaitError::Cancelled(epoch_over(1, 2))))
}

#[test]
fn callback_of_an_epoch_is_called_for_that_alone() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |number: u8| {
        let told = told.clone();
        move |outcome| told.lock().unwrap().push((number, outcome))
    };
    led(&sets).park(9, NEVER, tell(1)).unwrap();
    sets.set(&LOG, 2, [(0, 12)], 12, Rule::all()).unwrap();
    let late = led(&sets).park(9, NEVER, tell(2)).unwrap_err();
    assert_eq!(late.reason, other_epoch(1, 2));
    sets.in_epoch(&LOG, 2).park(13, NEVER, tell(3)).unwrap();
    sets.in_epoch(&LOG, 2).report(&0, 13).unwrap();
    let ends = [
        (1, Outcome::Cancelled(epoch_over(1, 2))),
        (3, Outcome::Completed),
    ];
    assert_eq!(*told.lock().unwrap(), ends);
}

/// As a report does, in each epoch.
#[test]
fn wait_in_an_epoch_of_no_group_is_refused() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    assert_eq!(sets.remove(&LOG), 0);
    for log in [LOG, "never set"] {
        for epoch in [0, 1] {
            let mut wait = sets.in_epoch(&log, epoch).wait_for(9, NEVER);
            assert_eq!(ending(&mut wait), Some(Err(WaitError::NoGroup)));
            let refused = sets.in_epoch(&log, epoch).park(9, NEVER, drop).unwrap_err();
            assert_eq!(refused.reason, WaitError::NoGroup);
            assert_eq!(
                sets.in_epoch(&log, epoch).report(&0, 9),
                Err(WaitError::NoGroup)
            );
        }
    }
    assert!(sets.waits().is_empty());
}

#[test]
fn callbacks_call_back() {
    let (_timer, sets) = group(&[9, 5], Rule::all());
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let seen = outcomes.clone();
    let other = sets.clone();
    let then = move |outcome| {
        seen.lock().unwrap().push(outcome);
        led(&other).report(&1, 9).unwrap();
        assert_eq!(other.watermark(&LOG), Some(9));
        led(&other).leave(&1).unwrap();
        other.set(&LOG, 2, [(3, 20)], 20, Rule::all()).unwrap();
    };
    led(&sets).park(6, NEVER, then).unwrap();
    let mut next = parked(&sets, 9);
    let mut last = parked(&sets, 20);
    assert_eq!(led(&sets).report(&1, 7), Ok(1));
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::Completed]);
    assert_eq!(ending(&mut next), Some(Ok(9)));
    assert_eq!(ending(&mut last), epoch_1_over());
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

/// A set is looked at under its lock alone.
#[test]
fn members_need_no_sync() {
    let sets = ReplicaSets::new("test").unwrap();
    let member = Cell::new(0);
    sets.set(&LOG, 0, [(member.clone(), 7)], 7, Rule::all())
        .unwrap();
    let elsewhere = thread::spawn(move || sets.in_epoch(&LOG, 0).report(&Cell::new(0), 8));
    assert_eq!(elsewhere.join().unwrap(), Ok(0));
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
    sets.set(&1, 1, set, 9, Rule::all()).unwrap();
    let mut wait = sets.in_epoch(&1, 1).wait_for(7, NEVER);
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
    panics(Fails::Eq, &|| _ = sets.in_epoch(&1, 1).report(&b, 7));
    panics(Fails::Eq, &|| _ = sets.in_epoch(&1, 1).join(a.like(2), 9));
    panics(Fails::Eq, &|| _ = sets.in_epoch(&1, 1).leave(&b));
    panics(Fails::Eq, &|| {
        _ = sets.in_epoch(&1, 1).replace(&b, a.like(2), 9)
    });
    let next = || vec![(a.like(0), 9), (a.like(1), 9)];
    panics(Fails::Eq, &|| _ = sets.set(&1, 2, next(), 9, Rule::all()));
    panics(Fails::Clone, &|| _ = sets.members(&1));
    panics(Fails::Clone, &|| _ = sets.lagging(&1));
    assert_eq!(ending(&mut wait), None);
    assert_eq!(sets.in_epoch(&1, 1).report(&b, 7), Ok(1));
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
        _ = other.in_epoch(&9, 2).join(unheard(), 0); // a group that is not there
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
    dropped(&|| _ = sets.set(&1, 1, set(), 9, Rule::all()), 0);
    dropped(
        &|| _ = sets.set(&1, 1, set(), 9, Rule::all()).unwrap_err(),
        3,
    );
    dropped(&|| _ = sets.set(&1, 2, set(), 9, Rule::all()), 3);
    dropped(&|| _ = sets.begin_epoch(&1, 3, &a, 8).unwrap_err(), 3);
    dropped(
        &|| _ = sets.in_epoch(&1, 2).join(a.like(2), 9).unwrap_err(),
        1,
    );
    dropped(
        &|| _ = sets.in_epoch(&1, 2).join(a.like(3), 8).unwrap_err(),
        1,
    );
    dropped(
        &|| _ = sets.in_epoch(&2, 2).join(a.like(3), 9).unwrap_err(),
        1,
    );
    dropped(
        &|| _ = sets.in_epoch(&1, 2).replace(&a, a.like(3), 8).unwrap_err(),
        1,
    );
    dropped(
        &|| _ = sets.in_epoch(&1, 2).replace(&a, a.like(3), 9).unwrap(),
        1,
    );
    let third = a.like(3);
    dropped(&|| _ = sets.in_epoch(&1, 2).leave(&third).unwrap(), 1);
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
    sets.set("a", 0, [('x', -5), ('y', -9)], -5, Rule::all())
        .unwrap();
    assert_eq!(sets.watermark("a"), Some(-9));
    let mut wait = sets.in_epoch("a", 0).wait_for(-5, NEVER);
    let low = sets.in_epoch("a", 0).report(&'y', -12).unwrap_err();
    let text = "it is 3 behind what it needs to be in the replica set, or to lead it";
    assert_eq!(low.to_string(), text);
    assert_eq!(sets.in_epoch("a", 0).report(&'y', -4), Ok(1));
    assert_eq!(poll(&mut wait), Poll::Ready(Ok(-5)));
}

/// Also a group that is closed before its first set comes.
#[test]
fn a_closed_group_refuses_each_change() {
    let (_timer, sets) = sets();
    assert_eq!(led(&sets).report(&0, 7), Err(WaitError::NoGroup));
    assert_eq!(sets.close(&LOG, "not ours"), 0);
    let refused = [
        sets.set(&LOG, 1, [(0, 7)], 7, Rule::all()),
        sets.follow(&LOG, 1),
        sets.begin_epoch(&LOG, 1, &0, 7),
        led(&sets).report(&0, 7),
        led(&sets).join(0, 7),
        led(&sets).leave(&0),
        led(&sets).replace(&0, 1, 7),
    ];
    assert_eq!(refused, [const { Err(WaitError::KeyClosed) }; 7]);
}

/// A leader that lacks what was acknowledged acknowledges nothing, whoever else has it: no more
/// than its log counts of them.
#[test]
fn a_leader_that_lacks_what_was_acknowledged_is_refused() {
    let (_timer, sets) = group(&[6, 6, 2], Rule::all().floor(2));
    led(&sets).leave(&2).unwrap();
    assert_eq!(sets.watermark(&LOG), Some(6));
    for rule in [Rule::all(), Rule::majority(), Rule::at_least(2)] {
        let by_third = sets.set(&LOG, 2, [(2, 2), (0, 6), (1, 6)], 2, rule);
        assert_eq!(by_third, Err(WaitError::Behind { by: 4 }));
    }
    assert_eq!((sets.epoch(&LOG), sets.watermark(&LOG)), (Some(1), Some(6)));
    sets.set(&LOG, 2, [(0, 9), (1, 9)], 7, Rule::all()).unwrap();
    assert_eq!(sets.members(&LOG), [(0, 7), (1, 7)]);
    assert_eq!(sets.watermark(&LOG), Some(7));
}

/// Below its floor, too, where the watermark does not rise with the leader.
#[test]
fn members_join_at_the_log_end_of_the_leader() {
    let (_timer, sets) = sets();
    for epoch in [0, 1] {
        let rule = Rule::all().floor(2);
        sets.set(&LOG, epoch, [(0, 42)], 42, rule).unwrap();
        let low = sets.in_epoch(&LOG, epoch).join(1, 5);
        assert_eq!(low, Err(WaitError::Behind { by: 37 }));
        assert_eq!(sets.watermark(&LOG), Some(0));
    }
}

/// The waits stay, and what was acknowledged.
#[test]
fn a_rule_changes_on_a_live_group() {
    let (_timer, sets) = group(&[9, 5], Rule::all().floor(3));
    let [mut low, mut high, mut own] = [5, 7, 10].map(|value| parked(&sets, value));
    assert_eq!(led(&sets).set_rule(Rule::all().floor(2)), Ok(1));
    assert_eq!(ending(&mut low), Some(Ok(5)));

    // Stricter: the watermark holds, and then what was reported meanwhile is acknowledged.
    assert_eq!(led(&sets).set_rule(Rule::all().floor(3)), Ok(0));
    assert_eq!(led(&sets).report(&1, 8), Ok(0));
    assert_eq!((ending(&mut high), sets.watermark(&LOG)), (None, Some(5)));
    assert_eq!(led(&sets).set_rule(Rule::all()), Ok(1));
    assert_eq!(ending(&mut high), Some(Ok(8)));

    // What is of earlier epochs, up to 9, does not count by this rule.
    assert_eq!(led(&sets).set_rule(Rule::at_least(1)), Ok(0));
    assert_eq!((ending(&mut own), sets.watermark(&LOG)), (None, Some(8)));
    assert_eq!(led(&sets).report(&0, 10), Ok(1));
    assert_eq!(ending(&mut own), Some(Ok(10)));

    let nowhere = sets.in_epoch(&"never set", 1).set_rule(Rule::all());
    assert_eq!(nowhere, Err(WaitError::NoGroup));
}

/// The leader of epoch 1 learns of epoch 2, which another one leads.
#[test]
fn an_epoch_of_another_leader_refuses_the_last_one() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut wait = parked(&sets, 9);
    assert_eq!(sets.follow(&LOG, 2), Ok(1));
    assert_eq!(ending(&mut wait), epoch_1_over());
    let other = other_epoch(1, 2);
    assert_eq!(led(&sets).report(&0, 9), Err(other.clone()));
    assert_eq!(led(&sets).join(0, 9), Err(other.clone()));
    assert_eq!(led(&sets).leave(&0), Err(other.clone()));
    assert_eq!(led(&sets).set_rule(Rule::all()), Err(other.clone()));
    let mut late = led(&sets).wait_for(9, NEVER);
    assert_eq!(ending(&mut late), Some(Err(other)));
    // The set is with the other leader: here it is none, and no member is missing.
    let here = sets.in_epoch(&LOG, 2);
    for refused in [
        here.report(&0, 9),
        here.join(0, 9),
        here.leave(&0),
        here.replace(&0, 1, 9),
        here.set_rule(Rule::all().floor(2)),
        sets.begin_epoch(&LOG, 3, &0, 9),
    ] {
        assert_eq!(refused, Err(WaitError::NoGroup));
    }
    assert_eq!(sets.below_floor(&LOG), None);
    assert_eq!(sets.members(&LOG), []);
    assert_eq!(sets.watermark(&LOG), Some(5));
    assert_eq!(sets.follow(&LOG, 1), Err(other_epoch(1, 2)));
    assert_eq!(sets.follow(&LOG, 2), Ok(0));
    assert_eq!(sets.set(&LOG, 3, [(0, 5)], 5, Rule::all()), Ok(0));
}

/// It hears no majority. Who leads next, and when, it does not know.
#[test]
fn leader_that_steps_down_ends_its_waits() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let mut wait = parked(&sets, 9);
    assert_eq!(sets.follow(&LOG, 1), Ok(1));
    let over = ending(&mut wait);
    let reason = WaitError::Cancelled(epoch_over(1, 1));
    assert_eq!(over, Some(Err(reason.clone())));
    assert_eq!(
        reason.to_string(),
        "cancelled: its epoch 1 is not led here any more"
    );
    assert_eq!((sets.epoch(&LOG), sets.watermark(&LOG)), (Some(1), Some(5)));

    // What it appended just before is refused, and what comes late counts no more.
    for threshold in [5, 9] {
        let mut late = led(&sets).wait_for(threshold, NEVER);
        assert_eq!(ending(&mut late), Some(Err(WaitError::NoGroup)));
        let refused = led(&sets).park(threshold, NEVER, drop).unwrap_err();
        assert_eq!(refused.reason, WaitError::NoGroup);
    }
    assert_eq!(led(&sets).report(&0, 9), Err(WaitError::NoGroup));
    assert_eq!(sets.follow(&LOG, 1), Ok(0));
    let again = sets.set(&LOG, 1, numbered(&[9, 9]), 9, Rule::all());
    assert_eq!(again, Err(other_epoch(1, 1)));
    let next = sets.set(&LOG, 2, numbered(&[9, 5]), 9, Rule::all());
    assert_eq!((next, sets.watermark(&LOG)), (Ok(0), Some(5)));
}

/// The leader of epoch 1 comes late.
#[test]
fn late_replacement_leaves_the_set_of_the_next_leader() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    sets.set(&LOG, 2, [(0, 5), (1, 5)], 5, Rule::all()).unwrap();
    let other = WaitError::OtherEpoch {
        named: 1,
        present: 2,
    };
    assert_eq!(led(&sets).replace(&1, 7, 9), Err(other));
    assert_eq!(sets.members(&LOG), [(0, 5), (1, 5)]);
    assert_eq!(sets.in_epoch(&LOG, 2).replace(&1, 7, 9), Ok(0));
    assert_eq!(sets.members(&LOG), [(0, 5), (7, 9)]);
}

/// A member lags behind what is there: not behind one that has left, or was replaced, meanwhile.
#[test]
fn nobody_lags_behind_a_member_that_has_left() {
    type Goes = fn(&Sets);
    let ways: [Goes; 2] = [
        |sets| assert_eq!(led(sets).leave(&0), Ok(0)),
        |sets| assert_eq!(led(sets).replace(&0, 3, 5), Ok(0)),
    ];
    for goes in ways {
        let (timer, sets) = group(&[4, 4, 4], Rule::all());
        led(&sets).report(&0, 10).unwrap();
        led(&sets).report(&1, 5).unwrap();
        let since_start = [(2, 4, Duration::ZERO), (1, 5, Duration::ZERO)];
        assert_eq!(sets.lagging(&LOG), since_start);
        timer.advance(SECOND);
        goes(&sets);
        assert_eq!(sets.lagging(&LOG), [(2, 4, SECOND)]);
        led(&sets).join(9, 10).unwrap();
        let lags = sets.lagging(&LOG);
        assert!(lags.contains(&(2, 4, SECOND)) && lags.contains(&(1, 5, Duration::ZERO)));
    }
}

/// A record that is acknowledged stays so, though its wait is not over yet as the set shrinks.
#[test]
fn waits_that_a_report_reaches_are_above_the_floor() {
    let (_timer, sets) = group(&[5, 5], Rule::all().floor(2));
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..100 {
        let inside = sets.clone();
        let outcomes = outcomes.clone();
        let then = move |outcome| {
            outcomes.lock().unwrap().push(outcome);
            _ = led(&inside).leave(&1);
            inside.cancel_below_floor(&LOG);
        };
        led(&sets).park(9, NEVER, then).unwrap();
    }
    led(&sets).report(&0, 9).unwrap();
    assert_eq!(led(&sets).report(&1, 9), Ok(64));
    assert_eq!(*outcomes.lock().unwrap(), vec![Completed; 100]);
}
