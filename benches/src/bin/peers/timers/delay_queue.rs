//! tokio-util's `DelayQueue`: insert and remove want `&mut`, so it stands under a mutex; a task of
//! a multi-thread runtime polls what has expired out of it.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::timer::Timer;
use crate::sink::Sink;

pub(crate) struct Queue {
    runtime: Runtime,
    queue: Arc<Mutex<DelayQueue<u64>>>,
}

impl Timer for Queue {
    const NAME: &'static str = "delay-queue";
    type Handle = Key;
    type Local<'a> = (EnterGuard<'a>, &'a Mutex<DelayQueue<u64>>);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().enable_time().build()?;
        let queue = Arc::new(Mutex::new(DelayQueue::new()));
        let polled = queue.clone();
        runtime.spawn(async move {
            loop {
                // An empty queue keeps the waker, and wakes it when something is inserted.
                let next = poll_fn(|context| match polled.lock().poll_expired(context) {
                    Poll::Ready(Some(expired)) => Poll::Ready(expired.into_inner()),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                });
                sink.fired(next.await);
            }
        });
        Ok(Queue { runtime, queue })
    }

    fn local(&self) -> Self::Local<'_> {
        (self.runtime.enter(), &self.queue)
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Key {
        local.1.lock().insert(due_ns, delay)
    }

    fn cancel(local: &mut Self::Local<'_>, handle: Key) -> bool {
        local.1.lock().try_remove(&handle).is_some()
    }

    fn pending(&self) -> Option<usize> {
        Some(self.queue.lock().len())
    }
}
