//! The state of a run at one moment, for whoever watches it.

use std::time::Duration;

use crate::books::{Books, Counts};
use crate::in_sync::{FOLLOWERS, REPLICAS};
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
    /// The follower that does not fetch now.
    pub stalled: Option<usize>,
    /// What has happened until now.
    pub state: State,
}

/// What has happened until one moment.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// Records sent.
    pub produced: u64,
    /// How many produces have ended.
    pub ended: Counts,
    /// The smallest in-sync set of any partition.
    pub in_sync_min: usize,
    /// How many records each follower is behind, over all partitions, as the leader knows it.
    pub lag: [u64; FOLLOWERS],
}

impl State {
    /// Looks at everything; other threads go on meanwhile, so the figures need not fit together to
    /// the last record.
    pub fn take(cluster: &Cluster, books: &Books) -> Self {
        let ended = books.counts();
        let mut lag = [0; FOLLOWERS];
        for (_, partition) in cluster.iter() {
            lag.iter_mut().zip(partition.lag()).for_each(|(sum, lag)| *sum += lag);
        }
        let in_sync = cluster.iter().map(|(_, partition)| partition.members().count());
        let in_sync_min = in_sync.min().unwrap_or(REPLICAS);
        Self { produced: cluster.produced(), ended, in_sync_min, lag }
    }

    /// Operations that have not ended.
    pub fn waiting(&self) -> u64 {
        self.produced.saturating_sub(self.ended.ended())
    }
}
