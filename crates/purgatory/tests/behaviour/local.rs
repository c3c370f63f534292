//! The purgatory for one thread: its scenarios under a clock that the test turns, calls from inside
//! checks and callbacks, panics, futures.

use std::{
    cell::{Cell, RefCell},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use crate::support::{DROPPED, MINUTE, MS, PANICKED, Park, SHUTDOWN, Woken};
use purgatory::{
    CancelReason, DelayedOperation, EndResult, LocalBoxed, LocalPurgatory, LocalWait, OperationId,
    Outcome, ParkResult, RefusedReason, Timeout, WaitError, WatchKey, Watches, when,
};

use crate::effort::effort;

fn ms(count: u64) -> u64 {
    count * 1_000_000
}

type Waits = LocalPurgatory<&'static str, Op>;

/// What a test sees of an operation: nothing of it is `Send`.
#[derive(Clone, Default)]
struct Probe {
    ready: Rc<Cell<bool>>,
    checks: Rc<Cell<usize>>,
    endings: Rc<RefCell<Vec<Outcome>>>,
}

impl Probe {
    fn operation(&self) -> Op {
        Op { probe: self.clone(), on_check: None, then: None }
    }

    fn endings(&self) -> Vec<Outcome> {
        self.endings.borrow().clone()
    }

    #[track_caller]
    fn assert(&self, outcome: Outcome) {
        assert_eq!(self.endings(), [outcome]);
    }
}

struct Op {
    probe: Probe,
    on_check: Option<Box<dyn FnMut()>>,
    then: Option<Box<dyn FnOnce(Outcome)>>,
}

impl Op {
    fn on_check(self, act: impl FnMut() + 'static) -> Self {
        Op { on_check: Some(Box::new(act)), ..self }
    }

    fn then(self, act: impl FnOnce(Outcome) + 'static) -> Self {
        Op { then: Some(Box::new(act)), ..self }
    }
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.probe.checks.set(self.probe.checks.get() + 1);
        self.on_check.as_mut().into_iter().for_each(|act| act());
        self.probe.ready.get()
    }

    fn on_complete(self, outcome: Outcome) {
        self.probe.endings.borrow_mut().push(outcome.clone());
        self.then.into_iter().for_each(|then| then(outcome.clone()));
    }
}

/// Parks under these for a minute.
fn park<'a>(
    waits: &Waits,
    operation: Op,
    watches: impl Into<Watches<'a, &'static str>>,
) -> OperationId {
    waits.park(operation, watches, MINUTE)
}

#[track_caller]
fn assert_empty<K: WatchKey, O: DelayedOperation>(waits: &LocalPurgatory<K, O>) {
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    assert_eq!(waits.next_deadline(), None);
}

#[test]
fn an_event_completes_what_is_ready_in_the_order_it_was_parked() {
    let waits = Waits::new();
    let order = Rc::new(RefCell::new(Vec::new()));
    let probes: Vec<_> = (0..40).map(|_| Probe::default()).collect();
    for (number, probe) in probes.iter().enumerate() {
        let order = order.clone();
        let then = move |_| order.borrow_mut().push(number);
        park(&waits, probe.operation().then(then), &["a"]);
        probe.ready.set(number % 2 == 1);
    }
    assert_eq!(waits.check_and_complete(&"b"), 0);
    assert_eq!(waits.check_and_complete(&"a"), 20);
    assert!(order.borrow().iter().copied().eq((0..40).filter(|number| number % 2 == 1)));
    assert_eq!((waits.len(), waits.waiters(&"a"), waits.keys()), (20, 20, 1));
    probes[1].assert(Outcome::Completed);
    probes.iter().for_each(|probe| assert_eq!(probe.checks.get(), 2));
}

#[test]
fn what_is_ready_at_once_or_has_no_time_is_never_parked() {
    let waits = Waits::new();
    waits.advance(ms(5));
    let (ready, zero, past) = (Probe::default(), Probe::default(), Probe::default());
    ready.ready.set(true);
    let ended = |probe: &Probe, timeout: Timeout| {
        waits.try_complete_else_watch(probe.operation(), &["a"], timeout).unwrap()
    };
    assert_eq!(ended(&ready, Timeout::Never), ParkResult::Ended(Outcome::Completed));
    assert_eq!(ended(&zero, Duration::ZERO.into()), ParkResult::Ended(Outcome::Expired));
    assert_eq!(ended(&past, Timeout::At(ms(5))), ParkResult::Ended(Outcome::Expired));
    ready.assert(Outcome::Completed);
    zero.assert(Outcome::Expired);
    past.assert(Outcome::Expired);
    assert_empty(&waits);
    assert_eq!((waits.stats().ended_at_once, waits.stats().checks), (3, 3));
}

#[test]
fn it_expires_at_its_tick_and_never_early() {
    for timeout in [1, 63, 64, 65, 500, 5000, 300_000] {
        let (waits, probe) = (Waits::new(), Probe::default());
        waits.advance(777_777);
        let operation = probe.operation();
        let timeout = Duration::from_millis(timeout);
        waits.park(operation, &["a", "b"], timeout);
        let due = 777_777 + timeout.as_nanos() as u64;
        let tick = due.div_ceil(ms(1)) * ms(1);
        let mut wakes = 0;
        while let Some(next) = waits.next_deadline() {
            assert!(next > waits.now_ns() && next <= tick, "a wake-up for nothing, or too late");
            waits.advance(next - 1);
            assert_eq!(probe.endings(), []);
            waits.advance(next);
            wakes += 1;
        }
        assert!(wakes <= 4, "{wakes} wake-ups");
        assert_eq!(waits.now_ns(), tick);
        probe.assert(Outcome::Expired);
        assert_empty(&waits);
    }
}

#[test]
fn time_does_not_go_back_and_never_has_no_deadline() {
    let (waits, probe) = (Waits::new(), Probe::default());
    waits.advance(ms(100));
    waits.advance(ms(10));
    assert_eq!(waits.now_ns(), ms(100));
    let id = waits.park(probe.operation(), &["a"], Timeout::Never);
    assert_eq!(waits.next_deadline(), None);
    waits.advance(u64::MAX);
    assert_eq!(probe.endings(), []);
    assert_eq!(waits.complete(id), EndResult::Ended);
    probe.assert(Outcome::Completed);
    assert_empty(&waits);
}

#[test]
fn one_is_cancelled_completed_or_given_more_time_by_its_id() {
    let waits = Waits::new();
    let (cancelled, completed, longer) = (Probe::default(), Probe::default(), Probe::default());
    let ids =
        [&cancelled, &completed, &longer].map(|probe| park(&waits, probe.operation(), &["a"]));
    assert_eq!(waits.cancel(ids[0], "no"), EndResult::Ended);
    assert_eq!(waits.complete(ids[1]), EndResult::Ended);
    cancelled.assert(Outcome::Cancelled(CancelReason::Requested("no".into())));
    completed.assert(Outcome::Completed);
    assert_eq!(waits.cancel(ids[0], "again"), EndResult::Gone);
    assert!(!waits.reschedule(ids[1], MINUTE));
    let elsewhere = park(&Waits::new(), Probe::default().operation(), &["a"]);
    assert_eq!(waits.cancel(elsewhere, "another purgatory's"), EndResult::Gone);

    waits.advance(ms(59_000));
    assert!(waits.reschedule(ids[2], MINUTE));
    waits.advance(ms(118_999));
    assert_eq!(longer.endings(), []);
    waits.advance(ms(119_000));
    longer.assert(Outcome::Expired);
    assert_empty(&waits);
}

#[test]
fn an_operation_leaves_all_its_keys_however_it_ends() {
    let keys = ["a", "b", "c", "b", "a"];
    let watches = Watches::up_to(&[("a", 3), ("d", 9)]).checked().with_keys(&keys);
    type End = fn(&Waits, &Probe, OperationId);
    let endings: [(End, Outcome); 5] = [
        (|waits, _, id| _ = waits.complete(id), Outcome::Completed),
        (|waits, _, _| waits.advance(ms(60_000)), Outcome::Expired),
        (|waits, _, _| waits.shutdown(), SHUTDOWN),
        (
            |waits, probe, _| {
                probe.ready.set(true);
                assert_eq!(waits.check_and_complete(&"c"), 1);
            },
            Outcome::Completed,
        ),
        (
            |waits, _, _| assert_eq!(waits.cancel_for_key(&"d", "gone"), 1),
            Outcome::Cancelled(CancelReason::Requested("gone".into())),
        ),
    ];
    for (end, outcome) in endings {
        let (waits, probe) = (Waits::new(), Probe::default());
        let id = park(&waits, probe.operation(), watches);
        assert_eq!((waits.watched(), waits.keys(), waits.waiters(&"a")), (5, 4, 2));
        end(&waits, &probe, id);
        probe.assert(outcome);
        assert_empty(&waits);
        let stats = waits.stats();
        assert_eq!(stats.completed + stats.expired + stats.cancelled, stats.parked_total);
    }
}

#[test]
fn watermarks_in_the_count_form_complete_with_the_last_one() {
    let waits = Waits::new();
    let probes: Vec<_> = (0..100).map(|_| Probe::default()).collect();
    for (probe, at) in probes.iter().zip(0..) {
        park(&waits, probe.operation(), Watches::up_to(&[("a", at), ("b", 100 - at)]));
    }
    assert_eq!(waits.complete_up_to(&"a", 49), 0); // 50 were met once
    assert_eq!((waits.waiters(&"a"), waits.waiters(&"b"), waits.watched()), (50, 100, 200));
    let checks = |at: usize| probes[at].checks.get();
    assert_eq!((checks(0), checks(49), checks(50)), (2, 2, 1));
    assert_eq!(waits.complete_up_to(&"b", 60), 10); // those of 40 to 49, and 50 to 99 wait for `a`
    assert_eq!(waits.complete_up_to(&"a", 10), 0); // a lower value meets nothing new
    assert_eq!(waits.complete_up_to(&"a", 99), 50);
    probes[40].assert(Outcome::Completed);
    assert_eq!(waits.cancel_for_key(&"b", "enough"), 40);
    assert_empty(&waits);
}

#[test]
fn watermarks_in_the_check_form_wait_for_their_check() {
    let (waits, probe, other) = (Waits::new(), Probe::default(), Probe::default());
    park(&waits, probe.operation(), Watches::up_to(&[("a", 5)]).checked());
    park(&waits, other.operation(), Watches::up_to(&[("a", 50)]).checked());
    assert_eq!(waits.complete_up_to(&"a", 4), 0);
    assert_eq!(waits.check_and_complete(&"a"), 0);
    assert_eq!(probe.checks.get(), 1);
    assert_eq!((waits.complete_up_to(&"a", 5), probe.checks.get()), (0, 2));
    probe.ready.set(true);
    assert_eq!(waits.complete_up_to(&"a", 6), 1);
    probe.assert(Outcome::Completed);
    assert_eq!((other.checks.get(), waits.waiters(&"a")), (1, 1));
}

#[test]
fn what_may_not_be_parked_comes_back() {
    let waits: Waits = LocalPurgatory::builder().max_parked(2).build();
    let probe = Probe::default();
    let refused = |waits: &Waits, keys: &[&'static str]| {
        let refused = waits.try_complete_else_watch(probe.operation(), keys, MINUTE).unwrap_err();
        let (operation, reason) = refused.into_parts();
        assert_eq!(operation.probe.endings(), []);
        reason
    };
    assert_eq!(refused(&waits, &[]), RefusedReason::NoKeys);
    let ids = [(); 2].map(|()| park(&waits, Probe::default().operation(), &["a", "b"]));
    assert_eq!(refused(&waits, &["c"]), RefusedReason::Full { limit: 2 });
    assert_eq!(waits.cancel(ids[0], "room"), EndResult::Ended);
    let last = park(&waits, Probe::default().operation(), &["a"]);
    assert_eq!(waits.cancel(last, "room"), EndResult::Ended);
    let levels: Vec<_> = (0..20_000).map(|level| ("a", level)).collect();
    let many = waits.try_complete_else_watch(probe.operation(), Watches::up_to(&levels), MINUTE);
    let limit = RefusedReason::TooManyWatermarks { limit: 16_383 };
    assert_eq!(many.unwrap_err().reason, limit);
    waits.shutdown();
    assert_eq!(refused(&waits, &["c"]), RefusedReason::Closed);
    assert_eq!(waits.stats().refused.closed, 1);
    assert_empty(&waits);
}

#[test]
fn an_event_inside_a_check_is_not_missed_by_the_operation_that_is_being_parked() {
    let (waits, probe) = (Waits::new(), Probe::default());
    let (raises, ready, first) = (waits.clone(), probe.ready.clone(), Cell::new(true));
    // The check sees the condition false; then it comes true and its event is raised, all in one
    // check.
    let operation = probe.operation().on_check(move || {
        if first.replace(false) {
            let (ready, raises) = (ready.clone(), raises.clone());
            assert_eq!(raises.check_and_complete(&"a"), 0);
            let late = Probe::default();
            late.ready.set(true);
            let later = raises.clone();
            let then = move |_| {
                ready.set(true);
                later.check_and_complete(&"a");
            };
            let at_once = late.operation().then(then);
            let park = raises.try_complete_else_watch(at_once, &["x"], MINUTE).unwrap();
            assert_eq!(park, ParkResult::Ended(Outcome::Completed)); // its callback is queued
        }
    });
    park(&waits, operation, &["a"]);
    probe.assert(Outcome::Completed);
    assert_eq!(probe.checks.get(), 3); // two events: one before it was watched, one after
    assert_empty(&waits);
}

#[test]
fn a_check_may_end_its_own_operation_and_others() {
    let (waits, probe, other) = (Waits::new(), Probe::default(), Probe::default());
    let own = Rc::new(Cell::new(None));
    let (me, calls) = (own.clone(), waits.clone());
    let operation = probe.operation().on_check(move || {
        let Some(id) = me.get() else { return };
        assert_eq!(calls.cancel(id, "by its own check"), EndResult::Noted);
        assert!(!calls.reschedule(id, MINUTE));
        assert_eq!(calls.cancel_for_key(&"b", "by a check"), 1);
        assert_eq!((calls.len(), calls.waiters(&"a")), (1, 1));
    });
    own.set(Some(park(&waits, operation, &["a"])));
    park(&waits, other.operation(), &["b"]);
    assert_eq!(waits.check_and_complete(&"a"), 0);
    probe.assert(Outcome::Cancelled(CancelReason::Requested("by its own check".into())));
    other.assert(Outcome::Cancelled(CancelReason::Requested("by a check".into())));
    assert_empty(&waits);
}

#[test]
fn a_callback_may_do_anything_and_its_event_comes_after() {
    let (waits, probe, next) = (Waits::new(), Probe::default(), Probe::default());
    let late = Probe::default();
    late.ready.set(true);
    let told = Rc::new(RefCell::new(Vec::new()));
    park(&waits, next.operation(), &["b"]);
    next.ready.set(true);
    let (calls, log, parks) = (waits.clone(), told.clone(), late.clone());
    let operation = probe.operation().then(move |_| {
        assert_eq!((calls.check_and_complete(&"b"), calls.complete_up_to(&"c", 5)), (0, 0));
        let at_once = calls.try_complete_else_watch(parks.operation(), &["d"], MINUTE).unwrap();
        assert_eq!(at_once, ParkResult::Ended(Outcome::Completed));
        calls.advance(calls.now_ns() + 1); // moves the clock, no more
        log.borrow_mut().push((parks.endings().len(), calls.len()));
        assert_eq!(calls.next_deadline(), Some(calls.now_ns())); // there is work
        let stats = calls.stats();
        assert_eq!((stats.callbacks_waiting, stats.deferred), (1, 2));
    });
    park(&waits, operation, &["a"]);
    probe.ready.set(true);
    assert_eq!(waits.check_and_complete(&"a"), 1);
    assert_eq!(*told.borrow(), [(0, 1)]);
    next.assert(Outcome::Completed);
    late.assert(Outcome::Completed);
    assert_empty(&waits);
}

/// An operation of a chain: when it ends, it parks the next and raises its event.
fn link(waits: &Waits, left: usize, ended: Rc<Cell<usize>>) {
    let probe = Probe::default();
    let (ready, next) = (probe.ready.clone(), waits.clone());
    let operation = probe.operation().then(move |_| {
        ended.set(ended.get() + 1);
        if left > 1 {
            link(&next, left - 1, ended);
        }
    });
    park(waits, operation, &["chain"]);
    ready.set(true);
    waits.check_and_complete(&"chain");
}

#[test]
fn a_chain_of_very_many_needs_no_stack_and_a_call_runs_a_bounded_part_of_it() {
    let links = usize::try_from(effort(100_000)).unwrap(); // a million in CI
    let (waits, ended) = (Waits::new(), Rc::new(Cell::new(0)));
    link(&waits, links, ended.clone());
    let mut before = ended.get();
    assert!((1..=1024).contains(&before), "{before}");
    let mut calls = 0;
    while waits.next_deadline() == Some(waits.now_ns()) {
        waits.advance(0);
        let ran = ended.get() - before;
        assert!((1..=1024).contains(&ran), "{ran} links in a call");
        before = ended.get();
        calls += 1;
    }
    assert_eq!(ended.get(), links);
    assert!(calls > links / 1024, "{calls}");
    assert_empty(&waits);
}

#[test]
fn many_that_expire_together_take_several_calls_and_queued_work_is_not_starved() {
    const MANY: usize = 10_000;
    let (waits, ended) = (Waits::new(), Rc::new(Cell::new(0)));
    for _ in 0..MANY {
        let count = ended.clone();
        let then = move |outcome| {
            assert_eq!(outcome, Outcome::Expired);
            count.set(count.get() + 1);
        };
        park(&waits, Probe::default().operation().then(then), &["a", "b"]);
    }
    link(&waits, 100 * MANY, Rc::default());
    let mut calls = 0;
    while ended.get() < MANY {
        let (before, completed) = (ended.get(), waits.stats().completed);
        assert!(waits.next_deadline() <= Some(waits.now_ns().max(ms(60_000))));
        waits.advance(ms(60_000));
        assert!(ended.get() - before <= 1024 && waits.stats().completed > completed);
        calls += 1;
    }
    assert!(calls >= MANY / 1024, "{calls}");
    waits.shutdown();
    assert_empty(&waits);
}

#[test]
fn the_last_handle_ends_everything_also_inside_a_callback() {
    let probe = Probe::default();
    let waits = Waits::new();
    (0..3000).for_each(|_| _ = park(&waits, probe.operation(), &["a", "b"]));
    drop(waits.clone());
    assert_eq!(probe.endings(), []);
    drop(waits);
    assert_eq!(probe.endings().len(), 3000);
    assert!(probe.endings().iter().all(|outcome| *outcome == DROPPED));

    // A future keeps the inside: the last handle goes in the callback of what it cancels.
    let waits: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
    let (others, handle) = (Probe::default(), waits.clone());
    for _ in 0..3000 {
        let operation = LocalBoxed::new(others.operation());
        waits.park(operation, &["a"], MINUTE);
    }
    let future = waits.wait(&["a"], MINUTE, move || {
        let _owned = &handle;
        None::<()>
    });
    drop(waits);
    assert_eq!(others.endings(), []);
    drop(future);
    assert_eq!(others.endings().len(), 3000);
    assert!(others.endings().iter().all(|outcome| *outcome == DROPPED));
}

#[test]
fn queued_work_is_run_by_the_drop_of_the_last_handle() {
    let (waits, ended) = (Waits::new(), Rc::new(Cell::new(0)));
    let probe = Probe::default();
    let (raises, count) = (waits.clone(), ended.clone());
    let operation = probe.operation().then(move |_| {
        for _ in 0..5000 {
            let (at_once, count) = (Probe::default(), count.clone());
            at_once.ready.set(true);
            let then = move |_| count.set(count.get() + 1);
            raises.try_complete_else_watch(at_once.operation().then(then), &["b"], MINUTE).unwrap();
        }
    });
    park(&waits, operation, &["a"]);
    probe.ready.set(true);
    assert_eq!(waits.check_and_complete(&"a"), 1);
    assert_eq!(ended.get(), 1024);
    drop(waits);
    assert_eq!(ended.get(), 5000);
}

#[test]
fn panics_of_checks_and_callbacks_are_contained_and_counted() {
    let (waits, probe, other) = (Waits::new(), Probe::default(), Probe::default());
    let armed = Rc::new(Cell::new(false));
    let panics = armed.clone();
    let check = move || assert!(!panics.get(), "check");
    park(&waits, probe.operation().on_check(check), &["a", "b"]);
    park(&waits, other.operation().then(|_| panic!("callback")), &["a"]);
    armed.set(true);
    other.ready.set(true);
    assert_eq!(waits.check_and_complete(&"a"), 1);
    probe.assert(PANICKED);
    other.assert(Outcome::Completed);
    let first = Probe::default();
    let park = waits.try_complete_else_watch(
        first.operation().on_check(|| panic!("first check")),
        &["a"],
        MINUTE,
    );
    assert_eq!(park.unwrap(), ParkResult::Ended(PANICKED));
    assert_eq!(waits.stats().panics, 3);
    assert_eq!((waits.stats().cancelled_by_panic, waits.stats().ended_at_once), (1, 1));
    assert_empty(&waits);
}

/// A key whose code panics when it is told to, and that tells when it is dropped.
struct Key {
    name: u32,
    trap: Rc<Trap>,
}

#[derive(Default)]
struct Trap {
    eq: Cell<bool>,
    clone: Cell<bool>,
    drop: Cell<bool>,
    waits: RefCell<Option<LocalPurgatory<Key, LocalBoxed>>>,
    dropped: Cell<usize>,
    calls: Cell<u32>,
    /// Drops that looked into the purgatory, which a borrow would have made panic.
    looked: Cell<usize>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name / 10).hash(state); // ten of a kind
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        assert!(!self.trap.eq.get(), "eq");
        self.name == other.name
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Key {
        assert!(!self.trap.clone.get(), "clone");
        Key { name: self.name, trap: self.trap.clone() }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.trap.dropped.set(self.trap.dropped.get() + 1);
        if let Some(waits) = &*self.trap.waits.borrow() {
            assert!(waits.watched() <= 100 && waits.stats().parked <= 100);
            self.trap.looked.set(self.trap.looked.get() + 1);
            if self.trap.calls.replace(self.trap.calls.get().saturating_sub(1)) > 0 {
                waits.complete_up_to(self, 0); // a queued one drops a key again
            }
        }
        if self.trap.drop.get() && !std::thread::panicking() {
            panic!("drop");
        }
    }
}

#[test]
fn a_key_that_panics_leaves_the_room_whole() {
    let waits: LocalPurgatory<Key, LocalBoxed> = LocalPurgatory::new();
    let trap = Rc::new(Trap::default());
    let key = |name| Key { name, trap: trap.clone() };
    let probe = Probe::default();
    let park = |names: &[u32]| {
        let keys: Vec<_> = names.iter().map(|&name| key(name)).collect();
        catch_unwind(AssertUnwindSafe(|| {
            waits.try_complete_else_watch(LocalBoxed::new(probe.operation()), &keys, MINUTE)
        }))
    };
    let panics = |act: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
    assert!(matches!(park(&[1]).unwrap(), Ok(ParkResult::Parked(_))));
    for names in [&[2][..], &[12, 13, 1, 2], &[1, 2]] {
        trap.clone.set(true);
        assert!(park(names).is_err());
        trap.clone.set(false);
        trap.eq.set(true);
        assert!(park(names).is_err());
        panics(&|| _ = waits.check_and_complete(&key(1)));
        panics(&|| _ = waits.complete_up_to(&key(1), 1));
        panics(&|| _ = waits.cancel_for_key(&key(1), "?"));
        trap.eq.set(false);
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (1, 1, 1));
    }
    probe.ready.set(true);
    assert_eq!(waits.check_and_complete(&key(1)), 1);
    assert_empty(&waits);
    assert_eq!(probe.endings().len(), 1);

    // A queued event whose key panics is counted, and the next one's turn comes.
    let next = Probe::default();
    let operation = LocalBoxed::new(next.operation());
    waits.park(operation, &[key(7)], MINUTE);
    next.ready.set(true);
    let (raises, armed, bad) = (waits.clone(), trap.clone(), key(7));
    let good = Rc::new(Cell::new(0));
    let counts = good.clone();
    let callback = when(
        || true,
        move |_| {
            raises.check_and_complete(&bad);
            let last = when(|| true, move |_| counts.set(1));
            let bad = std::slice::from_ref(&bad);
            raises.try_complete_else_watch(last.into(), bad, MINUTE).unwrap();
            armed.eq.set(true);
        },
    );
    waits.try_complete_else_watch(callback.into(), &[key(8)], MINUTE).unwrap();
    trap.eq.set(false);
    assert_eq!((good.get(), waits.stats().panics, waits.len()), (1, 1, 1));
    assert_eq!(waits.check_and_complete(&key(7)), 1);
    assert_empty(&waits);
}

#[test]
fn a_key_that_is_dropped_may_call_back_or_panic() {
    let waits: LocalPurgatory<Key, LocalBoxed> = LocalPurgatory::new();
    let trap = Rc::new(Trap::default());
    let probe = Probe::default();
    for _ in 0..2 {
        let keys: Vec<_> = (0..20).map(|name| Key { name, trap: trap.clone() }).collect();
        let levels = [(keys[3].clone(), 5), (keys[19].clone(), 6)];
        let watches = Watches::up_to(&levels).with_keys(&keys);
        let operation = LocalBoxed::new(probe.operation());
        waits.park(operation, watches, MINUTE);
        assert_eq!((waits.watched(), waits.keys()), (22, 20));
        *trap.waits.borrow_mut() = Some(waits.clone());
        let before = (trap.dropped.get(), trap.looked.get());
        trap.drop.set(true);
        trap.calls.set(10);
        waits.advance(waits.now_ns() + ms(60_000));
        trap.drop.set(false);
        let dropped = trap.dropped.get() - before.0;
        assert!(dropped >= 20 && trap.calls.get() == 0, "{dropped}");
        assert_eq!(trap.looked.get() - before.1, dropped);
        *trap.waits.borrow_mut() = None;
        assert_empty(&waits);
    }
    assert_eq!(probe.endings(), [Outcome::Expired, Outcome::Expired]);
}

/// Calls back when it is dropped without having been told: by a panic of a key's `Clone`, say.
struct Calls(Waits);

impl Drop for Calls {
    fn drop(&mut self) {
        assert!(self.0.is_empty());
        self.0.check_and_complete(&"a");
        self.0.advance(1);
    }
}

#[test]
fn an_operation_that_is_dropped_may_call_back() {
    let others = Waits::new();
    for several in [true, false] {
        let waits: LocalPurgatory<Key, LocalBoxed> = LocalPurgatory::new();
        let trap = Rc::new(Trap::default());
        let keys = [1, 2].map(|name| Key { name, trap: trap.clone() });
        let keys = if several { &keys[..] } else { &keys[..1] };
        trap.clone.set(true);
        let calls = (Calls(others.clone()), CallsOwn(waits.clone()));
        let operation = when(
            move || {
                let _owned = &calls;
                false
            },
            drop,
        );
        let park = || waits.try_complete_else_watch(operation.into(), keys, MINUTE);
        assert!(catch_unwind(AssertUnwindSafe(park)).is_err());
        assert_empty(&waits);
        assert_eq!((waits.now_ns(), waits.stats().refused.closed), (7, 0));
    }
    assert_eq!(others.stats().events, 2);
}

struct CallsOwn(LocalPurgatory<Key, LocalBoxed>);

impl Drop for CallsOwn {
    fn drop(&mut self) {
        self.0.advance(7);
        self.0.shutdown();
    }
}

#[test]
fn a_future_yields_a_value_or_why_there_is_none() {
    let waits: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
    let (shelf, count) = (Rc::new(RefCell::new(None)), Arc::<Woken>::default());
    let take = || {
        let shelf = shelf.clone();
        move || shelf.borrow_mut().take()
    };
    let mut future = waits.wait(&["a", "b"], 10 * MS, take());
    assert!(count.poll(&mut future).is_pending() && count.poll(&mut future).is_pending());
    *shelf.borrow_mut() = Some(Rc::new(7));
    assert_eq!((waits.check_and_complete(&"b"), count.times()), (1, 1));
    assert_eq!(count.poll(&mut future), Poll::Ready(Ok(Rc::new(7))));

    let mut late = waits.wait(&["a"], 10 * MS, take());
    let mut noted = waits.wait(&["a"], MINUTE, take());
    let mut asked = waits.wait(Watches::up_to(&[("c", 1)]), MINUTE, take());
    let mut panics = waits.wait(&["d"], MINUTE, {
        let mut calls = 0;
        move || {
            calls += 1;
            assert!(calls < 2, "condition");
            None::<()>
        }
    });
    waits.advance(ms(10));
    waits.cancel(noted.id().unwrap(), "no");
    *shelf.borrow_mut() = Some(Rc::new(8));
    waits.complete_up_to(&"c", 1);
    waits.check_and_complete(&"d");
    let requested = WaitError::Cancelled(CancelReason::Requested("no".into()));
    assert_eq!(count.poll(&mut late), Poll::Ready(Err(WaitError::Expired)));
    assert_eq!(count.poll(&mut noted), Poll::Ready(Err(requested)));
    assert_eq!(count.poll(&mut asked), Poll::Ready(Ok(Rc::new(8))));
    let panicked = WaitError::Cancelled(CancelReason::Panicked);
    assert_eq!(count.poll(&mut panics), Poll::Ready(Err(panicked)));
    assert_empty(&waits);

    let mut open = waits.wait(&["a"], MINUTE, || None::<()>);
    let no_keys: [&str; 0] = [];
    let refused = count.poll(&mut waits.wait(&no_keys, MINUTE, || None::<()>));
    assert_eq!(refused, Poll::Ready(Err(WaitError::Refused(RefusedReason::NoKeys))));
    drop(waits); // the future does not keep it open
    let dropped = WaitError::Cancelled(CancelReason::Dropped);
    assert_eq!(count.poll(&mut open), Poll::Ready(Err(dropped)));
}

#[test]
fn a_dropped_future_leaves_nothing_behind() {
    let waits: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
    let value = Rc::new(());
    let yields = |value: &Rc<()>| {
        let (value, calls) = (value.clone(), Cell::new(0));
        move || (calls.replace(calls.get() + 1) > 0).then(|| value.clone())
    };
    drop(waits.wait(&["a", "b"], MINUTE, yields(&value))); // before its event
    assert_empty(&waits);
    let after = waits.wait(&["a"], MINUTE, yields(&value));
    assert_eq!(waits.check_and_complete(&"a"), 1);
    drop(after); // with the value in it
    assert_eq!(Rc::strong_count(&value), 1);

    // In its own check: that is over first, and its value goes nowhere.
    let own = Rc::new(RefCell::new(None));
    let (me, yields) = (own.clone(), value.clone());
    let future = waits.wait(&["a"], MINUTE, move || {
        me.borrow_mut().take().map(|future: LocalWait<Rc<()>>| {
            drop(future);
            yields.clone()
        })
    });
    *own.borrow_mut() = Some(future);
    assert_eq!(waits.check_and_complete(&"a"), 1);
    assert_eq!(Rc::strong_count(&value), 1);
    assert_empty(&waits);
}

#[test]
fn two_purgatories_on_a_thread_may_call_each_other() {
    let (one, two) = (Waits::new(), Waits::new());
    let left = Rc::new(Cell::new(200_000));
    fn bounce(here: &Waits, there: &Waits, left: &Rc<Cell<u32>>) {
        let probe = Probe::default();
        let (back, forth, count) = (here.clone(), there.clone(), left.clone());
        let ready = probe.ready.clone();
        let operation = probe.operation().then(move |_| {
            if count.replace(count.get().saturating_sub(1)) > 1 {
                bounce(&forth, &back, &count);
            }
        });
        park(here, operation, &["ball"]);
        ready.set(true);
        here.check_and_complete(&"ball");
    }
    bounce(&one, &two, &left);
    while one.next_deadline().is_some() || two.next_deadline().is_some() {
        one.advance(0);
        two.advance(0);
    }
    assert_eq!(left.get(), 0);
    assert_empty(&one);
    assert_empty(&two);
}

#[test]
fn a_rise_checks_an_operation_once_however_many_of_its_thresholds_it_meets() {
    let mut levels: Vec<_> = (1..=100).map(|threshold| ("a", threshold)).collect();
    levels.push(("b", 1));
    for (watches, again) in [(Watches::up_to(&levels), 2), (Watches::up_to(&levels).checked(), 3)] {
        let (waits, probe) = (Waits::new(), Probe::default());
        park(&waits, probe.operation(), watches);
        waits.complete_up_to(&"a", 100);
        assert_eq!(probe.checks.get(), 2, "at parking, and now");
        waits.complete_up_to(&"a", 100);
        assert_eq!(probe.checks.get(), again);
    }
}
