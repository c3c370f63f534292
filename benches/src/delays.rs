//! A delay queue with one lock and one thread. The thread hands due items over in batches, without
//! holding the lock.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
    vec::Drain,
};

use parking_lot::{Condvar, Mutex};
use timer_core::{Clock, SystemClock};

/// The maximum number of items in a batch.
const BATCH: usize = 256;

/// Items in order of their deadlines.
pub trait Queue: Default + Send + 'static {
    /// An item to hand over.
    type Item: Send + 'static;

    /// Adds an item. `number` is unique, so that equal deadlines can be told apart.
    fn insert(&mut self, due_ns: u64, number: u64, item: Self::Item);

    /// Returns the earliest deadline.
    fn next_due(&mut self) -> Option<u64>;

    /// Removes the item with the earliest deadline.
    fn pop(&mut self) -> Option<Self::Item>;
}

/// Hands items to a function once they are due, in batches. Dropping it blocks until all have been
/// handed over.
pub struct Delays<Q: Queue> {
    shared: Arc<Shared<Q>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<Q> {
    state: Mutex<State<Q>>,
    earlier: Condvar,
    clock: SystemClock,
}

#[derive(Default)]
struct State<Q> {
    queue: Q,
    added: u64,
    closed: bool,
}

impl<Q: Queue> Delays<Q> {
    /// Starts the thread; it calls `act` with each batch.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub fn start(
        clock: SystemClock,
        mut act: impl FnMut(Drain<'_, Q::Item>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            earlier: Condvar::new(),
            clock,
        });
        // The thread calls `act` without the lock. It ends once the queue is closed and empty.
        let runs = shared.clone();
        let thread = Builder::new().name("delays".into()).spawn(move || {
            let mut batch = Vec::with_capacity(BATCH);
            while runs.next(&mut batch) {
                act(batch.drain(..));
            }
        })?;
        Ok(Delays {
            shared,
            thread: Some(thread),
        })
    }

    /// Adds an item and returns its number.
    pub fn add(&self, due_ns: u64, item: Q::Item) -> u64 {
        let mut state = self.shared.state.lock();
        state.added += 1;
        let number = state.added;
        // The thread sleeps until the earliest deadline: wake it only for an earlier one.
        let first = state.queue.next_due().is_none_or(|first| due_ns < first);
        state.queue.insert(due_ns, number, item);
        drop(state);
        if first {
            self.shared.earlier.notify_one();
        }
        number
    }

    /// Calls `act` with the queue, under its lock.
    pub fn with<R>(&self, act: impl FnOnce(&mut Q) -> R) -> R {
        act(&mut self.shared.state.lock().queue)
    }
}

impl<Q: Queue> Shared<Q> {
    /// Blocks until items are due and moves them to `batch`. Returns false once closed and empty.
    fn next(&self, batch: &mut Vec<Q::Item>) -> bool {
        let mut state = self.state.lock();
        loop {
            // Take the due items.
            let now_ns = self.clock.now_ns();
            let mut next = state.queue.next_due();
            while batch.len() < BATCH && next.is_some_and(|due_ns| due_ns <= now_ns) {
                batch.extend(state.queue.pop());
                next = state.queue.next_due();
            }
            // Hand them over, or sleep until the next deadline, an earlier one, or the end.
            match next {
                _ if !batch.is_empty() => return true,
                Some(due_ns) => {
                    self.earlier
                        .wait_for(&mut state, Duration::from_nanos(due_ns - now_ns));
                }
                None if state.closed => return false,
                None => self.earlier.wait(&mut state),
            }
        }
    }
}

impl<Q: Queue> Drop for Delays<Q> {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.earlier.notify_one();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A binary heap of items.
pub struct Heap<T>(BinaryHeap<Reverse<Due<T>>>);

struct Due<T> {
    at_ns: u64,
    number: u64,
    item: T,
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Due<T> {}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap(BinaryHeap::new())
    }
}

impl<T> Heap<T> {
    /// Keeps the items for which `keep` returns true. O(items).
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.0.retain(|due| keep(&due.0.item));
    }
}

impl<T: Send + 'static> Queue for Heap<T> {
    type Item = T;

    fn insert(&mut self, at_ns: u64, number: u64, item: T) {
        self.0.push(Reverse(Due {
            at_ns,
            number,
            item,
        }));
    }

    fn next_due(&mut self) -> Option<u64> {
        self.0.peek().map(|first| first.0.at_ns)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop().map(|due| due.0.item)
    }
}
