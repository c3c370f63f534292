//! `queue-insert-remove`: the cost of a value that is inserted into a queue of delayed values and
//! removed before it is due. The queue has one owner, which polls it after every 16 values, and
//! 100 000 pending values that are due in one to two hours.
//!
//! `queue-poll-idle`: the same, but the owner polls while each value waits, and finds nothing due.
//! A server does that at each request if it polls its queue beside its socket.

use std::{
    hint::black_box,
    task::{Context, Poll, Waker},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use timer_core::{Clock, DelayQueue, SystemClock, SystemTimer, TaskId};
use tokio::runtime::Builder;
use tokio_util::time::{DelayQueue as TokioQueue, delay_queue::Key};

use super::{row::Run, timers::far};
use crate::{contender::contenders, results::OURS};

/// The timeout of a value that is removed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Values that become available after a delay each, in a queue that one owner polls.
trait DelayedValues: Sized {
    /// The name in the output.
    const NAME: &'static str = OURS;
    /// Names a value in the queue.
    type Key;

    fn start() -> anyhow::Result<Self>;

    fn insert(&mut self, value: u64, delay: Duration) -> Self::Key;

    fn remove(&mut self, key: Self::Key) -> Option<u64>;

    /// Polls once, like an owner that then waits for something else.
    fn poll_once(&mut self) -> Option<u64>;
}

/// Our queue, on a timer with a thread.
struct Ours(DelayQueue<u64>);

impl DelayedValues for Ours {
    type Key = TaskId;

    fn start() -> anyhow::Result<Self> {
        let timer = SystemTimer::new()?;
        Ok(Ours(DelayQueue::new(&timer)))
    }

    fn insert(&mut self, value: u64, delay: Duration) -> TaskId {
        let key = self.0.insert(value, delay);
        key.expect("an open timer with a free slot")
    }

    fn remove(&mut self, key: TaskId) -> Option<u64> {
        self.0.remove(&key)
    }

    fn poll_once(&mut self) -> Option<u64> {
        match self.0.poll_expired(&mut context()) {
            Poll::Ready(expired) => Some(expired?.ok()?.value),
            Poll::Pending => None,
        }
    }
}

/// The queue of tokio-util, on the runtime of the task that polls it.
struct TokioUtil(TokioQueue<u64>);

impl DelayedValues for TokioUtil {
    const NAME: &'static str = "delay-queue";
    type Key = Key;

    fn start() -> anyhow::Result<Self> {
        Ok(TokioUtil(TokioQueue::new()))
    }

    fn insert(&mut self, value: u64, delay: Duration) -> Key {
        self.0.insert(value, delay)
    }

    fn remove(&mut self, key: Key) -> Option<u64> {
        Some(self.0.try_remove(&key)?.into_inner())
    }

    fn poll_once(&mut self) -> Option<u64> {
        match self.0.poll_expired(&mut context()) {
            Poll::Ready(expired) => Some(expired?.into_inner()),
            Poll::Pending => None,
        }
    }
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// The work on one queue.
#[derive(Clone, Copy)]
struct Work {
    pending: usize,
    operations: usize,
    /// Whether the owner polls at each operation.
    polls_each: bool,
}

/// Measures nanoseconds per value that is inserted and removed.
fn insert_remove<Q: DelayedValues>(of: Work) -> anyhow::Result<f64> {
    // The owner of tokio-util's queue is a task, always inside a runtime.
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let _entered = runtime.enter();
    let mut queue = Q::start()?;
    let mut random = Rng::with_seed(1);
    for value in 0..of.pending as u64 {
        queue.insert(value, far(&mut random));
    }

    // The first half warms up.
    let clock = SystemClock::new();
    let mut begin_ns = 0;
    let mut sum = 0;
    for operation in 0..2 * of.operations {
        if operation == of.operations {
            begin_ns = clock.now_ns();
        }
        if operation % 16 == 0 {
            ensure!(queue.poll_once().is_none(), "{}: early", Q::NAME);
        }
        let key = queue.insert(operation as u64, TIMEOUT);
        if of.polls_each {
            ensure!(queue.poll_once().is_none(), "{}: early", Q::NAME);
        }
        sum += queue.remove(black_box(key)).context("a value is gone")?;
    }
    let spent_ns = clock.now_ns() - begin_ns;

    // The sum shows that each key removed its own value.
    let operations = 2 * of.operations as u64;
    let right = sum == operations * (operations - 1) / 2;
    ensure!(right, "{}: other values were removed", Q::NAME);
    Ok(spent_ns as f64 / of.operations as f64)
}

pub(super) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(insert_remove, DelayedValues: Ours, TokioUtil);
    let of = Work {
        pending: run.sizes.hundred_k,
        operations: run.sizes.operations,
        polls_each: id == "queue-poll-idle",
    };
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns", &contenders, of)?;
    }
    Ok(())
}
