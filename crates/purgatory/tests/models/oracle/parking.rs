//! Parking in the reference: check, then watch; and checks.

use std::sync::Arc;

use purgatory::{Outcome, RefusedReason, Timeout, WaitError};

use super::{
    reference::{Operation, PANICKED, Reference, Slot, State, Verdict, Watch, Watching},
    steps::{KEYS, Key, PARKED_MAX, Plan, Request, Returned, Saw, Style},
};

impl Reference {
    pub fn park(&mut self, plan: &Arc<Plan>) -> Option<Returned> {
        if self.parked.len() >= PARKED_MAX || self.all.len() >= self.setup.operations_max {
            return None;
        }
        let number = self.all.len();
        let request = Request::new(number, plan, self.now_ns, self.quarter_ns(), &self.values);
        let wait = plan.style != Style::Callback;
        self.alive += 1;
        self.all.push(Operation {
            request,
            state: State::New,
            look: 0,
            flag: false,
            noted: None,
            watches: Vec::new(),
            to_count: 0,
            deadline: None,
            slot: wait.then_some(Slot::Waiting { polled: false }),
            value: None,
            has_place: false,
        });
        let returned = self.try_complete_else_watch(number);
        if returned == Returned::Parked {
            self.ids.push(number);
        }
        if !wait {
            return Some(returned);
        }
        if let Returned::Refused { reason, .. } = returned {
            self.at(number).slot = Some(Slot::Filled(Err(WaitError::Refused(reason))));
        }
        self.futures.insert(number);
        Some(Returned::Future)
    }

    pub fn try_complete_else_watch(&mut self, number: usize) -> Returned {
        let (keys, levels) =
            (self.all[number].request.keys.clone(), self.all[number].request.levels.clone());
        if keys.is_empty() && levels.is_empty() {
            return self.refused(number, RefusedReason::NoKeys);
        }
        let nested = self.enter();
        let returned = self.check_and_watch(nested, number, &keys, &levels);
        self.leave(nested);
        returned
    }

    pub fn check_and_watch(
        &mut self,
        nested: bool,
        number: usize,
        keys: &[Key],
        levels: &[(Key, u64)],
    ) -> Returned {
        let now_ns = self.now_ns; // deadlines count from the call
        let timeout = self.all[number].request.timeout;
        let no_time = match timeout {
            Timeout::After(delay) => delay.is_zero(),
            Timeout::At(at_ns) => at_ns <= now_ns,
            Timeout::Never => false,
            other => panic!("{other:?}"),
        };
        let before = self.versions.clone();
        let first = self.check(number);
        let events = before != self.versions;
        let ended = match first {
            Verdict::Holds => Some((Outcome::Completed, "completed at once")),
            Verdict::Panics => Some((PANICKED, "panicked in its first check")),
            Verdict::No if no_time => Some((Outcome::Expired, "expired for want of time")),
            Verdict::No => None,
        };
        if let Some((outcome, path)) = ended {
            self.count(path);
            return self.end_at_once(nested, number, outcome);
        }
        if self.setup.max_parked.is_some_and(|max| self.places >= max) {
            let limit = self.setup.max_parked.unwrap_or(0);
            return self.refused(number, RefusedReason::Full { limit });
        }
        if self.closed {
            return self.refused(number, RefusedReason::Closed);
        }
        let again = events && self.is_checked_again(number, keys, levels, &before);
        self.places += 1;
        self.at(number).has_place = true;
        self.stats.parked_total += 1;
        self.parked.push(number);
        let deadline = self.deadline(timeout, now_ns);
        self.watch_all(number, keys, levels);
        self.count_if(keys.len() > 2 * KEYS as usize, "hundreds of keys");
        let operation = self.at(number);
        operation.state = State::Parked;
        operation.deadline = deadline;
        if again {
            self.at(number).state = State::UnderCheck;
            let verdict = self.check(number);
            if let Some(outcome) = self.settle(number, verdict) {
                self.finish(nested, number, outcome.clone());
                return Returned::Ended(outcome);
            }
        }
        Returned::Parked
    }

    fn end_at_once(&mut self, nested: bool, number: usize, outcome: Outcome) -> Returned {
        self.stats.ended_at_once += 1;
        self.at(number).state = State::Over;
        self.finish(nested, number, outcome.clone());
        Returned::Ended(outcome)
    }

    /// An event of one of its keys came by in its first check. Whether keys of other hashes have
    /// the same version is taken from what was seen.
    fn is_checked_again(
        &mut self,
        number: usize,
        keys: &[Key],
        levels: &[(Key, u64)],
        before: &[u64],
    ) -> bool {
        let mut all = keys.iter().chain(levels.iter().map(|(key, _)| key));
        let version = |key| Self::version(key);
        let moved = all.any(|&key| before[version(key)] != self.versions[version(key)]);
        let look = Saw::Check { operation: number, look: self.all[number].look + 1 };
        let again = moved || self.seen.get(self.log.len()) == Some(&look);
        self.count_if(again, "an event in its first check");
        again
    }

    /// Repeated keys, and repeated watermarks, count once; in the check form the lowest of a key.
    pub fn watch_all(&mut self, number: usize, keys: &[Key], levels: &[(Key, u64)]) {
        let counted = self.all[number].request.plan.counted;
        let plain = keys.iter().map(|&key| (key, Watching::Plain));
        let unmet =
            levels.iter().map(|&(key, threshold)| (key, Watching::Unmet { threshold, counted }));
        let mut repeated = false;
        for (key, watching) in plain.chain(unmet) {
            let watches = &mut self.at(number).watches;
            let same = |watch: &&mut Watch| match (&watch.watching, &watching) {
                _ if watch.key != key => false,
                (Watching::Unmet { counted: false, .. }, Watching::Unmet { .. }) => true,
                (known, watching) => known == watching,
            };
            if let Some(watch) = watches.iter_mut().find(same) {
                repeated = true;
                if let (
                    Watching::Unmet { threshold: known, .. },
                    Watching::Unmet { threshold, .. },
                ) = (&mut watch.watching, watching)
                {
                    *known = threshold.min(*known);
                }
                continue;
            }
            self.order += 1;
            let order = self.order;
            self.at(number).watches.push(Watch { key, order, watching });
        }
        self.count_if(repeated, "repeated keys");
        let operation = self.at(number);
        let levels = operation.watches.iter().filter(|watch| watch.watching != Watching::Plain);
        operation.to_count = if counted { levels.count() } else { 0 };
    }

    pub fn refused(&mut self, number: usize, reason: RefusedReason) -> Returned {
        self.at(number).state = State::Over;
        self.alive -= 1;
        let stats = &mut self.stats;
        let (counted, path) = match reason {
            RefusedReason::NoKeys => (&mut stats.refused_no_keys, "refused without keys"),
            RefusedReason::Full { .. } => (&mut stats.refused_full, "refused, full"),
            _ => (&mut stats.refused_closed, "refused, closed"),
        };
        *counted += 1;
        self.count(path);
        Returned::Refused { reason, back: true }
    }

    /// Runs the check, with what it does.
    pub fn check(&mut self, number: usize) -> Verdict {
        self.stats.checks += 1;
        let verdict = self.condition(number);
        if self.all[number].slot.is_some() {
            let value = self.all[number].request.value(self.all[number].look);
            self.at(number).value = (verdict == Verdict::Holds).then_some(value);
        }
        verdict
    }

    pub fn condition(&mut self, number: usize) -> Verdict {
        self.at(number).look += 1;
        let look = self.all[number].look;
        self.log.push(Saw::Check { operation: number, look });
        let plan = self.all[number].request.plan.clone();
        if let Some((at, acts)) = &plan.on_check
            && *at == look
        {
            acts.iter().for_each(|act| self.act(Some(number), act));
        }
        let operation = &self.all[number];
        if plan.panics_at == Some(look) {
            self.stats.panics += 1;
            Verdict::Panics
        } else if operation.request.holds(look, operation.flag, &self.values) {
            Verdict::Holds
        } else {
            Verdict::No
        }
    }
}
