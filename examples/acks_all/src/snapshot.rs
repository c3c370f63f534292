//! The state of a run at one moment, for whoever watches it.

use std::time::Duration;

use crate::books::Books;
use crate::in_sync::{FOLLOWERS, REPLICAS, Replica};
use crate::partition::Cluster;

/// What the run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The producers produce.
    Producing,
    /// They have stopped; what waits is let end.
    Draining,
    /// Everything has ended.
    Done,
}

/// One look at a run.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    /// What it is doing.
    pub phase: Phase,
    /// Since when.
    pub elapsed: Duration,
    /// How long the producers are to produce.
    pub duration: Duration,
    /// The follower that does not fetch now.
    pub stalled: Option<Replica>,
    /// What has happened until now.
    pub state: State,
}

/// What has happened until one moment.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// Records sent.
    pub produced: u64,
    /// Produces that completed.
    pub completed: u64,
    /// Produces that expired.
    pub expired: u64,
    /// Produces that were cancelled.
    pub cancelled: u64,
    /// The smallest in-sync set of any partition.
    pub in_sync_min: usize,
    /// How many records each follower is behind, over all partitions, as the leader knows it.
    pub lag: [u64; FOLLOWERS],
}

impl State {
    /// Looks at everything; other threads go on meanwhile, so the figures need not fit together to
    /// the last record.
    pub fn take(cluster: &Cluster, books: &Books) -> Self {
        let counts = books.counts();
        let mut lag = [0; FOLLOWERS];
        for (follower, lag) in Replica::followers().zip(&mut lag) {
            *lag = cluster.iter().map(|(_, partition)| partition.lag(follower)).sum();
        }
        let in_sync = cluster.iter().map(|(_, partition)| partition.members().count());
        Self {
            produced: books.produced(),
            completed: counts.completed,
            expired: counts.expired,
            cancelled: counts.cancelled,
            in_sync_min: in_sync.min().unwrap_or(REPLICAS),
            lag,
        }
    }

    /// Operations that have not ended.
    pub fn waiting(&self) -> u64 {
        self.produced.saturating_sub(self.completed + self.expired + self.cancelled)
    }
}
