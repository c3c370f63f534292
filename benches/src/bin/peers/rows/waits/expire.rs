//! `expire-operations`: a million requests, parked so that their time runs out over one second, in
//! real time. Nothing completes them.
//!
//! Two threads park them before the first is due (a round in which they were not done by then is
//! thrown away and repeated with twice the lead), each under a random one of a tenth as many keys,
//! so that no list is long. `…-cpu` is the processor time of the process from the last one parked
//! until the last one was told, by the request; a clock read, a lock and two records for the sink
//! are in it. `…-p50` to `…-max` is how late they are told after their deadline. `ours-rounded` is
//! the same run as `ours`, late after the deadline rounded up to its tick; the tick of a
//! `DelayQueue` is a millisecond, too, but it is not known when one begins.

use std::time::Duration;

use anyhow::ensure;
use fastrand::Rng;
use timer_core::Clock;

use super::room::Room;
use crate::{
    floor,
    request::{Progress, Request},
    results::FLOOR,
    rows::row::Run,
    sink::{Lateness, Noted, Sink, with_lead},
    waits::{Waits, waits},
};

const THREADS: usize = 2;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

#[derive(Clone, Copy)]
pub(super) struct Expire {
    pub(super) requests: usize,
    pub(super) keys: usize,
    /// Over which their time runs out at random.
    pub(super) window: Duration,
    pub(super) lead: Duration,
}

/// How late they were told, and nanoseconds on the processors while they expired.
pub(super) fn expire<W: Waits>(expire: Expire) -> anyhow::Result<(Lateness, u64)> {
    with_lead(W::NAME, expire.lead, |lead| attempt::<W>(expire, lead))
}

/// `None` when the first was due before the last was parked.
fn attempt<W: Waits>(expire: Expire, lead: Duration) -> anyhow::Result<Option<(Lateness, u64)>> {
    let share = expire.requests / THREADS;
    let requests = (share * THREADS) as u64;
    let sink = Sink::leaked(requests, Noted::Lateness);
    let (clock, progress) = (sink.clock(), Progress::telling(sink));
    let room = Room::<W>::with(THREADS, || W::start_on(clock))?;
    let base_ns = clock.now_ns() + lead.as_nanos() as u64;
    let (keys, window_ns) = (expire.keys as u64, expire.window.as_nanos() as u64);
    let park = |thread: u64| {
        let waits = room.waits.clone();
        room.spawn(async move {
            let mut random = Rng::with_seed(thread);
            for _ in 0..share {
                let due_ns = base_ns + random.u64(0..=window_ns);
                let timeout_ns = due_ns.saturating_sub(clock.now_ns()).max(1_000_000);
                let request = Request { progress, required: due_ns };
                let key = random.u64(0..keys);
                waits.park([key], Duration::from_nanos(timeout_ns), request).await;
            }
        })
    };
    let parks: Vec<_> = (0..THREADS as u64).map(park).collect();
    parks.into_iter().try_for_each(|task| room.join(task))?;
    if clock.now_ns() > base_ns {
        return Ok(None);
    }
    ensure!(progress.ended() == 0, "{}: a parked request had gone", W::NAME);
    let cpu_ns = sink.wait();
    let (completed, ended) = (progress.completed(), progress.ended());
    ensure!(
        cpu_ns.is_some() && (completed, ended) == (0, requests),
        "{}: {completed} completed and {} expired of {requests}",
        W::NAME,
        ended - completed,
    );
    let lateness = sink.lateness();
    ensure!(lateness.early == 0, "{}: {} expired early", W::NAME, lateness.early);
    room.nothing_left()?;
    Ok(cpu_ns.map(|cpu_ns| (lateness, cpu_ns)))
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let (requests, window) = (sizes.one_m, sizes.window);
    let all = Expire { requests, keys: requests / 10, window, lead: window };
    let [(form, contenders), _] = waits!(expire);
    let measure = format!("{id}-{form}");
    for round in 0..sizes.real_time_rounds {
        run.turns(id, round, &contenders, all, |run, name, (lateness, cpu_ns)| {
            run.lateness(&measure, name, &lateness, &QUANTILES);
            let each = cpu_ns as f64 / requests as f64;
            run.add(&format!("{measure}-cpu"), "ns", name, each);
        })?;
        run.quantiles_ms(&measure, FLOOR, &floor::wake_up(sizes.wake_ups), &QUANTILES);
    }
    Ok(())
}
