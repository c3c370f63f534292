//! Compares `Replies` and their scopes on a manual timer with a reference of plain lists that is
//! written from the documentation. Each random step is done by the real ones first. Wakers act,
//! too: they expect, deliver, fail and drop. After each step the records are compared (each wake
//! and result of a call, in order), then the counts, the keys that wait, and the number of live
//! values. The test makes 5000 steps times `TEST_EFFORT`, in CI a million. `MODEL_SEED` changes
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;
mod world;

use std::sync::Arc;

use fastrand::Rng;
use purgatory::{ReachResult, WaitError};

use self::{reference::Reference, world::World};
use crate::acting::run_cases;

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 400;
const KEYS: u64 = 4;
const SCOPES: usize = 3;

/// The end of a request, without its value.
type End = Result<(), WaitError>;

/// The addressee of a request: a key, or the scope that is in one of three places at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Key(u64),
    Scope(usize),
}

/// A step, or an act of a waker.
#[derive(Clone, Debug)]
enum Act {
    /// With the milliseconds until the timeout, the acts of the waker, and whether the waker panics
    /// then.
    Expect(To, u64, Arc<Vec<Act>>, bool),
    Deliver(u64),
    /// Delivers to a number of a scope, given by its distance from the last.
    DeliverIn(usize, u64),
    /// Delivers to all numbers of a scope up to this one, given by its distance from the last.
    DeliverUpTo(usize, u64),
    /// Moves a request to another scope: the first one, the distance of its number, the second one.
    Reassign(usize, u64, usize),
    /// Delivers to a number that the scope never handed out: 0, or the next one.
    DeliverUnasked(usize, bool),
    FailAll,
    FailScope(usize),
    Close(usize),
    /// Drops the scope, and puts another in its place.
    Replace(usize),
    /// Drops the future of a request; 0 is the latest.
    Drop(usize),
    Cancel(usize),
    Reschedule(usize, u64),
    Pass(u64),
}

/// A record of something that happened.
#[derive(Clone, Debug, PartialEq)]
enum Saw {
    Woken(usize),
    /// A request came; `true` if it was over at once.
    Came(usize, bool),
    Refused(usize, WaitError),
    Delivered(bool),
    /// A delivery in a scope was refused; `true` if it was late.
    Late(bool),
    Failed(usize),
    Confirmed(usize),
    Reassigned(Result<u64, WaitError>),
    Attempt(ReachResult),
    Rescheduled(bool),
}

/// Makes random steps.
struct Steps(Rng);

impl Steps {
    fn step(&mut self) -> Act {
        match self.0.u8(..16) {
            0..6 => self.expect(2),
            6 | 7 => Act::Pass(self.0.u64(1..4)),
            _ => self.act(2),
        }
    }

    fn acts(&mut self, depth: u32) -> Arc<Vec<Act>> {
        let count = if depth > 0 { self.0.usize(..3) } else { 0 };
        Arc::new((0..count).map(|_| self.act(depth - 1)).collect())
    }

    fn expect(&mut self, depth: u32) -> Act {
        let to = if self.0.bool() {
            To::Key(self.0.u64(..KEYS))
        } else {
            To::Scope(self.0.usize(..SCOPES))
        };
        let ms = [0, 1, 5, 20, 20, 20][self.0.usize(..6)];
        Act::Expect(to, ms, self.acts(depth), self.0.u8(..16) == 0)
    }

    /// Returns an act that is legal anywhere; wakers act at most `depth` levels deep.
    fn act(&mut self, depth: u32) -> Act {
        let key = self.0.u64(..KEYS);
        let scope = self.0.usize(..SCOPES);
        let back = self.0.usize(..8);
        match self.0.u8(..22) {
            0..3 => self.expect(depth),
            3..6 | 10 => Act::Deliver(key),
            6..9 => Act::DeliverIn(scope, self.0.u64(..4)),
            9 => Act::DeliverUnasked(scope, self.0.bool()),
            11 => Act::FailAll,
            12 => Act::FailScope(scope),
            13 if self.0.bool() => Act::Close(scope),
            13 => Act::Replace(scope),
            14 | 15 => Act::Drop(back),
            16 => Act::Cancel(back),
            17 => Act::DeliverUpTo(scope, self.0.u64(..4)),
            18 | 19 => Act::Reassign(scope, self.0.u64(..4), self.0.usize(..SCOPES)),
            _ => Act::Reschedule(back, self.0.u64(1..20)),
        }
    }
}

struct Model {
    world: Arc<World>,
    reference: Reference,
    steps: Steps,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let max = [None, Some(3)][random.usize(..2)];
        let world = World::new(max);
        for scoped in [false, true] {
            world.times(scoped); // times are recorded from here on
        }
        Model {
            world,
            reference: Reference::new(max),
            steps: Steps(random),
        }
    }

    /// Does a step on both sides, and compares them.
    fn act(&mut self, step: &Act) {
        self.world.act(step);
        self.reference.seen = self.world.acting.take_log();
        self.reference.act(step);
        let expected = std::mem::take(&mut self.reference.log);
        assert_eq!(self.reference.seen, expected, "{step:?}");
        self.compare();
    }

    fn compare(&self) {
        for scoped in [false, true] {
            let mut stats = self.world.stats(scoped);
            crate::oracle::assert_timed(&self.world.times(scoped), &stats);
            stats.events = 0; // replies count none
            assert_eq!(stats, self.reference.stats(scoped), "scoped: {scoped}");
        }
        assert_eq!(self.world.keys(), self.reference.keys());
        assert_eq!(self.world.values(), self.reference.values(), "values");
    }

    /// Polls all futures: exactly those of ended requests are ready.
    fn poll_all(&mut self) {
        for (number, end) in self.world.acting.poll_all() {
            assert_eq!(end, self.reference.take_end(number), "the end of {number}");
        }
        self.compare();
    }

    /// Ends the case: all requests expire, and nothing is left.
    fn end(mut self) {
        while self.world.keys() != (0, 0) {
            self.act(&Act::Pass(20));
        }
        self.poll_all();
        assert_eq!(self.world.values(), 0);
    }
}

#[test]
fn replies_agree_with_plain_lists() {
    run_cases("Replies", STEPS, STEPS_A_CASE, |seed| {
        let mut model = Model::new(seed);
        for step in 0..STEPS_A_CASE {
            let act = model.steps.step();
            model.act(&act);
            if step % 4 == 0 {
                model.poll_all();
            }
        }
        model.end();
    });
}
