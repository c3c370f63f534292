//! The callback written by hand: for each partition a mutex over what waits and the high watermark,
//! and one thread that looks for time-outs every 10 ms. Nobody is told under a lock. What waits is
//! in a `BTreeMap` or in a `VecDeque`.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    task::Poll,
    thread::{Builder, JoinHandle},
    time::Duration,
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use smallvec::SmallVec;
use timer_core::{Clock, SystemClock};

use super::produce::{PARTITIONS, Produce, Produces};
use crate::{contender::Peer, request::Wait};

const SWEEP_EVERY: Duration = Duration::from_millis(10);

/// What is over, to be told once the lock is free.
type Batch = SmallVec<[Produce; 8]>;

/// The produces that wait for one partition.
pub(crate) trait Queue: Default + Send + 'static {
    const NAME: &'static str;

    fn insert(&mut self, produce: Produce, deadline_ns: u64);
    /// Takes those whose offset is reached.
    fn take_up_to(&mut self, high_watermark: u64, taken: &mut Batch);
    /// Takes those whose deadline has come.
    fn take_due(&mut self, now_ns: u64, taken: &mut Batch);
    fn len(&self) -> usize;
}

#[derive(Default)]
struct Waiting<Q> {
    queue: Q,
    high_watermark: u64,
}

type Partitions<Q> = [CachePadded<Mutex<Waiting<Q>>>];

pub(crate) struct Locked<Q> {
    partitions: Arc<Partitions<Q>>,
    clock: SystemClock,
    /// Ends the sweeper by being dropped.
    stop: Option<mpsc::Sender<()>>,
    sweeper: Option<JoinHandle<()>>,
}

impl<Q> Drop for Locked<Q> {
    fn drop(&mut self) {
        self.stop.take();
        self.sweeper.take().map(JoinHandle::join);
    }
}

fn sweep<Q: Queue>(partitions: &Partitions<Q>, now_ns: u64) {
    for partition in partitions {
        let mut due = Batch::new();
        partition.lock().queue.take_due(now_ns, &mut due);
        due.into_iter().for_each(|produce| produce.over(false));
    }
}

impl<Q: Queue> Peer for Locked<Q> {
    const NAME: &'static str = Q::NAME;

    fn start() -> anyhow::Result<Self> {
        let clock = SystemClock::new();
        let partitions: Arc<Partitions<Q>> =
            (0..PARTITIONS).map(|_| CachePadded::default()).collect();
        let (stop, stopped) = mpsc::channel();
        let swept = partitions.clone();
        let sweeper = Builder::new().spawn(move || {
            while stopped.recv_timeout(SWEEP_EVERY) == Err(RecvTimeoutError::Timeout) {
                sweep(&swept, clock.now_ns());
            }
        })?;
        Ok(Locked { partitions, clock, stop: Some(stop), sweeper: Some(sweeper) })
    }

    fn left(&self) -> usize {
        self.partitions.iter().map(|partition| partition.lock().queue.len()).sum()
    }
}

impl<Q: Queue> Produces for Locked<Q> {
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let deadline_ns = self.clock.now_ns() + timeout.as_nanos() as u64;
        let mut waiting = self.partitions[partition].lock();
        if produce.offset > waiting.high_watermark {
            waiting.queue.insert(produce, deadline_ns);
        } else {
            drop(waiting);
            produce.over(true);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        let mut reached = Batch::new();
        let mut waiting = self.partitions[partition].lock();
        waiting.high_watermark = waiting.high_watermark.max(high_watermark);
        waiting.queue.take_up_to(high_watermark, &mut reached);
        drop(waiting);
        reached.into_iter().for_each(|produce| produce.over(true));
    }
}

/// By offset: offsets may come in any order, and time-outs differ. For a time-out the whole map is
/// looked through, but only once the earliest may be due.
#[derive(Default)]
pub(crate) struct ByOffset {
    /// A number tells those apart that wait for the same offset.
    waiting: BTreeMap<(u64, u64), (Produce, u64)>,
    number: u64,
    /// No deadline is earlier.
    earliest_ns: Option<u64>,
}

impl Queue for ByOffset {
    const NAME: &'static str = "btree-map";

    fn insert(&mut self, produce: Produce, deadline_ns: u64) {
        self.number += 1;
        self.waiting.insert((produce.offset, self.number), (produce, deadline_ns));
        self.earliest_ns = Some(self.earliest_ns.map_or(deadline_ns, |ns| ns.min(deadline_ns)));
    }

    fn take_up_to(&mut self, high_watermark: u64, taken: &mut Batch) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= high_watermark
        {
            taken.push(first.remove().0);
        }
    }

    fn take_due(&mut self, now_ns: u64, taken: &mut Batch) {
        if self.earliest_ns.is_some_and(|earliest_ns| earliest_ns <= now_ns) {
            let due = self.waiting.extract_if(.., |_, (_, deadline_ns)| *deadline_ns <= now_ns);
            taken.extend(due.map(|(_, (produce, _))| produce));
            self.earliest_ns = self.waiting.values().map(|(_, deadline_ns)| *deadline_ns).min();
        }
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// In the order of arrival: right as long as offsets rise and time-outs are equal, so that only the
/// front can be reached or due.
#[derive(Default)]
pub(crate) struct InOrder(VecDeque<(Produce, u64)>);

impl InOrder {
    fn take_while(&mut self, taken: &mut Batch, over: impl Fn(&(Produce, u64)) -> bool) {
        while let Some((produce, _)) = self.0.pop_front_if(|front| over(front)) {
            taken.push(produce);
        }
    }
}

impl Queue for InOrder {
    const NAME: &'static str = "deque";

    fn insert(&mut self, produce: Produce, deadline_ns: u64) {
        self.0.push_back((produce, deadline_ns));
    }

    fn take_up_to(&mut self, high_watermark: u64, taken: &mut Batch) {
        self.take_while(taken, |(produce, _)| produce.offset <= high_watermark);
    }

    fn take_due(&mut self, now_ns: u64, taken: &mut Batch) {
        self.take_while(taken, |(_, deadline_ns)| *deadline_ns <= now_ns);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
