//! Reaching parked operations: take them out, change them while they are parked, list them. A lock
//! manager uses this to update a waiter, remove one and dump all.
#![cfg(not(loom))]

use crate::support::*;

/// A transaction that waits for another transaction's lock.
struct Waiter {
    transaction: u64,
    /// The transaction that holds the lock.
    holder: u64,
    answers: mpsc::Sender<(u64, Outcome)>,
}

impl DelayedOperation for Waiter {
    fn try_complete(&mut self) -> bool {
        false // woken by the release of the lock
    }

    fn on_complete(self, outcome: Outcome) {
        let _ = self.answers.send((self.transaction, outcome));
    }
}

/// Its future knows only the id of the first park.
#[test]
fn a_wait_parked_again_is_like_any_other() {
    let (timer, waits): (_, Purgatory<&str>) = by_hand();
    let lost_wakeup = Arc::new(AtomicBool::new(false));
    let wait = |timeout| {
        let seen = lost_wakeup.clone();
        let future = waits.wait(&["a"], timeout, move || seen.load(SeqCst).then_some(7));
        let taken = waits.take(future.id().unwrap()).reached().unwrap();
        (future, waits.park(taken, &["a"], SECOND))
    };

    // An event completes it, as before.
    let (mut future, _) = wait(MINUTE);
    lost_wakeup.store(true, SeqCst);
    assert_eq!(waits.check_and_complete(&"a"), 1);
    assert_eq!(over(&mut future), Ok(7));

    // It has no last check, and the new timeout counts.
    lost_wakeup.store(false, SeqCst);
    let (mut future, _) = wait(MINUTE);
    assert!(!future.reschedule(MINUTE), "it does not know the new id");
    lost_wakeup.store(true, SeqCst);
    timer.advance(SECOND);
    assert_eq!(over(&mut future), Err(WaitError::Expired));

    // A call completes it without a value.
    lost_wakeup.store(false, SeqCst);
    let (mut future, id) = wait(MINUTE);
    assert_eq!(waits.complete(id), ReachResult::Reached(()));
    let said = over(&mut future).unwrap_err().to_string();
    assert_eq!(said, "cancelled: completed without a value");

    // The drop of its future leaves it parked.
    let (future, id) = wait(MINUTE);
    drop(future);
    assert_eq!(waits.len(), 1);
    assert_eq!(waits.cancel(id, "over"), ReachResult::Reached(()));

    // For a wait for the next event, the second park is that event.
    let mut next = waits.next_event(&["a"], MINUTE);
    let taken = waits.take(next.id().unwrap()).reached().unwrap();
    let parked = waits.try_complete_else_watch(taken, &["a"], MINUTE);
    assert_eq!(parked.unwrap(), None);
    assert_eq!(over(&mut next), Ok(()));
    assert_empty(&waits);
}

/// A name that the caller chose before parking finds the operation at any place among its keys; a
/// panic of the closure leaves the operation as it was.
#[test]
fn an_operation_is_reached_by_a_name_of_the_callers() {
    let (_timer, waits): (_, Purgatory<&str, Waiter>) = by_hand();
    let (answers, answered) = mpsc::channel();
    for (transaction, keys) in [(1, ["row", "first"]), (2, ["second", "row"])] {
        let answers = answers.clone();
        let waiter = Waiter {
            transaction,
            holder: 10,
            answers,
        };
        waits.park(waiter, &keys, MINUTE);
    }
    let passed = |waiter: &mut Waiter| mem::replace(&mut waiter.holder, waiter.transaction);
    for (name, was) in [("first", vec![10]), ("second", vec![10]), ("third", vec![])] {
        assert_eq!(waits.with_for_key(name, passed), (was, vec![]));
    }
    let fails = |_: &mut Waiter| -> () { panic!("reached") };
    let reached = AssertUnwindSafe(|| waits.with_for_key("row", fails));
    assert!(catch_unwind(reached).is_err());
    let visits = AssertUnwindSafe(|| waits.for_each(|_, _, _| panic!("visited")));
    assert!(catch_unwind(visits).is_err());
    // The results come in the order of parking.
    let (holders, _) = waits.with_for_key("row", |waiter| waiter.holder);
    assert_eq!(holders, [1, 2]);
    assert_eq!(waits.cancel_for_key("second", "withdrawn"), 1);
    assert_eq!(answered.try_recv(), Ok((2, requested("withdrawn"))));
    assert_eq!(waits.take_for_key("first").0.len(), 1);
    assert!(answered.try_recv().is_err(), "taken without a callback");
    assert_empty(&waits);
}

/// An operation under check is listed by its id, and is otherwise unaffected.
#[test]
fn an_operation_under_check_is_not_missed() {
    let (_timer, waits) = waiting();
    let inside = waits.clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let looks = seen.clone();
    let mut is_first = true;
    let operation = Probe::new().operation().on_check(move || {
        if std::mem::take(&mut is_first) {
            return; // it is being parked
        }
        let mut found = Vec::new();
        inside.for_each(|id, keys, operation| {
            found.push((id, keys.to_vec(), operation.is_none()));
        });
        let (id, keys, is_held) = found.pop().unwrap();
        assert_eq!((keys, is_held), (vec!["a", "b"], true));
        assert_eq!(inside.with(id, |_| ()), ReachResult::UnderCheck);
        assert!(matches!(inside.take(id), ReachResult::UnderCheck));
        let (reached, under_check) = inside.with_for_key(&"a", |_| ());
        assert_eq!((reached, under_check), (vec![], vec![id]));
        let (taken, under_check) = inside.take_for_key(&"a");
        assert!(taken.is_empty());
        assert_eq!(under_check, [id]);
        looks.lock().unwrap().push(id);
    });
    let id = waits.park(operation, &["a", "b", "a"], NEVER);
    assert_eq!(waits.check_and_complete(&"b"), 0);
    assert_eq!(*seen.lock().unwrap(), [id]);
    assert!(waits.take(id).reached().is_some(), "it waits on");
    assert_empty(&waits);
}

/// Once its last check is queued, the expiry of an operation is decided.
#[test]
fn what_has_its_last_check_is_under_check() {
    let later = Later::default();
    let (timer, waits): (_, Waiting) =
        by_hand_with(|builder| builder.executor(later.clone()).check_at_expiry(|_| ()));
    let probe = Probe::new();
    let id = waits.park(probe.operation(), &["a"], SECOND);
    timer.advance(SECOND);
    assert!(matches!(waits.take(id), ReachResult::UnderCheck));
    assert!(!waits.reschedule(id, SECOND));
    later.run();
    assert_eq!(probe.endings(), [Outcome::Expired]);
}

/// Each operation is visited once, and no key is cloned.
#[test]
fn a_dump_of_one_key_each_allocates_nothing() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand();
    for number in 0..10_000 {
        waits.park(never(), &[number], NEVER);
    }
    let mut dump = Vec::with_capacity(10_000);
    let measured = allocation_counter::measure(|| {
        waits.for_each(|id, keys, _| dump.push((id, keys[0])));
    });
    assert_eq!((dump.len(), measured.count_total), (10_000, 0));
}

/// In release builds the call would wait for its own lock.
#[test]
#[cfg(debug_assertions)]
fn a_call_inside_a_closure_panics() {
    let (_timer, waits) = waiting();
    let probe = Probe::new();
    let id = waits.park(probe.operation(), &["a"], NEVER);
    let calls: [&dyn Fn(); 10] = [
        &|| _ = waits.check_and_complete(&"a"),
        &|| _ = waits.cancel(id, "inside"),
        &|| _ = waits.cancel_all("inside"),
        &|| _ = waits.reschedule(id, SECOND),
        &|| _ = waits.with(id, |_| ()),
        &|| waits.for_each(|_, _, _| ()),
        &|| _ = waits.len(),
        &|| _ = waits.stats(),
        &|| _ = waits.snapshot(1),
        &|| _ = waits.shutdown(SECOND),
    ];
    for call in calls {
        let inside = AssertUnwindSafe(|| waits.with(id, |_| call()));
        assert!(catch_unwind(inside).is_err());
        let inside = AssertUnwindSafe(|| waits.for_each(|_, _, _| call()));
        assert!(catch_unwind(inside).is_err());
    }
    assert!(
        !probe.ended() && waits.len() == 1,
        "it stays, and nothing is locked"
    );
    assert_eq!(waits.cancel_for_key(&"a", "over"), 1);
    assert_eq!(probe.endings(), [requested("over")]);
}

#[test]
fn a_boxed_operation_is_reached_by_its_type() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let (answers, _answered) = mpsc::channel();
    let waiter = Waiter {
        transaction: 1,
        holder: 2,
        answers,
    };
    let id = waits.park(BoxedOperation::new(waiter), &["row"], NEVER);
    let other = waits.park(when(|| false, drop), &["row"], NEVER);
    let change =
        |boxed: &mut BoxedOperation| boxed.downcast_mut::<Waiter>().map(|it| it.holder = 3);
    assert_eq!(waits.with(id, change), ReachResult::Reached(Some(())));
    assert_eq!(waits.with(other, change), ReachResult::Reached(None));
    let taken = waits
        .take(id)
        .reached()
        .unwrap()
        .downcast::<Waiter>()
        .unwrap();
    assert_eq!(taken.holder, 3);
    let other = waits.take(other).reached().unwrap();
    assert!(other.downcast::<Op>().is_err());
}

/// The taker of a wait answers it, and until then its future waits on.
#[test]
fn a_taken_wait_is_answered_by_its_taker() {
    let (timer, waits): (_, Purgatory<&str>) = by_hand();
    let task = Woken::task();
    let outcomes = [
        (Some(Outcome::Completed), Ok(7)),
        (Some(Outcome::Expired), Err(WaitError::Expired)),
        (None, Err(WaitError::Cancelled(CancelReason::Panicked))), // dropped
    ];
    for (woken, (outcome, expected)) in outcomes.into_iter().enumerate() {
        let mut looks = 0..;
        let condition = move || looks.next().filter(|&look| look > 0).map(|_| 7);
        let mut wait = waits.wait(&["row"], SECOND, condition);
        assert!(task.poll(&mut wait).is_pending());
        let taken = waits.take(wait.id().unwrap()).reached().unwrap();
        assert_eq!((waits.len(), waits.stats().taken), (0, woken as u64 + 1));
        timer.advance(MINUTE);
        assert!(task.poll(&mut wait).is_pending(), "no timer is left of it");
        match outcome {
            Some(outcome) => taken.on_complete(outcome),
            None => drop(taken),
        }
        assert_eq!(task.times(), woken + 1);
        assert_eq!(task.poll(&mut wait), Poll::Ready(expected));
    }
    assert_empty(&waits);
}

/// A taken wait may be parked again, in any purgatory. The drop of its future ends nothing there; a
/// wait whose future is gone does not become true.
#[test]
fn a_taken_wait_may_be_parked_elsewhere() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let (_other_timer, others): (_, Purgatory<&str>) = by_hand();
    let looks = Arc::new(AtomicUsize::new(0));
    for drops in [false, true] {
        let seen = looks.clone();
        looks.store(0, SeqCst);
        let condition = move || Some(seen.load(SeqCst)).filter(|&looks| looks > 0);
        let wait = waits.wait(&["row"], SECOND, condition);
        let taken = waits.take(wait.id().unwrap()).reached().unwrap();
        others.park(taken, &["other"], NEVER);
        looks.store(3, SeqCst);
        let mut wait = Some(wait).filter(|_| !drops);
        assert_eq!(others.check_and_complete_one(&"other"), !drops);
        if let Some(wait) = &mut wait {
            assert_eq!(over(wait), Ok(3));
        }
        assert_eq!(others.cancel_all("over"), usize::from(drops));
    }
    assert_eq!(Arc::strong_count(&looks), 1, "a condition is left");
    assert!(waits.is_empty() && others.is_empty());
}

/// Another operation replaces a wait's: the wait then belongs to its taker, as one that was taken
/// out.
#[test]
fn replaced_wait_ends_with_its_operation() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let task = Woken::task();
    let gone = Poll::Ready(Err(WaitError::Cancelled(CancelReason::Panicked)));
    let mut wait = waits.wait(&["row"], NEVER, || None::<u32>);
    let mut other = waits.wait(&["row"], NEVER, || None::<u32>);
    assert!(task.poll(&mut wait).is_pending() && task.poll(&mut other).is_pending());
    let (ended, endings) = mpsc::channel();
    let closures = when(|| false, move |outcome| ended.send(outcome).unwrap());
    // 1. The closures replace the first wait's operation, which replaces the second wait's.
    let id = wait.id().unwrap();
    let first = waits.with(id, |boxed| mem::replace(boxed, closures));
    let mut first = first.reached();
    let other_id = other.id().unwrap();
    waits.for_each(|of, _, boxed| {
        if of == other_id {
            mem::swap(boxed.unwrap(), first.as_mut().unwrap());
        }
    });
    assert!(task.poll(&mut wait).is_pending() && task.poll(&mut other).is_pending());
    // 2. The replaced one is dropped without an end, and the first ends in its place.
    drop(first);
    assert_eq!((task.times(), task.poll(&mut other)), (1, gone));
    assert_eq!(waits.cancel(other_id, "over"), ReachResult::Reached(()));
    assert_eq!(task.times(), 2);
    let over = CancelReason::Requested("over".into());
    let over = Poll::Ready(Err(WaitError::Cancelled(over)));
    assert_eq!(task.poll(&mut wait), over);
    // 3. The closures end as they would anywhere.
    assert_eq!(waits.cancel_all("over"), 1);
    assert_eq!(endings.try_recv(), Ok(requested("over")));
    assert_empty(&waits);
}

/// The future is dropped before the second park, after it, or once the wait is over. The first two
/// end the operation in the entry, and the wait no longer becomes true. No value is kept.
#[test]
fn replaced_wait_parked_again_leaves_its_entry() {
    for drop_at in [0, 1, 2] {
        let (_timer, waits): (_, Purgatory<&str>) = by_hand();
        let holds = Arc::new(AtomicBool::new(false));
        let value = Arc::new(());
        let there = Arc::downgrade(&value);
        let seen = holds.clone();
        let condition = move || seen.load(SeqCst).then(|| value.clone());
        let mut future = Some(waits.wait(&["row"], NEVER, condition));
        let id = future.as_ref().and_then(WaitFuture::id).unwrap();
        let wait = waits.with(id, |boxed| mem::replace(boxed, when(|| false, drop)));
        let wait = wait.reached().unwrap();
        if drop_at == 0 {
            drop(future.take());
        }
        waits.park(wait, &["other"], NEVER);
        if drop_at == 1 {
            drop(future.take());
        }
        let left = usize::from(drop_at == 2);
        assert_eq!(waits.len(), 1 + left);
        holds.store(true, SeqCst);
        assert_eq!(waits.check_and_complete(&"other"), left);
        drop(future);
        assert_eq!(waits.cancel_all("over"), 1, "of two, one is over");
        assert_empty(&waits);
        assert_eq!(there.strong_count(), 0);
    }
}

/// A wait's operation is replaced, and the wait's future is dropped under the check of the new
/// operation, which ends after that check.
#[test]
fn future_dropped_under_a_check_ends_that_operation() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let slot = Arc::new(Mutex::new(None::<WaitFuture<()>>));
    let drops = slot.clone();
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = checks.clone();
    let check = move || {
        counted.fetch_add(1, SeqCst);
        drop(drops.lock().unwrap().take());
        false
    };
    let future = waits.next_event(&["row"], NEVER);
    let id = future.id().unwrap();
    let probe = Probe::new();
    let operation = probe.operation();
    let then = move |outcome| operation.on_complete(outcome);
    let wait = waits.with(id, |boxed| mem::replace(boxed, when(check, then)));
    let wait = wait.reached().unwrap();
    *slot.lock().unwrap() = Some(future);
    assert_eq!(waits.check_and_complete(&"row"), 0);
    assert_eq!(checks.load(SeqCst), 1);
    let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
    assert_eq!(probe.endings(), [dropped]);
    drop(wait);
    assert_empty(&waits);
}

/// The last poll came while the operation was under check.
#[test]
fn replaced_wait_wakes_the_task_that_polled_last() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let [first, last] = [(); 2].map(|()| Woken::task());
    let task = last.clone();
    let polls = move |wait: &mut Option<_>| task.poll(wait.as_mut().unwrap()).is_ready();
    let slot = wait_with_itself(&waits, &["row"], polls);
    let id = {
        let mut wait = slot.lock().unwrap();
        assert!(first.poll(wait.as_mut().unwrap()).is_pending());
        wait.as_ref().and_then(WaitFuture::id).unwrap()
    };
    assert_eq!(waits.check_and_complete(&"row"), 0);
    drop(waits.with(id, |boxed| mem::replace(boxed, when(|| false, drop))));
    assert_eq!((first.times(), last.times()), (0, 1));
    assert_eq!(waits.cancel_all("over"), 1);
    assert_empty(&waits);
}

/// A wait that stays in its place goes on, whatever a closure did to it there, even after a panic.
#[test]
fn a_wait_that_is_looked_at_goes_on() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let task = Woken::task();
    let mut wait = waits.next_event(&["row"], NEVER);
    assert!(task.poll(&mut wait).is_pending());
    let id = wait.id().unwrap();
    assert_eq!(waits.with(id, |_| 7), ReachResult::Reached(7));
    assert!(catch_unwind(AssertUnwindSafe(|| waits.with(id, |_| panic!("reached")))).is_err());
    waits.for_each(|_, _, boxed| assert!(boxed.is_some()));
    assert_eq!((waits.check_and_complete(&"row"), task.times()), (1, 1));
    assert_eq!(task.poll(&mut wait), Poll::Ready(Ok(())));
    assert_empty(&waits);
}

/// The future's own operation had ended elsewhere by then.
#[test]
fn a_dropped_future_leaves_what_replaced_its_own() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let probe = Probe::new();
    let operation = probe.operation();
    let closures = when(|| false, move |outcome| operation.on_complete(outcome));
    let future = waits.next_event(&["row"], NEVER);
    let id = future.id().unwrap();
    let wait = waits.with(id, |wait| mem::replace(wait, closures));
    assert!(wait.reached().is_some());
    drop(future);
    assert_eq!((waits.len(), probe.ended()), (1, false));
    assert_eq!(waits.cancel(id, "over"), ReachResult::Reached(()));
    assert_eq!(probe.endings(), [requested("over")]);
}
