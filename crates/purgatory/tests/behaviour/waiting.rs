//! Waits on a manual timer: futures, blocking waits and waits for the next event.

use std::future::pending;

use crate::support::*;

type Waits = Purgatory<&'static str>;

/// A place from which a condition takes a value.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Option<u32>>>);

impl Shelf {
    fn put(&self, value: u32) {
        *self.0.lock().unwrap() = Some(value);
    }

    fn take(&self) -> impl FnMut() -> Option<u32> + Send + 'static {
        let shelf = self.0.clone();
        move || shelf.lock().unwrap().take()
    }
}

#[test]
fn a_future_yields_its_value_and_wakes_its_task_once() {
    let (_timer, waits): (_, Waits) = by_hand();
    let shelf = Shelf::default();
    let count = Woken::task();
    shelf.put(1);
    assert_eq!(over(&mut waits.wait(&["a"], MS, shelf.take())), Ok(1)); // at once
    let mut future = waits.wait(&["a", "b"], 10 * MS, shelf.take());
    assert!(count.poll(&mut future).is_pending() && count.poll(&mut future).is_pending());
    shelf.put(7);
    assert_eq!((waits.check_and_complete(&"b"), count.times()), (1, 1));
    assert_eq!(count.poll(&mut future), Poll::Ready(Ok(7)));
    assert_empty(&waits);
}

#[test]
#[should_panic(expected = "polled after it was over")]
fn a_future_polled_after_it_was_ready_panics() {
    let (_timer, waits): (_, Waits) = by_hand();
    let mut future = waits.wait(&["a"], 10 * MS, || Some(1));
    assert!(poll(&mut future).is_ready());
    let _ = poll(&mut future);
}

#[test]
fn a_future_is_given_more_time_until_it_is_over() {
    let (timer, waits): (_, Waits) = by_hand();
    let mut wait = waits.wait(&["a"], 10 * MS, || None::<()>);
    timer.advance(9 * MS);
    assert!(wait.reschedule(10 * MS));
    timer.advance(9 * MS);
    assert!(poll(&mut wait).is_pending());
    timer.advance(MS);
    assert_eq!(over(&mut wait), Err(WaitError::Expired));
    assert!(!wait.reschedule(SECOND));
    assert!(!waits.wait(&["a"], SECOND, || Some(())).reschedule(SECOND)); // over at once
}

/// Blocking waits for one key and for each of several are refused. A wait that has ended blocks
/// nothing.
#[test]
fn a_blocking_wait_inside_a_callback_is_an_error() {
    in_time(|| {
        let (timer, waits): (_, Waits) = by_hand();
        let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
        let (send, result) = mpsc::channel();
        let inside = waits.clone();
        let wait = move |_| {
            let one = inside.wait(&["a"], MS, || false).wait_blocking();
            let each = ends.wait_for_each(&[(2, 1), (3, 1)], MS).wait_blocking();
            let over = inside.wait(&["a"], MS, || true).wait_blocking();
            send.send([one, each.map(drop), over]).unwrap();
        };
        waits.park(when(|| false, wait), &["a"], NEVER);
        assert_eq!(waits.complete_for_key(&"a"), 1);
        let refused = Err(WaitError::MustNotBlock);
        assert_eq!(result.try_recv(), Ok([refused.clone(), refused, Ok(())]));
        assert_empty(&waits);
    });
}

#[test]
fn next_event_ends_at_an_event_after_registration() {
    let (_timer, waits): (_, Waits) = by_hand();
    waits.check_and_complete(&"a"); // an event before the wait does not count
    let mut next = waits.next_event(&["a", "b"], SECOND);
    assert_eq!((poll(&mut next), waits.len()), (Poll::Pending, 1));
    assert_eq!(waits.check_and_complete(&"b"), 1);
    assert_eq!(over(&mut next), Ok(()));
    assert_empty(&waits);
}

/// The check holds, but its value is lost with the future: the event goes on to the next wait.
#[test]
fn event_of_a_wait_dropped_under_check_goes_on() {
    for another_is_served in [true, false] {
        let (_timer, waits): (_, Purgatory<&str>) = by_hand();
        let _dropped = wait_with_itself(&waits, &["a"], |future| future.take().is_some());
        let mut is_parked = false;
        let condition = move || mem::replace(&mut is_parked, another_is_served);
        let mut next = waits.wait(&["a"], MINUTE, condition);
        assert_eq!(waits.check_and_complete_one(&"a"), another_is_served);
        assert_eq!(poll(&mut next).is_ready(), another_is_served);
        drop(next);
        assert_empty(&waits);
    }
}

/// The time is up during a check that has looked too early. An event that came meanwhile still gets
/// its check. Without one, a wait gets its last check, and an operation gets none.
#[test]
fn check_that_outlasts_the_deadline_is_not_the_last() {
    for is_wait in [true, false] {
        for signals in [true, false] {
            let (timer, waits): (_, Purgatory<&str>) = by_hand();
            let holds = Arc::new(AtomicBool::new(false));
            let checking = Stop::new();
            let (seen, in_check) = (holds.clone(), checking.clone());
            let condition = move || {
                let held = seen.load(SeqCst);
                in_check.here();
                held
            };
            let (tell, told) = mpsc::channel();
            let mut wait = None;
            if is_wait {
                wait = Some(waits.wait(&["a"], SECOND, condition));
            } else {
                let then = move |outcome| tell.send(outcome).unwrap();
                waits.park(when(condition, then), &["a"], SECOND);
            }

            checking.arm();
            let signalling = waits.clone();
            let event = thread::spawn(move || signalling.check_and_complete(&"a"));
            checking.meanwhile(|| {
                holds.store(true, SeqCst);
                if signals {
                    assert_eq!(waits.check_and_complete(&"a"), 0);
                }
                timer.advance(SECOND);
            });
            let completes = is_wait || signals;
            assert_eq!(event.join().unwrap(), usize::from(completes));
            match &mut wait {
                Some(wait) => assert_eq!(over(wait), Ok(())),
                None if completes => assert_eq!(told.try_recv(), Ok(Completed)),
                None => assert_eq!(told.try_recv(), Ok(Expired)),
            }
            let missed = u64::from(is_wait && !signals);
            assert_eq!(waits.stats().missed_events, missed);
            assert_empty(&waits);
        }
    }
}

/// An event checks out both waits: the first one's check drops the second's future.
#[test]
fn condition_is_not_run_after_its_future_is_dropped() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let slot = Arc::new(Mutex::new(None::<WaitFuture<()>>));
    let drops = slot.clone();
    let condition = move || {
        drop(drops.lock().unwrap().take());
        false
    };
    let first = waits.wait(&["a"], MINUTE, condition);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let condition = move || counted.fetch_add(1, SeqCst) > 0;
    *slot.lock().unwrap() = Some(waits.wait(&["a"], MINUTE, condition));
    assert_eq!(waits.check_and_complete(&"a"), 0);
    assert_eq!((asked.load(SeqCst), waits.len()), (1, 1)); // as it was parked
    drop(first);
    assert_empty(&waits);
}

/// A wait is completed by a call and its future is dropped before the end: its condition is not
/// run.
#[test]
fn completed_condition_is_not_run_after_its_future() {
    let (_timer, waits): (_, Waits) = by_hand();
    let shelf = Shelf::default();
    let wait = waits.wait(&["a"], NEVER, shelf.take());
    shelf.put(7);
    let (inside, mut wait) = (waits.clone(), Some(wait));
    let then = move |_| {
        let id = wait.as_ref().and_then(WaitFuture::id).unwrap();
        assert_eq!(inside.complete(id), ReachResult::Reached(()));
        wait.take();
    };
    waits.park(when(|| false, then), &["b"], NEVER);
    assert_eq!(waits.complete_for_key(&"b"), 1);
    assert_eq!(*shelf.0.lock().unwrap(), Some(7));
    assert_empty(&waits);
}

/// The waker of the last poll is dropped with its future, and signals the key when it is dropped.
#[test]
fn event_of_a_dropped_waker_skips_its_own_wait() {
    let (_timer, waits): (_, Waits) = by_hand();
    let shelf = Shelf::default();
    let mut first = waits.wait(&["a"], NEVER, shelf.take());
    let second = waits.wait(&["a"], NEVER, shelf.take());
    let (puts, inside) = (shelf.clone(), waits.clone());
    let signals = OnDrop::new(move || {
        puts.put(7);
        inside.check_and_complete_one(&"a");
    });
    assert!(poll_by(&mut first, &signals.waker()).is_pending());
    drop(first);
    assert_eq!(second.try_take().ok(), Some(Ok(7)));
    assert_empty(&waits);
}

/// While the wait goes on, its future is handed back, to be dropped or awaited.
#[test]
fn try_take_takes_a_value_now_or_never() {
    let (timer, waits) = by_hand();
    let ready = waits.wait(&["k"], MINUTE, || Some(7));
    assert_eq!(ready.try_take().ok(), Some(Ok(7)));

    let never = waits.wait(&["k"], MINUTE, || None::<u32>);
    assert!(never.try_take().ok().is_none());
    assert!(waits.is_empty());

    let mut goes_on = waits.wait(&["k"], SECOND, || None::<u32>);
    let task = Woken::task();
    assert!(task.poll(&mut goes_on).is_pending());
    let mut goes_on = goes_on.try_take().unwrap_err();
    assert!(task.poll(&mut goes_on).is_pending());
    timer.advance(SECOND);
    assert_eq!(task.times(), 1);
    assert_eq!(goes_on.try_take().ok(), Some(Err(WaitError::Expired)));
}

/// A task may rely on that: by the time it wakes, everything that its condition held is free.
#[test]
fn a_condition_is_dropped_before_its_task_is_woken() {
    type End = fn(&Waits, OperationId);
    let ends: [End; 4] = [
        |waits, _| assert_eq!(waits.check_and_complete(&"a"), 1),
        |waits, id| assert_eq!(waits.complete(id), ReachResult::Reached(())),
        |waits, id| assert_eq!(waits.cancel(id, "over"), ReachResult::Reached(())),
        |waits, id| drop(waits.take(id)),
    ];
    for keys in [&["a"][..], &["a", "b"]] {
        for end in ends {
            let (_timer, waits): (_, Waits) = by_hand();
            let held = Arc::new(());
            let there = Arc::downgrade(&held);
            let saw_it_gone = Arc::new(AtomicBool::new(false));
            let sees = saw_it_gone.clone();
            let looks = waker(move || sees.store(there.strong_count() == 0, SeqCst));
            let mut is_parked = false;
            let mut wait = waits.wait(keys, SECOND, move || {
                let _ = &held;
                mem::replace(&mut is_parked, true)
            });
            assert!(poll_by(&mut wait, &looks).is_pending());
            end(&waits, wait.id().unwrap());
            assert!(saw_it_gone.load(SeqCst));
        }
    }
}

#[test]
fn a_form_returns_the_timer_that_is_shared() {
    let purgatory: Purgatory<u32> = Purgatory::new("shared").unwrap();
    let replies: Replies<u32, u32> = Replies::new("shared").unwrap();
    let timers = [purgatory.timer(), replies.waits().timer()];
    let shared = Timer::shared().unwrap();
    for timer in timers {
        let task = timer.schedule(MINUTE * 60, || ()).unwrap();
        assert!(shared.cancel(task));
    }
}

/// The test has to compile: a spawned task may hold these values across an await, also with keys
/// and values that are `&'static str`.
#[test]
fn tasks_that_are_sent_hold_guards_and_forms() {
    fn send(task: impl Future<Output = ()> + Send + 'static) {
        assert!(poll(&mut Box::pin(task)).is_pending());
    }
    let timer = ManualTimer::new();
    let builder = Permits::keyed_builder("permits").timer(&timer);
    let permits: Permits<&str> = builder.build().unwrap();
    send(async move {
        let permit = permits.acquire_for(&"a", 1, SECOND).await;
        let lease = permits.lease_for(&"b", 1, SECOND, SECOND).await;
        let own = permits.clone();
        pending::<()>().await;
        drop((permit, lease, own));
    });
    let marks: Watermarks<&str> = Watermarks::on(&timer, "marks").unwrap();
    let sets: ReplicaSets<&str, &str> = ReplicaSets::on(&timer, "sets").unwrap();
    send(async move {
        let own = (marks.clone(), sets.clone());
        let led = (marks.in_epoch(&"a", 0), sets.in_epoch(&"a", 0));
        pending::<()>().await;
        drop((own, led.0.add(1), led.1.leave(&"b")));
    });
    let replies: Replies<&str, &str> = Replies::on(&timer, "replies").unwrap();
    let scope: ReplyScope<&str> = ReplyScope::on(&timer, "scope").unwrap();
    send(async move {
        let own = (replies.clone(), scope.another());
        pending::<()>().await;
        drop(own);
    });
}
