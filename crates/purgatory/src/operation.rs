//! The operation: its trait, its id, and how it ends.

use std::{borrow::Cow, error::Error, fmt, time::Duration};

use timer_core::{TickLength, TimerHandle};

use crate::sync::plain::Mutex;

/// `Debug` for a type whose parts are the user's or locked: its name, and one field at most.
macro_rules! opaque {
    ([$($bounds:tt)*] $name:ident$(<$($of:tt),+>)? $(, $field:ident: $($path:ident).+)?) => {
        impl<$($bounds)*> std::fmt::Debug for $name$(<$($of),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$($path).+))?
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use opaque;

/// A request that cannot be answered yet: a condition to check, and what to do when it is over.
///
/// Both run with nothing of the purgatory locked, one at a time for one operation: while a thread
/// checks it, nobody else does, so neither asks for `Sync`. A [`Purgatory`](crate::Purgatory) takes
/// operations that are `Send`.
///
/// An operation is moved by value from call to call. One of 4 KB takes up to 256 KB of a thread's
/// stack. A release build with one of 16 KB takes about 40 seconds of a processor's time, with one
/// of 64 KB more than twelve minutes: keep large state in a `Box`.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use purgatory::{DelayedOperation, Outcome};
///
/// /// A produce with acks=all waits until the high watermark passes its records.
/// struct DelayedProduce<W> {
///     high_watermark: W,
///     required_offset: u64,
///     reply: mpsc::Sender<Outcome>,
/// }
///
/// impl<W: Fn() -> u64 + Send + 'static> DelayedOperation for DelayedProduce<W> {
///     fn try_complete(&mut self) -> bool {
///         (self.high_watermark)() >= self.required_offset
///     }
///
///     fn on_complete(self, outcome: Outcome) {
///         let _ = self.reply.send(outcome);
///     }
/// }
/// ```
pub trait DelayedOperation: Send + 'static {
    /// False for operations that no event checks: [`Expected`](crate::Expected) replies.
    #[doc(hidden)]
    const CHECKED: bool = true;

    /// The check: true when the condition holds now. It decides, so the operation ends as
    /// [`Completed`](Outcome::Completed) when it returns true.
    ///
    /// It runs on whichever thread parks the operation or raises an event on one of its keys (for a
    /// [recheck](crate::Builder::recheck_every) or
    /// [last check](crate::Builder::check_at_expiry) on the executor), and must not block: while it
    /// runs the operation can neither expire nor be cancelled. It may be called any number of
    /// times, but not again once it returned true. It may call the purgatory; what that ends is
    /// told after the outermost call.
    ///
    /// # Panics
    /// A panic in it is contained, and ends the operation as [`Panicked`](CancelReason::Panicked),
    /// or as what was noted while it ran: its time was up, or it was cancelled.
    fn try_complete(&mut self) -> bool;

    /// How heavy it is, for [`max_weight`](crate::Builder::max_weight): 1 by default, or the bytes
    /// that it keeps, say. May be 0.
    ///
    /// Asked once, when it has to wait and the purgatory has that bound, by the thread that parks
    /// it and with nothing locked; what it says later changes nothing. A panic in it reaches that
    /// thread, and nothing was parked.
    fn weight(&self) -> u64 {
        1
    }

    /// The check without an event: while it waits, or when its time is up.
    #[doc(hidden)]
    fn check_without_event(&mut self) -> bool {
        self.try_complete()
    }

    /// Called exactly once, with how the operation ended, which is out of every list by then.
    ///
    /// Runs on the thread that completed or cancelled it; on the executor when it
    /// [`Expired`](Outcome::Expired), or [always](crate::Builder::callbacks_on_executor). It may
    /// park, raise events and cancel.
    ///
    /// So it is not always inside a runtime: a `tokio::spawn` in it works when a task of the
    /// runtime completed it, and panics on the timer's workers when it expired, unless they are the
    /// runtime's (its `Handle` is an executor, with the feature `tokio`). Or keep that `Handle` in
    /// the operation and spawn on it.
    ///
    /// # Panics
    /// A panic in it is contained and counted.
    fn on_complete(self, outcome: Outcome)
    where
        Self: Sized;
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Its check came true, the last of its watermarks was reached, or it was completed by a call.
    Completed,
    /// Its time ran out first.
    Expired,
    /// It was given up.
    Cancelled(CancelReason),
}

/// Why an operation was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// Somebody asked for it, with this reason.
    Requested(Cow<'static, str>),
    /// The purgatory or its timer was shut down.
    Shutdown,
    /// The last handle of the purgatory was dropped.
    Dropped,
    /// Its check panicked.
    Panicked,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Expired => f.write_str("expired"),
            Outcome::Cancelled(reason) => write!(f, "cancelled: {reason}"),
        }
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CancelReason::Requested(reason) => f.write_str(reason),
            CancelReason::Shutdown => f.write_str("shut down"),
            CancelReason::Dropped => f.write_str("its purgatory was dropped"),
            CancelReason::Panicked => f.write_str("its check panicked"),
        }
    }
}

/// Names a parked operation, to cancel, complete or reschedule it by. Never reused; to another
/// purgatory it names an operation that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId {
    pub(crate) handle: TimerHandle,
    /// The purgatory's number.
    pub(crate) purgatory: u32,
}

impl fmt::Display for OperationId {
    /// Hexadecimal digits: the purgatory's number, a dash, the operation's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.purgatory, self.handle.to_bits())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for OperationId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The state of an operation when the call that parks it returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkResult {
    /// It is parked (and may be over a moment later).
    Parked(OperationId),
    /// It is over: its `on_complete` was, or is about to be, called with this.
    Ended(Outcome),
}

impl ParkResult {
    /// Its name, if it is parked.
    pub(crate) fn id(self) -> Option<OperationId> {
        match self {
            ParkResult::Parked(id) => Some(id),
            ParkResult::Ended(_) => None,
        }
    }
}

/// How long an operation may wait, counted from the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timeout {
    /// This long, rounded up to a tick of the timer. Zero: one check, then it expires.
    After(Duration),
    /// Until this moment of the timer's clock, in nanoseconds since its origin; rounded up to a
    /// tick. One in the past: one check, then it expires.
    At(u64),
    /// Until something completes or cancels it.
    Never,
}

impl Timeout {
    /// The tick of the deadline; `None` for never.
    pub(crate) fn deadline(self, tick: TickLength, now_ns: u64) -> Option<u64> {
        match self {
            Timeout::At(deadline_ns) => Some(tick.round_up(deadline_ns)),
            Timeout::After(delay) => Some(tick.deadline(now_ns, delay)),
            Timeout::Never => None,
        }
    }

    /// How an operation ends that need not be parked: its first check was enough, or there is no
    /// time.
    #[inline]
    pub(crate) fn at_once(self, first: Verdict, now_ns: u64) -> Option<Outcome> {
        match (first, self) {
            (Verdict::Satisfied, _) => Some(Outcome::Completed),
            (Verdict::Panicked, _) => Some(Outcome::Cancelled(CancelReason::Panicked)),
            (_, Timeout::After(delay)) if delay.is_zero() => Some(Outcome::Expired),
            (_, Timeout::At(deadline_ns)) if deadline_ns <= now_ns => Some(Outcome::Expired),
            _ => None,
        }
    }
}

impl From<Duration> for Timeout {
    fn from(duration: Duration) -> Self {
        Timeout::After(duration)
    }
}

/// The result of ending one operation from outside.
///
/// ```
/// use purgatory::{EndResult, ParkResult, Purgatory, Timeout, when};
///
/// let waits = Purgatory::new("waits")?;
/// let parked = waits.try_complete_else_watch(when(|| false, drop), &["key"], Timeout::Never)?;
/// let ParkResult::Parked(id) = parked else { unreachable!("its check is never true") };
/// assert_eq!(waits.complete(id), EndResult::Ended);
/// assert_eq!(waits.cancel(id, "too late"), EndResult::Gone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndResult {
    /// It ended, by this call. Its callback has run, or is about to.
    Ended,
    /// A thread is checking it right now, and ends it: as Completed if that check comes true,
    /// otherwise as asked (or as whatever was noted before).
    Noted,
    /// It had ended already.
    Gone,
}

/// A refused operation, whose `on_complete` was not called, or the key of a reply that cannot be
/// [expected](crate::Replies::expect). It is handed back: answer it, or try again.
///
/// As an error it is `Send`, `Sync` and `'static` for every `Send` operation, so `?` takes it into
/// `Box<dyn Error + Send + Sync>` or `anyhow::Error` as it is, the operation inside; and
/// [`RefusedReason`] is the same without the operation, for those that are not `Send`.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{Purgatory, RefusedReason, when};
///
/// let waits = Purgatory::builder("bounded").max_parked(1).build()?;
/// let (operation, timeout) = (|| when(|| false, drop), Duration::from_secs(30));
/// waits.try_complete_else_watch(operation(), &["key"], timeout)?;
/// let refused = waits.try_complete_else_watch(operation(), &["key"], timeout).unwrap_err();
/// assert_eq!(refused.reason, RefusedReason::Full { limit: 1 });
/// drop(refused.into_inner()); // it is ours again
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "the operation is in it, unanswered"]
#[non_exhaustive]
pub struct Refused<O> {
    /// Never locked: so it is `Sync` for a value that is not.
    value: Mutex<O>,
    /// Why.
    pub reason: RefusedReason,
}

impl<O> Refused<O> {
    pub(crate) fn new(value: O, reason: RefusedReason) -> Self {
        Refused {
            value: Mutex::new(value),
            reason,
        }
    }

    /// The operation, or the key.
    pub fn into_inner(self) -> O {
        self.value.into_inner()
    }
}

impl<O> From<Refused<O>> for RefusedReason {
    fn from(refused: Refused<O>) -> Self {
        refused.reason
    }
}

/// Why a wait was refused. An error by itself: `Send` and `Sync` whatever the operation is, as `?`
/// into `anyhow::Error` wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedReason {
    /// No watch key: nothing could ever complete it.
    NoKeys,
    /// The purgatory, or its timer, was shut down.
    Closed,
    /// As many operations are parked as the purgatory was built to take, or as one shard can
    /// take.
    Full {
        /// How many those are.
        limit: usize,
    },
    /// It does not fit: what is parked would be heavier than the purgatory was built to take.
    TooHeavy {
        /// How heavy it is.
        weight: u64,
        /// How heavy all may be together.
        limit: u64,
    },
    /// More watermarks to be counted than one operation can have.
    TooManyWatermarks {
        /// How many it can have.
        limit: usize,
    },
    /// A reply is expected under this key already.
    AlreadyExpected,
    /// As many keys have a watermark as may have one.
    TooManyKeys {
        /// How many those are.
        limit: usize,
    },
    /// No `k` of these `n` keys: `k` is 0 or above `n`.
    NoQuorum {
        /// How many keys were to reach their value.
        k: usize,
        /// How many keys there are.
        n: usize,
    },
    /// A key comes twice in a quorum, where it would count twice.
    RepeatedKey,
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str("no watch key"),
            Self::Closed => f.write_str("the purgatory was shut down"),
            Self::Full { limit } => write!(f, "no more than {limit} can be parked"),
            Self::TooHeavy { weight, limit } => {
                write!(
                    f,
                    "a weight of {weight} does not fit, of at most {limit} together"
                )
            }
            Self::TooManyWatermarks { limit } => {
                write!(f, "more than {limit} watermarks to count in one operation")
            }
            Self::AlreadyExpected => f.write_str("a reply is expected under this key already"),
            Self::TooManyKeys { limit } => {
                write!(f, "no more than {limit} keys can have a watermark")
            }
            Self::NoQuorum { k, n } => {
                write!(f, "{k} of {n} keys is no quorum: between 1 and {n} are")
            }
            Self::RepeatedKey => f.write_str("a key comes twice in the quorum"),
        }
    }
}

opaque!([O] Refused<O>, reason: reason);

impl<O> fmt::Display for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not parked: {}", self.reason)
    }
}

impl<O> Error for Refused<O> {}

impl Error for RefusedReason {}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Satisfied,
    Unsatisfied,
    Panicked,
}

/// Why a wait ended without a value. See [`Purgatory::wait`](crate::Purgatory::wait).
///
/// # In a loop
/// Only a wait whose time ran out has waited. Every other error comes at once and would come at
/// once again, so a loop that tries again after each error spins. End it with such an error:
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
/// assert_eq!(work(&queue).to_string(), "not parked: the purgatory was shut down"); // after job 7
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time ran out.
    Expired,
    /// The wait was given up: cancelled by its key, ended with the purgatory, or its condition
    /// panicked.
    Cancelled(CancelReason),
    /// It had to wait and could not be parked.
    Refused(RefusedReason),
    /// A blocking wait where its end may itself wait for the thread: inside a check, a callback or
    /// a timer's task, or on a thread that runs a tokio runtime's tasks while the timer or the
    /// executor is on tokio. There await the future, or block in `spawn_blocking`.
    InsideCallback,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Expired => f.write_str("the time ran out"),
            WaitError::Cancelled(reason) => write!(f, "cancelled: {reason}"),
            WaitError::Refused(reason) => write!(f, "not parked: {reason}"),
            WaitError::InsideCallback => f.write_str(
                "a blocking wait inside a check, a callback or a task that it may wait for",
            ),
        }
    }
}

impl Error for WaitError {}

impl WaitError {
    /// True when the time ran out; a loop ends with [every other error](Self#in-a-loop).
    pub fn is_expired(&self) -> bool {
        *self == WaitError::Expired
    }

    /// What a wait that ended without a value says.
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
