//! What is known of each operation, and what follows from it: how it may end, and when it must have.

use std::ops::RangeInclusive;

use purgatory::{CancelReason, EndResult, Outcome, RefusedReason, Stats, Timeout};
use timer_core::TickLength;

use super::acts::{KEYS, Plan};

/// What a cancel gives as its reason.
pub(super) const BY_KEY: &str = "by key";
pub(super) const BY_ID: &str = "by id";

/// Plain facts, written down as they happen.
pub(super) struct Books {
    pub(super) tick: TickLength,
    pub(super) max_parked: Option<usize>,
    /// What each key has reached.
    pub(super) values: [u64; KEYS],
    pub(super) all: Vec<Record>,
    /// Shut down, or about to be.
    pub(super) closed: bool,
    /// Operations that must be over when the step is.
    pub(super) must_end: Vec<usize>,
    /// The same when what was deferred has been raised.
    pub(super) deferred: Vec<usize>,
    pub(super) counts: Counts,
    /// The first thing that was wrong where a panic would be contained.
    pub(super) wrong: Option<String>,
}

/// To be compared with the purgatory's own.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) alive: usize,
    pub(super) checks: u64,
    pub(super) events: u64,
    pub(super) panics: u64,
    pub(super) refused: u64,
    pub(super) told: u64,
    pub(super) completed: u64,
    /// What checks and callbacks did.
    pub(super) acts_inside: u64,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Record {
    keys: Vec<usize>,
    levels: Vec<Level>,
    counted: bool,
    /// When its time is up, in nanoseconds; `None` for never.
    deadline_ns: Option<u128>,
    ready: bool,
    pub(super) looks: u32,
    came_true: bool,
    panicked: bool,
    /// It was parked, as the call said.
    parked: bool,
    pub(super) refused: bool,
    pub(super) outcome: Option<Outcome>,
    /// Somebody asked for this end.
    completed_by_id: bool,
    cancelled_by_id: bool,
    cancelled_by_key: bool,
}

#[derive(Debug)]
struct Level {
    key: usize,
    threshold: u64,
    /// Told since it was parked; or maybe, when it was reached before: a rise that was deferred, or told in a
    /// callback, is raised later.
    met: bool,
}

impl Books {
    pub(super) fn new(tick: TickLength, max_parked: Option<usize>) -> Books {
        Books {
            tick,
            max_parked,
            values: [0; KEYS],
            all: Vec::new(),
            closed: false,
            must_end: Vec::new(),
            deferred: Vec::new(),
            counts: Counts::default(),
            wrong: None,
        }
    }

    /// Where a panic would be contained, and not be noticed.
    pub(super) fn want(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(text());
        }
    }

    /// A new operation; returns its number, keys and levels.
    pub(super) fn open(&mut self, plan: &Plan, timeout: Timeout, now_ns: u64) -> usize {
        let mut levels = plan.levels(&self.values);
        levels.sort_unstable();
        levels.dedup();
        let level = |(key, threshold): (usize, u64)| Level {
            key,
            threshold,
            met: self.values[key] >= threshold,
        };
        let levels = levels.into_iter().map(level).collect();
        let mut keys = plan.keys();
        keys.dedup();
        self.all.push(Record {
            keys,
            levels,
            counted: plan.counted,
            deadline_ns: deadline_ns(timeout, now_ns),
            ready: false,
            looks: 0,
            came_true: false,
            panicked: false,
            parked: false,
            refused: false,
            outcome: None,
            completed_by_id: false,
            cancelled_by_id: false,
            cancelled_by_key: false,
        });
        self.counts.alive += 1;
        self.all.len() - 1
    }

    fn is_ready(&self, number: usize) -> bool {
        let record = &self.all[number];
        record.ready || !record.levels.is_empty() && self.has_reached_levels(number)
    }

    fn has_reached_levels(&self, number: usize) -> bool {
        self.all[number].levels.iter().all(|level| self.values[level.key] >= level.threshold)
    }

    pub(super) fn make_ready(&mut self, number: usize) {
        self.all[number].ready = true;
    }

    /// The check begins.
    pub(super) fn looks(&mut self, number: usize) -> u32 {
        self.counts.checks += 1;
        let record = &mut self.all[number];
        record.looks += 1;
        let (look, over) = (record.looks, record.outcome.is_some());
        let late = over || record.came_true || record.panicked;
        self.want(!late, || format!("operation {number} is checked when it is over"));
        look
    }

    /// The check says.
    pub(super) fn verdict(&mut self, number: usize, by_look: bool) -> bool {
        let holds = by_look || self.is_ready(number);
        self.all[number].came_true |= holds;
        holds
    }

    pub(super) fn panics(&mut self, number: usize, in_check: bool) {
        self.counts.panics += 1;
        self.all[number].panicked |= in_check;
    }

    /// The operation is over.
    pub(super) fn ends(&mut self, number: usize, outcome: Outcome, now_ns: u64) {
        let allowed = self.allows(number, &outcome, now_ns);
        let record = &mut self.all[number];
        let before = record.outcome.replace(outcome.clone());
        let refused = record.refused;
        let known = if allowed { String::new() } else { format!("{record:?}") };
        self.want(allowed, || {
            format!("operation {number} has no reason to end at {now_ns}: {known}")
        });
        self.want(before.is_none(), || format!("operation {number} ends twice: {outcome}"));
        self.want(!refused, || format!("operation {number} was handed back, and ends: {outcome}"));
        self.counts.told += 1;
        self.counts.completed += u64::from(outcome == Outcome::Completed);
    }

    fn allows(&self, number: usize, outcome: &Outcome, now_ns: u64) -> bool {
        let record = &self.all[number];
        let counted = record.counted && !record.levels.is_empty();
        match outcome {
            Outcome::Completed => {
                let reached = counted && self.has_reached_levels(number);
                record.came_true || record.completed_by_id || reached
            }
            _ if record.came_true => false, // true beats every note
            Outcome::Expired => record.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns.into()),
            Outcome::Cancelled(CancelReason::Shutdown | CancelReason::Dropped) => self.closed,
            Outcome::Cancelled(CancelReason::Panicked) => record.panicked,
            Outcome::Cancelled(CancelReason::Requested(reason)) => match &**reason {
                BY_KEY => record.cancelled_by_key,
                BY_ID => record.cancelled_by_id,
                _ => false,
            },
            _ => false,
        }
    }

    /// It was parked, as far as the call knows.
    pub(super) fn parked(&mut self, number: usize) {
        self.all[number].parked = true;
    }

    /// It was handed back. What its check did may have ended others between that and now.
    pub(super) fn refused(&mut self, number: usize, reason: RefusedReason, inside_before: u64) {
        let quiet = self.counts.acts_inside == inside_before;
        let open = |record: &&Record| !record.refused && record.outcome.is_none();
        let others = self.all.iter().filter(open).count() - 1;
        let record = &mut self.all[number];
        record.refused = true;
        let has_keys = !record.keys.is_empty() || !record.levels.is_empty();
        let untold = record.outcome.is_none() && !record.came_true;
        let fits = match reason {
            RefusedReason::NoKeys => !has_keys,
            RefusedReason::Closed => self.closed,
            RefusedReason::Full { limit } => {
                Some(limit) == self.max_parked && (others >= limit || !quiet)
            }
            _ => false,
        };
        self.counts.refused += 1;
        self.want(fits && untold, || format!("operation {number} is refused: {reason}"));
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, &Record)> {
        self.all.iter().enumerate().filter(|(_, record)| record.is_waiting())
    }

    /// Those that an event of the key must end.
    pub(super) fn ended_by_event(&self, key: usize) -> Vec<usize> {
        let concerned = |(number, record): &(usize, &Record)| {
            record.keys.contains(&key) && self.is_ready(*number)
        };
        self.waiting().filter(concerned).map(|(number, _)| number).collect()
    }

    /// Those that must end when the key's value is told.
    pub(super) fn ended_by_rise(&mut self, key: usize, value: u64) -> Vec<usize> {
        let mut ended = Vec::new();
        for number in 0..self.all.len() {
            let record = &mut self.all[number];
            let (mut newly, mut any) = (false, false);
            for level in &mut record.levels {
                if level.key == key && level.threshold <= value {
                    newly |= !level.met;
                    any = true;
                    level.met = true;
                }
            }
            let last = record.counted && newly && record.levels.iter().all(|level| level.met);
            let checked = if record.counted { newly } else { any };
            // One that is on its way into the purgatory may be told, too.
            let waits = self.all[number].is_waiting();
            if waits && (last || checked && self.is_ready(number)) {
                ended.push(number);
            }
        }
        ended
    }

    /// Notes those that a cancel of the key must end.
    pub(super) fn cancel_key(&mut self, key: usize) {
        for number in 0..self.all.len() {
            // One that is on its way into the purgatory may be found there, or not.
            let (surely, at_most) = self.all[number].watches(key, self.values[key]);
            let record = &mut self.all[number];
            record.cancelled_by_key |= at_most > 0;
            if surely > 0 && record.is_waiting() {
                self.must_end.push(number);
            }
        }
    }

    /// Somebody is about to end it from outside.
    pub(super) fn asked(&mut self, number: usize, completes: bool) {
        let record = &mut self.all[number];
        if completes {
            record.completed_by_id = true;
        } else {
            record.cancelled_by_id = true;
        }
    }

    /// In each case it has ended when the step is over.
    pub(super) fn attempted(&mut self, number: usize, attempt: EndResult) {
        let over = self.all[number].outcome.is_some();
        self.want(over || attempt != EndResult::Gone || self.counts.acts_inside > 0, || {
            format!("operation {number} is gone, and nobody was told")
        });
        self.must_end.push(number);
    }

    pub(super) fn rescheduled(&mut self, number: usize, timeout: Timeout, now_ns: u64, done: bool) {
        if done {
            self.all[number].deadline_ns = deadline_ns(timeout, now_ns);
        } else {
            self.must_end.push(number);
        }
    }

    /// All whose time is up, rounded up to a tick: the wheel was turned that far.
    pub(super) fn overdue(&self, now_ns: u64) -> Vec<usize> {
        let tick_ns = self.tick.length().as_nanos();
        let now = u128::from(now_ns) / tick_ns;
        let is_due =
            |record: &Record| record.deadline_ns.is_some_and(|at| at.div_ceil(tick_ns) <= now);
        self.waiting().filter(|(_, record)| is_due(record)).map(|(number, _)| number).collect()
    }

    /// After a step: what had to end has ended, once.
    pub(super) fn check(&mut self) {
        if let Some(wrong) = self.wrong.take() {
            panic!("{wrong}");
        }
        for number in std::mem::take(&mut self.must_end) {
            assert!(self.all[number].outcome.is_some(), "operation {number} should have ended");
        }
        let left: Vec<usize> = self.waiting().map(|(number, _)| number).collect();
        assert!(!self.closed || left.is_empty(), "parked after shutdown: {left:?}");
        assert_eq!(self.counts.alive, left.len(), "payloads");
        assert!(self.max_parked.is_none_or(|max| left.len() <= max), "more than the limit");
        let lost = |record: &Record| !record.parked && !record.refused && record.outcome.is_none();
        assert_eq!(self.all.iter().position(lost), None, "an operation is lost");
    }

    /// The purgatory's counts against these.
    pub(super) fn check_stats(&self, stats: &Stats) {
        let counts = &self.counts;
        let parked = self.waiting().count() as u64;
        let watches = |record: &Record| record.keys.len() + record.watched().count();
        let watched: usize = self.waiting().map(|(_, record)| watches(record)).sum();
        let ended = stats.completed + stats.expired + stats.cancelled;
        let refused = stats.refused;
        assert_eq!((stats.parked, stats.watched), (parked, watched as u64));
        assert_eq!(stats.parked_total, ended + stats.parked);
        assert_eq!(ended + stats.ended_at_once, counts.told);
        assert_eq!((stats.checks, stats.panics), (counts.checks, counts.panics), "checks, panics");
        // What was deferred twice happened once, and after shutdown not at all.
        assert!(stats.events + stats.deferred <= counts.events, "events");
        assert_eq!(
            refused.no_keys + refused.closed + refused.full + refused.too_many_watermarks,
            counts.refused
        );
        assert_eq!(stats.callbacks_waiting, 0);
    }

    /// How many watches a key can have.
    pub(super) fn waiters(&self, key: usize) -> RangeInclusive<usize> {
        let watches = self.waiting().map(|(_, record)| record.watches(key, self.values[key]));
        let (surely, at_most): (Vec<_>, Vec<_>) = watches.unzip();
        surely.iter().sum()..=at_most.iter().sum()
    }
}

impl Record {
    /// Parked, as far as was told.
    fn is_waiting(&self) -> bool {
        self.parked && self.outcome.is_none()
    }

    /// The levels it watches, which are sorted: in the check form the lowest of each key.
    fn watched(&self) -> impl Iterator<Item = &Level> + Clone {
        let before = |at: usize| at.checked_sub(1).map(|at| self.levels[at].key);
        let levels = self.levels.iter().enumerate();
        levels
            .filter(move |(at, level)| self.counted || before(*at) != Some(level.key))
            .map(|(_, level)| level)
    }

    /// Its watches of a key that has reached a value: those that are surely there, and all. One for a
    /// watermark that was reached is off the key, if it is counted and the value was told.
    fn watches(&self, key: usize, value: u64) -> (usize, usize) {
        let plain = usize::from(self.keys.contains(&key));
        let levels = self.watched().filter(|level| level.key == key);
        let stays = |level: &&Level| !self.counted || value < level.threshold;
        (plain + levels.clone().filter(stays).count(), plain + levels.count())
    }
}

fn deadline_ns(timeout: Timeout, now_ns: u64) -> Option<u128> {
    match timeout {
        Timeout::After(delay) => Some(u128::from(now_ns) + delay.as_nanos()),
        Timeout::At(at_ns) => Some(at_ns.into()),
        _ => None,
    }
}
