//! `lateness-1m-per-s` and `burst-1m`: a million timers that fire, in real time.
//!
//! Eight threads schedule them, before the first is due (a round in which they were not done by
//! then is thrown away and repeated with twice the lead). `ours-rounded` is the same run as `ours`,
//! late after the deadline rounded up to its tick. `lateness-1m-per-s-cpu` is the processor time of
//! all threads from the last one scheduled until the last one fired, a clock read, a lock and two
//! records a timer for the sink included.
//!
//! Not all do the same when they fire: ours runs and frees the caller's boxed closure on a worker
//! thread, the futures wake and free a waker, the others hand over eight bytes on their own thread.

use std::time::Duration;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, TickLength};

use super::super::row::Run;
use crate::{
    activity::Activity,
    floor,
    named::Named,
    results::FLOOR,
    sink::{Noted, Sink},
    timers::{Contender, Visit, timer::Timer},
};

const THREADS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
const LEAD_MAX: Duration = Duration::from_secs(30);
/// A floor is taken from this quantile of wake-ups, and these are lateness's measures.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

pub(super) struct Expire {
    pub(super) timers: usize,
    /// Over which they fall due at random.
    pub(super) window: Duration,
    pub(super) lead: Duration,
    pub(super) noted: Noted,
}

/// What came of it.
pub(super) struct Expired {
    sink: &'static Sink,
    /// When the first could be due.
    base_ns: u64,
    /// Time on the processors while they fired, where the system tells.
    cpu_ns: Option<u64>,
}

impl Visit for Expire {
    type Output = anyhow::Result<Expired>;

    fn visit<T: Timer>(&self) -> Self::Output {
        let mut lead = self.lead;
        while lead <= LEAD_MAX {
            let share = self.timers / THREADS;
            let sink = Sink::leaked((share * THREADS) as u64, self.noted);
            let timer = T::start(sink)?;
            let base_ns = sink.clock().now_ns() + lead.as_nanos() as u64;
            let schedule = |thread| {
                let mut random = Rng::with_seed(thread);
                let mut local = timer.local();
                let window = 0..=self.window.as_nanos() as u64;
                let one = |_| {
                    let due_ns = base_ns + random.u64(window.clone());
                    let delay = due_ns.saturating_sub(sink.clock().now_ns()).max(1_000_000);
                    T::schedule_firing(&mut local, Duration::from_nanos(delay), due_ns)
                };
                let handles: Vec<T::Handle> = (0..share).map(one).collect();
                T::settle(&mut local);
                handles
            };
            let handles: Vec<_> = std::thread::scope(|scope| {
                let threads =
                    (0..THREADS as u64).map(|thread| scope.spawn(move || schedule(thread)));
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|thread| thread.join().expect("it schedules")).collect()
            });
            if sink.clock().now_ns() > base_ns {
                lead *= 2;
                continue;
            }
            let before = Activity::so_far();
            let all = sink.wait(PATIENCE);
            let after = Activity::so_far();
            let (fired, expected) = (sink.count(), share * THREADS);
            ensure!(all && fired == expected as u64, "{}: {fired} fired of {expected}", T::NAME);
            drop(handles);
            let cpu_ns = before.zip(after).map(|(before, after)| after.since(&before).cpu_ns);
            return Ok(Expired { sink, base_ns, cpu_ns });
        }
        anyhow::bail!("{}: not scheduled within {LEAD_MAX:?}", T::NAME)
    }
}

pub(crate) fn lateness(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let tick = TickLength::default();
    let noted = Noted::Lateness(tick);
    let expire = Expire { timers: sizes.one_m, window: sizes.window, lead: sizes.lead, noted };
    for round in 0..sizes.real_time_rounds {
        for contender in run.contenders(&Contender::FIRING) {
            run.at(id, contender.name(), round);
            let expired = contender.visit(&expire)?;
            let lateness = expired.sink.lateness();
            let ours = contender == Contender::Ours;
            for (quantile, share) in QUANTILES {
                let measure = run.results.measure(&format!("{id}-{quantile}"), "ms late");
                measure.add(contender.name(), ms(lateness.asked.value_at_quantile(share)));
                if ours {
                    let rounded = lateness.rounded.value_at_quantile(share);
                    measure.add("ours-rounded", ms(rounded));
                }
            }
            let early = run.results.measure(&format!("{id}-early"), "timers early");
            early.add(contender.name(), lateness.early as f64);
            if let Some(cpu_ns) = expired.cpu_ns {
                run.results.measure(&format!("{id}-cpu"), "ms").add(contender.name(), ms(cpu_ns));
            }
        }
        let wake_ups = floor::wake_up(sizes.wake_ups);
        for (quantile, share) in QUANTILES {
            let measure = run.results.measure(&format!("{id}-{quantile}"), "ms late");
            measure.add(FLOOR, ms(wake_ups.value_at_quantile(share)));
        }
    }
    Ok(())
}

pub(crate) fn burst(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let (timers, window, lead) = (sizes.one_m, Duration::ZERO, sizes.lead);
    let expire = Expire { timers, window, lead, noted: Noted::Ends };
    for round in 0..sizes.real_time_rounds {
        for contender in run.contenders(&Contender::PLAIN) {
            run.at(id, contender.name(), round);
            let Expired { sink, base_ns, .. } = contender.visit(&expire)?;
            let (first, last) = sink.ends_ns();
            let late = |at: u64| (at as f64 - base_ns as f64) / 1e6;
            ends(id, run, contender.name(), late(first), late(last));
        }
        let wake_up = ms(floor::wake_up(sizes.wake_ups).value_at_quantile(0.5));
        let tasks = floor::run_tasks(timers) * timers as f64 / 1e6;
        ends(id, run, FLOOR, wake_up, wake_up + tasks);
    }
    Ok(())
}

fn ends(id: &str, run: &mut Run<'_>, name: &'static str, first: f64, last: f64) {
    run.results.measure(&format!("{id}-first"), "ms late").add(name, first);
    run.results.measure(&format!("{id}-last"), "ms late").add(name, last);
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
