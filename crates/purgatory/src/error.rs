//! Errors: why an operation was not parked, and why a wait ended without a value.

use std::{error::Error, fmt};

use crate::{
    operation::{CancelReason, Outcome, opaque},
    sync::HandedBack,
};

/// An operation that was not parked, the key of a reply that cannot be
/// [expected](crate::Replies::expect), or a reply that no request of its
/// [scope](crate::ReplyScope::deliver) waits for, handed back with the reason.
///
/// The operation's `on_complete` was not called. Answer it, or try again.
///
/// The error is `Send`, `Sync` and `'static` for every `Send` operation, so `?` converts it into
/// `Box<dyn Error + Send + Sync>` or `anyhow::Error`. [`WaitError`] is the error without the
/// operation.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{Purgatory, WaitError, when};
///
/// let waits = Purgatory::builder("bounded").max_parked(1).build()?;
/// let timeout = Duration::from_secs(30);
/// waits.try_complete_else_watch(when(|| false, drop), &["key"], timeout)?;
/// let one_more = waits.try_complete_else_watch(when(|| false, drop), &["key"], timeout);
/// let refused = one_more.unwrap_err();
/// assert_eq!(refused.reason, WaitError::Full { limit: 1 });
/// drop(refused.into_inner()); // it is ours again
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "what was refused is in it, unanswered"]
#[non_exhaustive]
pub struct Refused<O> {
    value: HandedBack<O>,
    /// The reason.
    pub reason: WaitError,
}

impl<O> Refused<O> {
    pub(crate) fn new(value: O, reason: WaitError) -> Self {
        Refused {
            value: HandedBack::new(value),
            reason,
        }
    }

    /// Returns the operation, the key, or the reply.
    pub fn into_inner(self) -> O {
        self.value.into_inner()
    }
}

impl<O> From<Refused<O>> for WaitError {
    fn from(refused: Refused<O>) -> Self {
        refused.reason
    }
}

/// The reason why a wait ended without a value, or why a call was refused: the error of every form.
/// See [`Purgatory::wait`](crate::Purgatory::wait).
///
/// # In a loop
/// Retry only after [`Expired`](Self::Expired), or over the next connection when one is lost. Most
/// other errors come at once, and would come again at once, so a loop that retries after every
/// error spins. Leave the loop instead:
///
/// ```
/// use std::{collections::VecDeque, time::Duration};
/// use purgatory::{Monitor, WaitError};
///
/// fn work(queue: &Monitor<&'static str, VecDeque<u32>>) -> WaitError {
///     loop {
///         let job = queue.wait(&["jobs"], Duration::from_secs(1), |jobs| jobs.pop_front());
///         match job.wait_blocking() {
///             Ok(job) => println!("job {job}"),
///             Err(error) if error.is_expired() => println!("no job for a second"),
///             Err(error) => return error, // shut down, full, or where no thread may block
///         }
///     }
/// }
///
/// let queue = Monitor::new("queue", VecDeque::from([7]))?;
/// queue.purgatory().shutdown(Duration::ZERO);
/// assert_eq!(work(&queue).to_string(), "the purgatory was shut down"); // after job 7
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
///
/// # Which one
/// Every form reports the first of these that applies when a wait comes:
///
/// 1. A close: of the form ([`Closed`](Self::Closed)), or of the key, scope or permits.
/// 2. An argument that no event can satisfy: [`NoKeys`](Self::NoKeys),
///    [`TooHeavy`](Self::TooHeavy), [`NoGroup`](Self::NoGroup), [`OtherEpoch`](Self::OtherEpoch).
/// 3. A key that is taken: [`AlreadyExpected`](Self::AlreadyExpected).
/// 4. A condition that holds: no error.
/// 5. No time to wait: [`Expired`](Self::Expired). Such a wait needs no place.
/// 6. No place: [`Full`](Self::Full).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout came first.
    Expired,
    /// The wait was cancelled, by a call or with its purgatory, or its condition panicked.
    Cancelled(CancelReason),
    /// The thread must not block, since the end of the wait may need it: it runs a check, a
    /// callback or a timer's task, or it runs the tasks of a tokio runtime, and the timer or the
    /// executor is on a runtime. Await the future there, or block in `spawn_blocking`. In a child
    /// of `fork` every thread is refused: the timer's threads are in the parent.
    MustNotBlock,
    /// The operation has no watch key, so nothing could complete it.
    NoKeys,
    /// The purgatory or its timer was shut down.
    Closed,
    /// The [scope](crate::ReplyScope::close) of the request was closed.
    ScopeClosed,
    /// The purgatory, or one of its shards, is full.
    Full {
        /// The maximum number of operations.
        limit: usize,
    },
    /// The request asks for more [permits](crate::Permits) than there are.
    TooHeavy {
        /// The number of permits that it asks for.
        weight: u64,
        /// The limit of its key.
        limit: u64,
    },
    /// Another reply is expected under this key.
    AlreadyExpected,
    /// No reply is expected under this number. From
    /// [`ReplyScope::reassign`](crate::ReplyScope::reassign): no request waits under it. From
    /// [`ReplyScope::deliver`](crate::ReplyScope::deliver): the scope never handed the number out;
    /// the peer confuses connections, or does not keep to the protocol.
    NotExpected,
    /// The reply is late: its request timed out, failed, was given up, or has had a reply.
    Late,
    /// Too many keys have a value.
    TooManyKeys {
        /// The maximum number of keys with a value.
        limit: usize,
    },
    /// The key is in another epoch than the call names; or the epoch that the call was to begin has
    /// begun already. See [`Watermarks::begin_epoch`](crate::Watermarks::begin_epoch).
    OtherEpoch {
        /// The epoch that the call names.
        named: u64,
        /// The epoch of the key.
        present: u64,
    },
    /// The key was [closed](crate::Watermarks::close): its value changes no more.
    KeyClosed,
    /// The group was never [set](crate::ReplicaSets::set), or was removed; or its set is with the leader
    /// that this process [follows](crate::ReplicaSets::follow).
    NoGroup,
    /// The member is not in the replica set.
    NoMember,
    /// The member is in the replica set already, or is named twice.
    IsMember,
    /// The member lacks values that it needs to be in the replica set: it must have reached the
    /// watermark, and the leader's log end at the beginning of the epoch. A leader must have
    /// reached the watermark.
    Behind {
        /// The distance from the value that it has to the value that it needs, in
        /// [ranks](crate::WatermarkValue::to_rank): of integers, the difference.
        by: u64,
    },
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a full stop, since `Refused` puts it into a sentence.
        match self {
            Self::Expired => f.write_str("the time ran out"),
            Self::Cancelled(reason) => write!(f, "cancelled: {reason}"),
            Self::MustNotBlock => f.write_str(
                "this thread must not block: it runs a check, a callback or a runtime's tasks, which \
                 the end of the wait may need",
            ),
            Self::NoKeys => f.write_str("no watch key"),
            Self::Closed => f.write_str("the purgatory was shut down"),
            Self::ScopeClosed => f.write_str("the scope of the request was closed"),
            Self::Full { limit } => write!(f, "the limit of {limit} parked operations is reached"),
            Self::TooHeavy { weight, limit } => {
                write!(f, "{weight} permits are more than the limit of {limit}")
            }
            Self::AlreadyExpected => f.write_str("a reply is expected under this key already"),
            Self::NotExpected => f.write_str("no reply is expected under this number"),
            Self::Late => f.write_str("a late reply: its request is over"),
            Self::TooManyKeys { limit } => {
                write!(f, "the limit of {limit} keys with a value is reached")
            }
            Self::OtherEpoch { named, present } if named == present => {
                write!(f, "epoch {present} has begun already")
            }
            Self::OtherEpoch { named, present } => {
                write!(f, "the key is in epoch {present}, not in {named}")
            }
            Self::KeyClosed => f.write_str("the key was closed"),
            Self::NoGroup => f.write_str("the group has no replica set here"),
            Self::NoMember => f.write_str("it is not in the replica set"),
            Self::IsMember => f.write_str("it is in the replica set already"),
            Self::Behind { by } => {
                write!(f, "it is {by} behind what it needs to be in the replica set, or to lead it")
            }
        }
    }
}

opaque!([O] Refused<O>, reason: reason);

impl<O> fmt::Display for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            // A reply is never parked.
            WaitError::NotExpected | WaitError::Late => self.reason.fmt(f),
            reason => write!(f, "not parked: {reason}"),
        }
    }
}

impl<O> Error for Refused<O> {}

impl Error for WaitError {}

impl WaitError {
    /// Returns true when the timeout came first. A loop should end at
    /// [every other error](Self#in-a-loop).
    pub fn is_expired(&self) -> bool {
        *self == WaitError::Expired
    }

    /// Returns true when the purgatory, its timer, its key or the request's scope was shut down,
    /// closed or dropped: the call was refused ([`Closed`](Self::Closed),
    /// [`KeyClosed`](Self::KeyClosed), [`ScopeClosed`](Self::ScopeClosed)), as every later one is,
    /// or the wait was cancelled as [`Shutdown`](CancelReason::Shutdown),
    /// [`Closed`](CancelReason::Closed) or [`Dropped`](CancelReason::Dropped). So after a `close`
    /// it is true for the waits that were parked and for later ones. O(1).
    ///
    /// Returns false for a cancel with a reason of the caller's, whatever the reason says.
    ///
    /// A server sends such a client to another server, and an RPC client recognises a
    /// [lost connection](crate::guide::rpc) by the variant. At a limit, the client tries again
    /// later:
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, WaitError};
    ///
    /// fn http_status(error: &WaitError) -> u16 {
    ///     if error.is_expired() {
    ///         204 // no news
    ///     } else if error.is_shutdown() || error.is_busy() {
    ///         503 // elsewhere, or later
    ///     } else {
    ///         500
    ///     }
    /// }
    ///
    /// let waits = Purgatory::builder("bounded").max_parked(1).build()?;
    /// let parked = waits.wait(&["key"], Duration::from_secs(30), || false);
    /// let one_more = waits.wait(&["key"], Duration::from_secs(30), || false);
    /// let busy = one_more.wait_blocking().unwrap_err();
    /// assert!(busy.is_busy() && !busy.is_shutdown());
    ///
    /// waits.shutdown(Duration::ZERO);
    /// let ended = parked.wait_blocking().unwrap_err();
    /// assert!(ended.is_shutdown() && !ended.is_busy());
    /// assert_eq!([http_status(&busy), http_status(&ended)], [503; 2]);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn is_shutdown(&self) -> bool {
        match self {
            WaitError::Closed | WaitError::ScopeClosed | WaitError::KeyClosed => true,
            WaitError::Cancelled(reason) => {
                matches!(
                    reason,
                    CancelReason::Shutdown | CancelReason::Dropped | CancelReason::Closed(_)
                )
            }
            _ => false,
        }
    }

    /// Returns true when a limit is reached ([`Full`](Self::Full),
    /// [`TooManyKeys`](Self::TooManyKeys)). The same call may succeed later, when other waits have
    /// ended, but at once it would be refused again. For more [`Permits`](crate::Permits) than
    /// their limit, which are never given, this returns false. O(1).
    pub fn is_busy(&self) -> bool {
        matches!(self, WaitError::Full { .. } | WaitError::TooManyKeys { .. })
    }

    /// Converts the outcome of a wait that has no value.
    pub(crate) fn of(outcome: Outcome) -> WaitError {
        match outcome {
            Outcome::Completed => {
                WaitError::Cancelled(CancelReason::Requested("completed without a value".into()))
            }
            Outcome::Expired => WaitError::Expired,
            Outcome::Cancelled(reason) => WaitError::Cancelled(reason),
        }
    }
}
