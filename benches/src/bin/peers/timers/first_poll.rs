//! First polls: of a sleep, which registers it, and of a time-out around what is ready.

use std::{
    future::ready,
    hint::black_box,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Polls a sleep that is not over yet.
pub(super) fn register<F: Future + ?Sized>(sleep: Pin<&mut F>, waker: &Waker) {
    let poll = sleep.poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending(), "a sleep was over when first polled");
}

/// What a time-out is around.
pub(super) fn answer() -> impl Future<Output = u64> {
    ready(black_box(7))
}

/// True if a time-out yields at its first poll what it is around.
pub(super) fn at_once<E>(timeout: Pin<&mut impl Future<Output = Result<u64, E>>>) -> bool {
    matches!(timeout.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(7)))
}
