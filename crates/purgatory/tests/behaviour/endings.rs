//! Calls that end many operations: all of a purgatory, or all of a key.

use std::sync::mpsc::{Sender, channel};

use crate::support::*;

/// All operations end, whatever their keys, which are free before the first callback. Operations
/// that a callback parks stay.
#[test]
fn ends_of_all_leave_the_purgatory_open() {
    type End = fn(&Waiting) -> usize;
    let ends: [(End, Outcome); 2] = [
        (|purgatory| purgatory.cancel_all("over"), requested("over")),
        (|purgatory| purgatory.complete_all(), Completed),
    ];
    for (end, outcome) in ends {
        let (timer, purgatory) = waiting();
        let mut probes = Vec::new();
        for keys in [&["a"][..], &["b", "a"], &["a", "b"]].repeat(100) {
            let probe = Probe::new();
            let inside = purgatory.clone();
            let parks = probes.len() == 7;
            let then = move |_| {
                assert_eq!(inside.watched(), inside.len(), "keys are free");
                for at in (0..26).filter(|_| parks) {
                    let letter = &"abcdefghijklmnopqrstuvwxyz"[at..=at];
                    Probe::parked(&inside, &[letter], SECOND);
                }
            };
            purgatory.park(probe.operation().then(then), keys, SECOND);
            probes.push(probe);
        }
        assert_eq!(end(&purgatory), 300);
        for probe in probes {
            assert_eq!(
                (probe.endings(), probe.checks()),
                (vec![outcome.clone()], 1)
            );
        }
        let stats = purgatory.stats();
        let apart = stats.cancelled_by_shutdown + stats.cancelled_by_drop;
        assert_eq!((stats.parked, stats.panics, apart), (26, 0, 0));
        assert_eq!([(); 2].map(|()| end(&purgatory)), [26, 0]);
        timer.advance(SECOND);
        assert_empty(&purgatory);
    }
}

/// A wait needs a value: its condition is evaluated once more, and without a value it ends with an
/// error.
#[test]
fn completing_calls_ask_waits_for_their_values() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let shelf = Arc::new(Mutex::new(vec![1]));
    let take = || {
        let shelf = shelf.clone();
        let mut is_first = true;
        move || {
            if mem::take(&mut is_first) {
                return None; // it is being parked
            }
            shelf.lock().unwrap().pop()
        }
    };
    let mut has_value = waits.wait(&["b", "a"], SECOND, take());
    let mut has_none = waits.wait(&["a"], SECOND, take());
    let mut event = waits.next_event(&["a"], SECOND); // a wait without a condition
    let (sender, ended) = channel();
    let callback = when(|| false, move |outcome| sender.send(outcome).unwrap());
    waits.park(callback, &["a"], NEVER);

    assert_eq!(waits.complete_for_key(&"a"), 4);
    assert_eq!(ended.try_recv(), Ok(Outcome::Completed));
    assert_eq!((over(&mut has_value), over(&mut event)), (Ok(1), Ok(())));
    let said = over(&mut has_none).unwrap_err().to_string();
    assert_eq!(said, "cancelled: completed without a value");
    assert_empty(&waits);

    let mut last = waits.wait(&["a"], SECOND, take());
    shelf.lock().unwrap().push(2);
    assert_eq!((waits.complete_all(), over(&mut last)), (1, Ok(2)));
    assert_empty(&waits);
}

/// A call by id or by key comes while the condition is evaluated, which is then evaluated once
/// more.
#[test]
fn complete_ends_a_wait_under_check() {
    for (by_key, has_value) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_timer, waits): (_, Purgatory<&str>) = by_hand();
        let inside = waits.clone();
        let id = Arc::new(OnceLock::new());
        let parked = id.clone();
        let checks = Arc::new(AtomicUsize::new(0));
        let counted = checks.clone();
        let condition = move || {
            let check = counted.fetch_add(1, SeqCst);
            if check == 1 && by_key {
                assert_eq!(inside.complete_for_key(&"a"), 0);
            } else if check == 1 {
                let expected = ReachResult::UnderCheck;
                assert_eq!(inside.complete(*parked.get().unwrap()), expected);
            }
            if check == 2 && has_value {
                Some("a value")
            } else {
                None
            }
        };
        let mut wait = waits.wait(&["a"], SECOND, condition);
        id.set(wait.id().unwrap()).unwrap();
        assert_eq!(waits.check_and_complete(&"a"), 1);
        assert_eq!(checks.load(SeqCst), 3, "evaluated once more");
        assert_eq!(over(&mut wait).is_ok(), has_value);
        assert_empty(&waits);
    }
}

/// The program may drop its own handle of the timer first.
#[test]
fn a_shared_timer_lives_as_long_as_its_purgatories() {
    let timer = SystemTimer::new().unwrap();
    let waits: Purgatory<&str> = Purgatory::on(&timer, "waits").unwrap();
    drop(timer);
    let expires = waits.wait(&["a"], MS, || false);
    assert_eq!(expires.wait_blocking(), Err(WaitError::Expired));
}

/// An operation that sends how late it expires, then panics; it also sends its end.
struct Late(Sender<(Duration, Option<Outcome>)>);

impl DelayedOperation for Late {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        self.0.send((late(), None)).unwrap();
        panic!("as it expires");
    }

    fn on_complete(self, outcome: Outcome) {
        self.0.send((Duration::ZERO, Some(outcome))).unwrap();
    }
}

#[test]
fn an_expiry_says_how_late_it_is() {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::<&str, BoxedOperation>::on(&timer, "late").unwrap();
    let (send, ends) = channel();
    for _ in 0..2 {
        let operation = BoxedOperation::new(Late(send.clone()));
        purgatory.park(operation, &["k"], 10 * MS);
    }
    timer.pass(50 * MS);
    timer.advance(Duration::ZERO);
    let ends: Vec<_> = ends.try_iter().collect();
    let expired = (Duration::ZERO, Some(Outcome::Expired));
    let late = (40 * MS, None);
    assert_eq!(ends, [late.clone(), expired.clone(), late, expired]);
    assert_eq!(purgatory.stats().panics, 2, "contained");
}

/// A dropped future is counted apart from cancels by a call.
#[test]
fn a_dropped_future_has_its_own_reason() {
    let (_timer, purgatory): (_, Purgatory<&str>) = by_hand();
    let wait = || purgatory.wait(&["k"], NEVER, || false);
    drop(wait());
    let mut asked = wait();
    purgatory.cancel(asked.id().unwrap(), "asked");
    assert!(poll(&mut asked).is_ready());
    let stats = purgatory.stats();
    assert_eq!((stats.cancelled, stats.cancelled_by_future_drop), (2, 1));
    let reason = CancelReason::FutureDropped.to_string();
    assert_eq!(reason, "its future was dropped");
}

/// Lets a task wait twice: until all are cancelled, then until a shutdown.
#[track_caller]
fn assert_wakes<K: WatchKey, F: Future + Unpin>(
    timer: &ManualTimer,
    waits: &Waits<K>,
    wait: impl Fn() -> F,
) {
    let task = Woken::task();
    let mut cancelled = wait();
    assert!(task.poll(&mut cancelled).is_pending());
    assert_eq!(timer.stats().pending, 1);
    assert_eq!((waits.cancel_all("over"), task.times()), (1, 1));
    assert!(task.poll(&mut cancelled).is_ready());
    let mut shut_down = wait();
    assert!(task.poll(&mut shut_down).is_pending());
    assert_eq!((waits.shutdown(MINUTE), task.times()), (0, 2));
    assert!(task.poll(&mut shut_down).is_ready());
    assert_eq!((waits.name(), timer.stats().pending), ("test", 0));
}

#[test]
fn tasks_are_woken_as_all_waits_end() {
    let timer = ManualTimer::new();
    let marks: Watermarks<u32> = Watermarks::on(&timer, "test").unwrap();
    assert_wakes(&timer, &marks.waits(), || marks.wait_for(&1, 1, MINUTE));
    let replies: Replies<u32, u32> = Replies::on(&timer, "test").unwrap();
    assert_wakes(&timer, &replies.waits(), || {
        replies.expect(1, MINUTE).unwrap()
    });
    let permits: Permits = Permits::on(&timer, "test", 1).unwrap();
    let _taken = permits.try_acquire(1).unwrap();
    assert_wakes(&timer, &permits.waits(), || permits.acquire(1, MINUTE));
}
