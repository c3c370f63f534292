//! Fair ends: a late event that is earlier than the reaper, and an event for one
//! (`check_and_complete_one`), which takes waiters in the order of parking.
#![cfg(not(loom))]

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
    thread,
};

use crate::support::{
    MS, NEVER, Park, Probe, SECOND, Waiting, assert_empty, by_hand, over, poll, waiting,
};
use purgatory::{
    BoxedOperation, EndResult, OperationId, Outcome, Purgatory, Timeout, WaitFuture, Watches,
};

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
        assert_eq!((waits.check_and_complete(&"a"), late.endings()), (0, vec![Outcome::Expired]));
    }
}

/// An operation that another thread completes during its check uses no event up.
#[test]
fn what_another_completes_meanwhile_uses_no_event() {
    type Complete = fn(&Waiting, OperationId);
    let completes: [Complete; 2] = [
        |waits, id| assert_eq!(waits.complete(id), EndResult::Noted),
        |waits, _| assert_eq!(waits.complete_up_to(&"w", 1), 0),
    ];
    for complete in completes {
        let (_timer, purgatory) = waiting();
        let (first, parked) = (Probe::new(), Arc::new(Mutex::new(None)));
        let (waits, id) = (purgatory.clone(), parked.clone());
        let operation = first.operation().on_check(move || {
            let Some(id) = *id.lock().unwrap() else { return }; // its first check
            // ThreadSanitizer sees the join, not the scope's end.
            thread::scope(|scope| scope.spawn(|| complete(&waits, id)).join().unwrap());
        });
        let watermark = [("w", 1)];
        let watches = Watches::up_to(&watermark).with_keys(&["a"]);
        *parked.lock().unwrap() = Some(purgatory.park(operation, watches, NEVER));
        let second = Probe::parked(&purgatory, &["a"], NEVER);
        second.make_ready();
        assert!(purgatory.check_and_complete_one(&"a"));
        assert!([&first, &second].iter().all(|probe| probe.endings() == [Outcome::Completed]));
    }
}

/// Under one key and several, this key first or not, whatever else became of them meanwhile.
#[test]
fn turns_are_taken_in_the_order_of_parking() {
    let (timer, waits) = waiting();
    let further = ["b", "c", "d", "e", "f", "g", "h"];
    let mut left = Vec::new();
    for number in 0..200 {
        let other = further[number % further.len()];
        let (first, second) = (["a", other], [other, "a"]);
        let keys = [&["a"][..], &first, &second][number % 3];
        let timeout = [NEVER, Timeout::After(SECOND)][number % 2];
        let probe = Probe::new();
        let id = waits.park(probe.operation(), keys, timeout);
        left.push((number, probe, id));
    }
    for &(number, _, id) in &left {
        match number % 5 {
            0 => _ = waits.cancel(id, "gone"),
            1 => assert!(waits.reschedule(id, 2 * SECOND)), // keeps its turn
            _ => {}
        }
    }
    waits.check_and_complete(&"a"); // none is ready, and none loses its turn
    timer.advance(SECOND);
    left.retain(|(_, probe, _)| !probe.ended());
    assert_eq!(left.len(), 200 - 40 - 60); // cancelled, expired
    left.iter().for_each(|(_, probe, _)| probe.make_ready());
    for at in 0..left.len() {
        assert!(waits.check_and_complete_one(&"a"));
        assert!(left[at].1.ended() && left[at + 1..].iter().all(|(_, probe, _)| !probe.ended()));
    }
    assert!(!waits.check_and_complete_one(&"a"));
    assert_empty(&waits);
}

/// One turn at a time: a wait takes it, and its guard gives it to the next.
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

/// A future where its own check, or its waker, can drop it.
type Slot = Arc<Mutex<Option<WaitFuture<Turn>>>>;

impl Turns {
    fn new(free: bool) -> Turns {
        Turns { free: Arc::new(Mutex::new(free)), waits: by_hand().1 }
    }

    /// Waits for a turn; `act` runs in each check, before it looks, and says whether it may.
    fn wait_with(&self, mut act: impl FnMut() -> bool + Send + 'static) -> WaitFuture<Turn> {
        let turns = self.clone();
        self.waits.wait(&["turn", "other"], SECOND, move || {
            let took = act() && std::mem::replace(&mut *turns.free.lock().unwrap(), false);
            took.then(|| Turn(turns.clone()))
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

/// A turn is out, and two wait behind a head. `act` gives the turn back and drops the head, unless
/// `in_check` does, which runs in the head's second check and says whether that may look. Then the
/// next has the turn, and after that the last.
#[track_caller]
fn passes_on(
    mut in_check: impl FnMut(&Slot) -> bool + Send + 'static,
    act: impl FnOnce(&Slot, Turn),
) {
    let turns = Turns::new(true);
    let out = over(&mut turns.wait()).unwrap();
    let (head, mut checks) = (Slot::default(), 0);
    let of_check = head.clone();
    let wait = turns.wait_with(move || {
        checks += 1;
        checks != 2 || in_check(&of_check)
    });
    *head.lock().unwrap() = Some(wait);
    let (mut next, mut last) = (turns.wait(), turns.wait());
    act(&head, out);
    assert!(head.lock().unwrap().is_none(), "the head was dropped");
    let turn = over(&mut next).unwrap();
    assert!(poll(&mut last).is_pending());
    drop(turn);
    drop(over(&mut last).unwrap());
    assert!(turns.waits.is_empty() && *turns.free.lock().unwrap());
    assert_empty(&turns.waits);
}

struct Drops(Slot);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        drop_head(&self.0);
    }
}

/// While it is parked, or by its waker.
#[test]
fn a_head_dropped_outside_checks_passes_its_turn_on() {
    for by_waker in [false, true] {
        let act = |head: &Slot, turn| {
            let waker = Arc::new(Drops(head.clone())).into();
            let mut future = head.lock().unwrap().take().unwrap();
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            *head.lock().unwrap() = Some(future);
            if !by_waker {
                drop_head(head);
            }
            drop(turn); // wakes it
        };
        passes_on(|_| true, act);
    }
}

/// On its own thread and on another, the check true or false.
#[test]
fn a_head_dropped_in_its_check_passes_its_turn_on() {
    for takes in [true, false] {
        let here = move |slot: &Slot| {
            drop_head(slot);
            takes
        };
        passes_on(here, |_, turn| drop(turn));
        let elsewhere = move |slot: &Slot| {
            thread::scope(|scope| scope.spawn(|| drop_head(slot)).join().unwrap());
            takes
        };
        passes_on(elsewhere, |_, turn| drop(turn));
    }
}

/// Before and after it was polled.
#[test]
fn a_head_dropped_with_its_value_passes_its_turn_on() {
    for polled in [false, true] {
        let act = |head: &Slot, turn| {
            drop(turn);
            let mut future = head.lock().unwrap().take().unwrap();
            let turn = polled.then(|| over(&mut future));
            drop(future);
            drop(turn);
        };
        passes_on(|_| true, act);
    }
}

/// One behind the head goes while the event is on its way to it.
#[test]
fn one_dropped_in_anothers_check_passes_its_turn_on() {
    let (turns, second) = (Turns::new(false), Slot::default());
    let (drops, mut checks) = (second.clone(), 0);
    let mut first = turns.wait_with(move || {
        checks += 1;
        drop_head(&drops);
        checks > 2 // not yet at the first event
    });
    *second.lock().unwrap() = Some(turns.wait());
    let mut third = turns.wait();
    *turns.free.lock().unwrap() = true;
    assert!(turns.waits.check_and_complete_one(&"turn"));
    assert!(poll(&mut first).is_pending());
    drop(over(&mut third).unwrap());
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    assert_empty(&turns.waits);
}
