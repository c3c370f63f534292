//! The reference: the promises of the documentation on plain lists. Every question is a scan. A
//! wait for each of several keys has one *part* for each key; any other wait is one part.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use purgatory::{CancelReason, Outcome, ReachResult, Stats, WaitError};

use super::{Act, End, Key, Kind, Plan, Reached, Saw};

/// One key's part of a wait.
struct Part {
    wait: usize,
    member: usize,
    key: Key,
    wants: Wants,
    deadline_ms: u64,
    is_waiting: bool,
    /// Whether its wait knows of it: from when the park is over, with all ends that it causes.
    is_known: bool,
}

/// The thing that a part waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Value(u64),
    /// The key is waited for, or is not.
    Waits(bool),
}

struct Wait {
    plan: Arc<Plan>,
    /// The first part that was parked: its id is the wait's.
    parked: Option<usize>,
    /// The values reported for its parts.
    values: Vec<Option<u64>>,
    has_future: bool,
    /// Whether the call has returned, and the task has polled the future.
    is_here: bool,
    /// The end that its future has not yet taken.
    end: Option<End>,
}

/// An end still to be reported: a part, its outcome, the value.
type Report = (usize, Outcome, u64);

#[derive(Default)]
pub(super) struct Reference {
    /// The value and the epoch of each key.
    pub(super) values: BTreeMap<Key, (u64, u64)>,
    pub(super) closed: BTreeSet<Key>,
    waits: Vec<Wait>,
    parts: Vec<Part>,
    now_ms: u64,
    /// Whether a call is under way; the ends that it still has to report are in `queue`.
    inside: bool,
    queue: VecDeque<Report>,
    pub(super) log: Vec<Saw>,
    max: Option<usize>,
    /// The number of queued callbacks that have not begun.
    callbacks_queued: usize,
    keys_max: usize,
    stats: Stats,
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
    pub(super) fn new(max: Option<usize>, keys_max: usize) -> Self {
        Reference {
            max,
            keys_max,
            ..Reference::default()
        }
    }

    pub(super) fn value(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.0)
    }

    fn epoch(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.1)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.parts.iter().any(|part| part.is_waiting)
    }

    fn waiting(&self) -> usize {
        self.parts.iter().filter(|part| part.is_waiting).count()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.parked = self.waiting() as u64;
        stats.watched = stats.parked;
        stats
    }

    /// Takes the end of a wait whose future is ready.
    pub(super) fn take_end(&mut self, number: usize) -> End {
        self.waits[number].has_future = false;
        self.waits[number].end.take().expect("it goes on")
    }

    /// Returns the parts that wait for a key's value, by threshold and then by parking.
    pub(super) fn unmet(&self, key: Key) -> Vec<(u64, usize)> {
        let mut unmet = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            if let Wants::Value(threshold) = part.wants {
                if part.is_waiting && part.key == key {
                    unmet.push((threshold, number));
                }
            }
        }
        unmet.sort_unstable();
        unmet
    }

    /// Returns the number of parts that wait for a key: for its value, or until it is wanted or
    /// unwanted.
    pub(super) fn waiters(&self, key: Key) -> usize {
        let waits = |part: &&Part| part.is_waiting && part.key == key;
        self.parts.iter().filter(waits).count()
    }

    fn wait_back(&self, back: usize) -> Option<usize> {
        self.waits.len().checked_sub(back + 1)
    }

    /// Returns the part whose id is the wait's.
    fn parked_back(&self, back: usize) -> Option<usize> {
        let wait = &self.waits[self.wait_back(back)?];
        wait.parked.filter(|_| wait.is_here)
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

    /// Begins a wait: its parts come one at a time, until one of them ends it.
    fn wait(&mut self, plan: &Arc<Plan>) {
        let number = self.waits.len();
        self.waits.push(Wait {
            plan: plan.clone(),
            parked: None,
            values: vec![None; plan.members.len()],
            has_future: plan.kind != Kind::Callback,
            is_here: false,
            end: None,
        });
        for (member, &(key, threshold)) in plan.members.iter().enumerate() {
            let wants = match plan.kind {
                Kind::Wanted => Wants::Waits(true),
                Kind::Unwanted => Wants::Waits(false),
                _ => Wants::Value(threshold),
            };
            match self.at_once(plan.kind, key, wants) {
                Some(end) => self.end_member_at_once(number, member, end),
                None => self.park(number, member, key, wants),
            }
            if self.waits[number].end.is_some() {
                break;
            }
        }
        // It may be over by now. Parts that were parked after its end are given up.
        let wait = &mut self.waits[number];
        wait.is_here = true;
        let is_over = match plan.kind {
            Kind::Callback => wait.parked.is_none(),
            _ => wait.end.is_some(),
        };
        if is_over {
            wait.has_future = false;
            if plan.kind == Kind::Each {
                wait.parked = None;
                self.give_up(number);
            }
        }
        match self.waits[number].end.clone() {
            Some(Err(refused)) if plan.kind == Kind::Callback => {
                self.log.push(Saw::Refused(number, refused));
            }
            _ => self.log.push(Saw::Came(number, is_over)),
        }
    }

    /// Returns the end of a wait that does not have to wait, or that is refused.
    fn at_once(&mut self, kind: Kind, key: Key, wants: Wants) -> Option<Result<u64, WaitError>> {
        let lowest = self.unmet(key).first().map(|&(threshold, _)| threshold);
        let end = match wants {
            Wants::Value(_) | Wants::Waits(true) if self.closed.contains(&key) => {
                Err(WaitError::Cancelled(closed()))
            }
            Wants::Waits(waits) if lowest.is_some() == waits => Ok(lowest.unwrap_or(0)),
            Wants::Value(threshold) => {
                let present = self.epoch(key);
                match kind {
                    Kind::OneIn(named) if named != present => {
                        return Some(Err(WaitError::OtherEpoch { named, present }));
                    }
                    _ if self.value(key) >= threshold => Ok(self.value(key)),
                    _ => return self.full().map(Err),
                }
            }
            Wants::Waits(_) => return self.full().map(Err),
        };
        self.stats.ended_at_once += 1;
        Some(end)
    }

    /// Returns the refusal of a wait if no place is free.
    fn full(&mut self) -> Option<WaitError> {
        let taken = self.waiting() + self.callbacks_queued;
        let limit = self.max.filter(|&max| taken >= max)?;
        self.stats.refused_full += 1;
        Some(WaitError::Full { limit })
    }

    fn end_member_at_once(&mut self, number: usize, member: usize, end: Result<u64, WaitError>) {
        if self.waits[number].plan.kind == Kind::Callback {
            let outcome = match end {
                Ok(_) => Outcome::Completed,
                Err(WaitError::Cancelled(reason)) => Outcome::Cancelled(reason),
                refused => return self.waits[number].end = Some(refused.map(|_| Reached::new())),
            };
            self.in_call(|reference, nested| {
                if nested {
                    // A part that never waited, whose end is still to be reported.
                    let part = reference.parts.len();
                    reference.add_part(number, member, 0, Wants::Value(0));
                    reference.parts[part].is_waiting = false;
                    reference.callbacks_queued += 1;
                    reference.queue.push_back((part, outcome, 0));
                } else {
                    reference.call_back(number, outcome);
                }
            });
            return;
        }
        self.member_ended(number, member, end);
    }

    fn add_part(&mut self, wait: usize, member: usize, key: Key, wants: Wants) {
        self.parts.push(Part {
            wait,
            member,
            key,
            wants,
            deadline_ms: self.now_ms + self.waits[wait].plan.ms,
            is_waiting: true,
            is_known: false,
        });
    }

    /// Parks a part. The parts that wait until its key is wanted end before its own wait knows of
    /// it.
    fn park(&mut self, wait: usize, member: usize, key: Key, wants: Wants) {
        let part = self.parts.len();
        self.add_part(wait, member, key, wants);
        self.stats.parked_total += 1;
        let told = self.tell_observers(key);
        self.report_in_call(told);
        self.parts[part].is_known = true;
        self.waits[wait].parked.get_or_insert(part);
    }

    /// Ends the parts whose key is now wanted, or unwanted, as they ask, or is closed and never
    /// will be.
    fn tell_observers(&mut self, key: Key) -> Vec<Report> {
        let lowest = self.unmet(key).first().map(|&(threshold, _)| threshold);
        let mut told = Vec::new();
        for part in 0..self.parts.len() {
            let Part { key: of, wants, .. } = self.parts[part];
            if of != key || !self.parts[part].is_waiting {
                continue;
            }
            let outcome = if wants == Wants::Waits(true) && self.closed.contains(&key) {
                Outcome::Cancelled(closed())
            } else if wants == Wants::Waits(lowest.is_some()) {
                Outcome::Completed
            } else {
                continue;
            };
            self.end(part, &outcome, lowest.unwrap_or(0));
            told.push((part, outcome, 0));
        }
        told
    }

    /// Reports ends within a call of their own.
    fn report_in_call(&mut self, reports: Vec<Report>) {
        self.in_call(|reference, nested| reference.report_all(nested, reports));
    }

    /// Records the end of one member of a wait that has a future. Returns true if that ends the
    /// wait.
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

    /// Takes the parts of a wait that are still parked out, one at a time.
    fn give_up(&mut self, number: usize) {
        for part in 0..self.parts.len() {
            let Part {
                wait,
                key,
                is_waiting,
                is_known,
                ..
            } = self.parts[part];
            if wait == number && is_waiting && is_known {
                self.parts[part].is_waiting = false;
                self.stats.cancelled += 1;
                self.stats.cancelled_by_future_drop += 1;
                let told = self.tell_observers(key);
                self.report_in_call(told);
            }
        }
    }

    /// Ends a part with its key's value. The end is still to be reported.
    fn end(&mut self, part: usize, outcome: &Outcome, value: u64) {
        match outcome {
            Outcome::Completed => self.stats.completed += 1,
            Outcome::Expired => self.stats.expired += 1,
            _ => self.stats.cancelled += 1,
        }
        self.parts[part].is_waiting = false;
        // A single wait has its answer at once, although its task is woken later.
        let Part { wait, key, .. } = self.parts[part];
        let kind = self.waits[wait].plan.kind;
        if !matches!(kind, Kind::Callback | Kind::Each) {
            let end = match outcome {
                Outcome::Completed => Ok(vec![(key, value)]),
                other => Err(error(other.clone())),
            };
            self.waits[wait].end = Some(end);
        }
    }

    /// Ends a single part, as its expiry does. The observers of its key are told first.
    fn end_alone(&mut self, part: usize, outcome: &Outcome) -> Vec<Report> {
        self.end(part, outcome, 0);
        let mut ended = self.tell_observers(self.parts[part].key);
        ended.push((part, outcome.clone(), 0));
        ended
    }

    /// Makes a call, nested or not. Ends inside a nested call are reported when the outer call
    /// returns.
    fn in_call<T>(&mut self, call: impl FnOnce(&mut Self, bool) -> T) -> T {
        let nested = std::mem::replace(&mut self.inside, true);
        let returned = call(self, nested);
        if !nested {
            while let Some(report) = self.queue.pop_front() {
                self.callbacks_queued -= usize::from(self.is_called_back(&report));
                self.report(report);
            }
            self.inside = false;
        }
        returned
    }

    fn is_called_back(&self, report: &Report) -> bool {
        let wait = self.parts[report.0].wait;
        self.waits[wait].plan.kind == Kind::Callback
    }

    /// Reports ends, in order. A queued callback takes a place until it begins.
    fn report_all(&mut self, nested: bool, reports: Vec<Report>) {
        for report in reports {
            if nested {
                self.callbacks_queued += usize::from(self.is_called_back(&report));
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
            Kind::One | Kind::OneIn(_) | Kind::Wanted | Kind::Unwanted => {}
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
        if self.waits[wait].is_here {
            self.log.push(Saw::Woken(wait));
            self.then(wait);
        }
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
        self.stats.panics += u64::from(plan.then_panics);
    }

    /// Changes a value, and completes the waits that it reaches. Refused if another epoch is named.
    fn change(&mut self, key: Key, epoch: Option<u64>, value: u64) -> Result<usize, WaitError> {
        if self.closed.contains(&key) {
            return Err(WaitError::KeyClosed);
        }
        let present = self.epoch(key);
        if let Some(named) = epoch.filter(|named| *named != present) {
            return Err(WaitError::OtherEpoch { named, present });
        }
        self.set(key, value, present)?;
        Ok(self.in_call(|reference, nested| {
            let met = reference.meet(key);
            let count = reference.report_of(key, nested, met);
            if nested { 0 } else { count }
        }))
    }

    /// Sets a key's value and epoch, unless that is one key too many.
    fn set(&mut self, key: Key, value: u64, epoch: u64) -> Result<(), WaitError> {
        if !self.values.contains_key(&key) && self.values.len() >= self.keys_max {
            let limit = self.keys_max;
            return Err(WaitError::TooManyKeys { limit });
        }
        self.values.insert(key, (value, epoch));
        self.stats.events += 1;
        Ok(())
    }

    /// Reports the ends of a key's parts, then those of its observers; returns the number of the
    /// former.
    fn report_of(&mut self, key: Key, nested: bool, mut ended: Vec<Report>) -> usize {
        let count = ended.len();
        ended.extend(self.tell_observers(key));
        self.report_all(nested, ended);
        count
    }

    /// Ends the parts that a key's value reaches, by threshold and then by parking.
    fn meet(&mut self, key: Key) -> Vec<Report> {
        let value = self.value(key);
        let mut met = Vec::new();
        for (threshold, part) in self.unmet(key) {
            if threshold <= value {
                self.end(part, &Outcome::Completed, value);
                met.push((part, Outcome::Completed, value));
            }
        }
        met
    }

    /// Ends the parts that wait for a key's value.
    fn cancel_parts(&mut self, key: Key, outcome: &Outcome) -> Vec<Report> {
        let mut cancelled = Vec::new();
        for (_, part) in self.unmet(key) {
            self.end(part, outcome, 0);
            cancelled.push((part, outcome.clone(), 0));
        }
        cancelled
    }

    fn cancel_all(&mut self, key: Key, outcome: &Outcome) -> usize {
        self.in_call(|reference, nested| {
            let cancelled = reference.cancel_parts(key, outcome);
            reference.report_of(key, nested, cancelled)
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
        self.set(key, value, epoch)?;
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
            reference.report_of(key, nested, ended)
        }))
    }

    fn drop_future(&mut self, number: usize) {
        let wait = &mut self.waits[number];
        if wait.is_here && std::mem::take(&mut wait.has_future) {
            wait.end = None;
            // All its parts are out before the first observer is told.
            self.in_call(|reference, _| reference.give_up(number));
        }
    }

    fn cancel_by_id(&mut self, part: usize) -> ReachResult {
        if !self.parts[part].is_waiting {
            return ReachResult::Gone;
        }
        let outcome = requested("by id");
        let ended = self.end_alone(part, &outcome);
        self.report_in_call(ended);
        ReachResult::Reached(())
    }

    /// Lets time pass. All parts that expire at a tick end before the first end is reported. A
    /// callback takes a place until it begins.
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
                    due.extend(self.end_alone(part, &Outcome::Expired));
                }
            }
            let called: Vec<bool> = due.iter().map(|it| self.is_called_back(it)).collect();
            self.callbacks_queued = called.iter().filter(|&&called| called).count();
            for (report, called) in due.into_iter().zip(called) {
                self.callbacks_queued -= usize::from(called);
                self.in_call(|reference, _| reference.report(report));
            }
        }
    }
}
