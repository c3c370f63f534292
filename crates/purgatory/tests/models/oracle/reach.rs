//! Reaching parked operations in the reference: look, take out, visit.

use std::collections::BTreeSet;

use purgatory::ReachResult;

use super::{
    reference::{Reference, State, Watching},
    steps::{Key, Returned, Saw, Then},
};

impl Reference {
    pub fn look(&self, number: usize) -> ReachResult<(usize, u32)> {
        let operation = &self.all[number];
        match operation.state {
            State::Parked => ReachResult::Parked((number, operation.look)),
            State::UnderCheck => ReachResult::UnderCheck,
            State::New | State::Over => ReachResult::Gone,
        }
    }

    /// Takes an operation out. It has no outcome, and its keys and its place are free.
    pub fn take(&mut self, number: usize, then: Then) -> Returned {
        let reached = Returned::Reached(self.look(number));
        if self.all[number].state != State::Parked {
            return reached;
        }
        self.take_out(number);
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
        self.known.forget(&[number]);
        self.stats.taken += 1;
        self.places -= 1;
        let operation = self.at(number);
        operation.state = State::Over;
        operation.deadline = None;
    }

    /// Takes everything under a key out, each once: plain watches by the order of parking, then
    /// watermarks by threshold, then met ones.
    pub fn take_for_key(&mut self, key: Key) -> Returned {
        let mut listed = self.plain(key);
        listed.extend(
            self.reached(key, u64::MAX)
                .iter()
                .map(|&(_, number)| number),
        );
        listed.extend(self.met(key));
        let mut taken = Vec::new();
        let mut under_check = BTreeSet::new();
        for number in listed {
            match self.all[number].state {
                State::Parked => {
                    self.take_out(number);
                    taken.push(number);
                }
                State::UnderCheck => _ = under_check.insert(number),
                State::New | State::Over => {}
            }
        }
        self.alive -= taken.len();
        self.count_if(taken.len() > 1, "several taken by key");
        self.count_if(!under_check.is_empty(), "not taken, as it is under check");
        Returned::Taken(taken, under_check.len())
    }

    /// Returns every parked operation with the keys that it still waits for, in the order given.
    pub fn visited(&self) -> Vec<(usize, Vec<Key>)> {
        let mut visited = Vec::new();
        for &number in &self.parked {
            let watches = self.all[number].watches.iter();
            let stands = watches.filter(|watch| watch.watching != Watching::Taken);
            visited.push((number, stands.map(|watch| watch.key).collect()));
        }
        visited.sort();
        visited
    }
}
