//! The timer one writes by hand: a queue in order of deadline under a mutex, and a thread that
//! waits for the first one. Its lock is never held while a timer fires.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use parking_lot::{Condvar, Mutex};
use timer_core::Clock;

use super::{core::Core, timer::Timer};
use crate::sink::Sink;

/// Timers fired at one go.
const BATCH: usize = 256;

/// Deadlines in order, each with eight bytes of its owner's.
pub(crate) trait Queue: Default + Send + 'static {
    const NAME: &'static str;

    /// A number makes deadlines distinct: never the same twice.
    fn insert(&mut self, due: u64, number: u64, payload: u64);
    fn remove(&mut self, due: u64, number: u64) -> bool;
    fn next_due(&mut self) -> Option<u64>;
    fn pop(&mut self) -> Option<u64>;
    fn len(&self) -> usize;
}

impl<Q: Queue> Core for Q {
    const NAME: &'static str = Q::NAME;

    fn insert(&mut self, deadline: u64, id: u64) {
        Queue::insert(self, deadline, id, id);
    }

    fn advance(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.pop().into_iter().for_each(&mut sink);
        }
    }
}

#[derive(Default)]
struct State<Q> {
    queue: Q,
    inserted: u64,
    stop: bool,
}

type Shared<Q> = Arc<(Mutex<State<Q>>, Condvar)>;

pub(crate) struct QueueThread<Q> {
    shared: Shared<Q>,
    thread: Option<JoinHandle<()>>,
    sink: &'static Sink,
}

fn fire_when_due<Q: Queue>((state, earlier): &(Mutex<State<Q>>, Condvar), sink: &Sink) {
    let mut due_now = Vec::with_capacity(BATCH);
    let mut state = state.lock();
    while !state.stop {
        let now = sink.clock().now_ns();
        let next = state.queue.next_due();
        if next.is_some_and(|due| due <= now) {
            while due_now.len() < BATCH && state.queue.next_due().is_some_and(|due| due <= now) {
                due_now.extend(state.queue.pop());
            }
            parking_lot::MutexGuard::unlocked(&mut state, || {
                due_now.drain(..).for_each(|due_ns| sink.fired(due_ns));
            });
        } else if let Some(due) = next {
            earlier.wait_for(&mut state, Duration::from_nanos(due - now));
        } else {
            earlier.wait(&mut state);
        }
    }
}

impl<Q: Queue> Timer for QueueThread<Q> {
    const NAME: &'static str = Q::NAME;
    type Handle = (u64, u64);
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let shared: Shared<Q> = Arc::default();
        let waits = shared.clone();
        let thread = std::thread::Builder::new().spawn(move || fire_when_due(&waits, sink))?;
        Ok(QueueThread { shared, thread: Some(thread), sink })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> (u64, u64) {
        let due = local.sink.clock().now_ns() + delay.as_nanos() as u64;
        let mut state = local.shared.0.lock();
        state.inserted += 1;
        let number = state.inserted;
        let earliest = state.queue.next_due().is_none_or(|first| due < first);
        Queue::insert(&mut state.queue, due, number, due_ns);
        drop(state);
        if earliest {
            local.shared.1.notify_one();
        }
        (due, number)
    }

    fn cancel(local: &mut Self::Local<'_>, (due, number): (u64, u64)) -> bool {
        local.shared.0.lock().queue.remove(due, number)
    }

    fn pending(&self) -> Option<usize> {
        Some(self.shared.0.lock().queue.len())
    }
}

impl<Q> Drop for QueueThread<Q> {
    fn drop(&mut self) {
        self.shared.0.lock().stop = true;
        self.shared.1.notify_one();
        self.thread.take().map(JoinHandle::join);
    }
}
