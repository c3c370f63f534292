//! Wakers, conditions and values that panic when they are dropped: the wait still ends as usual.

use crate::support::*;

type Waits = Purgatory<u32>;

/// A value that panics when it is dropped, or a task whose last waker does.
fn panics_on_drop() -> OnDrop {
    OnDrop::new(|| panic!("dropped"))
}

/// Polls with a waker that panics when it is dropped; returns whether the future is ready.
fn poll_to_panic(future: &mut Option<WaitFuture<()>>) -> bool {
    let polled = poll_by(future.as_mut().unwrap(), &panics_on_drop().waker());
    polled.is_ready()
}

/// Runs a call, and fails if it panics.
#[track_caller]
fn contained<T>(call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).expect("the panic is contained")
}

#[test]
fn dropped_future_ends_though_its_waker_panics() {
    let (_timer, waits): (_, Waits) = by_hand_with(|builder| builder.max_parked(1));
    let slot = wait_with_itself(&waits, &[1, 2], poll_to_panic);
    assert_eq!(waits.check_and_complete(&1), 0);
    let future = slot.lock().unwrap().take();
    contained(|| drop(future));
    assert_empty(&waits);
    assert!(waits.next_event(&[1], MINUTE).id().is_some(), "no place");
    assert_eq!(waits.stats().panics, 1);
}

/// The second task's poll replaces the first task's waker, whose drop panics.
#[test]
fn last_task_is_woken_though_the_one_before_panics() {
    let (_timer, waits): (_, Waits) = by_hand();
    let task = Woken::task();
    let second = task.clone();
    let polls = move |future: &mut Option<_>| second.poll(future.as_mut().unwrap()).is_ready();
    let slot = wait_with_itself(&waits, &[1], polls);
    poll_to_panic(&mut slot.lock().unwrap());
    assert_eq!(waits.check_and_complete(&1), 0);
    let mut others = [(); 3].map(|()| waits.next_event(&[1], MINUTE));
    assert_eq!(contained(|| waits.cancel_all("over")), 4);
    assert_eq!(task.times(), 1);
    assert!(others.iter_mut().all(|other| poll(other).is_ready()));
    assert_eq!(waits.stats().panics, 1);
}

/// The replaced waker is dropped when the next one comes.
#[test]
fn answer_is_taken_though_an_old_waker_panics() {
    let (_timer, waits): (_, Waits) = by_hand();
    let as_another_task = |future: &mut Option<_>| poll(future.as_mut().unwrap()).is_pending();
    let slot = wait_with_itself(&waits, &[1], as_another_task);
    poll_to_panic(&mut slot.lock().unwrap());
    assert_eq!(waits.check_and_complete(&1), 1);
    let mut future = slot.lock().unwrap().take().unwrap();
    assert_eq!(contained(|| over(&mut future)), Ok(()));
    assert_eq!(waits.stats().panics, 1);
}

/// The engine drops the reason last, once the answer is gone.
#[test]
fn a_reason_that_panics_as_it_is_dropped_is_contained() {
    let (_timer, waits): (_, Waits) = by_hand();
    let mut head = waits.wait(&[1], MINUTE, || false);
    let id = head.id().unwrap();
    let slot = Slot::default();
    let own = slot.clone();
    let takes_answer = waker(move || {
        let future = own.lock().unwrap().take();
        assert!(over(&mut future.unwrap()).is_err());
    });
    assert!(poll_by(&mut head, &takes_answer).is_pending());
    *slot.lock().unwrap() = Some(head);
    let reason = Reason::with("over", panics_on_drop());
    assert_eq!(
        contained(|| waits.cancel(id, reason)),
        ReachResult::Reached(())
    );
    assert_empty(&waits);
    assert_eq!(waits.stats().panics, 1);
}

/// The second task's poll replaces the first task's waker, whose drop panics.
#[test]
fn panicking_waker_of_a_lost_lease_is_contained() {
    let timer = ManualTimer::new();
    let permits = Permits::on(&timer, "test", 1).unwrap();
    let lease = permits.lease(1, SECOND, SECOND).wait_blocking().unwrap();
    let mut lost = Box::pin(lease.lost());
    let mut poll_as = |waker: Waker| {
        let mut context = Context::from_waker(&waker);
        let polled = lost.as_mut().poll(&mut context);
        drop(waker); // the lease has the last copy
        polled
    };
    assert!(poll_as(panics_on_drop().waker()).is_pending());
    assert!(contained(|| poll_as(Waker::noop().clone())).is_pending());
    assert_eq!(permits.waits().stats().panics, 1);
}

/// A check that holds takes precedence over a cancel, whose reason is then dropped.
#[test]
fn a_beaten_reason_that_panics_is_contained() {
    let (_timer, waits): (_, Waits) = by_hand();
    let inside = waits.clone();
    let mut is_parked = false;
    let condition = move || {
        if is_parked {
            let reason = Reason::with("beaten", panics_on_drop());
            assert_eq!(inside.cancel_for_key(&1, reason), 0);
        }
        mem::replace(&mut is_parked, true)
    };
    waits.park(when(condition, drop), &[1], MINUTE);
    assert_eq!(contained(|| waits.check_and_complete(&1)), 1);
    assert_eq!(waits.stats().panics, 1);
}

/// The replies are dropped inside a check, and outside.
#[test]
fn kept_replies_that_panic_are_counted_each() {
    let timer = ManualTimer::new();
    let replies = Replies::on(&timer, "replies").unwrap();
    let waits: Waits = Purgatory::on(&timer, "waits").unwrap();
    let asked = || {
        let stream = replies.expect_many(1_u32, 9, MINUTE).unwrap();
        for _ in 0..2 {
            let value = Hooked::holding(1, panics_on_drop());
            assert!(replies.deliver(&1, value).is_ok());
        }
        stream
    };
    contained(|| drop(asked()));
    let mut kept = Some(asked());
    let dropped = waits.wait(&[1], MINUTE, move || {
        drop(kept.take());
        true
    });
    assert_eq!(dropped.wait_blocking(), Ok(()));
    assert_eq!(replies.waits().stats().panics, 4);
    assert_eq!(waits.stats().panics, 0);
}

/// Inside a callback, the outer call drops the remains of the wait.
#[test]
fn panic_of_a_watermark_waits_reason_is_counted() {
    let (timer, waits, log_ends) = watermarks::<u32>();
    let calls: Waits = Purgatory::on(&timer, "calls").unwrap();
    let parked = log_ends.park(&1, 7, MINUTE, drop).unwrap().unwrap();
    let inside = waits.clone();
    let cancel = move |_| {
        let reason = Reason::with("over", panics_on_drop());
        assert_eq!(inside.cancel(parked, reason), ReachResult::Reached(()));
    };
    calls.park(when(|| false, cancel), &[1], MINUTE);
    assert_eq!(contained(|| calls.complete_all()), 1);
    assert_eq!(waits.stats().panics, 1);
}

/// Making the first copy drops the requests, so no copy is delivered; each panics when dropped.
#[test]
fn undelivered_copies_that_panic_are_counted_each() {
    let scope = ReplyScope::on(&ManualTimer::new(), "client").unwrap();
    let requests: Vec<_> = (0..3).map(|_| scope.expect(MINUTE).unwrap().1).collect();
    let requests = Mutex::new(requests);
    let value = Hooked::new(0, move |at| match at {
        At::Clone => requests.lock().unwrap().clear(),
        At::Drop => panic!("dropped"),
        At::Eq | At::Hash => (),
    });
    assert_eq!(contained(|| scope.deliver_up_to(3, value)), 0);
    assert_eq!(scope.waits().stats().panics, 3);
}
