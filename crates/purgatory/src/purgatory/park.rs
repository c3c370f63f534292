//! Parking an operation or a wait: [`try_complete_else_watch`](Purgatory::try_complete_else_watch),
//! [`wait`](Purgatory::wait), [`next_event`](Purgatory::next_event).

use std::mem;

use crate::{
    error::Refused,
    operation::{DelayedOperation, OperationId, Parking, Timeout},
    purgatory::Purgatory,
    shard::{Ended, ToRelease},
    wait::{IntoAnswer, WaitFuture},
    watches::{IntoWatches, UnaskedChecks, WatchKey, Watches},
};

/// Parking.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Checks the operation and, if it must wait, parks it under each key of `watches`.
    ///
    /// The operation then waits until an event of one of its keys completes it, its timeout fires,
    /// or it is cancelled. The check runs here once, and again if events come before the operation is
    /// parked. The callback may have run before this returns.
    ///
    /// Returns the id of the parked operation, which may end a moment later. Returns `None` if the
    /// operation has ended: its callback has received the outcome, or is about to.
    ///
    /// - `watches`: a slice or array of keys, or [`Watches`](crate::Watches) with a label. Repeated
    ///   keys count once.
    /// - `timeout`: a `Duration` from now, or a [`Timeout`].
    ///
    /// O(k) for k keys.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}, mpsc}, time::Duration};
    /// use purgatory::{DelayedOperation, Outcome, Purgatory};
    ///
    /// /// Waits until the log ends beyond its offset.
    /// struct Fetch { offset: u64, log_end: Arc<AtomicU64>, reply: mpsc::Sender<Outcome> }
    ///
    /// impl DelayedOperation for Fetch {
    ///     fn try_complete(&mut self) -> bool {
    ///         self.log_end.load(SeqCst) > self.offset
    ///     }
    ///
    ///     fn on_complete(self, outcome: Outcome) {
    ///         let _ = self.reply.send(outcome);
    ///     }
    /// }
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let log_end = Arc::new(AtomicU64::new(7));
    /// let (reply, replies) = mpsc::channel();
    /// let fetch = Fetch { offset: 7, log_end: log_end.clone(), reply };
    /// let timeout = Duration::from_secs(30);
    /// let parked = fetches.try_complete_else_watch(fetch, &["orders-0"], timeout)?;
    /// assert!(parked.is_some()); // it waits
    ///
    /// log_end.store(8, SeqCst); // first the change ...
    /// assert_eq!(fetches.check_and_complete(&"orders-0"), 1); // ... then the signal
    /// assert_eq!(replies.recv()?, Outcome::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] hands the operation back without calling its callback: if it has no key, if the
    /// purgatory is shut down, or if it would have to wait and the purgatory is full.
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics. Then nothing was parked, and the
    /// operation is dropped.
    pub fn try_complete_else_watch<'a>(
        &self,
        operation: O,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> Result<Option<OperationId>, Refused<O>> {
        let core = &self.handle.table;
        let mut watches = watches.into_watches();
        if core.has_last_checks() {
            watches.unasked = UnaskedChecks::Last;
        }
        let parked = core.park_or(
            operation,
            watches,
            timeout.into(),
            |call, operation, outcome| {
                let ended = Ended {
                    payload: operation,
                    outcome,
                    to_release: ToRelease::nothing(),
                };
                core.finish(call, ended);
            },
        );
        match parked? {
            Parking::Parked(id) => Ok(Some(id)),
            Parking::Ended(_) | Parking::AtOnce => Ok(None),
        }
    }
}

/// Waiting.
impl<K: WatchKey> Purgatory<K> {
    /// Waits until `condition` gives a value or `true`: now, or at an event of one of the keys.
    ///
    /// This call, not the first poll, evaluates the condition and parks the wait; the timeout
    /// counts from here. (Inside an `async fn` or block, this call itself runs when *that* future
    /// is first polled.) The future works on any runtime, or none.
    ///
    /// The condition runs as a [check](DelayedOperation::try_complete) does: on the threads that
    /// signal the keys, with nothing locked, and once more when the timeout fires (the
    /// [last check](crate::Builder::check_at_expiry)). It does not run again once it has given a
    /// value. The task is woken on the thread on which a callback would run.
    ///
    /// A wait that does not end at once costs one allocation, which holds the condition and later,
    /// in its place, the value. All else costs as much as
    /// [`try_complete_else_watch`](Self::try_complete_else_watch). A poll takes no lock that
    /// another wait uses.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the wait and drops the condition. A value that the condition has
    /// given, and that no poll has taken, is dropped as well: see [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError) if the wait expired, was cancelled or
    /// was refused.
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics. Then nothing was parked, and the
    /// condition is dropped. A panic of the condition is contained: the future yields
    /// [`Panicked`](crate::CancelReason::Panicked).
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
    pub fn wait<'a, R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
        condition: impl FnMut() -> R + Send + 'static,
    ) -> WaitFuture<R::Answer>
    where
        K: 'a,
    {
        // A wait has a condition, so a last check finds a missed event before the wait expires.
        let watches = Watches {
            unasked: UnaskedChecks::Last,
            ..watches.into_watches()
        };
        self.await_end(watches, timeout.into(), condition)
    }

    /// Returns a future that is ready at the next event of one of the keys. This call registers it;
    /// it ends at the first event after that, at its timeout, or at shutdown. O(keys).
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
    /// # Cancel safety
    /// Dropping the future removes the registration. An event that came before the drop is lost
    /// with it, so register again first, then read the state.
    ///
    /// # Errors
    /// The future yields an error for the same reasons as that of [`wait`](Self::wait).
    ///
    /// # Panics
    /// Panics only if a key's own `Hash`, `Eq` or `Clone` panics. Then nothing was registered.
    pub fn next_event<'a>(
        &self,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<()>
    where
        K: 'a,
    {
        let watches = Watches {
            unasked: UnaskedChecks::Never,
            ..watches.into_watches()
        };
        let mut registered = false;
        let was_registered = move || mem::replace(&mut registered, true);
        self.await_end(watches, timeout.into(), was_registered)
    }
}
