//! Request and reply: [`Replies`].
//!
//! An expected reply is an operation without a check, alone under its key; the shard is the map.
//! The thread that ends the operation, by its key or because its timeout fired, decides its outcome
//! under the shard's lock and leaves the answer in its entry, where the future takes it from.

use std::{borrow::Borrow, hash::Hash, mem, sync::Arc, task::Waker};

use timer_core::BuildError;

use crate::{
    engine::{Core, answer::Yields},
    error::{Refused, RefusedReason, WaitError},
    operation::{
        Answering, CancelReason, DelayedOperation, Kind, Outcome, ParkResult, Timeout, opaque,
    },
    purgatory::Purgatory,
    reason::Reason,
    wait::WaitFuture,
    watches::{WatchKey, Watches},
};

/// Matches replies with requests: each reply is delivered to the waiter of its request's key.
///
/// Call [`expect`](Self::expect) first, then send the request, so that even a fast reply finds its
/// waiter. [`deliver`](Self::deliver) hands back a reply that has no waiter because it is late, a
/// duplicate or unasked. A client with many connections gives each a [scope](Self::scope), which
/// numbers the requests, says which replies are late, and fails all of its requests at once.
///
/// This is a handle: clones share the same replies. Dropping the last handle ends all expected
/// replies as Cancelled.
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
/// A reply takes one lock to register it, one to deliver it, one for each poll, and a clock read.
/// There is no allocation, and the key is not copied. O(1).
///
/// A reply has its place from the call of [`expect`](Self::expect) on, of its type's size. Keep
/// large ones in a `Box`.
///
/// # Locks
/// A key's `Eq` runs under the lock of its shard and must not call back. Wakers run with nothing
/// locked.
pub struct Replies<K: WatchKey, V: Send + 'static> {
    purgatory: Purgatory<K, Expected<V>>,
}

/// An expected reply, as the operation of a [`Replies`]' purgatory. It is opaque: it has no
/// condition, no event checks it, and only `Replies` makes and completes it.
///
/// The type is named where the purgatory is held apart from its `Replies`: a
/// `Purgatory<u64, Expected<String>>` is that of a `Replies<u64, String>`.
pub struct Expected<V> {
    state: Reply<V>,
}

/// The states of an expected reply.
enum Reply<V> {
    /// Its future waits.
    Expected {
        /// The number of `fail_all` calls before it was expected.
        generation: u64,
        /// That of the last poll.
        waker: Option<Waker>,
    },
    /// It has ended. The future has not taken the answer.
    Answered(Result<V, WaitError>),
}

impl<V> Expected<V> {
    /// Answers it, and returns the waker.
    #[inline]
    fn answer(&mut self, answer: Result<V, WaitError>) -> Option<Waker> {
        match mem::replace(&mut self.state, Reply::Answered(answer)) {
            Reply::Expected { waker, .. } => waker,
            Reply::Answered(_) => None,
        }
    }
}

impl<V: Send + 'static> DelayedOperation for Expected<V> {
    const KIND: Kind = Kind::Reply;

    fn try_complete(&mut self) -> bool {
        false
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.state {
            Reply::Expected { waker, .. } => Some(waker),
            Reply::Answered(_) => None,
        }
    }

    fn answer(&mut self, outcome: &Outcome) -> Answering {
        Answering::Made(self.answer(Err(WaitError::of(outcome.clone()))))
    }

    fn on_complete(self, _: Outcome) {} // its future was dropped
}

impl<V: Send + 'static> Yields<V> for Expected<V> {
    fn into_answer(self) -> Result<V, WaitError> {
        match self.state {
            Reply::Answered(answer) => answer,
            Reply::Expected { .. } => unreachable!("it was answered"),
        }
    }
}

opaque!([V] Expected<V>);

impl<K: WatchKey, V: Send + 'static> Replies<K, V> {
    /// Makes `Replies` with its own timer; `name` labels its metrics.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::over)
    }

    /// Makes `Replies` over a purgatory with other settings, such as a shared timer or a bound. Two
    /// `Replies` over one purgatory are the same.
    ///
    /// ```
    /// use purgatory::{Purgatory, Replies};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let purgatory = Purgatory::builder("replies").timer(&timer).max_parked(10_000).build()?;
    /// let replies: Replies<u64, String> = Replies::over(purgatory);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn over(purgatory: Purgatory<K, Expected<V>>) -> Self {
        Replies { purgatory }
    }

    /// Expects a reply under this key. The reply is registered when this returns, so send the
    /// request after that. The timeout counts from here. O(1).
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. Dropping the future frees the key, and [`deliver`](Self::deliver) hands
    /// a late reply back.
    ///
    /// # Errors
    /// [`Refused`] hands the key back if another reply is expected under it
    /// ([`AlreadyExpected`](crate::RefusedReason::AlreadyExpected)), or if the purgatory is shut
    /// down or full.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. Then no reply is expected.
    pub fn expect(&self, key: K, timeout: impl Into<Timeout>) -> Result<WaitFuture<V>, Refused<K>> {
        let core = &self.purgatory.core;
        let parked = core.park_alone(self.expected(), key, timeout.into())?;
        Ok(self.reply_of(parked))
    }

    /// Expects a reply under the first of these keys. Events and ends of the others reach it, too.
    pub(crate) fn expect_under(
        &self,
        keys: &[K],
        timeout: Timeout,
    ) -> Result<WaitFuture<V>, RefusedReason> {
        let core = &self.purgatory.core;
        let parked = core.park(self.expected(), Watches::keys(keys), timeout)?;
        Ok(self.reply_of(parked))
    }

    /// Makes a reply that is expected from now on.
    fn expected(&self) -> Expected<V> {
        Expected {
            state: Reply::Expected {
                generation: self.purgatory.core.generation(),
                waker: None,
            },
        }
    }

    /// Returns the future of a reply that was parked.
    #[inline]
    fn reply_of(&self, parked: ParkResult) -> WaitFuture<V> {
        match parked {
            ParkResult::Parked(id) => self.purgatory.answer_of(id),
            ParkResult::Ended(outcome) => WaitFuture::ready(Err(WaitError::of(outcome))),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core<K, Expected<V>>> {
        &self.purgatory.core
    }

    /// Delivers a reply to the waiter of its key, and wakes the waiter's task. When this returns,
    /// the waiter has the value and the key is free. O(1).
    ///
    /// # Errors
    /// Hands the value back if it has no waiter: it was not expected, the wait has ended, or
    /// another reply came before.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. Then nothing was delivered, and the
    /// value is dropped.
    pub fn deliver<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: V) -> Result<(), V>
    where
        K: Borrow<Q>,
    {
        let core = &self.purgatory.core;
        core.deliver(key, value, |expected, value| expected.answer(Ok(value)))
    }

    /// Delivers the reply that `value` makes, if one is expected under the key; returns false
    /// otherwise. `value` runs with nothing locked, and only if the reply is expected. If the
    /// future is dropped meanwhile, the value is dropped, too, and this returns false. O(1).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Replies;
    ///
    /// let replies = Replies::new("replies")?;
    /// let reply = replies.expect(7, Duration::from_secs(30))?;
    /// let frame = b"pong"; // decoded only if a request waits for it
    /// assert!(replies.deliver_with(&7, || String::from_utf8_lossy(frame).into_owned()));
    /// assert_eq!(reply.wait_blocking()?, "pong");
    /// assert!(!replies.deliver_with(&7, || unreachable!("it was answered")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`deliver`](Self::deliver) does. A panic in `value` is contained and counted; the
    /// reply ends as [`Panicked`](CancelReason::Panicked).
    pub fn deliver_with<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: impl FnOnce() -> V) -> bool
    where
        K: Borrow<Q>,
    {
        // 1. The reply is this call's from here on, though its value is still to be made.
        let core = &self.purgatory.core;
        let Some(claimed) = core.claim_alone(key) else {
            return false;
        };
        // 2. Make it, with nothing locked.
        let mut made = Err(WaitError::Cancelled(CancelReason::Panicked));
        core.call(|| made = Ok(value()));
        let is_made = made.is_ok();
        // 3. Leave it to the future, unless that was dropped meanwhile.
        let put = core.put_answer(claimed, made, |expected, made| expected.answer(made));
        put.is_ok() && is_made
    }

    /// Fails all replies that were expected before this call, as
    /// [`Requested`](CancelReason::Requested) with this reason; returns how many. O(expected).
    ///
    /// Use it when a connection closes. Replies expected from now on, over the next connection, are
    /// not touched.
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
    pub fn fail_all(&self, reason: impl Into<Reason>) -> usize {
        let reason = CancelReason::Requested(reason.into());
        let outcome = Outcome::Cancelled(reason);
        let core = &self.purgatory.core;
        core.cancel_older_than(&outcome, |expected| match expected.state {
            Reply::Expected { generation, .. } => generation,
            Reply::Answered(_) => u64::MAX, // it has ended
        })
    }

    /// Returns the purgatory of the expected replies, for metrics, snapshots and
    /// [`shutdown`](Purgatory::shutdown).
    ///
    /// Only [`deliver`](Self::deliver) completes a reply: [`complete`](Purgatory::complete) returns
    /// [`NoValue`](crate::EndResult::NoValue), and calls that signal a key do not compile.
    pub fn purgatory(&self) -> &Purgatory<K, Expected<V>> {
        &self.purgatory
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
