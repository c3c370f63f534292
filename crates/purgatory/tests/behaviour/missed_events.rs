//! One last check when time is up, and the events that it finds missing.
#![cfg(not(loom))]

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};

use crate::support::{Later, MS, Op, Park, Probe, Waiting, waiting};
use purgatory::{Builder, EndResult, OperationId, Outcome, Parked, Purgatory, Timeout, Watches};
use timer_core::ManualTimer;

type Missed = Arc<Mutex<Vec<Parked<&'static str>>>>;

/// A purgatory with last checks, under a clock of its own, and what its hook was told.
struct World {
    timer: ManualTimer,
    purgatory: Waiting,
    missed: Missed,
}

impl World {
    fn new() -> Self {
        World::with(|builder| builder)
    }

    fn with(build: impl FnOnce(Builder<&'static str, Op>) -> Builder<&'static str, Op>) -> Self {
        let (timer, missed) = (ManualTimer::new(), Missed::default());
        let told = missed.clone();
        let builder = Purgatory::builder("missed").timer(&timer);
        let builder =
            builder.check_at_expiry(move |missed| told.lock().unwrap().push(missed.clone()));
        World { purgatory: build(builder).build().unwrap(), timer, missed }
    }

    #[track_caller]
    fn park(&self, operation: Op, keys: &[&'static str]) -> OperationId {
        self.purgatory.park(operation, keys, 10 * MS)
    }

    /// An operation that, as its last check runs, makes its condition true and has another thread
    /// do this.
    fn at_last_check(
        &self,
        probe: &Probe,
        ready: bool,
        mut act: impl FnMut(&Waiting) + Send + 'static,
    ) -> Op {
        let (purgatory, seen) = (self.purgatory.clone(), probe.clone());
        probe.operation().on_check(move || {
            if seen.checks() == 1 {
                return; // parked
            }
            if ready {
                seen.make_ready();
            }
            let act = &mut act;
            let purgatory = &purgatory;
            thread::scope(|scope| scope.spawn(move || act(purgatory)).join().unwrap());
        })
    }

    /// Nothing is left, and so many events were missed.
    #[track_caller]
    fn assert_over(&self, missed: u64) {
        let stats = self.purgatory.stats();
        assert_eq!(
            (stats.missed_events, self.missed.lock().unwrap().len() as u64),
            (missed, missed)
        );
        let left = (self.purgatory.len(), self.purgatory.watched(), self.purgatory.keys());
        assert_eq!((left, stats.callbacks_waiting), ((0, 0, 0), 0));
        assert_eq!(stats.parked_total, stats.completed + stats.expired + stats.cancelled);
    }
}

#[test]
fn a_condition_true_without_an_event_is_told() {
    let world = World::new();
    let probe = Probe::new();
    let id = world.park(probe.operation(), &["a", "b"]);
    probe.make_ready();
    world.timer.advance(9 * MS);
    assert!(!probe.ended());
    world.timer.advance(MS);
    assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Completed], 2));
    world.assert_over(1);
    let missed = world.missed.lock().unwrap()[0].clone();
    assert_eq!((missed.id, missed.keys, missed.age), (id, vec!["a", "b"], 10 * MS));
    let stats = world.purgatory.stats();
    assert_eq!((stats.completed, stats.expired, stats.checks), (1, 0, 2));
}

#[test]
fn without_last_checks_there_is_no_check() {
    let (timer, purgatory) = waiting();
    let probe = Probe::parked(&purgatory, &["a"], MS);
    probe.make_ready();
    timer.advance(MS);
    assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Expired], 1));
    assert_eq!(purgatory.stats().missed_events, 0);
}

#[test]
fn an_event_during_the_last_check_is_no_miss() {
    for keys in [&["a"][..], &["b", "a"]] {
        let world = World::new();
        let probe = Probe::new();
        let event = |purgatory: &Waiting| assert_eq!(purgatory.check_and_complete(&"a"), 0);
        world.park(world.at_last_check(&probe, true, event), keys);
        world.timer.advance(10 * MS);
        assert_eq!(probe.endings(), [Outcome::Completed]);
        world.assert_over(0);
    }
}

#[test]
fn a_watermark_never_raised_is_a_miss() {
    let world = World::new();
    let probe = Probe::new();
    let watermarks = [("a", 5), ("b", 7)];
    let watches = Watches::up_to(&watermarks);
    world.purgatory.park(probe.operation(), watches, MS);
    world.purgatory.complete_up_to(&"a", 5);
    probe.make_ready();
    world.timer.advance(MS);
    assert_eq!(world.missed.lock().unwrap()[0].keys, ["b"]); // what is still awaited
    world.assert_over(1);
}

#[test]
fn until_its_job_runs_it_is_under_check() {
    let later = Later::default();
    let world = World::with(|builder| builder.executor(later.clone()).max_parked(1));
    let probe = Probe::new();
    let id = world.park(probe.operation(), &["a"]);
    world.timer.advance(10 * MS);
    let stats = world.purgatory.stats();
    assert_eq!((stats.parked, stats.callbacks_waiting, probe.checks()), (1, 1, 1));
    assert_eq!(world.purgatory.snapshot(1).under_check[0].id, id);
    assert!(world.purgatory.try_complete_else_watch(Probe::new().operation(), &["a"], MS).is_err());
    probe.make_ready();
    later.run();
    assert_eq!(probe.endings(), [Outcome::Completed]);
    world.assert_over(1);
    world.park(Probe::new().operation(), &["a"]); // its place is free
}

#[test]
fn a_dropped_last_check_runs_where_it_was_dropped() {
    for refused_at_once in [true, false] {
        let later = Later::default();
        let world = World::with(|builder| builder.executor(later.clone()));
        let probe = Probe::new();
        world.park(probe.operation(), &["a"]);
        probe.make_ready();
        if refused_at_once {
            world.timer.advance(10 * MS);
        } else {
            world.timer.advance(20 * MS);
            world.purgatory.check_and_complete(&"a");
        }
        drop(later.take());
        assert_eq!((probe.endings(), probe.checks()), (vec![Outcome::Completed], 2));
        world.assert_over(u64::from(refused_at_once)); // in the other case an event was noted
    }
}

#[test]
fn a_last_check_that_panics_expires() {
    let world = World::new();
    let probe = Probe::new();
    world.park(world.at_last_check(&probe, true, |_| panic!("in a last check")), &["a"]);
    let next = Probe::new();
    world.park(next.operation(), &["a"]);
    next.make_ready();
    world.timer.advance(10 * MS);
    assert_eq!(
        (probe.endings(), next.endings()),
        (vec![Outcome::Expired], vec![Outcome::Completed])
    );
    world.assert_over(1); // the next one's
    assert_eq!(world.purgatory.stats().panics, 1);
}

#[test]
fn a_hook_that_panics_loses_nothing() {
    let timer = ManualTimer::new();
    let builder = Purgatory::builder("missed").timer(&timer);
    let purgatory: Waiting = builder.check_at_expiry(|_| panic!("in a hook")).build().unwrap();
    let probe = Probe::parked(&purgatory, &["a"], MS);
    probe.make_ready();
    timer.advance(MS);
    assert_eq!(probe.endings(), [Outcome::Completed]);
    let stats = purgatory.stats();
    assert_eq!((stats.missed_events, stats.panics), (1, 1));
}

/// Its end is decided: whatever comes from outside, it ends as its last check says.
#[test]
fn nothing_from_outside_changes_a_last_check() {
    for ready in [true, false] {
        for attempt in 0..6 {
            let world = World::new();
            let probe = Probe::new();
            let (name, named) = mpsc::channel();
            let act = move |purgatory: &Waiting| match attempt {
                0 => assert_eq!(purgatory.cancel(named.recv().unwrap(), "late"), EndResult::Noted),
                1 => assert_eq!(purgatory.complete(named.recv().unwrap()), EndResult::Noted),
                2 => assert_eq!(purgatory.cancel_for_key(&"a", "late"), 0),
                3 => assert!(!purgatory.reschedule(named.recv().unwrap(), Timeout::Never)),
                4 => _ = purgatory.shutdown(std::time::Duration::ZERO),
                _ => assert_eq!(purgatory.complete_up_to(&"a", 1), 0),
            };
            name.send(world.park(world.at_last_check(&probe, ready, act), &["a", "b"])).unwrap();
            world.timer.advance(10 * MS);
            let ended = if ready { Outcome::Completed } else { Outcome::Expired };
            assert_eq!(probe.endings(), [ended]);
            world.assert_over(u64::from(ready));
        }
    }
}

#[test]
fn a_timeout_inside_a_callback_is_checked_in_order() {
    let world = World::new();
    let [first, second, third] = [Probe::new(), Probe::new(), Probe::new()];
    let told = Arc::new(Mutex::new(Vec::new()));
    for (number, probe) in [&second, &third].into_iter().enumerate() {
        let told = told.clone();
        let operation = probe.operation().then(move |_| told.lock().unwrap().push(number));
        world.park(operation, if number == 0 { &["b"] } else { &["c"] });
    }
    third.make_ready();
    let timer = world.timer.clone();
    let purgatory = world.purgatory.clone();
    let advance = first.operation().then(move |_| timer.advance(10 * MS));
    purgatory.park(advance, &["a"], Timeout::Never);
    first.make_ready();
    assert_eq!(world.purgatory.check_and_complete(&"a"), 1);
    assert_eq!(*told.lock().unwrap(), [0, 1]);
    assert_eq!(second.endings(), [Outcome::Expired]);
    world.assert_over(1);
}
