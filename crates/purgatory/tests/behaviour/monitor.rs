//! A state with waits, in the orders a real program has: changes before, between and after the
//! waits, closures that panic and that call back, futures that are dropped, shutdown; and real
//! threads, counted.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use crate::support::{SECOND, by_hand, poll};
use purgatory::{
    BoxedOperation, CancelReason, Monitor, Purgatory, RefusedReason, Timeout, WaitError,
};
use timer_core::ManualTimer;

type Numbers = Vec<u32>;
type Waits = Purgatory<&'static str, BoxedOperation>;

/// A monitor under a hand-turned clock, and its purgatory to look into.
fn monitor<S: Send + 'static>(state: S) -> (ManualTimer, Waits, Monitor<&'static str, S>) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Monitor::with(waits, state))
}

#[track_caller]
fn nothing_is_left(waits: &Waits) {
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
}

/// The message of a panic.
#[track_caller]
fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().expect("a panic");
    let said = panic.downcast_ref::<String>().cloned();
    said.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

fn has(number: u32) -> impl FnMut(&mut Numbers) -> Option<u32> + Send + 'static {
    move |numbers| numbers.contains(&number).then_some(number)
}

#[test]
fn a_change_before_the_wait_between_and_after() {
    let (timer, waits, monitor) = monitor(Numbers::new());
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut monitor.wait(&["n"], SECOND, has(1))), Poll::Ready(Ok(1)));
    let mut two = monitor.wait(&["n"], SECOND, has(2));
    let mut three = monitor.wait(&["n"], SECOND, has(3));
    assert_eq!((monitor.purgatory().len(), poll(&mut two)), (2, Poll::Pending));
    assert_eq!(monitor.update(|numbers| (numbers.push(2), numbers.len()).1), 2);
    assert_eq!((poll(&mut two), poll(&mut three)), (Poll::Ready(Ok(2)), Poll::Pending));
    timer.advance(SECOND);
    monitor.update(|numbers| numbers.push(3)); // too late
    assert_eq!(poll(&mut three), Poll::Ready(Err(WaitError::Expired)));
    nothing_is_left(&waits);
}

#[test]
fn an_update_raises_its_keys_and_no_other() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let checks = Arc::new(Mutex::new(Vec::new()));
    let futures = ["a", "b", "c"].map(|key| {
        let checks = checks.clone();
        monitor.wait(&[key], SECOND, move |_| {
            checks.lock().unwrap().push(key);
            None::<()>
        })
    });
    let checked = || {
        let mut checked = std::mem::take(&mut *checks.lock().unwrap());
        checked.sort_unstable();
        checked
    };
    assert_eq!(checked(), ["a", "b", "c"]); // at parking
    monitor.update(|_| ());
    assert_eq!(checked(), ["a", "b", "c"]);
    monitor.update_key(&"b", |_| ());
    assert_eq!(checked(), ["b"]);
    assert_eq!(monitor.update_keys(|_| (7, vec!["c", "a", "nobody"])), 7);
    assert_eq!(checked(), ["a", "c"]);
    monitor.read(|_| ());
    assert!(checked().is_empty());
    let [a, ..] = futures;
    drop(a);
    monitor.update(|_| ());
    assert_eq!(checked(), ["b", "c"]);
    nothing_after(monitor, &waits);
}

/// The other waits go with the monitor.
#[track_caller]
fn nothing_after<S: Send + 'static>(monitor: Monitor<&'static str, S>, waits: &Waits) {
    monitor.purgatory().shutdown(Duration::from_secs(60));
    nothing_is_left(waits);
}

#[test]
fn a_change_that_panics_raises_and_unlocks() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    type Change = fn(&Monitor<&'static str, Numbers>);
    let changes: [Change; 3] = [
        |monitor| {
            monitor.update(|numbers| {
                numbers.push(7);
                panic!("half way");
            })
        },
        |monitor| {
            monitor.update_key(&"n", |numbers| {
                numbers.push(7);
                panic!("half way");
            })
        },
        |monitor| {
            monitor.update_keys(|numbers| -> ((), Vec<&str>) {
                numbers.push(7);
                panic!("half way");
            })
        },
    ];
    for change in changes {
        monitor.update(Vec::clear);
        let mut seven = monitor.wait(&["n"], SECOND, has(7));
        assert_eq!(panic_of(|| change(&monitor)), "half way");
        assert_eq!(poll(&mut seven), Poll::Ready(Ok(7)));
    }
    assert_eq!(panic_of(|| monitor.read(|_| panic!("looking"))), "looking");
    assert_eq!(monitor.read(|numbers| numbers.len()), 1);
    nothing_is_left(&waits);
}

#[test]
fn a_call_inside_a_closure_panics_with_its_name() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let inside = |call: fn(&Monitor<&'static str, Numbers>)| {
        let around = [
            panic_of(|| monitor.update(|_| call(&monitor))),
            panic_of(|| monitor.read(|_| call(&monitor))),
        ];
        assert_eq!(around[0], around[1]);
        let [message, _] = around;
        message
    };
    let of = |call: &str| format!("Monitor::{call} called inside a closure of the same monitor");
    assert_eq!(inside(|monitor| monitor.update(|_| ())), of("update"));
    assert_eq!(inside(|monitor| monitor.update_key(&"n", |_| ())), of("update_key"));
    assert_eq!(inside(|monitor| monitor.update_keys(|_| ((), vec!["n"]))), of("update_keys"));
    assert_eq!(inside(|monitor| monitor.read(|_| ())), of("read"));
    assert_eq!(inside(|monitor| drop(monitor.wait(&["n"], SECOND, has(1)))), of("wait"));
    // In a condition it ends the wait; and so does an event that somebody raises under the lock.
    let again = monitor.clone();
    let calls_back = monitor.wait(&["n"], SECOND, move |_| Some(again.read(Vec::len)));
    assert_eq!(calls_back.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    let under_the_lock = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|_| waits.check_and_complete(&"n"));
    assert_eq!(under_the_lock.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    nothing_is_left(&waits);
}

#[test]
fn a_dropped_future_leaves_nothing() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    drop(monitor.wait(&["n"], SECOND, has(1)));
    nothing_is_left(&waits);
    let future = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|_| drop(future));
    nothing_is_left(&waits);
    let mut answered = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut answered), Poll::Ready(Ok(1)));
    drop(answered);
    nothing_is_left(&waits);
}

#[test]
fn a_wait_that_is_over_leaves_no_key_behind() {
    let (timer, waits) = by_hand();
    let (monitor, key) = (Monitor::with(waits, Numbers::new()), Arc::<str>::from("n"));
    let keys = [key.clone()];
    let completed = monitor.wait(&keys, SECOND, has(1));
    let expired = monitor.wait(&keys, SECOND / 2, has(2));
    let dropped = monitor.wait(&keys, SECOND, has(2));
    let cancelled = monitor.wait(&keys, SECOND, has(2));
    let at_once = monitor.wait(&keys, SECOND, |_| Some(()));
    assert_eq!(at_once.wait_blocking(), Ok(()));
    monitor.update(|numbers| numbers.push(1));
    timer.advance(SECOND / 2);
    drop(dropped);
    monitor.purgatory().shutdown(Duration::from_secs(60));
    let refused = monitor.wait(&keys, SECOND, has(2));
    drop(keys);
    assert_eq!(Arc::strong_count(&key), 1);
    drop((completed, expired, cancelled, refused));
}

#[test]
fn a_shutdown_ends_the_waits_and_the_state_stays() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let waiting = monitor.wait(&["n"], SECOND, has(1));
    monitor.purgatory().shutdown(Duration::from_secs(60));
    assert_eq!(waiting.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(monitor.wait(&["n"], SECOND, has(1)).wait_blocking(), Ok(1)); // needs not wait
    let closed = Err(WaitError::Refused(RefusedReason::Closed));
    assert_eq!(monitor.wait(&["n"], SECOND, has(2)).wait_blocking(), closed);
    let no_keys = monitor.wait(&[], SECOND, has(1)).wait_blocking();
    assert_eq!(no_keys, Err(WaitError::Refused(RefusedReason::NoKeys)));
    nothing_is_left(&waits);
}

#[test]
fn the_last_handle_ends_waits_and_drops_the_state() {
    let state = Arc::new(());
    let monitor = Monitor::new("dropped", state.clone()).unwrap();
    let waiting = monitor.clone().wait(&["n"], Timeout::Never, |_| None::<()>);
    assert_eq!((monitor.purgatory().len(), Arc::strong_count(&state)), (1, 2));
    drop(monitor);
    assert_eq!(Arc::strong_count(&state), 1); // though a future is there
    assert_eq!(waiting.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Dropped)));
}
