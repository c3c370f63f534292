//! One trial: a scheme filled with a number of pending timers, timed, and held to account.
//!
//! A tick is a second. Delays are random, an hour or more and less than a day. Batches of new
//! timers are started, and as many random ones stopped. Then the first hour but its last second is
//! turned tick by tick: nothing is due and next to nothing is handed down, so that what it costs is
//! bookkeeping. Then the rest of the day, until all have fired. Every timer must have ended exactly
//! once, and must have fired in the very step of the clock in which it was due.

use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use crate::algorithms::scheme::{Scheme, Task};

/// The ticks of a day; every deadline lies within.
pub(crate) const DAY: u64 = 86_400;
/// The ticks of an hour; no deadline lies within the first.
pub(crate) const HOUR: u64 = 3_600;

/// Timers started together, at most. At least ten: a clock read a batch is then 2 or 3 ns a timer.
const BATCH: usize = 1_000;

/// How much is measured: in full and quickly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How many timers are pending.
    pub(crate) pending: &'static [usize],
    pub(crate) rounds: usize,
    /// Batches to start, and to stop, while measuring.
    batches: usize,
    /// A scheme that takes longer to fill, to turn or to fire all is stopped.
    patience: Duration,
}

impl Sizes {
    pub(crate) const FULL: Sizes = Sizes {
        pending: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        rounds: 5,
        batches: 50,
        patience: Duration::from_secs(10),
    };

    pub(crate) const QUICK: Sizes = Sizes {
        rounds: 3,
        batches: 5,
        patience: Duration::from_secs(1),
        ..Sizes::FULL
    };
}

/// The plan of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sizes: Sizes,
    pub(crate) pending: usize,
    pub(crate) seed: u64,
    /// Whether to fire all that is pending.
    pub(crate) expire: bool,
}

/// Nanoseconds by measure; `None` where it took too long, or was given up before.
pub(crate) type Costs = [Option<f64>; 4];

/// Fills a scheme, measures it, and checks what came of every timer.
pub(crate) fn trial<S: Scheme>(plan: &Plan) -> anyhow::Result<Costs> {
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

struct Trial<S: Scheme> {
    scheme: S,
    now: u64,
    /// By task: its deadline, and whether it has fired or was stopped.
    timers: Vec<(u64, bool)>,
    pending: Vec<(S::Handle, Task)>,
    random: Rng,
    clock: SystemClock,
}

impl<S: Scheme> Trial<S> {
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Costs> {
        let Plan {
            pending,
            sizes: Sizes {
                batches, patience, ..
            },
            ..
        } = *plan;
        let filled_ns = self.clock.now_ns();
        while self.pending.len() < pending {
            self.start(BATCH.min(pending - self.pending.len()))?;
            if self.clock.now_ns() - filled_ns > patience.as_nanos() as u64 {
                return Ok([None; 4]);
            }
        }
        let batch = pending.clamp(10, BATCH);
        let (mut start_ns, mut stop_ns) = (0, 0);
        for number in 0..=batches {
            let ns = [self.start(batch)?, self.stop(batch)?];
            if number > 0 {
                start_ns += ns[0]; // the first one is for memory that is new
                stop_ns += ns[1];
            }
            ensure!(
                self.scheme.pending() == pending,
                "{} pending",
                self.scheme.pending()
            );
        }
        let each = |ns: u64| Some(ns as f64 / (batch * batches) as f64);
        let (ticks, tick_ns) = self.turn(HOUR - 1, patience / 20, true)?;
        let (_, expire_ns) = if plan.expire {
            self.turn(DAY, patience, false)?
        } else {
            (0, 0)
        };
        let all_fired = self.now == DAY;
        self.close()?;
        Ok([
            each(start_ns),
            each(stop_ns),
            Some(tick_ns as f64 / ticks as f64),
            all_fired.then_some(expire_ns as f64 / pending as f64),
        ])
    }

    /// Starts timers; nanoseconds.
    fn start(&mut self, count: usize) -> anyhow::Result<u64> {
        let first = self.timers.len();
        self.timers
            .extend((0..count).map(|_| (self.random.u64(HOUR..DAY), false)));
        self.pending.reserve(count);
        let begin = self.clock.now_ns();
        for (task, &(deadline, _)) in self.timers.iter().enumerate().skip(first) {
            let handle = self.scheme.start(deadline, task as Task)?; // the present is 0
            self.pending.push((handle, task as Task));
        }
        Ok(self.clock.now_ns() - begin)
    }

    /// Stops pending timers, at random; nanoseconds.
    fn stop(&mut self, count: usize) -> anyhow::Result<u64> {
        let random = |_| {
            self.pending
                .swap_remove(self.random.usize(..self.pending.len()))
        };
        let chosen: Vec<_> = (0..count).map(random).collect();
        let begin = self.clock.now_ns();
        let stopped = chosen
            .iter()
            .filter(|&&(handle, _)| self.scheme.stop(handle))
            .count();
        let ns = self.clock.now_ns() - begin;
        ensure!(stopped == count, "{stopped} of {count} were stopped");
        chosen
            .into_iter()
            .try_for_each(|(_, task)| self.end(task))?;
        Ok(ns)
    }

    /// Turns to `until`, in ever longer steps, as far as `limit` allows: ticks and nanoseconds.
    /// What fires in a step must be due in it, and fire in order.
    fn turn(
        &mut self,
        until: u64,
        limit: Duration,
        one_by_one: bool,
    ) -> anyhow::Result<(u64, u64)> {
        let (from, mut spent_ns, mut ticks) = (self.now, 0, 1);
        let mut fired = Vec::with_capacity(self.pending.len());
        while self.now < until && u128::from(spent_ns) < limit.as_nanos() {
            ticks = ticks.min(until - self.now);
            let begin = self.clock.now_ns();
            match one_by_one {
                true => (0..ticks).for_each(|_| self.scheme.tick(&mut fired)),
                false => self.scheme.advance(ticks, &mut fired),
            }
            spent_ns += self.clock.now_ns() - begin;
            let mut last = self.now + 1;
            self.now += ticks;
            for task in fired.drain(..) {
                let (deadline, _) = self.timers[task as usize];
                let in_order = last <= deadline && deadline <= self.now;
                ensure!(
                    in_order,
                    "due at {deadline}, fired between {last} and {}",
                    self.now
                );
                last = deadline;
                self.end(task)?;
            }
            ticks *= 2;
        }
        Ok((self.now - from, spent_ns))
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
            let (deadline, ended) = &mut self.timers[task as usize];
            ensure!(
                stopped != *ended,
                "due at {deadline}: fired {ended}, then stopped {stopped}"
            );
            *ended = true;
        }
        ensure!(
            self.timers.iter().all(|&(_, ended)| ended),
            "a timer was lost"
        );
        ensure!(
            self.scheme.pending() == 0,
            "{} pending in the end",
            self.scheme.pending()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{
        ALL,
        scheme::{Claim, Refused},
        sorted_list::SortedList,
    };

    const FIRES_EARLY: u8 = 1;
    const FIRES_TWICE: u8 = 2;
    const LOSES_ONE: u8 = 3;
    const STOPS_NOTHING: u8 = 5;

    /// A list with a fault.
    #[derive(Default)]
    struct Faulty<const FAULT: u8>(SortedList);

    impl<const FAULT: u8> Scheme for Faulty<FAULT> {
        const NAME: &'static str = "faulty";
        const CLAIM: Claim = [""; 4];
        type Handle = <SortedList as Scheme>::Handle;

        fn start(&mut self, delay: u64, task: Task) -> Result<Self::Handle, Refused> {
            self.0.start(
                if FAULT == FIRES_EARLY {
                    delay / 2
                } else {
                    delay
                },
                task,
            )
        }

        fn stop(&mut self, handle: Self::Handle) -> bool {
            FAULT != STOPS_NOTHING && self.0.stop(handle)
        }

        fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
            self.0.advance(ticks, fired);
            match FAULT {
                LOSES_ONE => _ = fired.pop(),
                FIRES_TWICE => fired.extend_from_within(..fired.len().min(1)),
                _ => {}
            }
        }

        fn pending(&self) -> usize {
            self.0.pending()
        }
    }

    const PLAN: Plan = Plan {
        sizes: Sizes::QUICK,
        pending: 40,
        seed: 0,
        expire: true,
    };

    #[test]
    fn every_scheme_fires_each_timer_once_on_its_tick() {
        for scheme in &ALL {
            let costs = (scheme.trial)(&PLAN).unwrap();
            assert!(
                costs.iter().all(Option::is_some),
                "{}: {costs:?}",
                scheme.name
            );
        }
    }

    #[test]
    fn faulty_scheme_is_found_out() {
        assert!(trial::<Faulty<0>>(&PLAN).is_ok());
        assert!(trial::<Faulty<FIRES_EARLY>>(&PLAN).is_err());
        assert!(trial::<Faulty<FIRES_TWICE>>(&PLAN).is_err());
        assert!(trial::<Faulty<LOSES_ONE>>(&PLAN).is_err());
        assert!(trial::<Faulty<STOPS_NOTHING>>(&PLAN).is_err());
    }
}
