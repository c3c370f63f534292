//! Waits: a future of the value that a condition yields, and a blocking wait for it.
//!
//! A condition is a closure that gives `Some(value)` once it holds. Operation and future share an
//! [`Answer`], through which the value is handed over. *One swap decides*: the operation fills the
//! answer, or the future abandons it. The later of the two sees what the other did.
//!
//! The future of an expected reply shares nothing: it takes its answer from the operation's entry.

use std::{
    convert::identity,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use timer_core::driver::contain;

use crate::{
    boxed::BoxedOperation,
    engine::answer::Yields,
    error::{RefusedReason, WaitError},
    operation::{CancelReason, DelayedOperation, OperationId, Outcome, Timeout, opaque},
    origin::{EntryAnswer, TurnOrigin, WaitOrigin},
    purgatory::Purgatory,
    sync::{Mutex, plain},
    watches::{IntoWatches, WatchKey, Watches},
};

/// The result of a condition of [`Purgatory::wait`] or [`Monitor::wait`](crate::Monitor::wait).
///
/// `Some(value)` or `true` ends the wait; after `None` or `false` it goes on.
#[diagnostic::on_unimplemented(
    message = "a condition gives `bool` or `Option`, not `{Self}`",
    label = "`false` or `None` waits on, `true` or `Some(value)` ends the wait"
)]
pub trait IntoAnswer {
    /// The type of the value that the wait yields: `()` for a `bool`.
    type Answer;

    /// Returns the value if the condition holds.
    fn into_answer(self) -> Option<Self::Answer>;
}

impl<T> IntoAnswer for Option<T> {
    type Answer = T;

    fn into_answer(self) -> Option<T> {
        self
    }
}

impl IntoAnswer for bool {
    type Answer = ();

    fn into_answer(self) -> Option<()> {
        if self { Some(()) } else { None }
    }
}

/// The state that a wait's operation and its future share.
pub(crate) enum Answer<T> {
    /// The operation waits. The waker is that of the last poll.
    Waiting(Option<Waker>),
    /// The operation has ended; the future has not taken the result.
    Filled(Result<T, WaitError>),
    /// The future was dropped, or has taken the result.
    Abandoned,
}

pub(crate) type Shared<T> = Arc<Mutex<Answer<T>>>;

impl<T> Answer<T> {
    pub(crate) fn shared() -> Shared<T> {
        Arc::new(Mutex::new(Answer::Waiting(None)))
    }

    /// Fills the answer, for the operation. Returns the waker, to be woken with nothing locked; or
    /// hands the result back if the future abandoned the answer.
    pub(crate) fn fill(
        answer: &Mutex<Answer<T>>,
        result: Result<T, WaitError>,
    ) -> Result<Option<Waker>, Result<T, WaitError>> {
        let mut answer = answer.lock();
        if let Answer::Waiting(waker) = &mut *answer {
            let waker = waker.take();
            *answer = Answer::Filled(result);
            Ok(waker)
        } else {
            Err(result)
        }
    }
}

/// The operation of a wait.
struct Waiting<C, T> {
    condition: C,
    /// Whether rechecks and last checks evaluate the condition.
    rechecked: bool,
    /// The value that the condition gave.
    value: Option<T>,
    answer: Unfilled<T>,
}

/// The operation's side of the answer, until it is filled. Dropped unfilled, by a panic of the
/// condition or a refusal of the operation, it fills in [`Panicked`](CancelReason::Panicked).
pub(crate) struct Unfilled<T>(Option<Shared<T>>);

impl<C, R, T> DelayedOperation for Waiting<C, T>
where
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer = T>,
    T: Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        self.value = (self.condition)().into_answer();
        self.value.is_some()
    }

    fn check_without_event(&mut self) -> bool {
        self.rechecked && self.try_complete()
    }

    fn on_complete(mut self, outcome: Outcome) {
        let result = if outcome == Outcome::Completed {
            // A call or a watermark completes without a check, so the value may be missing.
            let value = self.value.or_else(|| (self.condition)().into_answer());
            value.ok_or_else(|| WaitError::of(outcome))
        } else {
            Err(WaitError::of(outcome))
        };
        drop(self.condition); // before the task runs, which may rely on that
        self.answer.fill(result);
    }
}

impl<T> Unfilled<T> {
    pub(crate) fn new(answer: &Shared<T>) -> Self {
        Unfilled(Some(answer.clone()))
    }

    /// Fills the answer and wakes the task.
    pub(crate) fn fill(&mut self, result: Result<T, WaitError>) {
        let Some(answer) = self.0.take() else { return };
        if let Ok(Some(waker)) = Answer::fill(&answer, result) {
            waker.wake();
        }
    }
}

impl<T> Drop for Unfilled<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            // The condition may be panicking; a second panic, of the waker, would abort.
            let _ = contain(|| self.fill(Err(WaitError::Cancelled(CancelReason::Panicked))));
        }
    }
}

/// A future of the value that a parked condition yields ([`Purgatory::wait`]), or of a reply
/// ([`Replies::expect`](crate::Replies::expect)). It works on any runtime, or none.
///
/// # Cancel safety
/// Dropping the future cancels the wait. The operation leaves the purgatory at once; an operation
/// under check leaves when that check returns. A value that was yielded but not taken is dropped:
/// make it a [guard that is returned on drop](crate::guide::recipes#leases). Polling the future
/// without awaiting its end, as a `select!` over `&mut` does, loses nothing.
///
/// A future does not keep its purgatory open. When the last handle is dropped, the wait ends as
/// [`Dropped`](CancelReason::Dropped).
///
/// # Panics
/// Panics when polled again after it was ready.
#[must_use = "dropped, it cancels the wait"]
pub struct WaitFuture<T> {
    source: Source<T>,
    /// Its operation, if it was parked.
    id: Option<OperationId>,
}

/// A result that is here is moved out of the future, never pinned.
impl<T> Unpin for WaitFuture<T> {}

/// The place that a future takes its result from.
enum Source<T> {
    /// An answer that it shares with its operation.
    Shared {
        answer: Shared<T>,
        origin: Arc<dyn WaitOrigin>,
    },
    /// The entry of its operation.
    Entry(EntryAnswer<T>),
    /// It is here: the operation was not parked. The mutex is never locked; it makes the future
    /// `Sync`.
    Here(plain::Mutex<Result<T, WaitError>>),
    /// It was taken.
    Taken,
}

impl<T> Future for WaitFuture<T> {
    type Output = Result<T, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.source {
            Source::Entry(entry) => entry.poll(context.waker()),
            Source::Shared { answer, .. } => poll_shared(answer, context.waker()),
            Source::Here(_) | Source::Taken => self.take_here(),
        };
        // The result is taken once.
        if polled.is_ready() {
            self.source = Source::Taken;
        }
        polled
    }
}

/// Polls for a shared answer.
fn poll_shared<T>(answer: &Shared<T>, waker: &Waker) -> Poll<Result<T, WaitError>> {
    // Clone the waker before the lock is taken, since wakers are user code. An operation that
    // has dropped its share has filled the answer, and needs no waker.
    let is_filled = Arc::strong_count(answer) == 1;
    fence(Ordering::Acquire); // the operation filled the answer before it dropped its share
    let mut waker = if is_filled { None } else { Some(waker.clone()) };

    // Leave the waker, and drop the one before it after the unlock.
    let mut locked = answer.lock();
    if let Answer::Waiting(kept) = &mut *locked {
        mem::swap(kept, &mut waker);
        drop(locked);
        return Poll::Pending;
    }

    // Or take the result.
    let taken = mem::replace(&mut *locked, Answer::Abandoned);
    drop(locked);
    match taken {
        Answer::Filled(result) => Poll::Ready(result),
        Answer::Waiting(_) | Answer::Abandoned => unreachable!("its future abandons it as it goes"),
    }
}

impl<T> Drop for WaitFuture<T> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.source, Source::Taken) {
            self.abandon();
        }
    }
}

/// Abandons a shared answer, and cancels its operation.
fn abandon_shared<T>(answer: &Shared<T>, origin: &dyn WaitOrigin, id: Option<OperationId>) {
    let abandoned = mem::replace(&mut *answer.lock(), Answer::Abandoned);
    let waits = matches!(abandoned, Answer::Waiting(_));
    if let Some(id) = id {
        if waits && !failpoint!(DroppedFutureLeavesOperation) {
            origin.cancel(id);
        }
    }
    let is_untaken = matches!(abandoned, Answer::Filled(Ok(_)));
    drop(abandoned); // a value or waker of the user's, with nothing locked
    // In turn. A guard has returned what it held by now: the next finds it.
    if is_untaken {
        origin.pass_turn();
    }
}

opaque!([T] WaitFuture<T>);

/// A waker that unparks a blocked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Makes the future of an answer that a parked operation fills when it ends.
    pub(crate) fn future_of<T>(&self, answer: Shared<T>, id: Option<OperationId>) -> WaitFuture<T> {
        WaitFuture {
            source: Source::Shared {
                answer,
                origin: self.share(),
            },
            id,
        }
    }

    /// Makes the future of a parked operation whose answer stays in its entry.
    pub(crate) fn answer_of<T>(&self, id: OperationId) -> WaitFuture<T>
    where
        O: Yields<T>,
    {
        WaitFuture {
            source: Source::Entry(EntryAnswer::new(self.share(), id)),
            id: Some(id),
        }
    }

    /// Parks a wait, as the operation that `wrap` makes of it, and returns its future.
    pub(crate) fn await_end<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: Watches<'_, K>,
        timeout: Timeout,
        condition: impl FnMut() -> R + Send + 'static,
        rechecked: bool,
        wrap: impl FnOnce(BoxedOperation) -> O,
    ) -> WaitFuture<R::Answer> {
        let answer = Answer::shared();
        let operation = BoxedOperation::new(Waiting {
            condition,
            rechecked,
            value: None,
            answer: Unfilled::new(&answer),
        });
        // An operation with a condition finds a lost wakeup before it expires.
        let watches = Watches {
            last_check: rechecked,
            needs_value: true,
            ..watches
        };
        let turn = self.turn_of(&watches);
        match self.core.park(wrap(operation), watches, timeout) {
            Ok(parked) => {
                let id = parked.id();
                match turn {
                    Some(origin) => WaitFuture {
                        source: Source::Shared { answer, origin },
                        id,
                    },
                    None => self.future_of(answer, id),
                }
            }
            Err(refused) => self.refused(refused.reason),
        }
    }

    /// Returns the origin of a wait in turn; `None` for other waits.
    fn turn_of(&self, watches: &Watches<'_, K>) -> Option<Arc<dyn WaitOrigin>> {
        if !watches.in_turn {
            return None;
        }
        let key = watches.keys.first()?;
        Some(TurnOrigin::shared(self.share(), key.clone()))
    }

    /// Makes a future that yields this refusal.
    pub(crate) fn refused<T>(&self, reason: RefusedReason) -> WaitFuture<T> {
        WaitFuture::ready(Err(WaitError::Refused(reason)))
    }
}

impl<K: WatchKey> Purgatory<K> {
    /// Waits until `condition` gives a value or `true`: now, or at an event of one of the keys.
    ///
    /// This call, not the first poll, evaluates the condition and parks the wait; the timeout
    /// counts from here. The future works on any runtime, or none. Called inside an `async fn` or
    /// block, it runs when *that* future is polled first: to park at once, call `wait` in a plain
    /// function that returns the future.
    ///
    /// The condition runs like a [check](DelayedOperation::try_complete): on the threads that
    /// signal the keys, with nothing locked. When the timeout fires it is evaluated once more, on
    /// the executor (the [last check](crate::Builder::check_at_expiry)). It is not evaluated again
    /// once it has given a value. The task is woken where a callback would run, with nothing
    /// locked.
    ///
    /// Costs two allocations, one for the operation and one for the answer that it shares with the
    /// future; otherwise as much as
    /// [`try_complete_else_watch`](Self::try_complete_else_watch).
    ///
    /// # Errors
    /// The future yields a [`WaitError`] if the wait expired, was cancelled or was refused.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
    /// #     let waker = Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut context = std::task::Context::from_waker(&waker);
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut context) {
    /// #             std::task::Poll::Ready(output) => return output,
    /// #             std::task::Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// let purgatory: Purgatory<&str> = Purgatory::new("waits")?;
    /// let log_end = Arc::new(AtomicU64::new(0));
    /// let seen = log_end.clone();
    /// let enough = move || Some(seen.load(SeqCst)).filter(|&end| end > 0);
    /// let bytes = purgatory.wait(&["log"], Duration::from_secs(1), enough);
    /// log_end.store(7, SeqCst);
    /// purgatory.check_and_complete(&"log");
    /// assert_eq!(block_on(bytes), Ok(7));
    ///
    /// let never = purgatory.wait(&["log"], Duration::from_millis(5), || false);
    /// assert_eq!(block_on(never), Err(WaitError::Expired));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// An asynchronous condition is evaluated by a task, which stores the result and signals the
    /// key.
    pub fn wait<'a, R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
        condition: impl FnMut() -> R + Send + 'static,
    ) -> WaitFuture<R::Answer>
    where
        K: 'a,
    {
        self.await_end(
            watches.into_watches(),
            timeout.into(),
            condition,
            true,
            identity,
        )
    }

    /// Returns a future of the next event of one of the keys. This call registers it; it ends at
    /// the first event after that, at its timeout, or at shutdown. O(keys).
    ///
    /// Use it for a condition that must be awaited, such as a read from storage: register, read,
    /// and await the event only if the data read does not suffice. An event that comes during the
    /// read is not lost.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// # struct Storage;
    /// # impl Storage { async fn read(&self) -> Vec<u8> { Vec::new() } }
    /// /// A fetch: waits until there are enough bytes, or yields what is there in the end.
    /// async fn fetch(
    ///     appends: &Purgatory<&'static str>,
    ///     storage: &Storage,
    ///     min_bytes: usize,
    ///     max_wait: Duration,
    /// ) -> Result<Vec<u8>, WaitError> {
    ///     let deadline = Instant::now() + max_wait;
    ///     loop {
    ///         let left = deadline.saturating_duration_since(Instant::now());
    ///         let appended = appends.next_event(&["orders-0"], left); // registered ...
    ///         let bytes = storage.read().await; // ... before the log is read
    ///         if bytes.len() >= min_bytes {
    ///             return Ok(bytes);
    ///         }
    ///         match appended.await {
    ///             Err(error) if error.is_expired() => return Ok(bytes),
    ///             ended => ended?, // another error would come again at once
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The future yields an error as that of [`wait`](Self::wait) does.
    pub fn next_event<'a>(
        &self,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<()>
    where
        K: 'a,
    {
        let watches = watches.into_watches();
        // In turn it may not be checked as it is parked, so it is never: an event is an event.
        let mut registered = watches.in_turn;
        let watches = Watches {
            unchecked: watches.in_turn,
            ..watches
        };
        let was_registered = move || mem::replace(&mut registered, true);
        self.await_end(watches, timeout.into(), was_registered, false, identity)
    }
}

impl<T> WaitFuture<T> {
    /// Makes a future that is ready.
    pub(crate) fn ready(result: Result<T, WaitError>) -> Self {
        WaitFuture {
            source: Source::Here(plain::Mutex::new(result)),
            id: None,
        }
    }

    /// Returns the operation's id, to complete, cancel or reschedule it; `None` when it ended at
    /// once.
    pub fn id(&self) -> Option<OperationId> {
        self.id
    }

    /// Reschedules the wait, counted from now, as [`Purgatory::reschedule`] does. Returns
    /// false if the wait has ended.
    pub fn reschedule(&self, timeout: impl Into<Timeout>) -> bool {
        match (self.origin(), self.id) {
            (Some(origin), Some(id)) => origin.reschedule(id, timeout.into()),
            _ => false,
        }
    }

    /// Ends the wait of a future that is dropped.
    fn abandon(&mut self) {
        match mem::replace(&mut self.source, Source::Taken) {
            Source::Shared { answer, origin } => abandon_shared(&answer, &*origin, self.id),
            Source::Entry(entry) => {
                if !failpoint!(DroppedFutureLeavesOperation) {
                    entry.abandon();
                }
            }
            Source::Here(_) | Source::Taken => {}
        }
    }

    /// Takes a result that is here.
    #[cold]
    fn take_here(&mut self) -> Poll<Result<T, WaitError>> {
        match mem::replace(&mut self.source, Source::Taken) {
            Source::Here(result) => Poll::Ready(result.into_inner()),
            _ => panic!("a wait was polled after it was over"),
        }
    }

    /// Returns the purgatory that it waits in.
    fn origin(&self) -> Option<&dyn WaitOrigin> {
        match &self.source {
            Source::Shared { origin, .. } => Some(&**origin),
            Source::Entry(entry) => Some(entry.origin()),
            Source::Here(_) | Source::Taken => None,
        }
    }

    /// Blocks this thread until the wait ends.
    ///
    /// The future may have been polled before. With a [`ManualTimer`](timer_core::ManualTimer),
    /// another thread must advance the timer.
    ///
    /// In a task, await the future instead: this blocks the thread that runs the task, and the
    /// other tasks of that thread. It is an [error](WaitError::MustNotBlock) only where the end
    /// of the wait may need the thread. With the feature `tokio`, debug builds warn in any task of
    /// a tokio runtime.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, thread, time::Duration};
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// let purgatory: Purgatory<&str> = Purgatory::new("epoch")?;
    /// let epoch = Arc::new(AtomicU64::new(0));
    /// let seen = epoch.clone();
    /// let signals = purgatory.clone();
    /// let leader = thread::spawn(move || {
    ///     epoch.store(1, SeqCst);
    ///     signals.check_and_complete(&"epoch");
    /// });
    /// let began = move || Some(seen.load(SeqCst)).filter(|&epoch| epoch > 0);
    /// let wait = purgatory.wait(&["epoch"], Duration::from_secs(30), began);
    /// assert_eq!(wait.wait_blocking(), Ok(1));
    ///
    /// let never = purgatory.wait(&["epoch"], Duration::from_millis(1), || None::<()>);
    /// assert_eq!(never.wait_blocking(), Err(WaitError::Expired));
    /// # leader.join().unwrap();
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns a [`WaitError`] if the wait ends without a value. It is
    /// [`MustNotBlock`](WaitError::MustNotBlock), at once, if this call would have to block
    /// inside a check, a callback or a task that the end of the wait may need; the wait is then
    /// cancelled.
    pub fn wait_blocking(mut self) -> Result<T, WaitError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut context) {
                return result;
            }
            let origin = self.origin();
            if origin.is_some_and(|origin| origin.must_not_block()) {
                return Err(WaitError::MustNotBlock);
            }
            thread::park();
        }
    }
}
