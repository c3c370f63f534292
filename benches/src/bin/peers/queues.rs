//! Queues of delayed values that one owner polls, behind [`DelayedValues`].

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use timer_core::{DelayQueue, SystemTimer, TaskId};
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::{DelayQueue as TokioQueue, delay_queue::Key};

use crate::results::OURS;

/// Values that become available after a delay each.
pub(crate) trait DelayedValues: Sized {
    /// The name in the output.
    const NAME: &'static str;
    /// Names a value in the queue.
    type Key;

    fn start() -> anyhow::Result<Self>;

    fn insert(&mut self, value: u64, delay: Duration) -> Self::Key;

    fn remove(&mut self, key: Self::Key) -> Option<u64>;

    /// Hands out values until the queue is empty, waiting for those that are not due yet.
    fn expire_all(&mut self, sink: impl FnMut(u64));

    /// Polls once, as an owner does that then waits for something else.
    fn poll_once(&mut self) -> Option<u64>;
}

/// Ours, on a timer with a thread.
pub(crate) struct Ours {
    runtime: Runtime,
    queue: DelayQueue<u64>,
}

impl DelayedValues for Ours {
    const NAME: &'static str = OURS;
    type Key = TaskId;

    fn start() -> anyhow::Result<Self> {
        let timer = SystemTimer::new()?;
        Ok(Ours {
            runtime: runtime()?,
            queue: DelayQueue::new(&timer),
        })
    }

    fn insert(&mut self, value: u64, delay: Duration) -> TaskId {
        let key = self.queue.insert(value, delay);
        key.expect("an open timer with a free slot")
    }

    fn remove(&mut self, key: TaskId) -> Option<u64> {
        self.queue.remove(&key)
    }

    fn expire_all(&mut self, mut sink: impl FnMut(u64)) {
        let queue = &mut self.queue;
        self.runtime.block_on(async {
            while let Some(expired) = queue.next().await {
                sink(expired.expect("an open timer").value);
            }
        });
    }

    fn poll_once(&mut self) -> Option<u64> {
        match self.queue.poll_expired(&mut context()) {
            Poll::Ready(expired) => Some(expired?.ok()?.value),
            Poll::Pending => None,
        }
    }
}

/// tokio-util's, on the runtime of the task that polls it.
pub(crate) struct TokioUtil {
    runtime: Runtime,
    queue: TokioQueue<u64>,
}

impl DelayedValues for TokioUtil {
    const NAME: &'static str = "delay-queue";
    type Key = Key;

    fn start() -> anyhow::Result<Self> {
        Ok(TokioUtil {
            runtime: runtime()?,
            queue: TokioQueue::new(),
        })
    }

    fn insert(&mut self, value: u64, delay: Duration) -> Key {
        // Its first insertion makes a sleep, which takes a runtime.
        let _entered = self.runtime.enter();
        self.queue.insert(value, delay)
    }

    fn remove(&mut self, key: Key) -> Option<u64> {
        let _entered = self.runtime.enter();
        Some(self.queue.try_remove(&key)?.into_inner())
    }

    fn expire_all(&mut self, mut sink: impl FnMut(u64)) {
        let queue = &mut self.queue;
        self.runtime.block_on(async {
            // The queue's own `Stream::next` polls in the same way.
            while let Some(expired) = std::future::poll_fn(|task| queue.poll_expired(task)).await {
                sink(expired.into_inner());
            }
        });
    }

    fn poll_once(&mut self) -> Option<u64> {
        let _entered = self.runtime.enter();
        match self.queue.poll_expired(&mut context()) {
            Poll::Ready(expired) => Some(expired?.into_inner()),
            Poll::Pending => None,
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
