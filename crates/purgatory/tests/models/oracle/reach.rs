//! Reaching parked operations in the reference: look, take out, visit.

use std::collections::BTreeSet;

use purgatory::{Outcome, ReachResult, Timeout};

use super::{
    reference::{Reference, State},
    steps::{Key, Returned, Saw, Then},
};

impl Reference {
    pub fn look(&self, number: usize) -> ReachResult<(usize, u32)> {
        let operation = &self.all[number];
        match operation.state {
            State::Parked => ReachResult::Reached((number, operation.look)),
            State::UnderCheck => ReachResult::UnderCheck,
            State::New | State::Over => ReachResult::Gone,
        }
    }

    /// Takes an operation out. It gets no outcome; its keys and its place become free.
    pub fn take(&mut self, number: usize, then: Then) -> Returned {
        let reached = Returned::Reached(self.look(number));
        if self.all[number].state != State::Parked {
            return reached;
        }
        self.take_out(number);
        self.known.forget(&[number]);
        match then {
            Then::Drop => {
                self.alive -= 1;
                reached
            }
            Then::ParkAgain => {
                self.count_if(true, "parked again");
                self.log.push(Saw::Returned(reached));
                let operation = self.at(number);
                operation.state = State::New;
                operation.has_place = false;
                let returned = self.try_complete_else_watch(number);
                if returned == Returned::Parked {
                    self.known.ids.push(number);
                }
                returned
            }
        }
    }

    fn take_out(&mut self, number: usize) {
        self.parked.retain(|&other| other != number);
        self.stats.taken += 1;
        self.places -= 1;
        let operation = self.at(number);
        operation.state = State::Over;
        operation.deadline = None;
    }

    /// Completes the operations under a key; all of them have ended before the first callback.
    pub fn complete_for_key(&mut self, key: Key) -> usize {
        self.in_call(|reference, nested| {
            let listed = reference.watching(key);
            let ended = reference.claim_each(listed, &Outcome::Completed);
            let completed = ended.len();
            for number in ended {
                reference.finish(nested, number, Outcome::Completed);
            }
            reference.count_if(completed > 1, "several completed by key");
            completed
        })
    }

    pub fn reschedule_for_key(&mut self, key: Key, timeout: Timeout) -> usize {
        let listed = self.watching(key).into_iter();
        listed
            .filter(|&number| self.reschedule(number, timeout))
            .count()
    }

    /// Takes out the operations under a key, in the order of parking.
    pub fn take_for_key(&mut self, key: Key) -> Returned {
        let mut taken = Vec::new();
        let mut under_check = BTreeSet::new();
        for number in self.watching(key) {
            match self.all[number].state {
                State::Parked => {
                    self.take_out(number);
                    taken.push(number);
                }
                State::UnderCheck => _ = under_check.insert(number),
                State::New | State::Over => {}
            }
        }
        self.known.forget(&taken);
        self.alive -= taken.len();
        self.count_if(taken.len() > 1, "several taken by key");
        self.count_if(!under_check.is_empty(), "not taken, as it is under check");
        Returned::Taken(taken, under_check.len())
    }

    /// Returns every parked operation with its keys in the order given, sorted by number.
    pub fn visited(&self) -> Vec<(usize, Vec<Key>)> {
        let mut visited = Vec::new();
        for &number in &self.parked {
            let watches = self.all[number].watches.iter();
            visited.push((number, watches.map(|watch| watch.key).collect()));
        }
        visited.sort();
        visited
    }
}
