//! Several replies to one request: [`ReplyStream`].
//!
//! The last reply that a request may have is its answer, as for any request. Earlier replies lie in
//! a buffer that the entry shares with the stream, so they outlive the end of the request.
//!
//! - **No stack**: a reply may hold the next stream, and so on, as may the test of `until`. The
//!   outermost call of the thread drops what a stream keeps, so that a chain of streams needs no
//!   stack.
//! - **Look again**: the stream looks into the buffer once more after it has left its waker, or has
//!   found the end. So it does not miss a reply that came in between.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use timer_core::driver::{must_yield, spend_budget};

use crate::{
    error::WaitError,
    operation::{FUTURE_DROPPED, OperationId, Outcome, Timeout, opaque},
    sync::{MODEL, Mutex},
    table::{future::DropsInTurn, peak::shrunk},
    wait::WaitFuture,
};

/// The capacity up to which a buffer keeps its memory.
const KEPT: usize = 16;

/// Replies that the stream has not taken.
pub(crate) struct Buffer<V> {
    buffered: Mutex<Buffered<V>>,
}

struct Buffered<V> {
    replies: VecDeque<V>,
    /// The number of replies that may still come.
    left: usize,
}

impl<V: Send + 'static> Buffer<V> {
    /// Makes the buffer of a request that may have `count` replies.
    pub(super) fn new(count: usize) -> Self {
        Buffer {
            buffered: Mutex::new(Buffered {
                replies: VecDeque::new(),
                left: count,
            }),
        }
    }

    /// Takes a reply, unless it is the last; returns true if it is. Called under the lock of the
    /// request's shard.
    pub(super) fn keep_unless_last(&self, reply: &mut Option<V>) -> bool {
        let mut buffered = self.buffered.lock();
        buffered.left = buffered.left.saturating_sub(1);
        if buffered.left > 0 {
            buffered.replies.extend(reply.take());
        }
        buffered.left == 0
    }

    /// Takes the oldest reply. Frees the memory of a peak as the buffer empties.
    fn pop(&self) -> Option<V> {
        let replies = &mut self.buffered.lock().replies;
        let reply = replies.pop_front();
        if let Some(capacity) = shrunk(replies.len(), replies.capacity(), KEPT) {
            replies.shrink_to(capacity);
        }
        reply
    }
}

/// The test for the last reply.
type IsLast<V> = Box<dyn FnMut(&V) -> bool + Send>;

/// The replies to one request, as they arrive
/// ([`Replies::expect_many`](crate::Replies::expect_many)). It works on any runtime, or none.
///
/// # Cancel safety
/// A [`next_reply`](Self::next_reply) that is dropped loses nothing. Dropping the stream ends the
/// request and frees its key; replies that were not taken are dropped.
///
/// # Memory
/// Replies that were not taken are kept, at most as many as the request may have. The stream takes
/// one allocation, and that of its buffer. Until it is dropped, it keeps the memory of its form, as
/// a future does.
#[must_use = "dropped, it ends the request"]
pub struct ReplyStream<V: Send + 'static> {
    buffer: Arc<Buffer<V>>,
    /// The last reply, or the error that ends the request. `None` once it is taken.
    end: Option<WaitFuture<V>>,
    /// The end that came before the buffer was empty.
    ended: Option<Result<V, WaitError>>,
    is_last: Option<IsLast<V>>,
    /// Its form, which drops what the stream leaves.
    form: Arc<dyn DropsInTurn>,
}

impl<V: Send + 'static> Unpin for ReplyStream<V> {}

impl<V: Send + 'static> Drop for ReplyStream<V> {
    fn drop(&mut self) {
        self.end_request(&FUTURE_DROPPED);
    }
}

impl<V: Send + 'static> ReplyStream<V> {
    /// Makes the stream of a request. `end` is its last reply.
    pub(super) fn new(
        buffer: Arc<Buffer<V>>,
        end: WaitFuture<V>,
        form: Arc<dyn DropsInTurn>,
    ) -> Self {
        ReplyStream {
            buffer,
            end: Some(end),
            ended: None,
            is_last: None,
            form,
        }
    }

    /// Ends the stream with the first reply that `is_last` accepts; this reply is still yielded.
    /// The poll that yields it completes the request, which waits until then: `is_last` runs in the
    /// polls of the stream. Another call of `until` replaces the test.
    ///
    /// # Panics
    /// A panic of `is_last` reaches the poll. The reply is lost then, and the request waits on.
    pub fn until(mut self, is_last: impl FnMut(&V) -> bool + Send + 'static) -> Self {
        self.is_last = Some(Box::new(is_last));
        self
    }

    /// Waits for the next reply. Yields `None` after the last reply, or after an error: the timeout
    /// ([`Expired`](WaitError::Expired)), a failure of all requests, a shutdown. Replies that came
    /// before an error are yielded before it.
    ///
    /// # Cancel safety
    /// Dropping the future loses no reply.
    pub fn next_reply(&mut self) -> impl Future<Output = Option<Result<V, WaitError>>> + Send {
        poll_fn(|context| self.poll_next(context))
    }

    /// Polls for the next reply, as a `Stream` does. See [`next_reply`](Self::next_reply). A task of
    /// tokio that has used up its cooperative budget yields first (feature `tokio`).
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<V, WaitError>>> {
        if must_yield(context.waker()) {
            return Poll::Pending;
        }
        // 1. Yield the oldest reply in the buffer.
        if let Some(reply) = self.buffer.pop() {
            return self.yielded(reply);
        }
        // 2. If there is none, leave the waker, or find the end.
        if let Some(end) = &mut self.end {
            if let Poll::Ready(ended) = Pin::new(end).poll(context) {
                self.end = None;
                self.ended = Some(ended);
            }
        }
        // 3. Look again. The end comes after all replies.
        if !failpoint!(StreamLooksOnce) {
            if let Some(reply) = self.buffer.pop() {
                return self.yielded(reply);
            }
        }
        match self.ended.take() {
            Some(Ok(last)) => self.yielded(last),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None if self.end.is_some() => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    /// Yields a reply, and ends the request if it is the last.
    fn yielded(&mut self, reply: V) -> Poll<Option<Result<V, WaitError>>> {
        spend_budget();
        if self.is_last.as_mut().is_some_and(|is_last| is_last(&reply)) {
            self.end_request(&Outcome::Completed);
        }
        Poll::Ready(Some(Ok(reply)))
    }

    /// Ends the request, and drops its replies and the test for the last one (No stack).
    fn end_request(&mut self, outcome: &Outcome) {
        if let Some(end) = self.end.take() {
            end.abandon(outcome);
        }
        let mut ended = self.ended.take();
        let mut is_last = self.is_last.take();
        let mut replies = mem::take(&mut self.buffer.buffered.lock().replies);
        let has_kept = ended.is_some() || is_last.is_some() || !replies.is_empty();
        // When a model fails, its queue is gone before its threads' values are dropped.
        if has_kept && !MODEL {
            self.form.drop_in_turn(Box::new(move || {
                ended.take().is_some() || is_last.take().is_some() || replies.pop_front().is_some()
            }));
        }
    }

    /// Returns the request's id, to cancel or reschedule it; `None` once a poll has found its end,
    /// or if it had no time to wait. O(1).
    pub fn id(&self) -> Option<OperationId> {
        self.end.as_ref()?.id()
    }

    /// Sets a new timeout for the request, counted from now; returns false if it has ended. Called
    /// after each reply, it limits the time since that reply was *taken*. To limit the time between
    /// two replies of the server, see [`ReplyScope::reschedule`](crate::ReplyScope::reschedule).
    /// O(levels of the wheel), with one lock.
    pub fn reschedule(&self, timeout: impl Into<Timeout>) -> bool {
        match &self.end {
            Some(end) => end.reschedule(timeout),
            None => false,
        }
    }
}

opaque!([V: Send + 'static] ReplyStream<V>);

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use timer_core::ManualTimer;

    use super::*;
    use crate::ReplyScope;

    #[test]
    fn the_memory_of_a_peak_goes_with_it() {
        let scope = ReplyScope::on(&ManualTimer::new(), "test").unwrap();
        let (number, mut stream) = scope.expect_many(usize::MAX, Timeout::Never).unwrap();
        for reply in 0..10_000 {
            scope.deliver(number, reply).unwrap();
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut rooms = Vec::new();
        for reply in 0..10_000 {
            assert_eq!(stream.poll_next(&mut context), Poll::Ready(Some(Ok(reply))));
            rooms.push(stream.buffer.buffered.lock().replies.capacity());
        }
        rooms.dedup();
        assert!(rooms.len() < 20, "{rooms:?}");
        assert!(rooms.pop() <= Some(KEPT));
    }
}
