//! Both sides of a case beside each other: the purgatory does each step, then the reference, and
//! what was seen is compared. Whoever makes the steps has this as a module: the test
//! [`model`](super::model), and `fuzz`.
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
pub mod steps;
mod time;
mod world;

use std::sync::{Arc, atomic::Ordering::Relaxed};

pub use self::reference::Paths;
use self::{
    reference::{Job, Operation, Reference, State},
    steps::{Act, KEYS, MANY_KEYS, Setup},
    world::{Alike, Real, World},
};

pub struct Model {
    world: Arc<World>,
    reference: Reference,
    pub steps: usize,
    /// Who waited for each key before the step.
    waiters: Vec<usize>,
}

impl Model {
    pub fn new(setup: &Setup) -> Self {
        let reference = Reference::new(setup);
        Model { world: World::new(setup), waiters: reference.waiters(), reference, steps: 0 }
    }

    pub fn step(&mut self, act: &Act) {
        let open = !self.reference.closed;
        self.world.act(None, act);
        if open && self.world.is_closed() {
            self.world.run_jobs(); // so that they tell in which order a shutdown took them
        }
        self.see();
        self.reference.act(None, act);
        if open && self.reference.closed {
            self.reference.run_jobs();
        }
        self.compare();
    }

    fn see(&mut self) {
        (self.reference.seen, self.reference.dropped) = self.world.take_log();
    }

    fn compare(&mut self) {
        self.steps += 1;
        let reference = &mut self.reference;
        assert_eq!(reference.seen, reference.log, "seen, and expected");
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
        stats.callbacks_waiting = reference.jobs.iter().map(Job::callbacks).sum();
        let counted = purgatory.stats();
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
        if self.steps % 16 == 0 {
            self.compare_keys(&purgatory);
        }
    }

    fn compare_keys(&self, purgatory: &Real) {
        let keys = self.waiters.iter().filter(|&&waiters| waiters > 0).count();
        assert_eq!(purgatory.keys(), keys);
        for key in [MANY_KEYS, MANY_KEYS + 150, MANY_KEYS + 390] {
            assert_eq!(
                purgatory.waiters(&Alike(key)),
                self.waiters[key as usize],
                "waiters of {key}"
            );
        }
    }

    /// Ends the case; nothing is left, and a few steps more find that out.
    pub fn end(mut self, after: &[Act]) -> Paths {
        let parked = self.reference.handle && !self.reference.parked.is_empty();
        self.reference.count_if(parked, "ended with operations parked");
        let end = self.reference.setup.end.clone();
        self.step(&end);
        assert!(self.reference.parked.is_empty());
        after.iter().for_each(|act| self.step(act));
        let over = |operation: &Operation| operation.state == State::Over;
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
