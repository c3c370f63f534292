//! The reference: the promises of the documentation on plain lists. Every question is a scan. A wait
//! for each of several keys is as many *parts*; any other wait is one.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use purgatory::{CancelReason, Outcome, ReachResult, WaitError};

use super::{Act, End, Key, Kind, Plan, Reached, Saw};

/// A wait for one key.
struct Part {
    wait: usize,
    member: usize,
    key: Key,
    threshold: u64,
    deadline_ms: u64,
    is_waiting: bool,
}

struct Wait {
    plan: Arc<Plan>,
    /// The first part that was parked, which has its id.
    parked: Option<usize>,
    /// The values that met its parts, as they were reported.
    values: Vec<Option<u64>>,
    has_future: bool,
    /// The end that its future has not taken.
    end: Option<End>,
}

/// An end that is still to be reported: a part, its outcome, the value.
type Report = (usize, Outcome, u64);

#[derive(Default)]
pub(super) struct Reference {
    /// Values and epochs.
    pub(super) values: BTreeMap<Key, (u64, u64)>,
    pub(super) closed: BTreeSet<Key>,
    waits: Vec<Wait>,
    parts: Vec<Part>,
    now_ms: u64,
    /// Whether a call is under way, and the ends that it has still to report.
    inside: bool,
    queue: VecDeque<Report>,
    pub(super) log: Vec<Saw>,
    completed: u64,
    expired: u64,
    cancelled: u64,
    panics: u64,
}

fn requested(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}

fn closed() -> CancelReason {
    CancelReason::Closed("closed".into())
}

fn error(outcome: Outcome) -> WaitError {
    match outcome {
        Outcome::Expired => WaitError::Expired,
        Outcome::Cancelled(reason) => WaitError::Cancelled(reason),
        other => panic!("{other:?}"),
    }
}

impl Reference {
    pub(super) fn value(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.0)
    }

    fn epoch(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.1)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.parts.iter().any(|part| part.is_waiting)
    }

    /// Returns the counts of ends, and of panics.
    pub(super) fn ended(&self) -> (u64, u64, u64, u64) {
        (self.completed, self.expired, self.cancelled, self.panics)
    }

    /// Takes the end of a wait whose future is over.
    pub(super) fn take_end(&mut self, number: usize) -> End {
        self.waits[number].has_future = false;
        self.waits[number].end.take().expect("it goes on")
    }

    /// Returns the parts that wait for a key, by (threshold, parking).
    pub(super) fn unmet(&self, key: Key) -> Vec<(u64, usize)> {
        let mut unmet = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            if part.is_waiting && part.key == key {
                unmet.push((part.threshold, number));
            }
        }
        unmet.sort_unstable();
        unmet
    }

    fn wait_back(&self, back: usize) -> Option<usize> {
        self.waits.len().checked_sub(back + 1)
    }

    /// Returns the part that has the id of a wait.
    fn parked_back(&self, back: usize) -> Option<usize> {
        self.waits[self.wait_back(back)?].parked
    }

    pub(super) fn act(&mut self, act: &Act) {
        match *act {
            Act::Wait(ref plan) => self.wait(plan),
            Act::Advance(key, epoch, value) => {
                let before = self.value(key);
                let changed = self.change(key, epoch, value.max(before));
                self.log.push(Saw::Changed(changed));
            }
            Act::Add(key, by) => {
                let value = self.value(key).saturating_add(by);
                let changed = self.change(key, None, value);
                self.log.push(Saw::Changed(changed));
            }
            Act::Remove(key) => {
                self.values.remove(&key);
                self.closed.remove(&key);
                let removed = self.cancel_all(key, &requested("its key was removed"));
                self.log.push(Saw::Changed(Ok(removed)));
            }
            Act::Close(key) => {
                self.closed.insert(key);
                let ended = self.cancel_all(key, &Outcome::Cancelled(closed()));
                self.log.push(Saw::Changed(Ok(ended)));
            }
            Act::Begin(key, epoch, value, kept) => {
                let begun = self.begin(key, epoch, value, kept);
                self.log.push(Saw::Changed(begun));
            }
            Act::Drop(back) => {
                if let Some(number) = self.wait_back(back) {
                    self.drop_future(number);
                }
            }
            Act::Cancel(back) => {
                if let Some(part) = self.parked_back(back) {
                    let attempt = self.cancel_by_id(part);
                    self.log.push(Saw::Attempt(attempt));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(part) = self.parked_back(back) {
                    let part = &mut self.parts[part];
                    part.deadline_ms = self.now_ms + ms;
                    self.log.push(Saw::Rescheduled(part.is_waiting));
                }
            }
            Act::Pass(ms) => self.pass(ms),
        }
    }

    /// A wait comes. Its parts come one after the other, until one has ended the whole.
    fn wait(&mut self, plan: &Arc<Plan>) {
        let number = self.waits.len();
        self.waits.push(Wait {
            plan: plan.clone(),
            parked: None,
            values: vec![None; plan.members.len()],
            has_future: plan.kind != Kind::Callback,
            end: None,
        });
        for (member, &(key, threshold)) in plan.members.iter().enumerate() {
            match self.at_once(plan.kind, key, threshold) {
                Some(end) => self.end_member_at_once(number, member, end),
                None => self.park(number, member, key, threshold),
            }
            if self.waits[number].end.is_some() {
                break;
            }
        }
        // It may be over at once.
        let wait = &mut self.waits[number];
        let is_over = match plan.kind {
            Kind::Callback => wait.parked.is_none(),
            _ => wait.end.is_some(),
        };
        if is_over {
            wait.parked = None;
            wait.has_future = false;
        }
        self.log.push(Saw::Came(number, is_over));
    }

    /// Returns the end of a wait for a key that comes, if it does not have to wait.
    fn at_once(&self, kind: Kind, key: Key, threshold: u64) -> Option<Result<u64, WaitError>> {
        if self.closed.contains(&key) {
            return Some(Err(WaitError::Cancelled(closed())));
        }
        let present = self.epoch(key);
        if let Kind::OneIn(named) = kind {
            if named != present {
                let other = WaitError::OtherEpoch { named, present };
                return Some(Err(other));
            }
        }
        let value = self.value(key);
        (value >= threshold).then_some(Ok(value))
    }

    fn end_member_at_once(&mut self, number: usize, member: usize, end: Result<u64, WaitError>) {
        if self.waits[number].plan.kind == Kind::Callback {
            let outcome = match end {
                Ok(_) => Outcome::Completed,
                Err(WaitError::Cancelled(reason)) => Outcome::Cancelled(reason),
                Err(other) => panic!("{other}"),
            };
            self.in_call(|reference, nested| {
                if nested {
                    // A part that never waited, to be reported.
                    reference.park(number, member, 0, 0);
                    let part = reference.parts.len() - 1;
                    reference.parts[part].is_waiting = false;
                    reference.waits[number].parked = None;
                    reference.queue.push_back((part, outcome, 0));
                } else {
                    reference.call_back(number, outcome);
                }
            });
            return;
        }
        self.member_ended(number, member, end);
    }

    fn park(&mut self, wait: usize, member: usize, key: Key, threshold: u64) {
        let part = self.parts.len();
        self.waits[wait].parked.get_or_insert(part);
        self.parts.push(Part {
            wait,
            member,
            key,
            threshold,
            deadline_ms: self.now_ms + self.waits[wait].plan.ms,
            is_waiting: true,
        });
    }

    /// Records the end of one member of a wait that has a future. Returns true if the whole is over
    /// by it.
    fn member_ended(&mut self, number: usize, member: usize, end: Result<u64, WaitError>) -> bool {
        let wait = &mut self.waits[number];
        if wait.end.is_some() || !wait.has_future {
            return false;
        }
        match end {
            Ok(value) => wait.values[member] = Some(value),
            Err(error) => wait.end = Some(Err(error)),
        }
        if wait.end.is_none() {
            if wait.values.iter().any(Option::is_none) {
                return false;
            }
            let mut reached = Reached::new();
            for (&(key, _), value) in wait.plan.members.iter().zip(&wait.values) {
                reached.extend(value.map(|value| (key, value)));
            }
            wait.end = Some(Ok(reached));
        }
        self.give_up(number);
        true
    }

    /// Takes the parts of a wait that still wait out.
    fn give_up(&mut self, number: usize) {
        for part in &mut self.parts {
            if part.wait == number && part.is_waiting {
                part.is_waiting = false;
                self.cancelled += 1;
            }
        }
    }

    /// Ends a part; it is still to be reported.
    fn end(&mut self, part: usize, outcome: &Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Expired => self.expired += 1,
            _ => self.cancelled += 1,
        }
        self.parts[part].is_waiting = false;
        // A single wait has its answer at once, though its task is woken later.
        let Part { wait, key, .. } = self.parts[part];
        let kind = self.waits[wait].plan.kind;
        if matches!(kind, Kind::One | Kind::OneIn(_)) {
            let end = match outcome {
                Outcome::Completed => Ok(vec![(key, self.value(key))]),
                other => Err(error(other.clone())),
            };
            self.waits[wait].end = Some(end);
        }
    }

    /// Does a call, nested or not. Ends inside another call are reported when that returns.
    fn in_call<T>(&mut self, call: impl FnOnce(&mut Self, bool) -> T) -> T {
        let nested = std::mem::replace(&mut self.inside, true);
        let returned = call(self, nested);
        if !nested {
            while let Some(report) = self.queue.pop_front() {
                self.report(report);
            }
            self.inside = false;
        }
        returned
    }

    /// Reports ends, in order.
    fn report_all(&mut self, nested: bool, reports: Vec<Report>) {
        for report in reports {
            if nested {
                self.queue.push_back(report);
            } else {
                self.report(report);
            }
        }
    }

    fn report(&mut self, (part, outcome, value): Report) {
        let Part { wait, member, .. } = self.parts[part];
        match self.waits[wait].plan.kind {
            Kind::Callback => return self.call_back(wait, outcome),
            Kind::One | Kind::OneIn(_) => {}
            Kind::Each => {
                let end = match outcome {
                    Outcome::Completed => Ok(value),
                    other => Err(error(other)),
                };
                if !self.member_ended(wait, member, end) {
                    return;
                }
            }
        }
        self.log.push(Saw::Woken(wait));
        self.then(wait);
    }

    fn call_back(&mut self, number: usize, outcome: Outcome) {
        self.log.push(Saw::Called(number, outcome));
        self.then(number);
    }

    /// Does the acts of a waker or callback.
    fn then(&mut self, number: usize) {
        let plan = self.waits[number].plan.clone();
        for act in &plan.then {
            self.act(act);
        }
        self.panics += u64::from(plan.then_panics);
    }

    /// Changes a value, and completes what it reaches; in an epoch, if that is the key's.
    fn change(&mut self, key: Key, epoch: Option<u64>, value: u64) -> Result<usize, WaitError> {
        if self.closed.contains(&key) {
            return Err(WaitError::KeyClosed);
        }
        let present = self.epoch(key);
        if let Some(named) = epoch.filter(|named| *named != present) {
            return Err(WaitError::OtherEpoch { named, present });
        }
        self.values.insert(key, (value, present));
        Ok(self.in_call(|reference, nested| {
            let met = reference.meet(key);
            let count = met.len();
            reference.report_all(nested, met);
            if nested { 0 } else { count }
        }))
    }

    /// Ends the parts that a key's value reaches, by (threshold, parking).
    fn meet(&mut self, key: Key) -> Vec<Report> {
        let value = self.value(key);
        let mut met = Vec::new();
        for (threshold, part) in self.unmet(key) {
            if threshold <= value {
                self.end(part, &Outcome::Completed);
                met.push((part, Outcome::Completed, value));
            }
        }
        met
    }

    /// Ends the parts that wait for a key.
    fn cancel_parts(&mut self, key: Key, outcome: &Outcome) -> Vec<Report> {
        let mut cancelled = Vec::new();
        for (_, part) in self.unmet(key) {
            self.end(part, outcome);
            cancelled.push((part, outcome.clone(), 0));
        }
        cancelled
    }

    fn cancel_all(&mut self, key: Key, outcome: &Outcome) -> usize {
        self.in_call(|reference, nested| {
            let cancelled = reference.cancel_parts(key, outcome);
            let count = cancelled.len();
            reference.report_all(nested, cancelled);
            count
        })
    }

    fn begin(&mut self, key: Key, epoch: u64, value: u64, kept: bool) -> Result<usize, WaitError> {
        if self.closed.contains(&key) {
            return Err(WaitError::KeyClosed);
        }
        let present = self.epoch(key);
        if epoch <= present {
            let named = epoch;
            return Err(WaitError::OtherEpoch { named, present });
        }
        self.values.insert(key, (value, epoch));
        Ok(self.in_call(|reference, nested| {
            let over = CancelReason::EpochOver {
                epoch: present,
                present: epoch,
            };
            let ended = if kept {
                reference.meet(key)
            } else {
                reference.cancel_parts(key, &Outcome::Cancelled(over))
            };
            let count = ended.len();
            reference.report_all(nested, ended);
            count
        }))
    }

    fn drop_future(&mut self, number: usize) {
        if std::mem::take(&mut self.waits[number].has_future) {
            self.give_up(number);
            self.waits[number].end = None;
        }
    }

    fn cancel_by_id(&mut self, part: usize) -> ReachResult {
        if !self.parts[part].is_waiting {
            return ReachResult::Gone;
        }
        let outcome = requested("by id");
        self.end(part, &outcome);
        self.in_call(|reference, nested| {
            reference.report_all(nested, vec![(part, outcome, 0)]);
        });
        ReachResult::Reached(())
    }

    /// Time passes. All that expire at a tick are over before the first is reported.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            let mut due = Vec::new();
            for part in 0..self.parts.len() {
                let Part {
                    is_waiting,
                    deadline_ms,
                    ..
                } = self.parts[part];
                if is_waiting && deadline_ms <= self.now_ms {
                    self.end(part, &Outcome::Expired);
                    due.push((part, Outcome::Expired, 0));
                }
            }
            for report in due {
                self.in_call(|reference, _| reference.report(report));
            }
        }
    }
}
