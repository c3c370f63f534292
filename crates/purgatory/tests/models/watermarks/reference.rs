//! The reference: the promises of the documentation on plain lists. Every question is a scan.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use purgatory::{CancelReason, EndResult, Outcome, RefusedReason, WaitError};

use super::{Act, End, Key, Kind, Plan, Quorum, Saw};

/// A key that a wait waits for.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: Key,
    pub(super) threshold: u64,
    is_reached: bool,
    pub(super) is_removed: bool,
}

struct Wait {
    plan: Arc<Plan>,
    members: Vec<Member>,
    deadline_ms: u64,
    is_waiting: bool,
    was_parked: bool,
    has_future: bool,
    /// The end that its future has not taken.
    end: Option<End>,
}

#[derive(Default)]
pub(super) struct Reference {
    /// The executor, which is this thread, reports every end: when the call returns.
    pub(super) all_on_executor: bool,
    /// Values and epochs.
    pub(super) values: BTreeMap<Key, (u64, u64)>,
    waits: Vec<Wait>,
    now_ms: u64,
    /// Whether a call is under way, and the waits whose end it has still to report.
    inside: bool,
    queue: VecDeque<(usize, Outcome)>,
    pub(super) log: Vec<Saw>,
    /// The record of the real ones, for the one order that is not promised.
    pub(super) seen: Vec<Saw>,
    completed: u64,
    expired: u64,
    cancelled: u64,
    panics: u64,
}

fn requested(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}

impl Reference {
    pub(super) fn value(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.0)
    }

    fn epoch(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.1)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Vec<Member>> {
        let waiting = self.waits.iter().filter(|wait| wait.is_waiting);
        waiting.map(|wait| &wait.members)
    }

    /// Returns the places of a key in the waits that go on.
    pub(super) fn members(&self, key: Key) -> impl Iterator<Item = &Member> + Clone {
        let waiting = self.waits.iter().filter(|wait| wait.is_waiting);
        let members = waiting.flat_map(|wait| &wait.members);
        members.filter(move |member| member.key == key)
    }

    /// Returns the counts of ends, and of panics.
    pub(super) fn ended(&self) -> (u64, u64, u64, u64) {
        (self.completed, self.expired, self.cancelled, self.panics)
    }

    /// Returns the keys of each wait that were not removed, in the order given.
    pub(super) fn visited(&self) -> Vec<Vec<Key>> {
        let mut visited = Vec::new();
        for members in self.waiting() {
            let left = members.iter().filter(|member| !member.is_removed);
            visited.push(left.map(|member| member.key).collect());
        }
        visited.sort();
        visited
    }

    /// Takes the end of a wait whose future is over.
    pub(super) fn take_end(&mut self, number: usize) -> End {
        self.waits[number].has_future = false;
        self.waits[number].end.take().expect("it goes on")
    }

    fn wait_back(&self, back: usize) -> Option<usize> {
        self.waits.len().checked_sub(back + 1)
    }

    /// Returns a wait that has an id.
    fn parked_back(&self, back: usize) -> Option<usize> {
        let number = self.wait_back(back)?;
        self.waits[number].was_parked.then_some(number)
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
                let removed = self.in_call(|reference, nested| reference.remove(nested, key));
                self.log.push(Saw::Changed(Ok(removed)));
            }
            Act::Reset(key, epoch, value, cancels) => {
                let reset = self.in_call(|reference, nested| {
                    reference.reset(nested, key, epoch, value, cancels)
                });
                self.log.push(Saw::Changed(reset));
            }
            Act::Drop(back) => {
                if let Some(number) = self.wait_back(back) {
                    self.drop_future(number);
                }
            }
            Act::Cancel(back) => {
                if let Some(number) = self.parked_back(back) {
                    let ended = self.end_by_id(number, requested("by id"));
                    self.log.push(Saw::Attempt(ended));
                }
            }
            Act::Complete(back) => {
                if let Some(number) = self.parked_back(back) {
                    let ended = self.end_by_id(number, Outcome::Completed);
                    self.log.push(Saw::Attempt(ended));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(number) = self.parked_back(back) {
                    let deadline_ms = self.now_ms + ms;
                    let wait = &mut self.waits[number];
                    wait.deadline_ms = deadline_ms;
                    self.log.push(Saw::Rescheduled(wait.is_waiting));
                }
            }
            Act::Pass(ms) => self.pass(ms),
        }
    }

    fn wait(&mut self, plan: &Arc<Plan>) {
        // 1. Keys that have reached their threshold before count.
        let number = self.waits.len();
        let mut members = Vec::new();
        for &(key, threshold) in &plan.members {
            members.push(Member {
                key,
                threshold,
                is_reached: self.value(key) >= threshold,
                is_removed: false,
            });
        }
        self.waits.push(Wait {
            plan: plan.clone(),
            members,
            deadline_ms: self.now_ms + plan.ms,
            is_waiting: true,
            was_parked: false,
            has_future: plan.kind != Kind::Callback,
            end: None,
        });
        // 2. It may be over at once: then it was never parked.
        match self.judged(number) {
            Some(Ok(met)) => {
                let wait = &mut self.waits[number];
                wait.is_waiting = false;
                wait.has_future = false;
                if plan.kind == Kind::Callback {
                    self.in_call(|reference, nested| {
                        reference.finish(nested, number, Outcome::Completed);
                    });
                } else {
                    self.waits[number].end = Some(Ok(met));
                }
            }
            Some(Err(lost)) => panic!("lost as it comes: {lost:?}"),
            None => self.waits[number].was_parked = true,
        }
        let is_over = !self.waits[number].was_parked;
        self.log.push(Saw::Came(number, is_over));
    }

    /// Returns how a wait ends by the present values, if it does.
    fn judged(&self, number: usize) -> Option<Result<Quorum, CancelReason>> {
        let wait = &self.waits[number];
        let is_left = |member: &&Member| !member.is_removed;
        let left = wait.members.iter().filter(is_left).count();
        let mut met = Quorum::new();
        for member in wait.members.iter().filter(is_left) {
            let value = self.value(member.key);
            if member.is_reached && value >= member.threshold {
                met.push((member.key, value));
            }
        }
        let needed = match wait.plan.kind {
            Kind::Quorum(Some(k)) => k,
            Kind::Quorum(None) => left.max(1),
            Kind::One | Kind::Callback => 1,
        };
        if left < needed {
            Some(Err(CancelReason::QuorumLost { left, needed }))
        } else if met.len() >= needed {
            Some(Ok(met))
        } else {
            None
        }
    }

    /// Judges a quorum of which a member has changed; returns the outcome if it is over now.
    fn judge(&mut self, number: usize) -> Option<Outcome> {
        if !self.waits[number].is_waiting {
            return None;
        }
        match self.judged(number)? {
            Ok(met) => {
                self.end(number, Ok(met));
                Some(Outcome::Completed)
            }
            Err(lost) => Some(self.cancel(number, Outcome::Cancelled(lost))),
        }
    }

    fn end(&mut self, number: usize, end: End) {
        match end {
            Ok(_) => self.completed += 1,
            Err(WaitError::Expired) => self.expired += 1,
            Err(_) => self.cancelled += 1,
        }
        self.waits[number].is_waiting = false;
        self.waits[number].end = Some(end);
    }

    fn cancel(&mut self, number: usize, outcome: Outcome) -> Outcome {
        if let Outcome::Cancelled(reason) = &outcome {
            self.end(number, Err(WaitError::Cancelled(reason.clone())));
        }
        outcome
    }

    /// Does a call, nested or not. Ends inside another call are reported when that returns.
    fn in_call<T>(&mut self, call: impl FnOnce(&mut Self, bool) -> T) -> T {
        let nested = std::mem::replace(&mut self.inside, true);
        let returned = call(self, nested);
        if !nested {
            while let Some((number, outcome)) = self.queue.pop_front() {
                self.report(number, outcome);
            }
            self.inside = false;
        }
        returned
    }

    fn finish(&mut self, nested: bool, number: usize, outcome: Outcome) {
        if nested || self.all_on_executor {
            self.queue.push_back((number, outcome));
        } else {
            self.report(number, outcome);
        }
    }

    fn report(&mut self, number: usize, outcome: Outcome) {
        let wait = &self.waits[number];
        let plan = wait.plan.clone();
        match plan.kind {
            Kind::Callback => self.log.push(Saw::Called(number, outcome)),
            // Its answer is made only now, and its future is gone.
            Kind::Quorum(_) if !wait.has_future => return,
            _ => self.log.push(Saw::Woken(number)),
        }
        for act in &plan.then {
            self.act(act);
        }
        self.panics += u64::from(plan.then_panics);
    }

    /// Changes a value, and completes what it reaches; in an epoch, if that is the key's.
    fn change(&mut self, key: Key, epoch: Option<u64>, value: u64) -> Result<usize, RefusedReason> {
        let present = self.epoch(key);
        if epoch.is_some_and(|epoch| epoch != present) {
            return Err(RefusedReason::OtherEpoch { present });
        }
        self.values.insert(key, (value, present));
        Ok(self.in_call(|reference, nested| {
            let (met, quorums) = reference.meet(key);
            reference.complete(nested, met, quorums)
        }))
    }

    /// Ends the waits for a key alone that its value reaches, by (threshold, parking), and marks
    /// the quorums. Returns both.
    fn meet(&mut self, key: Key) -> (Vec<usize>, Vec<usize>) {
        let value = self.value(key);
        let mut met = Vec::new();
        let mut quorums = Vec::new();
        for (threshold, number) in self.unmet(key) {
            if threshold > value {
                break;
            }
            let member = self.member(number, key);
            member.is_reached = true;
            if let Kind::Quorum(_) = self.waits[number].plan.kind {
                quorums.push(number);
            } else {
                self.end(number, Ok(vec![(key, value)]));
                met.push(number);
            }
        }
        (met, quorums)
    }

    fn member(&mut self, number: usize, key: Key) -> &mut Member {
        let mut members = self.waits[number].members.iter_mut();
        members.find(|member| member.key == key).unwrap()
    }

    /// Returns the waits that have not been reached by a key, by (threshold, parking).
    fn unmet(&self, key: Key) -> Vec<(u64, usize)> {
        let mut unmet = Vec::new();
        for (number, wait) in self.waits.iter().enumerate() {
            let is_unmet =
                |member: &&Member| member.key == key && !member.is_removed && !member.is_reached;
            if wait.is_waiting {
                let member = wait.members.iter().find(is_unmet);
                unmet.extend(member.map(|member| (member.threshold, number)));
            }
        }
        unmet.sort_unstable();
        unmet
    }

    /// Reports what was met, then judges the quorums, each in its turn. Returns how many completed;
    /// 0 inside another call.
    fn complete(&mut self, nested: bool, met: Vec<usize>, quorums: Vec<usize>) -> usize {
        let mut completed = met.len();
        for number in met {
            self.finish(nested, number, Outcome::Completed);
        }
        for number in quorums {
            if let Some(outcome) = self.judge(number) {
                completed += usize::from(outcome == Outcome::Completed);
                self.finish(nested, number, outcome);
            }
        }
        if nested { 0 } else { completed }
    }

    /// Judges quorums, then reports those that are over; returns how many.
    fn judge_all(&mut self, nested: bool, quorums: Vec<usize>) -> usize {
        let mut ended = Vec::new();
        for number in quorums {
            ended.extend(self.judge(number).map(|outcome| (number, outcome)));
        }
        let count = ended.len();
        for (number, outcome) in ended {
            self.finish(nested, number, outcome);
        }
        count
    }

    fn remove(&mut self, nested: bool, key: Key) -> usize {
        self.values.remove(&key);
        // 1. The waits for it alone are cancelled; it leaves the quorums.
        let mut cancelled = Vec::new();
        for (_, number) in self.unmet(key) {
            if !matches!(self.waits[number].plan.kind, Kind::Quorum(_)) {
                let outcome = self.cancel(number, requested("its key was removed"));
                cancelled.push((number, outcome));
            }
        }
        let mut quorums = Vec::new();
        for number in 0..self.waits.len() {
            let wait = &mut self.waits[number];
            for member in &mut wait.members {
                if wait.is_waiting && member.key == key && !member.is_removed {
                    member.is_removed = true;
                    quorums.push(number);
                }
            }
        }
        // 2. Report, then judge: in which order the quorums leave is not promised.
        let woken = |number: &usize| {
            let woken = Saw::Woken(*number);
            let seen = self.seen.iter().position(|saw| *saw == woken);
            seen.unwrap_or(usize::MAX)
        };
        quorums.sort_by_key(woken);
        let mut ended = cancelled.len();
        for (number, outcome) in cancelled {
            self.finish(nested, number, outcome);
        }
        ended += self.judge_all(nested, quorums);
        ended
    }

    fn reset(
        &mut self,
        nested: bool,
        key: Key,
        epoch: u64,
        value: u64,
        cancels: bool,
    ) -> Result<usize, RefusedReason> {
        // 1. The value. Members that it has not reached are no longer counted.
        let present = self.epoch(key);
        if epoch <= present {
            return Err(RefusedReason::OtherEpoch { present });
        }
        self.values.insert(key, (value, epoch));
        for wait in &mut self.waits {
            for member in &mut wait.members {
                member.is_reached &= member.key != key || member.threshold <= value;
            }
        }
        // 2. What it reaches, and what is for more.
        let (met, quorums) = self.meet(key);
        if !cancels {
            return Ok(self.complete(nested, met, quorums));
        }
        let mut ended = Vec::new();
        for number in met {
            ended.push((number, Outcome::Completed));
        }
        for (_, number) in self.unmet(key) {
            let outcome = self.cancel(number, requested("its key was reset"));
            ended.push((number, outcome));
        }
        let count = ended.len();
        for (number, outcome) in ended {
            self.finish(nested, number, outcome);
        }
        Ok(count + self.judge_all(nested, quorums))
    }

    fn drop_future(&mut self, number: usize) {
        let wait = &mut self.waits[number];
        if !std::mem::take(&mut wait.has_future) {
            return;
        }
        if wait.is_waiting {
            wait.is_waiting = false;
            self.cancelled += 1;
        }
        self.waits[number].end = None;
    }

    fn end_by_id(&mut self, number: usize, outcome: Outcome) -> EndResult {
        if !self.waits[number].is_waiting {
            return EndResult::Gone;
        }
        if outcome != Outcome::Completed {
            self.cancel(number, outcome.clone());
        } else if self.waits[number].plan.kind == Kind::Callback {
            self.end(number, Ok(Quorum::new()));
        } else {
            return EndResult::NoValue;
        }
        self.in_call(|reference, nested| reference.finish(nested, number, outcome));
        EndResult::Ended
    }

    /// Time passes. All that expire at a tick are over before the first is reported.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            let mut due = Vec::new();
            for number in 0..self.waits.len() {
                let wait = &self.waits[number];
                if wait.is_waiting && wait.deadline_ms <= self.now_ms {
                    self.end(number, Err(WaitError::Expired));
                    due.push(number);
                }
            }
            for number in due {
                self.in_call(|reference, _| reference.report(number, Outcome::Expired));
            }
        }
    }
}
