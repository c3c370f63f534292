//! Ways for produces with acks=all to wait until the high watermark of their partition has reached
//! their offset, behind [`Produces`]. A produce is a [`Request`] that requires an offset.
//!
//! They come in two forms, as in [`waits`](crate::waits): a callback is called by the thread that
//! advances the high watermark, a future is awaited.
//!
//! To add a peer, add its type to [`produces`].

use std::{collections::BTreeMap, future::poll_fn, task::Poll, time::Duration};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use purgatory::{Outcome, Watermarks};
use smallvec::SmallVec;

use crate::{
    contender::{Awaited, Peer},
    request::{Request, Wait},
    results::OURS,
    waits::{Oneshots, Waits},
};

/// The number of partitions.
pub(crate) const PARTITIONS: usize = 64;

/// A contender in which produces wait until a high watermark advances.
pub(crate) trait Produces: Peer {
    /// Parks a produce to a partition. It waits once the future was polled, and [`Request::end`] is
    /// called before the future ends. In the callback form the future is ready at once.
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait;

    /// Completes what waits, now that the high watermark of a partition has advanced.
    fn advance(&self, partition: usize, high_watermark: u64);
}

/// The high watermarks of partitions.
impl Peer for Watermarks<u64> {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Watermarks::new("ours")?)
    }

    fn remaining(&self) -> usize {
        let waits = self.waits();
        waits.len() + waits.keys()
    }
}

impl Produces for Watermarks<u64> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let then = move |outcome| produce.end(outcome == Outcome::Completed);
        _ = self
            .park(&(partition as u64), produce.required, timeout, then)
            .expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn advance(&self, partition: usize, high_watermark: u64) {
        _ = self
            .advance(&(partition as u64), high_watermark)
            .expect("a place for its value");
    }
}

impl Produces for Awaited<Watermarks<u64>> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let wait = (self.0).wait_for(&(partition as u64), produce.required, timeout);
        async move { produce.end(wait.await.is_ok()) }
    }

    fn advance(&self, partition: usize, high_watermark: u64) {
        Produces::advance(&self.0, partition, high_watermark);
    }
}

/// Produces that the high watermark has reached, to be ended after the lock is released.
type Batch = SmallVec<[Request; 8]>;

/// The produces that wait for one partition, by offset and a number that makes the key unique.
#[derive(Default)]
struct Waiting {
    produces: BTreeMap<(u64, u64), Request>,
    number: u64,
    high_watermark: u64,
}

/// The hand-written callback: for each partition a mutex over a `BTreeMap` of what waits and the
/// high watermark. It calls back without the lock. It has no timeouts, which favours it. It is
/// inlined, wherever the compiler puts the rows.
pub(crate) struct Locked(Box<[CachePadded<Mutex<Waiting>>]>);

impl Peer for Locked {
    const NAME: &'static str = "btree-map";

    fn start() -> anyhow::Result<Self> {
        Ok(Locked(
            (0..PARTITIONS).map(|_| CachePadded::default()).collect(),
        ))
    }

    fn remaining(&self) -> usize {
        let produces = |partition: &CachePadded<Mutex<Waiting>>| partition.lock().produces.len();
        self.0.iter().map(produces).sum()
    }
}

impl Produces for Locked {
    #[inline]
    fn park(&self, partition: usize, _: Duration, produce: Request) -> impl Wait {
        // A produce below the high watermark need not wait, and ends without the lock.
        let mut waiting = self.0[partition].lock();
        if produce.required > waiting.high_watermark {
            waiting.number += 1;
            let key = (produce.required, waiting.number);
            waiting.produces.insert(key, produce);
        } else {
            drop(waiting);
            produce.end(true);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    #[inline]
    fn advance(&self, partition: usize, high_watermark: u64) {
        // Under the lock: take off what is reached.
        let mut reached = Batch::new();
        let mut waiting = self.0[partition].lock();
        waiting.high_watermark = waiting.high_watermark.max(high_watermark);
        while let Some(first) = waiting.produces.first_entry()
            && first.key().0 <= high_watermark
        {
            reached.push(first.remove());
        }
        drop(waiting);

        // Without the lock: call back.
        for produce in reached {
            produce.end(true);
        }
    }
}

/// A partition's list is taken off whole. On one thread nothing waits beyond the high watermark; on
/// two, what does registers again.
impl Produces for Oneshots {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        Waits::park(self, [partition as u64], timeout, produce)
    }

    fn advance(&self, partition: usize, _: u64) {
        self.signal(partition as u64);
    }
}

/// Lists the contenders of a row by form, with the row's function.
macro_rules! produces {
    ($measure:ident) => {{
        use purgatory::Watermarks;
        use $crate::{contender::*, produces::*, waits::Oneshots};
        [
            ("callback", contenders!($measure, Peer: Watermarks<u64>, Locked)),
            ("future", contenders!($measure, Peer: Awaited<Watermarks<u64>>, Oneshots)),
        ]
    }};
}
pub(crate) use produces;
