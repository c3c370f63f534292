//! The steps of a case, which are applied alike to the purgatory and to the reference.

use std::{sync::Arc, time::Duration};

use purgatory::{Outcome, ReachResult, Timeout, WaitError, timer_core::Moment};

use super::acts::Known;

pub type Key = u32;

/// Operations wait under the keys from 1 to this one.
pub const KEYS: Key = 6;

/// Some operations wait under hundreds of keys, from this one upwards.
pub const MANY_KEYS: Key = 10;

/// At most this many operations are parked, so that a shutdown empties a shard in one lock hold.
pub const PARKED_MAX: usize = 250;

#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub tick_ns: u64,
    pub slots: usize,
    pub start_ns: u64,
    pub max_parked: Option<usize>,
    /// The maximum number of operations of the case.
    pub operations_max: usize,
    pub shards: usize,
    pub executor: Runs,
    /// Whether the executor gets every callback, not only those of expired operations.
    pub all_on_executor: bool,
    /// The act that ends the case; a few steps follow it.
    pub end: Act,
}

/// The way in which the executor runs jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// The timer's own executor runs expiry callbacks at once.
    #[default]
    Inline,
    /// The purgatory's own executor keeps its jobs until a step runs them.
    Kept,
    /// The same, but the step drops the jobs instead.
    Dropped,
}

/// A timeout, in quarters of a tick from now on.
#[derive(Clone, Copy, Debug, Default)]
pub enum When {
    Zero,
    In(u64),
    At(i64),
    Longest,
    #[default]
    Never,
}

/// A condition of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// The operation's flag is set.
    Flag,
    /// Holds from the check with this number on.
    Look(u32),
}

/// An operation to be parked.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub keys: Vec<Key>,
    /// The number of further keys, each given twice.
    pub many_keys: u32,
    pub timeout: When,
    /// The operation completes once any of them holds.
    pub conditions: Vec<Condition>,
    /// The number of the check that panics.
    pub panics_at: Option<u32>,
    /// The number of a check, and the acts that it does.
    pub on_check: Option<(u32, Vec<Act>)>,
    /// The acts of its callback.
    pub then: Vec<Act>,
    pub then_panics: bool,
}

/// Picks an operation.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// The operation whose check or callback does the act.
    Own,
    /// One of the latest, by its distance from the last.
    Recent(u8),
    /// One of all operations so far.
    Any(u16),
}

impl Pick {
    /// Picks one of `all`.
    pub fn of<T: Copy>(self, own: Option<T>, all: &[T]) -> Option<T> {
        let last = all.len().checked_sub(1)?;
        match self {
            Pick::Own => own,
            Pick::Recent(back) => all.get(last.saturating_sub(back.into())).copied(),
            Pick::Any(at) => Some(all[usize::from(at) % all.len()]),
        }
    }
}

/// A step, or an act of a check or callback.
#[derive(Clone, Debug, Default)]
pub enum Act {
    Park(Arc<Plan>),
    ParkMany(u8, Arc<Plan>),
    /// Acts that follow each other within one step.
    Several(Vec<Act>),
    SetFlag(Pick),
    SetAllFlags,
    Event(Key),
    /// Signals a key for one waiter.
    EventForOne(Key),
    CancelKey(Key),
    /// Completes the operations under a key without a check.
    CompleteKey(Key),
    RescheduleKey(Key, When),
    Cancel(Pick),
    Complete(Pick),
    Reschedule(Pick, When),
    /// Looks at an operation while it stays parked.
    Look(Pick),
    /// Takes an operation out, and drops it or parks it again.
    Take(Pick, Then),
    /// Takes the operations under a key out, and drops them.
    TakeKey(Key),
    /// Lets quarters of a tick pass.
    Advance(u64),
    /// The same, but no wheel advances.
    Pass(u64),
    /// Runs at most this many of the executor's jobs.
    RunJobs(usize),
    #[default]
    Shutdown,
    ShutdownTimer,
    DropHandle,
}

/// The fate of an operation that a step has taken out.
#[derive(Clone, Copy, Debug)]
pub enum Then {
    Drop,
    ParkAgain,
}

/// A record of something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Saw {
    /// A check, by its operation and by its number among that operation's checks.
    Check(usize, u32),
    Callback(usize, Outcome),
    Returned(Returned),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Returned {
    Parked,
    Ended,
    /// The reason, and whether the operation was handed back.
    Refused(WaitError, bool),
    Counted(usize),
    Attempt(ReachResult),
    Rescheduled(bool),
    /// The operation, and how many times it was checked.
    Reached(ReachResult<(usize, u32)>),
    /// The operations in order, and how many were under check and stayed.
    Taken(Vec<usize>, usize),
}

/// A plan, with the values that depend on when it is parked.
#[derive(Clone, Debug)]
pub struct Request {
    pub number: usize,
    pub plan: Arc<Plan>,
    pub keys: Vec<Key>,
    pub timeout: Timeout,
}

impl Request {
    pub fn new(plan: &Arc<Plan>, now_ns: u64, known: &Known) -> Self {
        let many = (MANY_KEYS..MANY_KEYS + plan.many_keys)
            .cycle()
            .take(2 * plan.many_keys as usize);
        Request {
            number: known.flags.len() - 1,
            plan: plan.clone(),
            keys: plan.keys.iter().copied().chain(many).collect(),
            timeout: plan.timeout.from(now_ns, known.quarter_ns),
        }
    }

    /// Returns true if the condition holds at this check.
    pub fn holds(&self, look: u32, known: &Known) -> bool {
        self.plan
            .conditions
            .iter()
            .any(|condition| match *condition {
                Condition::Flag => known.flags[self.number],
                Condition::Look(at) => look >= at,
            })
    }

    pub fn acts_at(&self, look: u32) -> &[Act] {
        match &self.plan.on_check {
            Some((at, acts)) if *at == look => acts,
            _ => &[],
        }
    }
}

impl When {
    pub fn from(self, now_ns: u64, quarter_ns: u64) -> Timeout {
        let duration = |quarters: u64| Duration::from_nanos(quarters.saturating_mul(quarter_ns));
        match self {
            When::Zero => Timeout::After(Duration::ZERO),
            When::In(quarters) => Timeout::After(duration(quarters)),
            When::At(quarters) => {
                let by = quarters.unsigned_abs().saturating_mul(quarter_ns);
                let at_ns = if quarters < 0 {
                    now_ns.saturating_sub(by)
                } else {
                    now_ns.saturating_add(by)
                };
                Timeout::At(Moment::from_nanos(at_ns))
            }
            When::Longest => Timeout::After(Duration::MAX),
            When::Never => Timeout::Never,
        }
    }
}
