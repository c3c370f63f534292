//! The reference: two shards on plain lists, written from the documentation of their functions.

use std::{collections::BTreeMap, task::Waker};

use timer_core::TimerHandle;

use super::{
    super::{expire::AdvanceLimits, links::SLOT, *},
    HOMES, Number,
};
use crate::operation::CancelReason;

pub(super) type Paths = BTreeMap<&'static str, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) struct Linked {
    /// The entry's index for a first key, the slot for a secondary one.
    pub(in crate::shard) at: u32,
    pub(in crate::shard) handle: TimerHandle,
}

/// The waiters of one key, in order: plain ones, those in turn and met ones as they came; the
/// others by threshold, then as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::shard) struct Waiting {
    pub(in crate::shard) plain: Vec<Linked>,
    pub(in crate::shard) in_turn: Vec<Linked>,
    pub(in crate::shard) unmet: Vec<(Watermark, Linked)>,
    pub(in crate::shard) met: Vec<Linked>,
    pub(in crate::shard) met_members: Vec<Linked>,
}

impl Linked {
    pub(super) fn first(handle: TimerHandle) -> Self {
        Linked {
            at: handle.id().index(),
            handle,
        }
    }

    pub(super) fn last_secondary(handle: TimerHandle, secondary: SecondaryId) -> Self {
        Linked {
            at: secondary.slot() | SLOT,
            handle,
        }
    }
}

impl Waiting {
    pub(in crate::shard) fn len(&self) -> usize {
        let listed = self.plain.len() + self.in_turn.len() + self.met.len();
        listed + self.unmet.len() + self.met_members.len()
    }

    pub(super) fn has(&self, waiter: Linked) -> bool {
        let unmet = self.unmet.iter().map(|(_, waiter)| waiter);
        self.plain
            .iter()
            .chain(&self.in_turn)
            .chain(&self.met)
            .chain(unmet)
            .any(|other| *other == waiter)
    }
}

/// An operation in its entry.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) id: TimerHandle,
    pub(super) payload: u64,
    /// A future waits for it.
    pub(super) awaited: bool,
    /// The waker of the last poll.
    pub(super) waker: Option<Waker>,
    /// `u64::MAX` for never.
    pub(super) deadline: u64,
    /// The tick of the wheel's visit, while it is scheduled.
    pub(super) armed: u64,
    pub(super) scheduled: bool,
    /// A recheck is queued, and not begun.
    pub(super) due_again: bool,
    /// Watermarks to be counted down.
    pub(super) counted: usize,
    /// Its secondary watches.
    pub(super) tickets: Vec<SecondaryId>,
    /// Watches that its parker, which holds it, has still to set.
    pub(super) to_watch: Option<Vec<(Number, Option<Watermark>)>>,
    pub(super) held: bool,
    /// Pending requests: for a check as for an event, which is not handed on ...
    pub(super) check: bool,
    /// ... and an event in turn, which is.
    pub(super) event: bool,
    /// The event is for all in turn.
    pub(super) for_all: bool,
    /// It is held, and is checked for an event that goes on to the next in turn, unless used up.
    pub(super) for_event: bool,
    /// Its future was dropped while it was held.
    pub(super) abandoned: bool,
    pub(super) recheck: bool,
    pub(super) end: Option<Outcome>,
}

/// An operation that has ended, and whose future has not taken the answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) id: TimerHandle,
    pub(super) payload: u64,
    /// `None` while its value is made.
    pub(super) outcome: Option<Outcome>,
    /// There is no turn to pass on while that is made.
    pub(super) has_no_turn: bool,
    /// The waker of the last poll, until there is an answer.
    pub(super) waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(super) struct FirstShard {
    pub(super) keys: BTreeMap<Number, Waiting>,
    pub(super) counts: Counts,
    /// Operations that were taken out.
    pub(super) taken: u64,
    pub(super) other_ends: OtherEnds,
}

/// The waiters that a walk under way has still to find.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) shard: usize,
    pub(super) id: WalkId,
    pub(super) rest: Vec<Linked>,
}

/// The results of an advance of a wheel.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Operations whose time is up, and which are not held.
    pub(super) due: Vec<TimerHandle>,
    /// The number that were left a request.
    pub(super) left_to_holder: usize,
    /// Operations that are due for a recheck that was not queued before, each with its tick.
    pub(super) rechecks: Vec<(TimerHandle, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) homes: [FirstShard; HOMES],
    pub(super) all: Vec<Parked>,
    pub(super) answered: Vec<Answered>,
    pub(super) walks: Vec<Walk>,
    /// Secondary watches of ended operations, still to be released, the last first.
    pub(super) leaving: Vec<(TimerHandle, Vec<SecondaryId>)>,
    pub(super) paths: Paths,
}

impl Reference {
    /// Counts a path as taken or, to have its name, as known.
    pub(super) fn count_if(&mut self, taken: bool, path: &'static str) {
        *self.paths.entry(path).or_default() += u64::from(taken);
    }

    pub(super) fn get(&mut self, id: TimerHandle) -> Option<&mut Parked> {
        self.all.iter_mut().find(|parked| parked.id == id)
    }

    /// Returns the waker of the last poll of a future.
    pub(super) fn polled(&mut self, id: TimerHandle) -> Option<&mut Option<Waker>> {
        let parked = self.all.iter_mut().filter(|parked| parked.awaited);
        let parked = parked.map(|parked| (parked.id, &mut parked.waker));
        let answered = self.answered.iter_mut();
        let answered = answered.map(|answered| (answered.id, &mut answered.waker));
        let mut both = parked.chain(answered);
        Some(both.find(|(of, _)| *of == id)?.1)
    }

    /// True if it has ended, and its future has not taken the answer.
    pub(super) fn has_answer(&self, id: TimerHandle) -> bool {
        self.answered.iter().any(|answered| answered.id == id)
    }

    /// Takes the answer of an operation, if there is one.
    pub(super) fn take_answer(&mut self, id: TimerHandle) -> Option<Answered> {
        let has_value = |answered: &Answered| answered.id == id && answered.outcome.is_some();
        let at = self.answered.iter().position(has_value)?;
        Some(self.answered.swap_remove(at))
    }

    /// Finds an operation by its payload: no two are alike.
    pub(super) fn handle_of(&self, payload: u64) -> TimerHandle {
        self.all
            .iter()
            .find(|parked| parked.payload == payload)
            .expect("it is parked")
            .id
    }

    pub(super) fn watch(&mut self, key: Number, watermark: Option<Watermark>, waiter: Linked) {
        let waiting = self.homes[key.shard()].keys.entry(key).or_default();
        let Some(watermark) = watermark else {
            return waiting.plain.push(waiter);
        };
        let at = waiting
            .unmet
            .partition_point(|(other, _)| other.threshold <= watermark.threshold);
        waiting.unmet.insert(at, (watermark, waiter));
        let below_another = at + 1 < waiting.unmet.len();
        self.count_if(below_another, "a threshold below another");
    }

    /// Removes a watch. Returns the key if that was its last one.
    pub(super) fn unwatch(&mut self, shard: usize, waiter: Linked) -> Option<Number> {
        for walk in self.walks.iter_mut().filter(|walk| walk.shard == shard) {
            walk.rest.retain(|other| *other != waiter);
        }
        let key = self.key_of(shard, waiter)?;
        let is = |other: &Linked| *other == waiter;
        let waiting = self.homes[shard].keys.get_mut(&key).unwrap();
        waiting.plain.retain(|other| !is(other));
        waiting.in_turn.retain(|other| !is(other));
        waiting.met.retain(|other| !is(other));
        waiting.unmet.retain(|(_, other)| !is(other));
        self.emptied(key)
    }

    /// Sets the watch of a first key, which may be in turn.
    pub(super) fn watch_first(
        &mut self,
        key: Number,
        watermark: Option<Watermark>,
        in_turn: bool,
        id: TimerHandle,
    ) {
        let first = Linked::first(id);
        if in_turn {
            let waiting = self.homes[key.shard()].keys.entry(key).or_default();
            waiting.in_turn.push(first);
        } else {
            self.watch(key, watermark, first);
        }
    }

    /// Returns those that wait in turn under the first key of an operation, if it does.
    fn line_of(&self, id: TimerHandle) -> &[Linked] {
        let first = Linked::first(id);
        let mut keys = self.homes[id.shard()].keys.values();
        let line = keys.find(|waiting| waiting.in_turn.contains(&first));
        line.map_or(&[], |waiting| &waiting.in_turn)
    }

    /// Returns true for an operation that waits in turn.
    pub(super) fn is_in_turn(&self, id: TimerHandle) -> bool {
        !self.line_of(id).is_empty()
    }

    /// Returns true for an operation that waits in turn, but is not the first.
    pub(super) fn is_behind(&self, id: TimerHandle) -> bool {
        let line = self.line_of(id);
        line.first().is_some_and(|head| head.handle != id)
    }

    /// Returns the operation behind a head that is about to leave, with a request for the event for
    /// which it is to be checked.
    pub(super) fn new_head(&mut self, id: TimerHandle) -> Option<TimerHandle> {
        let &[head, next, ..] = self.line_of(id) else {
            return None;
        };
        if head.handle != id {
            return None;
        }
        let parked = self.get(id)?;
        let cause = match (parked.event, parked.for_all) {
            (_, true) => TurnCause::EventForAll,
            (true, false) => TurnCause::EventForOne,
            (false, false) => TurnCause::HeadLeft,
        };
        self.count_if(cause == TurnCause::HeadLeft, "moved up");
        self.count_if(cause == TurnCause::EventForOne, "moved up, and an event");
        self.count_if(cause == TurnCause::EventForAll, "moved up, and one for all");
        let behind = self.get(next.handle)?;
        behind.event |= cause != TurnCause::HeadLeft;
        behind.for_all |= cause == TurnCause::EventForAll;
        Some(next.handle)
    }

    /// Checks an operation in turn out. Returns its payload, and the cause of its check.
    pub(super) fn check_out_in_turn(
        &mut self,
        id: TimerHandle,
        cause: TurnCause,
    ) -> Option<(u64, Cause)> {
        let parked = self.get(id)?;
        if parked.held {
            parked.event |= cause != TurnCause::HeadLeft;
            parked.for_all |= cause == TurnCause::EventForAll;
            return None;
        }
        parked.held = true;
        let is_asked = std::mem::take(&mut parked.check);
        parked.for_event = match cause {
            TurnCause::HeadLeft => std::mem::take(&mut parked.event),
            TurnCause::EventForOne | TurnCause::EventForAll => true,
        };
        parked.for_all |= cause == TurnCause::EventForAll;
        let cause = if parked.for_event || is_asked {
            Cause::Event
        } else {
            Cause::MovedUp
        };
        Some((parked.payload, cause))
    }

    /// Returns the key of a watch that was not taken.
    pub(super) fn key_of(&self, shard: usize, waiter: Linked) -> Option<Number> {
        let mut keys = self.homes[shard].keys.iter();
        keys.find(|(_, waiting)| waiting.has(waiter))
            .map(|(key, _)| *key)
    }

    /// Removes a key without waiters, and returns it.
    fn emptied(&mut self, key: Number) -> Option<Number> {
        let keys = &mut self.homes[key.shard()].keys;
        if keys.get(&key)?.len() > 0 {
            return None;
        }
        keys.remove(&key);
        Some(key)
    }

    /// Takes watches that are met, `limit` at most. Returns their operations and the key's state.
    pub(super) fn pop_up_to(
        &mut self,
        key: Number,
        reach: Option<u64>,
        limit: usize,
    ) -> (Vec<TimerHandle>, Popped<Number>) {
        let all = reach.is_none();
        let value = reach.unwrap_or(u64::MAX);
        // 1. Take or move the lowest ones, `limit` together.
        let mut taken = Vec::new();
        let waiting = self.homes[key.shard()].keys.get_mut(&key).unwrap();
        let before = waiting.unmet.len();
        let mut moved = 0;
        while before - waiting.unmet.len() < limit
            && waiting
                .unmet
                .first()
                .is_some_and(|(watermark, _)| watermark.threshold <= value)
        {
            let (watermark, waiter) = waiting.unmet.remove(0);
            if watermark.kind == WatermarkKind::Threshold || all {
                taken.push(waiter.handle);
            } else {
                waiting.met.push(waiter);
                moved += 1;
            }
        }
        // 2. Is another one met, and is the key still watched?
        let done = waiting
            .unmet
            .first()
            .is_none_or(|(watermark, _)| watermark.threshold > value);
        self.count_if(moved > 0, "met, and stays");
        self.count_if(!done, "more is met than is taken at once");
        let foreign = taken.iter().any(|handle| handle.shard() != key.shard());
        self.count_if(foreign, "a foreign watch taken");
        let emptied_key = self.emptied(key);
        self.count_if(emptied_key.is_some(), "a key whose last waiter was taken");
        let popped = match emptied_key {
            Some(key) => Popped::Emptied(key),
            None if done => Popped::Done,
            None => Popped::More,
        };
        (taken, popped)
    }

    pub(super) fn check_out(&mut self, id: TimerHandle) -> Option<u64> {
        let parked = self.get(id)?;
        if parked.held {
            parked.check = true;
            return None;
        }
        parked.held = true;
        parked.check = false;
        parked.for_event = std::mem::take(&mut parked.event); // of a head that left
        Some(parked.payload)
    }

    /// Returns true when this ends it. The caller removes it then.
    pub(super) fn claim(&mut self, id: TimerHandle, outcome: &Outcome) -> bool {
        let Some(parked) = self.get(id) else {
            return false;
        };
        if !parked.held {
            return true;
        }
        let second = parked.end.is_some();
        let arrives = parked.to_watch.is_some();
        parked.end.get_or_insert_with(|| outcome.clone());
        self.count_if(second, "a second end requested");
        self.count_if(arrives, "an end requested while it arrives");
        false
    }

    pub(super) fn count_down(&mut self, id: TimerHandle) -> CountedDown {
        let gone = self.get(id).is_none();
        self.count_if(gone, "gone before it is counted down");
        let Some(parked) = self.get(id) else {
            return CountedDown::Gone;
        };
        parked.counted -= 1;
        parked.check = true; // an advance is about to have it checked
        let last = parked.counted == 0;
        self.count_if(last, "the last watermark met");
        if last {
            CountedDown::Last
        } else {
            CountedDown::OthersRemain
        }
    }

    /// Visits the scheduled operations of a shard that are due. An early one is put back, a held
    /// one is left a request; the others are returned, for the shard's results to be compared with.
    pub(super) fn expire(&mut self, shard: usize, limits: AdvanceLimits) -> Expiry {
        let mut expiry = Expiry::default();
        for parked in &mut self.all {
            if parked.id.shard() != shard || !parked.scheduled || parked.armed > limits.now {
                continue;
            }
            if limits.now < parked.deadline {
                if !std::mem::replace(&mut parked.due_again, true) {
                    expiry.rechecks.push((parked.id, parked.armed));
                }
                parked.armed = (limits.now + limits.recheck_every).min(parked.deadline);
            } else if parked.held {
                parked.end.get_or_insert(Outcome::Expired);
                parked.scheduled = false;
                expiry.left_to_holder += 1;
            } else {
                expiry.due.push(parked.id);
            }
        }
        self.count_if(expiry.left_to_holder > 0, "expired while held");
        self.count_if(!expiry.rechecks.is_empty(), "due again");
        expiry
    }

    pub(super) fn check_in(&mut self, handle: TimerHandle, verdict: Verdict) -> Decision<u64> {
        self.homes[handle.shard()].counts.checks += 1;
        let parked = self.get(handle).unwrap();
        let payload = parked.payload;
        let end = parked.end.clone();
        let left = parked.event;
        let event = parked.check || left;
        let recheck = parked.recheck;
        // 1. The end: a check that came true beats a pending end, which beats a panic.
        let outcome = match verdict {
            Verdict::Satisfied => Some(Outcome::Completed),
            Verdict::Panicked => end
                .clone()
                .or(Some(Outcome::Cancelled(CancelReason::Panicked))),
            Verdict::Unsatisfied => end.clone(),
        };
        // 2. Without one the requests are read: it is held for one more check, or parked.
        if outcome.is_none() {
            parked.check = false;
            parked.event = false;
            parked.recheck = false;
            parked.held = event || recheck;
            // They go on to those behind as long as this is held.
            parked.for_event = parked.held && (parked.for_event || left);
            parked.for_all &= parked.held;
        } else if verdict != Verdict::Satisfied {
            parked.event |= parked.for_event; // no check has used it up
        }
        let came_true = verdict == Verdict::Satisfied;
        parked.event |= came_true && parked.abandoned; // no task has its value
        self.count_if(came_true && end.is_some(), "true, and an end requested");
        let beaten = verdict == Verdict::Unsatisfied && end.is_some() && event;
        self.count_if(beaten, "an end and an event requested");
        self.count_if(
            verdict == Verdict::Panicked && end.is_some(),
            "panicked, and an end requested",
        );
        match outcome {
            Some(outcome) => Decision::Ended(payload, outcome),
            None if event => Decision::CheckAgain(payload, Cause::Event),
            None if recheck => Decision::CheckAgain(payload, Cause::Recheck),
            None => Decision::Parked,
        }
    }

    /// Removes an operation that is over. Returns it, and its first key if that has no watch left.
    pub(super) fn remove_ended(
        &mut self,
        id: TimerHandle,
        outcome: &Outcome,
    ) -> (Parked, Option<Number>) {
        let home = &mut self.homes[id.shard()];
        home.other_ends.ended(&mut home.counts, outcome);
        self.remove(id)
    }

    pub(super) fn remove(&mut self, id: TimerHandle) -> (Parked, Option<Number>) {
        let at = self.all.iter().position(|parked| parked.id == id).unwrap();
        let parked = self.all.swap_remove(at);
        let emptied_key = self.unwatch(id.shard(), Linked::first(id));
        if !parked.tickets.is_empty() {
            self.leaving.push((id, parked.tickets.clone()));
        }
        (parked, emptied_key)
    }

    /// Returns the number of watches in a shard.
    pub(super) fn watched(&self, shard: usize) -> usize {
        let parked = self.all.iter().flat_map(|parked| &parked.tickets);
        let leaving = self.leaving.iter().flat_map(|(_, tickets)| tickets);
        let last_secondary = parked
            .chain(leaving)
            .filter(|secondary| secondary.shard as usize == shard);
        self.all
            .iter()
            .filter(|parked| parked.id.shard() == shard)
            .count()
            + last_secondary.count()
    }
}
