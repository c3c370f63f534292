//! Fair ends: a late event that is earlier than the reaper, and an event for one
//! (`check_and_complete_one`), which takes waiters in the order of parking.
#![cfg(not(loom))]

use std::{
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{
    MS, NEVER, Probe, SECOND, Waiting, assert_empty, by_hand, over, poll, waiting,
};
use purgatory::{BoxedOperation, EndResult, Outcome, Purgatory, WaitFuture, Watches, when};

/// The deadline has passed, and the reaper has not come by: the event completes.
#[test]
fn an_event_after_the_deadline_completes() {
    let events: [fn(&Waiting); 4] = [
        |waits| assert_eq!(waits.check_and_complete(&"a"), 1),
        |waits| assert_eq!(waits.check_and_complete(&"b"), 1),
        |waits| assert!(waits.check_and_complete_one(&"a")),
        |waits| assert_eq!(waits.complete_up_to(&"w", 5), 1),
    ];
    let watermark = [("w", 5)];
    for event in events {
        let (timer, waits) = waiting();
        let watches = Watches::up_to(&watermark).with_keys(&["a", "b"]);
        let probe = Probe::parked(&waits, watches, MS);
        timer.pass(SECOND);
        assert_eq!(waits.check_and_complete(&"a"), 0); // its check decides, as ever
        probe.make_ready();
        event(&waits);
        assert_eq!(probe.endings(), [Outcome::Completed]);
        timer.advance(SECOND);
        assert_eq!(probe.endings(), [Outcome::Completed]);
        assert_empty(&waits);
        let late = Probe::parked(&waits, watches, MS);
        timer.advance(MS);
        late.make_ready();
        assert_eq!(
            (waits.check_and_complete(&"a"), late.endings()),
            (0, vec![Outcome::Expired])
        );
    }
}

/// Under one key and several, this key first or not.
#[test]
fn turns_are_taken_in_the_order_of_parking() {
    let (_timer, waits) = waiting();
    let keys = [&["a"][..], &["a", "b"], &["b", "a"], &["c", "a", "d"]];
    let parked: Vec<_> = keys
        .repeat(9)
        .iter()
        .map(|&keys| Probe::parked(&waits, keys, NEVER))
        .collect();
    waits.check_and_complete(&"a"); // none is ready, and none loses its turn
    for probe in &parked {
        probe.make_ready();
    }
    for ended in 1..=parked.len() {
        assert!(waits.check_and_complete_one(&"a"));
        assert!(
            parked
                .iter()
                .map(Probe::ended)
                .eq((0..parked.len()).map(|at| at < ended))
        );
    }
    assert!(!waits.check_and_complete_one(&"a"));
    assert_empty(&waits);
}

/// One turn at a time: a wait takes it, and its guard passes it on when dropped.
#[derive(Clone)]
struct Turns {
    free: Arc<Mutex<bool>>,
    waits: Purgatory<&'static str, BoxedOperation>,
}

struct Turn(Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap() = true;
        self.0.waits.check_and_complete_one(&"turn");
    }
}

/// A future where its own check can drop it.
type Slot = Arc<Mutex<Option<WaitFuture<Turn>>>>;

impl Turns {
    /// Waits for a turn; `act` runs at the start of each check, and returns whether it may take
    /// one.
    fn wait_with(&self, mut act: impl FnMut() -> bool + Send + 'static) -> WaitFuture<Turn> {
        let turns = self.clone();
        self.waits.wait(&["turn", "other"], SECOND, move || {
            let took = act() && std::mem::replace(&mut *turns.free.lock().unwrap(), false);
            if took {
                Some(Turn(turns.clone()))
            } else {
                None
            }
        })
    }

    fn wait(&self) -> WaitFuture<Turn> {
        self.wait_with(|| true)
    }
}

fn drop_head(slot: &Slot) {
    let future = slot.lock().unwrap().take();
    drop(future);
}

/// On its own thread and on another, the check true or false. (`recipes/one_at_a_time` has a head
/// that is dropped with its turn.)
#[test]
fn a_head_dropped_in_its_check_passes_its_turn_on() {
    for (takes, elsewhere) in [(true, false), (true, true), (false, false), (false, true)] {
        let turns = Turns {
            free: Arc::new(Mutex::new(true)),
            waits: by_hand().1,
        };
        let out = over(&mut turns.wait()).unwrap();
        let head = Slot::default();
        let mut checks = 0;
        let slot = head.clone();
        let wait = turns.wait_with(move || {
            checks += 1;
            match checks {
                2 if elsewhere => thread::scope(|scope| {
                    scope.spawn(|| drop_head(&slot)).join().unwrap(); // not the scope's end
                }),
                2 => drop_head(&slot),
                _ => {}
            }
            checks != 2 || takes
        });
        *head.lock().unwrap() = Some(wait);
        let mut next = turns.wait();
        let mut last = turns.wait();
        drop(out);
        assert!(head.lock().unwrap().is_none(), "the head was dropped");
        let turn = over(&mut next).unwrap();
        assert!(poll(&mut last).is_pending());
        drop(turn);
        drop(over(&mut last).unwrap());
        assert!(*turns.free.lock().unwrap());
        assert_empty(&turns.waits);
    }
}

/// A unit that goes back as it is dropped, and signals no key.
struct Unit(Arc<Mutex<bool>>);

impl Drop for Unit {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = true;
    }
}

fn take_unit(free: &Arc<Mutex<bool>>) -> Option<Unit> {
    let was_free = std::mem::replace(&mut *free.lock().unwrap(), false);
    was_free.then(|| Unit(free.clone()))
}

/// The signal comes inside a callback, so callbacks are queued: the value of the head is dropped
/// before the next one is checked all the same.
#[test]
fn value_without_a_future_goes_before_the_next_turn() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let free = Arc::new(Mutex::new(true));
    let slot = Arc::new(Mutex::new(None::<WaitFuture<Unit>>));
    let unit = free.clone();
    let own = slot.clone();
    let head = waits.wait_in_turn(&"unit", SECOND, move || {
        drop(own.lock().unwrap().take()?); // not at the first check
        take_unit(&unit)
    });
    *slot.lock().unwrap() = Some(head);
    let unit = free.clone();
    let mut next = waits.wait_in_turn(&"unit", SECOND, move || take_unit(&unit));
    let signals = waits.clone();
    let came_true = Arc::new(Mutex::new(None));
    let seen = came_true.clone();
    let on_go = move |_| {
        let one = signals.check_and_complete_one(&"unit");
        *seen.lock().unwrap() = Some(one);
    };
    let mut is_first = true;
    let go = when(move || !std::mem::take(&mut is_first), on_go);
    waits
        .try_complete_else_watch(BoxedOperation::new(go), &["go"], SECOND)
        .unwrap();
    assert_eq!(waits.check_and_complete(&"go"), 1);
    assert_eq!(*came_true.lock().unwrap(), Some(false)); // it was queued
    assert!(over(&mut next).is_ok());
    assert_eq!(waits.stats().panics, 0);
    assert_empty(&waits);
}

/// A head that completes without a future uses no event up, and is not what was asked for.
#[test]
fn head_without_a_future_is_not_the_one_served() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let slot = Arc::new(Mutex::new(None::<WaitFuture<()>>));
    let own = slot.clone();
    let head = waits.wait_in_turn(&"unit", SECOND, move || {
        own.lock().unwrap().take().is_some()
    });
    *slot.lock().unwrap() = Some(head);
    let next = waits.wait_in_turn(&"unit", SECOND, || false);
    assert!(!waits.check_and_complete_one(&"unit"));
    drop(next);
    assert_empty(&waits);
}

/// A thread completes the head while that is checked for an event for one, which the head uses up.
#[test]
fn completing_a_held_head_is_no_event() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let (completes, own_id) = (waits.clone(), Arc::new(Mutex::new(None)));
    let id = own_id.clone();
    let mut is_first = true;
    let head = waits.wait_in_turn(&"unit", SECOND, move || {
        let is_parked = !std::mem::take(&mut is_first);
        if is_parked {
            let complete = || completes.complete(id.lock().unwrap().unwrap());
            let ended = thread::scope(|scope| scope.spawn(complete).join());
            assert_eq!(ended.unwrap(), EndResult::Noted);
        }
        is_parked
    });
    *own_id.lock().unwrap() = head.id();
    let mut next = waits.next_event(Watches::keys(&["unit"]).in_turn(), SECOND);
    assert!(waits.check_and_complete_one(&"unit"));
    assert!(poll(&mut next).is_pending());
    assert_eq!(waits.stats().panics, 0);
}

/// A call asks for the check of one that waits behind, and that one ends by a panic of its check.
#[test]
fn completing_all_of_a_key_is_no_event() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let head = waits.wait_in_turn(&"unit", SECOND, || false);
    let panics = || -> bool { panic!("as asked") };
    let mut second = waits.wait_in_turn(&"unit", SECOND, panics);
    assert_eq!(waits.complete_for_key(&"unit"), 0);
    let mut next = waits.next_event(Watches::keys(&["unit"]).in_turn(), SECOND);
    drop(head);
    assert!(over(&mut second).is_err());
    assert!(poll(&mut next).is_pending());
}

#[test]
fn events_for_one_under_check_count_as_one() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let signals = waits.clone();
    let mut is_first = true;
    let head = waits.wait_in_turn(&"unit", SECOND, move || {
        let is_parked = !std::mem::take(&mut is_first);
        if is_parked {
            let signal = || [(); 2].map(|()| signals.check_and_complete_one(&"unit"));
            let served = thread::scope(|scope| scope.spawn(signal).join());
            assert_eq!(served.unwrap(), [false, false]); // left to the holder
        }
        is_parked
    });
    let in_turn = || Watches::keys(&["unit"]).in_turn();
    let mut line = [(); 2].map(|()| waits.next_event(in_turn(), SECOND));
    assert!(waits.check_and_complete_one(&"unit"));
    let ready = line.each_mut().map(|wait| poll(wait).is_ready());
    assert_eq!((ready, waits.stats().panics), ([true, false], 0));
    drop(head);
}
