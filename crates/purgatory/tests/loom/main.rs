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

use Act::{Cancel, Event, EventForOne, Park, ParkChecked, ParkUpTo, Raise, Rise, Time};
use Outcome::{Completed, Expired};

/// The bound of the search; beyond it these models show nothing new.
const PREEMPTIONS: usize = 5;
const MS: Duration = Duration::from_millis(1);

/// Waits until all its flags are set.
struct Op {
    flags: Vec<Arc<AtomicBool>>,
    /// Its check panics instead.
    panics: bool,
    /// A flag that its callback sets.
    sets: Option<Arc<AtomicBool>>,
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        let set = self.flags.iter().all(|flag| flag.load(Relaxed));
        assert!(!(set && self.panics), "a panic in a check");
        set
    }

    fn on_complete(self, outcome: Outcome) {
        self.endings.lock().unwrap().push(outcome);
        self.sets.into_iter().for_each(|flag| flag.store(true, Relaxed));
    }
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Act {
    /// Parks an operation that waits for these flags, under these keys.
    Park(&'static [usize], &'static [u8]),
    /// The same, with watermarks that are counted, or with the check form of them.
    ParkUpTo(&'static [usize], &'static [(u8, u64)]),
    ParkChecked(&'static [usize], &'static [(u8, u64)]),
    /// Sets a flag, then raises a key's event, or that for one, or lets its watermark rise to 5.
    Event(usize, u8),
    EventForOne(usize, u8),
    Rise(usize, u8),
    /// The event alone.
    Raise(u8),
    Cancel(u8),
    /// A millisecond passes.
    Time,
}

/// What the threads of a model share, without that sharing being part of the model.
struct Setup {
    timer: ManualTimer,
    purgatory: Purgatory<u8, Op>,
    flags: [Arc<AtomicBool>; 2],
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

type Shared = std::sync::Arc<Setup>;

impl Setup {
    fn new() -> Shared {
        Setup::with(|builder| builder)
    }

    fn with(build: impl FnOnce(Builder<u8, Op>) -> Builder<u8, Op>) -> Shared {
        let timer = ManualTimer::new();
        let purgatory = build(Purgatory::builder("loom").timer(&timer)).build().unwrap();
        let flags = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        Setup { timer, purgatory, flags, endings: Default::default() }.into()
    }

    fn op(&self, flags: &[usize]) -> Op {
        let flags = flags.iter().map(|&flag| self.flags[flag].clone()).collect();
        Op { flags, panics: false, sets: None, endings: self.endings.clone() }
    }

    fn park<'a>(
        &self,
        operation: Op,
        watches: impl Into<Watches<'a, u8>>,
        timeout: impl Into<Timeout>,
    ) {
        self.purgatory.try_complete_else_watch(operation, watches, timeout).unwrap();
    }

    fn act(&self, act: Act) {
        let set = |flag: usize| self.flags[flag].store(true, Relaxed);
        match act {
            Act::Park(flags, keys) => self.park(self.op(flags), keys, MS),
            Act::ParkUpTo(flags, levels) => self.park(self.op(flags), Watches::up_to(levels), MS),
            Act::ParkChecked(flags, levels) => {
                self.park(self.op(flags), Watches::up_to(levels).checked(), MS);
            }
            Act::Event(flag, key) => {
                set(flag);
                self.purgatory.check_and_complete(&key);
            }
            Act::EventForOne(flag, key) => {
                set(flag);
                self.purgatory.check_and_complete_one(&key);
            }
            Act::Rise(flag, key) => {
                set(flag);
                self.purgatory.complete_up_to(&key, 5);
            }
            Act::Raise(key) => _ = self.purgatory.check_and_complete(&key),
            Act::Cancel(key) => _ = self.purgatory.cancel_for_key(&key, "loom"),
            Act::Time => self.timer.advance(MS),
        }
    }

    /// Another thread that does this.
    fn elsewhere<T: 'static>(
        self: &Shared,
        act: impl FnOnce(&Setup) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let setup = self.clone();
        thread::spawn(move || act(&setup))
    }

    /// Acts of this thread alone.
    fn alone(self: Shared, acts: &[Act]) -> Shared {
        acts.iter().for_each(|&act| self.act(act));
        self
    }

    /// Acts of other threads, one each, while this thread does its own.
    fn race<const N: usize>(self: Shared, others: [Act; N], own: &[Act]) -> Shared {
        let others = others.map(|act| self.elsewhere(move |setup| setup.act(act)));
        let setup = self.alone(own);
        others.into_iter().for_each(|other| other.join().unwrap());
        setup
    }

    /// What must hold at the end: one of these outcomes, once, and nothing left.
    #[track_caller]
    fn assert_ended_once(&self, allowed: &[Outcome]) {
        let endings = self.endings.lock().unwrap();
        assert_eq!(endings.len(), 1, "ended {} times: {endings:?}", endings.len());
        assert!(allowed.contains(&endings[0]), "ended as {:?}", endings[0]);
        assert_nothing_left(&self.purgatory);
    }
}

#[track_caller]
fn assert_nothing_left<O: DelayedOperation + Send>(purgatory: &Purgatory<u8, O>) {
    let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
    assert_eq!(left, (0, 0, 0), "left behind");
}

fn cancelled() -> Outcome {
    Outcome::Cancelled(CancelReason::Requested("loom".into()))
}

/// Runs `model` in every interleaving; then with each of `faults` planted, which one of them must
/// show.
fn check(faults: &[Failpoint], model: impl Fn() + Copy + Send + Sync + 'static) {
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
const FIVE: &[u8] = &[1, 2, 3, 4, 5];

/// Both flags, each set by an event or rise of its own.
const BOTH: &[usize] = &[0, 1];

/// An operation, as it is parked, against the event of one of its keys.
fn park_against_event(faults: &[Failpoint], keys: &'static [u8], on: u8) {
    check(faults, move || {
        let setup = Setup::new().race([Event(0, on)], &[Park(&[0], keys)]);
        setup.assert_ended_once(&[Completed]);
    });
}

#[test]
fn park_against_event_on_one_key() {
    let faults = [Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion];
    park_against_event(&faults, ONE_KEY, 1);
}

/// What an event finds while further keys are being watched is held by its parker.
const WHILE_WATCHING: [Failpoint; 3] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventRaisesNoVersion,
    Failpoint::EventLeavesNoNote,
];

#[test]
fn park_against_event_on_the_first_of_two_keys() {
    park_against_event(&WHILE_WATCHING, TWO_ROOMS, 1);
    park_against_event(&WHILE_WATCHING, ONE_ROOM, 1);
}

#[test]
fn park_against_event_on_the_second_of_two_keys() {
    park_against_event(&WHILE_WATCHING, TWO_ROOMS, 2);
    park_against_event(&WHILE_WATCHING, ONE_ROOM, 3);
}

#[test]
fn park_against_event_on_one_of_five_keys() {
    park_against_event(&WHILE_WATCHING, FIVE, 1);
    park_against_event(&WHILE_WATCHING, FIVE, 4);
}

/// An event for one, between the check of one that parks and its watch, or before, or after.
#[test]
fn park_against_an_event_for_one() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], || {
        let setup = Setup::new().race([EventForOne(0, 1)], &[Park(&[0], ONE_KEY)]);
        setup.assert_ended_once(&[Completed]);
    });
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

/// Two events, one on each room of an operation that is being parked.
#[test]
fn park_against_two_events() {
    check(&WHILE_WATCHING, || {
        let setup = Setup::new().race([Event(0, 1), Event(1, 2)], &[Park(BOTH, TWO_ROOMS)]);
        setup.assert_ended_once(&[Completed]);
    });
}

fn park_against_expiry(fault: Failpoint, keys: &'static [u8]) {
    check(&[fault], move || {
        let setup = Setup::new().race([Time], &[Park(&[0], keys)]);
        // Once more, when it was parked after the other's step.
        setup.alone(&[Time]).assert_ended_once(&[Expired]);
    });
}

#[test]
fn park_against_expiry_under_one_key() {
    park_against_expiry(Failpoint::EndedStaysListed, ONE_KEY);
}

#[test]
fn park_against_expiry_under_two_keys() {
    park_against_expiry(Failpoint::ExpiryLeavesNoNote, TWO_ROOMS);
    park_against_expiry(Failpoint::ExpiryLeavesNoNote, ONE_ROOM);
}

/// What waits for a key when that is cancelled is cancelled, and not left to expire.
fn park_against_cancel(fault: Failpoint, keys: &'static [u8], key: u8) {
    check(&[fault], move || {
        let setup = Setup::new();
        let cancel = setup.elsewhere(move |setup| {
            let waited = setup.purgatory.waiters(&key) > 0;
            setup.act(Cancel(key));
            waited
        });
        setup.act(Park(&[0], keys));
        let waited = cancel.join().unwrap();
        let allowed = [cancelled(), Expired];
        setup.alone(&[Time]).assert_ended_once(if waited { &allowed[..1] } else { &allowed });
    });
}

#[test]
fn park_against_cancel_under_one_key() {
    park_against_cancel(Failpoint::EndedStaysListed, ONE_KEY, 1);
}

#[test]
fn park_against_cancel_under_two_keys() {
    for (keys, key) in [(TWO_ROOMS, 1), (TWO_ROOMS, 2), (ONE_ROOM, 3)] {
        park_against_cancel(Failpoint::ExpiryLeavesNoNote, keys, key);
    }
}

/// One parked under these keys, while an event, which is one of two, has it under check: what ends
/// it then ends it as this.
fn event_against(
    faults: &[Failpoint],
    keys: &'static [u8],
    on: u8,
    end: Act,
    ended: fn() -> Outcome,
) {
    check(faults, move || {
        let setup = Setup::new().alone(&[Park(BOTH, keys)]).race([Event(0, on)], &[end]);
        setup.assert_ended_once(&[ended()]);
    });
}

/// The first key is cancelled while its operation is attempted for the second, in another room.
#[test]
fn cancel_in_one_room_against_event_in_another() {
    let faults = [Failpoint::ExpiryLeavesNoNote, Failpoint::EndedStaysListed];
    event_against(&faults, TWO_ROOMS, 2, Cancel(1), cancelled);
}

/// A wheel turns in one room while an event in another finds the watch of what expires.
#[test]
fn expiry_in_one_room_against_event_in_another() {
    let faults = [Failpoint::ExpiryLeavesNoNote, Failpoint::ExpiryRemovesCheckedOut];
    event_against(&faults, TWO_ROOMS, 2, Time, || Expired);
}

#[test]
fn event_against_expiry() {
    event_against(&[Failpoint::ExpiryLeavesNoNote], ONE_KEY, 1, Time, || Expired);
}

#[test]
fn cancel_against_event() {
    event_against(&[Failpoint::ExpiryLeavesNoNote], ONE_KEY, 1, Cancel(1), cancelled);
}

/// A place among those that may be parked is taken once, and given back once.
#[test]
fn a_place_against_event() {
    for keys in [ONE_KEY, TWO_ROOMS] {
        check(&[Failpoint::EndingKeepsPermit, Failpoint::ParkKeepsNoPermit], move || {
            let setup = Setup::with(|builder| builder.max_parked(1));
            let setup = setup.race([Event(0, 1)], &[Park(&[0], keys)]);
            setup.assert_ended_once(&[Completed]);
            let park = || setup.purgatory.try_complete_else_watch(setup.op(&[1]), &[1], MS);
            assert!(park().is_ok(), "the place is free");
            let refused = park().err().map(|refused| refused.reason);
            assert_eq!(refused, Some(RefusedReason::Full { limit: 1 }), "the place is taken");
        });
    }
}

#[test]
fn event_against_event() {
    check(&[Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new().alone(&[Park(BOTH, TWO_ROOMS)]);
        setup.race([Event(0, 1), Event(1, 2)], &[]).assert_ended_once(&[Completed]);
    });
}

#[test]
fn completing_event_against_expiry() {
    check(&[Failpoint::ExpiryRemovesCheckedOut], || {
        let setup = Setup::new().alone(&[Park(&[0], ONE_KEY)]);
        setup.race([Event(0, 1)], &[Time]).assert_ended_once(&[Completed, Expired]);
    });
}

/// Three at once: one parks, one completes, and time runs out.
#[test]
fn park_against_event_against_expiry() {
    check(&[Failpoint::ExpiryLeavesNoNote], || {
        let setup = Setup::new().race([Event(0, 1), Time], &[Park(BOTH, ONE_KEY)]);
        // Once more, when it was parked after the other's step.
        setup.alone(&[Time]).assert_ended_once(&[Expired]);
    });
}

#[test]
fn park_against_rise() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], || {
        let setup = Setup::new().race([Rise(0, 1)], &[ParkUpTo(&[0], &[(1, 5)])]);
        setup.assert_ended_once(&[Completed]);
    });
}

#[test]
fn park_against_rise_in_the_check_form() {
    check(&[Failpoint::ParkSkipsVersionCheck], || {
        let setup = Setup::new().race([Rise(0, 1)], &[ParkChecked(&[0], &[(1, 5)])]);
        setup.assert_ended_once(&[Completed]);
    });
}

/// Both watermarks are met while they are being watched.
#[test]
fn park_against_two_rises() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventLeavesNoNote], || {
        let parks = ParkUpTo(BOTH, &[(1, 5), (2, 5)]);
        let setup = Setup::new().race([Rise(0, 1), Rise(1, 2)], &[parks]);
        setup.assert_ended_once(&[Completed]);
    });
}

/// The watch of the first key is taken and its slot given back, while the second key's is claimed.
#[test]
fn park_against_rise_in_one_room() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new().race([Rise(0, 1)], &[ParkUpTo(&[0], &[(1, 5), (3, 5)])]);
        setup.assert_ended_once(&[Completed]);
    });
}

/// Two watermarks of one operation are met at once: one of the two takes the last.
#[test]
fn rise_against_rise() {
    check(&[Failpoint::MetWatchNotCounted], || {
        let setup = Setup::new();
        // A condition that the checks never see true: only the count can end it.
        let never = Arc::new(AtomicBool::new(false));
        let operation = Op { flags: vec![never], ..setup.op(&[]) };
        setup.park(operation, Watches::up_to(&[(1, 5), (2, 5)]), MS);
        setup.race([Rise(0, 1), Rise(1, 2)], &[]).assert_ended_once(&[Completed]);
    });
}

/// The same in the check form, where both may find the other's check under way.
#[test]
fn rise_against_rise_in_the_check_form() {
    check(&[Failpoint::EventLeavesNoNote], || {
        let setup = Setup::new().alone(&[ParkChecked(BOTH, &[(1, 5), (2, 5)])]);
        setup.race([Rise(0, 1), Rise(1, 2)], &[]).assert_ended_once(&[Completed]);
    });
}

#[test]
fn rise_against_cancel_and_expiry() {
    check(&[Failpoint::ExpiryRemovesCheckedOut], || {
        let setup = Setup::new();
        setup.park(setup.op(&[0]), Watches::up_to(&[(1, 5)]).with_keys(&[2]), MS);
        let setup = setup.race([Rise(0, 1), Event(1, 2)], &[Time]);
        setup.assert_ended_once(&[Completed, Expired]);
    });
}

#[test]
fn rise_against_cancel_for_key() {
    check(&[Failpoint::ExpiryLeavesNoNote], || {
        let setup = Setup::new().alone(&[ParkChecked(BOTH, &[(1, 5)])]);
        setup.race([Rise(0, 1)], &[Cancel(1)]).assert_ended_once(&[cancelled()]);
    });
}

/// A check that panics while another event finds it under way.
#[test]
fn panicking_check_against_event() {
    check(&[Failpoint::PanickedPutBack], || {
        let setup = Setup::new();
        setup.park(Op { panics: true, ..setup.op(&[0]) }, ONE_KEY, MS);
        let setup = setup.race([Raise(1)], &[Event(0, 1)]);
        setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Panicked)]);
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
        assert_nothing_left(&purgatory);
    });
}

/// Either the park is refused, or what was parked is ended.
fn park_against_shutdown(faults: &[Failpoint], keys: &'static [u8]) {
    check(faults, move || {
        let setup = Setup::new();
        let shutdown = setup.elsewhere(|setup| setup.purgatory.shutdown(Duration::ZERO));
        let parked = setup.purgatory.try_complete_else_watch(setup.op(&[0]), keys, MS);
        shutdown.join().unwrap();
        match parked {
            Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
            Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
        }
    });
}

#[test]
fn park_against_shutdown_under_one_key() {
    park_against_shutdown(&[Failpoint::ShutdownClosesNoRoom], ONE_KEY);
}

#[test]
fn park_against_shutdown_under_two_keys() {
    // And the other way round: the first room is closed last.
    for keys in [TWO_ROOMS, &[2, 1], ONE_ROOM] {
        let faults = [Failpoint::ShutdownClosesNoRoom, Failpoint::ExpiryLeavesNoNote];
        park_against_shutdown(&faults, keys);
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
fn put_off_against(fault: Failpoint, second: Act, own: &'static [Act], ended: fn() -> Outcome) {
    check(&[fault], move || {
        let later = Later::default();
        let setup = Setup::with(|builder| builder.executor(later.clone()));
        setup.act(Park(&[0], ONE_KEY));
        let checks = setup.elsewhere(|setup| setup.act(Raise(1)));
        let overtakes = setup.elsewhere(move |setup| [Raise(1), second].map(|act| setup.act(act)));
        own.iter().for_each(|&act| setup.act(act));
        checks.join().unwrap();
        overtakes.join().unwrap();
        later.run();
        setup.assert_ended_once(&[ended()]);
    });
}

#[test]
fn an_operation_that_is_put_off_hears_of_its_event() {
    put_off_against(Failpoint::PutOffNotLookedAt, Event(0, 1), &[], || Completed);
}

#[test]
fn an_operation_that_is_put_off_can_be_cancelled() {
    put_off_against(Failpoint::PutOffForgetsEnd, Raise(1), &[Cancel(1)], cancelled);
}

#[test]
fn an_operation_that_is_put_off_can_expire() {
    put_off_against(Failpoint::PutOffForgetsEnd, Raise(1), &[Time], || Expired);
}

/// Two operations: what ends the first has come to the last check of the second. Both end, and no
/// event is missing.
#[track_caller]
fn assert_none_missed(setup: &Setup) {
    assert_eq!(setup.endings.lock().unwrap().len(), 2);
    assert_eq!(setup.purgatory.stats().missed_events, 0);
}

/// A rise ends one operation, whose callback makes another's condition true; that one the rise
/// comes to next. The other's time is up before that, after that, or in between: never is an event
/// missing.
#[test]
fn a_rise_on_its_way_against_a_last_check() {
    check(&[Failpoint::MissIgnoresNotes], || {
        let setup = Setup::with(Builder::check_at_expiry);
        let first = Op { sets: Some(setup.flags[1].clone()), ..setup.op(&[0]) };
        setup.park(first, Watches::up_to(&[(1, 1)]), Timeout::Never);
        setup.park(setup.op(&[1]), Watches::up_to(&[(1, 1), (3, 5)]), MS);
        let rise = setup.elsewhere(|setup| setup.purgatory.complete_up_to(&1, 1));
        setup.act(Time);
        rise.join().unwrap();
        assert_none_missed(&setup);
        assert_eq!(setup.purgatory.len(), 0);
    });
}

/// An event whose walk comes to an operation in its second step; the callback of the first step
/// makes that one's condition true.
#[test]
fn an_event_on_its_way_against_a_last_check() {
    check(&[Failpoint::MissIgnoresVersions, Failpoint::MissIgnoresEventsUnderWay], || {
        let setup = Setup::with(Builder::check_at_expiry);
        let first = Op { sets: Some(setup.flags[1].clone()), ..setup.op(&[0]) };
        setup.park(first, ONE_KEY, Timeout::Never);
        let never = Op { flags: vec![Arc::new(AtomicBool::new(false))], ..setup.op(&[]) };
        setup.park(never, ONE_KEY, Timeout::Never);
        setup.park(setup.op(&[1]), ONE_KEY, MS);
        assert_none_missed(&setup.race([Event(0, 1)], &[Time]));
    });
}

/// A monitor's change, which is there before its event.
#[test]
fn a_change_against_a_last_check() {
    check(&[Failpoint::MissIgnoresAnnounced], || {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("loom").timer(&timer).check_at_expiry(|_| ());
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
