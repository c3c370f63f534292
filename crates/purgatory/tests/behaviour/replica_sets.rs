//! `ReplicaSets`: callbacks, members' own code, other types. (Each call is compared with a
//! reference in `models/replica_sets`.)

use std::cell::Cell;

use crate::support::*;

type Sets = ReplicaSets<(), usize>;

/// The only group.
const LOG: () = ();

/// Creates a group in epoch 1, with these values of the members 0, 1, ...
fn group(values: &[u64], rule: Rule) -> (ManualTimer, Sets) {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::on(&timer, "test").unwrap();
    let log_end = values.iter().copied().max().unwrap_or(0);
    let members = (0..).zip(values.iter().copied());
    sets.set(&LOG, 1, members, log_end, rule).unwrap();
    (timer, sets)
}

/// Returns the group in epoch 1.
fn led(sets: &Sets) -> InEpoch<'_, Sets, ()> {
    sets.in_epoch(&LOG, 1)
}

#[test]
fn callback_of_an_epoch_is_called_for_that_alone() {
    let (_timer, sets) = group(&[5, 5], Rule::all());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |number: u32| {
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
    let mut next = led(&sets).wait_for(9, NEVER);
    let mut last = led(&sets).wait_for(20, NEVER);
    assert!(poll(&mut next).is_pending() && poll(&mut last).is_pending());
    assert_eq!(led(&sets).report(&1, 7), Ok(1));
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::Completed]);
    assert_eq!(over(&mut next), Ok(9));
    assert_eq!(over(&mut last), Err(WaitError::Cancelled(epoch_over(1, 2))));
    assert_eq!(sets.members(&LOG), [(3, 20)]);
}

/// A set is accessed under its lock only, so members need no `Sync`.
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
    let sets: ReplicaSets<u32, Hooked> = ReplicaSets::new("test").unwrap();
    let fails = Arc::new(Mutex::new(None));
    let own = fails.clone();
    let a = Hooked::new(0, move |at| {
        let fails = *own.lock().unwrap();
        assert!(fails != Some(at), "a member's code");
    });
    let b = a.like(1);
    let set = [(a.clone(), 9), (b.clone(), 5)];
    sets.set(&1, 1, set, 9, Rule::all()).unwrap();
    let mut wait = sets.in_epoch(&1, 1).wait_for(7, NEVER);
    let panics = |at: At, act: &dyn Fn()| {
        *fails.lock().unwrap() = Some(at);
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
        *fails.lock().unwrap() = None;
        let values: Vec<(u32, u64)> = sets
            .members(&1)
            .iter()
            .map(|(member, value)| (member.number, *value))
            .collect();
        assert_eq!(values, [(0, 9), (1, 5)]);
    };
    panics(At::Eq, &|| _ = sets.in_epoch(&1, 1).report(&b, 7));
    panics(At::Eq, &|| _ = sets.in_epoch(&1, 1).join(a.like(2), 9));
    panics(At::Eq, &|| _ = sets.in_epoch(&1, 1).leave(&b));
    let next = || vec![(a.like(0), 9), (a.like(1), 9)];
    panics(At::Eq, &|| _ = sets.set(&1, 2, next(), 9, Rule::all()));
    panics(At::Clone, &|| _ = sets.members(&1));
    panics(At::Clone, &|| _ = sets.lagging(&1));
    assert!(poll(&mut wait).is_pending());
    assert_eq!(sets.in_epoch(&1, 1).report(&b, 7), Ok(1));
    assert_eq!(over(&mut wait), Ok(7));
}

/// A member is dropped with nothing locked, so its `Drop` may ask for the group.
#[test]
fn members_that_go_are_dropped_unlocked() {
    let sets: ReplicaSets<u32, Hooked> = ReplicaSets::new("test").unwrap();
    let other = sets.clone();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = drops.clone();
    let a = Hooked::new(0, move |at| {
        if at == At::Drop {
            _ = other.watermark(&1);
            _ = other.in_epoch(&9, 2).join(Hooked::plain(200), 0); // no such group
            counted.fetch_add(1, SeqCst);
        }
    });
    let set = || vec![(a.like(0), 9), (a.like(1), 9), (a.like(2), 9)];
    let dropped = |act: &dyn Fn(), count: usize| {
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
    dropped(&|| _ = sets.in_epoch(&1, 2).leave(&a).unwrap(), 1);
    dropped(&|| _ = sets.remove(&1), 2);
}

#[test]
fn values_and_groups_may_be_of_other_types() {
    let sets = ReplicaSets::<String, &str>::new("test").unwrap();
    let sets = sets.with_values::<i64>();
    sets.set("a", 0, [("x", -5), ("y", -9)], -5, Rule::all())
        .unwrap();
    assert_eq!(sets.watermark("a"), Some(-9));
    let mut wait = sets.in_epoch("a", 0).wait_for(-5, NEVER);
    let low = sets.in_epoch("a", 0).report(&"y", -12).unwrap_err();
    let text = "it is 3 behind what it needs to be in the replica set, or to lead it";
    assert_eq!(low.to_string(), text);
    assert_eq!(sets.in_epoch("a", 0).report(&"y", -4), Ok(1));
    assert_eq!(poll(&mut wait), Poll::Ready(Ok(-5)));
}

/// A member lags behind the values of present members, not behind those of one that has left.
#[test]
fn nobody_lags_behind_a_member_that_has_left() {
    let (timer, sets) = group(&[4, 4, 4], Rule::all());
    led(&sets).report(&0, 10).unwrap();
    led(&sets).report(&1, 5).unwrap();
    let since_start = [(2, 4, Duration::ZERO), (1, 5, Duration::ZERO)];
    assert_eq!(sets.lagging(&LOG), since_start);
    timer.advance(SECOND);
    assert_eq!(led(&sets).leave(&0), Ok(0));
    assert_eq!(sets.lagging(&LOG), [(2, 4, SECOND)]);
    led(&sets).join(9, 10).unwrap();
    let lags = sets.lagging(&LOG);
    assert!(lags.contains(&(2, 4, SECOND)) && lags.contains(&(1, 5, Duration::ZERO)));
}

/// Members are named by their machine and the number of its start, so that an earlier start does
/// not count.
#[test]
fn late_report_of_the_last_start_does_not_count() {
    let sets = ReplicaSets::new("test").unwrap();
    let (leader, last_start, this_start) = ("a-1", "b-1", "b-2");
    sets.set(&LOG, 1, [(leader, 5), (last_start, 5)], 5, Rule::all())
        .unwrap();
    let log = sets.in_epoch(&LOG, 1);
    log.leave(&last_start).unwrap(); // the node restarts without its log
    log.report(&leader, 6).unwrap();
    assert_eq!(log.report(&last_start, 6), Err(WaitError::NoMember));
    let behind = WaitError::Behind { by: 6 };
    assert_eq!(log.join(this_start, 0), Err(behind));
    assert_eq!(log.join(this_start, 6), Ok(0));
    log.report(&leader, 7).unwrap();
    assert_eq!(log.report(&last_start, 7), Err(WaitError::NoMember));
    assert_eq!(sets.watermark(&LOG), Some(6));
}

/// An acknowledged record stays so, even if its wait has not ended yet when the set shrinks.
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
