//! `lateness-1m-per-s` and `burst-1m`: a million timers that fire, in real time.
//!
//! Eight threads schedule them, in `lateness-1m-per-s-1t` one, before the first is due (a round in
//! which they were not done by then is thrown away and repeated with twice the lead).
//! `ours-rounded` is the same run as `ours`, late after the deadline rounded up to its tick.
//! `lateness-1m-per-s-cpu` is the processor time of the process from the last one scheduled until
//! the last one fired, a clock read, a lock and two records a timer for the sink included.
//!
//! Not all do the same when they fire: ours runs and frees the caller's boxed closure on a worker
//! thread, the futures wake and free a waker, the others hand over eight bytes on their own thread.

use std::time::Duration;

use anyhow::ensure;
use fastrand::Rng;
use purgatory_benches::process_cpu_ns;
use timer_core::{Clock, TickLength};

use super::super::row::Run;
use crate::{
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
    /// That schedule them.
    pub(super) threads: usize,
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
    /// Time on the processors while they fired.
    cpu_ns: u64,
}

impl Visit for Expire {
    type Output = anyhow::Result<Expired>;

    fn visit<T: Timer>(&self) -> Self::Output {
        let mut lead = self.lead;
        while lead <= LEAD_MAX {
            let share = self.timers / self.threads;
            let sink = Sink::leaked((share * self.threads) as u64, self.noted);
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
                    (0..self.threads as u64).map(|thread| scope.spawn(move || schedule(thread)));
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|thread| thread.join().expect("it schedules")).collect()
            });
            if sink.clock().now_ns() > base_ns {
                lead *= 2;
                continue;
            }
            let before_ns = process_cpu_ns();
            let all = sink.wait(PATIENCE);
            let cpu_ns = process_cpu_ns() - before_ns;
            let (fired, expected) = (sink.count(), share * self.threads);
            ensure!(all && fired == expected as u64, "{}: {fired} fired of {expected}", T::NAME);
            drop(handles);
            return Ok(Expired { sink, base_ns, cpu_ns });
        }
        anyhow::bail!("{}: not scheduled within {LEAD_MAX:?}", T::NAME)
    }
}

pub(crate) fn lateness(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let noted = Noted::Lateness(TickLength::default());
    let alone = id.ends_with("-1t");
    let (timers, window, lead) = (sizes.one_m, sizes.window, sizes.lead);
    let threads = if alone { 1 } else { THREADS };
    let expire = Expire { timers, threads, window, lead, noted };
    let contenders: &[_] = if alone { &Contender::PLAIN } else { &Contender::FIRING };
    for round in 0..sizes.real_time_rounds {
        for contender in run.contenders(contenders) {
            let name = contender.name();
            run.at(id, name, round);
            let Expired { sink, cpu_ns, .. } = contender.visit(&expire)?;
            let lateness = sink.lateness();
            run.quantiles_ms(id, name, &lateness.asked, &QUANTILES);
            if contender == Contender::Ours {
                run.quantiles_ms(id, "ours-rounded", &lateness.rounded, &QUANTILES);
            }
            let early = run.results.measure(&format!("{id}-early"), "timers early");
            early.add(name, lateness.early as f64);
            run.results.measure(&format!("{id}-cpu"), "ms").add(name, cpu_ns as f64 / 1e6);
        }
        run.quantiles_ms(id, FLOOR, &floor::wake_up(sizes.wake_ups), &QUANTILES);
    }
    Ok(())
}

pub(crate) fn burst(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let (timers, threads) = (sizes.one_m, THREADS);
    let (window, lead, noted) = (Duration::ZERO, sizes.lead, Noted::Ends);
    let expire = Expire { timers, threads, window, lead, noted };
    let ends = |run: &mut Run<'_>, name, late_ns: [f64; 2]| {
        for (end, ns) in ["first", "last"].into_iter().zip(late_ns) {
            run.results.measure(&format!("{id}-{end}"), "ms late").add(name, ns / 1e6);
        }
    };
    for round in 0..sizes.real_time_rounds {
        for contender in run.contenders(&Contender::PLAIN) {
            run.at(id, contender.name(), round);
            let Expired { sink, base_ns, .. } = contender.visit(&expire)?;
            let (first, last) = sink.ends_ns();
            ends(run, contender.name(), [first, last].map(|at| at as f64 - base_ns as f64));
        }
        let wake_up = floor::wake_up(sizes.wake_ups).value_at_quantile(0.5) as f64;
        ends(run, FLOOR, [wake_up, wake_up + floor::run_tasks(timers) * timers as f64]);
    }
    Ok(())
}
