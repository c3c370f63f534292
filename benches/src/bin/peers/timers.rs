//! Timers, each used as its own documentation advises, behind [`Timer`].
//!
//! To add a peer, add its type to [`timers`].

use std::{
    collections::BTreeMap,
    future::poll_fn,
    hint::black_box,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
    vec::Drain,
};

use parking_lot::Mutex;
use purgatory_benches::delays::{Delays, Queue};
use timer_core::{Clock, SystemTimer, TimerHandle};
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Sleep, sleep},
};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use crate::{
    results::OURS,
    sink::{Sink, SinkWaker},
};

/// A timer that any thread may use.
///
/// `schedule` starts a timeout that will be cancelled. A timer of `schedule_firing` also records in
/// the sink that it has fired, with its deadline. Both return the argument of `cancel`.
pub(crate) trait Timer: Sized + Send + Sync + 'static {
    /// The name in the output.
    const NAME: &'static str = OURS;
    /// Names a pending timer, or is the timer itself.
    type Handle: Send + 'static;
    /// A thread's access to the timer.
    type Local<'a>;

    fn start(sink: &'static Sink) -> anyhow::Result<Self>;

    fn local(&self) -> Self::Local<'_>;

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        Self::schedule_firing(local, delay, 0)
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle;

    /// Cancels a timer; true if it was pending, as far as the peer can tell.
    fn cancel(local: &mut Self::Local<'_>, handle: Self::Handle) -> bool;

    /// Starts a timeout and cancels it.
    fn schedule_cancel(local: &mut Self::Local<'_>, delay: Duration) -> bool {
        let handle = Self::schedule(local, delay);
        Self::cancel(local, black_box(handle))
    }

    /// Replaces a pending timer with a new one.
    fn replace(local: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let old = std::mem::replace(place, Self::schedule(local, delay));
        Self::cancel(local, old)
    }

    /// Returns the number of pending timers, if the peer can tell.
    fn pending(&self) -> Option<usize> {
        None
    }
}

/// Our `SystemTimer`, with an empty task, so that the timer alone is measured.
pub(crate) struct Ours {
    timer: SystemTimer,
    sink: &'static Sink,
}

impl Ours {
    #[inline]
    fn begin(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> TimerHandle {
        let begun = self.timer.schedule(delay, task);
        begun.expect("an open timer with a free slot")
    }
}

impl Timer for Ours {
    type Handle = TimerHandle;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(Ours {
            timer: SystemTimer::builder().clock(sink.clock).build()?,
            sink,
        })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> TimerHandle {
        local.begin(delay, || ())
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> TimerHandle {
        let sink = local.sink;
        local.begin(delay, move || sink.fired(due_ns))
    }

    fn cancel(local: &mut Self::Local<'_>, handle: TimerHandle) -> bool {
        local.timer.cancel(handle)
    }

    fn pending(&self) -> Option<usize> {
        Some(self.timer.len())
    }
}

/// tokio's `sleep` on a multi-thread runtime: a future that registers when it is first polled and
/// is cancelled by dropping it. The measured thread polls it inside the runtime's context. Its
/// waker records that it fires; no task runs, which favours tokio.
pub(crate) struct TokioSleep {
    runtime: Runtime,
    sink: &'static Sink,
}

/// Polls a sleep for the first time, which registers it. A sleep whose time is over fires here.
fn register(sleep: Pin<&mut Sleep>, waker: &Waker) {
    if sleep.poll(&mut Context::from_waker(waker)).is_ready() {
        waker.wake_by_ref();
    }
}

fn registered(delay: Duration, waker: &Waker) -> Pin<Box<Sleep>> {
    let mut handle = Box::pin(sleep(delay));
    register(handle.as_mut(), waker);
    handle
}

impl Timer for TokioSleep {
    const NAME: &'static str = "tokio-sleep";
    type Handle = Pin<Box<Sleep>>;
    type Local<'a> = (EnterGuard<'a>, &'static Sink);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(TokioSleep {
            runtime: Builder::new_multi_thread().enable_time().build()?,
            sink,
        })
    }

    fn local(&self) -> Self::Local<'_> {
        (self.runtime.enter(), self.sink)
    }

    fn schedule(_: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        registered(delay, Waker::noop())
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle {
        registered(delay, &SinkWaker::waker(local.1, due_ns))
    }

    fn cancel(_: &mut Self::Local<'_>, handle: Self::Handle) -> bool {
        !handle.is_elapsed()
    }

    /// Keeps the sleep on the stack, as in `select!` or `timeout`.
    fn schedule_cancel(_: &mut Self::Local<'_>, delay: Duration) -> bool {
        // Dropping it at the end of the function cancels it.
        let mut handle = pin!(sleep(delay));
        register(handle.as_mut(), Waker::noop());
        !handle.is_elapsed()
    }

    /// Reuses the box of the old sleep.
    fn replace(_: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let pending = !place.is_elapsed();
        place.set(sleep(delay));
        register(place.as_mut(), Waker::noop());
        pending
    }
}

/// tokio-util's `DelayQueue`. Insert and remove take `&mut`, so it is behind a mutex; a task of a
/// multi-thread runtime polls expired items out of it.
pub(crate) struct QueueTask {
    runtime: Runtime,
    queue: Arc<Mutex<DelayQueue<u64>>>,
}

impl Timer for QueueTask {
    const NAME: &'static str = "delay-queue";
    type Handle = Key;
    type Local<'a> = (EnterGuard<'a>, &'a Mutex<DelayQueue<u64>>);

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().enable_time().build()?;
        let queue = Arc::new(Mutex::new(DelayQueue::new()));
        let polled = queue.clone();
        runtime.spawn(async move {
            loop {
                // The lock is released while the task waits. An empty queue keeps the waker, and
                // wakes it on the next insertion.
                let next = poll_fn(|context| match polled.lock().poll_expired(context) {
                    Poll::Ready(Some(expired)) => Poll::Ready(expired.into_inner()),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                });
                sink.fired(next.await);
            }
        });
        Ok(QueueTask { runtime, queue })
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

/// A map by deadline and number: ordered, and a cancel removes at once.
#[derive(Default)]
pub(crate) struct DeadlineMap(BTreeMap<(u64, u64), u64>);

impl Queue for DeadlineMap {
    type Item = u64;

    fn insert(&mut self, due: u64, number: u64, payload: u64) {
        self.0.insert((due, number), payload);
    }

    fn next_due(&mut self) -> Option<u64> {
        self.0.first_key_value().map(|((due, _), _)| *due)
    }

    fn pop(&mut self) -> Option<u64> {
        self.0.pop_first().map(|(_, payload)| payload)
    }
}

/// A hand-written timer: `std`'s `BTreeMap` behind a mutex, and a thread that waits for the
/// earliest deadline. Timers fire without the lock.
pub(crate) struct QueueThread {
    delays: Delays<DeadlineMap>,
    sink: &'static Sink,
}

impl Timer for QueueThread {
    const NAME: &'static str = "btree-map";
    type Handle = (u64, u64);
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        // The lock is not held here.
        let fire = |due: Drain<'_, u64>| {
            for due_ns in due {
                sink.fired(due_ns);
            }
        };
        Ok(QueueThread {
            delays: Delays::start(sink.clock, fire)?,
            sink,
        })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> (u64, u64) {
        let due = local.sink.clock.now_ns() + delay.as_nanos() as u64;
        (due, local.delays.add(due, due_ns))
    }

    fn cancel(local: &mut Self::Local<'_>, key: (u64, u64)) -> bool {
        local.delays.with(|map| map.0.remove(&key).is_some())
    }

    fn pending(&self) -> Option<usize> {
        Some(self.delays.with(|map| map.0.len()))
    }
}

/// Discards pending timers, which need not fire.
impl Drop for QueueThread {
    fn drop(&mut self) {
        self.delays.with(|map| map.0.clear());
    }
}

/// Lists the contenders of a row, with the row's function.
macro_rules! timers {
    ($measure:ident) => {{
        use $crate::timers::*;
        $crate::contender::contenders!($measure, Timer: Ours, TokioSleep, QueueTask, QueueThread)
    }};
}
pub(crate) use timers;
