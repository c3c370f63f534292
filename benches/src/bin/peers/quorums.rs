//! Ways for writes to wait until some of the members of a group have reported them, behind
//! [`Quorums`]. A write is a [`Request`] that requires an offset.
//!
//! They come in two forms, as in [`produces`](crate::produces): a callback is called by the thread
//! whose report completes it, a future is awaited.
//!
//! To add a peer, add its type to [`quorums`].

use std::{collections::BTreeMap, future::poll_fn, task::Poll, time::Duration};

use anyhow::Context;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use purgatory::{Outcome, ReplicaSets, Rule};
use smallvec::SmallVec;
use tokio::{sync::oneshot, time};

use crate::{
    contender::{Awaited, Peer},
    request::{Request, Wait},
    results::OURS,
};

/// The number of groups.
pub(crate) const GROUPS: usize = 64;

/// The number of members of a group, and how many have to report a write.
#[derive(Clone, Copy)]
pub(crate) struct Of {
    pub(crate) needed: usize,
    pub(crate) members: usize,
}

/// A contender in which writes wait until enough members of their group have reported them.
pub(crate) trait Quorums: Peer {
    /// Makes a group whose members have reported nothing. It is called once for each group.
    fn set(&self, group: usize, of: Of);

    /// Parks a write to a group. It waits once the future was polled, and [`Request::end`] is
    /// called before the future ends. In the callback form the future is ready at once.
    fn park(&self, group: usize, timeout: Duration, write: Request) -> impl Wait;

    /// Records what a member has, and completes the writes that enough members have.
    fn report(&self, group: usize, member: usize, has: u64);
}

/// The groups.
impl Peer for ReplicaSets<u64, usize> {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        ReplicaSets::new("ours").context("a timer")
    }

    fn remaining(&self) -> usize {
        let waits = self.waits();
        waits.len() + waits.keys()
    }
}

impl Quorums for ReplicaSets<u64, usize> {
    fn set(&self, group: usize, of: Of) {
        // In its first epoch all values count.
        let members = (0..of.members).map(|member| (member, 0));
        let begun = self.set(&(group as u64), 0, members, Rule::at_least(of.needed));
        _ = begun.expect("a group that is new");
    }

    fn park(&self, group: usize, timeout: Duration, write: Request) -> impl Wait {
        let then = move |outcome| write.end(outcome == Outcome::Completed);
        let parked = self.park(&(group as u64), write.required, timeout, then);
        _ = parked.expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn report(&self, group: usize, member: usize, has: u64) {
        // A member that reports after the others have completed the write has no less than they.
        let reported = self.report(&(group as u64), &member, has);
        _ = reported.expect("a member of the group");
    }
}

impl Quorums for Awaited<ReplicaSets<u64, usize>> {
    fn set(&self, group: usize, of: Of) {
        Quorums::set(&self.0, group, of);
    }

    fn park(&self, group: usize, timeout: Duration, write: Request) -> impl Wait {
        let wait = (self.0).wait_for(&(group as u64), write.required, timeout);
        async move { write.end(wait.await.is_ok()) }
    }

    fn report(&self, group: usize, member: usize, has: u64) {
        Quorums::report(&self.0, group, member, has);
    }
}

/// A hand-written group: its waiting writes, by offset and a number that makes the key unique; the
/// offsets that its members have, and how many are needed.
pub(crate) struct Group<W> {
    writes: BTreeMap<(u64, u64), W>,
    number: u64,
    has: Vec<u64>,
    needed: usize,
}

impl<W> Default for Group<W> {
    fn default() -> Self {
        Group {
            writes: BTreeMap::new(),
            number: 0,
            has: Vec::new(),
            needed: 0,
        }
    }
}

impl<W> Group<W> {
    /// Returns the highest offset that enough members have.
    #[inline]
    fn reported(&self) -> u64 {
        let mut values: SmallVec<[u64; 8]> = self.has.iter().copied().collect();
        values.sort_unstable();
        values[values.len() - self.needed]
    }

    #[inline]
    fn push(&mut self, required: u64, write: W) {
        self.number += 1;
        self.writes.insert((required, self.number), write);
    }

    /// Records what a member has; returns the writes that enough members have.
    #[inline]
    fn report(&mut self, member: usize, has: u64) -> SmallVec<[W; 8]> {
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

/// Hand-written groups: for each a mutex over what its members have and a `BTreeMap` of what waits.
pub(crate) struct Groups<W>(Box<[CachePadded<Mutex<Group<W>>>]>);

impl<W> Groups<W> {
    fn new() -> Self {
        Groups((0..GROUPS).map(|_| CachePadded::default()).collect())
    }

    fn make(&self, group: usize, of: Of) {
        let mut group = self.0[group].lock();
        group.has = vec![0; of.members];
        group.needed = of.needed;
    }

    fn waiting(&self) -> usize {
        let writes = |group: &CachePadded<Mutex<Group<W>>>| group.lock().writes.len();
        self.0.iter().map(writes).sum()
    }
}

/// The hand-written callback, called back without the lock. It has no timeouts, which favours it. It
/// is inlined, wherever the compiler puts the rows.
pub(crate) type Locked = Groups<Request>;

impl Peer for Locked {
    const NAME: &'static str = "btree-map";

    fn start() -> anyhow::Result<Self> {
        Ok(Groups::new())
    }

    fn remaining(&self) -> usize {
        self.waiting()
    }
}

impl Quorums for Locked {
    fn set(&self, group: usize, of: Of) {
        self.make(group, of);
    }

    #[inline]
    fn park(&self, group: usize, _: Duration, write: Request) -> impl Wait {
        // A write that is reported already need not wait, and ends without the lock.
        let mut waiting = self.0[group].lock();
        if write.required > waiting.reported() {
            waiting.push(write.required, write);
        } else {
            drop(waiting);
            write.end(true);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    #[inline]
    fn report(&self, group: usize, member: usize, has: u64) {
        let reached = self.0[group].lock().report(member, has);
        for write in reached {
            write.end(true);
        }
    }
}

/// The hand-written future: a oneshot channel for each write, and tokio's `timeout`. A write that
/// is given up stays on the list, which favours it.
pub(crate) type Channels = Groups<oneshot::Sender<()>>;

impl Peer for Channels {
    const NAME: &'static str = "btree-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Groups::new())
    }

    fn remaining(&self) -> usize {
        self.waiting()
    }
}

impl Quorums for Channels {
    fn set(&self, group: usize, of: Of) {
        self.make(group, of);
    }

    #[inline]
    fn park(&self, group: usize, timeout: Duration, write: Request) -> impl Wait {
        let (sender, reported) = oneshot::channel();
        let mut waiting = self.0[group].lock();
        if write.required > waiting.reported() {
            waiting.push(write.required, sender);
        } else {
            _ = sender.send(());
        }
        drop(waiting);
        async move {
            let ended = time::timeout(timeout, reported).await;
            write.end(matches!(ended, Ok(Ok(()))));
        }
    }

    #[inline]
    fn report(&self, group: usize, member: usize, has: u64) {
        let reached = self.0[group].lock().report(member, has);
        for write in reached {
            // A write that was given up has nothing to hear.
            _ = write.send(());
        }
    }
}

/// Lists the contenders of a row by form, with the row's function.
macro_rules! quorums {
    ($measure:ident) => {{
        use purgatory::ReplicaSets;
        use $crate::{contender::*, quorums::*};
        [
            ("callback", contenders!($measure, Peer: ReplicaSets<u64, usize>, Locked)),
            ("future", contenders!($measure, Peer: Awaited<ReplicaSets<u64, usize>>, Channels)),
        ]
    }};
}
pub(crate) use quorums;
