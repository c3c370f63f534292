//! Chains of a ten thousand callbacks, and of wakers that drop futures, each inside the one
//! before, on a thread with 13 bytes of stack for each.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use purgatory::{Permits, Purgatory, WaitFuture, Watermarks};
use timer_core::ManualTimer;

use crate::support::{MINUTE, NEVER};

const DEEP: usize = 10_000;

/// Runs a chain on a thread with a small stack; returns how many links it had.
fn on_small_stack(chain: impl FnOnce(Arc<AtomicUsize>) + Send + 'static) -> usize {
    let links = Arc::new(AtomicUsize::new(0));
    let counted = links.clone();
    let small = thread::Builder::new().stack_size(128 << 10);
    let thread = small.spawn(move || chain(counted)).unwrap();
    thread.join().unwrap();
    links.load(SeqCst)
}

/// Each callback of a value advances the next key.
#[test]
fn callbacks_of_values_that_advance() {
    let links = on_small_stack(|links| {
        let builder = Watermarks::<usize>::builder("deep").timer(&ManualTimer::new());
        let values = builder.build().unwrap();
        for key in 0..DEEP {
            let inside = values.clone();
            let counted = links.clone();
            let advances = move |_| {
                counted.fetch_add(1, SeqCst);
                inside.advance(&(key + 1), 1).unwrap();
            };
            values.park(&key, 1, MINUTE, advances).unwrap();
        }
        values.advance(&0, 1).unwrap();
    });
    assert_eq!(links, DEEP);
}

fn poll_by<T>(future: &mut WaitFuture<T>, waker: &Waker) -> Poll<Result<T, purgatory::WaitError>> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A task whose last waker drops the future that it has.
struct Holds<T>(Option<WaitFuture<T>>, Arc<AtomicUsize>);

impl<T: Send + 'static> Wake for Holds<T> {
    fn wake(self: Arc<Self>) {}
}

impl<T> Drop for Holds<T> {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

/// Each future has the waker that has the next one: when the first is dropped, all are.
fn drops_of_wakers<T: Send + 'static>(links: &Arc<AtomicUsize>, wait: impl Fn() -> WaitFuture<T>) {
    let mut last = None;
    for _ in 0..DEEP {
        let mut next = wait();
        let waker = Waker::from(Arc::new(Holds(last, links.clone())));
        assert!(poll_by(&mut next, &waker).is_pending());
        last = Some(next);
    }
    drop(last);
}

#[test]
fn wakers_that_drop_futures_of_values() {
    let links = on_small_stack(|links| {
        let builder = Watermarks::<usize>::builder("deep").timer(&ManualTimer::new());
        let values = builder.build().unwrap();
        drops_of_wakers(&links, || values.wait_for(&1, 1, NEVER));
        assert!(values.waits().is_empty());
    });
    assert_eq!(links, DEEP);
}

#[test]
fn wakers_that_drop_futures_of_permits() {
    let links = on_small_stack(|links| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(0).build().unwrap();
        drops_of_wakers(&links, || permits.acquire(1, NEVER));
        assert!(permits.waits().is_empty());
    });
    assert_eq!(links, DEEP);
}

#[test]
fn wakers_that_drop_futures_of_operations() {
    let links = on_small_stack(|links| {
        let builder = Purgatory::<usize>::builder("deep").timer(&ManualTimer::new());
        let purgatory = builder.build().unwrap();
        drops_of_wakers(&links, || purgatory.next_event(&[1], NEVER));
        assert!(purgatory.is_empty());
    });
    assert_eq!(links, DEEP);
}
