//! The reference: the promises of the documentation on plain lists and one thread. Every question
//! is a scan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use purgatory::{CancelReason, Outcome, Stats};

use super::{
    acts::{Call, Known, Side},
    steps::{Key, MANY_KEYS, Request, Returned, Saw, Setup},
};

/// The number of times that each path was taken.
pub type Paths = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In its first check.
    New,
    Parked,
    UnderCheck,
    Over,
}

#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub key: Key,
    /// Orders watches by parking.
    pub order: u64,
}

/// One parking of an operation, which has another handle once it is taken out and parked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    pub number: usize,
    pub parkings: u32,
}

pub struct Operation {
    pub request: Request,
    pub state: State,
    /// How many times it was parked.
    pub parkings: u32,
    pub look: u32,
    /// The end that was requested during its check.
    pub pending_end: Option<Outcome>,
    pub watches: Vec<Watch>,
    pub deadline: Option<u64>,
    /// Whether it counts towards `max_parked`.
    pub has_place: bool,
}

impl Operation {
    pub fn new(request: Request) -> Self {
        Operation {
            request,
            state: State::New,
            parkings: 0,
            look: 0,
            pending_end: None,
            watches: Vec::new(),
            deadline: None,
            has_place: false,
        }
    }
}

/// Work that the outermost call does before it returns.
pub enum Work {
    CallBack(usize, Outcome),
    Event(Key, Event),
}

/// The reach of an event.
#[derive(Clone, Copy)]
pub enum Event {
    All,
    One,
}

/// A job that the executor keeps.
pub enum Job {
    CallBack(Vec<usize>, Outcome),
    /// This number of operations that a shutdown ended.
    CallBackClosed(usize),
    /// Work beyond a call's budget.
    Rest(VecDeque<Work>),
}

impl Job {
    /// Returns the number of callbacks in the job.
    pub fn callbacks(&self) -> u64 {
        match self {
            Job::CallBack(numbers, _) => numbers.len() as u64,
            Job::CallBackClosed(count) => *count as u64,
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
    pub known: Known,
    pub now_ns: u64,
    /// The time to which the running advance goes.
    pub goal_ns: Option<u64>,
    pub all: Vec<Operation>,
    /// The operations that have not ended, in the order of parking.
    pub parked: Vec<usize>,
    /// The order of the last watch.
    pub order: u64,
    /// The number of operations that count towards `max_parked`.
    pub places: usize,
    /// Whether a call is under way; the work to do before it returns is in `queue`.
    pub inside: bool,
    pub queue: VecDeque<Work>,
    pub jobs: VecDeque<Job>,
    /// The number of operations that were neither called back nor handed back.
    pub alive: usize,
    /// The number of handles, and whether the case still has its own.
    pub handles: usize,
    pub handle: bool,
    pub stats: Stats,
    /// The records expected of this step.
    pub log: Vec<Saw>,
    /// The purgatory's records of this step, and the order in which it dropped operations.
    pub seen: Vec<Saw>,
    pub dropped: Vec<usize>,
    /// The checks, by operation and number, that the purgatory made as the second of a park
    /// although no event came since the first.
    pub checked_twice: BTreeSet<(usize, u32)>,
    /// Expired operations whose job is not handed over yet. Their watches, except the first, are
    /// still on their keys' lists.
    pub listed: Vec<usize>,
    /// Operations that a shutdown has ended but not yet called back.
    pub closing: Vec<usize>,
    /// The number of events of each hash of keys.
    pub versions: Vec<u64>,
    pub paths: Paths,
}

impl Reference {
    pub fn new(setup: &Setup) -> Self {
        Reference {
            setup: setup.clone(),
            known: Known {
                quarter_ns: setup.tick_ns / 4,
                ..Known::default()
            },
            now_ns: setup.start_ns,
            handles: 1,
            handle: true,
            versions: vec![0; 49],
            ..Reference::default()
        }
    }

    /// Counts a path if the condition holds. A path that is never taken is recorded with 0.
    pub fn count_if(&mut self, condition: bool, path: &str) {
        *self.paths.entry(path.to_owned()).or_default() += u64::from(condition);
    }

    pub fn at(&mut self, number: usize) -> &mut Operation {
        &mut self.all[number]
    }

    /// Returns the handle of the operation's present parking.
    pub fn handle(&self, number: usize) -> Handle {
        let parkings = self.all[number].parkings;
        Handle { number, parkings }
    }

    /// Returns the state of an operation: `Over` if it was parked again since.
    pub fn state(&self, handle: Handle) -> State {
        if self.handle(handle.number) == handle {
            self.all[handle.number].state
        } else {
            State::Over
        }
    }

    /// Returns the number of watches under each key, up to the last of the many keys.
    pub fn waiters(&self) -> Vec<usize> {
        let mut waiters = vec![0; MANY_KEYS as usize + 400];
        for &number in &self.parked {
            for watch in &self.all[number].watches {
                waiters[watch.key as usize] += 1;
            }
        }
        waiters
    }

    fn drop_handle(&mut self) {
        self.handles -= 1;
        if self.handles == 0 {
            let in_callback = self.goal_ns.is_some() && self.inside;
            self.count_if(in_callback, "last handle dropped in a callback");
            self.close(&DROPPED);
        }
    }

    /// Makes a call through a handle that only this call holds.
    fn call_by_handle(&mut self, call: Call) -> Option<Returned> {
        Some(match call {
            Call::Park(plan) => return self.park(&plan),
            Call::Event(key) => Returned::Counted(self.signal(key, Event::All)),
            Call::EventForOne(key) => Returned::Counted(self.signal(key, Event::One)),
            Call::CancelKey(key) => Returned::Counted(self.cancel_for_key(key)),
            Call::CompleteKey(key) => Returned::Counted(self.complete_for_key(key)),
            Call::RescheduleKey(key, to) => Returned::Counted(self.reschedule_for_key(key, to)),
            Call::Cancel(number) => Returned::Attempt(self.end(number, requested("by id"))),
            Call::Complete(number) => Returned::Attempt(self.end(number, Outcome::Completed)),
            Call::Reschedule(number, to) => Returned::Rescheduled(self.reschedule(number, to)),
            Call::Look(number) => Returned::Reached(self.look(number)),
            Call::Take(number, then) => return Some(self.take(number, then)),
            Call::TakeKey(key) => self.take_for_key(key),
            _ => {
                self.close(&SHUTDOWN);
                return None;
            }
        })
    }
}

impl Side for Reference {
    fn known<T>(&mut self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn saw(&mut self, saw: Saw) {
        self.log.push(saw);
    }

    fn run_job(&mut self) -> bool {
        let job = self.jobs.pop_front();
        let some = job.is_some();
        self.count_if(some, "a job that was kept");
        if let Some(job) = job {
            self.run(job);
        }
        some
    }

    fn call(&mut self, call: Call) -> Option<Returned> {
        match call {
            Call::Advance(by_ns) => self.advance(by_ns),
            Call::Pass(by_ns) => self.pass(by_ns),
            Call::ShutdownTimer => self.close(&SHUTDOWN),
            Call::DropHandle if std::mem::take(&mut self.handle) => self.drop_handle(),
            _ if self.handle => {
                self.handles += 1;
                let returned = self.call_by_handle(call);
                self.drop_handle();
                return returned;
            }
            _ => {}
        }
        None
    }
}

pub const SHUTDOWN: Outcome = Outcome::Cancelled(CancelReason::Shutdown);
pub const DROPPED: Outcome = Outcome::Cancelled(CancelReason::Dropped);
pub const PANICKED: Outcome = Outcome::Cancelled(CancelReason::Panicked);

pub fn requested(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}
