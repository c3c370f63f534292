//! The operation: its trait, its id, and how it ends.

use std::{any::Any, fmt, time::Duration};

use timer_core::{Moment, TaskId, TickLength, TimerHandle};

pub(crate) use timer_core::opaque;

use crate::reason::Reason;

/// A request that cannot be answered yet: a condition to check, and a callback for its end.
///
/// Both run while nothing of the purgatory is locked. At most one thread at a time has an
/// operation, so it need not be `Sync`.
///
/// # Size
/// An operation is moved by value from call to call, so a large one takes stack space and slows
/// release builds down. Keep large state in a `Box`.
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
    /// Checks the condition. Returns true if it holds now; the operation then ends as
    /// [`Completed`](Outcome::Completed).
    ///
    /// Runs on the thread that parks the operation or signals one of its keys. A
    /// [recheck](crate::Builder::recheck_every) or [last check](crate::Builder::check_at_expiry)
    /// runs on the executor, or on the thread that has the operation under check then. It must not
    /// block: while it runs, the operation can neither expire nor be cancelled. It may run any
    /// number of times, but not again once it has returned true. It may call the purgatory;
    /// callbacks of operations that it ends run behind the
    /// [outermost call](crate::guide::your_code).
    ///
    /// # Panics
    /// A panic is contained, and ends the operation as [`Panicked`](CancelReason::Panicked). A
    /// timeout or cancel recorded during the check takes precedence.
    fn try_complete(&mut self) -> bool;

    /// Checks the condition for an event that came with an argument
    /// ([`check_and_complete_with`](crate::Purgatory::check_and_complete_with)). By default this is
    /// [`try_complete`](Self::try_complete).
    ///
    /// The argument saves a look at the state: it says what has changed, so an operation that the
    /// change does not concern returns false at once. It does not replace the state. Events may be
    /// merged: `try_complete` then runs instead, once for several events. This is so for events
    /// that come while the operation is under check or is being parked, and for events inside a
    /// check or callback. Whatever this method keeps of an argument, `try_complete` must be able to
    /// find as well.
    ///
    /// The same rules hold as for `try_complete`. `event` has the type that the signalling caller
    /// gave; leave an event of another type to `try_complete`.
    ///
    /// ```
    /// use std::{any::Any, sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}};
    /// use purgatory::{DelayedOperation, Outcome};
    ///
    /// /// The event: a message of this tag was stored.
    /// struct Stored { tag: &'static str }
    ///
    /// struct Pull { tag: &'static str, stored: Arc<AtomicU64> }
    ///
    /// impl DelayedOperation for Pull {
    ///     fn try_complete(&mut self) -> bool {
    ///         self.stored.load(SeqCst) > 0 // in a server: reads the queue, and filters
    ///     }
    ///
    ///     fn try_complete_with(&mut self, event: &dyn Any) -> bool {
    ///         match event.downcast_ref::<Stored>() {
    ///             Some(stored) if stored.tag != self.tag => false, // the queue is not read
    ///             _ => self.try_complete(),
    ///         }
    ///     }
    ///
    ///     fn on_complete(self, _: Outcome) {}
    /// }
    /// ```
    ///
    /// # Panics
    /// A panic is contained as one in `try_complete`.
    fn try_complete_with(&mut self, event: &dyn Any) -> bool {
        let _ = event;
        self.try_complete()
    }

    /// Tells the operation that it expires, just before [`on_complete`](Self::on_complete) is
    /// called with [`Outcome::Expired`], on the same thread. `late` reads the timer's clock and
    /// returns the time since the deadline, which was rounded up to a tick; zero if the time was
    /// already up when the operation was parked. Does nothing by default.
    ///
    /// An expiry that is late by far more than its executor's delay indicates a
    /// [pause of the process](crate::guide::time#a-pause-of-the-process).
    ///
    /// # Panics
    /// A panic is contained and counted; `on_complete` is called all the same.
    #[expect(unused_variables, reason = "the name is part of the documentation")]
    fn expiring(&mut self, late: &dyn Fn() -> Duration) {}

    /// Receives the outcome, exactly once. The operation is out of every list by then.
    ///
    /// Runs on the thread that completed or cancelled the operation. Runs on the executor after a
    /// timeout or a shutdown, or [always](crate::Builder::callbacks_on_executor). It may park, signal
    /// keys and cancel.
    ///
    /// The executor is a timer worker, where `tokio::spawn` panics. Store a `Handle` of the runtime
    /// in the operation and spawn on it; or make that handle the executor (feature `tokio`).
    ///
    /// # Panics
    /// A panic is contained and counted.
    fn on_complete(self, outcome: Outcome)
    where
        Self: Sized;
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Its check came true; the event, value, reply or permits that it waited for came; or a call
    /// completed it.
    Completed,
    /// Its timeout came first.
    Expired,
    /// It was cancelled.
    Cancelled(CancelReason),
}

/// The outcome of an operation whose future is dropped.
pub(crate) static FUTURE_DROPPED: Outcome = Outcome::Cancelled(CancelReason::FutureDropped);

/// The reason why an operation was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// A call cancelled it, with this reason: a text, and perhaps a value.
    Requested(Reason),
    /// The [future](crate::WaitFuture) of the wait was dropped: its client has gone.
    FutureDropped,
    /// The purgatory or its timer was shut down.
    Shutdown,
    /// The last handle of the purgatory, or of the request's [scope](crate::ReplyScope), was
    /// dropped.
    Dropped,
    /// Its check panicked.
    Panicked,
    /// The subject of the wait was closed, with this reason: the [key](crate::Watermarks::close) of
    /// a value, the [scope](crate::ReplyScope::close) of a request, or the
    /// [permits](crate::Permits::close). Later waits are refused, or end at once in the same way.
    Closed(Reason),
    /// The epoch of the wait is over. See
    /// [`Watermarks::begin_epoch`](crate::Watermarks::begin_epoch).
    EpochOver {
        /// The epoch that the wait belonged to.
        epoch: u64,
        /// The epoch that has begun.
        present: u64,
    },
    /// The replica set of its group had lost too many members for anything to be acknowledged. See
    /// [`ReplicaSets::cancel_below_floor`](crate::ReplicaSets::cancel_below_floor).
    BelowFloor {
        /// The number of members.
        members: usize,
        /// The fewest members with which a value is acknowledged.
        floor: usize,
    },
}

impl CancelReason {
    /// Returns the value that the call gave with its [`Reason`], if there is one of this type. A
    /// [`WaitError`](crate::WaitError) has the same reason.
    ///
    /// ```
    /// use purgatory::{Purgatory, Reason, Timeout, WaitError};
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("waits")?;
    /// let fetched = waits.wait(&["topic"], Timeout::Never, || None::<u32>);
    /// waits.cancel_for_key(&"topic", Reason::with("unknown topic", 3_i16));
    /// match fetched.wait_blocking() {
    ///     Err(WaitError::Cancelled(reason)) => assert_eq!(reason.value::<i16>(), Some(&3)),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn value<T: Any>(&self) -> Option<&T> {
        match self {
            CancelReason::Requested(reason) | CancelReason::Closed(reason) => reason.value(),
            _ => None,
        }
    }
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
            CancelReason::Requested(reason) | CancelReason::Closed(reason) => reason.fmt(f),
            CancelReason::EpochOver { epoch, present } if epoch == present => {
                write!(f, "its epoch {epoch} is not led here any more")
            }
            CancelReason::EpochOver { epoch, present } => {
                write!(f, "its epoch {epoch} is over: epoch {present} has begun")
            }
            CancelReason::BelowFloor { members, floor } => {
                write!(f, "too few replicas: {members}, and the floor is {floor}")
            }
            CancelReason::FutureDropped => f.write_str("its future was dropped"),
            CancelReason::Shutdown => f.write_str("shut down"),
            CancelReason::Dropped => f.write_str("its purgatory or scope was dropped"),
            CancelReason::Panicked => f.write_str("its check panicked"),
        }
    }
}

/// The id of a parked operation, to cancel, complete or reschedule it. The call that parks an
/// operation returns its id, or `None` if the operation has ended.
///
/// Ids are never reused. Another purgatory treats the id as that of an operation that is gone. A
/// process numbers its purgatories and other forms, and starts again after 2³² of them: an id that
/// was kept for that long may name an operation of another form.
///
/// ```
/// use purgatory::{Purgatory, Timeout, when};
///
/// let waits = Purgatory::new("waits")?;
/// let parked = waits.try_complete_else_watch(when(|| false, drop), &["key"], Timeout::Never)?;
/// let id = parked.expect("its check is never true");
/// waits.cancel(id, "too late");
///
/// let over = waits.try_complete_else_watch(when(|| true, drop), &["key"], Timeout::Never)?;
/// assert_eq!(over, None); // its callback has the outcome
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId {
    // The fields are whole words: an id is moved in whole words as soon as it is made, and the
    // processor would wait for a word that was written in parts.
    /// The handle's shard in 8 bits, and its sequence in 56.
    upper: u64,
    /// The handle's index plus one, and the number of its purgatory, in 32 bits each.
    lower: u64,
}

impl OperationId {
    /// Makes the id of the operation that has this handle in the purgatory with this number.
    #[inline]
    pub(crate) fn new(handle: TimerHandle, purgatory: u32) -> OperationId {
        let bits = handle.to_bits();
        OperationId {
            upper: (bits >> 32) as u64,
            lower: (bits as u64) << 32 | u64::from(purgatory),
        }
    }

    /// Returns the number of its purgatory.
    pub(crate) fn purgatory(self) -> u32 {
        self.lower as u32
    }

    /// Returns its handle.
    pub(crate) fn handle(self) -> TimerHandle {
        let index = (self.lower >> 32) as u32 - 1;
        let sequence = self.upper & (u64::MAX >> 8);
        TimerHandle::new(
            (self.upper >> 56) as usize,
            TaskId::from_parts(index, sequence),
        )
    }
}

impl fmt::Display for OperationId {
    /// Writes hexadecimal digits: the purgatory's number, a dash, the operation's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.purgatory(), self.handle().to_bits())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for OperationId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// An operation that is about to be parked, or the parts from which one is made if it has to wait.
pub(crate) trait ToPark<O> {
    /// Checks the condition for the first time, as [`DelayedOperation::try_complete`] does.
    fn check(&mut self) -> bool;

    /// Returns the operation.
    fn into_operation(self) -> O;
}

/// The result of parking an operation.
pub(crate) enum Parking {
    /// It is parked. It may end a moment later.
    Parked(OperationId),
    /// It had an entry, and ended before the call returned.
    Ended(OperationId),
    /// It ended at once.
    AtOnce,
}

impl<O: DelayedOperation> ToPark<O> for O {
    #[inline(always)]
    fn check(&mut self) -> bool {
        self.try_complete()
    }

    #[inline(always)]
    fn into_operation(self) -> O {
        self
    }
}

/// The longest time that an operation waits, counted from the call.
///
/// A call that takes a timeout also accepts a [`Duration`], a [`Moment`], or an optional duration,
/// such as a setting that may be off:
///
/// ```
/// use std::time::Duration;
/// use purgatory::Timeout;
///
/// let second = Duration::from_secs(1);
/// assert_eq!(Timeout::from(Some(second)), Timeout::After(second));
/// assert_eq!(Timeout::from(None), Timeout::Never);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timeout {
    /// Expires after this duration, rounded up to a tick of the timer. With zero, the operation is
    /// checked once, then expires.
    After(Duration),
    /// Expires at this moment of the timer's clock (`timer.now() + limit`), rounded up to a tick.
    /// With a moment in the past, the operation is checked once, then expires. Each timer counts
    /// from a moment of its own, so a moment of another timer's clock means another time here.
    At(Moment),
    /// Never expires.
    Never,
}

impl Timeout {
    /// Returns the tick of the deadline; `None` for never.
    #[inline]
    pub(crate) fn deadline(self, tick: TickLength, now_ns: u64) -> Option<u64> {
        match self {
            Timeout::Never | Timeout::At(Moment::NEVER) => None,
            Timeout::At(deadline) => Some(tick.round_up(deadline.as_nanos())),
            Timeout::After(delay) => Some(tick.deadline(now_ns, delay)),
        }
    }

    /// Returns true if there is no time to wait.
    pub(crate) fn is_over(self, now_ns: u64) -> bool {
        match self {
            Timeout::After(delay) => delay.is_zero(),
            Timeout::At(deadline) => deadline.as_nanos() <= now_ns,
            Timeout::Never => false,
        }
    }
}

impl From<Moment> for Timeout {
    fn from(deadline: Moment) -> Self {
        Timeout::At(deadline)
    }
}

impl From<Duration> for Timeout {
    fn from(duration: Duration) -> Self {
        Timeout::After(duration)
    }
}

impl From<Option<Duration>> for Timeout {
    /// `None` is [`Never`](Self::Never).
    fn from(duration: Option<Duration>) -> Self {
        duration.map_or(Timeout::Never, Timeout::After)
    }
}

/// The result of reaching for one parked operation by its id: to cancel or complete it, to
/// [take](crate::Purgatory::take) it, or to look at it [in place](crate::Purgatory::with).
///
/// ```
/// use purgatory::{Purgatory, ReachResult, Timeout, when};
///
/// let waits = Purgatory::new("waits")?;
/// let park = || waits.try_complete_else_watch(when(|| false, drop), &["key"], Timeout::Never);
/// let id = park()?.expect("its check is never true");
/// assert_eq!(waits.complete(id), ReachResult::Reached(()));
/// assert_eq!(waits.cancel(id, "too late"), ReachResult::Gone);
///
/// let id = park()?.expect("its check is never true");
/// let operation = waits.take(id).reached().expect("no thread checks it");
/// assert!(waits.take(id).reached().is_none()); // gone
/// # drop(operation);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReachResult<T = ()> {
    /// The operation was parked, and this call reached it. The value is the operation taken, or the
    /// result of the closure. After a cancel or a completion, the callback has run or is about to.
    Reached(T),
    /// Another thread is checking the operation, or a job holds it for its last check.
    ///
    /// A cancel or a completion is noted: that thread ends the operation, as Completed if the check
    /// comes true, otherwise by the request that was noted first. Other calls leave the operation
    /// alone, and it may go on waiting.
    UnderCheck,
    /// The operation had ended before, or belongs to another purgatory.
    Gone,
}

impl<T> ReachResult<T> {
    /// Converts the value, if the operation was reached.
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> ReachResult<U> {
        match self {
            ReachResult::Reached(value) => ReachResult::Reached(convert(value)),
            ReachResult::UnderCheck => ReachResult::UnderCheck,
            ReachResult::Gone => ReachResult::Gone,
        }
    }

    /// Returns the value if the call reached the operation.
    pub fn reached(self) -> Option<T> {
        match self {
            ReachResult::Reached(value) => Some(value),
            ReachResult::UnderCheck | ReachResult::Gone => None,
        }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Satisfied,
    Unsatisfied,
    Panicked,
}
