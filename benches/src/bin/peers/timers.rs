//! The timers that are compared, each used as its own documentation advises, behind [`Timer`]; and
//! the data structures among them that can be turned without a clock, behind [`Core`].
//!
//! A peer joins the run by its type in [`timers`].

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
use timer_core::{Clock, SystemTimer, Timer as _, TimerHandle, TimingWheel, WheelSize};
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Sleep, sleep},
};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use crate::{
    results::OURS,
    sink::{Sink, TellsSink},
};

/// A timer that any thread may use.
///
/// `schedule` is what a timeout costs that will be cancelled; `schedule_firing` also tells the sink
/// when the timer fires, with the moment it was due. Both return what `cancel` needs.
pub(crate) trait Timer: Sized + Send + Sync + 'static {
    /// The name in the output.
    const NAME: &'static str;
    /// Names a pending timer, or is it.
    type Handle: Send + 'static;
    /// What a thread holds while it uses the timer.
    type Local<'a>;

    fn start(sink: &'static Sink) -> anyhow::Result<Self>;

    fn local(&self) -> Self::Local<'_>;

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> Self::Handle {
        Self::schedule_firing(local, delay, 0)
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle;

    /// True when the timer was pending, as far as the peer can tell.
    fn cancel(local: &mut Self::Local<'_>, handle: Self::Handle) -> bool;

    /// One timeout that did not come to pass.
    fn schedule_cancel(local: &mut Self::Local<'_>, delay: Duration) -> bool {
        let handle = Self::schedule(local, delay);
        Self::cancel(local, black_box(handle))
    }

    /// Puts a new timer in the place of a pending one.
    fn replace(local: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let old = std::mem::replace(place, Self::schedule(local, delay));
        Self::cancel(local, old)
    }

    /// The number of pending timers, where the peer can tell.
    fn pending(&self) -> Option<usize>;
}

/// Ordered timers without clock, lock or thread: time is told in ticks.
pub(crate) trait Core: Default {
    const NAME: &'static str;

    fn insert(&mut self, deadline: u64, id: u64);

    /// Hands over every timer due at `now`.
    fn advance(&mut self, now: u64, sink: impl FnMut(u64));
}

/// Ours: `SystemTimer` with a task that holds nothing, so that the timer alone is measured.
pub(crate) struct Ours {
    timer: SystemTimer,
    sink: &'static Sink,
}

impl Timer for Ours {
    const NAME: &'static str = OURS;
    type Handle = TimerHandle;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(Ours {
            timer: SystemTimer::builder().clock(sink.clock()).build()?,
            sink,
        })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> TimerHandle {
        local
            .timer
            .schedule(delay, || ())
            .expect("an open timer with a free slot")
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> TimerHandle {
        let sink = local.sink;
        let task = move || sink.fired(due_ns);
        local
            .timer
            .schedule(delay, task)
            .expect("an open timer with a free slot")
    }

    fn cancel(local: &mut Self::Local<'_>, handle: TimerHandle) -> bool {
        local.timer.cancel(handle)
    }

    fn pending(&self) -> Option<usize> {
        Some(self.timer.len())
    }
}

pub(crate) struct OursWheel(TimingWheel<u64>);

impl Default for OursWheel {
    fn default() -> Self {
        OursWheel(TimingWheel::new(WheelSize::default(), 0))
    }
}

impl Core for OursWheel {
    const NAME: &'static str = OURS;

    fn insert(&mut self, deadline: u64, id: u64) {
        self.0.insert(deadline, id).expect("a free slot");
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        self.0.advance(now, usize::MAX, |task| sink(task.take()));
    }
}

/// tokio's `sleep` on a multi-thread runtime: a future that registers when it is first polled and
/// is cancelled by dropping it. It is polled by the measured thread inside the runtime's context;
/// where it fires, its waker tells (no task is run: kind to tokio).
pub(crate) struct TokioSleep {
    runtime: Runtime,
    sink: &'static Sink,
}

/// Polls a sleep for the first time, which registers it; one that is over already fires here.
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
        registered(delay, &TellsSink::waker(local.1, due_ns))
    }

    fn cancel(_: &mut Self::Local<'_>, handle: Self::Handle) -> bool {
        !handle.is_elapsed()
    }

    /// On the stack, as in `select!` or `timeout`.
    fn schedule_cancel(_: &mut Self::Local<'_>, delay: Duration) -> bool {
        let mut handle = pin!(sleep(delay));
        register(handle.as_mut(), Waker::noop());
        !handle.is_elapsed()
    }

    /// In the same box.
    fn replace(_: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let pending = !place.is_elapsed();
        place.set(sleep(delay));
        register(place.as_mut(), Waker::noop());
        pending
    }

    fn pending(&self) -> Option<usize> {
        None
    }
}

/// tokio-util's `DelayQueue`: insert and remove want `&mut`, so it stands under a mutex; a task of
/// a multi-thread runtime polls what has expired out of it.
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
                // An empty queue keeps the waker, and wakes it when something is inserted.
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

/// Keyed by (deadline, number): ordered, and a cancel removes at once.
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

impl Core for DeadlineMap {
    const NAME: &'static str = "btree-map";

    fn insert(&mut self, deadline: u64, id: u64) {
        Queue::insert(self, deadline, id, id);
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.pop().into_iter().for_each(&mut sink);
        }
    }
}

/// The timer one writes by hand: `std`'s `BTreeMap` under a mutex, and a thread that waits for the
/// first deadline. Its lock is never held while a timer fires.
pub(crate) struct QueueThread {
    delays: Delays<DeadlineMap>,
    sink: &'static Sink,
}

impl Timer for QueueThread {
    const NAME: &'static str = "btree-map";
    type Handle = (u64, u64);
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let fire = |due: Drain<'_, u64>| due.for_each(|due_ns| sink.fired(due_ns));
        Ok(QueueThread {
            delays: Delays::start(sink.clock(), fire)?,
            sink,
        })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> (u64, u64) {
        let due = local.sink.clock().now_ns() + delay.as_nanos() as u64;
        (due, local.delays.add(due, due_ns))
    }

    fn cancel(local: &mut Self::Local<'_>, key: (u64, u64)) -> bool {
        local.delays.with(|map| map.0.remove(&key).is_some())
    }

    fn pending(&self) -> Option<usize> {
        Some(self.delays.with(|map| map.0.len()))
    }
}

/// Pending timers need not fire.
impl Drop for QueueThread {
    fn drop(&mut self) {
        self.delays.with(|map| map.0.clear());
    }
}

/// The contenders of a row, with the row's function.
macro_rules! timers {
    ($measure:ident) => {{
        use $crate::timers::*;
        $crate::contender::contenders!($measure, Timer: Ours, TokioSleep, QueueTask, QueueThread)
    }};
}
pub(crate) use timers;
