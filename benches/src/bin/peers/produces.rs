//! The ways for produces with acks=all to wait until the high watermark of their partition has
//! reached their offset, behind [`Produces`]. A produce is a [`Request`] that requires an offset.
//! They come in two forms, as in [`waits`](crate::waits): a callback is called by the thread that
//! raises the high watermark, a future is awaited.
//!
//! A peer joins the run by its type in [`produces`].

use std::{collections::BTreeMap, future::poll_fn, task::Poll, time::Duration};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use purgatory::{BoxedOperation, Purgatory, Watches};
use smallvec::SmallVec;

use crate::{
    contender::Peer,
    request::{Request, Wait},
    waits::{Oneshots, Waits},
};

/// The number of partitions.
pub(crate) const PARTITIONS: usize = 64;

/// Where produces wait until a high watermark is raised.
pub(crate) trait Produces: Peer {
    /// Parks a produce to a partition: it waits once the future was polled, and is told that it is
    /// over before the future ends. In the callback form the future is ready at once.
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait;

    /// The high watermark of a partition has risen.
    fn raise(&self, partition: usize, high_watermark: u64);
}

impl Produces for Purgatory<u64, Request> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let until = [(partition as u64, produce.required)];
        _ = self
            .try_complete_else_watch(produce, Watches::up_to(&until), timeout)
            .expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.complete_up_to(&(partition as u64), high_watermark);
    }
}

impl Produces for Purgatory<u64, BoxedOperation> {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        let until = [(partition as u64, produce.required)];
        let condition = move || produce.is_ready().then_some(());
        let wait = self.wait(Watches::up_to(&until), timeout, condition);
        async move { produce.over(wait.await.is_ok()) }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.complete_up_to(&(partition as u64), high_watermark);
    }
}

/// Produces that are over, to be told once the lock is free.
type Batch = SmallVec<[Request; 8]>;

/// The produces that wait for one partition, by offset and a number: offsets may come in any order.
#[derive(Default)]
struct Waiting {
    produces: BTreeMap<(u64, u64), Request>,
    number: u64,
    high_watermark: u64,
}

/// The callback written by hand: for each partition a mutex over a `BTreeMap` of what waits and the
/// high watermark. Nothing is told under a lock. It knows no time-outs, which is kind to it.
pub(crate) struct Locked(Box<[CachePadded<Mutex<Waiting>>]>);

impl Peer for Locked {
    const NAME: &'static str = "btree-map";

    fn start() -> anyhow::Result<Self> {
        Ok(Locked(
            (0..PARTITIONS).map(|_| CachePadded::default()).collect(),
        ))
    }

    fn left(&self) -> usize {
        self.0
            .iter()
            .map(|partition| partition.lock().produces.len())
            .sum()
    }
}

impl Produces for Locked {
    fn park(&self, partition: usize, _: Duration, produce: Request) -> impl Wait {
        let mut waiting = self.0[partition].lock();
        if produce.required > waiting.high_watermark {
            waiting.number += 1;
            let key = (produce.required, waiting.number);
            waiting.produces.insert(key, produce);
        } else {
            drop(waiting);
            produce.over(true);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        let mut reached = Batch::new();
        let mut waiting = self.0[partition].lock();
        waiting.high_watermark = waiting.high_watermark.max(high_watermark);
        while let Some(first) = waiting.produces.first_entry()
            && first.key().0 <= high_watermark
        {
            reached.push(first.remove());
        }
        drop(waiting);
        reached.into_iter().for_each(|produce| produce.over(true));
    }
}

/// The list of a partition is taken off whole, as in this row nothing waits beyond what is raised.
impl Produces for Oneshots {
    fn park(&self, partition: usize, timeout: Duration, produce: Request) -> impl Wait {
        Waits::park(self, [partition as u64], timeout, produce)
    }

    fn raise(&self, partition: usize, _: u64) {
        self.event(partition as u64);
    }
}

/// The contenders of a row, by form, with the row's function.
macro_rules! produces {
    ($measure:ident) => {{
        use purgatory::{BoxedOperation, Purgatory};
        use $crate::{contender::*, produces::*, request::Request, waits::Oneshots};
        [
            ("callback", contenders!($measure, Peer: Purgatory<u64, Request>, Locked)),
            ("future", contenders!($measure, Peer: Purgatory<u64, BoxedOperation>, Oneshots)),
        ]
    }};
}
pub(crate) use produces;
