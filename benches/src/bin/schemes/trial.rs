//! One trial: a scheme is filled with pending timers, measured, and checked.
//!
//! A tick is a second. Delays are random, from an hour to less than a day. Batches of new timers
//! are started, and as many random timers stopped. Then the clock advances tick by tick to the last
//! second of the first hour: nothing is due and almost nothing is handed down, so the cost is
//! bookkeeping. Then it advances over the rest of the day, until all have fired. Every timer must
//! have ended exactly once, and have fired in the step in which it was due.

use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use crate::algorithms::scheme::{Scheme, Task};

/// The ticks of a day. Every deadline lies within it.
pub(crate) const DAY: u64 = 86_400;
/// The ticks of an hour. No deadline lies within the first hour.
pub(crate) const HOUR: u64 = 3_600;

/// The maximum number of timers started together.
const BATCH: usize = 1_000;
/// The longest time for which ticks are measured in which nothing is due.
const IDLE: Duration = Duration::from_millis(500);

/// The plan of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) pending: usize,
    /// The number of batches that are started, and stopped, while measuring.
    pub(crate) batches: usize,
    pub(crate) seed: u64,
}

/// Nanoseconds by measure; `None` if the measurement would take too long.
pub(crate) type Costs = [Option<f64>; 4];

/// Fills a scheme, measures it, and checks how every timer ended.
pub(crate) fn trial<S: Scheme>(plan: Plan) -> anyhow::Result<Costs> {
    if plan.pending > S::STARTS_MAX {
        return Ok([None; 4]);
    }
    // The seed decides the deadlines, and which timers are stopped.
    let mut trial = Trial::<S> {
        scheme: S::default(),
        now: 0,
        timers: Vec::new(),
        pending: Vec::new(),
        random: Rng::with_seed(plan.seed),
        clock: SystemClock::new(),
    };
    trial
        .run(plan)
        .with_context(|| format!("{} with {} pending", S::NAME, plan.pending))
}

/// A timer that was started.
struct Timer {
    deadline: u64,
    /// Whether it has fired or was stopped.
    ended: bool,
}

struct Trial<S: Scheme> {
    scheme: S,
    now: u64,
    /// Every timer that was started, by task.
    timers: Vec<Timer>,
    pending: Vec<(S::Handle, Task)>,
    random: Rng,
    clock: SystemClock,
}

impl<S: Scheme> Trial<S> {
    fn run(&mut self, plan: Plan) -> anyhow::Result<Costs> {
        self.start(plan.pending)?;

        // Start and stop batches. The first batch of each touches fresh memory and does not count.
        let batch = plan.pending.min(BATCH);
        let mut start_ns = 0;
        let mut stop_ns = 0;
        for number in 0..=plan.batches {
            let ns = [self.start(batch)?, self.stop(batch)?];
            if number > 0 {
                start_ns += ns[0];
                stop_ns += ns[1];
            }
            let pending = self.scheme.pending();
            ensure!(pending == plan.pending, "{pending} pending");
        }
        let each = |ns: u64| Some(ns as f64 / (batch * plan.batches) as f64);

        // Advance tick by tick while nothing is due, then over many ticks until all have fired.
        let idle_ns = self.steps_until(HOUR - 1, IDLE, |scheme, ticks, fired| {
            for _ in 0..ticks {
                scheme.tick(fired);
            }
        })?;
        let idle = Some(idle_ns as f64 / self.now as f64);
        let mut expire = None;
        if plan.pending <= S::EXPIRES_MAX {
            let expire_ns = self.steps_until(DAY, Duration::MAX, S::advance)?;
            expire = Some(expire_ns as f64 / plan.pending as f64);
        }
        self.close()?;
        Ok([each(start_ns), each(stop_ns), idle, expire])
    }

    /// Starts timers; returns nanoseconds.
    fn start(&mut self, count: usize) -> anyhow::Result<u64> {
        // Draw the deadlines before reading the clock.
        let first = self.timers.len();
        for _ in 0..count {
            self.timers.push(Timer {
                deadline: self.random.u64(HOUR..DAY),
                ended: false,
            });
        }
        self.pending.reserve(count);

        // The present is 0, so a deadline is a delay.
        let begin_ns = self.clock.now_ns();
        for (task, timer) in self.timers.iter().enumerate().skip(first) {
            let handle = self.scheme.start(timer.deadline, task as Task)?;
            self.pending.push((handle, task as Task));
        }
        Ok(self.clock.now_ns() - begin_ns)
    }

    /// Stops random pending timers; returns nanoseconds.
    fn stop(&mut self, count: usize) -> anyhow::Result<u64> {
        // Choose the timers before reading the clock.
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            let at = self.random.usize(..self.pending.len());
            chosen.push(self.pending.swap_remove(at));
        }

        let begin_ns = self.clock.now_ns();
        let mut stopped = 0;
        for &(handle, _) in &chosen {
            stopped += usize::from(self.scheme.stop(handle));
        }
        let ns = self.clock.now_ns() - begin_ns;

        ensure!(stopped == count, "{stopped} of {count} were stopped");
        for (_, task) in chosen {
            self.end(task)?;
        }
        Ok(ns)
    }

    /// Advances in steps, each twice as long as the one before, as far as `limit` allows, and
    /// checks the timers that fire; returns nanoseconds.
    fn steps_until(
        &mut self,
        until: u64,
        limit: Duration,
        advance: impl Fn(&mut S, u64, &mut Vec<Task>),
    ) -> anyhow::Result<u64> {
        let mut spent_ns = 0;
        let mut ticks = 1;
        let mut fired = Vec::with_capacity(self.pending.len());
        while self.now < until && u128::from(spent_ns) < limit.as_nanos() {
            // Only the step itself is timed.
            ticks = ticks.min(until - self.now);
            let begin_ns = self.clock.now_ns();
            advance(&mut self.scheme, ticks, &mut fired);
            spent_ns += self.clock.now_ns() - begin_ns;

            // A timer that fires in a step must be due in it, and fire in order.
            let mut last = self.now + 1;
            self.now += ticks;
            for task in fired.drain(..) {
                let deadline = self.timers[task as usize].deadline;
                ensure!(
                    last <= deadline && deadline <= self.now,
                    "due at {deadline}, fired between {last} and {}",
                    self.now
                );
                last = deadline;
                self.end(task)?;
            }
            ticks *= 2;
        }
        Ok(spent_ns)
    }

    /// Records that a timer has ended, which it may do only once.
    fn end(&mut self, task: Task) -> anyhow::Result<()> {
        let timer = &mut self.timers[task as usize];
        ensure!(!timer.ended, "task {task} ended twice");
        timer.ended = true;
        Ok(())
    }

    /// Stops the remaining timers, and checks that every timer has ended.
    fn close(&mut self) -> anyhow::Result<()> {
        for (handle, task) in std::mem::take(&mut self.pending) {
            // A timer can be stopped exactly if it has not fired.
            let stopped = self.scheme.stop(handle);
            let timer = &mut self.timers[task as usize];
            ensure!(
                stopped != timer.ended,
                "due at {}: fired {}, then stopped {stopped}",
                timer.deadline,
                timer.ended
            );
            timer.ended = true;
        }
        let all_ended = self.timers.iter().all(|timer| timer.ended);
        ensure!(all_ended, "a timer was lost");
        let pending = self.scheme.pending();
        ensure!(pending == 0, "{pending} pending at the end");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::ALL;

    const PLAN: Plan = Plan {
        pending: 40,
        batches: 5,
        seed: 0,
    };

    #[test]
    fn every_scheme_fires_each_timer_once_on_its_tick() {
        for scheme in &ALL {
            let costs = (scheme.trial)(PLAN).unwrap();
            assert!(
                costs.iter().all(Option::is_some),
                "{}: {costs:?}",
                scheme.name
            );
        }
    }
}
