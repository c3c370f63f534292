//! First polls: of a sleep, which registers it, and of a time-out around what is ready.

use std::{
    convert::Infallible,
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
pub(super) fn answer() -> impl Future<Output = Result<u64, Infallible>> {
    ready(Ok(black_box(7)))
}

/// True if a time-out yields what it is around at its first poll.
pub(super) fn at_once<T: Yields>(timeout: Pin<&mut impl Future<Output = T>>) -> bool {
    match timeout.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output.value() == Some(7),
        Poll::Pending => false,
    }
}

/// What a time-out yields, or the future it is around.
pub(super) trait Yields {
    fn value(self) -> Option<u64>;
}

impl Yields for Result<u64, Infallible> {
    fn value(self) -> Option<u64> {
        self.ok()
    }
}

impl<E> Yields for Result<Result<u64, Infallible>, E> {
    fn value(self) -> Option<u64> {
        self.ok()?.ok()
    }
}
