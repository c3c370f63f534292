//! Calls on many operations in the reference: events, advances, cancels by key, shutdown.

use std::collections::BTreeSet;

use purgatory::Outcome;

use super::{
    reference::{
        Event, Handle, PANICKED, Reference, SHUTDOWN, State, Verdict, Watch, Watching, Work,
        requested,
    },
    steps::Key,
};

/// The number of operations that are checked together, and of watermark watches that are taken in
/// one step: docs/LOCKS.md.
const TOGETHER: usize = 16;
const TAKEN: usize = 64;

impl Reference {
    /// The operations that have watches of this kind on a key, by rank and in the order parked.
    /// Some may have ended.
    pub fn watching<T: Ord>(
        &self,
        key: Key,
        rank: impl Fn(&Watch) -> Option<T>,
    ) -> Vec<(T, usize)> {
        let mut found = Vec::new();
        let mut add = |number: usize, watches: &[Watch]| {
            let here = watches.iter().filter(|watch| watch.key == key);
            found.extend(here.filter_map(|watch| Some((rank(watch)?, number))));
        };
        for &number in &self.parked {
            add(number, &self.all[number].watches);
        }
        for &number in &self.listed {
            add(number, &self.all[number].watches[1..]);
        }
        found.sort();
        found
    }

    pub fn handles(&self, numbers: Vec<usize>) -> Vec<Handle> {
        let handle = |number| self.handle(number);
        numbers.into_iter().map(handle).collect()
    }

    pub fn plain(&self, key: Key) -> Vec<usize> {
        let plain = |watch: &Watch| (watch.watching == Watching::Plain).then_some(watch.order);
        self.watching(key, plain)
            .into_iter()
            .map(|(_, number)| number)
            .collect()
    }

    /// Returns the met watches, in the order in which they were met.
    pub fn met(&self, key: Key) -> Vec<usize> {
        let met = |watch: &Watch| match watch.watching {
            Watching::Met { order } => Some(order),
            _ => None,
        };
        self.watching(key, met)
            .into_iter()
            .map(|(_, number)| number)
            .collect()
    }

    /// Returns the watches that a value meets, by threshold and order of parking.
    pub fn reached(&self, key: Key, value: u64) -> Vec<((u64, u64), usize)> {
        let reached = |watch: &Watch| match watch.watching {
            Watching::Unmet { threshold, .. } if threshold <= value => {
                Some((threshold, watch.order))
            }
            _ => None,
        };
        self.watching(key, reached)
    }

    /// Keys of one hash share a version.
    pub fn version(key: Key) -> usize {
        key as usize % 97 / 2
    }

    fn raise_version(&mut self, key: Key) {
        self.stats.events += 1;
        self.versions[Self::version(key)] += 1;
    }

    /// Signals a key; a nested signal is deferred, unless the key has no waiter.
    pub fn signal(&mut self, key: Key, event: Event) -> usize {
        self.in_call(|reference, nested| {
            if !nested {
                return reference.event(false, key, event);
            }
            let stands = |watch: &Watch| (watch.watching != Watching::Taken).then_some(());
            let awaited = !reference.watching(key, stands).is_empty();
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
        let in_turn = !self.line(key).is_empty();
        match event {
            Event::All => {
                let completed = self.attempt_each(nested, self.handles(self.plain(key)));
                completed + self.event_in_turn(nested, key, in_turn).completed
            }
            Event::One if self.event_for_one(nested, key) => 1,
            Event::One => usize::from(self.event_in_turn(nested, key, in_turn).came_true),
            Event::Advance(value) => self.advance_watermark(nested, key, value),
        }
    }

    /// Checks the present waiters one after another, until a check becomes true. (One that was
    /// completed under check, by its id, has not used the event up.)
    fn event_for_one(&mut self, nested: bool, key: Key) -> bool {
        self.handles(self.plain(key)).into_iter().any(|handle| {
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

    fn advance_watermark(&mut self, nested: bool, key: Key, value: u64) -> usize {
        let mut last = Vec::new();
        let mut check = Vec::new();
        for number in self.take_up_to(key, value, false) {
            if self.all[number].state == State::Over {
                continue;
            }
            self.at(number).to_count -= 1;
            if self.all[number].to_count > 0 {
                check.push(self.handle(number));
            } else {
                self.depart(number, &Outcome::Completed);
                last.push(number);
            }
        }
        let met = self.handles(self.met(key));
        self.count_if(last.len() > 1, "an advance that completes several");
        let mut completed = last.len();
        for number in last {
            self.finish(nested, number, Outcome::Completed);
        }
        let mut known = BTreeSet::new();
        check.retain(|&handle| known.insert(handle)); // each once
        for together in check.chunks(TOGETHER) {
            completed += self.attempt(nested, together);
        }
        let stayed = met.len();
        let by_check = self.attempt_each(nested, met);
        self.count_if(by_check < stayed, "a watch met that stays");
        completed + by_check
    }

    /// Takes the watermarks that a value meets; in the check form, unless `all` are taken, they
    /// stay, met.
    fn take_up_to(&mut self, key: Key, value: u64, all: bool) -> Vec<usize> {
        let reached = self.reached(key, value);
        self.count_if(reached.len() > TAKEN, "an advance for more than a chunk");
        let mut taken = Vec::new();
        for ((_, order), number) in reached {
            self.order += 1;
            let met = Watching::Met { order: self.order };
            let watches = &mut self.at(number).watches;
            let watch = watches
                .iter_mut()
                .find(|watch| watch.order == order)
                .unwrap();
            let counted = matches!(watch.watching, Watching::Unmet { counted: true, .. });
            watch.watching = if counted || all { Watching::Taken } else { met };
            if counted || all {
                taken.push(number);
            }
        }
        taken
    }

    /// Checks the operations of a walk that are still parked when it reaches them; returns how many
    /// completed.
    fn attempt_each(&mut self, nested: bool, mut rest: Vec<Handle>) -> usize {
        let mut completed = 0;
        self.count_if(rest.len() > TOGETHER, "a walk of several steps");
        loop {
            // Callbacks and checks of the step before may have ended some. One that is still listed
            // takes its place in a step.
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

    /// Settles the end of a check: a check that became true takes precedence over a pending end,
    /// and that over a pending recheck.
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

    /// Nothing is promised of the order in which a cancel takes them; these lists hold the
    /// reference to the one there is.
    pub fn cancel_for_key(&mut self, key: Key) -> usize {
        let outcome = requested("by key");
        self.in_call(|reference, nested| {
            let mut ended = reference.claim_each(reference.plain(key), &outcome);
            ended.extend(reference.claim_each(reference.line(key), &outcome));
            let unmet = reference.take_up_to(key, u64::MAX, true);
            ended.extend(reference.claim_each(unmet, &outcome));
            ended.extend(reference.claim_each(reference.met(key), &outcome));
            let cancelled = ended.len();
            for number in ended {
                reference.finish(nested, number, outcome.clone());
            }
            cancelled
        })
    }

    /// Ends the parked operations and requests the end of those under check; returns the parked
    /// ones.
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

    /// Ends everything, in the order that was seen: none is promised.
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
