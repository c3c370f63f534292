//! `lateness-1m-per-s`, `uniform-1m` and `burst-1m`: a million timers that fire, in real time.
//!
//! Eight threads schedule them, in `lateness-1m-per-s-1t` one, before the first is due (a round in
//! which they were not done by then is thrown away and repeated with twice the lead).
//! `ours-rounded` is the same run as `ours`, late after the deadline rounded up to its tick.
//! In `uniform-1m` all have the same time-out, and are late after the moment each was given.
//! `lateness-1m-per-s-cpu` is the processor time of the process from the last one scheduled until
//! the last one fired, a clock read, a lock and two records a timer for the sink included.
//!
//! Not all do the same when they fire: ours runs and frees the caller's boxed closure on a worker
//! thread, the futures wake and free a waker, the others hand over eight bytes on their own thread.

use std::{thread, time::Duration};

use anyhow::Context;
use fastrand::Rng;
use timer_core::Clock;

use crate::{
    floor,
    results::FLOOR,
    rows::row::Run,
    sink::{Noted, Sink, with_lead},
    timers::{Timer, timers},
};

const THREADS: usize = 8;
/// A floor is taken from this quantile of wake-ups, and these are lateness's measures.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

#[derive(Clone, Copy)]
pub(super) struct Expire {
    pub(super) timers: usize,
    /// That schedule them.
    pub(super) threads: usize,
    /// Over which they fall due at random; `None`: `lead` after each was scheduled.
    pub(super) window: Option<Duration>,
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

pub(super) fn expire<T: Timer>(expire: Expire) -> anyhow::Result<Expired> {
    with_lead(T::NAME, expire.lead, |lead| attempt::<T>(expire, lead))
}

/// `None` when the first was due before the last was scheduled.
fn attempt<T: Timer>(expire: Expire, lead: Duration) -> anyhow::Result<Option<Expired>> {
    let share = expire.timers / expire.threads;
    let expected = (share * expire.threads) as u64;
    let sink = Sink::leaked(expected, expire.noted);
    let timer = T::start(sink)?;
    let base_ns = sink.clock().now_ns() + lead.as_nanos() as u64;
    let schedule = |thread| {
        let mut random = Rng::with_seed(thread);
        let mut local = timer.local();
        let window = expire.window.map(|window| 0..=window.as_nanos() as u64);
        let one = |_| {
            let due_ns = match &window {
                Some(window) => base_ns + random.u64(window.clone()),
                None => sink.clock().now_ns() + lead.as_nanos() as u64,
            };
            let delay = due_ns.saturating_sub(sink.clock().now_ns()).max(1_000_000);
            T::schedule_firing(&mut local, Duration::from_nanos(delay), due_ns)
        };
        let handles: Vec<T::Handle> = (0..share).map(one).collect();
        T::settle(&mut local);
        handles
    };
    let handles: Vec<_> = thread::scope(|scope| {
        let threads =
            (0..expire.threads as u64).map(|thread| scope.spawn(move || schedule(thread)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("it schedules")).collect()
    });
    if sink.clock().now_ns() > base_ns {
        return Ok(None);
    }
    let cpu_ns = sink.wait();
    let fired = sink.count();
    let cpu_ns = cpu_ns.filter(|_| fired == expected);
    let cpu_ns = cpu_ns.with_context(|| format!("{}: {fired} fired of {expected}", T::NAME))?;
    drop(handles);
    Ok(Some(Expired { sink, base_ns, cpu_ns }))
}

pub(crate) fn lateness(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let noted = Noted::Lateness;
    let (threads, contenders) = if id.ends_with("-1t") {
        (1, timers!(expire, plain))
    } else {
        (THREADS, timers!(expire, firing))
    };
    let (timers, lead) = (sizes.one_m, sizes.window);
    let window = (id != "uniform-1m").then_some(lead);
    let all = Expire { timers, threads, window, lead, noted };
    for round in 0..sizes.real_time_rounds {
        run.turns(id, round, &contenders, all, |run, name, Expired { sink, cpu_ns, .. }| {
            let lateness = sink.lateness();
            run.lateness(id, name, &lateness, &QUANTILES);
            run.add(&format!("{id}-early"), "timers early", name, lateness.early as f64);
            run.add(&format!("{id}-cpu"), "ms", name, cpu_ns as f64 / 1e6);
        })?;
        run.quantiles_ms(id, FLOOR, &floor::wake_up(sizes.wake_ups), &QUANTILES);
    }
    Ok(())
}

pub(crate) fn burst(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let (timers, window, noted) = (sizes.one_m, Some(Duration::ZERO), Noted::Ends);
    let all = Expire { timers, threads: THREADS, window, lead: sizes.window, noted };
    let ends = |run: &mut Run<'_>, name, late_ns: [f64; 2]| {
        for (end, ns) in ["first", "last"].into_iter().zip(late_ns) {
            run.add(&format!("{id}-{end}"), "ms late", name, ns / 1e6);
        }
    };
    let contenders = timers!(expire, plain);
    for round in 0..sizes.real_time_rounds {
        run.turns(id, round, &contenders, all, |run, name, Expired { sink, base_ns, .. }| {
            let (first, last) = sink.ends_ns();
            ends(run, name, [first, last].map(|at| at as f64 - base_ns as f64));
        })?;
        let wake_up = floor::wake_up(sizes.wake_ups).value_at_quantile(0.5) as f64;
        ends(run, FLOOR, [wake_up, wake_up + floor::run_tasks(timers) * timers as f64]);
    }
    Ok(())
}
