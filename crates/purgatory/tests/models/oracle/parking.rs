//! Parking in the reference: check, then watch. The checks, too.

use std::sync::Arc;

use purgatory::{Outcome, Timeout, WaitError};

use super::{
    acts::Side,
    reference::{Operation, PANICKED, Reference, State, Verdict, Watch},
    steps::{PARKED_MAX, Plan, Returned, Saw},
};

impl Reference {
    pub fn park(&mut self, plan: &Arc<Plan>) -> Option<Returned> {
        if self.parked.len() >= PARKED_MAX || self.all.len() >= self.setup.operations_max {
            return None;
        }
        let number = self.all.len();
        let request = self.request(plan);
        self.all.push(Operation::new(request));
        self.alive += 1;
        let returned = self.try_complete_else_watch(number);
        if returned == Returned::Parked {
            self.known.ids.push(number);
        }
        Some(returned)
    }

    /// Parks an operation, for the first time or again.
    pub fn try_complete_else_watch(&mut self, number: usize) -> Returned {
        let request = &self.all[number].request;
        if self.known.closed {
            return self.refused(number, WaitError::Closed); // before its check
        }
        if request.keys.is_empty() {
            return self.refused(number, WaitError::NoKeys);
        }
        match self.in_call(|reference, nested| reference.check_and_watch(nested, number)) {
            Ok(returned) => returned,
            // A shutdown behind its first check is the reason as well.
            Err(_) if self.known.closed => self.refused(number, WaitError::Closed),
            Err(reason) => self.refused(number, reason),
        }
    }

    fn check_and_watch(&mut self, nested: bool, number: usize) -> Result<Returned, WaitError> {
        let timeout = self.all[number].request.timeout;
        let no_time = match timeout {
            Timeout::After(delay) => delay.is_zero(),
            Timeout::At(at) => at.as_nanos() <= self.now_ns,
            _ => false,
        };
        let deadline = self.deadline(timeout); // counts from the call
        let before = self.versions.clone();
        let at_once = match self.check(number) {
            Verdict::Holds => Some(Outcome::Completed),
            Verdict::Panics => Some(PANICKED),
            Verdict::No => no_time.then_some(Outcome::Expired),
        };
        if let Some(outcome) = at_once {
            self.stats.ended_at_once += 1;
            self.at(number).state = State::Over;
            self.finish(nested, number, outcome);
            return Ok(Returned::Ended);
        }
        // Its check has closed the purgatory.
        if self.known.closed {
            return Err(WaitError::Closed);
        }
        if let Some(limit) = self.setup.max_parked.filter(|&max| self.places >= max) {
            return Err(WaitError::Full { limit });
        }
        let again = before != self.versions && self.is_checked_again(number, &before);
        self.places += 1;
        self.stats.parked_total += 1;
        self.parked.push(number);
        self.watch_all(number);
        let operation = self.at(number);
        operation.parkings += 1;
        operation.has_place = true;
        operation.deadline = deadline;
        operation.state = State::Parked;
        if again {
            self.at(number).state = State::UnderCheck;
            let verdict = self.check(number);
            if let Some(outcome) = self.check_in(number, verdict) {
                self.finish(nested, number, outcome);
                return Ok(Returned::Ended);
            }
        }
        Ok(Returned::Parked)
    }

    /// Returns true if an event of one of its keys came during its first check. Whether keys of
    /// different hashes share a version is taken from the record: such an operation was checked
    /// again at once, before any event that waits for this call to end.
    fn is_checked_again(&mut self, number: usize, before: &[u64]) -> bool {
        let request = &self.all[number].request;
        let mut keys = request.keys.iter();
        let version = |key| Self::version(key);
        let moved = keys.any(|&key| before[version(key)] != self.versions[version(key)]);
        let next_check = Saw::Check(number, self.all[number].look + 1);
        let is_next = self.seen.get(self.log.len()) == Some(&next_check);
        let look = self.all[number].look + 1;
        let again = moved || is_next && self.checked_twice.contains(&(number, look));
        self.count_if(again, "an event in its first check");
        again
    }

    /// Adds a watch for each key; repeated keys count once.
    fn watch_all(&mut self, number: usize) {
        let keys = self.all[number].request.keys.clone();
        let mut watches: Vec<Watch> = Vec::new();
        for key in keys {
            let is_known = watches.iter().any(|watch| watch.key == key);
            self.count_if(is_known, "repeated keys");
            if !is_known {
                self.order += 1;
                let order = self.order;
                watches.push(Watch { key, order });
            }
        }
        self.at(number).watches = watches;
    }

    fn refused(&mut self, number: usize, reason: WaitError) -> Returned {
        self.at(number).state = State::Over;
        self.alive -= 1;
        match reason {
            WaitError::NoKeys => self.stats.refused_no_keys += 1,
            WaitError::Full { .. } => self.stats.refused_full += 1,
            WaitError::Closed => self.stats.refused_closed += 1,
            _ => {} // not counted
        }
        Returned::Refused(reason, true)
    }

    /// Runs the check, with its acts.
    pub fn check(&mut self, number: usize) -> Verdict {
        self.stats.checks += 1;
        self.at(number).look += 1;
        let look = self.all[number].look;
        self.log.push(Saw::Check(number, look));
        let request = self.all[number].request.clone();
        for act in request.acts_at(look) {
            self.act(Some(number), act);
        }
        if request.plan.panics_at == Some(look) {
            self.stats.panics += 1;
            Verdict::Panics
        } else if request.holds(look, &self.known) {
            Verdict::Holds
        } else {
            Verdict::No
        }
    }
}
