//! What waits: a [`Produce`], until the high watermark of its [`Partition`] has reached its offset.
//! And where it waits: [`Produces`].

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crossbeam_utils::CachePadded;

use crate::{contender::Peer, request::Wait};

/// How many partitions there are.
pub(crate) const PARTITIONS: usize = 64;

/// Where produces wait until a high watermark is raised.
pub(crate) trait Produces: Peer {
    /// Parks a produce to a partition: it waits once the future was polled, and is told that it is
    /// over before the future ends. In the callback form the future is ready at once.
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait;

    /// The high watermark of a partition has risen.
    fn raise(&self, partition: usize, high_watermark: u64);
}

/// What waits, in 16 bytes: a produce, for its record to be below the high watermark.
#[derive(Clone, Copy)]
pub(crate) struct Produce {
    pub(crate) partition: &'static Partition,
    pub(crate) offset: u64,
}

/// The high watermark of a partition, and what came of its produces. The thread that parks reads
/// the one, and only the thread that raises writes the others.
#[derive(Default)]
pub(crate) struct Partition {
    high_watermark: CachePadded<AtomicU64>,
    outcomes: CachePadded<Outcomes>,
}

#[derive(Default)]
struct Outcomes {
    completed: AtomicU64,
    given_up: AtomicU64,
}

impl Produce {
    pub(crate) fn is_ready(&self) -> bool {
        self.partition.high_watermark.load(Ordering::Acquire) >= self.offset
    }

    /// It is over: completed, or given up. One that was completed too early counts as given up.
    pub(crate) fn over(self, completed: bool) {
        let outcomes = &self.partition.outcomes;
        let completed = completed && self.is_ready();
        let count = if completed { &outcomes.completed } else { &outcomes.given_up };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Partition {
    /// All partitions, never freed: produces point at them.
    pub(crate) fn leaked() -> &'static [Partition] {
        Box::leak((0..PARTITIONS).map(|_| Partition::default()).collect())
    }

    /// An event must follow.
    pub(crate) fn reach(&self, high_watermark: u64) {
        self.high_watermark.store(high_watermark, Ordering::Release);
    }

    pub(crate) fn completed(&self) -> u64 {
        self.outcomes.completed.load(Ordering::Relaxed)
    }

    /// How many are over, in whatever way.
    pub(crate) fn ended(&self) -> u64 {
        self.completed() + self.outcomes.given_up.load(Ordering::Relaxed)
    }
}
