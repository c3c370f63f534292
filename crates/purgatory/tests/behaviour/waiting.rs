//! Futures, blocking waits, closures and boxes, under a hand-turned clock where time matters.

use std::{
    sync::{Arc, Mutex, mpsc},
    task::Poll,
    time::Duration,
};

use crate::support::{MS, Woken, by_hand, poll};
use purgatory::{BoxedOperation, Purgatory, RefusedReason, WaitError, when};
use timer_core::ManualTimer;

type Waits = Purgatory<&'static str, BoxedOperation>;

fn setup() -> (ManualTimer, Waits) {
    let (timer, purgatory) = by_hand();
    (timer, purgatory)
}

/// A place that a condition takes a value out of.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Option<u32>>>);

impl Shelf {
    fn put(&self, value: u32) {
        *self.0.lock().unwrap() = Some(value);
    }

    fn take(&self) -> impl FnMut() -> Option<u32> + Send + 'static {
        let shelf = self.0.clone();
        move || shelf.lock().unwrap().take()
    }
}

#[test]
fn a_future_yields_its_value_and_wakes_its_task_once() {
    let (_timer, purgatory) = setup();
    let (shelf, count) = (Shelf::default(), Arc::<Woken>::default());
    let mut future = purgatory.wait(&["a", "b"], 10 * MS, shelf.take());
    assert!(count.poll(&mut future).is_pending() && count.poll(&mut future).is_pending());
    shelf.put(7);
    assert_eq!(purgatory.check_and_complete(&"b"), 1);
    assert_eq!(count.times(), 1);
    assert_eq!(count.poll(&mut future), Poll::Ready(Ok(7)));
    assert!(purgatory.is_empty() && purgatory.watched() == 0);
}

#[test]
fn the_timeout_of_a_future_counts_from_the_call() {
    let (timer, purgatory) = setup();
    let mut future = purgatory.wait(&["a"], 10 * MS, || None::<u32>);
    timer.advance(10 * MS);
    assert_eq!(poll(&mut future), Poll::Ready(Err(WaitError::Expired)));
}

#[test]
fn a_future_may_be_ready_at_once() {
    let (_timer, purgatory) = setup();
    let shelf = Shelf::default();
    shelf.put(1);
    let mut ready = purgatory.wait(&["a"], 10 * MS, shelf.take());
    assert_eq!(poll(&mut ready), Poll::Ready(Ok(1)));
    let mut refused = purgatory.wait(&[], 10 * MS, || None::<u32>);
    let no_keys = WaitError::Refused(RefusedReason::NoKeys);
    assert_eq!(poll(&mut refused), Poll::Ready(Err(no_keys)));
}

#[test]
fn dropping_a_future_cancels_its_operation_at_once() {
    let (_timer, purgatory) = setup();
    let shelf = Shelf::default();
    let future = purgatory.wait(&["a", "b"], 10 * MS, shelf.take());
    assert_eq!((purgatory.len(), purgatory.watched()), (1, 2));
    drop(future);
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    shelf.put(3);
    assert_eq!(purgatory.check_and_complete(&"a"), 0);
    assert_eq!(shelf.take()(), Some(3)); // nobody took it
}

#[test]
#[should_panic(expected = "polled after it was over")]
fn a_future_polled_after_it_was_ready_panics() {
    let (_timer, purgatory) = setup();
    let mut future = purgatory.wait(&["a"], 10 * MS, || Some(1));
    assert!(poll(&mut future).is_ready());
    let _ = poll(&mut future);
}

#[test]
fn a_thread_waits_as_a_task_does() {
    let purgatory: Waits = Purgatory::new("threads").unwrap();
    let shelf = Shelf::default();
    let expired = purgatory.wait(&["a"], 2 * MS, || None::<u32>).wait_blocking();
    assert_eq!(expired, Err(WaitError::Expired));
    std::thread::scope(|scope| {
        let (parked, seen) = mpsc::channel();
        let (mut take, purgatory) = (shelf.take(), &purgatory);
        let condition = move || {
            let value = take();
            parked.send(()).unwrap();
            value
        };
        let minute = Duration::from_secs(60);
        let waiting =
            scope.spawn(move || purgatory.wait(&["a"], minute, condition).wait_blocking());
        seen.recv().unwrap(); // it has looked once
        shelf.put(4);
        while purgatory.check_and_complete(&"a") == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().unwrap(), Ok(4));
    });
}

#[test]
fn a_blocking_wait_inside_a_callback_is_an_error() {
    let (_timer, purgatory) = setup();
    let (send, result) = mpsc::channel();
    let inside = purgatory.clone();
    let operation = when(
        || true,
        move |_| send.send(inside.wait(&["a"], MS, || None::<u8>).wait_blocking()).unwrap(),
    );
    purgatory.try_complete_else_watch(operation, &["a"], MS).unwrap();
    assert_eq!(result.try_recv(), Ok(Err(WaitError::InsideCallback)));
    assert_eq!(purgatory.len(), 0); // what it had parked is cancelled
    assert_eq!(purgatory.wait(&["a"], MS, || Some(1)).wait_blocking(), Ok(1));
}
