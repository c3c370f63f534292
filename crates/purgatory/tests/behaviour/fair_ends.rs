//! Fair ends: a late event that is earlier than the reaper, and turns in the order of parking.
#![cfg(not(loom))]

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
    thread,
};

use crate::support::{MS, Park, Probe, SECOND, Waiting, assert_empty, by_hand, poll, waiting};
use purgatory::{
    BoxedOperation, Monitor, Outcome, Purgatory, Timeout, WaitError, WaitFuture, Watches,
};
use timer_core::ManualTimer;

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
    }
}

#[test]
fn an_event_after_the_reaper_finds_nothing() {
    let (timer, waits) = waiting();
    let probe = Probe::parked(&waits, &["a"], MS);
    timer.advance(MS);
    probe.make_ready();
    assert_eq!((waits.check_and_complete(&"a"), probe.endings()), (0, vec![Outcome::Expired]));
}

#[test]
fn a_change_after_the_deadline_gives_the_value() {
    let (timer, purgatory) = by_hand();
    let jobs = Monitor::with(purgatory, Vec::new());
    let wait = jobs.wait(&["jobs"], MS, Vec::pop);
    timer.pass(SECOND);
    jobs.update(|jobs| jobs.push("late"));
    timer.advance(SECOND);
    assert_eq!(wait.wait_blocking(), Ok("late"));
}

/// Under one key and several, this key first or not, whatever else became of them meanwhile.
#[test]
fn turns_are_taken_in_the_order_of_parking() {
    let (timer, waits) = waiting();
    let further = ["b", "c", "d", "e", "f", "g", "h"];
    let parked: Vec<_> = (0..200)
        .map(|number| {
            let other = further[number % further.len()];
            let (first, second) = (["a", other], [other, "a"]);
            let keys = [&["a"][..], &first, &second][number % 3];
            let probe = Probe::new();
            let timeout = [Timeout::Never, Timeout::After(SECOND)][number % 2];
            let id = waits.park(probe.operation(), keys, timeout);
            (probe, id)
        })
        .collect();
    let mut left = Vec::new();
    for (number, (probe, id)) in parked.into_iter().enumerate() {
        match number % 5 {
            0 => _ = waits.cancel(id, "gone"),
            1 => assert!(waits.reschedule(id, 2 * SECOND)), // keeps its turn
            _ => {}
        }
        left.extend((number % 5 > 0).then_some((number, probe)));
    }
    waits.check_and_complete(&"a"); // none is ready, and none loses its turn
    timer.advance(SECOND);
    left.retain(|(number, probe)| {
        assert_eq!(probe.ended(), number % 2 == 1 && number % 5 != 1);
        !probe.ended()
    });
    left.iter().for_each(|(_, probe)| probe.make_ready());
    for at in 0..left.len() {
        assert!(waits.check_and_complete_one(&"a"));
        assert!(left[at].1.ended() && left[at + 1..].iter().all(|(_, probe)| !probe.ended()));
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

type Future = WaitFuture<Turn>;

/// A future where its own check, or its waker, can drop it.
type Slot = Arc<Mutex<Option<Future>>>;

impl Turns {
    /// Waits for a turn; `act` runs in each check, before it looks, and says whether it may.
    fn wait_with(&self, mut act: impl FnMut() -> bool + Send + 'static) -> Future {
        let turns = self.clone();
        self.waits.wait(&["turn", "other"], SECOND, move || {
            let took = act() && std::mem::replace(&mut *turns.free.lock().unwrap(), false);
            took.then(|| Turn(turns.clone()))
        })
    }

    fn wait(&self) -> Future {
        self.wait_with(|| true)
    }
}

/// The head of the queue, in a slot, which in its second check does `act` with it, and then looks
/// only if that says so.
fn head(turns: &Turns, act: impl FnMut(&Slot) -> bool + Send + 'static) -> Slot {
    let (slot, mut checks, mut act) = (Slot::default(), 0, act);
    let of_check = slot.clone();
    let wait = turns.wait_with(move || {
        checks += 1;
        checks != 2 || act(&of_check)
    });
    *slot.lock().unwrap() = Some(wait);
    slot
}

fn drop_head(slot: &Slot) {
    let future = slot.lock().unwrap().take();
    drop(future);
}

/// A turn is out, and two wait behind a head; `act` drops that at some point, at which or after
/// which the turn comes back. Then the next has it, and after that the last.
#[track_caller]
fn passes_on(make_head: impl FnOnce(&Turns) -> Slot, act: impl FnOnce(&ManualTimer, &Slot, Turn)) {
    let (timer, waits) = by_hand();
    let turns = Turns { free: Arc::new(Mutex::new(true)), waits };
    let Poll::Ready(Ok(out)) = poll(&mut turns.wait()) else { panic!("it is free") };
    let head = make_head(&turns);
    let (mut next, mut last) = (turns.wait(), turns.wait());
    act(&timer, &head, out);
    assert!(head.lock().unwrap().is_none(), "the head was dropped");
    let Poll::Ready(Ok(turn)) = poll(&mut next) else { panic!("the next has no turn") };
    assert!(poll(&mut last).is_pending());
    drop(turn);
    let Poll::Ready(Ok(turn)) = poll(&mut last) else { panic!("the last has no turn") };
    assert!(turns.waits.is_empty());
    drop(turn);
    assert!(*turns.free.lock().unwrap());
    assert_empty(&turns.waits);
}

fn plain(turns: &Turns) -> Slot {
    head(turns, |_| true)
}

#[test]
fn a_head_dropped_while_parked_passes_its_turn_on() {
    passes_on(plain, |_, head, turn| {
        drop_head(head);
        drop(turn);
    });
    passes_on(plain, |_, head, turn| {
        assert!(poll(head.lock().unwrap().as_mut().unwrap()).is_pending()); // it has a waker
        drop_head(head);
        drop(turn);
    });
}

#[test]
fn a_head_dropped_in_its_check_passes_its_turn_on() {
    for takes in [true, false] {
        let in_check = move |slot: &Slot| {
            drop_head(slot);
            takes
        };
        passes_on(|turns| head(turns, in_check), |_, _, turn| drop(turn));
    }
}

#[test]
fn a_head_dropped_elsewhere_passes_its_turn_on() {
    for takes in [true, false] {
        let in_check = move |slot: &Slot| {
            thread::scope(|scope| scope.spawn(|| drop_head(slot)).join().unwrap());
            takes
        };
        passes_on(|turns| head(turns, in_check), |_, _, turn| drop(turn));
    }
}

#[test]
fn a_head_dropped_by_its_waker_passes_its_turn_on() {
    struct Drops(Slot);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop_head(&self.0);
        }
    }
    passes_on(plain, |_, head, turn| {
        let waker = Arc::new(Drops(head.clone())).into();
        let mut future = head.lock().unwrap().take().unwrap();
        let polled = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        *head.lock().unwrap() = Some(future);
        drop(turn); // wakes it
    });
}

#[test]
fn a_head_dropped_with_its_value_passes_its_turn_on() {
    passes_on(plain, |_, head, turn| {
        drop(turn); // the head has it, and is not polled
        drop_head(head);
    });
    passes_on(plain, |_, head, turn| {
        drop(turn);
        let mut future = head.lock().unwrap().take().unwrap();
        let Poll::Ready(Ok(turn)) = poll(&mut future) else { panic!("it has the turn") };
        drop(future);
        drop(turn); // that it took
    });
}

#[test]
fn a_head_that_expires_passes_its_turn_on() {
    let (timer, waits) = by_hand();
    let turns = Turns { free: Arc::new(Mutex::new(true)), waits };
    let Poll::Ready(Ok(out)) = poll(&mut turns.wait()) else { panic!("it is free") };
    let mut head = turns.wait();
    timer.advance(SECOND / 2);
    let mut next = turns.wait();
    timer.advance(SECOND / 2);
    drop(out);
    assert!(matches!(poll(&mut head), Poll::Ready(Err(WaitError::Expired))));
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
}

/// One behind the head goes while the event is on its way to it.
#[test]
fn one_dropped_in_anothers_check_passes_its_turn_on() {
    let (_timer, waits) = by_hand();
    let turns = Turns { free: Arc::new(Mutex::new(false)), waits };
    let second = Slot::default();
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
    let Poll::Ready(Ok(turn)) = poll(&mut third) else { panic!("the third has no turn") };
    drop(turn);
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    assert_empty(&turns.waits);
}
