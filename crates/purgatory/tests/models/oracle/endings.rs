//! How operations end in the reference, and who is told when.

use purgatory::{CancelReason, EndResult, Outcome, Timeout, WaitError, timer_core::JOB_TASKS};

use super::{
    reference::{
        DROPPED, Job, PANICKED, Reference, SHUTDOWN, Slot, State, Verdict, Watching, Work,
        requested,
    },
    steps::{Pick, Returned, Runs, Saw},
};

/// So much work one call does after itself, unless all is done in place: docs/LOCKS.md.
const BUDGET: usize = 1024;

impl Reference {
    /// The operation is over from here on, and waits for nothing.
    pub fn depart(&mut self, number: usize, outcome: &Outcome) {
        self.parked.retain(|&other| other != number);
        match outcome {
            Outcome::Completed => self.stats.completed += 1,
            Outcome::Expired => self.stats.expired += 1,
            _ => self.stats.cancelled += 1,
        }
        self.stats.cancelled_by_shutdown += u64::from(*outcome == SHUTDOWN);
        self.stats.cancelled_by_drop += u64::from(*outcome == DROPPED);
        self.stats.cancelled_by_panic += u64::from(*outcome == PANICKED);
        self.count_departure(number, outcome);
        let operation = self.at(number);
        operation.state = State::Over;
        operation.deadline = None;
    }

    pub fn count_departure(&mut self, number: usize, outcome: &Outcome) {
        let operation = &self.all[number];
        let any =
            |is: fn(&Watching) -> bool| operation.watches.iter().any(|watch| is(&watch.watching));
        let taken = any(|watching| *watching == Watching::Taken);
        let met = any(|watching| matches!(watching, Watching::Met { .. }));
        let several = operation.watches.len() > 1;
        let last = operation.to_count == 0 && taken;
        self.count_if(*outcome == Outcome::Expired && taken, "a watch taken, then expiry");
        self.count_if(*outcome == Outcome::Expired && met, "a watch met, then expiry");
        self.count_if(*outcome == requested("by id") && met, "a watch met, then a cancel by id");
        self.count_if(*outcome == requested("by key") && met, "a watch met, then a cancel by key");
        self.count_if(*outcome == Outcome::Completed && met, "a watch met, then completed");
        self.count_if(last && several, "completed by the last of several watermarks");
    }

    /// What expired is told on the executor; so is all, if so built.
    pub fn finish(&mut self, nested: bool, number: usize, outcome: Outcome) {
        if self.setup.all_on_executor || outcome == Outcome::Expired {
            self.tell_elsewhere(vec![number], outcome);
        } else {
            self.tell_here(nested, number, outcome);
        }
    }

    pub fn tell_here(&mut self, nested: bool, number: usize, outcome: Outcome) {
        if nested {
            self.queue.push_back(Work::Tell(number, outcome));
        } else {
            self.tell_now(number, outcome);
        }
    }

    /// Until now it kept its place.
    pub fn tell_now(&mut self, number: usize, outcome: Outcome) {
        self.alive -= 1;
        self.places -= usize::from(self.all[number].has_place);
        if self.all[number].slot.is_some() {
            return self.tell_wait(number, outcome);
        }
        let plan = self.all[number].request.plan.clone();
        self.log.push(Saw::Callback(number, outcome));
        plan.then.iter().for_each(|act| self.act(Some(number), act));
        if plan.then_panics {
            self.stats.panics += 1;
            self.count("a callback panicked");
        }
    }

    /// The result for a future; completed without a check that said so, its condition is asked.
    pub fn tell_wait(&mut self, number: usize, outcome: Outcome) {
        let result = match outcome {
            Outcome::Expired => Err(WaitError::Expired),
            Outcome::Cancelled(reason) => Err(WaitError::Cancelled(reason)),
            _ => match self.at(number).value {
                Some(value) => Ok(value),
                None => match self.condition(number) {
                    Verdict::Holds => {
                        self.count("a wait's value asked for at the end");
                        Ok(self.all[number].request.value(self.all[number].look))
                    }
                    Verdict::No => {
                        self.count("a wait completed without a value");
                        let reason = "completed without a value".into();
                        Err(WaitError::Cancelled(CancelReason::Requested(reason)))
                    }
                    Verdict::Panics => {
                        self.count("a wait panicked when asked for its value");
                        Err(WaitError::Cancelled(CancelReason::Panicked))
                    }
                },
            },
        };
        match self.at(number).slot.clone() {
            Some(Slot::Waiting { polled }) => {
                self.at(number).slot = Some(Slot::Filled(result));
                if polled {
                    self.log.push(Saw::Woken(number));
                }
            }
            _ => self.unclaimed(result.ok(), "a value came after its future was dropped"),
        }
    }

    /// A value that no future takes is dropped.
    fn unclaimed(&mut self, value: Option<u32>, path: &'static str) {
        self.count_if(value.is_some(), path);
    }

    pub fn poll(&mut self, own: Option<usize>, pick: Pick) -> Option<Returned> {
        let number = self.pick_future(own, pick)?;
        if let Slot::Waiting { polled } = self.at(number).slot.as_mut()? {
            *polled = true;
            self.futures.insert(number);
            return Some(Returned::Pending);
        }
        self.take(number)
    }

    /// The result of a wait that is over.
    pub fn take(&mut self, number: usize) -> Option<Returned> {
        let Slot::Filled(result) = self.at(number).slot.replace(Slot::Left)? else { return None };
        Some(Returned::Ready(result))
    }

    pub fn drop_future(&mut self, number: usize) {
        match self.at(number).slot.replace(Slot::Left) {
            Some(Slot::Waiting { .. }) => {
                let state = self.all[number].state;
                self.count_if(state == State::Parked, "a future dropped while it waits");
                self.count_if(state == State::UnderCheck, "a future dropped under check");
                self.count_if(state == State::Over, "a future dropped before it is told");
                self.end(number, requested("the future was dropped"));
            }
            Some(Slot::Filled(result)) => {
                self.unclaimed(result.ok(), "a future dropped with its value");
            }
            _ => {}
        }
    }

    /// Ends one operation from outside.
    pub fn end(&mut self, number: usize, outcome: Outcome) -> EndResult {
        let nested = self.enter();
        let attempt = match self.all[number].state {
            State::New | State::Over => EndResult::Gone,
            State::UnderCheck => {
                self.note(number, outcome);
                EndResult::Noted
            }
            State::Parked => {
                self.depart(number, &outcome);
                self.finish(nested, number, outcome);
                EndResult::Ended
            }
        };
        self.leave(nested);
        self.count(match attempt {
            EndResult::Ended => "ended by id",
            EndResult::Noted => "noted by id",
            EndResult::Gone => "gone",
            other => panic!("{other:?}"),
        });
        attempt
    }

    /// Leaves a note with whoever checks the operation: the first one counts.
    pub fn note(&mut self, number: usize, outcome: Outcome) {
        let second = self.at(number).noted.is_some();
        self.count_if(second, "a second end noted");
        self.at(number).noted.get_or_insert(outcome);
    }

    pub fn reschedule(&mut self, number: usize, timeout: Timeout) -> bool {
        let to = self.deadline(timeout, self.now_ns);
        let operation = &self.all[number];
        if matches!(operation.state, State::New | State::Over) || operation.noted.is_some() {
            self.count("rescheduled too late");
            return false;
        }
        let from = operation.deadline;
        self.at(number).deadline = to;
        self.count(match (from, to) {
            (_, None) => "rescheduled to never",
            (None, Some(_)) => "rescheduled from never",
            (Some(from), Some(to)) if to < from => "rescheduled to earlier",
            _ => "rescheduled to later",
        });
        true
    }

    /// Hands what expired to the executor, in jobs: told at once, or kept.
    pub fn tell_elsewhere(&mut self, numbers: Vec<usize>, outcome: Outcome) {
        for numbers in numbers.chunks(JOB_TASKS) {
            let job = Job::Tell(numbers.to_vec(), outcome.clone());
            if self.setup.executor != Runs::Inline {
                self.jobs.push_back(job);
            } else {
                self.run(job);
            }
        }
    }

    /// Tells what a shutdown ended, on the executor.
    pub fn tell_closed(&mut self, ended: Vec<usize>) {
        let counts = ended.chunks(JOB_TASKS).map(<[usize]>::len).collect::<Vec<_>>();
        self.closing.extend(ended);
        for count in counts {
            match self.setup.executor {
                Runs::Inline => self.run(Job::TellClosed(count)),
                _ => self.jobs.push_back(Job::TellClosed(count)),
            }
        }
    }

    /// The next of those that a shutdown ended, in the order that was seen: none is promised.
    fn closing_next(&mut self, count: usize) -> Vec<usize> {
        let dropped = &self.dropped;
        let seen = |number: &usize| dropped.iter().position(|dropped| dropped == number);
        self.closing.sort_by_key(|number| seen(number).unwrap_or(usize::MAX));
        self.closing.drain(..count).collect()
    }

    pub fn run_job(&mut self) -> bool {
        let job = self.jobs.pop_front();
        let some = job.is_some();
        self.count_if(some, "a job that was kept");
        job.into_iter().for_each(|job| self.run(job));
        some
    }

    pub fn run_jobs(&mut self) {
        while self.run_job() {}
    }

    pub fn run(&mut self, job: Job) {
        match job {
            Job::Tell(numbers, outcome) => {
                for number in numbers {
                    let nested = self.enter();
                    self.tell_here(nested, number, outcome.clone());
                    self.leave(nested);
                }
            }
            Job::TellClosed(count) => {
                let numbers = self.closing_next(count);
                self.run(Job::Tell(numbers, SHUTDOWN));
            }
            Job::Rest(work) => {
                let nested = self.enter();
                self.queue.extend(work);
                self.leave(nested);
            }
        }
    }

    /// Enters a call; true inside another one. What it ends is told when the outermost one returns.
    pub fn enter(&mut self) -> bool {
        std::mem::replace(&mut self.inside, true)
    }

    pub fn leave(&mut self, nested: bool) {
        if nested {
            return;
        }
        let budget = if self.setup.executor != Runs::Inline { BUDGET } else { usize::MAX };
        for _ in 0..budget {
            let Some(work) = self.queue.pop_front() else { break };
            match work {
                Work::Tell(number, outcome) => self.tell_now(number, outcome),
                Work::Event(key) => _ = self.event(true, key),
                Work::EventForOne(key) => _ = self.event_for_one(true, key),
                Work::Rise(key, value) => _ = self.rise(true, key, value),
            }
        }
        self.inside = false;
        let rest = std::mem::take(&mut self.queue);
        if !rest.is_empty() {
            self.count("more than a call's budget");
            self.jobs.push_back(Job::Rest(rest));
        }
    }
}
