//! A state and its waits: the keys that a change signals, closures that panic or call back, and the
//! drop of the last handle.

use crate::support::*;

type Numbers = Vec<u32>;
type Waits = Purgatory<&'static str>;

/// Creates a monitor on a manual timer, with its purgatory for inspection.
fn monitor() -> (Waits, Monitor<&'static str, Numbers>) {
    let waits = by_hand().1;
    (waits.clone(), Monitor::over(waits, Numbers::new()))
}

/// Each kind of change that signals several keys checks each wait once, also inside a callback and
/// with a key given twice.
#[test]
fn a_change_of_many_keys_checks_each_wait_once() {
    let keys: Vec<u32> = (0..100).collect();
    let monitor = Monitor::new("monitor", false).unwrap();
    let counts = [(); 4].map(|()| Arc::new(AtomicUsize::new(0)));
    let wait = |keys: &[u32], count: &Arc<AtomicUsize>| {
        let count = count.clone();
        monitor.wait(keys, NEVER, move |_| {
            count.fetch_add(1, SeqCst);
            false
        })
    };
    let _waits = [
        wait(&keys, &counts[0]),
        wait(&keys[50..], &counts[1]),
        wait(&keys[99..], &counts[2]),
    ];
    let _many = [(); 100].map(|()| wait(&keys[99..], &counts[3])); // more than are checked together
    let checks = || counts.each_ref().map(|count| count.swap(0, SeqCst));
    assert_eq!(checks(), [1, 1, 1, 100]);
    monitor.update(|_| ());
    assert_eq!(checks(), [1, 1, 1, 100]);
    monitor.update_keys(|_| ((), [&keys[..], &keys[..]].concat()));
    assert_eq!(checks(), [1, 1, 1, 100]);
    monitor.update_keys(|_| ((), keys[..60].to_vec()));
    assert_eq!(checks(), [1, 1, 0, 0]);

    let inside = monitor.clone();
    let count = counts[0].clone();
    let changes = move |_| {
        inside.update(|_| ());
        assert_eq!(count.load(SeqCst), 0, "once the callback has returned");
    };
    let purgatory = monitor.purgatory();
    purgatory.park(when(|| false, changes), &[1000], NEVER);
    assert_eq!(purgatory.complete_for_key(&1000), 1);
    assert_eq!((checks(), purgatory.stats().panics), ([1, 1, 1, 100], 0));
}

/// Returns the message of a call's panic.
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
fn update_signals_only_its_keys() {
    let (waits, monitor) = monitor();
    let checks = Arc::new(Mutex::new(Vec::new()));
    let wait = |key: &'static str| {
        let checks = checks.clone();
        monitor.wait(&[key], SECOND, move |numbers| {
            checks.lock().unwrap().push(key);
            numbers.pop()
        })
    };
    let a = wait("a");
    let _second = wait("a");
    let b = wait("b");
    let _c = wait("c");
    let checked = || {
        let mut checked = std::mem::take(&mut *checks.lock().unwrap());
        checked.sort_unstable();
        checked.concat()
    };
    assert_eq!(checked(), "aabc"); // at parking
    monitor.update(|_| ());
    assert_eq!(checked(), "aabc");
    monitor.update_key(&"b", |_| ());
    assert_eq!(checked(), "b");
    assert_eq!(monitor.update_keys(|_| (7, vec!["c", "b", "nobody"])), 7);
    assert_eq!(checked(), "bc");
    monitor.read(|_| ());
    assert_eq!(monitor.update_one(&"a", |numbers| numbers.push(1)), ());
    assert_eq!((checked(), monitor.purgatory().len()), ("a".into(), 3)); // the first wait has it
    drop(b);
    monitor.update(|_| ());
    assert_eq!(checked(), "ac");
    drop(a);
    waits.shutdown(SECOND);
    assert_empty(&waits);
}

/// The change may have changed anything before it panicked.
#[test]
fn change_that_panics_signals_and_unlocks() {
    let (waits, monitor) = monitor();
    fn half_way<R>(numbers: &mut Numbers) -> R {
        numbers.push(7);
        panic!("half way");
    }
    let changes: [fn(&Monitor<&'static str, Numbers>); 4] = [
        |monitor| monitor.update(half_way),
        |monitor| monitor.update_key(&"n", half_way),
        |monitor| monitor.update_one(&"n", half_way),
        |monitor| monitor.update_keys(half_way),
    ];
    for change in changes {
        monitor.update(Vec::clear);
        let mut waits = [(); 2].map(|()| monitor.wait(&["n"], SECOND, has(7)));
        assert_eq!(panic_of(|| change(&monitor)), "half way");
        assert_eq!(waits.each_mut().map(over), [Ok(7), Ok(7)]);
    }
    assert_eq!(panic_of(|| monitor.read(|_| panic!("looking"))), "looking");
    assert_eq!(monitor.read(|numbers| numbers.len()), 1);
    assert_empty(&waits);
}

#[test]
fn a_call_inside_a_closure_panics_with_its_name() {
    type Call = fn(&Monitor<&'static str, Numbers>);
    let (waits, monitor) = monitor();
    let calls: [(&str, Call); 6] = [
        ("update", |monitor| monitor.update(|_| ())),
        ("update_key", |monitor| monitor.update_key(&"n", |_| ())),
        ("update_one", |monitor| monitor.update_one(&"n", |_| ())),
        ("update_keys", |monitor| {
            monitor.update_keys(|_| ((), vec!["n"]))
        }),
        ("read", |monitor| monitor.read(|_| ())),
        ("wait", |monitor| drop(monitor.wait(&["n"], SECOND, has(1)))),
    ];
    for (name, call) in calls {
        let says = format!("Monitor::{name} called inside a closure of the same monitor");
        assert_eq!(panic_of(|| monitor.update(|_| call(&monitor))), says);
        assert_eq!(panic_of(|| monitor.read(|_| call(&monitor))), says);
    }
    // A condition that does this ends its wait, and so does an event under the lock.
    let panicked = Err(WaitError::Cancelled(CancelReason::Panicked));
    let again = monitor.clone();
    let calls_back = monitor.wait(&["n"], SECOND, move |_| Some(again.read(Vec::len)));
    assert_eq!(calls_back.wait_blocking(), panicked);
    let under_the_lock = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|_| waits.check_and_complete(&"n"));
    assert_eq!(
        under_the_lock.wait_blocking().map(|_| 0),
        panicked.map(|_| 0)
    );
    assert_empty(&waits);
}

/// In release builds the change would wait for its own lock.
#[test]
#[cfg(debug_assertions)]
fn nested_change_under_a_shard_lock_panics() {
    let (waits, monitor) = monitor();
    let wait = monitor.wait(&["n"], MINUTE, has(1));
    let id = wait.id().unwrap();
    let says = panic_of(|| waits.with(id, |_| monitor.update(|_| ())));
    assert!(says.contains("inside a closure of `with`"), "{says}");
    drop(wait);
    assert_empty(&waits);
}

#[test]
fn the_last_handle_ends_waits_and_drops_the_state() {
    let state = Arc::new(());
    let monitor = Monitor::new("dropped", state.clone()).unwrap();
    let waiting = monitor.clone().wait(&["n"], MINUTE, |_| None::<()>);
    assert_eq!(monitor.purgatory().len(), 1);
    assert_eq!(Arc::strong_count(&state), 2);
    drop(monitor);
    assert_eq!(Arc::strong_count(&state), 1); // even though a future lives
    let expected = Err(WaitError::Cancelled(CancelReason::Dropped));
    assert_eq!(waiting.wait_blocking(), expected);
}

/// The clone may serve a page of metrics, for example.
#[test]
fn dropped_monitor_ends_waits_despite_a_clone() {
    let (waits, monitor) = monitor();
    let mut wait = monitor.wait(&["a"], NEVER, |_| false);
    drop(monitor);
    let dropped = WaitError::Cancelled(CancelReason::Dropped);
    assert_eq!(over(&mut wait), Err(dropped));
    assert!(waits.is_empty() && waits.is_closed());
}
