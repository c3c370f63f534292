//! Request and reply: [`Replies`].
//!
//! A reply that is expected is an operation without a check, alone under
//! its key: the shard is the map. Whoever takes it out, by its key or because its time is up,
//! decides how it ends, under the shard's lock, and fills the answer of its future.

use std::{
    borrow::{Borrow, Cow},
    hash::Hash,
    task::Waker,
};

use timer_core::BuildError;

use crate::{
    operation::{CancelReason, DelayedOperation, Outcome, Refused, Timeout, WaitError, opaque},
    purgatory::Purgatory,
    wait::{Answer, Shared, WaitFuture},
    watches::{WatchKey, Watches},
};

/// Replies that are expected, each under its request's key: a reply that comes in is handed to
/// its waiter.
///
/// [`expect`](Self::expect) first, then send the request: a reply that is faster than the rest of
/// the sender finds its place. [`deliver`](Self::deliver) hands back what nobody waits for: a reply
/// that comes late, twice or unasked. A handle: clones are the same, and dropping the last one ends
/// what is expected as Cancelled.
///
/// ```
/// use std::{sync::mpsc, thread, time::Duration};
/// use purgatory::Replies;
///
/// let replies = Replies::new("replies")?;
/// let (connection, requests) = mpsc::channel();
/// let network = replies.clone();
/// thread::spawn(move || {
///     for request in requests {
///         network.deliver(&request, format!("reply to {request}")).unwrap();
///     }
/// });
///
/// let reply = replies.expect(7, Duration::from_secs(30))?; // registered ...
/// connection.send(7)?; // ... so now it may come
/// assert_eq!(reply.wait_blocking()?, "reply to 7");
/// assert_eq!(replies.deliver(&7, "again".to_owned()), Err("again".to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// A lock to register it, one to deliver it, a clock read, one allocation; no copy of the key.
/// O(1).
///
/// # Locks
/// A key's `Eq` runs under the lock of its shard and must not call back. Wakers run with nothing
/// locked.
pub struct Replies<K: WatchKey, V: Send + 'static> {
    purgatory: Purgatory<K, Expected<V>>,
}

/// A reply that is expected: what a purgatory of [`Replies`] parks. Events pass it over.
#[doc(hidden)]
pub struct Expected<V> {
    answer: Shared<V>,
    /// How many times all had failed before it.
    generation: u64,
}

impl<V: Send + 'static> DelayedOperation for Expected<V> {
    const CHECKED: bool = false;

    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        let filled = Answer::fill(&self.answer, Err(WaitError::of(outcome)));
        filled.into_iter().flatten().for_each(Waker::wake);
    }
}

opaque!([V] Expected<V>);

impl<K: WatchKey, V: Send + 'static> Replies<K, V> {
    /// With a timer of its own; `name` labels its metrics.
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::from)
    }

    /// Expects a reply under this key. It is registered when this returns, so send the request
    /// after. The time counts from here. Cancel safety: see [`WaitFuture`]; dropped, it leaves the
    /// key free, and a late reply is handed back by [`deliver`](Self::deliver).
    ///
    /// # Errors
    /// [`Refused`] hands the key back when a reply is expected under it
    /// ([`AlreadyExpected`](crate::RefusedReason::AlreadyExpected)), or the purgatory is shut down
    /// or full.
    pub fn expect(&self, key: K, timeout: impl Into<Timeout>) -> Result<WaitFuture<V>, Refused<K>> {
        let answer = Answer::shared();
        let core = &self.purgatory.core;
        let expected = Expected {
            answer: answer.clone(),
            generation: core.generation(),
        };
        let parked = core.park(
            expected,
            Watches::keys(std::slice::from_ref(&key)),
            timeout.into(),
        );
        match parked {
            Ok(parked) => Ok(self.purgatory.future_of(answer, parked.id())),
            Err(refused) => Err(Refused::new(key, refused.reason)),
        }
    }

    /// Delivers a reply to its waiter, the one that expects the key. The waiter has the value when
    /// this returns, and the key is free; its task is woken. O(1).
    ///
    /// # Errors
    /// The value, when nobody waits for it: it was not expected, or no longer, or one has come
    /// before.
    pub fn deliver<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: V) -> Result<(), V>
    where
        K: Borrow<Q>,
    {
        let Some(expected) = self.purgatory.core.take_alone(key) else {
            return Err(value);
        };
        let filled = self.fill(expected, Ok(value));
        filled.map_err(|back| back.unwrap_or_else(|_| unreachable!("a value comes back as one")))
    }

    /// As [`deliver`](Self::deliver), with a value that is made only if a reply is expected under
    /// the key, with nothing locked: false if none is. A value whose future is dropped meanwhile is
    /// dropped, too.
    ///
    /// # Panics
    /// A panic in `value` is contained and counted; the reply ends as
    /// [`Panicked`](CancelReason::Panicked).
    pub fn deliver_with<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: impl FnOnce() -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(expected) = self.purgatory.core.take_alone(key) else {
            return false;
        };
        let mut made = Err(WaitError::Cancelled(CancelReason::Panicked));
        self.purgatory.core.call(|| made = Ok(value()));
        let is_made = made.is_ok();
        self.fill(expected, made).is_ok() && is_made
    }

    /// Fails everything that was expected before this call, as
    /// [`Requested`](CancelReason::Requested) with this reason; returns how much. For a connection
    /// that goes: what is expected from now on, over the next one, is not touched. O(expected).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, Replies, WaitError};
    ///
    /// let replies: Replies<u32, String> = Replies::new("replies")?;
    /// let reply = replies.expect(1, Duration::from_secs(30))?;
    /// assert_eq!(replies.fail_all("connection closed"), 1);
    /// let closed = CancelReason::Requested("connection closed".into());
    /// assert_eq!(reply.wait_blocking(), Err(WaitError::Cancelled(closed)));
    /// assert!(replies.expect(1, Duration::from_secs(30)).is_ok()); // over the next connection
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail_all(&self, reason: impl Into<Cow<'static, str>>) -> usize {
        let cancelled = CancelReason::Requested(reason.into());
        let outcome = Outcome::Cancelled(cancelled.clone());
        let old = self
            .purgatory
            .core
            .take_older_than(&outcome, |expected| expected.generation);
        let cancelled = || Err(WaitError::Cancelled(cancelled.clone()));
        old.into_iter()
            .filter_map(|expected| self.fill(expected, cancelled()).ok())
            .count()
    }

    /// Fills an answer and wakes its task. Hands the result back if the future has gone. A panic of
    /// the waker is contained and counted.
    fn fill(
        &self,
        expected: Expected<V>,
        result: Result<V, WaitError>,
    ) -> Result<(), Result<V, WaitError>> {
        let filled = Answer::fill(&expected.answer, result);
        drop(expected);
        let waker = filled?;
        self.purgatory
            .core
            .call(|| waker.into_iter().for_each(Waker::wake));
        Ok(())
    }

    /// Where they are expected: for metrics, snapshots and [`shutdown`](Purgatory::shutdown). To
    /// complete one there gives it no value.
    pub fn purgatory(&self) -> &Purgatory<K, Expected<V>> {
        &self.purgatory
    }
}

impl<K: WatchKey, V: Send + 'static> From<Purgatory<K, Expected<V>>> for Replies<K, V> {
    /// Over a purgatory that was configured otherwise: a shared timer, a bound. Its events do
    /// nothing, since nothing in it has a check. Two over one purgatory are the same `Replies`.
    fn from(purgatory: Purgatory<K, Expected<V>>) -> Self {
        Replies { purgatory }
    }
}

impl<K: WatchKey, V: Send + 'static> Clone for Replies<K, V> {
    fn clone(&self) -> Self {
        Replies {
            purgatory: self.purgatory.clone(),
        }
    }
}

opaque!([K: WatchKey, V: Send + 'static] Replies<K, V>, purgatory: purgatory);
