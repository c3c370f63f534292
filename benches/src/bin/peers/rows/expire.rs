//! `lateness-1m-per-s`: a million timers that fire, in real time. Eight threads schedule all timers
//! before the first is due; a round in which they were too slow is discarded and repeated with
//! twice the lead. `lateness-1m-per-s-cpu` is the processor time of the process from the moment at
//! which the last timer was scheduled until the last one has fired. It includes the sink: a clock
//! read, a lock and a record for each timer.
//!
//! Contenders differ in what they do when a timer fires. Ours runs and frees the caller's boxed
//! closure on a worker thread; the future wakes and frees a waker; the others hand over eight bytes
//! on their own thread.
//!
//! `expire-operations` is `lateness-1m-per-s` with a purgatory of operations that nothing
//! completes, beside the bare timers of the peers.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use purgatory::Purgatory;
use timer_core::{Clock, SystemTimer};

use super::{row::Run, timers::on_threads};
use crate::{
    contender::{Contender, contenders},
    request::{Progress, Request},
    sink::Sink,
    timers::{QueueTask, QueueThread, Timer, TokioSleep, timers},
};

const THREADS: usize = 8;
/// The shortest and the longest lead, the time from the first scheduling until the first timer is
/// due.
const LEAD: Duration = Duration::from_millis(250);
const LEAD_MAX: Duration = Duration::from_secs(30);
/// The keys of `expire-operations`.
const EXPIRING_KEYS: u64 = 100_000;
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

#[derive(Clone, Copy)]
struct Expire {
    timers: usize,
    /// The time over which the timers fall due at random.
    window: Duration,
}

/// The result of a round.
struct Expired {
    sink: &'static Sink,
    /// Processor time while the timers fired.
    cpu_ns: u64,
}

/// Measures a round, and repeats it with twice the lead while the lead is too short.
fn expire<T: Timer>(expire: Expire) -> anyhow::Result<Expired> {
    let mut lead = expire.window.max(LEAD);
    while lead <= LEAD_MAX {
        if let Some(expired) = attempt::<T>(expire, lead)? {
            return Ok(expired);
        }
        lead *= 2;
    }
    bail!("{}: not scheduled within {LEAD_MAX:?}", T::NAME)
}

/// Schedules all timers and waits until they have fired. Returns `None` if the first was due before
/// the last was scheduled.
fn attempt<T: Timer>(expire: Expire, lead: Duration) -> anyhow::Result<Option<Expired>> {
    let share = expire.timers / THREADS;
    let sink = Sink::leaked((share * THREADS) as u64);
    let timer = T::start(sink)?;

    // Schedule on all threads at once.
    let base_ns = sink.clock.now_ns() + lead.as_nanos() as u64;
    let schedule = |thread| {
        let mut random = Rng::with_seed(thread);
        let mut local = timer.local();
        let window = 0..=expire.window.as_nanos() as u64;
        // Each is due at a random moment of the window, but not within a millisecond.
        let one = |_| {
            let due_ns = base_ns + random.u64(window.clone());
            let delay = due_ns.saturating_sub(sink.clock.now_ns()).max(1_000_000);
            T::schedule_firing(&mut local, Duration::from_nanos(delay), due_ns)
        };
        (0..share).map(one).collect()
    };
    let handles: Vec<Vec<T::Handle>> = on_threads(THREADS, schedule);

    // If scheduling took longer than the lead, timers fired under other load: discard the round.
    if sink.clock.now_ns() > base_ns {
        return Ok(None);
    }

    // Wait until each has fired once.
    let cpu_ns = sink.wait();
    let fired = sink.count();
    let expected = sink.expected;
    let fired_of = || format!("{}: {fired} fired of {expected}", T::NAME);
    let cpu_ns = cpu_ns.with_context(fired_of)?;
    ensure!(fired == expected, fired_of());
    // A timer that has fired must not be pending.
    let pending = timer.pending().unwrap_or(0);
    ensure!(
        pending == 0,
        "{}: {pending} pending, though all have fired",
        T::NAME
    );
    drop(handles);
    Ok(Some(Expired { sink, cpu_ns }))
}

pub(super) fn lateness(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    measure_lateness(id, run, &timers!(expire))
}

pub(super) fn operations(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(expire, Timer: Parked, TokioSleep, QueueTask, QueueThread);
    measure_lateness(&format!("{id}-callback"), run, &contenders)
}

/// Adds the quantiles of lateness, the number of early timers, and the processor time.
fn measure_lateness(
    id: &str,
    run: &mut Run<'_>,
    contenders: &[Contender<Expire, Expired>],
) -> anyhow::Result<()> {
    let all = Expire {
        timers: run.sizes.one_m,
        window: run.sizes.window,
    };
    for _ in 0..run.sizes.rounds {
        run.turns(contenders, all, |run, name, expired| {
            // Quantiles, then the two sums.
            let lateness = expired.sink.lateness();
            let early = lateness.early as f64;
            let cpu_ms = expired.cpu_ns as f64 / 1e6;
            run.quantiles_ms(id, name, &lateness.ns, &QUANTILES);
            run.add(&format!("{id}-early"), "timers early", name, early);
            run.add(&format!("{id}-cpu"), "ms", name, cpu_ms);
        })?;
    }
    Ok(())
}

/// Operations that nothing completes, as timers. Each is parked under a random key of many, so that
/// no list is long.
struct Parked {
    purgatory: Purgatory<u64, Request>,
    progress: &'static Progress,
}

impl Timer for Parked {
    type Handle = ();
    type Local<'a> = (&'a Self, Rng);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(sink.clock).build()?;
        let purgatory = Purgatory::builder("ours").timer(&timer).build()?;
        Ok(Parked {
            purgatory,
            progress: Progress::recording(sink),
        })
    }

    fn local(&self) -> Self::Local<'_> {
        (self, Rng::new())
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) {
        let (parked, random) = local;
        // Never ready. `required` is the deadline, which the sink records.
        let request = Request {
            progress: parked.progress,
            required: due_ns,
        };
        let key = [random.u64(0..EXPIRING_KEYS)];
        _ = parked
            .purgatory
            .try_complete_else_watch(request, &key, delay)
            .expect("a free slot");
    }

    fn cancel(_: &mut Self::Local<'_>, _task: ()) -> bool {
        false
    }

    fn pending(&self) -> Option<usize> {
        Some(self.purgatory.len() + self.purgatory.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::timers::tests::Broken, *};

    #[test]
    fn timer_that_fires_twice_is_noticed() {
        let expired = expire::<Broken>(Expire {
            timers: 8,
            window: Duration::ZERO,
        });
        assert!(expired.is_err());
    }
}
