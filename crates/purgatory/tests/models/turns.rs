//! Futures that wait in turn, on a manual timer, against a reference of plain queues, written from
//! the documentation. They take units of their key, or wait for its next event; plain waits of the
//! key take units, too. Each step is made on both sides, and its result compared; then all units,
//! values and counts. So the reference has to know which condition is evaluated, and when.
//! `TEST_EFFORT` sets the number of steps: 5000 without it, a million in CI. `MODEL_SEED` changes
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;
mod world;

use std::time::Duration;

use fastrand::Rng;
use purgatory::{CancelReason, WaitError};

use self::{
    reference::{Reference, Wait},
    world::{Detached, Future, World},
};
use crate::effort::{effort, number};

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 300;
const KEYS: usize = 2;
const MAX_WAITS: usize = 40;

/// The result of a wait: the number of units that it took, or 0 for an event.
type End = Result<u64, WaitError>;

/// The use of a value that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    /// It returns its units, and signals their key for all.
    Signals,
    /// The same, for one.
    SignalsOne,
    /// It returns its units without a word.
    Returns,
    /// Its units are lost.
    Loses,
}

/// A wait's kind.
#[derive(Clone, Copy, Debug)]
struct Kind {
    key: usize,
    in_turn: bool,
    /// The number of units that it takes; `None` for the next event.
    takes: Option<u64>,
    on_drop: OnDrop,
}

/// The signal of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    All,
    AllWith,
    One,
}

struct Model {
    world: World,
    reference: Reference,
    /// Futures that were not polled to their end, by the number of their wait.
    futures: Vec<(usize, Future)>,
    /// Values that were taken.
    taken: Vec<(usize, world::Units)>,
    /// Operations that were taken out.
    detached: Vec<(usize, Detached)>,
    random: Rng,
}

fn cancelled(reason: &'static str) -> WaitError {
    WaitError::Cancelled(CancelReason::Requested(reason.into()))
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let max = [None, None, Some(6)][random.usize(..3)];
        Model {
            world: World::new(max, random.bool()),
            reference: Reference::new(max),
            futures: Vec::new(),
            taken: Vec::new(),
            detached: Vec::new(),
            random,
        }
    }

    fn step(&mut self) {
        let key = self.random.usize(..KEYS);
        match self.random.u8(..32) {
            0..9 if self.futures.len() < MAX_WAITS => self.wait(key),
            9..13 => self.add(key),
            13..15 => {
                let signal = self.any_signal();
                self.signal(key, signal);
            }
            15..18 => self.poll(),
            18..21 => self.drop_future(),
            21..24 => self.drop_value(),
            24 => self.end_one(),
            25 => self.end_all(key),
            26 => self.take_out(),
            27 => self.end_detached(),
            28 => self.make_panic(),
            29 => self.reschedule(),
            _ => {
                let ms = self.random.u64(1..4);
                self.world.timer.advance(Duration::from_millis(ms));
                self.reference.pass(ms);
            }
        }
        self.compare();
    }

    fn any_signal(&mut self) -> Signal {
        [Signal::All, Signal::AllWith, Signal::One][self.random.usize(..3)]
    }

    /// One of the waits whose future is there, or was.
    fn any_wait(&mut self) -> Option<usize> {
        let all = self.reference.all.len();
        let recent = all.saturating_sub(MAX_WAITS);
        if all == 0 {
            return None;
        }
        Some(self.random.usize(recent..all))
    }

    fn wait(&mut self, key: usize) {
        let on_drop = [
            OnDrop::Signals,
            OnDrop::SignalsOne,
            OnDrop::Returns,
            OnDrop::Loses,
        ];
        let is_event = self.random.u8(..4) == 0;
        let kind = Kind {
            key,
            in_turn: self.random.u8(..4) > 0,
            takes: if is_event {
                None
            } else {
                Some(self.random.u64(1..4))
            },
            on_drop: on_drop[self.random.usize(..4)],
        };
        let ms = [0, 1, 2, 5, 20, 20, 1000, 1000][self.random.usize(..8)];
        let ms = if ms > 0 {
            self.reference.alone(key, ms)
        } else {
            0
        };
        let number = self.reference.all.len();
        let future = self.world.wait(number, kind, ms);
        self.reference.wait(kind, ms);
        self.futures.push((number, future));
    }

    /// Adds units, and signals their key or forgets to.
    fn add(&mut self, key: usize) {
        let count = self.random.u64(1..4);
        self.world.shared.add(key, count);
        self.reference.free[key] += count;
        if self.random.u8(..8) > 0 {
            let signal = self.any_signal();
            self.signal(key, signal);
        }
    }

    fn signal(&mut self, key: usize, signal: Signal) {
        let completed = self.world.shared.signal(key, signal);
        assert_eq!(completed, self.reference.signal(key, signal), "{signal:?}");
    }

    fn poll(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let (number, future) = &mut self.futures[at];
        let number = *number;
        let Some(end) = future.poll() else {
            assert_eq!(self.reference.all[number].end, None, "it is over");
            return;
        };
        let expected = self.reference.all[number].end.take();
        self.reference.all[number].is_taken = true;
        let end = end.map(|units| {
            let count = units.count;
            self.taken.push((number, units));
            count
        });
        assert_eq!(Some(end), expected, "of {number}");
        self.futures.swap_remove(at);
    }

    fn drop_future(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let (number, future) = self.futures.swap_remove(at);
        drop(future);
        self.reference.drop_future(number);
    }

    fn drop_value(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let at = self.random.usize(..self.taken.len());
        let (number, units) = self.taken.swap_remove(at);
        drop(units);
        self.reference.drop_value(number);
    }

    /// Cancels or completes one by its id.
    fn end_one(&mut self) {
        let Some(number) = self.any_wait() else {
            return;
        };
        let Some(id) = self.world.ids[number] else {
            return;
        };
        if self.random.bool() {
            let ended = self.world.shared.waits.cancel(id, "by id");
            let expected = self.reference.cancel(number, cancelled("by id"));
            assert_eq!(ended, expected);
        } else {
            let ended = self.world.shared.waits.complete(id);
            assert_eq!(ended, self.reference.complete(number), "of {number}");
        }
    }

    /// Cancels or completes all of a key.
    fn end_all(&mut self, key: usize) {
        let waits = &self.world.shared.waits;
        if self.random.u8(..4) == 0 {
            let ended = waits.cancel_for_key(&key, "by key");
            let expected = self.reference.cancel_all(key, &cancelled("by key"));
            assert_eq!(ended, expected);
        } else if self.reference.takes_alone(key) {
            let completed = waits.complete_for_key(&key);
            assert_eq!(completed, self.reference.complete_all(key));
        }
    }

    fn take_out(&mut self) {
        let Some(number) = self.any_wait() else {
            return;
        };
        let Some(id) = self.world.ids[number] else {
            return;
        };
        let taken = self.world.shared.waits.take(id).parked();
        assert_eq!(taken.is_some(), self.reference.take_out(number));
        if let Some(operation) = taken {
            self.detached.push((number, Detached(operation)));
        }
    }

    /// Ends an operation that was taken out, or drops it.
    fn end_detached(&mut self) {
        if self.detached.is_empty() {
            return;
        }
        let at = self.random.usize(..self.detached.len());
        let (number, detached) = self.detached.swap_remove(at);
        let how = self.random.u8(..3);
        detached.end(how);
        self.reference.end_detached(number, how);
    }

    /// Makes the next evaluation of a condition panic.
    fn make_panic(&mut self) {
        let Some(number) = self.any_wait() else {
            return;
        };
        self.world.shared.panics.lock().unwrap().insert(number);
        self.reference.all[number].panics = true;
    }

    fn reschedule(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let (number, future) = &self.futures[at];
        let key = self.reference.all[*number].kind.key;
        let ms = self.reference.alone(key, self.random.u64(1..20));
        let done = future.reschedule(Duration::from_millis(ms));
        assert_eq!(done, self.reference.reschedule(*number, ms));
    }

    fn compare(&self) {
        let world = &self.world;
        let reference = &self.reference;
        for key in 0..KEYS {
            assert_eq!(world.shared.free(key), reference.free[key], "free of {key}");
            let waiters = reference.plain(key).len() + reference.line(key).len();
            assert_eq!(world.shared.waits.waiters(&key), waiters, "of {key}");
        }
        let stats = world.shared.waits.stats();
        let mut expected = reference.stats;
        expected.parked = reference.all.iter().filter(|wait| wait.is_parked).count() as u64;
        expected.watched = expected.parked;
        assert_eq!(stats, expected);
        let untaken = |wait: &&Wait| matches!(wait.end, Some(Ok(_))) && wait.kind.takes.is_some();
        let untaken = reference.all.iter().filter(untaken).count();
        let of_units = |(number, _): &&(usize, _)| reference.all[*number].kind.takes.is_some();
        let taken = self.taken.iter().filter(of_units).count();
        assert_eq!(world.shared.values(), untaken + taken, "values");
    }

    /// Ends the case: each future yields what the reference says, and nothing is left.
    fn end(mut self) {
        while !self.detached.is_empty() {
            self.end_detached();
            self.compare();
        }
        self.world.timer.advance(Duration::from_secs(2));
        self.reference.pass(2000);
        self.compare();
        assert_eq!(self.reference.stats.parked_total, self.reference.ended());
        while !self.futures.is_empty() {
            self.poll();
        }
        while !self.taken.is_empty() {
            self.drop_value();
            self.compare();
        }
    }
}

#[test]
fn waits_in_turn_agree_with_plain_queues() {
    let mut made = 0;
    let mut seed = number("MODEL_SEED").unwrap_or(0);
    while made < effort(STEPS) {
        let run = || {
            let mut model = Model::new(seed);
            for _ in 0..STEPS_A_CASE {
                model.step();
            }
            model.end();
        };
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("MODEL_SEED={seed} fails alike at once");
            std::panic::resume_unwind(panic);
        }
        made += STEPS_A_CASE;
        seed += 1;
    }
    println!("{made} steps of waits in turn");
}
