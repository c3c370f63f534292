//! Watermarks by key. (Random orders are compared with a reference in `models/watermarks`.)

use crate::support::*;

#[track_caller]
fn fails<T: std::fmt::Debug>(mut wait: WaitFuture<T>) -> WaitError {
    over(&mut wait).unwrap_err()
}

/// The answer is stored in the entry. It is the value of the advance, even if others came since.
#[test]
fn a_wait_for_a_value_takes_no_allocation() {
    let (_timer, waits, watermarks) = watermarks::<u32>();
    let mut last = 0;
    let ask = || {
        let mut wait = watermarks.wait_for(&1, last + 1, SECOND);
        assert!(poll(&mut wait).is_pending());
        let dropped = watermarks.wait_for(&1, last + 9, SECOND);
        assert_eq!(watermarks.advance(&1, last + 2), Ok(1));
        assert_eq!(watermarks.advance(&1, last + 3), Ok(0));
        assert_eq!(waits.len(), 1); // an answer that is not taken counts nowhere
        drop(dropped);
        assert_eq!(over(&mut wait), Ok(last + 2));
        last += 3;
    };
    let counted = a_hundred_more(ask);
    assert_eq!((counted.count_total, counted.count_current), (0, 0));
    assert_nothing_waits(&waits);
}

#[test]
fn additions_add_up_over_threads() {
    let votes: Watermarks<String> = Watermarks::new("votes").unwrap();
    let elected = votes.wait_for("term", 4000, MINUTE);
    let vote = |_| {
        for _ in 0..1000 {
            _ = votes.add("term", 1).unwrap();
        }
    };
    race(4, vote);
    assert_eq!(elected.wait_blocking(), Ok(4000));
    assert_eq!(votes.value("term"), Some(4000));
    assert_eq!(votes.add("term", u64::MAX), Ok(0));
    assert_eq!(votes.value("term"), Some(u64::MAX));
    assert_eq!((votes.remove("term"), votes.keys()), (0, 0));
}

#[test]
fn refused_wait_hands_its_callback_back() {
    let (_timer, waits, watermarks) = watermarks::<u32>();
    waits.shutdown(SECOND);
    let (told, ended) = std::sync::mpsc::channel();
    let refused = watermarks.park(&1, 5, SECOND, move |outcome| told.send(outcome).unwrap());
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason, WaitError::Closed);
    assert_eq!(waits.stats().refused_closed, 1);
    refused.into_inner()(Expired);
    assert_eq!(ended.try_recv(), Ok(Expired));
    // Values can be used after the shutdown; waits cannot, even for a value that is reached.
    assert_eq!(watermarks.advance(&1, 5), Ok(0));
    assert_eq!(watermarks.value(&1), Some(5));
    let late = over(&mut watermarks.wait_for(&1, 5, SECOND));
    assert_eq!(late, Err(WaitError::Closed));
}

/// It gets more time as long as it waits, and a thread can block on it.
#[test]
fn a_wait_for_each_is_given_more_time() {
    let (timer, waits, watermarks) = watermarks::<u32>();
    let levels = [(1, 5), (2, 5), (3, 5)];
    watermarks.advance(&1, 5).unwrap(); // met at once
    let mut later = watermarks.wait_for_each(&levels, SECOND);
    assert!(later.reschedule(2 * SECOND));
    timer.advance(SECOND);
    assert!(poll(&mut later).is_pending());
    assert!(later.reschedule(Timeout::Never));
    timer.advance(MINUTE);
    assert!(poll(&mut later).is_pending());
    for (key, _) in levels {
        watermarks.advance(&key, 6).unwrap();
    }
    assert!(!later.reschedule(SECOND));
    let reached = later.wait_blocking().unwrap();
    assert_eq!(reached, [(1, 5), (2, 6), (3, 6)]);
    let own = Watermarks::new("own").unwrap();
    let expires = own.wait_for_each(&levels, MS).wait_blocking();
    assert_eq!(expires, Err(WaitError::Expired));
    let none = fails(watermarks.wait_for_each(&[], SECOND));
    assert_eq!(none, WaitError::NoKeys);
    let stats = waits.stats();
    assert_eq!((stats.refused_no_keys, stats.checks), (1, 0));
    assert_nothing_waits(&waits);
}

/// Each part is looked at once: with a look at all others this would take half a minute.
#[test]
fn wait_for_each_of_many_keys_takes_no_square() {
    const KEYS: u32 = 50_000;
    let (_timer, waits, ends) = watermarks::<u32>();
    let levels: Vec<(u32, u64)> = (0..KEYS).map(|key| (key, 1)).collect();
    let mut each = ends.wait_for_each(&levels, MINUTE);
    assert_eq!(waits.len(), levels.len());
    for key in 0..KEYS {
        assert_eq!(ends.advance(&key, 1), Ok(1));
    }
    assert_eq!(over(&mut each).as_ref(), Ok(&levels));
    let mut at_once = ends.wait_for_each(&levels, MINUTE);
    assert_eq!(over(&mut at_once), Ok(levels));
    assert_nothing_waits(&waits);
}

/// An observer of the first key is told only once the other part has left, too.
#[test]
fn parts_of_a_dropped_wait_leave_before_any_wake() {
    let (_timer, waits, ends) = watermarks::<u32>();
    let each = ends.wait_for_each(&[(1, 5), (2, 5)], MINUTE);
    let mut unwanted = ends.unwanted(&1, MINUTE);
    let seen = Arc::new(Mutex::new(None));
    let woken = {
        let waits = waits.clone();
        let seen = seen.clone();
        waker(move || *seen.lock().unwrap() = Some(waits.len()))
    };
    let mut context = Context::from_waker(&woken);
    assert!(Pin::new(&mut unwanted).poll(&mut context).is_pending());
    drop(each);
    assert_eq!(*seen.lock().unwrap(), Some(0));
    assert_eq!(over(&mut unwanted), Ok(()));
    assert_nothing_waits(&waits);
}

/// A key is copied when it is new, not for each wait.
#[test]
fn waits_take_borrowed_forms_of_their_key() {
    let (_timer, _, ends) = watermarks::<String>();
    let mut first = ends.wait_for("orders-0", 5, SECOND);
    drop(ends.wait_for("orders-0", 5, SECOND)); // so that the key has memory for more than one
    let (send, ended) = std::sync::mpsc::channel();
    let then = move |outcome| send.send(outcome).unwrap();
    ends.park("orders-0", 4, SECOND, then).unwrap();
    assert_eq!(ends.waits().keys(), 1);
    let mut second = None;
    let wait = || second = Some(ends.wait_for("orders-0", 6, SECOND));
    let borrowed = allocation_counter::measure(wait).count_total;
    let owned = "orders-0".to_owned();
    let mut third = None;
    let wait = || third = Some(ends.wait_for(&owned, 6, SECOND));
    assert_eq!(borrowed, allocation_counter::measure(wait).count_total);
    assert_eq!(ends.advance("orders-0", 5), Ok(2));
    assert_eq!((over(&mut first), ended.recv()), (Ok(5), Ok(Completed)));
    assert_eq!(ends.advance("orders-0", 6), Ok(2));
    assert_eq!(over(&mut second.unwrap()), Ok(6));
    assert_eq!(over(&mut third.unwrap()), Ok(6));
    // An `Arc<str>` is looked up by `str`; a wait takes the `Arc`.
    let (_timer, _, shared) = watermarks::<Arc<str>>();
    let orders: Arc<str> = "orders".into();
    let mut wait = shared.wait_for(&orders, 7, SECOND);
    assert_eq!(shared.advance(&orders, 7), Ok(1));
    assert_eq!((over(&mut wait), shared.value("orders")), (Ok(7), Some(7)));
}

thread_local! {
    /// Runs at the next hash of a key.
    static AT_HASH: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A key whose hash runs this thread's act.
fn acts(number: u32) -> Hooked {
    Hooked::new(number, |at| {
        if at == At::Hash {
            if let Some(act) = AT_HASH.take() {
                act();
            }
        }
    })
}

/// The first part ends while the second one is parked, which is then given up.
#[test]
fn part_parked_after_the_end_is_given_up() {
    let (_timer, waits, ends) = watermarks::<Hooked>();
    let closes = ends.clone();
    // Runs at the second key's hash, after the first one's.
    let at_second = move || AT_HASH.set(Some(Box::new(move || _ = closes.close(&acts(1), "gone"))));
    AT_HASH.set(Some(Box::new(at_second)));
    let each = ends.wait_for_each(&[(acts(1), 1), (acts(2), 1)], MINUTE);
    let closed = WaitError::Cancelled(CancelReason::Closed("gone".into()));
    assert_eq!(fails(each), closed);
    assert_nothing_waits(&waits);
}

/// The deadline of the whole wait counts from the call, however long its parts take to be parked.
#[test]
fn parts_of_a_wait_have_one_deadline() {
    let (timer, waits, ends) = watermarks::<Hooked>();
    ends.advance(&acts(1), 1).unwrap();
    let clock = timer.clone();
    let at_second = move || AT_HASH.set(Some(Box::new(move || clock.pass(5 * MS))));
    AT_HASH.set(Some(Box::new(at_second)));
    let each = ends.wait_for_each(&[(acts(1), 1), (acts(2), 1)], 10 * MS);
    timer.advance(5 * MS);
    assert_eq!(fails(each), WaitError::Expired);
    assert_nothing_waits(&waits);
}

/// Waits for 1 to 100, more than end in one lock hold. The first is called back while others still
/// wait.
fn a_hundred_waits(ends: &Watermarks<u32>, first: impl FnOnce() + Send + 'static) -> Outcomes {
    let outcomes = Outcomes::default();
    let mut first = Some(first);
    for threshold in 1..=100 {
        let outcomes = outcomes.clone();
        let first = first.take();
        let then = move |outcome| {
            outcomes.lock().unwrap().push(outcome);
            if let Some(first) = first {
                first();
            }
        };
        ends.park(&1, threshold, MINUTE, then).unwrap();
    }
    outcomes
}

type Outcomes = Arc<Mutex<Vec<Outcome>>>;

/// A change that comes during an advance finds that the advance's waits are over.
#[test]
fn callbacks_of_an_advance_undo_no_other() {
    type Change = fn(&Watermarks<u32>) -> usize;
    let changes: [(&str, Change); 4] = [
        ("epoch", |ends| ends.begin_epoch(&1, 1, 0).unwrap()),
        ("kept epoch", |ends| {
            ends.begin_epoch_and_keep(&1, 1, 0).unwrap()
        }),
        ("removal", |ends| ends.remove(&1)),
        ("close", |ends| ends.close(&1, "closed")),
    ];
    for (way, change) in changes {
        let (_timer, waits, ends) = watermarks::<u32>();
        let ended = Arc::new(AtomicUsize::new(0));
        let first = {
            let ends = ends.clone();
            let ended = ended.clone();
            move || ended.store(change(&ends), SeqCst)
        };
        let outcomes = a_hundred_waits(&ends, first);
        let advanced = ends.advance(&1, 100).unwrap();
        assert_eq!((advanced, ended.load(SeqCst)), (64, 36), "{way}");
        let outcomes = outcomes.lock().unwrap();
        assert!(
            outcomes.iter().all(|outcome| *outcome == Completed),
            "{way}"
        );
        assert_eq!(outcomes.len(), 100);
        assert_nothing_waits(&waits);
    }
}

/// A threshold that an advance has reached no longer makes its key wanted, even if its wait has not
/// ended.
#[test]
fn reached_waits_leave_a_key_unwanted() {
    let (_timer, waits, ends) = watermarks::<u32>();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let see = {
        let ends = ends.clone();
        let seen = seen.clone();
        move || {
            let mut wanted = ends.wanted(&1, MINUTE);
            let is_pending = poll(&mut wanted).is_pending();
            let unwanted = over(&mut ends.unwanted(&1, MINUTE));
            let lowest = ends.lowest_waiting(&1);
            seen.lock().unwrap().push((is_pending, unwanted, lowest));
            drop(wanted);
            // A wait for a higher value comes.
            let more = ends.wait_for(&1, 150, MINUTE);
            let wanted = over(&mut ends.wanted(&1, MINUTE));
            assert_eq!((wanted, ends.lowest_waiting(&1)), (Ok(150), Some(150)));
            drop(more);
        }
    };
    let outcomes = a_hundred_waits(&ends, see);
    assert_eq!(ends.advance(&1, 100), Ok(100));
    assert_eq!(*seen.lock().unwrap(), [(true, Ok(()), None)]);
    assert_eq!(outcomes.lock().unwrap().len(), 100);
    assert_nothing_waits(&waits);
}

/// Its waits have not all ended yet.
#[test]
fn a_key_that_is_being_closed_is_not_wanted() {
    let (_timer, waits, ends) = watermarks::<u32>();
    let wanted = Arc::new(Mutex::new(None));
    let ask = {
        let ends = ends.clone();
        let wanted = wanted.clone();
        move || *wanted.lock().unwrap() = Some(fails(ends.wanted(&1, MINUTE)))
    };
    a_hundred_waits(&ends, ask);
    assert_eq!(ends.close(&1, "gone"), 100);
    let closed = WaitError::Cancelled(CancelReason::Closed("gone".into()));
    assert_eq!(*wanted.lock().unwrap(), Some(closed));
    assert_nothing_waits(&waits);
}

/// Each observer leaves by a look-up: a walk past all others would take seconds. The key has a
/// value, so its record stays.
#[test]
fn many_observers_leave_and_their_memory_goes() {
    const MANY: usize = 50_000;
    let (timer, waits, ends) = watermarks::<u32>();
    ends.advance(&1, 1).unwrap();
    drop(ends.wanted(&1, SECOND)); // for the shard's first memory
    let come_and_go = || {
        let mut observers = Vec::new();
        for _ in 0..MANY {
            observers.push(ends.wanted(&1, SECOND));
        }
        timer.advance(SECOND);
        assert_eq!(over(&mut observers[MANY - 1]), Err(WaitError::Expired));
        drop(observers);
        let wait = ends.wait_for(&1, 2, MINUTE);
        let mut observers = Vec::new();
        for _ in 0..MANY {
            observers.push(ends.unwanted(&1, NEVER));
        }
        let first = observers.remove(0);
        observers.truncate(1);
        drop(wait);
        let mut both = [first, observers.remove(0)];
        assert!(both.iter_mut().all(|told| over(told) == Ok(())));
    };
    let kept = allocation_counter::measure(come_and_go).bytes_current;
    assert!(kept < 20_000, "{kept}");
    assert_nothing_waits(&waits);
}

#[test]
fn calls_that_name_an_epoch_act_in_it_alone() {
    let (_timer, waits, votes) = watermarks::<u32>();
    votes.begin_epoch(&1, 7, 0).unwrap();
    let (tell, told) = mpsc::channel();
    let then = move |outcome| tell.send(outcome).unwrap();
    assert!(
        votes
            .in_epoch(&1, 7)
            .park(2, MINUTE, then)
            .unwrap()
            .is_some()
    );
    assert_eq!(votes.in_epoch(&1, 6).add(9), Err(other_epoch(6, 7)));
    assert_eq!(
        [votes.in_epoch(&1, 7).add(1), votes.in_epoch(&1, 7).add(1)],
        [Ok(0), Ok(1)]
    );
    assert_eq!(told.try_recv(), Ok(Completed));
    assert_nothing_waits(&waits);
}

#[test]
fn a_wait_for_each_whose_key_panics_leaves_no_part() {
    let (_timer, waits, marks) = watermarks();
    let unhashable = Hooked::new(2, |at| assert!(at != At::Hash, "not to be hashed"));
    let keys = [(acts(1), 1), (unhashable, 1)];
    let wait = || marks.wait_for_each(&keys, MINUTE);
    assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
    assert_nothing_waits(&waits);
}

/// Waits leave and come inside the first callback of an advance that reaches more than 64. A wait
/// that leaves is looked up: this would take seconds if it, or a wait that comes, searched for the
/// lowest one left, past all that have gone. Waits until none is left are told as the advance ends.
#[test]
fn waits_come_and_leave_during_an_advance() {
    const MANY: u64 = 20_000;
    let (_timer, waits, ends) = watermarks::<u32>();
    let later = Arc::new(Mutex::new(Vec::new()));
    let (leave, inside) = (later.clone(), ends.clone());
    let then = move |_| {
        let leaving = mem::take(&mut *leave.lock().unwrap());
        leaving.into_iter().for_each(drop);
        let comes = |_| inside.wait_for(&1, 10 * MANY, NEVER);
        *leave.lock().unwrap() = (0..MANY).map(comes).collect();
    };
    ends.park(&1, 1, NEVER, then).unwrap();
    for _ in 0..100 {
        ends.park(&1, 2, NEVER, drop).unwrap();
    }
    let wait = |number| ends.wait_for(&1, 10 + number, NEVER);
    *later.lock().unwrap() = (0..MANY).map(wait).collect();
    let stay: Vec<_> = (MANY..2 * MANY).map(wait).collect();
    let mut unwanted = ends.unwanted(&1, NEVER);
    assert_eq!(ends.advance(&1, 5), Ok(101));
    assert!(poll(&mut unwanted).is_pending());
    drop(stay);
    assert!(poll(&mut unwanted).is_pending());
    later.lock().unwrap().clear();
    assert_eq!(over(&mut unwanted), Ok(()));

    // All waits for higher values leave.
    ends.park(&1, 6, NEVER, {
        let leave = later.clone();
        move |_| leave.lock().unwrap().clear()
    })
    .unwrap();
    for _ in 0..100 {
        ends.park(&1, 7, NEVER, drop).unwrap();
    }
    later.lock().unwrap().push(ends.wait_for(&1, 10, NEVER));
    let mut unwanted = ends.unwanted(&1, NEVER);
    assert_eq!(ends.advance(&1, 7), Ok(101));
    assert_eq!(over(&mut unwanted), Ok(()));
    assert_nothing_waits(&waits);
}

/// A wait until none waits for more than the value is answered when the last such wait leaves or is
/// reached, even if the first callback of the advance under way blocks on it.
#[test]
fn unwanted_is_not_held_up_by_an_advance_under_way() {
    for is_reached in [true, false] {
        let (_timer, waits, ends) = watermarks::<u32>();
        let (begin, begun) = mpsc::channel();
        let (go_on, held_up) = mpsc::channel::<()>();
        let first = move |_| {
            begin.send(()).unwrap();
            held_up.recv().unwrap();
        };
        ends.park(&1, 1, NEVER, first).unwrap();
        for _ in 0..100 {
            ends.park(&1, 1, NEVER, drop).unwrap();
        }
        let last = ends.wait_for(&1, if is_reached { 1 } else { 2 }, NEVER);
        let mut unwanted = ends.unwanted(&1, NEVER);
        thread::scope(|scope| {
            let advance = scope.spawn(|| ends.advance(&1, 1));
            begun.recv().unwrap();
            if !is_reached {
                assert!(poll(&mut unwanted).is_pending());
                drop(last);
            }
            assert_eq!(ends.lowest_waiting(&1), None);
            let told = poll(&mut unwanted);
            go_on.send(()).unwrap();
            assert_eq!(told, Poll::Ready(Ok(())));
            advance.join().unwrap().unwrap();
        });
        assert_nothing_waits(&waits);
    }
}
