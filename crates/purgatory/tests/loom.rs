//! Every interleaving of the small cores, on the shipped code: `just loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p purgatory --test loom`.
//!
//! Each model is run as it is, where no interleaving may fail, and then with a fault planted in
//! the very line it is about, where one must. The conditions are read and written `Relaxed`: what
//! the purgatory promises needs no help from them.

#![cfg(loom)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use purgatory::{
    BoxedOperation, CancelReason, DelayedOperation, Outcome, Purgatory, RefusedReason, Watches,
    sync::plant,
};
use timer_core::ManualTimer;

/// The bound of the search; beyond it these models show nothing new.
const PREEMPTIONS: usize = 5;
const MS: Duration = Duration::from_millis(1);

/// Waits until all its flags are set.
struct Op {
    flags: Vec<Arc<AtomicBool>>,
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.flags.iter().all(|flag| flag.load(Relaxed))
    }

    fn on_complete(self, outcome: Outcome) {
        self.endings.lock().unwrap().push(outcome);
    }
}

struct Setup {
    timer: ManualTimer,
    purgatory: Purgatory<u8, Op>,
    flags: [Arc<AtomicBool>; 2],
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

impl Setup {
    fn new() -> Self {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("loom").timer(&timer).build().unwrap();
        let flags = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        Setup { timer, purgatory, flags, endings: Default::default() }
    }

    fn park(&self, flags: &[usize], keys: &[u8], timeout: Duration) {
        let flags = flags.iter().map(|&flag| self.flags[flag].clone()).collect();
        let operation = Op { flags, endings: self.endings.clone() };
        self.purgatory.try_complete_else_watch(operation, keys, timeout).unwrap();
    }

    /// Another thread that sets a flag and then raises the event.
    fn complete_elsewhere(&self, flag: usize, key: u8) -> thread::JoinHandle<()> {
        let (purgatory, flag) = (self.purgatory.clone(), self.flags[flag].clone());
        thread::spawn(move || {
            flag.store(true, Relaxed);
            purgatory.check_and_complete(&key);
        })
    }

    /// What must hold at the end: one of these outcomes, once, and nothing left.
    #[track_caller]
    fn assert_ended_once(&self, allowed: &[Outcome]) {
        let endings = self.endings.lock().unwrap();
        assert_eq!(endings.len(), 1, "ended {} times: {endings:?}", endings.len());
        assert!(allowed.contains(&endings[0]), "ended as {:?}", endings[0]);
        let left = (self.purgatory.len(), self.purgatory.watched(), self.purgatory.keys());
        assert_eq!(left, (0, 0, 0), "left behind");
    }
}

/// Runs `model` in every interleaving; then with `fault` planted, which one of them must show.
fn check(fault: &'static str, model: fn()) {
    let explore = |fault| {
        plant(fault);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS);
        let runs = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let result = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                counted.fetch_add(1, SeqCst);
                model();
            });
        }));
        plant("");
        (result, runs.load(SeqCst))
    };
    let (sound, interleavings) = explore("");
    assert!(sound.is_ok(), "failed after {interleavings} interleavings");
    println!("{interleavings} interleavings at {PREEMPTIONS} preemptions");
    let (faulty, tried) = explore(fault);
    assert!(faulty.is_err(), "{fault:?} was not noticed in {tried} interleavings");
    println!("{fault:?} noticed after {tried}");
}

fn park_against_event(keys: &'static [u8]) {
    let setup = Setup::new();
    let event = setup.complete_elsewhere(0, keys[0]);
    setup.park(&[0], keys, MS);
    event.join().unwrap();
    setup.assert_ended_once(&[Outcome::Completed]);
}

#[test]
fn park_against_event_on_one_key() {
    check("park skips the version check", || park_against_event(&[1]));
    check("an event raises no version", || park_against_event(&[1]));
}

#[test]
fn park_against_event_on_two_keys() {
    check("park skips the version check", || park_against_event(&[1, 2]));
}

/// So many keys that the home's lock is let go while they are watched.
#[test]
fn park_against_event_on_five_keys() {
    check("park skips the version check", || park_against_event(&[1, 2, 3, 4, 5]));
}

#[test]
fn event_against_event() {
    check("an event leaves no note", || {
        let setup = Setup::new();
        setup.park(&[0, 1], &[1, 2], MS);
        let events = [setup.complete_elsewhere(0, 1), setup.complete_elsewhere(1, 2)];
        events.into_iter().for_each(|event| event.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

#[test]
fn event_against_expiry() {
    check("an expiry leaves no note", || {
        let setup = Setup::new();
        setup.park(&[0, 1], &[1], MS);
        let event = setup.complete_elsewhere(0, 1); // one flag is not enough
        setup.timer.advance(MS);
        event.join().unwrap();
        setup.assert_ended_once(&[Outcome::Expired]);
    });
}

#[test]
fn completing_event_against_expiry() {
    check("an expiry removes what is held", || {
        let setup = Setup::new();
        setup.park(&[0], &[1], MS);
        let event = setup.complete_elsewhere(0, 1);
        setup.timer.advance(MS);
        event.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed, Outcome::Expired]);
    });
}

/// Three at once: one parks, one completes, and time runs out.
#[test]
fn park_against_event_against_expiry() {
    check("an expiry leaves no note", || {
        let setup = Setup::new();
        let event = setup.complete_elsewhere(0, 1);
        let timer = setup.timer.clone();
        let expiry = thread::spawn(move || timer.advance(MS));
        setup.park(&[0, 1], &[1], MS);
        event.join().unwrap();
        expiry.join().unwrap();
        setup.timer.advance(MS); // when it was parked after the other's step
        setup.assert_ended_once(&[Outcome::Expired]);
    });
}

#[test]
fn cancel_against_event() {
    check("an expiry leaves no note", || {
        let setup = Setup::new();
        setup.park(&[0, 1], &[1], MS);
        let event = setup.complete_elsewhere(0, 1);
        setup.purgatory.cancel_for_key(&1, "loom");
        event.join().unwrap();
        let reason = CancelReason::Requested("loom".into());
        setup.assert_ended_once(&[Outcome::Cancelled(reason)]);
    });
}

/// Another thread that sets a flag and then lets a key's watermark rise.
fn rise_elsewhere(setup: &Setup, flag: usize, key: u8) -> thread::JoinHandle<()> {
    let (purgatory, flag) = (setup.purgatory.clone(), setup.flags[flag].clone());
    thread::spawn(move || {
        flag.store(true, Relaxed);
        purgatory.complete_up_to(&key, 5);
    })
}

fn park_watermarks(setup: &Setup, flags: &[usize], watches: Watches<'_, u8>) {
    let flags = flags.iter().map(|&flag| setup.flags[flag].clone()).collect();
    let operation = Op { flags, endings: setup.endings.clone() };
    setup.purgatory.try_complete_else_watch(operation, watches, MS).unwrap();
}

#[test]
fn park_against_rise() {
    fn model() {
        let setup = Setup::new();
        let rise = rise_elsewhere(&setup, 0, 1);
        park_watermarks(&setup, &[0], Watches::up_to(&[(1, 5)]));
        rise.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed]);
    }
    check("park skips the version check", model);
    check("an event raises no version", model);
}

#[test]
fn park_against_rise_in_the_check_form() {
    check("park skips the version check", || {
        let setup = Setup::new();
        let rise = rise_elsewhere(&setup, 0, 1);
        park_watermarks(&setup, &[0], Watches::up_to(&[(1, 5)]).checked());
        rise.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

/// Two watermarks of one operation are met at once: one of the two takes the last.
#[test]
fn rise_against_rise() {
    check("a watch that was taken is not counted down", || {
        let setup = Setup::new();
        // A condition that the checks never see true: only the count can end it.
        let never = Arc::new(AtomicBool::new(false));
        let operation = Op { flags: vec![never], endings: setup.endings.clone() };
        let watches = [(1, 5), (2, 5)];
        let parked =
            setup.purgatory.try_complete_else_watch(operation, Watches::up_to(&watches), MS);
        parked.unwrap();
        let rises = [rise_elsewhere(&setup, 0, 1), rise_elsewhere(&setup, 1, 2)];
        rises.into_iter().for_each(|rise| rise.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

/// The same in the check form, where both may find the other's check under way.
#[test]
fn rise_against_rise_in_the_check_form() {
    check("an event leaves no note", || {
        let setup = Setup::new();
        park_watermarks(&setup, &[0, 1], Watches::up_to(&[(1, 5), (2, 5)]).checked());
        let rises = [rise_elsewhere(&setup, 0, 1), rise_elsewhere(&setup, 1, 2)];
        rises.into_iter().for_each(|rise| rise.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

#[test]
fn rise_against_cancel_and_expiry() {
    check("an expiry removes what is held", || {
        let setup = Setup::new();
        let watches = [(1, 5)];
        park_watermarks(&setup, &[0], Watches::up_to(&watches).with_keys(&[2]));
        let rise = rise_elsewhere(&setup, 0, 1);
        let event = setup.complete_elsewhere(1, 2);
        setup.timer.advance(MS);
        rise.join().unwrap();
        event.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed, Outcome::Expired]);
    });
}

#[test]
fn rise_against_cancel_for_key() {
    check("an expiry leaves no note", || {
        let setup = Setup::new();
        park_watermarks(&setup, &[0, 1], Watches::up_to(&[(1, 5)]).checked());
        let rise = rise_elsewhere(&setup, 0, 1);
        setup.purgatory.cancel_for_key(&1, "loom");
        rise.join().unwrap();
        let reason = CancelReason::Requested("loom".into());
        setup.assert_ended_once(&[Outcome::Cancelled(reason)]);
    });
}

/// A check that panics while another event finds it under way.
#[test]
fn panicking_check_against_event() {
    struct Panics(Op);
    impl DelayedOperation for Panics {
        fn try_complete(&mut self) -> bool {
            assert!(!self.0.flags[0].load(Relaxed), "a panic in a check");
            false
        }
        fn on_complete(self, outcome: Outcome) {
            self.0.on_complete(outcome);
        }
    }
    check("what panicked is put back", || {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u8, Panics> =
            Purgatory::builder("loom").timer(&timer).build().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let endings = std::sync::Arc::<Mutex<Vec<Outcome>>>::default();
        let operation = Panics(Op { flags: vec![flag.clone()], endings: endings.clone() });
        purgatory.try_complete_else_watch(operation, &[1], MS).unwrap();
        let other = purgatory.clone();
        let event = thread::spawn(move || other.check_and_complete(&1));
        flag.store(true, Relaxed);
        purgatory.check_and_complete(&1);
        event.join().unwrap();
        assert_eq!(*endings.lock().unwrap(), [Outcome::Cancelled(CancelReason::Panicked)]);
        assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    });
}

/// The value of a wait goes to the future, or to the hook when the future was dropped: never to both,
/// never to neither.
#[test]
fn future_drop_against_completion() {
    check("a future that leaves takes nothing along", || {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u8, BoxedOperation> =
            Purgatory::builder("loom").timer(&timer).build().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let taken = std::sync::Arc::new(AtomicUsize::new(0));
        let unclaimed = std::sync::Arc::new(AtomicUsize::new(0));
        let (seen, took, lost) = (flag.clone(), taken.clone(), unclaimed.clone());
        let condition = move || seen.load(Relaxed).then(|| _ = took.fetch_add(1, SeqCst));
        let hook = move |()| _ = lost.fetch_add(1, SeqCst);
        let future = purgatory.wait_or(&[1], MS, condition, hook);
        let other = purgatory.clone();
        let event = thread::spawn(move || {
            flag.store(true, Relaxed);
            other.check_and_complete(&1);
        });
        drop(future);
        event.join().unwrap();
        assert_eq!(taken.load(SeqCst), unclaimed.load(SeqCst), "a value was lost");
        assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    });
}

/// Either the park is refused, or what was parked is ended.
#[test]
fn park_against_shutdown() {
    check("shutdown closes no shard", || {
        let setup = Setup::new();
        let purgatory = setup.purgatory.clone();
        let shutdown = thread::spawn(move || purgatory.shutdown());
        let flags = vec![setup.flags[0].clone()];
        let operation = Op { flags, endings: setup.endings.clone() };
        let parked = setup.purgatory.try_complete_else_watch(operation, &[1], MS);
        shutdown.join().unwrap();
        match parked {
            Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
            Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
        }
    });
}
