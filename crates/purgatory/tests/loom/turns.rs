//! Operations that wait in turn: nobody passes the head, and no turn is lost.

use loom::{
    sync::{Arc, Mutex},
    thread,
};
use purgatory::{BoxedOperation, Permits, Purgatory, WaitFuture, Watches, sync::Failpoint};

use super::{MS, assert_nothing_left, by_hand, check, ending};

const IN_TURN: &[u8] = &[1];

type Waits = Purgatory<u8, BoxedOperation>;

/// A number of units, and who took one, in order.
#[derive(Clone)]
struct Units {
    waits: Waits,
    free: Arc<Mutex<(u8, Vec<u8>)>>,
}

impl Units {
    fn new(waits: &Waits) -> Self {
        Units {
            waits: waits.clone(),
            free: Arc::new(Mutex::new((0, Vec::new()))),
        }
    }

    fn take(&self, name: u8) -> WaitFuture<()> {
        let free = self.free.clone();
        let condition = move || {
            let mut free = free.lock().unwrap();
            if free.0 == 0 {
                return false;
            }
            free.0 -= 1;
            free.1.push(name);
            true
        };
        self.waits
            .wait(Watches::keys(IN_TURN).in_turn(), MS, condition)
    }

    /// Frees a unit, then signals the key for one.
    fn add(&self) {
        self.free.lock().unwrap().0 += 1;
        self.waits.check_and_complete_one(&1);
    }

    fn order(&self) -> Vec<u8> {
        self.free.lock().unwrap().1.clone()
    }
}

/// One waits. A unit is freed as another comes: the first has it. Both have one after a second.
#[test]
fn newcomer_in_turn_against_event() {
    check(&[Failpoint::NewcomerOvertakes], || {
        let (_timer, waits) = by_hand();
        let units = Units::new(&waits);
        let mut first = units.take(1);
        let adding = units.clone();
        let adds = thread::spawn(move || adding.add());
        let mut second = units.take(2);
        adds.join().unwrap();
        assert_eq!(units.order(), [1]);
        units.add();
        assert_eq!(units.order(), [1, 2]);
        assert_eq!(
            (ending(&mut first), ending(&mut second)),
            (Some(Ok(())), Some(Ok(())))
        );
        assert_nothing_left(&waits);
    });
}

/// The head goes as another comes behind it, without an event. What the head could not use is free:
/// the newcomer has it, checked by the thread that ends the head or by its parker.
#[test]
fn newcomer_against_head_that_goes() {
    check(&[Failpoint::NewcomerTrustsQueue], || {
        let (_timer, waits) = by_hand();
        let units = Units::new(&waits);
        let head = waits.wait(Watches::keys(IN_TURN).in_turn(), MS, || false);
        units.add(); // the head cannot use it
        let goes = thread::spawn(move || drop(head));
        let mut second = units.take(2);
        goes.join().unwrap();
        assert_eq!(ending(&mut second), Some(Ok(())));
        assert_nothing_left(&waits);
    });
}

/// A future is dropped as its wait completes. The event is for the next then.
#[test]
fn drop_in_turn_against_completion() {
    check(&[Failpoint::DroppedWaitKeepsTurn], || {
        let (_timer, waits) = by_hand::<BoxedOperation>();
        let next = || waits.next_event(Watches::keys(IN_TURN).in_turn(), MS);
        let first = next();
        let mut second = next();
        let other = waits.clone();
        let event = thread::spawn(move || other.check_and_complete_one(&1));
        drop(first);
        event.join().unwrap();
        assert_eq!(ending(&mut second), Some(Ok(())));
        assert_nothing_left(&waits);
    });
}

/// A guard that is dropped untaken is one permit, not two. No fault fits: the guard's own event
/// does for the next.
#[test]
fn dropped_permit_counts_once() {
    check(&[], || {
        let (_timer, purgatory) = {
            let timer = timer_core::ManualTimer::new();
            let purgatory = Purgatory::builder("loom").timer(&timer).build().unwrap();
            (timer, purgatory)
        };
        let permits = Permits::over(purgatory, 1);
        let held = permits.try_acquire(1).unwrap();
        let first = permits.acquire(1, MS);
        let mut second = permits.acquire(1, MS);
        let returns = thread::spawn(move || drop(held));
        drop(first);
        returns.join().unwrap();
        let taken = ending(&mut second).expect("it is the only one").unwrap();
        assert_eq!((permits.taken(), taken.weight()), (1, 1));
        drop(taken);
        assert_eq!(permits.free(), 1);
    });
}

/// The head expires, or is cancelled, as an event comes that it cannot use: the next has it.
#[test]
fn expiry_of_head_against_event() {
    for cancels in [false, true] {
        check(&[Failpoint::HeadLeavesTurn], move || {
            let (timer, waits) = by_hand();
            let units = Units::new(&waits);
            let head = waits.wait(Watches::keys(IN_TURN).in_turn(), MS, || false);
            let id = head.id().unwrap();
            let mut second = units.take(2);
            assert!(second.reschedule(2 * MS));
            let adding = units.clone();
            let adds = thread::spawn(move || adding.add());
            if cancels {
                waits.cancel(id, "loom");
            } else {
                timer.advance(MS);
            }
            adds.join().unwrap();
            assert_eq!(ending(&mut second), Some(Ok(())));
            assert_nothing_left(&waits);
        });
    }
}

/// Two events, each for one, against two that wait: the second event finds the first held.
#[test]
fn two_events_in_turn_complete_two() {
    check(&[Failpoint::EventLeavesNoRequest], || {
        let (_timer, waits) = by_hand::<BoxedOperation>();
        let next = || waits.next_event(Watches::keys(IN_TURN).in_turn(), MS);
        let [mut first, mut second] = [(); 2].map(|()| next());
        let third = next();
        let other = waits.clone();
        let event = thread::spawn(move || other.check_and_complete_one(&1));
        waits.check_and_complete_one(&1);
        event.join().unwrap();
        assert_eq!(
            (ending(&mut first), ending(&mut second)),
            (Some(Ok(())), Some(Ok(())))
        );
        assert_eq!(waits.len(), 1, "no event for the third");
        drop(third);
        assert_nothing_left(&waits);
    });
}
