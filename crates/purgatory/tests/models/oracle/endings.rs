//! Endings in the reference, and the order of callbacks.

use purgatory::{Outcome, ReachResult, Timeout, timer_core::JOB_TASKS};

use super::{
    acts::Side,
    reference::{DROPPED, Job, PANICKED, Reference, SHUTDOWN, State, Work},
    steps::{Runs, Saw},
};

/// The number of deferred calls and callbacks that one call does before it returns, unless the
/// executor runs in place: docs/LOCKS.md.
const BUDGET: usize = 1024;

impl Reference {
    /// Ends an operation: from here on it is over and waits for nothing.
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
        let operation = self.at(number);
        operation.state = State::Over;
        operation.deadline = None;
    }

    /// Calls an operation back: on the executor if it expired or all callbacks go there. One that
    /// ended at once takes a place while its callback is queued, there or behind a call.
    pub fn finish(&mut self, nested: bool, number: usize, outcome: Outcome) {
        let elsewhere = self.setup.all_on_executor || outcome == Outcome::Expired;
        if elsewhere || nested {
            let had_place = std::mem::replace(&mut self.at(number).has_place, true);
            self.places += usize::from(!had_place);
        }
        if elsewhere {
            self.tell_elsewhere(vec![number], outcome);
        } else {
            self.tell_here(nested, number, outcome);
        }
    }

    pub fn tell_here(&mut self, nested: bool, number: usize, outcome: Outcome) {
        if nested {
            self.queue.push_back(Work::CallBack(number, outcome));
        } else {
            self.call_back_now(number, outcome);
        }
    }

    /// Calls an operation back, and frees its place.
    fn call_back_now(&mut self, number: usize, outcome: Outcome) {
        self.alive -= 1;
        self.places -= usize::from(self.all[number].has_place);
        let plan = self.all[number].request.plan.clone();
        self.log.push(Saw::Callback(number, outcome));
        for act in &plan.then {
            self.act(Some(number), act);
        }
        self.stats.panics += u64::from(plan.then_panics);
    }

    /// Ends one operation from outside.
    pub fn end(&mut self, number: usize, outcome: Outcome) -> ReachResult {
        self.in_call(|reference, nested| match reference.all[number].state {
            State::New | State::Over => ReachResult::Gone,
            State::UnderCheck => {
                reference.request_end(number, outcome);
                ReachResult::UnderCheck
            }
            State::Parked => {
                reference.depart(number, &outcome);
                reference.finish(nested, number, outcome);
                ReachResult::Reached(())
            }
        })
    }

    /// Requests the end of an operation under check: the first request counts.
    pub fn request_end(&mut self, number: usize, outcome: Outcome) {
        let second = self.at(number).pending_end.is_some();
        self.count_if(second, "a second end requested");
        self.at(number).pending_end.get_or_insert(outcome);
    }

    pub fn reschedule(&mut self, number: usize, timeout: Timeout) -> bool {
        let deadline = self.deadline(timeout);
        let operation = self.at(number);
        let waits = matches!(operation.state, State::Parked | State::UnderCheck);
        let done = waits && operation.pending_end.is_none();
        if done {
            operation.deadline = deadline;
        }
        done
    }

    /// Hands expired operations to the executor, in jobs that run at once or are kept. The
    /// operations leave the lists of their keys job by job.
    pub fn tell_elsewhere(&mut self, numbers: Vec<usize>, outcome: Outcome) {
        self.listed.extend(&numbers);
        for numbers in numbers.chunks(JOB_TASKS) {
            self.listed.retain(|number| !numbers.contains(number));
            let job = Job::CallBack(numbers.to_vec(), outcome.clone());
            if self.setup.executor != Runs::Inline {
                self.jobs.push_back(job);
            } else {
                self.run(job);
            }
        }
    }

    /// Calls back the operations that a shutdown ended, on the executor.
    pub fn tell_closed(&mut self, ended: Vec<usize>) {
        let counts = ended
            .chunks(JOB_TASKS)
            .map(<[usize]>::len)
            .collect::<Vec<_>>();
        self.closing.extend(ended);
        for count in counts {
            match self.setup.executor {
                Runs::Inline => self.run(Job::CallBackClosed(count)),
                _ => self.jobs.push_back(Job::CallBackClosed(count)),
            }
        }
    }

    /// Returns the next operations that a shutdown ended, in the record's order: none is promised.
    fn closing_next(&mut self, count: usize) -> Vec<usize> {
        let dropped = &self.dropped;
        let seen = |number: &usize| dropped.iter().position(|dropped| dropped == number);
        self.closing
            .sort_by_key(|number| seen(number).unwrap_or(usize::MAX));
        self.closing.drain(..count).collect()
    }

    pub fn run(&mut self, job: Job) {
        match job {
            Job::CallBack(numbers, outcome) => {
                for number in numbers {
                    let outcome = outcome.clone();
                    self.in_call(|reference, nested| reference.tell_here(nested, number, outcome));
                }
            }
            Job::CallBackClosed(count) => {
                let numbers = self.closing_next(count);
                self.run(Job::CallBack(numbers, SHUTDOWN));
            }
            Job::Rest(work) => self.in_call(|reference, _| reference.queue.extend(work)),
        }
    }

    /// Makes a call, nested or not. Operations that it ends are called back when the outermost call
    /// returns.
    pub fn in_call<T>(&mut self, call: impl FnOnce(&mut Self, bool) -> T) -> T {
        let nested = std::mem::replace(&mut self.inside, true);
        let returned = call(self, nested);
        if !nested {
            self.work_off_queue();
        }
        returned
    }

    fn work_off_queue(&mut self) {
        let budget = if self.setup.executor != Runs::Inline {
            BUDGET
        } else {
            usize::MAX
        };
        for _ in 0..budget {
            let Some(work) = self.queue.pop_front() else {
                break;
            };
            match work {
                Work::CallBack(number, outcome) => self.call_back_now(number, outcome),
                Work::Event(key, event) => _ = self.event(true, key, event),
            }
        }
        self.inside = false;
        let rest = std::mem::take(&mut self.queue);
        self.count_if(!rest.is_empty(), "more than a call's budget");
        if !rest.is_empty() {
            self.jobs.push_back(Job::Rest(rest));
        }
    }
}
