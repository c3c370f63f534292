//! `replica-set-3`: the reports of the three members of a group, one after the other, while nothing
//! waits. All three members have to report. The figure is the time for one report.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use purgatory::{ReplicaSets, Rule};
use smallvec::SmallVec;
use timer_core::{Clock, SystemClock};

use super::arena::{Arena, warmed_up};
use crate::{
    contender::{Peer, contenders},
    request::Request,
    rows::row::Run,
};

/// The number of members of the group.
const MEMBERS: u64 = 3;

/// The number of groups.
const GROUPS: usize = 64;

/// A contender in which the members of a group report offsets.
trait Quorums: Peer {
    /// Makes a group whose members have reported nothing and all have to report. Called once for
    /// each group.
    fn set(&self, group: usize, members: usize);

    /// Records a member's offset, and completes the writes that enough members have.
    fn report(&self, group: usize, member: usize, has: u64);

    /// Returns the highest offset that all members of a group have.
    fn reported(&self, group: usize) -> u64;
}

/// The groups.
impl Peer for ReplicaSets<u64, usize> {
    fn start() -> anyhow::Result<Self> {
        ReplicaSets::new("ours").context("a timer")
    }

    fn remaining(&self) -> usize {
        let waits = self.waits();
        waits.len() + waits.keys()
    }
}

impl Quorums for ReplicaSets<u64, usize> {
    fn set(&self, group: usize, members: usize) {
        // In the first epoch all values count.
        let of = (0..members).map(|member| (member, 0));
        let begun = self.set(&(group as u64), 0, of, 0, Rule::at_least(members));
        _ = begun.expect("a group that is new");
    }

    fn report(&self, group: usize, member: usize, has: u64) {
        // A member that reports after the others have completed the write has at least their
        // offset.
        let reported = self.in_epoch(&(group as u64), 0).report(&member, has);
        _ = reported.expect("a member of the group");
    }

    fn reported(&self, group: usize) -> u64 {
        self.watermark(&(group as u64)).expect("it is set")
    }
}

/// A hand-written group: its waiting writes, by offset and a number that makes the key unique, and
/// the offset of each member. A write needs all members.
#[derive(Default)]
struct Group {
    writes: BTreeMap<(u64, u64), Request>,
    has: Vec<u64>,
}

impl Group {
    /// Returns the highest offset that all members have.
    #[inline]
    fn reported(&self) -> u64 {
        self.has.iter().copied().min().unwrap_or(0)
    }

    /// Records a member's offset; returns the writes that all members have.
    #[inline]
    fn report(&mut self, member: usize, has: u64) -> SmallVec<[Request; 8]> {
        self.has[member] = has;
        let reported = self.reported();
        let mut reached = SmallVec::new();
        while let Some(first) = self.writes.first_entry()
            && first.key().0 <= reported
        {
            reached.push(first.remove());
        }
        reached
    }
}

/// The hand-written version: for each group, a mutex over the members' offsets and a `BTreeMap` of
/// waiting writes. It calls back without the lock. It has no timeouts, which favours it. It is
/// inlined, in whichever codegen unit the compiler puts the row.
struct Locked(Box<[CachePadded<Mutex<Group>>]>);

impl Peer for Locked {
    const NAME: &'static str = "btree-map";

    fn start() -> anyhow::Result<Self> {
        Ok(Locked(
            (0..GROUPS).map(|_| CachePadded::default()).collect(),
        ))
    }

    fn remaining(&self) -> usize {
        let writes = |group: &CachePadded<Mutex<Group>>| group.lock().writes.len();
        self.0.iter().map(writes).sum()
    }
}

impl Quorums for Locked {
    fn set(&self, group: usize, members: usize) {
        self.0[group].lock().has = vec![0; members];
    }

    #[inline]
    fn report(&self, group: usize, member: usize, has: u64) {
        let reached = self.0[group].lock().report(member, has);
        for write in reached {
            write.end(true);
        }
    }

    fn reported(&self, group: usize) -> u64 {
        self.0[group].lock().reported()
    }
}

/// Measures nanoseconds per report, after a warm-up.
fn report<Q: Quorums>(reports: u64) -> anyhow::Result<f64> {
    let arena = Arena::<Q>::open(1)?;
    arena.waits.set(0, MEMBERS as usize);
    warmed_up(reports, |first, reports| {
        let clock = SystemClock::new();
        for report in first..first + reports {
            // The members report each offset one after the other.
            let member = (report % MEMBERS) as usize;
            arena.waits.report(0, member, report / MEMBERS + 1);
        }
        let ns = clock.now_ns();
        let reported = arena.waits.reported(0);
        let all = (first + reports) / MEMBERS;
        ensure!(reported == all, "{}: {reported} of {all}", Q::NAME);
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(report, Peer: ReplicaSets<u64, usize>, Locked);
    for _ in 0..2 * run.sizes.rounds {
        run.each(id, "ns", &contenders, run.sizes.operations as u64)?;
    }
    Ok(())
}
