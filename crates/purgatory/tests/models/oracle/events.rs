//! What looks at many operations in the reference: events, rises, cancels by key, shutdown.

use std::collections::BTreeSet;

use purgatory::Outcome;

use super::{
    reference::{
        DROPPED, PANICKED, Reference, SHUTDOWN, State, Verdict, Watch, Watching, Work, requested,
    },
    steps::Key,
};

/// How many waiters a walk takes at a time, and how many of them are checked together:
/// docs/LOCKS.md. Watermark watches taken in one step.
const TAKEN: usize = 64;
const TOGETHER: usize = 16;

impl Reference {
    fn is_over(&self, number: usize) -> bool {
        self.all[number].state == State::Over
    }

    /// The watches that are told of here, each with its operation, in the order parked.
    fn watching<T: Ord>(&self, key: Key, rank: impl Fn(&Watch) -> Option<T>) -> Vec<(T, usize)> {
        let mut found = Vec::new();
        for &number in &self.parked {
            let here = self.all[number].watches.iter().filter(|watch| watch.key == key);
            found.extend(here.filter_map(|watch| Some((rank(watch)?, number))));
        }
        found.sort();
        found
    }

    fn plain(&self, key: Key) -> Vec<usize> {
        let plain = |watch: &Watch| (watch.watching == Watching::Plain).then_some(watch.order);
        self.watching(key, plain).into_iter().map(|(_, number)| number).collect()
    }

    /// Those met, in the order they were.
    fn met(&self, key: Key) -> Vec<usize> {
        let met = |watch: &Watch| match watch.watching {
            Watching::Met { order } => Some(order),
            _ => None,
        };
        self.watching(key, met).into_iter().map(|(_, number)| number).collect()
    }

    /// Those that a value meets, by (threshold, order of parking), the watch by its order.
    fn reached(&self, key: Key, value: u64) -> Vec<((u64, u64), usize)> {
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

    pub fn check_and_complete(&mut self, key: Key) -> usize {
        let nested = self.enter();
        let mut completed = 0;
        if nested {
            self.queue_if_awaited(key, Work::Event(key));
            self.count("an event from inside");
        } else {
            completed = self.event(false, key);
        }
        self.leave(nested);
        completed
    }

    pub fn check_and_complete_one(&mut self, key: Key) -> bool {
        let nested = self.enter();
        let mut completed = false;
        if nested {
            self.queue_if_awaited(key, Work::EventForOne(key));
            self.count("an event for one from inside");
        } else {
            completed = self.event_for_one(false, key);
        }
        self.leave(nested);
        completed
    }

    /// Checks one after the other of those that wait now, until a check comes true. (One that was
    /// completed under check, by its id, has not used the event up.)
    pub fn event_for_one(&mut self, nested: bool, key: Key) -> bool {
        self.raise_version(key);
        for number in self.plain(key) {
            if self.all[number].state != State::Parked {
                continue;
            }
            self.at(number).state = State::UnderCheck;
            let verdict = self.check(number);
            if let Some(outcome) = self.settle(number, verdict) {
                self.finish(nested, number, outcome);
            }
            if verdict == Verdict::Holds {
                self.count("an event for one that it completed");
                return true;
            }
            self.count("an event for one that looked further");
        }
        false
    }

    /// For a key that nobody waits for there is nothing to be done later.
    fn queue_if_awaited(&mut self, key: Key, work: Work) {
        let stands = |watch: &Watch| (!matches!(watch.watching, Watching::Taken)).then_some(());
        if self.watching(key, stands).is_empty() {
            self.raise_version(key);
            self.count("an event from inside for nobody");
        } else {
            self.queue.push_back(work);
        }
    }

    pub fn event(&mut self, nested: bool, key: Key) -> usize {
        self.raise_version(key);
        let waiters = self.plain(key);
        self.count_if(waiters.len() > TOGETHER, "an event for more than a chunk");
        self.attempt_each(nested, waiters)
    }

    pub fn complete_up_to(&mut self, key: Key, value: u64) -> usize {
        let nested = self.enter();
        let mut completed = 0;
        if nested {
            self.queue_if_awaited(key, Work::Rise(key, value));
            self.count("a rise from inside");
        } else {
            completed = self.rise(false, key, value);
        }
        self.leave(nested);
        completed
    }

    pub fn rise(&mut self, nested: bool, key: Key, value: u64) -> usize {
        self.raise_version(key);
        let (mut last, mut check) = (Vec::new(), Vec::new());
        let met = loop {
            let (taken, met) = self.take_up_to(key, value, false);
            self.count_down(&taken, &mut last, &mut check);
            if let Some(met) = met {
                break met;
            }
        };
        self.count_if(!check.is_empty(), "a watermark met, others to come");
        self.count_if(last.len() > 1, "a rise that completes several");
        let mut completed = last.len();
        last.into_iter().for_each(|number| self.finish(nested, number, Outcome::Completed));
        let mut known = BTreeSet::new();
        check.retain(|&number| known.insert(number)); // each once
        for together in check.chunks(TOGETHER) {
            completed += self.attempt(nested, together);
        }
        let stayed = met.len();
        self.count_if(stayed > 0, "a rise for watches that are met");
        let by_check = self.attempt_each(nested, met);
        self.count_if(by_check < stayed, "a watch met that stays");
        completed + by_check
    }

    /// Takes, or with the check form meets, up to a chunk of watermarks. With the last of them,
    /// those that are met.
    fn take_up_to(&mut self, key: Key, value: u64, all: bool) -> (Vec<usize>, Option<Vec<usize>>) {
        let reached = self.reached(key, value);
        self.count_if(reached.len() > TAKEN, "a rise for more than a chunk");
        let mut taken = Vec::new();
        for &((_, order), number) in reached.iter().take(TAKEN) {
            self.order += 1;
            let met = Watching::Met { order: self.order };
            let watches = &mut self.at(number).watches;
            let watch = watches.iter_mut().find(|watch| watch.order == order).unwrap();
            let counted = matches!(watch.watching, Watching::Unmet { counted: true, .. });
            watch.watching = if counted || all { Watching::Taken } else { met };
            if counted || all {
                taken.push(number);
            }
        }
        (taken, (reached.len() <= TAKEN).then(|| self.met(key)))
    }

    fn count_down(&mut self, taken: &[usize], last: &mut Vec<usize>, check: &mut Vec<usize>) {
        for &number in taken {
            self.at(number).to_count -= 1;
            if self.all[number].to_count > 0 {
                check.push(number);
            } else {
                self.depart(number, &Outcome::Completed);
                last.push(number);
            }
        }
    }

    /// Checks those of a walk that are still parked when it comes by; how many that completed.
    fn attempt_each(&mut self, nested: bool, mut rest: Vec<usize>) -> usize {
        let mut completed = 0;
        while !rest.is_empty() {
            let together: Vec<usize> = rest.drain(..rest.len().min(TOGETHER)).collect();
            completed += self.attempt(nested, &together);
            rest.retain(|&number| !self.is_over(number));
        }
        completed
    }

    fn attempt(&mut self, nested: bool, together: &[usize]) -> usize {
        let mut held = Vec::new();
        for &number in together {
            match self.all[number].state {
                State::Parked => {
                    self.at(number).state = State::UnderCheck;
                    held.push(number);
                }
                State::UnderCheck => unreachable!("on one thread no event falls into a check"),
                State::New | State::Over => {}
            }
        }
        let verdicts: Vec<Verdict> = held.iter().map(|&number| self.check(number)).collect();
        let mut ended = Vec::new();
        for (&number, verdict) in held.iter().zip(verdicts) {
            ended.extend(self.settle(number, verdict).map(|outcome| (number, outcome)));
        }
        let completed = ended.iter().filter(|(_, outcome)| *outcome == Outcome::Completed).count();
        self.count_if(together.len() == TOGETHER, "as many as are checked together");
        ended.into_iter().for_each(|(number, outcome)| self.finish(nested, number, outcome));
        completed
    }

    /// After a check: a check that came true beats a noted end, which beats the rest.
    pub fn settle(&mut self, number: usize, verdict: Verdict) -> Option<Outcome> {
        let noted = self.at(number).noted.take();
        let outcome = match (verdict, &noted) {
            (Verdict::Holds, noted) => {
                self.count_if(noted.is_some(), "true, and an end noted");
                Some(Outcome::Completed)
            }
            (_, Some(noted)) => {
                self.count_if(verdict == Verdict::Panics, "panicked, and an end noted");
                self.count_if(*noted == Outcome::Expired, "expired under check");
                self.count_if(*noted == SHUTDOWN || *noted == DROPPED, "shut down under check");
                Some(noted.clone())
            }
            (Verdict::Panics, None) => {
                self.count("panicked in a later check");
                Some(PANICKED)
            }
            (Verdict::No, None) => None,
        };
        let operation = self.at(number);
        match &outcome {
            Some(outcome) => self.depart(number, outcome),
            None => operation.state = State::Parked,
        }
        outcome
    }

    /// Nothing is promised of the order in which a cancel takes them; these lists hold the
    /// reference to the one there is.
    pub fn cancel_for_key(&mut self, key: Key) -> usize {
        let nested = self.enter();
        let mut ended = Vec::new();
        self.claim_each(self.plain(key), &mut ended);
        let met = loop {
            let (taken, met) = self.take_up_to(key, u64::MAX, true);
            self.claim_each(taken, &mut ended);
            if let Some(met) = met {
                break met;
            }
        };
        self.claim_each(met, &mut ended);
        let cancelled = ended.len();
        let outcome = requested("by key");
        ended.into_iter().for_each(|number| self.finish(nested, number, outcome.clone()));
        self.leave(nested);
        cancelled
    }

    fn claim_each(&mut self, claimed: Vec<usize>, ended: &mut Vec<usize>) {
        let outcome = requested("by key");
        for number in claimed {
            match self.all[number].state {
                State::Parked => {
                    self.depart(number, &outcome);
                    ended.push(number);
                }
                State::UnderCheck => {
                    self.note(number, outcome.clone());
                    self.count("cancelled by key under check");
                }
                State::New | State::Over => {}
            }
        }
    }

    /// Ends everything, in the order that was seen: none is promised.
    pub fn close(&mut self, outcome: &Outcome) {
        self.closed = true;
        let mut ended = Vec::new();
        for number in self.parked.clone() {
            if self.all[number].state == State::Parked {
                self.depart(number, outcome);
                ended.push(number);
            } else {
                self.note(number, outcome.clone());
            }
        }
        if *outcome == SHUTDOWN {
            self.shut_down = true;
            return self.tell_closed(ended);
        }
        let nested = self.enter();
        ended.sort_by_key(|&number| self.dropped.iter().position(|&dropped| dropped == number));
        ended.into_iter().for_each(|number| self.finish(nested, number, outcome.clone()));
        self.leave(nested);
    }
}
