//! A delay queue of one heap, one lock and one thread: what completes the requests at their
//! latency, and what a purgatory over a heap expires them with. What is due is handed over
//! together.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
    vec::Drain,
};

use parking_lot::{Condvar, Mutex};
use timer_core::{Clock, SystemClock};

/// Items handed over under one lock hold.
const BATCH: usize = 256;

/// Hands items to a function once their time has come, those that are due together.
pub(crate) struct Delays<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    earlier: Condvar,
    clock: SystemClock,
}

struct Queue<T> {
    heap: BinaryHeap<Reverse<Due<T>>>,
    added: u64,
    closed: bool,
}

struct Due<T> {
    at_ns: u64,
    order: u64,
    item: T,
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Due<T> {}

impl<T: Send + 'static> Delays<T> {
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(
        clock: SystemClock,
        mut act: impl FnMut(Drain<'_, T>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let queue = Queue { heap: BinaryHeap::new(), added: 0, closed: false };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), earlier: Condvar::new(), clock });
        let runs = shared.clone();
        let thread = Builder::new().name("delays".into()).spawn(move || {
            let mut batch = Vec::with_capacity(BATCH);
            while runs.next(&mut batch) {
                act(batch.drain(..));
            }
        })?;
        Ok(Delays { shared, thread: Some(thread) })
    }

    pub(crate) fn add(&self, at_ns: u64, item: T) {
        let mut queue = self.shared.queue.lock();
        queue.added += 1;
        let order = queue.added;
        let first = queue.heap.peek().is_none_or(|first| at_ns < first.0.at_ns);
        queue.heap.push(Reverse(Due { at_ns, order, item }));
        drop(queue);
        if first {
            self.shared.earlier.notify_one();
        }
    }

    /// Keeps the items that `keep` is true for. O(items), under the lock.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.shared.queue.lock().heap.retain(|due| keep(&due.0.item));
    }
}

impl<T> Shared<T> {
    /// Waits for what is due next; false at the end.
    fn next(&self, batch: &mut Vec<T>) -> bool {
        let mut queue = self.queue.lock();
        loop {
            let now_ns = self.clock.now_ns();
            while batch.len() < BATCH
                && queue.heap.peek().is_some_and(|first| first.0.at_ns <= now_ns)
            {
                batch.extend(queue.heap.pop().map(|due| due.0.item));
            }
            if !batch.is_empty() {
                return true;
            }
            match queue.heap.peek() {
                Some(first) => {
                    let wait = Duration::from_nanos(first.0.at_ns - now_ns);
                    self.earlier.wait_for(&mut queue, wait);
                }
                None if queue.closed => return false,
                None => self.earlier.wait(&mut queue),
            }
        }
    }
}

impl<T> Drop for Delays<T> {
    /// Waits until everything was handed over.
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.earlier.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn items_come_in_the_order_of_their_times_and_all_of_them() {
        let clock = SystemClock::new();
        let (send, seen) = mpsc::channel();
        let delays = Delays::start(clock, move |items| {
            items.for_each(|item| send.send(item).unwrap());
        })
        .unwrap();
        let now_ns = clock.now_ns();
        for (after_ns, item) in [(3_000_000, 3), (1_000_000, 1), (2_000_000, 2), (1_000_000, 10)] {
            delays.add(now_ns + after_ns, item);
        }
        drop(delays);
        assert_eq!(seen.iter().collect::<Vec<_>>(), [1, 10, 2, 3]);
    }
}
