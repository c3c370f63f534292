//! The requests of one connection: [`ReplyScope`].
//!
//! A request is parked under two keys: its own, and the key of its scope, which has the number 0.
//! The waiters of that key are the requests of the scope, so there is no table of scopes: a scope
//! without requests has no record anywhere.
//!
//! A scope hands out its numbers in rising order. *Asked* are those up to the last one, so it takes
//! no memory to tell a late reply from one that nothing asked for.

use std::{error::Error, fmt, sync::Arc};

use crate::{
    error::RefusedReason,
    operation::{CancelReason, Timeout, opaque},
    reason::Reason,
    replies::Replies,
    sync::{AtomicU64, HandedBack, Ordering},
    wait::WaitFuture,
};

/// The key of a request that a [`ReplyScope`] numbered: its scope and its number. As a key of a
/// [snapshot](crate::Snapshot), number 0 stands for all requests of the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    scope: u64,
    number: u64,
}

impl RequestId {
    /// Returns the key of this request of the same scope.
    fn of(self, number: u64) -> Self {
        RequestId { number, ..self }
    }
}

impl fmt::Display for RequestId {
    /// Writes the scope, a slash, and the request's number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.number)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The requests of one connection: numbers them, matches their replies, and fails them together.
/// All connections share one [`Replies`].
///
/// The scope numbers its requests from 1. A reply therefore reaches only a request of its own
/// connection, however often that reconnects. A reply without a waiter is known to be
/// [late](Undelivered::is_late) or never asked for.
///
/// This is a handle: clones share the same requests. Dropping the last handle ends all of them as
/// [`Dropped`](CancelReason::Dropped). A handle keeps the purgatory of its `Replies` open.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{CancelReason, Replies, WaitError};
///
/// let replies = Replies::new("replies")?; // one for the whole client
/// let first = replies.scope(); // one for each connection
/// let second = replies.scope();
/// let timeout = Duration::from_secs(30);
/// let (number, reply) = first.expect(timeout)?; // registered ...
/// // ... so now send the request with this number.
/// first.deliver(number, "pong")?;
/// assert_eq!(reply.wait_blocking()?, "pong");
///
/// let twice = first.deliver(number, "pong").unwrap_err();
/// assert!(twice.is_late());
/// let unasked = second.deliver(number, "pong").unwrap_err();
/// assert!(!unasked.is_late());
/// assert_eq!(unasked.into_inner(), "pong");
///
/// let (_, lost) = first.expect(timeout)?;
/// let (number, reply) = second.expect(timeout)?;
/// assert_eq!(first.close("connection closed"), 1);
/// let closed = CancelReason::Requested("connection closed".into());
/// assert_eq!(lost.wait_blocking(), Err(WaitError::Cancelled(closed)));
/// second.deliver(number, "another connection goes on")?;
/// # drop(reply);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Cost
/// A scope is one allocation of 100 bytes or so, and nothing in the purgatory while no request
/// waits. A request has a second watch, in the shard of its scope: three more locks than one of
/// plain [`Replies`]. O(1).
///
/// # Locks
/// Wakers run with nothing locked.
pub struct ReplyScope<V: Send + 'static> {
    shared: Arc<Shared<V>>,
}

struct Shared<V: Send + 'static> {
    replies: Replies<RequestId, V>,
    /// The key that the requests of the scope share.
    key: RequestId,
    /// The number of the last request; 0 before the first.
    last: AtomicU64,
    /// 1 once the scope is closed.
    closed: AtomicU64,
}

impl<V: Send + 'static> Replies<RequestId, V> {
    /// Makes a scope for the requests of one connection, with its own numbers. O(1).
    pub fn scope(&self) -> ReplyScope<V> {
        let scope = self.core().next_scope();
        let shared = Shared {
            replies: self.clone(),
            key: RequestId { scope, number: 0 },
            last: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        };
        ReplyScope {
            shared: Arc::new(shared),
        }
    }
}

impl<V: Send + 'static> ReplyScope<V> {
    /// Expects a reply to a new request, and returns the request's number with the reply. It is
    /// registered when this returns, so send the request after that. The timeout counts from here.
    /// O(1).
    ///
    /// Numbers rise by 1, in the order of the calls. A refused request uses one up.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. Dropping the future ends the request, and [`deliver`](Self::deliver)
    /// hands a late reply back.
    ///
    /// # Errors
    /// [`ScopeClosed`](RefusedReason::ScopeClosed) if the scope was [closed](Self::close),
    /// [`Closed`](RefusedReason::Closed) if the purgatory was shut down,
    /// [`Full`](RefusedReason::Full) or [`TooHeavy`](RefusedReason::TooHeavy) if it is full. Send
    /// nothing then.
    pub fn expect(
        &self,
        timeout: impl Into<Timeout>,
    ) -> Result<(u64, WaitFuture<V>), RefusedReason> {
        let shared = &*self.shared;
        let number = shared.last.fetch_add(1, Ordering::AcqRel) + 1;
        let keys = [shared.key.of(number), shared.key];
        let reply = shared.replies.expect_under(&keys, timeout.into())?;
        // A `close` that looked at the requests before this one was among them is seen here.
        if shared.closed.load(Ordering::Acquire) != 0 && !failpoint!(ClosedScopeExpects) {
            return Err(RefusedReason::ScopeClosed); // dropping the reply ends it
        }
        Ok((number, reply))
    }

    /// Delivers a reply to the request with this number, and wakes its task. When this returns, the
    /// request has the value. O(1).
    ///
    /// # Errors
    /// [`Undelivered`] hands the value back if the request does not wait for it, and says whether
    /// it [ever did](Undelivered::is_late).
    pub fn deliver(&self, number: u64, value: V) -> Result<(), Undelivered<V>> {
        let shared = &*self.shared;
        // Number 0 is the scope's own key.
        let delivered = if number == 0 {
            Err(value)
        } else {
            shared.replies.deliver(&shared.key.of(number), value)
        };
        delivered.map_err(|value| Undelivered {
            value: HandedBack::new(value),
            is_late: (1..=shared.last.load(Ordering::Acquire)).contains(&number),
        })
    }

    /// Fails the requests of this scope that were expected before this call, as
    /// [`Requested`](CancelReason::Requested) with this reason; returns how many. Requests expected
    /// later, and those of other scopes, are not touched. O(n) for n requests of the scope.
    ///
    /// The set is fixed before any task is woken. Use [`close`](Self::close) for a connection that
    /// does not come back.
    pub fn fail_all(&self, reason: impl Into<Reason>) -> usize {
        self.shared.fail(CancelReason::Requested(reason.into()))
    }

    /// Fails the requests of this scope, as [`fail_all`](Self::fail_all) does, and refuses those
    /// expected from now on. Returns how many this call failed.
    ///
    /// A request that another thread is expecting meanwhile is failed or refused. Make a new scope
    /// for the next connection.
    pub fn close(&self, reason: impl Into<Reason>) -> usize {
        self.shared.closed.store(1, Ordering::Release);
        self.fail_all(reason)
    }
}

impl<V: Send + 'static> Shared<V> {
    /// Ends the requests that are on the scope's list now.
    fn fail(&self, reason: CancelReason) -> usize {
        // Shard by shard, a later request could fail and an earlier one not.
        if failpoint!(FailsWhatCameAfter) {
            return self.replies.core().cancel_all(reason);
        }
        self.replies.core().cancel_for_key(&self.key, reason)
    }
}

impl<V: Send + 'static> Drop for Shared<V> {
    fn drop(&mut self) {
        self.fail(CancelReason::Dropped);
    }
}

impl<V: Send + 'static> Clone for ReplyScope<V> {
    fn clone(&self) -> Self {
        ReplyScope {
            shared: self.shared.clone(),
        }
    }
}

opaque!([V: Send + 'static] ReplyScope<V>, scope: shared.key.scope);

/// A reply without a waiter, handed back by [`ReplyScope::deliver`].
#[must_use = "the reply is in it"]
pub struct Undelivered<V> {
    value: HandedBack<V>,
    is_late: bool,
}

impl<V> Undelivered<V> {
    /// Returns true if the request was asked in this scope and is over: it timed out, failed, was
    /// given up, or has had a reply. Returns false if the scope never handed its number out: the
    /// peer confuses connections, or does not keep to the protocol.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Returns the reply.
    pub fn into_inner(self) -> V {
        self.value.into_inner()
    }
}

opaque!([V] Undelivered<V>, is_late: is_late);

impl<V> fmt::Display for Undelivered<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_late {
            "a late reply: its request is over"
        } else {
            "a reply to a request that was never asked"
        })
    }
}

impl<V> Error for Undelivered<V> {}
