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
use purgatory_benches::process_cpu_ns;
use timer_core::{Clock, TickLength};

use super::{super::row::Run, room::Room};
use crate::{
    floor,
    named::Named,
    request::{Progress, Request},
    results::{FLOOR, OURS},
    sink::{Lateness, Noted, Sink},
    waits::{Contender, Visit, wait::Waits},
};

const THREADS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);
const LEAD_MAX: Duration = Duration::from_secs(30);
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

pub(super) struct Expire {
    pub(super) requests: usize,
    pub(super) keys: usize,
    /// Over which their time runs out at random.
    pub(super) window: Duration,
    pub(super) lead: Duration,
}

/// What came of it.
pub(super) struct Expired {
    lateness: Lateness,
    /// Time on the processors while they expired.
    cpu_ns: u64,
}

impl Expire {
    /// `None` when the first was due before the last was parked.
    fn attempt<W: Waits>(&self, lead: Duration) -> anyhow::Result<Option<Expired>> {
        let share = self.requests / THREADS;
        let requests = (share * THREADS) as u64;
        let sink = Sink::leaked(requests, Noted::Lateness(TickLength::default()));
        let (clock, progress) = (sink.clock(), Progress::telling(sink));
        let room = Room::<W>::open_on(THREADS, clock)?;
        let base_ns = clock.now_ns() + lead.as_nanos() as u64;
        let (keys, window_ns) = (self.keys as u64, self.window.as_nanos() as u64);
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
        let before_ns = process_cpu_ns();
        if clock.now_ns() > base_ns {
            return Ok(None);
        }
        ensure!(progress.ended() == 0, "{}: a parked request had gone", W::NAME);
        let all = sink.wait(PATIENCE);
        let cpu_ns = process_cpu_ns() - before_ns;
        let (completed, ended) = (progress.completed(), progress.ended());
        ensure!(
            all && (completed, ended) == (0, requests),
            "{}: {completed} completed and {} expired of {requests}",
            W::NAME,
            ended - completed,
        );
        let lateness = sink.lateness();
        ensure!(lateness.early == 0, "{}: {} expired early", W::NAME, lateness.early);
        room.close()?;
        Ok(Some(Expired { lateness, cpu_ns }))
    }
}

impl Visit for Expire {
    type Output = anyhow::Result<Expired>;

    fn visit<W: Waits>(&self) -> Self::Output {
        let mut lead = self.lead;
        while lead <= LEAD_MAX {
            if let Some(expired) = self.attempt::<W>(lead)? {
                return Ok(expired);
            }
            lead *= 2;
        }
        anyhow::bail!("{}: not parked within {LEAD_MAX:?}", W::NAME)
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let (requests, keys) = (sizes.one_m, sizes.one_m / 10);
    let expire = Expire { requests, keys, window: sizes.window, lead: sizes.lead };
    let (form, contenders) = Contender::FORMS[0];
    let measure = format!("{id}-{form}");
    for round in 0..sizes.real_time_rounds {
        for contender in run.contenders(contenders) {
            let name = contender.name();
            run.at(id, name, round);
            let Expired { lateness, cpu_ns } = contender.visit(&expire)?;
            run.quantiles_ms(&measure, name, &lateness.asked, &QUANTILES);
            if name == OURS {
                run.quantiles_ms(&measure, "ours-rounded", &lateness.rounded, &QUANTILES);
            }
            let each = cpu_ns as f64 / requests as f64;
            run.results.measure(&format!("{measure}-cpu"), "ns").add(name, each);
        }
        run.quantiles_ms(&measure, FLOOR, &floor::wake_up(sizes.wake_ups), &QUANTILES);
    }
    Ok(())
}
