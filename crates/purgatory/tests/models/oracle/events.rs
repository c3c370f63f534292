//! Calls on many operations in the reference: events, cancels by key, shutdown.

use purgatory::Outcome;

use super::{
    reference::{
        Event, Handle, PANICKED, Reference, SHUTDOWN, State, Verdict, Watch, Work, requested,
    },
    steps::Key,
};

/// The number of operations that an event checks out at a time: docs/LOCKS.md.
const TOGETHER: usize = 16;

impl Reference {
    /// Returns the operations that watch a key, in the order of parking. Some may have ended.
    pub fn watching(&self, key: Key) -> Vec<usize> {
        let mut found = Vec::new();
        let mut add = |number: usize, watches: &[Watch]| {
            let here = watches.iter().filter(|watch| watch.key == key);
            found.extend(here.map(|watch| (watch.order, number)));
        };
        for &number in &self.parked {
            add(number, &self.all[number].watches);
        }
        for &number in &self.listed {
            add(number, &self.all[number].watches[1..]);
        }
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }

    pub fn handles(&self, numbers: Vec<usize>) -> Vec<Handle> {
        let handle = |number| self.handle(number);
        numbers.into_iter().map(handle).collect()
    }

    /// Returns the index of a key's version: keys with the same hash share one.
    pub fn version(key: Key) -> usize {
        key as usize % 97 / 2
    }

    fn raise_version(&mut self, key: Key) {
        self.stats.events += 1;
        self.versions[Self::version(key)] += 1;
    }

    /// Signals a key. A nested signal is deferred, unless no operation waits under the key.
    pub fn signal(&mut self, key: Key, event: Event) -> usize {
        self.in_call(|reference, nested| {
            if !nested {
                return reference.event(false, key, event);
            }
            let awaited = !reference.watching(key).is_empty();
            reference.count_if(awaited, "an event from inside");
            if awaited {
                reference.queue.push_back(Work::Event(key, event));
            } else {
                reference.raise_version(key);
            }
            0
        })
    }

    pub fn event(&mut self, nested: bool, key: Key, event: Event) -> usize {
        self.raise_version(key);
        match event {
            Event::All => self.attempt_each(nested, self.handles(self.watching(key))),
            Event::One => usize::from(self.event_for_one(nested, key)),
        }
    }

    /// Checks the present waiters one at a time, until a check holds. (A waiter that was completed
    /// by its id while under check has not used up the event.)
    fn event_for_one(&mut self, nested: bool, key: Key) -> bool {
        self.handles(self.watching(key)).into_iter().any(|handle| {
            let number = handle.number;
            if self.state(handle) != State::Parked {
                return false;
            }
            self.at(number).state = State::UnderCheck;
            let verdict = self.check(number);
            if let Some(outcome) = self.check_in(number, verdict) {
                self.finish(nested, number, outcome);
            }
            self.count_if(
                verdict != Verdict::Holds,
                "an event for one that looked further",
            );
            verdict == Verdict::Holds
        })
    }

    /// Checks the operations of a walk that are still parked when it reaches them; returns the
    /// number of those that completed.
    fn attempt_each(&mut self, nested: bool, mut rest: Vec<Handle>) -> usize {
        let mut completed = 0;
        self.count_if(rest.len() > TOGETHER, "a walk of several steps");
        loop {
            // Callbacks and checks of the previous step may have ended some. An operation that is
            // still listed takes its place in a step.
            let is_over = |handle: &Handle| self.state(*handle) == State::Over;
            let is_listed = |handle: &Handle| self.listed.contains(&handle.number);
            rest.retain(|handle| !is_over(handle) || is_listed(handle));
            if rest.is_empty() {
                return completed;
            }
            let together: Vec<_> = rest.drain(..rest.len().min(TOGETHER)).collect();
            let ended = together.iter().filter(|handle| is_over(handle)).count();
            self.count_if(ended > 0, "a step over what has ended");
            completed += self.attempt(nested, &together);
        }
    }

    fn attempt(&mut self, nested: bool, together: &[Handle]) -> usize {
        let parked = |handle: &&Handle| self.state(**handle) == State::Parked;
        let held = together.iter().filter(parked);
        let held: Vec<usize> = held.map(|handle| handle.number).collect();
        for &number in &held {
            self.all[number].state = State::UnderCheck;
        }
        let verdicts: Vec<Verdict> = held.iter().map(|&number| self.check(number)).collect();
        let mut ended = Vec::new();
        for (&number, verdict) in held.iter().zip(verdicts) {
            ended.extend(
                self.check_in(number, verdict)
                    .map(|outcome| (number, outcome)),
            );
        }
        let completed = ended
            .iter()
            .filter(|(_, outcome)| *outcome == Outcome::Completed)
            .count();
        for (number, outcome) in ended {
            self.finish(nested, number, outcome);
        }
        completed
    }

    /// Settles the end of a check: a check that holds takes precedence over a pending end, and a
    /// pending end over a pending recheck.
    pub fn check_in(&mut self, number: usize, verdict: Verdict) -> Option<Outcome> {
        let pending_end = self.at(number).pending_end.take();
        if let Some(pending_end) = &pending_end {
            self.count_if(
                true,
                &format!("{verdict:?}, and requested: {pending_end:?}"),
            );
        }
        let outcome = match (verdict, pending_end) {
            (Verdict::Holds, _) => Some(Outcome::Completed),
            (_, Some(pending_end)) => Some(pending_end),
            (Verdict::Panics, None) => Some(PANICKED),
            (Verdict::No, None) => None,
        };
        match &outcome {
            Some(outcome) => self.depart(number, outcome),
            None => self.at(number).state = State::Parked,
        }
        outcome
    }

    pub fn cancel_for_key(&mut self, key: Key) -> usize {
        let outcome = requested("by key");
        self.in_call(|reference, nested| {
            let ended = reference.claim_each(reference.watching(key), &outcome);
            let cancelled = ended.len();
            for number in ended {
                reference.finish(nested, number, outcome.clone());
            }
            cancelled
        })
    }

    /// Ends the parked operations and requests the end of those under check; returns the operations
    /// that it ended.
    pub fn claim_each(&mut self, mut claimed: Vec<usize>, outcome: &Outcome) -> Vec<usize> {
        claimed.retain(|&number| match self.all[number].state {
            State::Parked => {
                self.depart(number, outcome);
                true
            }
            State::UnderCheck => {
                self.request_end(number, outcome.clone());
                false
            }
            State::New | State::Over => false,
        });
        claimed
    }

    /// Ends everything, in the order of the record, since no order is promised.
    pub fn close(&mut self, outcome: &Outcome) {
        self.known.closed = true;
        let mut ended = self.claim_each(self.parked.clone(), outcome);
        if *outcome == SHUTDOWN {
            self.known.shut_down = true;
            return self.tell_closed(ended);
        }
        ended.sort_by_key(|&number| self.dropped.iter().position(|&dropped| dropped == number));
        self.in_call(|reference, nested| {
            for number in ended {
                reference.finish(nested, number, outcome.clone());
            }
        });
    }
}
