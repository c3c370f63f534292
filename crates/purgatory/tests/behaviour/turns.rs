//! Operations that wait in turn, on a manual timer.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::support::{
    MINUTE, MS, NEVER, SECOND, assert_empty, by_hand, by_hand_with, over, poll, refused,
};
use purgatory::{
    BoxedOperation, DelayedOperation, EndResult, Outcome::Completed, Purgatory, RefusedReason,
    WaitError, WaitFuture, Watches, when,
};

const KEY: &str = "key";

type Waits = Purgatory<&'static str>;

/// A number of units that waits take.
#[derive(Clone)]
struct Units {
    free: Arc<AtomicU64>,
    waits: Waits,
}

/// Units that return on drop.
struct Taken {
    units: Units,
    count: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.units.add(self.count);
    }
}

impl Units {
    fn new(waits: Waits) -> Self {
        Units {
            free: Arc::default(),
            waits,
        }
    }

    fn take(&self, count: u64, in_turn: bool) -> WaitFuture<Taken> {
        let units = self.clone();
        let condition = move || {
            let left = |free: u64| free.checked_sub(count);
            let taken = units.free.fetch_update(SeqCst, SeqCst, left);
            let units = units.clone();
            taken.ok().map(|_| Taken { units, count })
        };
        if in_turn {
            self.waits.wait_in_turn(&KEY, MINUTE, condition)
        } else {
            self.waits.wait(&[KEY], MINUTE, condition)
        }
    }

    /// Adds units, and signals their key.
    fn add(&self, count: u64) -> usize {
        self.free.fetch_add(count, SeqCst);
        self.waits.check_and_complete(&KEY)
    }
}

#[test]
fn newcomer_behind_others_is_not_checked() {
    let (_timer, waits) = by_hand();
    let units = Units::new(waits.clone());
    let mut first = units.take(1, true);
    units.free.store(1, SeqCst); // its event is on its way
    let checked = waits.stats().checks;
    let mut newcomer = units.take(1, true);
    assert_eq!(waits.stats().checks, checked, "not even checked");
    let at_once = waits.wait_in_turn(&KEY, Duration::ZERO, || true);
    assert_eq!(at_once.wait_blocking(), Err(WaitError::Expired));
    assert_eq!(waits.check_and_complete(&KEY), 1);
    drop(over(&mut first)); // returns it
    drop(over(&mut newcomer));
    drop(over(&mut units.take(1, true))); // no one is ahead: checked at once
    assert_empty(&waits);
}

#[test]
fn wait_in_turn_is_a_wait_with_in_turn_watches() {
    let (_timer, waits) = by_hand();
    let mut checks = 0;
    let take = move || {
        checks += 1;
        (checks > 1).then_some("taken")
    };
    let mut first = waits.wait_in_turn(&KEY, MINUTE, take);
    let mut second = waits.wait(Watches::keys(&[KEY]).in_turn(), MINUTE, || true);
    let mut third = waits.wait_in_turn(&KEY, MINUTE, || true);
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending(), "the first is ahead");
    assert!(poll(&mut third).is_pending(), "two are ahead");
    assert_eq!(waits.check_and_complete(&KEY), 3);
    assert_eq!(over(&mut first), Ok("taken"));
    assert_eq!((over(&mut second), over(&mut third)), (Ok(()), Ok(())));

    let alone = waits.wait_in_turn(&KEY, MINUTE, || true);
    assert_eq!(alone.wait_blocking(), Ok(()), "checked at once");
    waits.shutdown(Duration::ZERO);
    let late = waits.wait_in_turn(&KEY, MINUTE, || false);
    let closed = WaitError::Refused(RefusedReason::Closed);
    assert_eq!(late.wait_blocking(), Err(closed));
}

#[test]
fn large_request_is_served_among_small_ones() {
    for (in_turn, large_ready) in [(true, true), (false, false)] {
        let (_timer, waits) = by_hand();
        let units = Units::new(waits);
        let mut small: Vec<_> = (0..4).map(|_| units.take(1, in_turn)).collect();
        let mut large = units.take(4, in_turn);
        small.extend((0..100).map(|_| units.take(1, in_turn)));
        // Four are out at a time; each is returned by itself.
        units.add(4);
        for mut taken in small.drain(..4) {
            drop(over(&mut taken));
        }
        assert_eq!(poll(&mut large).is_ready(), large_ready);
    }
}

#[test]
fn event_goes_on_as_long_as_heads_complete() {
    let (_timer, waits) = by_hand();
    let units = Units::new(waits);
    let mut all = [2, 1, 3, 1, 1].map(|count| units.take(count, true));
    assert_eq!(units.add(4), 2);
    assert!(
        poll(&mut all[3]).is_pending(),
        "the third is ahead, and too large"
    );
    assert_eq!(units.add(2), 1);
    assert_eq!(units.add(1), 1);
    units.free.store(1, SeqCst);
    assert_eq!(units.waits.check_and_complete_with(&KEY, &"any"), 1);
}

/// Whatever ends a head that others are behind: they may fit where it did not.
#[test]
fn head_that_ends_lets_the_next_be_checked() {
    for how in [
        "is taken",
        "expires",
        "is cancelled",
        "is dropped",
        "panics",
    ] {
        let (timer, waits) = by_hand();
        let units = Units::new(waits.clone());
        let panics = Arc::new(AtomicBool::new(false));
        let panicking = panics.clone();
        let condition = move || {
            assert!(!panicking.load(SeqCst), "a condition panics");
            false
        };
        let large = waits.wait_in_turn(&KEY, SECOND, condition);
        let mut next = units.take(1, true);
        units.add(1);
        assert!(poll(&mut next).is_pending());
        let id = large.id().unwrap();
        match how {
            "expires" => timer.advance(SECOND),
            "is cancelled" => assert_eq!(waits.cancel(id, "test"), EndResult::Ended),
            "is dropped" => drop(large),
            "is taken" => drop(waits.take(id)),
            "panics" => {
                panics.store(true, SeqCst);
                waits.check_and_complete(&KEY);
            }
            _ => unreachable!("{how}"),
        }
        drop(over(&mut next));
        assert_empty(&waits);
    }
}

#[test]
fn wait_behind_others_has_no_last_check() {
    let (timer, waits) = by_hand_with(|builder| builder.recheck_every(10 * MS));
    let head = waits.wait_in_turn(&KEY, MINUTE, || false);
    let behind = waits.wait_in_turn(&KEY, SECOND, || true);
    let id = behind.id().unwrap();
    assert_eq!(waits.complete(id), EndResult::NoValue);
    timer.advance(500 * MS); // rechecks
    assert_eq!(waits.len(), 2);
    timer.advance(SECOND);
    assert_eq!(behind.wait_blocking(), Err(WaitError::Expired));
    drop(head);
    assert_empty(&waits);
}

#[test]
fn completed_key_checks_the_line_in_turn() {
    let (_timer, waits) = by_hand();
    let units = Units::new(waits.clone());
    let mut line = [2, 1, 1].map(|count| units.take(count, true));
    units.free.store(1, SeqCst);
    assert_eq!(waits.complete_for_key(&KEY), 0, "no value for the head");
    units.free.store(4, SeqCst);
    waits.complete_for_key(&KEY);
    let taken = line.each_mut().map(over);
    assert_empty(&waits);
    drop(taken);

    // An event is the value of the next event.
    let next = || waits.next_event(Watches::keys(&[KEY]).in_turn(), MINUTE);
    let mut all = [(); 3].map(|()| next());
    assert_eq!(waits.complete_for_key(&KEY), 1, "the head");
    assert!(all.iter_mut().all(|wait| poll(wait).is_ready()));
    assert_empty(&waits);
}

#[test]
fn dropped_future_passes_its_turn_on() {
    // A guard returns what it holds, and is counted once.
    let (_timer, waits) = by_hand();
    let units = Units::new(waits.clone());
    let [first, mut second, mut third] = [(); 3].map(|()| units.take(1, true));
    units.add(1);
    drop(first);
    let taken = over(&mut second);
    assert!(poll(&mut third).is_pending());
    drop(taken);
    drop(over(&mut third));

    // An event without a condition.
    let next = || waits.next_event(Watches::keys(&[KEY]).in_turn(), MINUTE);
    let [first, mut second, mut third] = [(); 3].map(|()| next());
    assert!(waits.check_and_complete_one(&KEY));
    drop(first);
    assert_eq!(over(&mut second), Ok(()));
    assert!(poll(&mut third).is_pending());
    drop(second); // it was taken
    assert!(poll(&mut third).is_pending());
    drop(third);
    assert_empty(&waits);
}

#[test]
fn event_for_one_ends_one_next_event() {
    let (_timer, waits): (_, Waits) = by_hand();
    let next = || waits.next_event(Watches::keys(&[KEY]).in_turn(), MINUTE);
    let mut all = [(); 4].map(|()| next());
    assert!(waits.check_and_complete_one(&KEY));
    assert_eq!(
        all.each_mut().map(|wait| poll(wait).is_ready()),
        [true, false, false, false]
    );
    waits.cancel(all[1].id().unwrap(), "test"); // no event for the next
    assert_eq!(waits.len(), 2);
    assert_eq!(waits.check_and_complete(&KEY), 2);
    assert_empty(&waits);
}

/// One that is completed under check has not used the event up, and nor has the next, whose check
/// is false.
#[test]
fn event_for_one_that_no_check_used_up_returns_false() {
    let (_timer, waits): (_, Waits) = by_hand();
    let completes = waits.clone();
    let own = Arc::new(Mutex::new(None));
    let id = own.clone();
    let is_noted = move || {
        let id = *id.lock().unwrap();
        id.is_some_and(|id| completes.complete(id) == EndResult::Ended)
    };
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let head = waits.try_complete_else_watch(when(is_noted, drop), in_turn(), NEVER);
    *own.lock().unwrap() = head.unwrap().id();
    let next = waits.wait(in_turn(), MINUTE, || false);
    assert!(!waits.check_and_complete_one(&KEY));
    assert_eq!((waits.stats().completed, waits.len()), (1, 1));
    drop(next);
    assert_empty(&waits);
}

#[test]
fn unchecked_newcomers_count_no_check() {
    let (_timer, waits) = by_hand_with(|builder| builder.max_parked(1));
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let head = waits.wait(in_turn(), MINUTE, || false);
    let never_checked = || -> bool { unreachable!("others are ahead") };
    let at_once = waits.wait(in_turn(), Duration::ZERO, never_checked);
    assert_eq!(at_once.wait_blocking(), Err(WaitError::Expired));
    let refused = waits.wait(in_turn(), MINUTE, never_checked);
    let full = RefusedReason::Full { limit: 1 };
    assert_eq!(refused.wait_blocking(), Err(WaitError::Refused(full)));
    assert_eq!(waits.stats().checks, 1);
    drop(head);

    // The next event is none of before.
    waits.next_event(in_turn(), MINUTE).id().unwrap(); // parked, and dropped
    waits.shutdown(Duration::ZERO);
    assert!(waits.next_event(in_turn(), MINUTE).wait_blocking().is_err());
    assert_eq!(waits.stats().checks, 1);
}

/// A check that a callback causes runs when the outermost call returns.
#[test]
fn next_is_checked_after_the_callback_takes_its_head() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let head = waits.try_complete_else_watch(when(|| false, drop), in_turn(), NEVER);
    let head = head.unwrap().id().unwrap();
    let in_callback = Arc::new(Mutex::new(()));
    let locks = in_callback.clone();
    let mut next = waits.wait(in_turn(), MINUTE, move || locks.try_lock().is_ok());
    let takes = waits.clone();
    let then = move |_| {
        let _locked = in_callback.lock().unwrap();
        drop(takes.take(head));
    };
    let taken = waits.try_complete_else_watch(when(|| true, then), &["other"], NEVER);
    taken.unwrap();
    assert_eq!(over(&mut next), Ok(()));
    assert_empty(&waits);
}

#[test]
fn plain_waits_of_the_key_are_checked_as_ever() {
    let (_timer, waits) = by_hand();
    let units = Units::new(waits.clone());
    let mut large = units.take(5, true);
    let mut plain = units.take(1, false);
    assert_eq!(units.add(1), 1);
    drop(over(&mut plain));
    assert!(poll(&mut large).is_pending());
    assert_eq!(waits.cancel_for_key(&KEY, "test"), 1);
    assert_empty(&waits);
}

#[test]
fn turn_of_no_plain_key_is_refused() {
    let (_timer, waits): (_, Waits) = by_hand();
    let operation = || when(|| false, drop);
    let several = Watches::keys(&[KEY, "other"]).in_turn();
    let watermark = [(KEY, 1)];
    let up_to = Watches::up_to(&watermark).in_turn();
    let both = Watches::up_to(&watermark).with_keys(&[KEY]).in_turn();
    for watches in [several, up_to, both] {
        let (reason, _operation) = refused(&waits, operation(), watches);
        assert_eq!(reason, RefusedReason::TurnOfOneKey);
    }
    let (reason, _operation) = refused(&waits, operation(), Watches::keys(&[]).in_turn());
    assert_eq!(reason, RefusedReason::NoKeys);
    assert_empty(&waits);
}

/// A million that complete in a chain, each of which signals the key.
#[test]
fn chain_of_turns_needs_no_stack() {
    let (_timer, waits): (_, Waits) = by_hand();
    let open = Arc::new(AtomicBool::new(false));
    let order = Arc::new(Mutex::new(Vec::new()));
    const CHAIN: u32 = 50_000;
    for number in 0..CHAIN {
        let (seen, order, signals) = (open.clone(), order.clone(), waits.clone());
        let then = move |_| {
            order.lock().unwrap().push(number);
            signals.check_and_complete(&KEY);
        };
        let operation: BoxedOperation = when(move || seen.load(SeqCst), then);
        let watches = Watches::keys(&[KEY]).in_turn();
        waits
            .try_complete_else_watch(operation, watches, NEVER)
            .unwrap();
    }
    open.store(true, SeqCst);
    let head = waits.snapshot(1).oldest[0].id;
    waits.cancel(head, "test"); // its end begins the chain
    assert!(order.lock().unwrap().iter().copied().eq(0..CHAIN));
    assert_empty(&waits);
}

/// Does this on another thread, and waits for it.
fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| threads.spawn(act).join().unwrap())
}

/// The event for all came while the head was checked for another one.
#[test]
fn event_for_all_under_check_reaches_the_line() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let signals = waits.clone();
    let mut checks = 0;
    let condition = move || {
        checks += 1;
        if checks == 2 {
            elsewhere(|| signals.check_and_complete(&KEY));
        }
        checks == 3
    };
    let mut head = waits.wait(in_turn(), MINUTE, condition);
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
    assert!(waits.check_and_complete_one(&KEY));
    assert_eq!(over(&mut head), Ok(()));
    assert_eq!(line.each_mut().map(over), [Ok(()), Ok(())]);
    assert_empty(&waits);
}

/// A head that waits on has used the event for all up: the next event is one for one again.
#[test]
fn event_for_all_ends_with_a_head_that_waits_on() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let signals = waits.clone();
    let mut checks = 0;
    let condition = move || {
        checks += 1;
        match checks {
            2 => _ = elsewhere(|| signals.check_and_complete(&KEY)),
            4 => _ = elsewhere(|| signals.check_and_complete_one(&KEY)),
            _ => {}
        }
        checks == 4
    };
    let mut head = waits.wait(in_turn(), MINUTE, condition);
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
    assert!(!waits.check_and_complete_one(&KEY)); // checks 2 and 3
    assert_eq!(waits.complete(head.id().unwrap()), EndResult::Ended);
    assert_eq!(over(&mut head), Ok(()));
    let ready = line.each_mut().map(|wait| poll(wait).is_ready());
    assert_eq!(ready, [true, false]);
}

/// Drops a future as it is dropped itself.
struct DropsFuture(Arc<Mutex<Option<WaitFuture<()>>>>);

impl Drop for DropsFuture {
    fn drop(&mut self) {
        let future = self.0.lock().unwrap().take();
        drop(future);
    }
}

/// It has no value, so there is no turn to pass on.
#[test]
fn dropped_failing_wait_makes_no_event() {
    for expires in [true, false] {
        let (timer, waits): (_, Waits) = by_hand();
        let in_turn = || Watches::keys(&[KEY]).in_turn();
        let slot = Arc::default();
        let drops_future = DropsFuture(Arc::clone(&slot));
        let condition = move || {
            let _captured = &drops_future; // dropped as the answer is made
            false
        };
        *slot.lock().unwrap() = Some(waits.wait(in_turn(), SECOND, condition));
        let mut next = waits.next_event(in_turn(), MINUTE);
        if expires {
            timer.advance(SECOND);
        } else {
            let head = slot.lock().unwrap().as_ref().and_then(WaitFuture::id);
            assert_eq!(waits.cancel(head.unwrap(), "test"), EndResult::Ended);
        }
        assert!(slot.lock().unwrap().is_none());
        assert!(poll(&mut next).is_pending(), "no event came");
        assert_eq!(waits.len(), 1);
    }
}

/// It has left the line, and has no value yet.
#[test]
fn dropped_future_of_a_taken_wait_makes_no_event() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let head = waits.next_event(in_turn(), MINUTE);
    let mut next = waits.next_event(in_turn(), MINUTE);
    let taken = waits.take(head.id().unwrap()).parked().unwrap();
    drop(head);
    assert!(poll(&mut next).is_pending());
    taken.on_complete(Completed);
    assert!(poll(&mut next).is_pending());
}

/// The caller completes it, and no task takes its value.
#[test]
fn dropped_value_of_a_taken_wait_passes_its_turn_on() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let head = waits.next_event(in_turn(), MINUTE);
    let mut next = waits.next_event(in_turn(), MINUTE);
    let taken = waits.take(head.id().unwrap()).parked().unwrap();
    taken.on_complete(Completed);
    assert!(poll(&mut next).is_pending());
    drop(head);
    assert_eq!(over(&mut next), Ok(()));
    assert_empty(&waits);
}

/// The callback of the head ends the one that the event would have gone on to.
#[test]
fn event_for_all_passes_one_that_ends_meanwhile() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let second = Arc::new(Mutex::new(None));
    let (cancels, id) = (waits.clone(), second.clone());
    let then = move |_| {
        let id = id.lock().unwrap().take();
        assert_eq!(cancels.cancel(id.unwrap(), "test"), EndResult::Ended);
    };
    let open = Arc::new(AtomicBool::new(false));
    let seen = open.clone();
    let head =
        waits.try_complete_else_watch(when(move || seen.load(SeqCst), then), in_turn(), NEVER);
    head.unwrap();
    let next = waits.wait(in_turn(), MINUTE, || false);
    *second.lock().unwrap() = next.id();
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
    open.store(true, SeqCst);
    waits.check_and_complete(&KEY);
    assert_eq!(line.each_mut().map(over), [Ok(()), Ok(())]);
    assert!(next.wait_blocking().is_err());
    assert_empty(&waits);
    assert_eq!(waits.stats().panics, 0);
}

/// It came while the head was checked, and the check that it asked for is cancelled.
#[test]
fn event_for_one_passes_a_head_that_is_cancelled() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let own = Arc::new(Mutex::new(None));
    let (calls, id) = (waits.clone(), own.clone());
    let mut checks = 0;
    let condition = move || {
        checks += 1;
        match checks {
            2 => _ = elsewhere(|| calls.check_and_complete_one(&KEY)),
            3 => assert_eq!(
                calls.cancel(id.lock().unwrap().unwrap(), "test"),
                EndResult::Noted
            ),
            _ => {}
        }
        false
    };
    let head = waits.wait(in_turn(), MINUTE, condition);
    *own.lock().unwrap() = head.id();
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
    assert_eq!(waits.complete(head.id().unwrap()), EndResult::Ended); // checks 2 and 3
    assert!(head.wait_blocking().is_err());
    let ready = line.each_mut().map(|wait| poll(wait).is_ready());
    assert_eq!(ready, [true, false]);
    assert_eq!(waits.stats().panics, 0);
}

/// The callback of the head has the next checked, which is cancelled under that check.
#[test]
fn event_for_one_passes_a_next_that_is_cancelled() {
    let (_timer, waits): (_, Waits) = by_hand();
    let in_turn = || Watches::keys(&[KEY]).in_turn();
    let ids = Arc::new(Mutex::new(Vec::new()));
    // 1. Both are cancelled as they are checked for the event.
    let (completes, all) = (waits.clone(), ids.clone());
    let then = move |_| {
        let next = all.lock().unwrap()[1];
        assert_eq!(completes.complete(next), EndResult::Ended);
    };
    let cancel = |number: usize| {
        let (cancels, all) = (waits.clone(), ids.clone());
        move || {
            let id = all.lock().unwrap().get(number).copied();
            if let Some(id) = id {
                assert_eq!(cancels.cancel(id, "test"), EndResult::Noted);
            }
            false
        }
    };
    let head = waits.try_complete_else_watch(when(cancel(0), then), in_turn(), NEVER);
    let next = waits.wait(in_turn(), MINUTE, cancel(1));
    *ids.lock().unwrap() = vec![head.unwrap().id().unwrap(), next.id().unwrap()];
    // 2. It is left for those behind.
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
    waits.check_and_complete_one(&KEY);
    assert!(next.wait_blocking().is_err());
    let ready = line.each_mut().map(|wait| poll(wait).is_ready());
    assert_eq!(ready, [true, false]);
    assert_eq!(waits.stats().panics, 0);
}

/// A value that it had would be nobody's, so the turn is passed on.
#[test]
fn wait_dropped_under_check_passes_on_what_it_took() {
    for comes_true in [false, true] {
        let (_timer, waits): (_, Waits) = by_hand();
        let in_turn = || Watches::keys(&[KEY]).in_turn();
        let slot = Arc::new(Mutex::new(None::<WaitFuture<()>>));
        let own = slot.clone();
        let condition = move || {
            let future = own.lock().unwrap().take();
            future.is_some() && comes_true
        };
        let head = waits.wait(in_turn(), MINUTE, condition);
        let id = head.id().unwrap();
        *slot.lock().unwrap() = Some(head);
        let mut line = [(); 2].map(|()| waits.next_event(in_turn(), MINUTE));
        assert_eq!(waits.complete(id), EndResult::Ended);
        let ready = line.each_mut().map(|wait| poll(wait).is_ready());
        assert_eq!(ready, [comes_true, false]);
    }
}
