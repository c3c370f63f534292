//! The two sides of a case: the purgatory does each step, then the reference does, and their
//! records are compared. The test [`model`](super::model) and `fuzz`, which make the steps, include
//! this file as a module.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test of several files fails by panicking"
)]

pub mod acts;
mod endings;
mod events;
mod parking;
mod reach;
mod reference;
pub mod steps;
mod time;
mod world;

use std::sync::{Arc, atomic::Ordering::Relaxed};

use purgatory::{Stats, Times};

pub use self::reference::Paths;
use self::{
    acts::Side,
    reference::{Job, Operation, Reference, State},
    steps::{Act, KEYS, Key, MANY_KEYS, Returned, Saw, Setup},
    world::{Alike, Real, World},
};

pub struct Model {
    world: Arc<World>,
    reference: Reference,
    pub steps: usize,
    /// The number of waiters of each key.
    waiters: Vec<usize>,
}

/// Asserts that each end was timed, and how late each expiry was.
pub fn assert_timed(times: &Times, stats: &Stats) {
    let timed = [
        &times.completed,
        &times.expired,
        &times.cancelled,
        &times.lateness,
    ];
    let ended = [
        stats.completed,
        stats.expired,
        stats.cancelled,
        stats.expired,
    ];
    assert_eq!(timed.map(|of| of.count()), ended, "timed, and ended");
}

impl Model {
    pub fn new(setup: &Setup) -> Self {
        let reference = Reference::new(setup);
        let world = World::new(setup);
        if let Some(purgatory) = world.handle() {
            purgatory.times(); // times are recorded from here on
        }
        Model {
            world,
            waiters: reference.waiters(),
            reference,
            steps: 0,
        }
    }

    pub fn step(&mut self, act: &Act) {
        let Model {
            world, reference, ..
        } = self;
        let open = !reference.known.closed;
        world.act(None, act);
        if open && world.is_closed() {
            while world.run_job() {} // so that they tell the order of the shutdown
        }
        (reference.seen, reference.dropped) = world.take_log();
        reference.checked_twice = world.take_checked_twice();
        reference.act(None, act);
        if open && reference.known.closed {
            while reference.run_job() {}
        }
        self.compare();
    }

    fn compare(&mut self) {
        self.steps += 1;
        let reference = &mut self.reference;
        assert_eq!(reference.seen, reference.log, "seen, and expected");
        for saw in std::mem::take(&mut reference.log) {
            reference.count_if(true, &kind(&saw));
        }
        let alive = self.world.alive.load(Relaxed);
        assert_eq!(alive, reference.alive, "operations not dropped");
        self.waiters = reference.waiters();
        let Some(purgatory) = self.world.handle() else {
            return;
        };
        let watches = reference
            .parked
            .iter()
            .map(|&number| reference.all[number].watches.len());
        let stats = &mut reference.stats;
        stats.watched = watches.sum::<usize>() as u64;
        stats.parked = reference.parked.len() as u64;
        stats.callbacks_waiting = reference.jobs.iter().map(Job::callbacks).sum();
        purgatory.assert_valid();
        assert_eq!(purgatory.stats(), *stats);
        assert_timed(&purgatory.times(), stats);
        assert_eq!(purgatory.len() as u64, stats.parked);
        assert_eq!(purgatory.watched() as u64, stats.watched);
        self.compare_waiters(&purgatory, 1..=KEYS);
        if self.steps % 16 == 0 {
            self.compare_keys(&purgatory);
        }
    }

    fn compare_waiters(&self, purgatory: &Real, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            let expected = self.waiters[key as usize];
            assert_eq!(purgatory.waiters(&Alike(key)), expected, "waiters of {key}");
        }
    }

    fn compare_keys(&self, purgatory: &Real) {
        let keys = self.waiters.iter().filter(|&&waiters| waiters > 0).count();
        assert_eq!(purgatory.keys(), keys);
        assert_eq!(world::visited(purgatory), self.reference.visited());
        self.compare_waiters(purgatory, [MANY_KEYS, MANY_KEYS + 150, MANY_KEYS + 390]);
    }

    /// Ends the case, and checks that nothing remains, also after a few more steps.
    pub fn end(mut self, after: &[Act]) -> Paths {
        let end = self.reference.setup.end.clone();
        self.step(&end);
        assert!(self.reference.parked.is_empty());
        for act in after {
            self.step(act);
        }
        let over = |operation: &Operation| operation.state == State::Over;
        assert!(self.reference.all.iter().all(over));
        if let Some(purgatory) = self.world.handle() {
            self.compare_keys(&purgatory);
            let stats = purgatory.stats();
            let ended = stats.completed + stats.expired + stats.cancelled + stats.taken;
            assert_eq!(stats.parked, 0);
            assert_eq!(stats.watched, 0);
            assert_eq!(stats.parked_total, ended);
        }
        self.world.clear();
        self.reference.paths
    }
}

/// Returns the kind of a record: its text without the numbers.
fn kind(saw: &Saw) -> String {
    if let Saw::Returned(Returned::Taken(..)) = saw {
        return "Returned(Taken)".to_owned();
    }
    format!("{saw:?}").replace(|letter: char| letter.is_ascii_digit(), "")
}
