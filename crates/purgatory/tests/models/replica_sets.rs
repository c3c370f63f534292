//! Compares `ReplicaSets` with a plain reference that is written from the documentation, by random
//! calls for one group. Most calls are about members that come late, lag, have left or are of
//! another epoch. After each call its result, the watermark, the epoch, the members and the waits
//! are compared. The test makes 5000 steps times `TEST_EFFORT`, in CI a million. `MODEL_SEED`
//! changes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;

use std::{task::Waker, time::Duration};

use fastrand::Rng;
use purgatory::{ReplicaSets, Rule, WaitError, WaitFuture};
use timer_core::ManualTimer;

use self::reference::{Group, Reference};
use crate::acting::{poll, run_cases};

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 200;
const GROUP: u32 = 7;
const MEMBERS: u8 = 5;

/// A member and its value.
type Has = (u8, u64);

/// The result of a call: the number of waits that it ended.
type Called = Result<usize, WaitError>;

/// The rule of a set, as plain numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Plain {
    /// The number of members that have to report; 0 for all, `None` for a majority.
    needed: Option<usize>,
    floor: usize,
}

impl Plain {
    fn rule(self) -> Rule {
        let rule = match self.needed {
            None => Rule::majority(),
            Some(0) => Rule::all(),
            Some(k) => Rule::at_least(k),
        };
        rule.floor(self.floor)
    }
}

struct Model {
    timer: ManualTimer,
    sets: ReplicaSets<u32, u8>,
    reference: Reference,
    futures: Vec<Option<WaitFuture<u64>>>,
    random: Rng,
}

impl Model {
    fn new(seed: u64) -> Self {
        let timer = ManualTimer::new();
        let builder = ReplicaSets::builder("model").timer(&timer);
        let sets: ReplicaSets<_, _> = builder.build().unwrap();
        sets.waits().times(); // times are recorded from here on
        Model {
            sets,
            timer,
            reference: Reference::default(),
            futures: Vec::new(),
            random: Rng::with_seed(seed),
        }
    }

    /// Returns a value near the watermark.
    fn value(&mut self) -> u64 {
        (self.reference.reached() + self.random.u64(..6)).saturating_sub(2)
    }

    fn has(&mut self) -> Has {
        (self.random.u8(..MEMBERS), self.value())
    }

    /// Returns an epoch near the present one.
    fn epoch(&mut self) -> u64 {
        (self.reference.epoch().unwrap_or(0) + self.random.u64(..3)).saturating_sub(1)
    }

    /// Makes a call on both sides, and compares the results.
    fn step(&mut self) {
        let (member, value) = self.has();
        let epoch = self.epoch();
        let mut named = epoch;
        if self.random.bool() {
            named = self.reference.epoch().unwrap_or(0);
        }
        let call = self.random.u8(..32);
        let sets = &self.sets;
        let group = sets.in_epoch(&GROUP, named);
        let reference = &mut self.reference;
        let (done, expected) = match call {
            0 | 1 => self.set(epoch),
            31 if epoch % 4 == 0 => (sets.follow(&GROUP, epoch), reference.follow(epoch)),
            2 => (
                sets.begin_epoch(&GROUP, epoch, &member, value),
                reference.begin(epoch, (member, value)),
            ),
            3..15 => (
                group.report(&member, value),
                reference.change(named, |group| group.report((member, value))),
            ),
            15..=17 | 19 => (
                group.join(member, value),
                reference.change(named, |group| group.join((member, value))),
            ),
            18 => (
                group.leave(&member),
                reference.change(named, |group| group.leave(member)),
            ),
            20 => (
                Ok(sets.cancel_below_floor(&GROUP)),
                Ok(reference.cancel_below_floor()),
            ),
            21 if epoch % 8 == 0 => (Ok(sets.remove(&GROUP)), Ok(reference.remove())),
            22 if epoch % 8 == 0 => (Ok(sets.close(&GROUP, "closed")), Ok(reference.close())),
            23..28 => {
                let wait = group.wait_for(value, Duration::MAX);
                self.futures.push(Some(wait));
                reference.wait(named, value);
                (Ok(0), Ok(0))
            }
            28 if !self.futures.is_empty() => {
                let number = self.random.usize(..self.futures.len());
                self.futures[number] = None;
                reference.drop_future(number);
                (Ok(0), Ok(0))
            }
            29 => self.set_rule(named),
            _ => {
                self.look();
                (Ok(0), Ok(0))
            }
        };
        assert_eq!(done, expected, "call {call} of {member}: {value}");
        self.compare();
    }

    fn plain(&mut self) -> Plain {
        Plain {
            needed: [None, Some(0), Some(0), Some(2)][self.random.usize(..4)],
            floor: self.random.usize(1..4),
        }
    }

    fn set_rule(&mut self, named: u64) -> (Called, Called) {
        let plain = self.plain();
        let set_rule = |group: &mut Group| group.set_rule(plain);
        (
            self.sets.in_epoch(&GROUP, named).set_rule(plain.rule()),
            self.reference.change(named, set_rule),
        )
    }

    fn set(&mut self, epoch: u64) -> (Called, Called) {
        let members: Vec<_> = (0..self.random.u8(..5)).map(|_| self.has()).collect();
        let log_end = self.value();
        let plain = self.plain();
        let of = members.clone();
        (
            self.sets.set(&GROUP, epoch, of, log_end, plain.rule()),
            self.reference.set(epoch, members, log_end, plain),
        )
    }

    /// Lets time pass, and compares the members that lag.
    fn look(&mut self) {
        let seconds = self.random.u64(..3);
        self.timer.advance(Duration::from_secs(seconds));
        self.reference.now_s += seconds;
        let mut shown = Vec::new();
        for (member, value, lagged_for) in self.sets.lagging(&GROUP) {
            shown.push((member, value, lagged_for.as_secs()));
        }
        assert_eq!(shown, self.reference.lagging(), "who lags");
    }

    fn compare(&mut self) {
        let reference = &self.reference;
        let sets = &self.sets;
        assert_eq!(sets.watermark(&GROUP), reference.watermark());
        assert_eq!(sets.epoch(&GROUP), reference.epoch());
        assert_eq!(sets.members(&GROUP), reference.members());
        assert_eq!(sets.below_floor(&GROUP), reference.below_floor());
        let waits = sets.waits();
        assert_eq!(waits.len(), reference.waiting.len());
        crate::oracle::assert_timed(&waits.times(), &waits.stats());
        for (number, place) in self.futures.iter_mut().enumerate() {
            let Some(future) = place else { continue };
            let end = poll(future, Waker::noop());
            assert_eq!(end, reference.ends[number], "wait {number}");
            if end.is_some() {
                *place = None;
            }
        }
    }
}

#[test]
fn replica_sets_agree_with_plain_lists() {
    run_cases("ReplicaSets", STEPS, STEPS_A_CASE, |seed| {
        let mut model = Model::new(seed);
        for _ in 0..STEPS_A_CASE {
            model.step();
        }
    });
}
