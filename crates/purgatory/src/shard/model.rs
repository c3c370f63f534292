//! A model test: two shards against plain lists ([`reference`]). It makes random steps, each one
//! lock hold, so any step may come between two lock holds of an operation. Each shard is the first
//! shard of half the keys, so operations with several keys are foreign waiters of the other.
//!
//! After every step all links are walked (`assert_valid`), and these are compared: for each key the
//! plain waiters, those in turn, the met and the unmet ones, in order; each entry with its flags,
//! deadline and secondary watches; the wheel's next tick; every count; and that no key's clone is
//! kept or lost. Each step also compares the results of its calls, and the waiters that a walk
//! found.
//!
//! The test prints how often each rare path was taken. With [`ALL_PATHS`] steps or more a path
//! never taken fails it. `TEST_EFFORT` multiplies the steps: 5000 without it, a million in CI.
//! `MODEL_SEED` starts with another case. A failure prints the seed of its case.

mod futures;
mod reach;
pub(in crate::shard) mod reference;
mod steps;
mod time;

use std::{
    panic::{catch_unwind, resume_unwind},
    rc::Rc,
    sync::Arc,
};

use futures::Operation;
use reference::{Linked, Parked, Paths, Reference};
use timer_core::{TimerHandle, TimingWheel, WheelSize};

use super::{CheckedOut, WalkId, Watch, Watermark};

const HOMES: usize = 2;

/// Steps without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// Steps that are enough to take every path.
const ALL_PATHS: u64 = 100_000;

const STEPS_A_CASE: u64 = 600;

/// The number of rare paths that are counted.
const PATHS: usize = 35;

/// A key; the even ones have shard 0 as their first. Keys come in pairs that share a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shard) struct Number(u16);

impl Number {
    fn shard(self) -> usize {
        usize::from(self.0) % HOMES
    }

    fn hash(self) -> u64 {
        u64::from(self.0 / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A key as a shard stores it.
#[derive(Clone, Debug)]
struct Key {
    number: Number,
    /// Each clone holds one.
    #[allow(dead_code, reason = "they are counted")]
    alive: Rc<()>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

type Shard = super::Shard<Key, Operation>;

struct Model {
    shards: [Shard; HOMES],
    reference: Reference,
    random: fastrand::Rng,
    alive: Rc<()>,
    /// Each waker's task holds one.
    tasks: Arc<()>,
    keys: u16,
    /// Operations at most.
    many: u16,
    /// Operations at most until `step` chooses another bound.
    most: usize,
    now: u64,
    made: u64,
    /// The lowest threshold of a new watch.
    watermark: u64,
    /// Thresholds are less than this above it.
    spread: u64,
    /// Values are up to this below a threshold.
    behind: u64,
    /// Payloads that a thread, or a queued job, holds.
    held: Vec<CheckedOut<Operation>>,
    /// Payloads of operations that have ended, for which user code makes the answers.
    unmade: Vec<(TimerHandle, Operation)>,
    /// Operations whose watermark watch was taken: to be counted down or, if true, cancelled.
    taken: Vec<(TimerHandle, bool)>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let size = WheelSize::new([2, 4, 20][random.usize(..3)]).unwrap();
        let now = random.u64(..1000);
        let shards = [0, 1].map(|number| {
            let phase = random.u64(1..9); // so that u64::MAX is never
            Shard::new(number, TimingWheel::with_phase(size, now, phase))
        });
        let (keys, many) = match random.u8(..16) {
            0 => (400, 300),
            1 => (2, 200),
            of => ([2, 8, 16][usize::from(of) % 3], 24),
        };
        Model {
            shards,
            reference: Reference::default(),
            alive: Rc::new(()),
            tasks: Arc::new(()),
            keys,
            many,
            most: 0,
            now,
            made: 0,
            watermark: 0,
            spread: [2, 24][random.usize(..2)],
            behind: [8, 100][random.usize(..2)],
            held: Vec::new(),
            unmade: Vec::new(),
            taken: Vec::new(),
            random,
        }
    }

    fn key(&self, number: Number) -> Key {
        Key {
            number,
            alive: self.alive.clone(),
        }
    }

    /// Finds the record of a key that has waiters.
    fn find(&self, key: Number) -> Option<u32> {
        let found = self.shards[key.shard()].find(&self.key(key), key.hash());
        assert_eq!(
            found.is_some(),
            self.reference.homes[key.shard()].keys.contains_key(&key)
        );
        found
    }

    /// Compares the shards with the reference.
    fn compare(&mut self) {
        let mut key_count = 0;
        for (number, shard) in self.shards.iter_mut().enumerate() {
            // 1. The wheel: what is on it, and its next tick.
            let expected = &self.reference.homes[number];
            let wheel = &mut shard.entries.wheel;
            wheel.assert_valid();
            let of_shard = |parked: &&Parked| parked.id.shard() == number;
            let all = self.reference.all.iter().filter(of_shard);
            let scheduled = all.clone().filter(|parked| parked.scheduled);
            let first = scheduled
                .clone()
                .map(|parked| parked.armed.max(wheel.now()))
                .min();
            let next_due = wheel.next_due();
            assert!(
                next_due <= first && next_due.is_some() == first.is_some(),
                "{next_due:?}"
            );
            assert_eq!(wheel.scheduled_count(), scheduled.count());
            // 2. The counts, and the walks under way.
            assert_eq!(shard.len(), all.count());
            assert_eq!(shard.watched(), self.reference.watched(number));
            let answered = self.reference.answered.iter();
            let answered = answered.filter(|answered| answered.id.shard() == number);
            assert_eq!(shard.entries.ended as usize, answered.count());
            assert_eq!(shard.counts, expected.counts);
            assert_eq!(shard.cold.taken, expected.taken);
            assert_eq!(shard.cold.other_ends, expected.other_ends);
            let walks = self
                .reference
                .walks
                .iter()
                .filter(|walk| walk.shard == number)
                .count();
            assert_eq!(
                shard.cold.walks.len(),
                walks,
                "a walk that is over is forgotten"
            );
            // 3. The waiters of each key.
            let found = shard.assert_valid().into_iter();
            let found = found.map(|(key, waiting)| (key.number, waiting)).collect();
            assert_eq!(expected.keys, found, "waiters in shard {number}");
            assert_eq!(shard.key_count(), expected.keys.len());
            for (key, waiters) in shard.waiters_by_key() {
                assert_eq!(waiters, expected.keys[&key.number].len());
            }
            key_count += shard.key_count();
        }
        assert_eq!(
            Rc::strong_count(&self.alive),
            1 + key_count,
            "clones of keys"
        );
        self.compare_entries();
    }

    /// Compares each entry with its operation.
    fn compare_entries(&mut self) {
        for parked in &self.reference.all {
            let entry = self.shards[parked.id.shard()].get_mut(parked.id).unwrap();
            let last_secondary = parked.tickets.last().filter(|_| parked.to_watch.is_none());
            assert_eq!(entry.last_secondary, last_secondary.copied());
            assert_eq!(entry.deadline, parked.deadline);
            assert_eq!(
                (entry.is_held(), entry.is_ending()),
                (parked.held, parked.end.is_some())
            );
        }
        for answered in &self.reference.answered {
            let shard = &mut self.shards[answered.id.shard()];
            let in_turn = shard.check_out_in_turn(answered.id, super::TurnCause::HeadLeft);
            assert!(
                in_turn.is_none() && shard.get_mut(answered.id).is_none(),
                "an operation that has ended is its future's"
            );
        }
    }

    /// Ends all operations, and asserts that nothing is left.
    fn end(mut self) -> Paths {
        // 1. Every operation, by whatever holds it, or from outside.
        while let Some(id) = (0..HOMES).find_map(|shard| self.shards[shard].first_from(0)) {
            if self.reference.has_answer(id) {
                self.abandon(id);
            } else if self
                .reference
                .get(id)
                .is_some_and(|parked| parked.to_watch.is_some())
            {
                self.withdraw(id);
            } else if let Some(at) = self.held.iter().position(|held| held.handle == id) {
                self.check_in(at);
            } else {
                self.claim(id);
            }
            self.compare();
        }
        // 2. Secondary watches of operations that have ended, and the wakers.
        while !self.reference.leaving.is_empty() {
            self.release(0);
        }
        self.compare();
        drop(std::mem::take(&mut self.reference.answered));
        assert_eq!(Arc::strong_count(&self.tasks), 1, "wakers");
        let left = |shard: &Shard| (shard.len(), shard.key_count(), shard.watched());
        assert!(self.shards.iter().all(|shard| left(shard) == (0, 0, 0)));
        self.reference.paths
    }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var_os(name)?;
    let number = value.to_str().and_then(|value| value.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name}={} is no number", value.to_string_lossy())))
}

#[test]
fn two_shards_agree_with_plain_lists() {
    let times = number("TEST_EFFORT").unwrap_or(1);
    let steps = STEPS.checked_mul(times).expect("TEST_EFFORT is too much");
    assert!(steps > 0, "TEST_EFFORT=0 would test nothing");
    let mut counted = Paths::new();
    let mut made = 0;
    let mut case = number("MODEL_SEED").unwrap_or(0);
    while made < steps {
        // A case has a seed of its own, which a failure prints.
        let run = || {
            let mut model = Model::new(case);
            for _ in 0..STEPS_A_CASE {
                model.step();
            }
            (model.made, model.end())
        };
        let (steps, paths) = catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("MODEL_SEED={case} fails alike at once");
            resume_unwind(panic)
        });
        made += steps;
        case += 1;
        for (path, count) in paths {
            *counted.entry(path).or_default() += count;
        }
    }
    println!("{made} steps: {counted:#?}");
    assert!(counted.len() <= PATHS, "a path that nobody expects");
    if steps >= ALL_PATHS {
        let never = counted.iter().find(|&(_, &count)| count == 0);
        assert_eq!((never, counted.len()), (None, PATHS), "a path never taken");
    }
}
