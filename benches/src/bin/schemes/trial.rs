//! One trial: a scheme filled with so many pending timers, timed, and held to account.
//!
//! A tick is a second. Delays are random, an hour or more and less than a day. Batches of new
//! timers are started, and as many random ones stopped. Then the first hour but its last second is
//! turned tick by tick: nothing is due and next to nothing is handed down, so that what it costs is
//! bookkeeping. Then the rest of the day, until all have fired. Every timer must have ended exactly
//! once, and must have fired in the very step of the clock in which it was due.

use std::{hint::black_box, time::Duration};

use anyhow::{Context, ensure};
use fastrand::Rng;
use purgatory_benches::grouped;
use timer_core::{Clock, SystemClock};

use crate::algorithms::scheme::{Scheme, Task};

/// The ticks of a day; every deadline lies within.
pub(crate) const DAY: u64 = 86_400;
/// The ticks of an hour; no deadline lies within the first.
pub(crate) const HOUR: u64 = 3_600;

/// Timers started together, at most. At least ten: a clock read a batch is then 2 or 3 ns a timer.
const BATCH: usize = 1_000;
/// The clock is looked at after so many starts while the scheme is filled.
const FILL: usize = 256;

/// How much is measured: in full and quickly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How many timers are pending.
    pub(crate) pending: &'static [usize],
    pub(crate) rounds: usize,
    /// Timers to start, and to stop, while measuring.
    operations: usize,
    /// At most so long for starts and stops, and for quiet ticks.
    sample: Duration,
    /// A scheme that is not filled by then, or has not fired all, is stopped.
    patience: Duration,
}

impl Sizes {
    pub(crate) const FULL: Sizes = Sizes {
        pending: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        rounds: 5,
        operations: 50_000,
        sample: Duration::from_millis(500),
        patience: Duration::from_secs(10),
    };

    pub(crate) const QUICK: Sizes = Sizes {
        rounds: 3,
        operations: 5_000,
        sample: Duration::from_millis(50),
        patience: Duration::from_secs(1),
        ..Sizes::FULL
    };
}

/// What a trial does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sizes: Sizes,
    pub(crate) pending: usize,
    pub(crate) seed: u64,
    /// Whether to fire all that is pending.
    pub(crate) expire: bool,
}

/// What was measured, by measure.
pub(crate) type Costs = [Cost; 4];

/// What one thing costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cost {
    Ns(f64),
    /// It took too long; the reason.
    Stopped(String),
    /// Given up in an earlier trial.
    Skipped,
}

/// Fills a scheme, measures it, and checks what came of every timer.
pub(crate) fn trial<S: Scheme>(plan: &Plan) -> anyhow::Result<Costs> {
    let mut trial = Trial::<S> {
        plan,
        scheme: S::default(),
        now: 0,
        timers: Vec::with_capacity(plan.pending),
        pending: Vec::with_capacity(plan.pending),
        fired: Vec::with_capacity(plan.pending),
        random: Rng::with_seed(plan.seed),
        clock: SystemClock::new(),
    };
    trial.run().with_context(|| format!("{} with {} pending", S::NAME, plan.pending))
}

struct Trial<'a, S: Scheme> {
    plan: &'a Plan,
    scheme: S,
    now: u64,
    /// By task: its deadline, and whether it has fired or was stopped.
    timers: Vec<(u64, bool)>,
    pending: Vec<(S::Handle, Task)>,
    fired: Vec<Task>,
    random: Rng,
    clock: SystemClock,
}

/// So many in so many nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    count: u64,
    ns: u64,
}

impl Spent {
    fn add(&mut self, count: u64, ns: u64) {
        self.count += count;
        self.ns += ns;
    }

    fn beyond(self, limit: Duration) -> bool {
        u128::from(self.ns) > limit.as_nanos()
    }

    fn each(self) -> Cost {
        Cost::Ns(self.ns as f64 / self.count as f64)
    }
}

impl<S: Scheme> Trial<'_, S> {
    fn run(&mut self) -> anyhow::Result<Costs> {
        let patience = self.plan.sizes.patience;
        let filled = self.fill()?;
        if filled.count < self.plan.pending as u64 {
            let why = format!(
                "{patience:?} had started {} of {}",
                grouped(filled.count),
                grouped(self.plan.pending as u64)
            );
            return Ok([Cost::Stopped(why), Cost::Skipped, Cost::Skipped, Cost::Skipped]);
        }
        let (start, stop) = self.start_and_stop()?;
        let tick = self.quiet_ticks()?;
        let expire = if self.plan.expire { self.expire()? } else { Cost::Skipped };
        self.close()?;
        Ok([start, stop, tick, expire])
    }

    fn fill(&mut self) -> anyhow::Result<Spent> {
        let (mut spent, pending) = (Spent::default(), self.plan.pending as u64);
        while spent.count < pending && !spent.beyond(self.plan.sizes.patience) {
            let count = FILL.min((pending - spent.count) as usize);
            let ns = self.start(count)?;
            spent.add(count as u64, ns);
        }
        Ok(spent)
    }

    /// Starts so many timers; returns how long it took.
    fn start(&mut self, count: usize) -> anyhow::Result<u64> {
        let first = self.timers.len();
        for _ in 0..count {
            self.timers.push((self.random.u64(HOUR..DAY), false));
        }
        self.pending.reserve(count);
        let begin = self.clock.now_ns();
        for (task, &(deadline, _)) in self.timers.iter().enumerate().skip(first) {
            let handle = self.scheme.start(deadline, task as Task)?; // the present is 0
            self.pending.push((handle, task as Task));
        }
        Ok(self.clock.now_ns() - begin)
    }

    /// Stops so many of the pending, at random; returns how long it took.
    fn stop(&mut self, count: usize) -> anyhow::Result<u64> {
        let random = |_| self.pending.swap_remove(self.random.usize(..self.pending.len()));
        let chosen: Vec<_> = (0..count).map(random).collect();
        let begin = self.clock.now_ns();
        let stopped = chosen.iter().filter(|&&(handle, _)| self.scheme.stop(handle)).count();
        let ns = self.clock.now_ns() - begin;
        ensure!(black_box(stopped) == count, "{stopped} of {count} were stopped");
        chosen.into_iter().try_for_each(|(_, task)| self.end(task))?;
        Ok(ns)
    }

    fn start_and_stop(&mut self) -> anyhow::Result<(Cost, Cost)> {
        let Plan { pending, sizes: Sizes { operations, sample, .. }, .. } = *self.plan;
        let batch = pending.clamp(10, BATCH);
        let (mut started, mut stopped) = (Spent::default(), Spent::default());
        self.start(batch)?; // into memory that is new
        self.stop(batch)?;
        while started.count < operations as u64
            && !started.beyond(sample)
            && !stopped.beyond(sample)
        {
            let ns = self.start(batch)?;
            started.add(batch as u64, ns);
            let ns = self.stop(batch)?;
            stopped.add(batch as u64, ns);
            ensure!(self.scheme.pending() == pending, "{} pending", self.scheme.pending());
        }
        Ok((started.each(), stopped.each()))
    }

    /// Turns to `until`, in ever longer steps, as far as `limit` allows. What fires in a step must
    /// be due in it, and fire in order.
    fn turn(
        &mut self,
        until: u64,
        limit: Duration,
        advance: impl Fn(&mut S, u64, &mut Vec<Task>),
    ) -> anyhow::Result<Spent> {
        let (mut spent, mut ticks) = (Spent::default(), 1);
        while self.now < until && !spent.beyond(limit) {
            ticks = ticks.min(until - self.now);
            let begin = self.clock.now_ns();
            advance(&mut self.scheme, ticks, &mut self.fired);
            spent.add(ticks, self.clock.now_ns() - begin);
            self.check_fired(ticks)?;
            ticks *= 2;
        }
        Ok(spent)
    }

    /// Moves the present on, and checks what fired meanwhile.
    fn check_fired(&mut self, ticks: u64) -> anyhow::Result<()> {
        let mut last = self.now + 1;
        self.now += ticks;
        for at in 0..self.fired.len() {
            let (deadline, _) = self.timers[self.fired[at] as usize];
            let in_order = last <= deadline && deadline <= self.now;
            ensure!(in_order, "due at {deadline}, fired between {last} and {}", self.now);
            last = deadline;
            self.end(self.fired[at])?;
        }
        self.fired.clear();
        Ok(())
    }

    fn quiet_ticks(&mut self) -> anyhow::Result<Cost> {
        let turned = self.turn(HOUR - 1, self.plan.sizes.sample, |scheme, ticks, fired| {
            (0..ticks).for_each(|_| scheme.tick(fired));
        })?;
        Ok(turned.each())
    }

    fn expire(&mut self) -> anyhow::Result<Cost> {
        let Plan { pending, sizes: Sizes { patience, .. }, .. } = *self.plan;
        let turned = self.turn(DAY, patience, S::advance)?;
        if self.now < DAY {
            let fired = grouped((pending - self.scheme.pending()) as u64);
            let pending = grouped(pending as u64);
            return Ok(Cost::Stopped(format!("{patience:?} had fired {fired} of {pending}")));
        }
        Ok(Spent { count: pending as u64, ..turned }.each()) // all fired, as `close` finds
    }

    /// Notes that a timer has ended, as it may do once.
    fn end(&mut self, task: Task) -> anyhow::Result<()> {
        let (_, ended) = &mut self.timers[task as usize];
        ensure!(!std::mem::replace(ended, true), "task {task} ended twice");
        Ok(())
    }

    /// Stops what is left, and finds that every timer has ended.
    fn close(&mut self) -> anyhow::Result<()> {
        for (handle, task) in std::mem::take(&mut self.pending) {
            let stopped = self.scheme.stop(handle);
            let (deadline, ended) = self.timers[task as usize];
            ensure!(stopped != ended, "due at {deadline}: fired {ended}, then stopped {stopped}");
            self.timers[task as usize].1 = true;
        }
        ensure!(self.timers.iter().all(|&(_, ended)| ended), "a timer was lost");
        ensure!(self.scheme.pending() == 0, "{} pending in the end", self.scheme.pending());
        Ok(())
    }
}

/// The self-checks checked: a scheme that does not do as it should is found out.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{
        scheme::{Claim, Refused},
        sorted_list::SortedList,
    };

    const NOTHING: u8 = 0;
    const FIRES_EARLY: u8 = 1;
    const FIRES_TWICE: u8 = 2;
    const LOSES_ONE: u8 = 3;
    const FIRES_IN_NO_ORDER: u8 = 4;
    const STOPS_NOTHING: u8 = 5;
    const COUNTS_WRONG: u8 = 6;

    /// A list with a fault.
    #[derive(Default)]
    struct Faulty<const FAULT: u8>(SortedList);

    impl<const FAULT: u8> Scheme for Faulty<FAULT> {
        const NAME: &'static str = "faulty";
        const CLAIM: Claim = [""; 4];
        type Handle = <SortedList as Scheme>::Handle;

        fn start(&mut self, delay: u64, task: Task) -> Result<Self::Handle, Refused> {
            self.0.start(if FAULT == FIRES_EARLY { delay / 2 } else { delay }, task)
        }

        fn stop(&mut self, handle: Self::Handle) -> bool {
            FAULT != STOPS_NOTHING && self.0.stop(handle)
        }

        fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
            let before = fired.len();
            self.0.advance(ticks, fired);
            match FAULT {
                LOSES_ONE => _ = fired.pop(),
                FIRES_TWICE => fired.extend_from_within(before..fired.len().min(before + 1)),
                FIRES_IN_NO_ORDER => fired[before..].reverse(),
                _ => {}
            }
        }

        fn pending(&self) -> usize {
            self.0.pending() + usize::from(FAULT == COUNTS_WRONG)
        }
    }

    const TINY: Sizes = Sizes {
        operations: 20,
        sample: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        ..Sizes::FULL
    };

    const PLAN: Plan = Plan { sizes: TINY, pending: 40, seed: 0, expire: true };

    fn outcome<const FAULT: u8>() -> anyhow::Result<Costs> {
        trial::<Faulty<FAULT>>(&PLAN)
    }

    #[test]
    fn a_faulty_scheme_is_found_out() {
        assert!(outcome::<NOTHING>().is_ok());
        assert!(outcome::<FIRES_EARLY>().is_err());
        assert!(outcome::<FIRES_TWICE>().is_err());
        assert!(outcome::<LOSES_ONE>().is_err());
        assert!(outcome::<FIRES_IN_NO_ORDER>().is_err());
        assert!(outcome::<STOPS_NOTHING>().is_err());
        assert!(outcome::<COUNTS_WRONG>().is_err());
    }

    #[test]
    fn without_patience_a_scheme_is_stopped() {
        let sizes = Sizes { patience: Duration::ZERO, ..TINY };
        let mut plan = Plan { sizes, pending: 10_000, ..PLAN };
        let costs = trial::<Faulty<NOTHING>>(&plan).unwrap();
        assert_eq!(costs[0], Cost::Stopped("0ns had started 256 of 10 000".into()));
        plan.pending = 40;
        let costs = trial::<Faulty<NOTHING>>(&plan).unwrap();
        assert_eq!(costs[3], Cost::Stopped("0ns had fired 0 of 40".into()));
    }
}
