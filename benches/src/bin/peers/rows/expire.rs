//! `lateness-1m-per-s`, `burst-1m` and `uniform-1m`: a million timers that fire, in real time.
//!
//! In the first two eight threads schedule them before the first is due (a round in which they were
//! not done by then is thrown away and repeated with twice the lead). `lateness-1m-per-s-cpu` is
//! the processor time of the process from the last one scheduled until the last one fired, a clock
//! read, a lock and a record a timer for the sink included. In `uniform-1m` two threads schedule
//! them over a second, each half a second ahead, so that timers start and fire all the while.
//!
//! Not all do the same when they fire: ours runs and frees the caller's boxed closure on a worker
//! thread, the future wakes and frees a waker, the others hand over eight bytes on their own
//! thread.
//!
//! `expire-operations`: the same as `lateness-1m-per-s` with ours a purgatory whose operations
//! nothing completes, beside the bare timers of the peers.

use std::{thread, time::Duration};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use purgatory::Purgatory;
use timer_core::{Clock, SystemTimer};

use super::{row::Run, timers::on_threads};
use crate::{
    contender::{Contender, contenders},
    request::{Progress, Request},
    results::OURS,
    sink::{Noted, Sink},
    timers::{QueueTask, Timer, TokioSleep, timers},
};

const THREADS: usize = 8;
/// How long before the first is due they are scheduled, at least and at most.
const LEAD: Duration = Duration::from_millis(250);
const LEAD_MAX: Duration = Duration::from_secs(30);
const UNIFORM_THREADS: usize = 2;
/// The keys of `expire-operations`.
const EXPIRING_KEYS: u64 = 100_000;
/// In `uniform-1m` a thread looks at the clock after scheduling this many.
const STEP: usize = 64;
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

#[derive(Clone, Copy)]
struct Expire {
    timers: usize,
    /// Over which they fall due at random.
    window: Duration,
    noted: Noted,
}

/// The result of a round.
struct Expired {
    sink: &'static Sink,
    /// When the first could be due.
    base_ns: u64,
    /// Time on the processors while they fired.
    cpu_ns: u64,
}

/// With twice the lead as often as that was too short.
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

/// `None` when the first was due before the last was scheduled.
fn attempt<T: Timer>(expire: Expire, lead: Duration) -> anyhow::Result<Option<Expired>> {
    let share = expire.timers / THREADS;
    let sink = Sink::leaked((share * THREADS) as u64, expire.noted);
    let timer = T::start(sink)?;
    let base_ns = sink.clock().now_ns() + lead.as_nanos() as u64;
    let schedule = |thread| {
        let mut random = Rng::with_seed(thread);
        let mut local = timer.local();
        let window = 0..=expire.window.as_nanos() as u64;
        let one = |_| {
            let due_ns = base_ns + random.u64(window.clone());
            let delay = due_ns.saturating_sub(sink.clock().now_ns()).max(1_000_000);
            T::schedule_firing(&mut local, Duration::from_nanos(delay), due_ns)
        };
        (0..share).map(one).collect()
    };
    let handles: Vec<Vec<T::Handle>> = on_threads(THREADS, schedule);
    if sink.clock().now_ns() > base_ns {
        return Ok(None);
    }
    let cpu_ns = all_fired::<T>(&timer, sink)?;
    drop(handles);
    Ok(Some(Expired {
        sink,
        base_ns,
        cpu_ns,
    }))
}

/// Waits until all have fired, once; nanoseconds on the processors meanwhile.
fn all_fired<T: Timer>(timer: &T, sink: &Sink) -> anyhow::Result<u64> {
    let cpu_ns = sink.wait();
    let (fired, expected) = (sink.count(), sink.expected());
    let cpu_ns = cpu_ns.filter(|_| fired == expected);
    let cpu_ns = cpu_ns.with_context(|| format!("{}: {fired} fired of {expected}", T::NAME))?;
    let pending = timer.pending().unwrap_or(0);
    ensure!(
        pending == 0,
        "{}: {pending} pending, though all have fired",
        T::NAME
    );
    Ok(cpu_ns)
}

/// Timers with one time-out, scheduled at a steady rate over a window; their sink.
fn steady<T: Timer>((timers, window): (usize, Duration)) -> anyhow::Result<&'static Sink> {
    let share = timers / UNIFORM_THREADS;
    let sink = Sink::leaked((share * UNIFORM_THREADS) as u64, Noted::Lateness);
    let (timer, clock, timeout) = (T::start(sink)?, sink.clock(), window / 2);
    let begin_ns = clock.now_ns();
    let schedule = |_| {
        let mut local = timer.local();
        let one = |at: usize| {
            let moment = window.mul_f64(at as f64 / share as f64);
            let moment_ns = begin_ns + moment.as_nanos() as u64;
            while at.is_multiple_of(STEP) && clock.now_ns() < moment_ns {
                let ahead_ns = moment_ns.saturating_sub(clock.now_ns());
                thread::park_timeout(Duration::from_nanos(ahead_ns));
            }
            let due_ns = clock.now_ns() + timeout.as_nanos() as u64;
            T::schedule_firing(&mut local, timeout, due_ns)
        };
        (0..share).map(one).collect()
    };
    let handles: Vec<Vec<T::Handle>> = on_threads(UNIFORM_THREADS, schedule);
    all_fired::<T>(&timer, sink)?;
    drop(handles);
    Ok(sink)
}

pub(super) fn lateness(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    lateness_of(id, run, &timers!(expire))
}

pub(super) fn operations(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(expire, Timer: Parked, TokioSleep, QueueTask);
    lateness_of(&format!("{id}-callback"), run, &contenders)
}

fn lateness_of(
    id: &str,
    run: &mut Run<'_>,
    contenders: &[Contender<Expire, Expired>],
) -> anyhow::Result<()> {
    let (timers, window, noted) = (run.sizes.one_m, run.sizes.window, Noted::Lateness);
    let all = Expire {
        timers,
        window,
        noted,
    };
    for _ in 0..run.sizes.rounds {
        run.turns(
            contenders,
            all,
            |run, name, Expired { sink, cpu_ns, .. }| {
                let lateness = sink.lateness();
                run.quantiles_ms(id, name, &lateness.ns, &QUANTILES);
                run.add(
                    &format!("{id}-early"),
                    "timers early",
                    name,
                    lateness.early as f64,
                );
                run.add(&format!("{id}-cpu"), "ms", name, cpu_ns as f64 / 1e6);
            },
        )?;
    }
    Ok(())
}

pub(super) fn burst(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (timers, window, noted) = (run.sizes.one_m, Duration::ZERO, Noted::Last);
    let all = Expire {
        timers,
        window,
        noted,
    };
    for _ in 0..run.sizes.rounds {
        run.turns(
            &timers!(expire),
            all,
            |run, name, Expired { sink, base_ns, .. }| {
                let late_ms = (sink.last_ns() as f64 - base_ns as f64) / 1e6;
                run.add(&format!("{id}-last"), "ms late", name, late_ms);
            },
        )?;
    }
    Ok(())
}

pub(super) fn uniform(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let all = (run.sizes.one_m, run.sizes.window);
    for _ in 0..run.sizes.rounds {
        run.turns(&timers!(steady), all, |run, name, sink| {
            run.quantiles_ms(id, name, &sink.lateness().ns, &QUANTILES);
        })?;
    }
    Ok(())
}

/// Operations that nothing completes, as timers: each is parked under a random one of many keys,
/// so that no list is long.
struct Parked {
    purgatory: Purgatory<u64, Request>,
    progress: &'static Progress,
}

impl Timer for Parked {
    const NAME: &'static str = OURS;
    type Handle = ();
    type Local<'a> = (&'a Self, Rng);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(sink.clock()).build()?;
        let purgatory = Purgatory::builder("ours").timer(&timer).build()?;
        Ok(Parked {
            purgatory,
            progress: Progress::telling(sink),
        })
    }

    fn local(&self) -> Self::Local<'_> {
        (self, Rng::new())
    }

    fn schedule_firing((parked, random): &mut Self::Local<'_>, delay: Duration, due_ns: u64) {
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

    fn cancel(_: &mut Self::Local<'_>, (): ()) -> bool {
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
        let (window, noted) = (Duration::ZERO, Noted::Last);
        assert!(
            expire::<Broken>(Expire {
                timers: 8,
                window,
                noted
            })
            .is_err()
        );
        assert!(steady::<Broken>((8, Duration::from_millis(1))).is_err());
    }
}
