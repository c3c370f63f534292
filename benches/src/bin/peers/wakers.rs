//! The best waits under keys that we could write by hand: one lock over a map of wakers by key. A
//! task checks its condition, registers, and checks again; a signal takes the wakers of a key off
//! the map and wakes them all. A wait that ends, or is dropped, removes itself.
//!
//! Their limits: all threads share one lock, so two of them contend. A signal wakes every task of
//! its key, ready or not. With tokio's `timeout` each wait has a timer. With a sweep a wait ends up
//! to 100 ms late, and each sweep walks the whole map with the lock held. There is no bound, no
//! shutdown and no count.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use crate::{contender::Peer, request::Request, sweep, waits::Waits};

/// Wakers by key. The deadline `D` of a waker is an [`Instant`] for a sweep, or `()`.
pub(crate) struct Wakers<D>(Arc<Mutex<Map<D>>>);

struct Map<D> {
    /// Each list is in the order of its places' numbers.
    lists: HashMap<u64, List<D>, RandomState>,
    /// The number of the last place.
    number: u64,
}

/// Most keys have one waker at a time.
type List<D> = SmallVec<[Waiting<D>; 1]>;

struct Waiting<D> {
    number: u64,
    waker: Waker,
    deadline: D,
}

/// A task's place under each of its keys.
struct Place<'a, D, const K: usize> {
    map: &'a Mutex<Map<D>>,
    keys: [u64; K],
    deadline: D,
    /// The place's number; 0 before the task has registered.
    number: u64,
}

impl<D> Default for Wakers<D> {
    fn default() -> Self {
        Wakers(Arc::new(Mutex::new(Map {
            lists: HashMap::default(),
            number: 0,
        })))
    }
}

impl<D> Map<D> {
    /// Removes a place from the list of a key, unless a signal has taken the list.
    fn take(&mut self, key: u64, number: u64) -> Option<Waiting<D>> {
        let Entry::Occupied(mut list) = self.lists.entry(key) else {
            return None;
        };
        let places = list.get_mut();
        let at = places.binary_search_by_key(&number, |place| place.number);
        let taken = places.remove(at.ok()?);
        if places.is_empty() {
            list.remove();
        }
        Some(taken)
    }
}

impl<D> Wakers<D> {
    fn place<const K: usize>(&self, keys: [u64; K], deadline: D) -> Place<'_, D, K> {
        Place {
            map: &self.0,
            keys,
            deadline,
            number: 0,
        }
    }

    /// Wakes all tasks of a key.
    fn wake(&self, key: u64) {
        let woken = self.0.lock().lists.remove(&key);
        // Wake without the lock.
        for place in woken.into_iter().flatten() {
            place.waker.wake();
        }
    }
}

impl<D: Copy, const K: usize> Place<'_, D, K> {
    /// Ready when the request is; otherwise the next signal of one of its keys wakes the task.
    fn poll(&mut self, request: Request, context: &Context<'_>) -> Poll<()> {
        if request.is_ready() {
            return Poll::Ready(());
        }
        self.register(context.waker());
        // A signal between the check and the registration woke no task: check again.
        if request.is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Registers anew, under one lock hold.
    fn register(&mut self, waker: &Waker) {
        // A waker's drop may run other code, so it waits until the lock is released.
        let _replaced;
        let mut map = self.map.lock();
        if self.number > 0 {
            _replaced = self.keys.map(|key| map.take(key, self.number));
        }
        map.number += 1;
        self.number = map.number;
        for key in self.keys {
            map.lists.entry(key).or_default().push(Waiting {
                number: self.number,
                waker: waker.clone(),
                deadline: self.deadline,
            });
        }
    }
}

impl<D, const K: usize> Drop for Place<'_, D, K> {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        // A waker's drop may run other code, so it waits until the lock is released.
        let mut map = self.map.lock();
        let _removed = self.keys.map(|key| map.take(key, self.number));
        drop(map);
    }
}

impl Peer for Wakers<()> {
    const NAME: &'static str = "wakers-timeout";

    fn start() -> anyhow::Result<Self> {
        Ok(Wakers::default())
    }

    fn remaining(&self) -> usize {
        self.0.lock().lists.len()
    }
}

impl Waits for Wakers<()> {
    /// One check before it registers again and one after.
    const VAIN_CHECKS: u64 = 2;

    async fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) {
        let mut place = self.place(keys, ());
        let waits = poll_fn(|context| place.poll(request, context));
        request.end(timeout(limit, waits).await.is_ok());
    }

    fn signal(&self, key: u64) {
        self.wake(key);
    }
}

impl Peer for Wakers<Instant> {
    const NAME: &'static str = "wakers-sweep";

    fn start() -> anyhow::Result<Self> {
        let wakers = Wakers::default();
        sweep::start(&wakers.0, |map| wake_expired(map, Instant::now()));
        Ok(wakers)
    }

    fn remaining(&self) -> usize {
        self.0.lock().lists.len()
    }
}

impl Waits for Wakers<Instant> {
    /// One check before it registers again and one after.
    const VAIN_CHECKS: u64 = 2;

    async fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) {
        let mut place = self.place(keys, Instant::now() + limit);
        let completed = poll_fn(|context| {
            let is_first = place.number == 0;
            match place.poll(request, context) {
                Poll::Ready(()) => Poll::Ready(true),
                // Woken in vain, by a signal or by a sweep.
                Poll::Pending if !is_first && Instant::now() >= place.deadline => {
                    Poll::Ready(false)
                }
                Poll::Pending => Poll::Pending,
            }
        });
        request.end(completed.await);
    }

    fn signal(&self, key: u64) {
        self.wake(key);
    }
}

/// Wakes the tasks whose deadlines have passed. Each checks once more, and removes itself.
fn wake_expired(map: &Mutex<Map<Instant>>, now: Instant) {
    let mut expired = Vec::new();
    for place in map.lock().lists.values().flatten() {
        if place.deadline <= now {
            expired.push(place.waker.clone());
        }
    }
    // Wake without the lock.
    for waker in expired {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicU64, Ordering},
        task::Wake,
    };

    use super::*;

    /// A task that counts how often it was woken.
    #[derive(Default)]
    struct Task(AtomicU64);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_dropped_wait_leaves_the_others() {
        let wakers = Wakers::<()>::default();
        let tasks = [(); 3].map(|()| Arc::new(Task::default()));
        let mut places = Vec::new();
        for task in &tasks {
            let waker = task.clone().into();
            let mut place = wakers.place([7], ());
            let polled = place.poll(Request::new(), &Context::from_waker(&waker));
            assert!(polled.is_pending());
            places.push(place);
        }
        drop(places.remove(1));
        wakers.wake(7);
        assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [1, 0, 1]);
    }

    #[test]
    fn a_sweep_ends_what_is_not_ready_at_its_deadline() {
        let wakers = Wakers::<Instant>::default();
        let task = Arc::new(Task::default());
        let waker = task.clone().into();
        let mut context = Context::from_waker(&waker);
        let [ready, expired, waiting] = [(); 3].map(|()| Request::new());
        let mut ready_wait = pin!(wakers.park([1], Duration::ZERO, ready));
        let mut expired_wait = pin!(wakers.park([2], Duration::ZERO, expired));
        let mut waits_on = pin!(wakers.park([3], Duration::from_secs(3600), waiting));
        assert!(ready_wait.as_mut().poll(&mut context).is_pending());
        assert!(expired_wait.as_mut().poll(&mut context).is_pending());
        assert!(waits_on.as_mut().poll(&mut context).is_pending());

        // Two deadlines have passed. One of these requests is ready, so it completes.
        wake_expired(&wakers.0, Instant::now());
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
        ready.progress.reach(1);
        assert!(ready_wait.as_mut().poll(&mut context).is_ready());
        assert!(expired_wait.as_mut().poll(&mut context).is_ready());
        assert!(waits_on.as_mut().poll(&mut context).is_pending());
        assert_eq!((ready.progress.completed(), ready.progress.ended()), (1, 1));
        assert_eq!(
            (expired.progress.completed(), expired.progress.ended()),
            (0, 1)
        );
    }
}
