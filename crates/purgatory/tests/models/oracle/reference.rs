//! The reference: what the documentation promises, in plain lists, on one thread. Every question is
//! a scan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use purgatory::{CancelReason, Outcome, Stats, WaitError};

use super::steps::{Key, MANY_KEYS, Request, Saw, Setup, Values};

/// How often each path was taken.
pub type Paths = BTreeMap<&'static str, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In its first check.
    New,
    Parked,
    UnderCheck,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    Plain,
    Unmet { threshold: u64, counted: bool },
    Met { order: u64 },
    Taken,
}

#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub key: Key,
    /// Counts up with each watch.
    pub order: u64,
    pub watching: Watching,
}

/// The two sides of a future.
#[derive(Clone, Debug)]
pub enum Slot {
    Waiting { polled: bool },
    Filled(Result<u32, WaitError>),
    Left,
}

pub struct Operation {
    pub request: Request,
    pub state: State,
    pub look: u32,
    pub flag: bool,
    /// How it is to end when the check it is under is over.
    pub noted: Option<Outcome>,
    pub watches: Vec<Watch>,
    /// Watermarks still to be counted.
    pub to_count: usize,
    pub deadline: Option<u64>,
    /// Of a wait.
    pub slot: Option<Slot>,
    pub value: Option<u32>,
    /// Among `max_parked`.
    pub has_place: bool,
}

/// What waits for the outermost call to return.
pub enum Work {
    Tell(usize, Outcome),
    Event(Key),
    EventForOne(Key),
    Rise(Key, u64),
}

/// What the executor keeps.
pub enum Job {
    Tell(Vec<usize>, Outcome),
    /// So many of those that a shutdown ended.
    TellClosed(usize),
    /// What went beyond a call's budget.
    Rest(VecDeque<Work>),
}

impl Job {
    /// How many callbacks wait in it.
    pub fn callbacks(&self) -> u64 {
        match self {
            Job::Tell(numbers, _) => numbers.len() as u64,
            Job::TellClosed(count) => *count as u64,
            Job::Rest(_) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    No,
    Panics,
}

#[derive(Default)]
pub struct Reference {
    pub setup: Setup,
    pub tick_ns: u64,
    pub now_ns: u64,
    /// Where the running advance is going.
    pub goal_ns: Option<u64>,
    pub all: Vec<Operation>,
    /// Those not over, in the order they were parked.
    pub parked: Vec<usize>,
    /// Handed out with each watch and each watermark met.
    pub order: u64,
    /// Places taken of `max_parked`.
    pub places: usize,
    /// Inside a call, and what is to follow it.
    pub inside: bool,
    pub queue: VecDeque<Work>,
    pub jobs: VecDeque<Job>,
    pub closed: bool,
    /// Operations that were neither told how they ended nor handed back.
    pub alive: usize,
    /// Handles, and whether one of them is to be had.
    pub handles: usize,
    pub handle: bool,
    pub values: Values,
    /// Operations whose ids are known, and those whose futures are at hand.
    pub ids: Vec<usize>,
    pub futures: BTreeSet<usize>,
    pub stats: Stats,
    /// The events expected in this step.
    pub log: Vec<Saw>,
    /// What was seen in this step, and the order in which operations were dropped.
    pub seen: Vec<Saw>,
    pub dropped: Vec<usize>,
    pub shut_down: bool,
    /// Ended by a shutdown, and not told yet.
    pub closing: Vec<usize>,
    /// How many events each hash of keys has had.
    pub versions: Vec<u64>,
    pub paths: Paths,
}

impl Reference {
    pub fn new(setup: &Setup) -> Self {
        Reference {
            setup: setup.clone(),
            tick_ns: setup.tick_ns,
            now_ns: setup.start_ns,
            handles: 1,
            handle: true,
            versions: vec![0; 49],
            ..Reference::default()
        }
    }

    pub fn count(&mut self, path: &'static str) {
        self.count_if(true, path);
    }

    /// A path not taken is known by its name, too.
    pub fn count_if(&mut self, condition: bool, path: &'static str) {
        *self.paths.entry(path).or_default() += u64::from(condition);
    }

    pub fn at(&mut self, number: usize) -> &mut Operation {
        &mut self.all[number]
    }

    /// Those who wait under each key up to the last of the many: one for each watch not taken.
    pub fn waiters(&self) -> Vec<usize> {
        let mut waiters = vec![0; MANY_KEYS as usize + 400];
        for &number in &self.parked {
            for watch in &self.all[number].watches {
                waiters[watch.key as usize] += usize::from(watch.watching != Watching::Taken);
            }
        }
        waiters
    }
}

pub const SHUTDOWN: Outcome = Outcome::Cancelled(CancelReason::Shutdown);
pub const DROPPED: Outcome = Outcome::Cancelled(CancelReason::Dropped);
pub const PANICKED: Outcome = Outcome::Cancelled(CancelReason::Panicked);

pub fn requested(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}
