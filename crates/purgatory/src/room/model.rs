//! Two rooms against plain lists ([`reference`]): random steps as threads make them, one lock hold
//! each, so whatever may come between two lock holds of an operation does. Each room is the first
//! room of half the keys, so that operations with several keys are foreign waiters of the other.
//!
//! After every step all links are walked (`assert_valid`), and what was walked is compared: for
//! each key the plain waiters, those met and those not met, in order; each entry with its notes,
//! deadline and tickets; what the wheel has next; every count; and that no key's clone is kept or
//! lost. Each step also compares what its calls returned, and what a walk found.
//!
//! Keys come in pairs that share a hash, and their `Eq` and `Clone` panic now and then. How often
//! each rare path was taken is printed, and with [`ALL_PATHS`] steps or more one never taken fails
//! the test. `TEST_EFFORT` says how many steps to make: 5000 without it, a million in CI;
//! `MODEL_SEED` makes others. A failure tells the seed of its case.

pub(in crate::room) mod reference;
mod steps;
mod time;

use std::{
    panic::{catch_unwind, resume_unwind},
    rc::Rc,
};

use reference::{Paths, Reference};
use timer_core::{TaskId, TickLength, TimerHandle, TimingWheel, WheelSize};

use super::{CheckedOut, Ticket, Timed, Times, Watch, Watermark, keys::KEPT_KEYS};

const HOMES: usize = 2;

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// So many steps take every path.
const ALL_PATHS: u64 = 100_000;

/// And with many operations so many times as often.
const STEPS_A_CASE: u64 = 400;
const TIMES_WITH_MANY: u64 = 4;

/// Paths that are counted.
const PATHS: usize = 45;

/// A key; the even ones have room 0 as their first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::room) struct Number(u16);

impl Number {
    fn room(self) -> usize {
        usize::from(self.0) % HOMES
    }

    /// Of each room's keys two share one.
    fn hash(self) -> u64 {
        u64::from(self.0 / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug)]
struct Key {
    number: Number,
    alive: Rc<()>,
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Key { number: self.number, alive: self.alive.clone() }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

type Room = super::Room<Key, u64>;

/// An operation whose parker has watches still to set.
struct Arriving {
    id: TimerHandle,
    payload: u64,
    tickets: Vec<Ticket>,
    to_watch: Vec<(Number, Option<Watermark>)>,
}

struct Model {
    rooms: [Room; HOMES],
    reference: Reference,
    random: fastrand::Rng,
    alive: Rc<()>,
    /// How many keys there are, how many operations at most, and at most at the moment.
    keys: u16,
    many: u16,
    most: usize,
    now: u64,
    made: u64,
    /// Thresholds are between this and so much above; what is taken is so much behind.
    watermark: u64,
    spread: u64,
    behind: u64,
    /// Of the operation parked last, where order matters over both rooms.
    sequence: Option<u64>,
    arriving: Vec<Arriving>,
    /// In a thread's hands.
    held: Vec<CheckedOut<u64>>,
    /// Watermark watches taken, still to be counted down, or to be cancelled.
    taken: Vec<(TimerHandle, bool)>,
    many_keys: bool,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let size = WheelSize::new([2, 4, 20][random.usize(..3)]).unwrap();
        let now = random.u64(..1000);
        let rooms = [0, 1].map(|number| {
            let phase = random.u64(1..9); // so that u64::MAX is never
            let mut room = Room::new(number, TimingWheel::with_phase(size, now, phase));
            let begin =
                || Box::new(Timed { times: Times::default(), tick: TickLength::MILLISECOND });
            room.timed = random.bool().then(begin);
            room
        });
        let (keys, many) = match random.u8(..16) {
            0 => (400, 300),
            1 => (2, 200),
            of => ([2, 8, 16][usize::from(of) % 3], 24),
        };
        Model {
            rooms,
            reference: Reference::default(),
            alive: Rc::new(()),
            keys,
            many,
            most: 0,
            now,
            made: 0,
            watermark: 0,
            spread: [2, 24][random.usize(..2)],
            behind: [8, 100][random.usize(..2)],
            sequence: random.bool().then_some(u64::from(u32::MAX) - 20),
            arriving: Vec::new(),
            held: Vec::new(),
            taken: Vec::new(),
            many_keys: false,
            random,
        }
    }

    fn key(&self, number: Number) -> Key {
        Key { number, alive: self.alive.clone() }
    }

    /// What only reads a room, and runs the key's own code.
    fn look_up<T>(&self, key: Number, look: impl FnOnce(&Room, &Key) -> T) -> T {
        look(&self.rooms[key.room()], &self.key(key))
    }

    /// The present, for what ends.
    fn now_ns(&self) -> Option<u64> {
        Some(self.now * 1_000_000)
    }

    /// After a step.
    fn compare(&mut self) {
        let mut key_count = 0;
        for (number, room) in self.rooms.iter_mut().enumerate() {
            room.entries.wheel.assert_valid();
            let first_room = &self.reference.homes[number];
            let found = room.assert_valid();
            let count = found.len();
            let found = found.into_iter().map(|(key, waiting)| (key.number, waiting)).collect();
            assert_eq!(first_room.keys, found, "waiters in room {number}");
            assert_eq!((count, room.key_count()), (first_room.keys.len(), first_room.keys.len()));
            for (key, waiters) in room.waiters_by_key() {
                assert_eq!(waiters, first_room.keys[&key.number].len());
            }
            assert_eq!(room.counts, first_room.counts);
            let times =
                room.timed.as_ref().map_or_else(Times::default, |timed| timed.times.clone());
            assert_eq!(times, first_room.times);
            let arriving = self.arriving.iter().flat_map(|arriving| &arriving.tickets);
            let arriving = arriving.filter(|ticket| ticket.room as usize == number).count();
            assert_eq!(room.watched(), self.reference.watched(number) + arriving);
            let walks = self.reference.walks.iter().filter(|walk| walk.room == number).count();
            assert_eq!(room.rest.walks.len(), walks, "a walk that is over is forgotten");
            key_count += count;
            self.many_keys |= count > KEPT_KEYS;
            let all = self.reference.all.iter().filter(|parked| parked.id.shard() == number);
            assert_eq!(room.len(), all.clone().count());
            let deadlines = all.filter(|parked| parked.scheduled).map(|parked| parked.armed);
            let (first, next_due) = (deadlines.min(), room.entries.wheel.next_due());
            assert_eq!(next_due.is_some(), first.is_some());
            let latest = first.map(|deadline| deadline.max(room.entries.wheel.now()));
            assert!(next_due <= latest, "{next_due:?}, {latest:?}");
        }
        let few_again = self.many_keys && key_count < KEPT_KEYS / 8;
        self.many_keys &= !few_again;
        self.reference.count_if(few_again, "many keys, then few");
        assert_eq!(Rc::strong_count(&self.alive), 1 + key_count, "clones of keys");
        self.compare_entries();
    }

    fn compare_entries(&mut self) {
        for parked in &self.reference.all {
            let room = &mut self.rooms[parked.id.shard()];
            let in_bucket = room.entries.wheel.bucket_of(parked.id.id()).is_some();
            assert!(parked.scheduled || !in_bucket);
            let entry = room.get_mut(parked.id).unwrap();
            assert_eq!(entry.deadline, parked.deadline);
            assert_eq!(entry.further, parked.tickets.last().copied());
            assert_eq!(entry.is_held(), parked.held);
            assert_eq!(entry.is_ending(), parked.end.is_some());
            assert_eq!(entry.age_ns(parked.parked_ns + 7), 7);
        }
        for (number, room) in self.rooms.iter().enumerate() {
            let parked = self.reference.all.iter().filter(|parked| parked.id.shard() == number);
            let scheduled = parked.filter(|parked| parked.scheduled).count();
            assert_eq!(room.entries.wheel.scheduled_count(), scheduled);
        }
    }

    /// Ends all; nothing is left.
    fn end(mut self) -> Paths {
        self.most = 0;
        let mut from = 0;
        while let Some(id) = (0..HOMES).find_map(|room| self.rooms[room].first_from(from)) {
            from = 0;
            if let Some(at) = self.arriving.iter().position(|arriving| arriving.id == id) {
                self.withdraw(at);
            } else if let Some(at) = self.held.iter().position(|held| held.id == id) {
                self.give_back(at);
            } else {
                self.claim(id);
            }
            self.compare();
        }
        while !self.reference.leaving.is_empty() {
            self.release(0);
        }
        self.compare();
        let left = |room: &Room| (room.len(), room.key_count(), room.watched());
        assert!(self.rooms.iter().all(|room| left(room) == (0, 0, 0)));
        self.reference.paths
    }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var_os(name)?;
    let number = value.to_str().and_then(|value| value.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name}={} is no number", value.to_string_lossy())))
}

#[test]
fn two_rooms_agree_with_plain_lists() {
    let times = number("TEST_EFFORT").unwrap_or(1);
    let steps = STEPS.checked_mul(times).expect("TEST_EFFORT is too much");
    assert!(steps > 0, "TEST_EFFORT=0 would test nothing");
    let seed = number("MODEL_SEED").unwrap_or(0);
    let (mut counted, mut made, mut case) = (Paths::new(), 0, seed);
    while made < steps {
        let run = || {
            let mut model = Model::new(case);
            let times = if model.many > 100 { TIMES_WITH_MANY } else { 1 };
            (0..times * STEPS_A_CASE).for_each(|_| model.step());
            (model.made, model.end())
        };
        let (steps, paths) = catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("MODEL_SEED={case} fails alike at once");
            resume_unwind(panic)
        });
        made += steps;
        case += 1;
        paths.into_iter().for_each(|(path, count)| *counted.entry(path).or_default() += count);
    }
    println!("{made} steps: {counted:#?}");
    assert!(counted.len() <= PATHS, "a path that nobody expects");
    if steps >= ALL_PATHS {
        let never = counted.iter().find(|&(_, &count)| count == 0);
        assert_eq!((never, counted.len()), (None, PATHS), "a path never taken");
    }
}
