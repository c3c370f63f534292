//! Chains of endings, each of which brings the next about. None of them needs stack: what one end runs is
//! left to the outermost call.
#![cfg(not(loom))]

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    thread,
};

use crate::support::{MINUTE, NEVER, Park, assert_empty, by_hand};
use purgatory::{
    BoxedOperation, Lease, OperationId, Permits, Purgatory, WaitFuture, Watermarks, when,
};
use timer_core::ManualTimer;

/// The links of a chain.
const DEEP: usize = 100_000;

type Waits = Purgatory<usize>;

/// Runs a chain on a stack that has no room for a hundredth of it.
fn on_a_small_stack(chain: impl FnOnce() + Send + 'static) {
    let small = thread::Builder::new().stack_size(256 * 1024);
    small.spawn(chain).unwrap().join().unwrap();
}

/// The ids of a chain's operations, of which each ends the next.
type Ids = Arc<Mutex<Vec<OperationId>>>;

/// Completes the operation of this number, if there is one.
fn complete(waits: &Waits, ids: &Ids, number: usize) {
    let id = ids.lock().unwrap().get(number).copied();
    if let Some(id) = id {
        waits.complete(id);
    }
}

#[test]
fn conditions_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let (inside, all) = (waits.clone(), ids.clone());
            let mut checks = 0;
            let wait = waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 {
                    complete(&inside, &all, number + 1);
                }
                checks > 1
            });
            ids.lock().unwrap().push(wait.id().unwrap());
            futures.push(wait);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
        let all = futures.into_iter();
        assert!(all.map(WaitFuture::wait_blocking).all(|end| end == Ok(())));
    });
}

#[test]
fn conditions_that_signal_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let inside = waits.clone();
            let mut checks = 0;
            futures.push(waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 {
                    inside.check_and_complete(&(number + 1));
                }
                checks > 1
            }));
        }
        waits.check_and_complete(&0);
        assert_empty(&waits);
    });
}

#[test]
fn callbacks_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        for number in 0..DEEP {
            let (inside, all) = (waits.clone(), ids.clone());
            let then = move |_| complete(&inside, &all, number + 1);
            let id = waits.park(when(|| false, then), &[number], NEVER);
            ids.lock().unwrap().push(id);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
    });
}

/// Acts as it is woken.
struct Acts<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Acts<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll_by<T>(future: &mut WaitFuture<T>, act: impl Fn() + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(Acts(act)));
    let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

#[test]
fn wakers_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = waits.next_event(&[number], NEVER);
            ids.lock().unwrap().push(wait.id().unwrap());
            let (inside, all) = (waits.clone(), ids.clone());
            poll_by(&mut wait, move || complete(&inside, &all, number + 1));
            futures.push(wait);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
    });
}

/// Counts the results of futures that have all ended well.
fn count_ended<T>(futures: Vec<WaitFuture<T>>) -> usize {
    let results = futures.into_iter().map(WaitFuture::try_take);
    results.filter(|result| matches!(result, Ok(Ok(_)))).count()
}

/// Each task takes its guard as it is woken, and drops it: the next one in line has the permit.
fn guards_that_go_to_the_next<G: Send + 'static>(wait: impl Fn() -> WaitFuture<G>) {
    let first = wait().try_take().ok().unwrap().unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    for _ in 0..DEEP {
        let slot = Arc::new(Mutex::new(None::<WaitFuture<G>>));
        let (counts, inside) = (woken.clone(), slot.clone());
        let mut next = wait();
        poll_by(&mut next, move || {
            counts.fetch_add(1, SeqCst);
            let own = inside.lock().unwrap().take();
            drop(own.unwrap().try_take().ok().unwrap().unwrap());
        });
        *slot.lock().unwrap() = Some(next);
    }
    drop(first);
    assert_eq!(woken.load(SeqCst), DEEP);
}

#[test]
fn wakers_that_return_permits_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(1).build().unwrap();
        guards_that_go_to_the_next(|| permits.acquire(1, NEVER));
        assert_eq!(permits.taken(), 0);
    });
}

#[test]
fn wakers_that_return_leases_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(1).build().unwrap();
        guards_that_go_to_the_next(|| permits.lease(1, MINUTE, NEVER));
        assert_eq!(permits.taken(), 0);
    });
}

/// A task that waits for the loss of a lease drops the next lease, and so on.
#[test]
fn wakers_of_lost_leases_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(DEEP as u64).build().unwrap();
        let mut next = None::<Lease>;
        let mut losses = Vec::new();
        for _ in 0..DEEP {
            let lease = permits.lease(1, MINUTE, NEVER).try_take().ok().unwrap();
            let lease = lease.unwrap();
            let mut lost = Box::pin(lease.lost());
            let slot = Mutex::new(next.replace(lease));
            let act = move || drop(slot.lock().unwrap().take());
            let waker = Waker::from(Arc::new(Acts(act)));
            let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            losses.push(lost);
        }
        drop(next);
        assert_eq!(permits.taken(), 0);
    });
}

#[test]
fn wakers_that_advance_the_next_value_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Watermarks::<usize>::builder("deep").timer(&ManualTimer::new());
        let values = builder.build().unwrap();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = values.wait_for(&number, 1, NEVER);
            let inside = values.clone();
            poll_by(&mut wait, move || _ = inside.advance(&(number + 1), 1));
            futures.push(wait);
        }
        values.advance(&0, 1).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

/// As a task that is woken drops the next one's future, and so on.
#[test]
fn wakers_that_drop_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let woken = Arc::new(AtomicUsize::new(0));
        let mut next = None::<BoxedOperation>;
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = waits.next_event(&[number], NEVER);
            let (counts, slot) = (woken.clone(), Mutex::new(next.take()));
            poll_by(&mut wait, move || {
                counts.fetch_add(1, SeqCst);
                drop(slot.lock().unwrap().take()); // unanswered: its task is woken, too
            });
            next = waits.take(wait.id().unwrap()).reached();
            futures.push(wait);
        }
        drop(next);
        assert_eq!(woken.load(SeqCst), DEEP);
        assert_empty(&waits);
    });
}

/// Counts as it is dropped; what it holds follows.
struct Holds {
    drops: Arc<AtomicUsize>,
    #[allow(dead_code, reason = "it is dropped")]
    next: Option<Box<WaitFuture<Holds>>>,
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Each condition holds the next wait's future.
#[test]
fn conditions_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut next = None::<Box<WaitFuture<Holds>>>;
        for number in 0..DEEP {
            let drops = drops.clone();
            let holds = Holds { drops, next };
            let wait = waits.wait(&[number], NEVER, move || {
                let _ = &holds;
                None::<Holds>
            });
            next = Some(Box::new(wait));
        }
        drop(next);
        assert_eq!(drops.load(SeqCst), DEEP);
        assert_empty(&waits);
    });
}

/// Each value holds the next wait's future, which has its value by then.
#[test]
fn values_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut next = None::<Box<WaitFuture<Holds>>>;
        for number in 0..DEEP {
            let drops = drops.clone();
            let mut holds = Some(Holds { drops, next });
            let mut checks = 0;
            let wait = waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 { holds.take() } else { None }
            });
            next = Some(Box::new(wait));
            assert_eq!(waits.check_and_complete(&number), 1);
        }
        drop(next);
        assert_eq!(drops.load(SeqCst), DEEP);
    });
}
