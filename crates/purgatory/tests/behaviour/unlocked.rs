//! Users' values are dropped, and the clock is read, with nothing locked: here each of them calls
//! the purgatory.
#![cfg(not(loom))]

use crate::support::*;

type Waits = Purgatory<u32>;

/// A value that looks into these waits when it is dropped, which takes a lock.
fn looks_into(waits: &Waits) -> OnDrop {
    let waits = waits.clone();
    OnDrop::new(move || _ = waits.waiters(&1))
}

/// Parks an operation under key 1. Once it is parked, its check does this, with the operation's id.
fn park_checked(waits: &Waits, mut check: impl FnMut(OperationId) -> bool + Send + 'static) {
    let id = Arc::new(Mutex::new(None));
    let parked = id.clone();
    let check = move || parked.lock().unwrap().is_some_and(&mut check);
    *id.lock().unwrap() = Some(waits.park(when(check, drop), &[1], MINUTE));
}

// Values, reasons, closures and wakers.

/// A check that holds beats a cancel that came meanwhile, and the first cancel beats the second.
#[test]
fn a_beaten_cancels_reason_is_dropped_unlocked() {
    in_time(|| {
        for comes_true in [true, false] {
            let (_timer, waits) = by_hand();
            let inside = waits.clone();
            park_checked(&waits, move |id| {
                if !comes_true {
                    assert_eq!(inside.cancel(id, "first"), ReachResult::UnderCheck);
                }
                let reason = Reason::with("beaten", looks_into(&inside));
                assert_eq!(inside.cancel(id, reason), ReachResult::UnderCheck);
                comes_true
            });
            assert_eq!(waits.check_and_complete(&1), usize::from(comes_true));
            let cancelled = u64::from(!comes_true);
            assert_eq!((waits.len(), waits.stats().cancelled), (0, cancelled));
        }
    });
}

/// The reason is dropped with the key that was closed for it.
#[test]
fn a_closed_keys_reason_is_dropped_unlocked() {
    in_time(|| {
        let (_timer, _, values) = watermarks_with::<u32>(|builder| builder.shards(1));
        let inside = values.clone();
        let looks = OnDrop::new(move || assert_eq!(inside.value(&1), None));
        assert_eq!(values.close(&1, Reason::with("closed", looks)), 0);
        assert_eq!(values.remove(&1), 0);
    });
}

/// The operation is gone or under check.
#[test]
fn a_closure_for_what_is_gone_is_dropped_unlocked() {
    in_time(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let id = waits.park(never(), &[1], MINUTE);
        assert_eq!(waits.cancel(id, "gone"), ReachResult::Reached(()));
        let unused = looks_into(&waits);
        let reached = waits.with(id, move |_| drop(unused));
        assert_eq!(reached, ReachResult::Gone);
        let inside = waits.clone();
        park_checked(&waits, move |id| {
            let unused = looks_into(&inside);
            inside.with(id, move |_| drop(unused)) == ReachResult::UnderCheck
        });
        assert_eq!(waits.check_and_complete(&1), 1);
    });
}

/// A poll under check leaves its waker in the entry, apart from the condition.
#[test]
fn a_replaced_waits_last_waker_is_dropped_unlocked() {
    in_time(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let waker = looks_into(&waits).waker();
        let mut waker = Some(waker);
        let slot = wait_with_itself(&waits, &[1], move |future| {
            let waker = waker.take().unwrap();
            poll_by(future.as_mut().unwrap(), &waker).is_ready()
        });
        let id = slot
            .lock()
            .unwrap()
            .as_ref()
            .and_then(WaitFuture::id)
            .unwrap();
        assert_eq!(waits.check_and_complete(&1), 0);
        let wait = waits.with(id, |wait| mem::replace(wait, never()));
        assert!(wait.reached().is_some());
        assert_eq!(waits.cancel(id, "over"), ReachResult::Reached(()));
    });
}

// The clock.

/// Creates a purgatory whose ends are timed, on a clock that acts.
fn timed<K: WatchKey + Send, O: DelayedOperation + Send>() -> Purgatory<K, O> {
    timed_with(|builder| builder)
}

/// Creates a purgatory as [`timed`] does, with these settings.
fn timed_with<K: WatchKey + Send, O: DelayedOperation + Send>(
    build: impl FnOnce(Builder<Purgatory<K, O>>) -> Builder<Purgatory<K, O>>,
) -> Purgatory<K, O> {
    let clock = Acting(SystemClock::default());
    let timer = SystemTimer::builder().clock(clock).build().unwrap();
    let purgatory = build(Purgatory::builder("timed").timer(&timer))
        .build()
        .unwrap();
    purgatory.times();
    purgatory
}

#[test]
fn the_clock_is_read_unlocked_as_a_value_advances() {
    in_time(|| {
        let clock = Acting(SystemClock::default());
        let timer = SystemTimer::builder().clock(clock).build().unwrap();
        let marks: Watermarks<u32> = Watermarks::on(&timer, "timed").unwrap();
        let waits = marks.waits();
        waits.times();
        let inside = waits.clone();
        at_next_read(move || assert_eq!(inside.len(), 0)); // at the park
        let mut wait = marks.wait_for(&1, 5, MINUTE);
        at_next_read(move || assert_eq!(waits.len(), 1));
        assert_eq!(marks.advance(&1, 5), Ok(1));
        assert_eq!(over(&mut wait), Ok(5));
    });
}

/// A thread has read the clock to renew a lease; before it takes the lock, another one renews it.
#[test]
fn a_renewal_that_stalls_shortens_no_later_one() {
    in_time(|| {
        let clock = Acting(SystemClock::default());
        let timer = SystemTimer::builder().clock(clock).build().unwrap();
        let permits = Permits::on(&timer, "leases", 1).unwrap();
        let lease = permits.lease(1, MINUTE, MINUTE).wait_blocking();
        let lease = Arc::new(lease.unwrap());
        let later = lease.clone();
        at_next_read(move || {
            let clock = SystemClock::new();
            while clock.now_ns() == 0 {} // the other thread reads a later time
            assert!(later.renew(MINUTE));
        });
        assert!(lease.renew(MS));
        let next = permits.acquire(1, 100 * MS).wait_blocking();
        assert_eq!(next.unwrap_err(), WaitError::Expired);
    });
}

/// The new holder of a lease reads the clock to renew it. Before it takes the lock, the thread that
/// hands the lease over begins its time to live.
#[test]
fn hand_over_does_not_undo_a_stalled_renewal() {
    in_time(|| {
        let clock = Acting(SystemClock::default());
        let timer = SystemTimer::builder().clock(clock).build().unwrap();
        let permits = Permits::on(&timer, "leases", 1).unwrap();
        let held = permits.try_acquire(1).unwrap();
        let next = Mutex::new(permits.lease(1, 500 * MS, MINUTE));
        let [(stalls, has_stalled), (goes_on, may_go_on)] = [(); 2].map(|()| mpsc::channel());
        let (woken, is_woken) = mpsc::channel();
        let has_stalled = Mutex::new(has_stalled);
        let holder = waker(move || {
            woken.send(()).unwrap();
            has_stalled.lock().unwrap().recv().unwrap();
            let clock = SystemClock::new();
            while clock.now_ns() == 0 {} // its time to live begins later
        });
        assert!(poll_by(&mut *next.lock().unwrap(), &holder).is_pending());
        let renews = thread::spawn(move || {
            is_woken.recv().unwrap();
            let lease = over(&mut *next.lock().unwrap()).unwrap();
            at_next_read(move || {
                stalls.send(()).unwrap();
                may_go_on.recv().unwrap();
            });
            assert!(lease.renew(MINUTE));
            lease
        });
        drop(held);
        goes_on.send(()).unwrap();
        let lease = renews.join().unwrap();
        let next = permits.acquire(1, 700 * MS).wait_blocking();
        assert_eq!(next.unwrap_err(), WaitError::Expired);
        assert!(!lease.is_lost());
    });
}

/// A leader looks for members that lag. It stalls after it has read the clock, and the log grows
/// meanwhile.
#[test]
fn a_look_that_stalls_makes_no_laggard() {
    in_time(|| {
        let hand = ManualTimer::new();
        let timer = SystemTimer::builder().clock(Acting(hand.clock()));
        let timer = timer.build().unwrap();
        let logs: ReplicaSets<u32, &str> = ReplicaSets::on(&timer, "logs").unwrap();
        let members = [("leader", 42), ("a", 42)];
        logs.set(&1, 1, members, 42, Rule::all()).unwrap();
        let (grows, passes) = (logs.clone(), hand.clone());
        at_next_read(move || {
            passes.advance(MINUTE);
            grows.in_epoch(&1, 1).report(&"leader", 43).unwrap();
        });
        let lags_for = |time| assert_eq!(logs.lagging(&1), [("a", 42, time)]);
        lags_for(Duration::ZERO);
        lags_for(Duration::ZERO);
        hand.advance(SECOND);
        lags_for(SECOND);
    });
}

/// A first look stalls after it has read the clock again. Another look comes before the first one
/// has set its time.
#[test]
fn a_look_that_stalls_sets_no_time_of_a_later_one() {
    type Logs = ReplicaSets<u32, &'static str>;
    fn at_second_read(act: impl FnOnce() + 'static) {
        at_next_read(move || at_next_read(act));
    }
    let grows: fn(&Logs) = |logs| {
        let led = logs.in_epoch(&1, 1);
        led.report(&"a", 43).unwrap();
        led.report(&"leader", 44).unwrap();
    };
    let is_cut: fn(&Logs) = |logs| {
        let members = [("leader", 42), ("a", 41)];
        logs.set(&1, 2, members, 42, Rule::all()).unwrap();
    };
    for changes in [grows, is_cut] {
        in_time(move || {
            let hand = ManualTimer::new();
            let timer = SystemTimer::builder().clock(Acting(hand.clock()));
            let timer = timer.build().unwrap();
            let logs: Logs = ReplicaSets::on(&timer, "logs").unwrap();
            let members = [("leader", 43), ("a", 42)];
            logs.set(&1, 1, members, 43, Rule::all()).unwrap();
            let [
                (begins, may_begin),
                (looks, has_looked),
                (goes_on, may_go_on),
            ] = [(); 3].map(|()| mpsc::channel());
            let later = logs.clone();
            let looks_later = thread::spawn(move || {
                may_begin.recv().unwrap();
                at_second_read(move || {
                    looks.send(()).unwrap();
                    may_go_on.recv().unwrap();
                });
                later.lagging(&1);
            });
            let changed = logs.clone();
            let passes = hand.clone();
            at_second_read(move || {
                changes(&changed);
                passes.advance(MINUTE);
                begins.send(()).unwrap();
                has_looked.recv().unwrap();
            });
            logs.lagging(&1);
            goes_on.send(()).unwrap();
            looks_later.join().unwrap();
            assert_eq!(logs.lagging(&1)[0].2, Duration::ZERO);
        });
    }
}

/// A snapshot stalls after it has read the clock, and a check begins before the snapshot looks.
#[test]
fn a_snapshot_that_stalls_makes_no_check_longer() {
    in_time(|| {
        let hand = ManualTimer::new();
        let timer = SystemTimer::builder().clock(Acting(hand.clock()));
        let timer = timer.build().unwrap();
        let waits: Waits = Purgatory::on(&timer, "checks").unwrap();
        let [
            (begins, has_begun),
            (ends, may_end),
            (signals, is_signalled),
        ] = [(); 3].map(|()| mpsc::channel());
        park_checked(&waits, move |_| {
            begins.send(()).unwrap();
            may_end.recv().is_ok()
        });
        let (inside, passes) = (waits.clone(), hand.clone());
        let checks = thread::spawn(move || {
            is_signalled.recv().unwrap();
            inside.check_and_complete(&1)
        });
        at_next_read(move || {
            passes.advance(SECOND);
            signals.send(()).unwrap();
            has_begun.recv().unwrap();
        });
        let under_check = || waits.snapshot(1).under_check[0].under_check;
        assert_eq!(under_check(), Some(Duration::ZERO));
        assert_eq!(under_check(), Some(Duration::ZERO));
        hand.advance(SECOND);
        assert_eq!(under_check(), Some(SECOND));
        ends.send(()).unwrap();
        assert_eq!(checks.join().unwrap(), 1);
    });
}

/// The panic is counted, and the end is not timed.
#[test]
fn a_clock_that_panics_leaves_no_operation_held() {
    for others in 0..2 {
        let waits: Waits = timed();
        for _ in 0..others {
            park_checked(&waits, |_| true);
        }
        park_checked(&waits, |_| {
            at_next_read(|| panic!("no time"));
            true
        });
        assert_eq!(waits.check_and_complete(&1), others + 1);
        assert_eq!((waits.len(), waits.stats().panics), (0, 1));
    }
}

/// Debug builds read the clock in order to warn of checks that take too long.
#[test]
fn panicking_clock_spares_signals_during_a_check() {
    let waits: Waits = timed();
    let inside = waits.clone();
    park_checked(&waits, move |_| {
        let inside = inside.clone();
        let signals = thread::spawn(move || {
            at_next_read(|| panic!("no time"));
            inside.check_and_complete(&2)
        });
        signals.join().is_err()
    });
    assert_eq!(waits.check_and_complete(&1), 0);
    assert_eq!(waits.stats().panics, u64::from(cfg!(debug_assertions)));
}

/// From now on, looks into these waits at each clock read of this thread.
fn look_at_each_read(waits: Waits) {
    at_next_read(move || {
        waits.waiters(&1);
        look_at_each_read(waits);
    });
}

/// The clock is also read unlocked for a snapshot.
#[test]
fn the_clock_is_read_unlocked_as_all_are_cancelled() {
    in_time(|| {
        let waits: Waits = timed();
        waits.park(never(), &[1], MINUTE);
        look_at_each_read(waits.clone());
        assert_eq!(waits.snapshot(1).oldest.len(), 1);
        assert_eq!(waits.cancel_all("over"), 1);
        at_next_read(|| ());
    });
}

/// The request comes after the call has begun, while the call reads the clock.
#[test]
fn fail_all_spares_a_later_request() {
    in_time(|| {
        let clock = Acting(SystemClock::default());
        let timer = SystemTimer::builder().clock(clock).build().unwrap();
        let replies = Replies::<u32, u32>::on(&timer, "timed").unwrap();
        replies.waits().times(); // times are recorded from here on
        let (asked, asks) = mpsc::channel();
        let inside = replies.clone();
        at_next_read(move || asked.send(inside.expect(1, MINUTE).unwrap()).unwrap());
        assert_eq!(replies.fail_all("closed"), 0);
        let mut reply = asks.recv().unwrap();
        assert!(poll(&mut reply).is_pending());
        assert_eq!(replies.waits().len(), 1);
    });
}

/// The job of a callback reads the clock, to time how long the callback has waited.
#[test]
fn a_clock_that_panics_loses_no_callback() {
    let later = Later::default();
    let executor = later.clone();
    let waits: Waits = timed_with(|builder| builder.executor(executor).callbacks_on_executor());
    let probes = [(); 2].map(|()| Probe::parked(&waits, &[1], MINUTE));
    assert_eq!(waits.cancel_all("over"), 2);
    at_next_read(|| panic!("no time"));
    later.run();
    assert!(probes.iter().all(Probe::ended));
    let stats = waits.stats();
    assert_eq!((stats.callbacks_waiting, stats.panics), (0, 1));
}
