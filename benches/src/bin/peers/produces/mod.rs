//! The ways for produces with acks=all to wait until the high watermark of their partition has
//! reached their offset, behind [`Produces`]. They come in two forms, as in
//! [`waits`](crate::waits): a callback is called by the thread that raises the high watermark, a
//! future is awaited.
//!
//! A peer is one file. It joins the run by an arm in [`Contender::visit`].

mod btree_map;
mod dashmap_oneshot;
mod deque;
mod locked;
mod ours;

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;

use crate::rows::Named;

/// How many partitions there are.
pub(crate) const PARTITIONS: usize = 64;

/// Where produces wait until a high watermark is raised.
pub(crate) trait Produces: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;

    /// Inside a runtime with tokio's time.
    fn start() -> anyhow::Result<Self>;

    /// Parks a produce to a partition: it waits once the future was polled, and is told that it is
    /// over before the future ends. In the callback form the future is ready at once.
    fn park(
        &self,
        partition: usize,
        timeout: Duration,
        produce: Produce,
    ) -> impl Future<Output = ()> + Send;

    /// The high watermark of a partition has risen.
    fn raise(&self, partition: usize, high_watermark: u64);

    /// How many produces are still held.
    fn left(&self) -> usize;
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
        self.partition.high_watermark.load(Acquire) >= self.offset
    }

    /// It is over: completed, or given up. One that was completed too early counts as given up.
    pub(crate) fn over(self, completed: bool) {
        let outcomes = &self.partition.outcomes;
        let completed = completed && self.is_ready();
        let count = if completed { &outcomes.completed } else { &outcomes.given_up };
        count.fetch_add(1, Relaxed);
    }
}

impl Partition {
    /// All partitions, never freed: produces point at them.
    pub(crate) fn leaked() -> &'static [Partition] {
        Box::leak((0..PARTITIONS).map(|_| Partition::default()).collect())
    }

    /// An event must follow.
    pub(crate) fn reach(&self, high_watermark: u64) {
        self.high_watermark.store(high_watermark, Release);
    }

    pub(crate) fn completed(&self) -> u64 {
        self.outcomes.completed.load(Relaxed)
    }

    /// How many are over, in whatever way.
    pub(crate) fn ended(&self) -> u64 {
        self.completed() + self.outcomes.given_up.load(Relaxed)
    }
}

/// Every [`Produces`], by name and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    OursCallback,
    BTreeMap,
    Deque,
    OursFuture,
    DashMapOneshot,
}

/// Something to do with produces of any type.
pub(crate) trait Visit {
    type Output;

    fn visit<P: Produces>(&self) -> Self::Output;
}

impl Contender {
    /// The forms: how measures are called that compare within one, and who has it.
    pub(crate) const FORMS: [(&str, &[Contender]); 2] = [
        ("callback", &[Contender::OursCallback, Contender::BTreeMap, Contender::Deque]),
        ("future", &[Contender::OursFuture, Contender::DashMapOneshot]),
    ];

    pub(crate) fn visit<V: Visit>(self, visitor: &V) -> V::Output {
        match self {
            Contender::OursCallback => visitor.visit::<ours::Callback>(),
            Contender::BTreeMap => visitor.visit::<locked::Locked<btree_map::ByOffset>>(),
            Contender::Deque => visitor.visit::<locked::Locked<deque::InOrder>>(),
            Contender::OursFuture => visitor.visit::<ours::Awaited>(),
            Contender::DashMapOneshot => visitor.visit::<dashmap_oneshot::Oneshots>(),
        }
    }
}

impl Named for Contender {
    fn name(self) -> &'static str {
        struct Name;
        impl Visit for Name {
            type Output = &'static str;

            fn visit<P: Produces>(&self) -> &'static str {
                P::NAME
            }
        }
        self.visit(&Name)
    }
}
