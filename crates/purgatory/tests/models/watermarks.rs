//! Compares `Watermarks` on a manual timer with a reference of plain lists that is written from the
//! documentation. Each random step is done by the real ones first. Wakers and callbacks act, too:
//! they advance keys, begin epochs, close and remove keys, drop and cancel other waits, and wait
//! anew. Some waits last until a key is wanted, or is not; some are refused for lack of a place.
//! After each step the records are compared (each wake, callback and result of a call, in order),
//! then all values, epochs, waits by key, and counts. Values are `u64`, or `i64` over its whole
//! range. The test makes 5000 steps times `TEST_EFFORT`, in CI a million. `MODEL_SEED` changes
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;
mod world;

use std::sync::Arc;

use fastrand::Rng;
use purgatory::{Outcome, ReachResult, WaitError};

use self::{
    reference::Reference,
    world::{Value, World},
};
use crate::acting::run_cases;

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 400;
const KEYS: u64 = 6;

/// Values are below this one, or the highest of all.
const VALUES: u64 = 30;

type Key = u64;
type Reached = Vec<(Key, u64)>;

/// The end of a wait, as its future yields it.
type End = Result<Reached, WaitError>;

/// The kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    One,
    /// For a value of one key in this epoch.
    OneIn(u64),
    Callback,
    /// Until the key is waited for; `Unwanted`: until it no longer is.
    Wanted,
    Unwanted,
    /// For values of several keys.
    Each,
}

/// A wait to be parked.
#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    members: Reached,
    ms: u64,
    /// The acts of its waker or callback.
    then: Vec<Act>,
    then_panics: bool,
}

/// A step, or an act of a waker or callback.
#[derive(Clone, Debug)]
enum Act {
    Wait(Arc<Plan>),
    Advance(Key, Option<u64>, u64),
    Add(Key, u64),
    Remove(Key),
    Close(Key),
    /// With `true`, waits for a higher value go on.
    Begin(Key, u64, u64, bool),
    /// Drops the future of a wait; 0 is the latest.
    Drop(usize),
    Cancel(usize),
    Reschedule(usize, u64),
    /// Lets milliseconds pass.
    Pass(u64),
}

/// A record of something that happened.
#[derive(Clone, Debug, PartialEq)]
enum Saw {
    Woken(usize),
    Called(usize, Outcome),
    /// A wait came; `true` if it was over at once.
    Came(usize, bool),
    /// A wait with a callback was refused.
    Refused(usize, WaitError),
    Changed(Result<usize, WaitError>),
    Attempt(ReachResult),
    Rescheduled(bool),
}

/// Makes random steps.
struct Steps(Rng);

impl Steps {
    fn key(&mut self) -> Key {
        self.0.u64(..KEYS)
    }

    /// Returns a value, rarely the highest of all.
    fn value(&mut self) -> u64 {
        if self.0.u8(..64) == 0 {
            u64::MAX
        } else {
            self.0.u64(..VALUES)
        }
    }

    fn step(&mut self) -> Act {
        match self.0.u8(..20) {
            0..8 => Act::Wait(Arc::new(self.plan(2))),
            8..11 => Act::Pass(self.0.u64(1..4)),
            _ => self.act(2),
        }
    }

    /// Returns an act that is legal anywhere; waits that it begins act at most `depth` levels deep.
    fn act(&mut self, depth: u32) -> Act {
        let key = self.key();
        let value = self.value();
        match self.0.u8(..16) {
            0 => Act::Wait(Arc::new(self.plan(depth.saturating_sub(1)))),
            1..6 => {
                let epoch = if self.0.bool() {
                    Some(self.0.u64(..3))
                } else {
                    None
                };
                Act::Advance(key, epoch, value)
            }
            6 => Act::Add(key, value % 4),
            7 | 8 => Act::Remove(key),
            9 | 10 => Act::Begin(key, self.0.u64(..3), value, self.0.bool()),
            11 | 12 => Act::Drop(self.0.usize(..12)),
            13 => Act::Cancel(self.0.usize(..12)),
            14 if self.0.u8(..4) == 0 => Act::Close(key),
            _ => Act::Reschedule(self.0.usize(..12), self.0.u64(1..20)),
        }
    }

    fn plan(&mut self, depth: u32) -> Plan {
        let mut keys: Vec<Key> = (0..KEYS).collect();
        self.0.shuffle(&mut keys);
        let count = [1, 1, 1, 2, 3, 4][self.0.usize(..6)];
        keys.truncate(count);
        let mut members = Reached::new();
        for key in keys {
            members.push((key, self.value()));
        }
        let kind = match self.0.u8(..6) {
            0 if count == 1 => Kind::Callback,
            1 if count == 1 => Kind::OneIn(self.0.u64(..3)),
            2 if count == 1 => Kind::One,
            3 if count == 1 => Kind::Wanted,
            4 if count == 1 => Kind::Unwanted,
            _ => Kind::Each,
        };
        let acts = if depth > 0 { self.0.usize(..3) } else { 0 };
        Plan {
            kind,
            members,
            ms: self.0.u64(1..20),
            then: (0..acts).map(|_| self.act(depth)).collect(),
            then_panics: self.0.u8(..16) == 0,
        }
    }
}

struct Model<V: Value> {
    world: Arc<World<V>>,
    reference: Reference,
    steps: Steps,
}

impl<V: Value> Model<V> {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let shards = [1, 2, 8][random.usize(..3)];
        let max = [None, Some(5)][random.usize(..2)];
        let keys_max = [KEYS as usize, 3][random.usize(..2)];
        let world = World::new(shards, max, keys_max);
        world.watermarks.waits().times(); // times are recorded from here on
        Model {
            world,
            reference: Reference::new(max, keys_max),
            steps: Steps(random),
        }
    }

    fn step(&mut self) {
        let step = self.steps.step();
        self.act(&step);
    }

    /// Does a step on both sides, and compares them.
    fn act(&mut self, step: &Act) {
        self.world.act(step);
        let seen = self.world.acting.take_log();
        self.reference.act(step);
        let expected = std::mem::take(&mut self.reference.log);
        assert_eq!(seen, expected, "{step:?}");
        self.compare();
    }

    fn compare(&self) {
        let watermarks = &self.world.watermarks;
        let reference = &self.reference;
        let mut waiting = Vec::new();
        for key in 0..KEYS {
            // 1. The value.
            let of = reference.values.get(&key).copied();
            let value = watermarks.value(&key).map(Value::number);
            assert_eq!(
                value.zip(watermarks.epoch(&key)),
                of,
                "value and epoch of {key}"
            );
            assert_eq!(watermarks.is_closed(&key), reference.closed.contains(&key));
            // 2. The waits for the key.
            let unmet = reference.unmet(key);
            let lowest = unmet.first().map(|&(threshold, _)| threshold);
            let found = watermarks.lowest_waiting(&key).map(Value::number);
            assert_eq!(found, lowest, "lowest of {key}");
            if reference.waiters(key) > 0 {
                waiting.push((key, reference.waiters(key)));
            }
        }
        assert_eq!(watermarks.keys(), reference.values.len());
        let waits = watermarks.waits();
        let stats = reference.stats();
        assert_eq!(waits.stats(), stats);
        crate::oracle::assert_timed(&waits.times(), &stats);
        assert_eq!(waits.len() as u64, stats.parked);
        assert_eq!(waits.keys(), waiting.len());
        let mut busiest = waits.snapshot(usize::MAX).busiest;
        busiest.sort_unstable();
        assert_eq!(busiest, waiting);
    }

    /// Polls all futures: exactly those of ended waits are ready.
    fn poll_all(&mut self) {
        for (number, end) in self.world.acting.poll_all() {
            assert_eq!(end, self.reference.take_end(number), "the end of {number}");
        }
    }

    /// Ends the case: all waits expire, and nothing is left.
    fn end(mut self) {
        while self.reference.is_waiting() {
            self.act(&Act::Pass(20));
        }
        self.poll_all();
        assert_eq!(self.world.watermarks.waits().len(), 0);
    }
}

fn run<V: Value>(seed: u64) {
    let mut model = Model::<V>::new(seed);
    for step in 0..STEPS_A_CASE {
        model.step();
        if step % 4 == 0 {
            model.poll_all();
        }
    }
    model.end();
}

#[test]
fn watermarks_agree_with_plain_lists() {
    run_cases("Watermarks", STEPS, STEPS_A_CASE, |seed| {
        if seed % 2 == 0 {
            run::<u64>(seed);
        } else {
            run::<i64>(seed);
        }
    });
}
