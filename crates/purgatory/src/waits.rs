//! [`Waits`]: the waits of any form.

use std::{any::Any, sync::Arc, time::Duration};

use timer_core::Timer;

use crate::{
    operation::{CancelReason, OperationId, Outcome, ReachResult, Timeout, opaque},
    reason::Reason,
    stats::{Snapshot, Stats, Times},
    table::{Engine, form::AnyForm, handle::Handle},
};

/// The waits of a form ([`Watermarks`](crate::Watermarks), [`ReplicaSets`](crate::ReplicaSets),
/// [`Replies`](crate::Replies), [`ReplyScope`](crate::ReplyScope), [`Permits`](crate::Permits)):
/// their counts, metrics and snapshots, their cancels and new deadlines, and the form's shutdown.
///
/// This is a handle, like the form's own handles: it keeps the form open.
///
/// ```
/// use std::time::Duration;
/// use purgatory::Watermarks;
///
/// let log_ends = Watermarks::new("log ends")?;
/// let fetch = log_ends.wait_for(&"orders-0", 7, Duration::from_secs(30));
/// let waits = log_ends.waits();
/// assert_eq!(waits.len(), 1);
/// assert_eq!(waits.snapshot(10).oldest[0].keys, ["orders-0"]);
/// assert_eq!(waits.cancel_all("the broker stops"), 1);
/// assert!(fetch.wait_blocking().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Waits<K> {
    form: Arc<dyn AnyForm<K>>,
    /// A handle of the form.
    _keeps_open: Arc<dyn Any + Send + Sync>,
}

impl<E: Engine> Handle<E> {
    /// Returns the waits of the form. O(1).
    pub(crate) fn waits(&self) -> Waits<E::Key> {
        Waits {
            form: self.table.clone(),
            _keeps_open: self.kept_open(),
        }
    }
}

/// Looking.
impl<K> Waits<K> {
    /// Returns the name of the form.
    pub fn name(&self) -> &str {
        self.form.name()
    }

    /// Returns the timer that the form is on, to schedule and sleep beside it on one clock. As long
    /// as the timer that the form was built on, or the shared one ([`Timer::shared`]), has a
    /// handle, this is another handle of that timer. Keep it: tasks scheduled through a last handle
    /// are dropped with that handle. O(1), a lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let log_ends: Watermarks<&str> = Watermarks::on(&timer, "log ends")?;
    /// let same = log_ends.waits().timer();
    /// same.schedule(Duration::from_secs(1), || println!("a second later"))?;
    /// assert_eq!(timer.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timer(&self) -> Timer {
        self.form.driver().timer()
    }

    /// Returns the number of waits. Exact when idle. O(shards).
    pub fn len(&self) -> usize {
        self.form.waiting()
    }

    /// Returns true when nothing waits. O(shards).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true once a shutdown of the form or its timer has begun. Every wait is refused then,
    /// except one that comes just as the shutdown begins, which is cancelled. (This does not cover
    /// keys, scopes and permits that were [closed](crate::CancelReason::Closed).) O(1), without a
    /// lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Watermarks;
    ///
    /// let log_ends: Watermarks<&str> = Watermarks::new("log ends")?;
    /// let waits = log_ends.waits();
    /// assert!(!waits.is_closed());
    /// waits.shutdown(Duration::ZERO);
    /// assert!(waits.is_closed());
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.form.is_closed()
    }

    /// Returns the number of keys that have waiters. Keys that only have a value or permits out do
    /// not count. Exact when idle. O(shards); for `Watermarks`, `ReplicaSets` and keyed `Permits`
    /// O(keys), including keys without waiters.
    pub fn keys(&self) -> usize {
        self.form.key_count()
    }

    /// Returns the bound on waits, if [one](crate::Builder::max_parked) was set. O(1).
    ///
    /// ```
    /// use purgatory::Replies;
    ///
    /// let replies: Replies<u64, String> = Replies::builder("replies").max_parked(1000).build()?;
    /// assert_eq!(replies.waits().max_parked(), Some(1000));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn max_parked(&self) -> Option<u64> {
        self.form.max_parked()
    }

    /// Returns the counts. Exact when idle. O(shards).
    pub fn stats(&self) -> Stats {
        self.form.stats()
    }

    /// Returns how long waits lasted. Timing begins with the first call of this,
    /// [`snapshot`](Self::snapshot) or `publish`: from then on each end reads the clock. O(shards).
    pub fn times(&self) -> Times {
        self.form.times()
    }

    /// Returns the counts, the busiest keys and the oldest waits, at most `limit` of each. Shards
    /// are locked one after another. O(waits + keys).
    ///
    /// # Panics
    /// Panics only if a key's own `Clone` panics, which runs under its shard's lock.
    pub fn snapshot(&self, limit: usize) -> Snapshot<K> {
        self.form.snapshot(limit)
    }

    /// Publishes the counts and times to the installed `metrics` recorder, labelled with the form's
    /// name, as [`Purgatory::publish`](crate::Purgatory::publish) does. O(waits), and the cost of
    /// [`keys`](Self::keys).
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish(&self) {
        self.form.publishes().publish(false);
    }

    /// Publishes in detail, and makes every later [`publish`](Self::publish) of this form and its
    /// timer do the same: also how long waits lasted that expired or were cancelled, as
    /// [`Purgatory::publish_in_detail`](crate::Purgatory::publish_in_detail) does. Costs as much as
    /// `publish`.
    ///
    /// ```
    /// use purgatory::Watermarks;
    ///
    /// let log_ends: Watermarks<&str> = Watermarks::new("log ends")?;
    /// log_ends.waits().publish_in_detail(); // at start-up
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish_in_detail(&self) {
        self.form.publishes().publish(true);
    }
}

/// Ending.
impl<K> Waits<K> {
    /// Cancels one wait with this reason, unless it has ended. O(log n) for n waits of its key.
    pub fn cancel(&self, id: OperationId, reason: impl Into<Reason>) -> ReachResult {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.form.clone().end(id, cancelled)
    }

    /// Cancels all waits with this reason; returns how many. All of them end before the first task
    /// is woken. The form stays open. O(waits + shards).
    pub fn cancel_all(&self, reason: impl Into<Reason>) -> usize {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.form.clone().end_all(&cancelled)
    }

    /// Gives a wait a new timeout, counted from now. Returns false if it has ended. O(levels of the
    /// wheel).
    pub fn reschedule(&self, id: OperationId, timeout: impl Into<Timeout>) -> bool {
        self.form.reschedule(id, timeout.into())
    }

    /// Cancels all waits ([`Shutdown`](CancelReason::Shutdown)), refuses later ones, even those
    /// that would end at once, and waits until the tasks of the cancelled ones are woken, for at
    /// most `limit`. Returns how many waits it did not wait for, zero if none; waits that had
    /// expired before do not count. Leases of [`Permits`](crate::Permits) end as well, and are not
    /// counted. Values can still be advanced and reported. The timer keeps running. Blocks as
    /// [`Purgatory::shutdown`](crate::Purgatory::shutdown) does.
    pub fn shutdown(&self, limit: Duration) -> usize {
        self.form.clone().shutdown(limit)
    }
}

opaque!([K] Waits<K>, name: name());
