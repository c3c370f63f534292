//! Keys whose `Clone` or `Eq` panics: the call unwinds, and leaves nothing half done. Keys whose
//! `Drop` panics harm no other operation.
#![cfg(not(loom))]

use std::panic::resume_unwind;

use crate::support::*;

/// A key that panics when it is cloned.
fn uncloneable(number: u32) -> Hooked {
    let fails = |at| {
        if at == At::Clone {
            resume_unwind(Box::new("cloned")) // prints nothing
        }
    };
    Hooked::new(number, fails)
}

/// Makes a call that unwinds and drops a value, which then looks into its form; if the form is
/// locked, the look never returns. Returns the result of the look.
#[track_caller]
fn seen_by_dropped<T: Send + 'static>(
    look: impl Fn() -> T + Send + 'static,
    call: impl FnOnce(OnDrop) + Send + 'static,
) -> T {
    let (seen, looks) = mpsc::channel();
    in_time(move || {
        let value = OnDrop::new(move || seen.send(look()).unwrap());
        assert!(catch_unwind(AssertUnwindSafe(|| call(value))).is_err());
    });
    looks.try_recv().unwrap()
}

/// The operation of a call that unwinds is dropped with nothing locked.
#[test]
fn operation_whose_key_panics_is_dropped_unlocked() {
    for count in [1, 2] {
        let (_timer, waits): (_, Purgatory<Hooked>) = by_hand();
        let (looks, own) = (waits.clone(), waits.clone());
        let park = move |value| {
            let operation = when(|| false, move |_| drop(value));
            let keys = [uncloneable(1), uncloneable(2)];
            _ = own.try_complete_else_watch(operation, &keys[..count], NEVER);
        };
        assert_eq!(
            seen_by_dropped(move || looks.len(), park),
            0,
            "{count} keys"
        );
        assert_empty(&waits);
        assert_eq!(waits.stats().checks, 1, "it was checked before");
    }
}

/// The callback of a wait for a value is dropped with nothing locked.
#[test]
fn callback_whose_key_panics_is_dropped_unlocked() {
    let (_timer, waits, values) = watermarks_with(|builder| builder.shards(1));
    let looks = values.clone();
    let park = move |value| _ = values.park(&uncloneable(1), 1, NEVER, move |_| drop(value));
    let seen = seen_by_dropped(move || looks.value(&uncloneable(1)), park);
    assert_eq!(seen, None);
    assert_nothing_waits(&waits);
}

thread_local! {
    /// Called by the comparisons of this thread's keys, until it returns true, which makes one
    /// panic.
    static COMPARED: RefCell<Option<Box<dyn FnMut() -> bool>>> = const { RefCell::new(None) };
}

/// Runs this thread's hook of comparisons, and panics if that returns true.
fn compared() {
    if let Some(mut compared) = COMPARED.take() {
        if compared() {
            resume_unwind(Box::new("compared")); // prints nothing
        }
        COMPARED.set(Some(compared));
    }
}

/// A key whose `Eq` runs this thread's hook.
fn comparable(number: u32) -> Hooked {
    let calls = |at| {
        if at == At::Eq {
            compared();
        }
    };
    Hooked::new(number, calls)
}

/// Lets keys be compared this many times; the next comparison panics.
fn panic_after(mut comparisons: usize) {
    COMPARED.set(Some(Box::new(move || {
        let is_over = comparisons == 0;
        comparisons = comparisons.saturating_sub(1);
        is_over
    })));
}

/// Runs `work`; the comparison after this many panics.
fn with_comparisons<T>(count: usize, work: impl FnOnce() -> T) -> thread::Result<T> {
    panic_after(count);
    let done = catch_unwind(AssertUnwindSafe(work));
    COMPARED.set(None);
    done
}

/// When the last key panics, the entry has its place and one watch of two.
#[test]
fn a_park_whose_last_key_panics_leaves_nothing() {
    let (_timer, waits): (_, Purgatory<Hooked>) = by_hand_with(|builder| builder.max_parked(2));
    waits.park(never(), &[comparable(1)], NEVER);
    let keys = [3, 2, 1].map(comparable);
    let park = || waits.try_complete_else_watch(never(), &keys, NEVER);
    assert!(with_comparisons(0, park).is_err());
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (1, 1, 1));
    waits.park(never(), &[comparable(2)], NEVER);
    assert_eq!(waits.stats().checks, 3);
}

/// The signal inside a callback runs after that callback, within a call that goes on.
#[test]
fn panic_of_key_signalled_in_callback_is_counted() {
    for several in [false, true] {
        let (_timer, waits): (_, Purgatory<Hooked>) = by_hand();
        let monitor = Monitor::over(waits.clone(), false);
        let inside = monitor.clone();
        let signals = move |_| {
            match several {
                true => inside.update_keys(|_| ((), vec![comparable(1), comparable(2)])),
                false => inside.update_key(&comparable(1), |_| ()),
            }
            panic_after(0);
        };
        waits.park(never(), &[comparable(1)], NEVER);
        let parked = waits.try_complete_else_watch(when(|| true, signals), &[comparable(2)], NEVER);
        COMPARED.set(None);
        let left = (waits.len(), waits.stats().panics);
        assert_eq!(
            (parked.is_ok(), left),
            (true, (1, 1)),
            "several keys: {several}"
        );
    }
}

/// The shard is unlocked by then, so the value can look at the waits.
#[test]
fn a_reply_whose_key_panics_is_dropped_unlocked() {
    let replies = Replies::<Hooked, Hooked>::on(&ManualTimer::new(), "test").unwrap();
    let _reply = replies.expect(comparable(1), NEVER).unwrap();
    let waits = replies.waits();
    let deliver = move |value| {
        panic_after(0);
        _ = replies.deliver(&comparable(1), Hooked::holding(1, value));
    };
    assert_eq!(seen_by_dropped(move || waits.len(), deliver), 1);
}

/// More waits than leave their key under one lock hold.
const MANY: usize = 150;

/// A change looks its key up only once, so a comparison that panics later cannot stop it.
#[test]
fn a_change_that_has_begun_ends_all_waits_of_its_key() {
    type Change = fn(&Watermarks<Hooked>, &Hooked) -> usize;
    let changes: [(Change, bool); 2] = [
        (|values, key| values.advance(key, 5).unwrap(), true),
        (|values, key| values.remove(key), false),
    ];
    for (change, completes) in changes {
        let (_timer, waits, values) = watermarks();
        let key = comparable(1);
        let mut parked: Vec<_> = (0..MANY).map(|_| values.wait_for(&key, 5, NEVER)).collect();
        let ended = with_comparisons(1, || change(&values, &key));
        assert_eq!(ended.unwrap(), MANY);
        assert!(
            parked
                .iter_mut()
                .all(|wait| over(wait).is_ok() == completes)
        );
        assert_nothing_waits(&waits);
    }
}

/// Makes a call while armed keys panic, and checks that their panics are contained.
#[track_caller]
fn armed<T>(armed: &Arc<AtomicBool>, call: impl FnOnce() -> T) -> T {
    armed.store(true, SeqCst);
    let called = catch_unwind(AssertUnwindSafe(call));
    armed.store(false, SeqCst);
    called.expect("the panics are contained")
}

/// A key with an even number, except for 0, panics when it is dropped once it is armed.
fn undroppable(number: u32, armed: &Arc<AtomicBool>) -> Hooked {
    let panics = number > 0 && number % 2 == 0;
    let armed = armed.clone();
    Hooked::new(number, move |at| {
        assert!(at != At::Drop || !panics || !armed.load(SeqCst), "dropped");
    })
}

/// The key that panics may be the first or another one, and the operations end in each way.
#[test]
fn panicking_key_drop_harms_no_other_operation() {
    type End = fn(&ManualTimer, &Purgatory<Hooked>, &Hooked);
    let ends: [End; 3] = [
        |timer, _, _| timer.advance(SECOND),
        |_, waits, shared| assert_eq!(waits.check_and_complete(shared), 3),
        |_, waits, _| assert_eq!(waits.cancel_all("over"), 3),
    ];
    for end in ends {
        for own_is_first in [true, false] {
            let (timer, waits) = by_hand_with(|builder| builder.max_parked(3));
            let panics = Arc::new(AtomicBool::new(false));
            let key = |number| undroppable(number, &panics);
            let (tell, told) = mpsc::channel();
            let holds = Arc::new(AtomicBool::new(false));
            for number in 1..=3 {
                let (tell, holds) = (tell.clone(), holds.clone());
                let check = move || holds.load(SeqCst);
                let operation = when(check, move |_| tell.send(number).unwrap());
                let mut keys = [key(number), key(0)];
                if !own_is_first {
                    keys.reverse();
                }
                waits.park(operation, &keys, SECOND);
            }
            holds.store(true, SeqCst);
            let shared = key(0);
            armed(&panics, || end(&timer, &waits, &shared));
            let mut ended: Vec<_> = told.try_iter().collect();
            ended.sort_unstable();
            assert_eq!((ended, waits.stats().panics), (vec![1, 2, 3], 1));
            assert_eq!((waits.watched(), waits.keys()), (0, 0));
            for number in 1..=3 {
                waits.park(never(), &[key(number)], NEVER); // its place is free
            }
            waits.cancel_all("over");
        }
    }
}

#[test]
fn panicking_key_of_an_answered_request_is_contained() {
    let replies: Replies<Hooked, Hooked> = Replies::on(&ManualTimer::new(), "test").unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let key = || undroppable(2, &panics);
    let mut reply = replies.expect(key(), MINUTE).unwrap();
    let asked = key();
    let deliver = || replies.deliver(&asked, Hooked::plain(7));
    assert_eq!(armed(&panics, deliver), Ok(()));
    assert_eq!(
        (over(&mut reply), replies.waits().stats().panics),
        (Ok(Hooked::plain(7)), 1)
    );
}

/// The keys of a future for several values panic one after the other.
#[test]
fn panicking_drops_of_several_keys_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_timer, waits, values) = watermarks_with(|builder| builder);
    let keys = [(undroppable(2, &panics), 1), (undroppable(2, &panics), 2)];
    let each = values.wait_for_each(&keys, NEVER);
    armed(&panics, || drop(each));
    assert_nothing_waits(&waits);
    assert_eq!(
        waits.stats().panics,
        3,
        "those of the future, and of the table"
    );
}

/// The future that yields the failure drops the keys.
#[test]
fn keys_of_a_failure_that_panic_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_timer, waits, values) = watermarks_with(|builder| builder);
    let key = undroppable(2, &panics);
    let mut each = values.wait_for_each(&[(key.clone(), 1), (key.clone(), 2)], NEVER);
    waits.cancel_all("over");
    assert!(armed(&panics, || over(&mut each)).is_err());
    assert_eq!(waits.stats().panics, 2);
}

/// Members are dropped when their set is replaced, when a set is refused, and when the group is
/// removed.
#[test]
fn panicking_member_drops_harm_no_other_member() {
    let panics = Arc::new(AtomicBool::new(false));
    let sets = ReplicaSets::on(&ManualTimer::new(), "test").unwrap();
    let members = [2, 4].map(|number| (undroppable(number, &panics), 7));
    let twice = [&members[..], &members[..]].concat();
    let set = |epoch, members: Vec<_>| sets.set(&1_u32, epoch, members, 7, Rule::all());
    let (first, second, third) = (members.to_vec(), members.to_vec(), members.to_vec());
    assert_eq!(set(1, first), Ok(0));
    let leader = &members[0].0;
    let mut wait = sets.in_epoch(&1, 1).wait_for(9, NEVER);
    armed(&panics, || {
        assert_eq!(set(1, second), Err(other_epoch(1, 1)));
        assert_eq!(set(2, twice), Err(WaitError::IsMember));
        assert_eq!(set(2, third), Ok(1));
        assert_eq!(sets.begin_epoch(&1, 3, leader, 8), Ok(0));
        assert_eq!(sets.remove(&1), 0);
    });
    assert!(over(&mut wait).is_err());
    assert_eq!(sets.watermark(&1), None);
}

/// The last key of a park panics while a cancel is left to its parker: the reason's drop panics.
#[test]
fn panicking_last_key_contains_the_dropped_reason() {
    for first in 2.. {
        let (_timer, waits): (_, Purgatory<Hooked>) = by_hand_with(|builder| builder.shards(64));
        waits.park(never(), &[comparable(1)], NEVER);
        let cancels = waits.clone();
        let mut is_first = true;
        let cancel = move || {
            if !mem::take(&mut is_first) {
                return false;
            }
            let cancels = cancels.clone();
            let (send, is_left) = mpsc::channel();
            thread::spawn(move || {
                let reason = Reason::with("late", OnDrop::new(|| panic!("dropped")));
                let ended = cancels.cancel_for_key(&comparable(first), reason);
                let _ = send.send(ended);
            });
            // The cancel waits for ever if both keys are in one shard, which is locked.
            is_left.recv_timeout(SECOND) == Ok(0)
        };
        COMPARED.set(Some(Box::new(cancel)));
        let keys = [first, 1].map(comparable);
        let park = || waits.try_complete_else_watch(never(), &keys, NEVER);
        let parked = catch_unwind(AssertUnwindSafe(park));
        COMPARED.set(None);
        if parked.is_ok() {
            continue; // they do
        }
        assert_eq!((waits.len(), waits.stats().panics), (1, 1));
        return;
    }
}

/// A signal inside a callback keeps its keys until its turn; these panic when they are dropped.
#[test]
fn panicking_keys_after_a_nested_signal_are_contained() {
    let (_timer, waits): (_, Purgatory<Hooked>) = by_hand();
    let panics = Arc::new(AtomicBool::new(false));
    let key = |number| undroppable(number, &panics);
    waits.park(never(), &[key(2)], NEVER);
    let (signals, signalled, armed) = (waits.clone(), key(2), panics.clone());
    let signal = move |_| {
        assert_eq!(signals.check_and_complete(&signalled), 0);
        drop(signalled);
        armed.store(true, SeqCst);
    };
    waits.park(when(|| false, signal), &[key(1)], NEVER);
    let called = || waits.complete_for_key(&key(1));
    assert_eq!(catch_unwind(AssertUnwindSafe(called)).unwrap(), 1);
    panics.store(false, SeqCst);
    assert_eq!((waits.len(), waits.stats().panics), (1, 1));
}

#[test]
fn keys_that_panic_behind_a_change_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let key = |number| undroppable(number, &panics);
    let changes = Monitor::on(&ManualTimer::new(), "test", false).unwrap();
    let _waits = changes.wait(&[key(2), key(3)], NEVER, |is_over| *is_over);
    let change = |by: &dyn Fn()| {
        let before = changes.purgatory().stats().panics;
        assert!(catch_unwind(AssertUnwindSafe(by)).is_ok());
        panics.store(false, SeqCst);
        changes.purgatory().stats().panics - before
    };
    let arm = || panics.store(true, SeqCst);
    assert_eq!(change(&|| changes.update(|_| arm())), 1);
    let keys = || vec![key(2), key(2)];
    let both = || changes.update_keys(|_| (arm(), keys()));
    assert_eq!(change(&both), 2);
    // Inside a callback, the keys are left to the outer call.
    let (own, inside) = (panics.clone(), changes.clone());
    let keys = keys();
    let update = move |_| {
        inside.update_keys(|_| ((), keys));
        own.store(true, SeqCst);
    };
    changes
        .purgatory()
        .park(when(|| false, update), &[key(1)], NEVER);
    let nested = || assert_eq!(changes.purgatory().complete_for_key(&key(1)), 1);
    assert_eq!(change(&nested), 2);
}

/// Creates an operation that becomes true without an event, which its last check finds.
fn unasked() -> BoxedOperation {
    let mut checks = 0..;
    when(move || checks.next() > Some(0), drop)
}

/// The keys that `for_each` or a missed event has shown panic when they are dropped.
#[test]
fn keys_that_panic_behind_a_look_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let keys = [2, 4].map(|number| undroppable(number, &panics));
    let arm = |panics: &Arc<AtomicBool>| {
        let panics = panics.clone();
        move || panics.store(true, SeqCst)
    };
    let (missed, shown) = (arm(&panics), arm(&panics));
    let (timer, waits): (_, Purgatory<_>) =
        by_hand_with(|builder| builder.check_at_expiry(move |_| missed()));
    waits.park(never(), &keys, NEVER); // the operation keeps the keys
    let look = || waits.for_each(|_, _, _| shown());
    assert!(catch_unwind(AssertUnwindSafe(look)).is_ok());
    panics.store(false, SeqCst);
    assert_eq!(waits.stats().panics, 2);
    waits.park(unasked(), &keys, SECOND);
    timer.advance(SECOND);
    panics.store(false, SeqCst);
    let stats = waits.stats();
    assert_eq!((stats.missed_events, stats.panics), (1, 4));
}

/// While the hook's panic unwinds, a key's panic would abort the process.
#[test]
fn panicking_key_after_a_panicking_hook_is_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let arm = panics.clone();
    let (timer, waits): (_, Purgatory<_>) = by_hand_with(|builder| {
        builder.check_at_expiry(move |_| {
            arm.store(true, SeqCst);
            panic!("in a hook");
        })
    });
    let keys = [2, 4].map(|number| undroppable(number, &panics));
    waits.park(never(), &keys, NEVER); // the operation keeps the keys
    waits.park(unasked(), &keys, SECOND);
    timer.advance(SECOND);
    panics.store(false, SeqCst);
    let stats = waits.stats();
    assert_eq!((stats.missed_events, stats.panics), (1, 3));
}

/// The waits of the other keys still get their event.
#[test]
fn a_change_whose_last_key_panics_signals_the_others() {
    let ready = Monitor::on(&ManualTimer::new(), "test", false).unwrap();
    let mut wait = ready.wait(&[comparable(1)], NEVER, |ready| *ready);
    let mut other = ready.wait(&[comparable(2)], NEVER, |ready| *ready);
    let change = || {
        ready.update_keys(|ready| {
            *ready = true;
            ((), vec![comparable(1), comparable(2)])
        })
    };
    assert!(with_comparisons(1, change).is_err());
    assert_eq!(over(&mut wait), Ok(()));
    assert!(poll(&mut other).is_pending());
}

/// While the panic of the key's `Eq` unwinds, the panic of its drop would abort the process.
#[test]
fn a_change_whose_key_panics_twice_reaches_the_caller() {
    let panics = Arc::new(AtomicBool::new(false));
    let armed = panics.clone();
    let fragile = Hooked::new(0, move |at| match at {
        At::Eq => compared(),
        At::Drop => assert!(!armed.load(SeqCst), "dropped"),
        At::Clone | At::Hash => (),
    });
    let key = |number| fragile.like(number);
    let ready = Monitor::on(&ManualTimer::new(), "test", false).unwrap();
    let mut wait = ready.wait(&[key(1)], NEVER, |ready| *ready);
    let change = |keys: &[u32]| {
        let keys = keys.iter().map(|&number| key(number)).collect();
        with_comparisons(0, || {
            ready.update_keys(|_| {
                panics.store(true, SeqCst);
                ((), keys)
            });
        })
    };
    for keys in [&[1][..], &[1, 2]] {
        assert!(change(keys).is_err());
        panics.store(false, SeqCst);
    }
    assert!(poll(&mut wait).is_pending());
    assert_eq!(ready.purgatory().stats().panics, 3);
}

/// The refused key's copy is dropped.
#[test]
fn panicking_drop_of_a_refused_key_is_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_timer, waits, values) = watermarks_with(|builder| builder.keys_max(0));
    let key = undroppable(2, &panics);
    let refused = Err(WaitError::TooManyKeys { limit: 0 });
    assert_eq!(armed(&panics, || values.advance(&key, 1)), refused);
    assert_eq!(armed(&panics, || values.begin_epoch(&key, 1, 1)), refused);
    assert_eq!(waits.stats().panics, 2);
}
