//! Every interleaving of the small cores, on the shipped code: `just loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p purgatory --test loom`.
//!
//! Each model is run as it is, where no interleaving may fail, and then with a fault planted in
//! the very line it is about, where one must. The conditions are read and written `Relaxed`: what
//! the purgatory promises needs no help from them.

#![cfg(loom)]

mod replies;
mod watermarks;

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
        atomic::{AtomicBool, AtomicUsize as AtomicJobs, Ordering::Relaxed},
    },
    thread,
};
use purgatory::{
    BoxedOperation, Builder, CancelReason, DelayedOperation, Monitor, Outcome, Purgatory,
    RefusedReason, Timeout, Watches,
    failpoints::{Failpoint, plant},
};
use timer_core::{Executor, Job, ManualTimer};

/// The bound of the search; beyond it these models show nothing new.
const PREEMPTIONS: usize = 5;
const MS: Duration = Duration::from_millis(1);

/// Waits until all its flags are set.
struct Op {
    flags: Vec<Arc<AtomicBool>>,
    /// A flag that its callback sets.
    sets: Option<Arc<AtomicBool>>,
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.flags.iter().all(|flag| flag.load(Relaxed))
    }

    fn on_complete(self, outcome: Outcome) {
        self.endings.lock().unwrap().push(outcome);
        self.sets.into_iter().for_each(|flag| flag.store(true, Relaxed));
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
        Setup::with(|builder| builder)
    }

    fn with(build: impl FnOnce(Builder<u8, Op>) -> Builder<u8, Op>) -> Self {
        let timer = ManualTimer::new();
        let purgatory = build(Purgatory::builder("loom").timer(&timer)).build().unwrap();
        let flags = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        Setup { timer, purgatory, flags, endings: Default::default() }
    }

    fn park(&self, flags: &[usize], keys: &[u8], timeout: Duration) {
        let flags = flags.iter().map(|&flag| self.flags[flag].clone()).collect();
        let operation = Op { flags, sets: None, endings: self.endings.clone() };
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

/// Runs `model` in every interleaving; then with each of `faults` planted, which one of them must
/// show.
fn check(faults: &[Failpoint], model: fn()) {
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
        plant(None);
        (result, runs.load(SeqCst))
    };
    let (sound, interleavings) = explore(None);
    assert!(sound.is_ok(), "failed after {interleavings} interleavings");
    println!("{interleavings} interleavings at {PREEMPTIONS} preemptions");
    for &fault in faults {
        let (faulty, tried) = explore(Some(fault));
        assert!(faulty.is_err(), "{fault:?} was not noticed in {tried} interleavings");
        println!("{fault:?} noticed after {tried}");
    }
}

/// Neighbouring keys are in different rooms: 1 and 2; every second one shares a room and a version.
const ONE_KEY: &[u8] = &[1];
const TWO_ROOMS: &[u8] = &[1, 2];
const ONE_ROOM: &[u8] = &[1, 3];

fn park_against_event(keys: &'static [u8], on: u8) {
    let setup = Setup::new();
    let event = setup.complete_elsewhere(0, on);
    setup.park(&[0], keys, MS);
    event.join().unwrap();
    setup.assert_ended_once(&[Outcome::Completed]);
}

#[test]
fn park_against_event_on_one_key() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], || {
        park_against_event(ONE_KEY, 1)
    });
}

/// What an event finds while further keys are being watched is held by its parker.
const WHILE_WATCHING: [Failpoint; 3] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventRaisesNoVersion,
    Failpoint::EventLeavesNoNote,
];

/// An event for one, between the check of one that parks and its watch, or before, or after.
#[test]
fn park_against_an_event_for_one() {
    fn model() {
        let setup = Setup::new();
        let (purgatory, flag) = (setup.purgatory.clone(), setup.flags[0].clone());
        let event = thread::spawn(move || {
            flag.store(true, Relaxed);
            purgatory.check_and_complete_one(&1);
        });
        setup.park(&[0], ONE_KEY, MS);
        event.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed]);
    }
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], model);
}

/// Takes a job, if there is one.
struct Consumer {
    jobs: Arc<AtomicJobs>,
    ended: std::sync::Arc<AtomicUsize>,
}

impl DelayedOperation for Consumer {
    fn try_complete(&mut self) -> bool {
        self.jobs.fetch_update(Relaxed, Relaxed, |jobs| jobs.checked_sub(1)).is_ok()
    }

    fn on_complete(self, _: Outcome) {
        self.ended.fetch_add(1, SeqCst);
    }
}

/// Two jobs, each raised for one, of two that wait: none waits on while a job lies there.
#[test]
fn two_events_for_one_against_each_other() {
    check(&[Failpoint::EventForOneLooksAtOne], || {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u8, Consumer> =
            Purgatory::builder("loom").timer(&timer).build().unwrap();
        let jobs = Arc::new(AtomicJobs::new(0));
        let ended = std::sync::Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let consumer = Consumer { jobs: jobs.clone(), ended: ended.clone() };
            purgatory.try_complete_else_watch(consumer, &[1], MS).unwrap();
        }
        let (other, puts) = (purgatory.clone(), jobs.clone());
        let put = thread::spawn(move || {
            puts.fetch_add(1, Relaxed);
            other.check_and_complete_one(&1);
        });
        jobs.fetch_add(1, Relaxed);
        purgatory.check_and_complete_one(&1);
        put.join().unwrap();
        assert_eq!((ended.load(SeqCst), jobs.load(Relaxed), purgatory.len()), (2, 0, 0));
    });
}

#[test]
fn park_against_event_on_the_first_of_two_keys() {
    check(&WHILE_WATCHING, || park_against_event(TWO_ROOMS, 1));
    check(&WHILE_WATCHING, || park_against_event(ONE_ROOM, 1));
}

#[test]
fn park_against_event_on_the_second_of_two_keys() {
    check(&WHILE_WATCHING, || park_against_event(TWO_ROOMS, 2));
    check(&WHILE_WATCHING, || park_against_event(ONE_ROOM, 3));
}

#[test]
fn park_against_event_on_one_of_five_keys() {
    check(&WHILE_WATCHING, || park_against_event(&[1, 2, 3, 4, 5], 1));
    check(&WHILE_WATCHING, || park_against_event(&[1, 2, 3, 4, 5], 4));
}

/// Two events, one on each room of an operation that is being parked.
#[test]
fn park_against_two_events() {
    check(&WHILE_WATCHING, || {
        let setup = Setup::new();
        let events = [setup.complete_elsewhere(0, 1), setup.complete_elsewhere(1, 2)];
        setup.park(&[0, 1], TWO_ROOMS, MS);
        events.into_iter().for_each(|event| event.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

fn park_against_expiry(keys: &'static [u8]) {
    let setup = Setup::new();
    let timer = setup.timer.clone();
    let expiry = thread::spawn(move || timer.advance(MS));
    setup.park(&[0], keys, MS);
    expiry.join().unwrap();
    setup.timer.advance(MS); // when it was parked after the other's step
    setup.assert_ended_once(&[Outcome::Expired]);
}

#[test]
fn park_against_expiry_under_one_key() {
    check(&[Failpoint::EndedStaysListed], || park_against_expiry(ONE_KEY));
}

#[test]
fn park_against_expiry_under_two_keys() {
    check(&[Failpoint::ExpiryLeavesNoNote], || park_against_expiry(TWO_ROOMS));
    check(&[Failpoint::ExpiryLeavesNoNote], || park_against_expiry(ONE_ROOM));
}

/// What waits for a key when that is cancelled is cancelled, and not left to expire.
fn park_against_cancel(keys: &'static [u8], cancelled: u8) {
    let setup = Setup::new();
    let purgatory = setup.purgatory.clone();
    let cancel = thread::spawn(move || {
        let waited = purgatory.waiters(&cancelled) > 0;
        purgatory.cancel_for_key(&cancelled, "loom");
        waited
    });
    setup.park(&[0], keys, MS);
    let waited = cancel.join().unwrap();
    setup.timer.advance(MS);
    let cancelled = Outcome::Cancelled(CancelReason::Requested("loom".into()));
    if waited {
        setup.assert_ended_once(&[cancelled]);
    } else {
        setup.assert_ended_once(&[cancelled, Outcome::Expired]);
    }
}

#[test]
fn park_against_cancel_under_one_key() {
    check(&[Failpoint::EndedStaysListed], || park_against_cancel(ONE_KEY, 1));
}

#[test]
fn park_against_cancel_under_two_keys() {
    for model in [
        || park_against_cancel(TWO_ROOMS, 1),
        || park_against_cancel(TWO_ROOMS, 2),
        || park_against_cancel(ONE_ROOM, 3),
    ] {
        check(&[Failpoint::ExpiryLeavesNoNote], model);
    }
}

/// The first key is cancelled while its operation is attempted for the second, in another room.
#[test]
fn cancel_in_one_room_against_event_in_another() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::EndedStaysListed], || {
        let setup = Setup::new();
        setup.park(&[0, 1], TWO_ROOMS, MS);
        let event = setup.complete_elsewhere(0, 2);
        setup.purgatory.cancel_for_key(&1, "loom");
        event.join().unwrap();
        let reason = CancelReason::Requested("loom".into());
        setup.assert_ended_once(&[Outcome::Cancelled(reason)]);
    });
}

/// A wheel turns in one room while an event in another finds the watch of what expires.
#[test]
fn expiry_in_one_room_against_event_in_another() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::ExpiryRemovesCheckedOut], || {
        let setup = Setup::new();
        setup.park(&[0, 1], TWO_ROOMS, MS);
        let event = setup.complete_elsewhere(0, 2);
        setup.timer.advance(MS);
        event.join().unwrap();
        setup.assert_ended_once(&[Outcome::Expired]);
    });
}

/// A place among those that may be parked is taken once, and given back once.
fn place_against_event(keys: &'static [u8]) {
    let setup = Setup::with(|builder| builder.max_parked(1));
    let event = setup.complete_elsewhere(0, 1);
    setup.park(&[0], keys, MS);
    event.join().unwrap();
    setup.assert_ended_once(&[Outcome::Completed]);
    let never =
        || Op { flags: vec![setup.flags[1].clone()], sets: None, endings: setup.endings.clone() };
    let park = || setup.purgatory.try_complete_else_watch(never(), &[1], MS);
    assert!(park().is_ok(), "the place is free");
    let refused = park().err().map(|refused| refused.reason);
    assert_eq!(refused, Some(RefusedReason::Full { limit: 1 }), "the place is taken");
}

#[test]
fn a_place_against_event() {
    check(&[Failpoint::EndingKeepsPermit, Failpoint::ParkKeepsNoPermit], || {
        place_against_event(ONE_KEY)
    });
    check(&[Failpoint::EndingKeepsPermit, Failpoint::ParkKeepsNoPermit], || {
        place_against_event(TWO_ROOMS)
    });
}

#[test]
fn event_against_event() {
    check(&[Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new();
        setup.park(&[0, 1], &[1, 2], MS);
        let events = [setup.complete_elsewhere(0, 1), setup.complete_elsewhere(1, 2)];
        events.into_iter().for_each(|event| event.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

#[test]
fn event_against_expiry() {
    check(&[Failpoint::ExpiryLeavesNoNote], || {
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
    check(&[Failpoint::ExpiryRemovesCheckedOut], || {
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
    check(&[Failpoint::ExpiryLeavesNoNote], || {
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
    check(&[Failpoint::ExpiryLeavesNoNote], || {
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
    let operation = Op { flags, sets: None, endings: setup.endings.clone() };
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
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], model);
}

#[test]
fn park_against_rise_in_the_check_form() {
    check(&[Failpoint::ParkSkipsVersionCheck], || {
        let setup = Setup::new();
        let rise = rise_elsewhere(&setup, 0, 1);
        park_watermarks(&setup, &[0], Watches::up_to(&[(1, 5)]).checked());
        rise.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

/// Both watermarks are met while they are being watched.
#[test]
fn park_against_two_rises() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new();
        let rises = [rise_elsewhere(&setup, 0, 1), rise_elsewhere(&setup, 1, 2)];
        park_watermarks(&setup, &[0, 1], Watches::up_to(&[(1, 5), (2, 5)]));
        rises.into_iter().for_each(|rise| rise.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

/// The watch of the first key is taken and its slot given back, while the second key's is claimed.
#[test]
fn park_against_rise_in_one_room() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new();
        let rise = rise_elsewhere(&setup, 0, 1);
        park_watermarks(&setup, &[0], Watches::up_to(&[(1, 5), (3, 5)]));
        rise.join().unwrap();
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

/// Two watermarks of one operation are met at once: one of the two takes the last.
#[test]
fn rise_against_rise() {
    check(&[Failpoint::MetWatchNotCounted], || {
        let setup = Setup::new();
        // A condition that the checks never see true: only the count can end it.
        let never = Arc::new(AtomicBool::new(false));
        let operation = Op { flags: vec![never], sets: None, endings: setup.endings.clone() };
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
    check(&[Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new();
        park_watermarks(&setup, &[0, 1], Watches::up_to(&[(1, 5), (2, 5)]).checked());
        let rises = [rise_elsewhere(&setup, 0, 1), rise_elsewhere(&setup, 1, 2)];
        rises.into_iter().for_each(|rise| rise.join().unwrap());
        setup.assert_ended_once(&[Outcome::Completed]);
    });
}

#[test]
fn rise_against_cancel_and_expiry() {
    check(&[Failpoint::ExpiryRemovesCheckedOut], || {
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
    check(&[Failpoint::ExpiryLeavesNoNote], || {
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
    check(&[Failpoint::PanickedPutBack], || {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u8, Panics> =
            Purgatory::builder("loom").timer(&timer).build().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let endings = std::sync::Arc::<Mutex<Vec<Outcome>>>::default();
        let operation =
            Panics(Op { flags: vec![flag.clone()], sets: None, endings: endings.clone() });
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

/// The value of a wait goes to the future, or to the hook when the future was dropped: never to
/// both, never to neither.
#[test]
fn future_drop_against_completion() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
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
fn park_against_shutdown(keys: &'static [u8]) {
    let setup = Setup::new();
    let purgatory = setup.purgatory.clone();
    let shutdown = thread::spawn(move || purgatory.shutdown());
    let flags = vec![setup.flags[0].clone()];
    let operation = Op { flags, sets: None, endings: setup.endings.clone() };
    let parked = setup.purgatory.try_complete_else_watch(operation, keys, MS);
    shutdown.join().unwrap();
    match parked {
        Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
        Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
    }
}

#[test]
fn park_against_shutdown_under_one_key() {
    check(&[Failpoint::ShutdownClosesNoRoom], || park_against_shutdown(ONE_KEY));
}

#[test]
fn park_against_shutdown_under_two_keys() {
    let faults = [Failpoint::ShutdownClosesNoRoom, Failpoint::ExpiryLeavesNoNote];
    for model in [
        || park_against_shutdown(TWO_ROOMS),
        || park_against_shutdown(&[2, 1]), // the other way round: the first room is closed last
        || park_against_shutdown(ONE_ROOM),
    ] {
        check(&faults, model);
    }
}

/// Keeps its jobs until the model runs them.
#[derive(Clone, Debug, Default)]
struct Later(std::sync::Arc<Mutex<Vec<Job>>>);

impl Executor for Later {
    fn execute(&self, job: Job) {
        self.0.lock().unwrap().push(job);
    }
}

impl Later {
    fn run(&self) {
        loop {
            let Some(job) = self.0.lock().unwrap().pop() else { return };
            job.run();
        }
    }
}

/// An operation that one thread checks while another raises two events, which is once too often: it
/// is put off, to an executor that is blocked until all else is over.
fn put_off_against(other: fn(&Setup), flag_set: bool, allowed: &[Outcome]) {
    let later = Later::default();
    let executor = later.clone();
    let setup = Setup::with(|builder| builder.executor(executor));
    setup.park(&[0], ONE_KEY, MS);
    let purgatory = setup.purgatory.clone();
    let checks = thread::spawn(move || purgatory.check_and_complete(&1));
    let (purgatory, flag) = (setup.purgatory.clone(), setup.flags[0].clone());
    let overtakes = thread::spawn(move || {
        purgatory.check_and_complete(&1);
        flag.store(flag_set, Relaxed);
        purgatory.check_and_complete(&1);
    });
    other(&setup);
    checks.join().unwrap();
    overtakes.join().unwrap();
    later.run();
    setup.assert_ended_once(allowed);
}

#[test]
fn an_operation_that_is_put_off_hears_of_its_event() {
    check(&[Failpoint::PutOffNotLookedAt], || {
        put_off_against(|_| {}, true, &[Outcome::Completed]);
    });
}

#[test]
fn an_operation_that_is_put_off_can_be_cancelled() {
    check(&[Failpoint::PutOffForgetsEnd], || {
        let cancelled = Outcome::Cancelled(CancelReason::Requested("loom".into()));
        let cancel = |setup: &Setup| _ = setup.purgatory.cancel_for_key(&1, "loom");
        put_off_against(cancel, false, &[cancelled]);
    });
}

#[test]
fn an_operation_that_is_put_off_can_expire() {
    check(&[Failpoint::PutOffForgetsEnd], || {
        put_off_against(|setup| setup.timer.advance(MS), false, &[Outcome::Expired]);
    });
}

/// A rise ends one operation, whose callback makes another's condition true; that one the rise
/// comes to next. The other's time is up before that, after that, or in between: never is an event
/// missing.
#[test]
fn a_rise_on_its_way_against_a_last_check() {
    check(&[Failpoint::MissIgnoresNotes], || {
        let setup = Setup::with(Builder::check_at_expiry);
        let park = |flag: usize, sets, watermarks: &[(u8, u64)], timeout: Timeout| {
            let flags = vec![setup.flags[flag].clone()];
            let operation = Op { flags, sets, endings: setup.endings.clone() };
            let watches = Watches::up_to(watermarks);
            setup.purgatory.try_complete_else_watch(operation, watches, timeout).unwrap();
        };
        park(0, Some(setup.flags[1].clone()), &[(1, 1)], Timeout::Never);
        park(1, None, &[(1, 1), (3, 5)], MS.into());
        let purgatory = setup.purgatory.clone();
        let rise = thread::spawn(move || purgatory.complete_up_to(&1, 1));
        setup.timer.advance(MS);
        rise.join().unwrap();
        assert_eq!(setup.endings.lock().unwrap().len(), 2);
        assert_eq!(setup.purgatory.len(), 0);
        assert_eq!(setup.purgatory.stats().missed_events, 0);
    });
}

/// An event whose walk comes to an operation in its second step; the callback of the first step
/// makes that one's condition true.
#[test]
fn an_event_on_its_way_against_a_last_check() {
    check(&[Failpoint::MissIgnoresVersions, Failpoint::MissIgnoresEventsUnderWay], || {
        let setup = Setup::with(Builder::check_at_expiry);
        let park = |flag: &Arc<AtomicBool>, sets, timeout: Timeout| {
            let operation = Op { flags: vec![flag.clone()], sets, endings: setup.endings.clone() };
            setup.purgatory.try_complete_else_watch(operation, &[1], timeout).unwrap();
        };
        park(&setup.flags[0], Some(setup.flags[1].clone()), Timeout::Never);
        park(&Arc::new(AtomicBool::new(false)), None, Timeout::Never);
        park(&setup.flags[1], None, MS.into());
        let event = setup.complete_elsewhere(0, 1);
        setup.timer.advance(MS);
        event.join().unwrap();
        assert_eq!(setup.endings.lock().unwrap().len(), 2);
        assert_eq!(setup.purgatory.stats().missed_events, 0);
    });
}

/// A monitor's change, which is there before its event.
#[test]
fn a_change_against_a_last_check() {
    check(&[Failpoint::MissIgnoresAnnounced], || {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("loom").timer(&timer).check_at_expiry();
        let purgatory = purgatory.build().unwrap();
        let monitor = Monitor::with(purgatory.clone(), false);
        let endings = std::sync::Arc::new(AtomicUsize::new(0));
        let told = endings.clone();
        let then = move |_| _ = told.fetch_add(1, SeqCst);
        monitor.park(&[1], MS, |done: &mut bool| done.then_some(()), then).unwrap();
        let changing = monitor.clone();
        let change = thread::spawn(move || changing.update_key(&1, |done| *done = true));
        timer.advance(MS);
        change.join().unwrap();
        assert_eq!((endings.load(SeqCst), purgatory.len()), (1, 0));
        assert_eq!(purgatory.stats().missed_events, 0);
    });
}
