//! Requests and their replies: [`Replies`] matches them by keys that the caller chooses,
//! [`ReplyScope`] by numbers that each scope gives out.

mod engine;
mod many;
mod member;
mod scope;

use std::sync::Arc;

use timer_core::{BuildError, Timer};

use crate::{
    builder::Builder,
    error::Refused,
    operation::{CancelReason, Timeout, opaque},
    reason::Reason,
    replies::{engine::Requests, many::Buffer},
    settings::{Form, Settings},
    table::{Table, handle::Handle},
    wait::WaitFuture,
    waits::Waits,
    watches::{KeyRef, WatchKey},
};

pub use self::{many::ReplyStream, scope::ReplyScope};

/// Matches replies with requests: each reply is delivered to the waiter of its request's key.
///
/// Call [`expect`](Self::expect) first, then send the request. [`deliver`](Self::deliver) hands
/// back a reply that has no waiter because it is late, a duplicate, or was never asked for. A
/// client with many connections uses [`ReplyScope`]s instead.
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
/// A reply takes one lock to register it, one to deliver it, one for each poll, and one clock read.
/// There is no allocation, and the key is not copied. O(1). Space for the reply is taken from
/// [`expect`](Self::expect) on: keep large replies in a `Box`.
///
/// # Locks
/// A key's `Eq` runs under the lock of its shard and must not call back. Wakers run with nothing
/// locked.
pub struct Replies<K: WatchKey, V: Send + 'static> {
    handle: Handle<Requests<K, V>>,
}

/// Construction.
impl<K: WatchKey, V: Send + 'static> Replies<K, V> {
    /// Makes `Replies` on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels its metrics.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`](crate::Purgatory::new) does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes `Replies` on `timer`, as [`new`](Self::new) does on the shared one. O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::Replies;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let replies: Replies<u32, &str> = Replies::on(&timer, "replies")?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).timer(timer).build()
    }

    /// Returns a builder, for other settings such as a shared timer or a bound.
    ///
    /// ```
    /// use purgatory::Replies;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let replies: Replies<u64, String> =
    ///     Replies::builder("replies").timer(&timer).max_parked(10_000).build()?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        Builder::new(name, ())
    }
}

impl<K: WatchKey, V: Send + 'static> Form for Replies<K, V> {
    type Own = ();

    fn build(settings: Settings, (): ()) -> Result<Self, BuildError> {
        Ok(Replies {
            handle: Handle::new(settings, Requests::default())?,
        })
    }
}

impl<K: WatchKey, V: Send + 'static> Replies<K, V> {
    /// Expects a reply under this key. The reply is registered when this returns, so send the
    /// request after that. The timeout counts from here. O(1).
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. Dropping the future frees the key, and [`deliver`](Self::deliver) hands
    /// a late reply back.
    ///
    /// # Errors
    /// [`Refused`] hands the key back if another reply is expected under it
    /// ([`AlreadyExpected`](crate::WaitError::AlreadyExpected)), after a shutdown, or when too many
    /// replies are expected.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. Then no reply is expected.
    pub fn expect(&self, key: K, timeout: impl Into<Timeout>) -> Result<WaitFuture<V>, Refused<K>> {
        self.handle.expect(key, timeout.into(), || None)
    }

    /// Expects up to `count` replies under this key, for a subscription or a request to many
    /// servers. Each [`deliver`](Self::deliver) under the key adds one. The last one ends the
    /// request as Completed and frees the key; the timeout ends it with fewer. See [`ReplyStream`].
    /// O(1).
    ///
    /// At most `count` replies are kept for a task that does not take them; with `usize::MAX` there
    /// is no bound. A `count` of 0 counts as 1.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use purgatory::Replies;
    ///
    /// let replies = Replies::new("replies")?;
    /// let timeout = Duration::from_secs(30);
    /// let ends = |page: &&str| page.ends_with('.');
    /// let mut pages = replies.expect_many(7, 100, timeout)?.until(ends);
    /// // On the thread that reads the connection:
    /// replies.deliver(&7, "Once upon a time,")?;
    /// replies.deliver(&7, "the end.")?;
    ///
    /// let mut read = Vec::new();
    /// while let Some(page) = pages.next_reply().await {
    ///     read.push(page?);
    /// }
    /// assert_eq!(read, ["Once upon a time,", "the end."]);
    /// assert_eq!(replies.deliver(&7, "more"), Err("more")); // the key is free
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Refused`], as for [`expect`](Self::expect).
    ///
    /// # Panics
    /// Panics as [`expect`](Self::expect) does.
    pub fn expect_many(
        &self,
        key: K,
        count: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<ReplyStream<V>, Refused<K>> {
        let buffer = Arc::new(Buffer::new(count));
        let shared = || Some(buffer.clone());
        let last = self.handle.expect(key, timeout.into(), shared)?;
        Ok(ReplyStream::new(buffer, last, self.handle.share()))
    }

    /// Delivers a reply to the waiter of its key, and wakes the waiter's task. When this returns,
    /// the waiter has the value and the key is free. O(1).
    ///
    /// Inside a waker or a callback, waking the task is left to the
    /// [outermost call](crate::guide::your_code), so a chain of tasks that each deliver the next
    /// reply needs no stack.
    ///
    /// # Errors
    /// Hands the value back if it has no waiter: it was not expected, the wait has ended, or
    /// another reply came before.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics. Then nothing was delivered, and the
    /// value is dropped.
    pub fn deliver<Q: KeyRef<K> + ?Sized>(&self, key: &Q, value: V) -> Result<(), V> {
        self.handle.table.deliver(key, value)
    }

    /// Sets a new timeout, counted from now, for the reply that is expected under this key; returns
    /// false if no reply is. See [`ReplyScope::reschedule`]. O(levels of the wheel).
    ///
    /// # Panics
    /// Panics as [`expect`](Self::expect) does. Then the deadline stays as it was.
    pub fn reschedule<Q: KeyRef<K> + ?Sized>(&self, key: &Q, timeout: impl Into<Timeout>) -> bool {
        let table = &self.handle.table;
        let hash = table.hash(key);
        let arrival = table.arrival(timeout.into());
        let is_it = |_, key_of: &K| key.is(key_of);
        Table::reschedule_request(table.shard_of(hash), hash as u32, is_it, arrival)
    }

    /// Fails all replies that were expected before this call, as
    /// [`Requested`](CancelReason::Requested) with this reason; returns how many. O(expected).
    ///
    /// Use it when a connection closes. Replies expected from now on, over the next connection, are
    /// not touched. No task is woken before the last failed reply has ended.
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
        self.handle.table.fail_all(reason)
    }

    /// Returns the requests that wait, for metrics, snapshots and the
    /// [shutdown](Waits::shutdown). O(1).
    pub fn waits(&self) -> Waits<K> {
        self.handle.waits()
    }
}

impl<K: WatchKey, V: Send + 'static> Clone for Replies<K, V> {
    fn clone(&self) -> Self {
        Replies {
            handle: self.handle.clone(),
        }
    }
}

opaque!([K: WatchKey, V: Send + 'static] Replies<K, V>, name: handle.table.frame.name);
