//! `quorum-…`: a write that waits until some of the members of its group have reported it.
//! Writes go to random groups of 64, at increasing offsets, each with a timeout of 30 s. On one
//! thread a write is parked, then every member reports it, also those that are not needed. The
//! figure is the time from the first write until the last has ended, divided by their number.
//!
//! `replica-set-3`: the same reports of three members, all of which are needed, while nothing
//! waits. The figure is for one report.

use std::sync::Arc;

use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::arena::{Arena, Pending, TIMEOUT, begin, check_counts, warmed_up};
use crate::{
    quorums::{GROUPS, Of, Quorums, quorums},
    request::{Progress, Request},
    rows::row::Run,
};

/// The groups of a round, and the number of writes.
#[derive(Clone, Copy)]
struct Round {
    of: Of,
    writes: u64,
}

/// Parks writes and reports each by all members; returns the time at the end.
async fn write<Q: Quorums>(
    waits: Arc<Q>,
    progress: &'static Progress,
    of: Of,
    first: u64,
    writes: u64,
) -> u64 {
    let mut random = Rng::with_seed(1);
    let mut pending = Pending::new();
    let mut ends = [first; GROUPS];
    let clock = SystemClock::new();
    for _ in 0..writes {
        // A write at the end of a group's log waits ...
        let group = random.usize(0..GROUPS);
        ends[group] += 1;
        let required = ends[group];
        let write = waits.park(group, TIMEOUT, Request { progress, required });
        begin(Box::pin(write), &mut pending).await;
        // ... until enough members have reported it.
        for member in 0..of.members {
            waits.report(group, member, required);
        }
        for wait in pending.drain(..) {
            wait.await;
        }
    }
    clock.now_ns()
}

/// Measures nanoseconds per write, after a warm-up.
fn quorum<Q: Quorums>(round: Round) -> anyhow::Result<f64> {
    let Round { of, writes } = round;
    let arena = Arena::<Q>::open(1)?;
    for group in 0..GROUPS {
        arena.waits.set(group, of);
    }
    warmed_up(writes, |first, writes| {
        let waits = arena.waits.clone();
        let progress = Progress::leaked();
        let ns = arena.join(arena.spawn(write(waits, progress, of, first, writes)))?;
        check_counts::<Q>(progress.completed(), progress.ended(), writes)?;
        arena.check_empty()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // The last of the row's name tells: 2 of 3, or all of 8.
    let of = if id.ends_with("-2-of-3") {
        Of {
            needed: 2,
            members: 3,
        }
    } else {
        Of {
            needed: 8,
            members: 8,
        }
    };
    let writes = run.sizes.operations as u64;
    for _ in 0..2 * run.sizes.rounds {
        for (form, contenders) in quorums!(quorum) {
            run.each(
                &format!("{id}-{form}"),
                "ns",
                &contenders,
                Round { of, writes },
            )?;
        }
    }
    Ok(())
}

/// Measures nanoseconds per report of a group of three, after a warm-up.
fn report<Q: Quorums>(reports: u64) -> anyhow::Result<f64> {
    const MEMBERS: u64 = 3;
    let arena = Arena::<Q>::open(1)?;
    let members = MEMBERS as usize;
    arena.waits.set(
        0,
        Of {
            needed: members,
            members,
        },
    );
    warmed_up(reports, |first, reports| {
        let clock = SystemClock::new();
        for report in first..first + reports {
            // Each offset is reported by one after the other.
            let member = (report % MEMBERS) as usize;
            arena.waits.report(0, member, report / MEMBERS + 1);
        }
        Ok(clock.now_ns())
    })
}

pub(in crate::rows) fn run_reports(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let reports = run.sizes.operations as u64;
    for _ in 0..2 * run.sizes.rounds {
        // The form of the waits makes no difference while there are none.
        for (form, contenders) in quorums!(report) {
            if form == "callback" {
                run.each(id, "ns", &contenders, reports)?;
            }
        }
    }
    Ok(())
}
