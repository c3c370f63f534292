//! The whole purgatory under a hand-turned clock against a reference of plain lists, written from the
//! documentation. proptest makes the steps, and shrinks a failure to the few that matter.
//!
//! Both do each step, the purgatory first. Then what was seen is compared: every check and callback in
//! order, those of nested calls too, what each call returned, what was handed back or dropped; and every
//! count. (The keys, for which 4096 locks are taken, are counted each 16th time.)
//!
//! Two orders are not promised. That of a shutdown is taken from what was seen. That of a cancel by key
//! the reference has as it is: plain watches, then watermarks by threshold, then those met.
//!
//! How often each rare path was taken is printed at the end, and with half a million steps or more a path
//! never taken fails the test. `TEST_EFFORT` says how many steps to make: 5000 without it, a million in
//! CI; `MODEL_SEED` makes others.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test of several files fails by panicking"
)]

mod acts;
mod endings;
mod events;
mod parking;
mod reference;
mod steps;
mod strategies;
mod time;
mod world;

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::quiet::quietly;
use crate::effort::{effort, number};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use reference::{Paths, Reference, State};
use steps::{Act, KEYS, MANY_KEYS, Saw, Setup};
use world::{Alike, Real, World};

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// On average.
const STEPS_A_CASE: usize = 200;

/// So many steps take every path.
const ALL_PATHS: usize = 500_000;

const PATHS: &[&str] = &[
    "a blocking wait inside",
    "a callback panicked",
    "a future dropped before it is told",
    "a future dropped under check",
    "a future dropped while it waits",
    "a future dropped with its value",
    "a job that was kept",
    "a key whose last waiter left",
    "a rise for more than a chunk",
    "a rise for watches that are met",
    "a rise from inside",
    "a rise that completes several",
    "a second end noted",
    "a snapshot of a check",
    "a snapshot of a check known already",
    "a value came after its future was dropped",
    "a value nobody took, without a hook",
    "a wait completed without a value",
    "a wait panicked when asked for its value",
    "a wait's value asked for at the end",
    "a watch met that stays",
    "a watch met, then a cancel by id",
    "a watch met, then a cancel by key",
    "a watch met, then completed",
    "a watch met, then expiry",
    "a watch taken, then expiry",
    "a watermark met, others to come",
    "an event for more than a chunk",
    "an event from inside",
    "an event from inside for nobody",
    "an id known from a snapshot",
    "as many as are checked together",
    "cancelled by key under check",
    "completed at once",
    "completed by a deferred event",
    "completed by the last of several watermarks",
    "ended by id",
    "ended with operations parked",
    "expired",
    "expired for want of time",
    "expired under check",
    "gone",
    "hundreds of keys",
    "its own event in a check",
    "last handle dropped in a callback",
    "more than a call's budget",
    "noted by id",
    "panicked in a later check",
    "panicked in its first check",
    "panicked, and an end noted",
    "refused without keys",
    "refused, closed",
    "refused, full",
    "repeated keys",
    "rescheduled from never",
    "rescheduled to earlier",
    "rescheduled to later",
    "rescheduled to never",
    "rescheduled too late",
    "several due at a tick",
    "shut down under check",
    "shutdown in a check or callback",
    "the event of a value below the key's",
    "time moved on from inside",
    "time passed in a check or callback",
    "true, and an end noted",
];

struct Model {
    world: Arc<World>,
    reference: Reference,
    steps: usize,
    /// Who waited for each key before the step.
    waiters: Vec<usize>,
}

impl Model {
    fn new(setup: &Setup) -> Self {
        let reference = Reference::new(setup);
        Model { world: World::new(setup), waiters: reference.waiters(), reference, steps: 0 }
    }

    fn step(&mut self, act: &Act) {
        let open = !self.reference.closed;
        self.world.act(None, act);
        if open && self.world.is_closed() {
            self.world.run_jobs(); // so that they tell in which order a shutdown took them
        }
        let seen = self.seen();
        self.reference.act(None, act);
        if open && self.reference.closed {
            self.reference.run_jobs();
        }
        self.compare(&seen);
        if matches!(act, Act::Snapshot(_)) {
            self.learn();
        }
    }

    fn seen(&mut self) -> Vec<Saw> {
        let (seen, dropped) = self.world.take_log();
        self.reference.dropped = dropped;
        seen
    }

    fn compare(&mut self, seen: &[Saw]) {
        self.steps += 1;
        let reference = &mut self.reference;
        assert_eq!(seen, reference.log, "seen, and expected");
        reference.log.clear();
        let alive = self.world.alive.load(Relaxed);
        assert_eq!(alive, reference.alive, "operations not dropped");
        let before = std::mem::replace(&mut self.waiters, reference.waiters());
        for key in 1..=KEYS {
            let left = before[key as usize] > 0 && self.waiters[key as usize] == 0;
            reference.count_if(left, "a key whose last waiter left");
        }
        let Some(purgatory) = self.world.handle() else { return };
        let stats = &mut reference.stats;
        stats.parked = reference.parked.len() as u64;
        stats.watched =
            reference.parked.iter().map(|&n| reference.all[n].watches.len() as u64).sum();
        let counted = purgatory.stats();
        // What the reference does not count.
        (stats.checks, stats.events) = (counted.checks, counted.events);
        (stats.refused, stats.deferred) = (counted.refused, counted.deferred);
        stats.callbacks_waiting = counted.callbacks_waiting;
        assert_eq!(counted, *stats);
        assert_eq!(purgatory.len() as u64, stats.parked);
        assert_eq!(purgatory.watched() as u64, stats.watched);
        for key in 1..=KEYS {
            assert_eq!(
                purgatory.waiters(&Alike(key)),
                self.waiters[key as usize],
                "waiters of {key}"
            );
        }
        if self.steps.is_multiple_of(16) {
            self.compare_keys(&purgatory);
        }
    }

    fn compare_keys(&self, purgatory: &Real) {
        let snapshot = purgatory.snapshot(3);
        let keys = self.waiters.iter().filter(|&&waiters| waiters > 0).count();
        assert_eq!((purgatory.keys(), snapshot.key_count), (keys, keys));
        let mut most = self.waiters.clone();
        most.sort_unstable_by(|one, two| two.cmp(one));
        most.truncate(keys.min(3));
        let busiest = snapshot.busiest.iter().map(|busy| busy.waiters);
        assert!(busiest.eq(most), "{:?} of {:?}", snapshot.busiest, self.waiters);
        for busy in &snapshot.busiest {
            assert_eq!(
                busy.waiters, self.waiters[busy.key.0 as usize],
                "waiters of {:?}",
                busy.key
            );
        }
        for key in [MANY_KEYS, MANY_KEYS + 150, MANY_KEYS + 390] {
            assert_eq!(
                purgatory.waiters(&Alike(key)),
                self.waiters[key as usize],
                "waiters of {key}"
            );
        }
    }

    /// A future does not tell the id of its operation, but a snapshot does.
    fn learn(&mut self) {
        let snapshot = std::mem::take(&mut *self.world.snapshot.lock().unwrap());
        let (now_ns, tick_ns) = (self.reference.now_ns, self.reference.tick_ns);
        for (id, told) in &snapshot {
            if self.world.knows(*id)
                || snapshot.iter().filter(|(_, other)| other == told).count() > 1
            {
                continue;
            }
            let is = |&&number: &&usize| {
                let operation = &self.reference.all[number];
                !operation.knows_id && self.reference.told(number, None, now_ns, tick_ns) == *told
            };
            if let Some(&number) = self.reference.parked.iter().find(is) {
                self.world.learn(number, *id);
                self.reference.learn(number);
            }
        }
    }

    /// Ends the case; nothing is left, and a few steps more find that out.
    fn end(mut self, after: &[Act]) -> Paths {
        let parked = self.reference.handle && !self.reference.parked.is_empty();
        self.reference.count_if(parked, "ended with operations parked");
        let end = self.reference.setup.end.clone();
        self.step(&end);
        assert!(self.reference.parked.is_empty());
        after.iter().for_each(|act| self.step(act));
        let over = |operation: &reference::Operation| operation.state == State::Over;
        assert!(self.reference.all.iter().all(over));
        if let Some(purgatory) = self.world.handle() {
            self.compare_keys(&purgatory);
            let stats = purgatory.stats();
            let ended = stats.completed + stats.expired + stats.cancelled;
            assert_eq!((stats.parked, stats.watched, stats.parked_total), (0, 0, ended));
        }
        self.world.clear();
        self.reference.paths
    }
}

fn random(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

#[test]
fn the_purgatory_agrees_with_plain_lists() {
    let steps = usize::try_from(effort(STEPS)).unwrap();
    let seed = number("MODEL_SEED").unwrap_or(0);
    let cases = u32::try_from(steps / STEPS_A_CASE).unwrap().max(1);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let counted = RefCell::new(Paths::new());
    let made = Cell::new(0);
    let steps_of = |most| prop::collection::vec(strategies::step(), 1..most);
    let case = (strategies::setup(), steps_of(2 * STEPS_A_CASE), steps_of(8));
    let mut runner = TestRunner::new_with_rng(config, random(seed));
    let run = |(setup, steps, after): (Setup, Vec<Act>, Vec<Act>)| {
        let mut model = Model::new(&setup);
        steps.iter().for_each(|act| model.step(act));
        made.set(made.get() + model.steps);
        for (path, count) in model.end(&after) {
            *counted.borrow_mut().entry(path).or_default() += count;
        }
        Ok(())
    };
    // Without a word of each failure on the way to the smallest.
    let result = quietly(|| runner.run(&case, run).map_err(|failure| failure.to_string()));
    result.unwrap_or_else(|failure| panic!("MODEL_SEED={seed}: {failure}"));
    let paths = counted.into_inner();
    println!("{} steps: {paths:#?}", made.get());
    let unexpected = paths.keys().find(|path| !PATHS.contains(path));
    assert_eq!(unexpected, None, "a path that nobody expects");
    if steps >= ALL_PATHS {
        let never = PATHS.iter().find(|&path| !paths.contains_key(path));
        assert_eq!(never, None, "a path never taken");
    }
}
