//! Request and reply: [`Replies`].
//!
//! The answer of the future decides, by one swap: a reply fills it, or its time does, or the future
//! leaves it. Map and purgatory follow. So a key whose answer is decided is free again, though its
//! operation may not be out of the purgatory yet, as inside a callback.

use std::{
    borrow::{Borrow, Cow},
    error::Error,
    fmt,
    hash::Hash,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use dashmap::{DashMap, Entry};
use timer_core::{
    BuildError,
    driver::{Apart, contain, drop_each},
};

use crate::{
    face::{
        boxed::BoxedOperation,
        purgatory::Purgatory,
        wait::{Answer, Shared, Unclaimed, WaitError, WaitFuture},
    },
    sync::{AtomicU64, KeyHasher, Ordering},
    words::{
        operation::{CancelReason, DelayedOperation, OperationId, Outcome, Timeout},
        watches::{WatchKey, Watches},
    },
};

/// Replies that are expected, each under its request's key: what came in is handed to whoever
/// asked.
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
/// Two allocations and three copies of the key for each reply, O(1). The map keeps room for as many
/// as were ever expected at once.
///
/// # Locks
/// A key's `Hash`, `Eq` and `Clone` run under locks and must not call back. Wakers and hooks run
/// with nothing locked.
pub struct Replies<K, V>
where
    K: WatchKey + Send + Sync,
    V: Send + 'static,
{
    purgatory: Purgatory<K, BoxedOperation>,
    expected: Arc<Expected<K, V>>,
}

/// What is expected. Nothing of the user's but keys' code runs under a shard's lock.
struct Expected<K, V> {
    waiting: DashMap<K, Waiting<V>, KeyHasher>,
    /// How many times all that was expected has failed.
    failures: AtomicU64,
}

/// Where a reply goes.
struct Waiting<V> {
    answer: Shared<V>,
    /// The failures before it.
    failures: u64,
    /// Its operation, once that is parked.
    id: Option<OperationId>,
}

/// The operation behind it: it ends when the answer is filled, or fills it.
struct Expectation<K: Hash + Eq, V> {
    key: K,
    answer: Shared<V>,
    expected: Arc<Expected<K, V>>,
}

impl<K, V> DelayedOperation for Expectation<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        !self.answer.lock().is_waiting()
    }

    fn on_complete(self, outcome: Outcome) {
        let filled = Answer::fill(&self.answer, Err(WaitError::of(outcome)));
        drop(self); // the key is free before its task is woken
        filled.into_iter().flatten().for_each(Waker::wake);
    }
}

impl<K: Hash + Eq, V> Drop for Expectation<K, V> {
    fn drop(&mut self) {
        // A panic of the key's Hash or Eq must not meet another.
        let _ = contain(|| {
            let own = |_: &K, waiting: &Waiting<V>| Arc::ptr_eq(&waiting.answer, &self.answer);
            drop(self.expected.waiting.remove_if(&self.key, own));
        });
    }
}

impl<K, V> Replies<K, V>
where
    K: WatchKey + Send + Sync,
    V: Send + 'static,
{
    /// With a timer of its own; `name` labels its metrics.
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::from)
    }

    /// Expects a reply under this key. It is registered when this returns, so send the request
    /// after. The time counts from here. One that was refused by the purgatory (shut down, or full)
    /// says so when it is polled.
    ///
    /// # Errors
    /// [`AlreadyExpected`] hands the key back when a reply is expected under it.
    pub fn expect(
        &self,
        key: K,
        timeout: impl Into<Timeout>,
    ) -> Result<Reply<V>, AlreadyExpected<K>> {
        self.expect_with(key, timeout.into(), None)
    }

    /// As [`expect`](Self::expect), with a hook for a value that was delivered when nobody takes it
    /// any more, because the future was dropped. So each value is taken, handed back by
    /// [`deliver`](Self::deliver), or given to the hook.
    ///
    /// The hook runs where the future is dropped. A panic in it is contained and counted.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::Replies;
    ///
    /// let connections = Replies::new("connections")?;
    /// let (pool, idle) = mpsc::channel();
    /// let back_to_pool = move |connection| pool.send(connection).unwrap();
    /// let connection = connections.expect_or(1, Duration::from_secs(30), back_to_pool)?;
    /// connections.deliver(&1, "a connection")?;
    /// drop(connection); // its client has gone
    /// assert_eq!(idle.try_recv()?, "a connection");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`expect`](Self::expect).
    pub fn expect_or(
        &self,
        key: K,
        timeout: impl Into<Timeout>,
        hook: impl Fn(V) + Send + Sync + 'static,
    ) -> Result<Reply<V>, AlreadyExpected<K>> {
        self.expect_with(key, timeout.into(), Some(Arc::new(hook)))
    }

    fn expect_with(
        &self,
        key: K,
        timeout: Timeout,
        unclaimed: Option<Unclaimed<V>>,
    ) -> Result<Reply<V>, AlreadyExpected<K>> {
        let answer = Answer::shared();
        let expected = self.expected.clone();
        let operation = Expectation { key: key.clone(), answer: answer.clone(), expected };
        if !self.register(&key, &answer) {
            return Err(AlreadyExpected { key });
        }
        let keys = Watches::keys(slice::from_ref(&key));
        let wait = self.purgatory.wait_in(operation, answer.clone(), keys, timeout, unclaimed);
        if let (Some(id), Some(mut waiting)) = (wait.id(), self.expected.waiting.get_mut(&key))
            && Arc::ptr_eq(&waiting.answer, &answer)
        {
            waiting.id = Some(id);
        }
        Ok(Reply { wait })
    }

    /// False when a reply is expected under the key.
    fn register(&self, key: &K, answer: &Shared<V>) -> bool {
        let failures = self.expected.failures.load(Ordering::Acquire);
        let waiting = Waiting { answer: answer.clone(), failures, id: None };
        let decided = match self.expected.waiting.entry(key.clone()) {
            Entry::Occupied(other) if other.get().answer.lock().is_waiting() => return false,
            Entry::Occupied(mut other) => Some(other.insert(waiting)),
            Entry::Vacant(free) => {
                free.insert(waiting);
                None
            }
        };
        drop(decided); // with nothing locked
        true
    }

    /// Delivers a reply to whoever expects it under the key. The value is theirs when this returns;
    /// their task is woken. O(1).
    ///
    /// # Errors
    /// The value, when nobody waits for it: it was not expected, or no longer, or one has come
    /// before.
    pub fn deliver<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: V) -> Result<(), V>
    where
        K: Borrow<Q>,
    {
        let waiting = self.expected.waiting.get(key);
        let Some((answer, id)) = waiting.map(|waiting| (waiting.answer.clone(), waiting.id)) else {
            return Err(value);
        };
        match Answer::fill(&answer, Ok(value)) {
            Ok(waker) => {
                match id {
                    Some(id) => _ = self.purgatory.complete(id),
                    None => _ = self.purgatory.check_and_complete(key), // it is being parked
                }
                self.purgatory.wake(waker);
                Ok(())
            }
            Err(Ok(value)) => Err(value),
            Err(Err(_)) => unreachable!("a value comes back as one"),
        }
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
        let reason = reason.into();
        let before = self.expected.failures.fetch_add(1, Ordering::AcqRel);
        let waiting = self.expected.waiting.iter();
        let old = waiting.filter(|waiting| waiting.failures <= before);
        let old: Vec<_> = old
            .map(|waiting| (Apart::new(waiting.key().clone()), waiting.answer.clone(), waiting.id))
            .collect();
        let fail = |(key, answer, id): &(Apart<K>, Shared<V>, Option<OperationId>)| {
            let failed = WaitError::Cancelled(CancelReason::Requested(reason.clone()));
            let Ok(waker) = Answer::fill(answer, Err(failed)) else { return false };
            match id {
                Some(id) => _ = self.purgatory.cancel(*id, reason.clone()),
                None => _ = self.purgatory.check_and_complete(key.get()), // it is being parked
            }
            self.purgatory.wake(waker);
            true
        };
        let failed = old.iter().filter(|old| fail(old)).count();
        drop_each(old);
        failed
    }

    /// How many replies are expected. Exact when nothing moves. O(rooms).
    pub fn expected(&self) -> usize {
        self.purgatory.len()
    }

    /// Ends all that is expected as Cancelled and refuses what comes later. See
    /// [`Purgatory::shutdown`].
    pub fn shutdown(&self) {
        self.purgatory.shutdown();
    }
}

impl<K, V> From<Purgatory<K, BoxedOperation>> for Replies<K, V>
where
    K: WatchKey + Send + Sync,
    V: Send + 'static,
{
    /// Over a purgatory that was configured otherwise: a shared timer, a bound. For its metrics and
    /// snapshots keep a clone of it.
    fn from(purgatory: Purgatory<K, BoxedOperation>) -> Self {
        let (waiting, failures) = (DashMap::default(), AtomicU64::new(0));
        Replies { purgatory, expected: Arc::new(Expected { waiting, failures }) }
    }
}

impl<K, V> Clone for Replies<K, V>
where
    K: WatchKey + Send + Sync,
    V: Send + 'static,
{
    fn clone(&self) -> Self {
        Replies { purgatory: self.purgatory.clone(), expected: self.expected.clone() }
    }
}

impl<K, V> fmt::Debug for Replies<K, V>
where
    K: WatchKey + Send + Sync,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("purgatory", &self.purgatory).finish_non_exhaustive()
    }
}

/// A future of a reply, made by [`Replies::expect`]. On any runtime, or none.
///
/// It yields a [`WaitError`] when the time ran out, all replies failed, or the purgatory was shut
/// down or refused it.
///
/// # Cancel safety
/// Dropped, it leaves nothing: the key is free, and a late reply is handed back by
/// [`deliver`](Replies::deliver). A value that was delivered before goes to the hook of
/// [`expect_or`](Replies::expect_or), and is dropped without one.
///
/// # Panics
/// When polled again after it was ready.
#[must_use = "dropped, it expects nothing"]
#[derive(Debug)]
pub struct Reply<V> {
    wait: WaitFuture<V>,
}

impl<V> Reply<V> {
    /// Blocks this thread until the reply is there, or why not. The future may have been polled
    /// before.
    ///
    /// # Errors
    /// [`WaitError`]; [`InsideCallback`](WaitError::InsideCallback) when it would have to wait
    /// inside a check, a callback or a timer's task, and then the reply is not expected any more.
    pub fn wait_blocking(self) -> Result<V, WaitError> {
        self.wait.block()
    }
}

impl<V> Future for Reply<V> {
    type Output = Result<V, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.wait).poll(context)
    }
}

/// A reply is expected under this key already. It comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyExpected<K> {
    /// The key.
    pub key: K,
}

impl<K> fmt::Display for AlreadyExpected<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reply is expected under this key already")
    }
}

impl<K: fmt::Debug> Error for AlreadyExpected<K> {}
