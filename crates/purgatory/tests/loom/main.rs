//! Tries every interleaving of small models on the shipped code: `just loom`, or `RUSTFLAGS="--cfg
//! loom" cargo test --release -p purgatory --features __loom --test loom`.
//!
//! Each model runs on the code as it is, where no interleaving may fail. Then it runs with each of
//! its faults planted in the code under test, and some interleaving has to fail. Conditions are
//! read and written `Relaxed`: the purgatory's guarantees need no ordering from them.

#![cfg(loom)]

mod answers;
mod arguments;
mod failpoints;
mod monitor;
mod permits;
mod reach;
mod replica_sets;
mod replies;
mod shutdown;
mod waits;
mod watermarks;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
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
    BoxedOperation, Builder, CancelReason, DelayedOperation, IntoWatches, Outcome, Purgatory,
    Reason, Timeout, WaitError, sync::make_late, when,
};
use timer_core::ManualTimer;

use self::failpoints::{Failpoint, plant};
use Act::{Cancel, Event, EventForOne, Park, Set, Signal, Time};
use Outcome::{Completed, Expired};

/// The bound of the search. A higher one shows nothing new in these models.
const PREEMPTIONS: usize = 5;
const MS: Duration = Duration::from_millis(1);

/// An operation that waits until all its flags are set.
struct Op {
    flags: Vec<Arc<AtomicBool>>,
    /// Whether the check panics instead, once the flags are set.
    panics: bool,
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
    }
}

/// One act of a thread.
#[derive(Clone, Copy)]
enum Act {
    /// Parks an operation that waits for these flags, under these keys.
    Park(&'static [usize], &'static [u8]),
    /// Sets a flag, then signals a key, or signals it for one waiter.
    Event(usize, u8),
    EventForOne(usize, u8),
    /// Sets a flag without an event.
    Set(usize),
    /// Signals a key without setting a flag.
    Signal(u8),
    Cancel(u8),
    /// Lets a millisecond pass.
    Time,
}

/// The state that a model's threads share. They share it by std's `Arc`, which is no part of the
/// model.
struct Setup {
    timer: ManualTimer,
    purgatory: Purgatory<u8, Op>,
    flags: [Arc<AtomicBool>; 2],
    endings: std::sync::Arc<Mutex<Vec<Outcome>>>,
}

type Shared = std::sync::Arc<Setup>;

/// Creates a purgatory on a manual timer.
fn by_hand<O: DelayedOperation + Send>() -> (ManualTimer, Purgatory<u8, O>) {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::on(&timer, "loom").unwrap();
    (timer, purgatory)
}

impl Setup {
    fn new() -> Shared {
        Setup::with(|builder| builder)
    }

    fn with(
        build: impl FnOnce(Builder<Purgatory<u8, Op>>) -> Builder<Purgatory<u8, Op>>,
    ) -> Shared {
        let timer = ManualTimer::new();
        let purgatory = build(Purgatory::builder("loom").timer(&timer))
            .build()
            .unwrap();
        let flags = [
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        ];
        Setup {
            timer,
            purgatory,
            flags,
            endings: Default::default(),
        }
        .into()
    }

    fn op(&self, flags: &[usize]) -> Op {
        let flags = flags.iter().map(|&flag| self.flags[flag].clone()).collect();
        Op {
            flags,
            panics: false,
            endings: self.endings.clone(),
        }
    }

    fn park<'a>(
        &self,
        operation: Op,
        watches: impl IntoWatches<'a, u8>,
        timeout: impl Into<Timeout>,
    ) {
        self.purgatory
            .try_complete_else_watch(operation, watches, timeout)
            .unwrap();
    }

    fn act(&self, act: Act) {
        let set = |flag: usize| self.flags[flag].store(true, Relaxed);
        match act {
            Act::Park(flags, keys) => self.park(self.op(flags), keys, MS),
            Act::Event(flag, key) => {
                set(flag);
                self.purgatory.check_and_complete(&key);
            }
            Act::EventForOne(flag, key) => {
                set(flag);
                self.purgatory.check_and_complete_one(&key);
            }
            Act::Set(flag) => set(flag),
            Act::Signal(key) => _ = self.purgatory.check_and_complete(&key),
            Act::Cancel(key) => _ = self.purgatory.cancel_for_key(&key, "loom"),
            Act::Time => self.timer.advance(MS),
        }
    }

    /// Acts on another thread.
    fn elsewhere<T: 'static>(
        self: &Shared,
        act: impl FnOnce(&Setup) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        beside(self, |setup| act(setup))
    }

    /// Acts on this thread alone.
    fn alone(self: Shared, acts: &[Act]) -> Shared {
        for &act in acts {
            self.act(act);
        }
        self
    }

    /// Acts on other threads, one act each, while this thread does its own acts.
    fn race<const N: usize>(self: Shared, others: [Act; N], own: &[Act]) -> Shared {
        let others = others.map(|act| self.elsewhere(move |setup| setup.act(act)));
        let setup = self.alone(own);
        for other in others {
            other.join().unwrap();
        }
        setup
    }

    /// Checks that one operation has ended, as one of these outcomes, and that nothing is left.
    #[track_caller]
    fn assert_ended_once(&self, allowed: &[Outcome]) {
        let endings = self.endings.lock().unwrap();
        assert_eq!(
            endings.len(),
            1,
            "ended {} times: {endings:?}",
            endings.len()
        );
        assert!(allowed.contains(&endings[0]), "ended as {:?}", endings[0]);
        assert_nothing_left(&self.purgatory);
    }
}

/// Acts on another thread, through a handle of its own.
fn beside<H: Clone + 'static, T: 'static>(
    handle: &H,
    act: impl FnOnce(&H) -> T + 'static,
) -> thread::JoinHandle<T> {
    let own = handle.clone();
    thread::spawn(move || act(&own))
}

#[track_caller]
fn assert_nothing_left<O: DelayedOperation + Send>(purgatory: &Purgatory<u8, O>) {
    let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
    assert_eq!(left, (0, 0, 0), "left behind");
}

/// Polls a future once; `None` while it is pending.
fn ending<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
}

const CANCELLED: Outcome = Outcome::Cancelled(CancelReason::Requested(Reason::text("loom")));
static CANCELLED_ONLY: [Outcome; 1] = [CANCELLED];

/// Runs `model` in every interleaving; then with each of `faults` planted, which some interleaving
/// has to show.
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
    tell(format!(
        "{interleavings} interleavings at {PREEMPTIONS} preemptions"
    ));
    for &fault in faults {
        let (faulty, tried) = explore(Some(fault));
        assert!(
            faulty.is_err(),
            "{fault:?} was not noticed in {tried} interleavings"
        );
        tell(format!("{fault:?} noticed after {tried}"));
    }
}

/// Prints a line with the name of the running test, since other tests run beside it.
fn tell(what: String) {
    let test = std::thread::current();
    println!("{}: {what}", test.name().unwrap_or_default());
}

/// Runs `first` alone, then one act on each of the other threads beside this thread's own acts. The
/// parked operation has to end once, as one of these outcomes, and nothing may be left.
fn race<const N: usize>(
    faults: &[Failpoint],
    first: &'static [Act],
    others: [Act; N],
    own: &'static [Act],
    allowed: &'static [Outcome],
) {
    check(faults, move || {
        Setup::new()
            .alone(first)
            .race(others, own)
            .assert_ended_once(allowed);
    });
}

/// Neighbouring keys, such as 1 and 2, are in different shards. Keys 1 and 3 share a shard and a
/// version.
const ONE_KEY: &[u8] = &[1];
const TWO_SHARDS: &[u8] = &[1, 2];
const ONE_SHARD: &[u8] = &[1, 3];
const FIVE: &[u8] = &[1, 2, 3, 4, 5];

/// The operation needs both flags; each is set before an event of its own.
const BOTH: &[usize] = &[0, 1];

/// The faults by which a park misses an event between its check and its watch.
const MISSED: [Failpoint; 2] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventLeavesVersion,
];

/// The same, and the fault of an event that finds the operation while its parker still watches
/// further keys.
const WHILE_WATCHING: [Failpoint; 3] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventLeavesVersion,
    Failpoint::EventLeavesNoRequest,
];

/// An operation is parked while an event of one of its keys comes.
#[test]
fn park_against_event_of_each_key() {
    let one_key: &[Failpoint] = &MISSED;
    for (faults, keys, on) in [
        (one_key, ONE_KEY, 1),
        (&WHILE_WATCHING, TWO_SHARDS, 1),
        (&WHILE_WATCHING, ONE_SHARD, 1),
        (&WHILE_WATCHING, TWO_SHARDS, 2),
        (&WHILE_WATCHING, ONE_SHARD, 3),
        (&WHILE_WATCHING, FIVE, 1),
        (&WHILE_WATCHING, FIVE, 4),
    ] {
        check(faults, move || {
            Setup::new()
                .race([Event(0, on)], &[Park(&[0], keys)])
                .assert_ended_once(&[Completed]);
        });
    }
}

/// A park is not missed by an event for one, whether that comes before, during or after it.
#[test]
fn park_against_an_event_for_one() {
    race(
        &MISSED,
        &[],
        [EventForOne(0, 1)],
        &[Park(&[0], ONE_KEY)],
        &[Completed],
    );
}

/// Two jobs are each signalled to one of two waiters: no waiter goes on waiting while there is a
/// job.
#[test]
fn two_events_for_one_against_each_other() {
    check(&[Failpoint::EndedStaysListed], || {
        let (_timer, purgatory) = by_hand::<BoxedOperation>();
        let jobs = Arc::new(AtomicJobs::new(0));
        let ended = std::sync::Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let there = jobs.clone();
            let counted = ended.clone();
            let take = move || {
                there
                    .fetch_update(Relaxed, Relaxed, |jobs| jobs.checked_sub(1))
                    .is_ok()
            };
            let consumer = when(take, move |_| _ = counted.fetch_add(1, SeqCst));
            purgatory
                .try_complete_else_watch(consumer, &[1], MS)
                .unwrap();
        }
        let puts = jobs.clone();
        let put = beside(&purgatory, move |other| {
            puts.fetch_add(1, Relaxed);
            other.check_and_complete_one(&1);
        });
        jobs.fetch_add(1, Relaxed);
        purgatory.check_and_complete_one(&1);
        put.join().unwrap();
        assert_eq!(ended.load(SeqCst), 2);
        assert_eq!(jobs.load(Relaxed), 0);
        assert_eq!(purgatory.len(), 0);
    });
}

/// An operation is parked while two events come, one in each of its shards.
#[test]
fn park_against_two_events() {
    let others = [Event(0, 1), Event(1, 2)];
    race(
        &WHILE_WATCHING,
        &[],
        others,
        &[Park(BOTH, TWO_SHARDS)],
        &[Completed],
    );
}

#[test]
fn park_against_expiry() {
    for (fault, keys) in [
        (Failpoint::EndedStaysListed, ONE_KEY),
        (Failpoint::ExpiryLeavesNoRequest, TWO_SHARDS),
        (Failpoint::ExpiryLeavesNoRequest, ONE_SHARD),
    ] {
        check(&[fault], move || {
            let setup = Setup::new().race([Time], &[Park(&[0], keys)]);
            // Once more, in case the operation was parked after the other thread's step.
            setup.alone(&[Time]).assert_ended_once(&[Expired]);
        });
    }
}

/// An operation that is parked under a key is cancelled with it, and is not left to expire.
#[test]
fn park_against_cancel() {
    for (fault, keys, key) in [
        (Failpoint::EndedStaysListed, ONE_KEY, 1),
        (Failpoint::ExpiryLeavesNoRequest, TWO_SHARDS, 1),
        (Failpoint::ExpiryLeavesNoRequest, TWO_SHARDS, 2),
        (Failpoint::ExpiryLeavesNoRequest, ONE_SHARD, 3),
    ] {
        check(&[fault], move || {
            let setup = Setup::new();
            let cancel = setup.elsewhere(move |setup| {
                let waited = setup.purgatory.waiters(&key) > 0;
                setup.act(Cancel(key));
                waited
            });
            setup.act(Park(&[0], keys));
            let waited = cancel.join().unwrap();
            let allowed = [CANCELLED, Expired];
            let allowed = if waited { &allowed[..1] } else { &allowed };
            setup.alone(&[Time]).assert_ended_once(allowed);
        });
    }
}

/// The first key is cancelled while an event of the second, in another shard, checks the operation.
#[test]
fn cancel_in_one_shard_against_event_in_another() {
    let faults = [
        Failpoint::ExpiryLeavesNoRequest,
        Failpoint::EndedStaysListed,
    ];
    race(
        &faults,
        &[Park(BOTH, TWO_SHARDS)],
        [Event(0, 2)],
        &[Cancel(1)],
        &CANCELLED_ONLY,
    );
}

/// One shard's wheel advances while an event in another shard finds the watch of the expiring
/// operation.
#[test]
fn expiry_in_one_shard_against_event_in_another() {
    let faults = [
        Failpoint::ExpiryLeavesNoRequest,
        Failpoint::ExpiryRemovesCheckedOut,
    ];
    race(
        &faults,
        &[Park(BOTH, TWO_SHARDS)],
        [Event(0, 2)],
        &[Time],
        &[Expired],
    );
}

/// An operation expires or is cancelled while an event has it checked.
#[test]
fn event_against_expiry_and_cancel() {
    for (end, outcome) in [(Time, &[Expired]), (Cancel(1), &CANCELLED_ONLY)] {
        check(&[Failpoint::ExpiryLeavesNoRequest], move || {
            let setup = Setup::new().alone(&[Park(BOTH, ONE_KEY)]);
            setup.race([Event(0, 1)], &[end]).assert_ended_once(outcome);
        });
    }
}

/// A place of `max_parked` is taken once and given back once. The planted fault is about the event:
/// a lost place needs no race (behaviour: `a_refusal_names_the_bound`).
#[test]
fn permit_against_event() {
    for keys in [ONE_KEY, TWO_SHARDS] {
        check(&[Failpoint::ParkSkipsVersionCheck], move || {
            let setup = Setup::with(|builder| builder.max_parked(1));
            let setup = setup.race([Event(0, 1)], &[Park(&[0], keys)]);
            setup.assert_ended_once(&[Completed]);
            let park = || {
                setup
                    .purgatory
                    .try_complete_else_watch(setup.op(&[1]), &[1], MS)
            };
            assert!(park().is_ok(), "the place came back");
            let refused = park().err().map(|refused| refused.reason);
            assert_eq!(
                refused,
                Some(WaitError::Full { limit: 1 }),
                "the place came back twice"
            );
        });
    }
}

#[test]
fn event_against_event() {
    let faults = [Failpoint::EventLeavesNoRequest];
    let others = [Event(0, 1), Event(1, 2)];
    race(
        &faults,
        &[Park(BOTH, TWO_SHARDS)],
        others,
        &[],
        &[Completed],
    );
}

/// A walk checks two of three waiters in its first step. An event that meets waiters under check
/// leaves its request with each.
#[test]
fn walk_of_two_steps_against_an_event() {
    check(&[Failpoint::EventLeavesNoRequest], || {
        let setup = Setup::new().alone(&[Park(BOTH, ONE_KEY); 3]);
        let setup = setup.race([Event(0, 1)], &[Event(1, 1)]);
        assert_eq!(*setup.endings.lock().unwrap(), vec![Completed; 3]);
        assert_nothing_left(&setup.purgatory);
    });
}

#[test]
fn completing_event_against_expiry() {
    let faults = [Failpoint::ExpiryRemovesCheckedOut];
    let park = &[Park(&[0], ONE_KEY)];
    race(&faults, park, [Event(0, 1)], &[Time], &[Completed, Expired]);
}

/// One thread parks, one completes, and on a third the time runs out.
#[test]
fn park_against_event_against_expiry() {
    check(&[Failpoint::ExpiryLeavesNoRequest], || {
        let setup = Setup::new().race([Event(0, 1), Time], &[Park(BOTH, ONE_KEY)]);
        // Once more, in case the operation was parked after the other thread's step.
        setup.alone(&[Time]).assert_ended_once(&[Expired]);
    });
}

/// A check panics while another event finds the operation under check.
#[test]
fn panicking_check_against_event() {
    check(&[Failpoint::EventLeavesNoRequest], || {
        let setup = Setup::new();
        setup.park(
            Op {
                panics: true,
                ..setup.op(&[0])
            },
            ONE_KEY,
            MS,
        );
        let setup = setup.race([Signal(1)], &[Event(0, 1)]);
        setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Panicked)]);
    });
}

/// A sweep races an event or a cancel: the operation ends once, and nothing is left.
#[test]
fn a_sweep_against_event_and_cancel() {
    let rechecking = || Setup::with(|builder| builder.recheck_every(MS));
    let parked = move |setup: Shared, keys: &'static [u8]| {
        setup.park(setup.op(&[0]), keys, 2 * MS);
        setup
    };
    for keys in [ONE_KEY, TWO_SHARDS] {
        check(&[Failpoint::EventLeavesNoRequest], move || {
            let setup = parked(rechecking(), keys).race([Event(0, 1)], &[Time]);
            setup.assert_ended_once(&[Completed]);
        });
        check(&[Failpoint::ExpiryLeavesNoRequest], move || {
            let setup = parked(rechecking(), keys).race([Cancel(1)], &[Time]);
            setup.assert_ended_once(&CANCELLED_ONLY);
        });
    }
}

/// A condition becomes true without an event before a sweep, while a check is under way: the sweep
/// or the holder of the operation notices it.
#[test]
fn a_sweep_against_an_early_check() {
    for keys in [ONE_KEY, TWO_SHARDS] {
        check(&[Failpoint::EventLeavesNoRequest], move || {
            let setup = Setup::with(|builder| builder.recheck_every(MS));
            setup.park(setup.op(&[0]), keys, 3 * MS);
            let setup = setup.race([Signal(1)], &[Set(0), Time]);
            setup.assert_ended_once(&[Completed]);
        });
    }
}

/// A sweep finds no operation while one is parked under `keys`: another sweep has to come.
fn idle_sweep_against_a_park(keys: &'static [u8]) {
    let setup = Setup::with(|builder| builder.recheck_every(MS));
    setup.park(setup.op(&[1]), ONE_KEY, 9 * MS);
    let setup = setup.alone(&[Set(1), Signal(1)]); // its sweep is still planned
    setup.endings.lock().unwrap().clear();

    let parks = setup.elsewhere(move |setup| setup.park(setup.op(&[0]), keys, 9 * MS));
    let setup = setup.alone(&[Time]);
    parks.join().unwrap();
    let setup = setup.alone(&[Set(0), Time, Time]); // no event
    setup.assert_ended_once(&[Completed]);
}

#[test]
fn an_idle_sweep_against_a_park() {
    check(&[Failpoint::IdleSweepLooksOnce], || {
        idle_sweep_against_a_park(ONE_KEY);
    });
}

/// The operation is parked in a shard of its own, which is made meanwhile.
#[test]
fn an_idle_sweep_against_the_making_of_a_shard() {
    check(&[Failpoint::LookPassesTheUnmade], || {
        make_late();
        idle_sweep_against_a_park(&[2]);
    });
}

/// An operation's last check at its expiry races an event: one of the two ends it.
#[test]
fn last_check_against_event() {
    for keys in [ONE_KEY, TWO_SHARDS] {
        check(&[Failpoint::EndedStaysListed], move || {
            let setup = Setup::with(|builder| builder.check_at_expiry(|_| ()));
            let setup = setup
                .alone(&[Park(&[0], keys)])
                .race([Event(0, 1)], &[Time]);
            setup.assert_ended_once(&[Completed, Expired]);
        });
    }
}
