//! Ending operations from outside (one by its id, all of a key, or all), giving them new deadlines
//! (by id or by key), and shutting down.

use std::time::Duration;

use crate::{
    engine::Core,
    operation::{CancelReason, DelayedOperation, OperationId, Outcome, ReachResult, Timeout},
    purgatory::Purgatory,
    reason::Reason,
    table::form::AnyForm,
    watches::{KeyRef, WatchKey},
};

/// Cancelling.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Cancels one operation with this reason, unless it has ended. See [`ReachResult`].
    ///
    /// O(k) for its k keys.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{CancelReason, Outcome, Purgatory, ReachResult, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let (sender, outcomes) = mpsc::channel();
    /// let fetch = when(|| false, move |outcome| sender.send(outcome).unwrap());
    /// let timeout = Duration::from_secs(30);
    /// let parked = fetches.try_complete_else_watch(fetch, &["orders-0"], timeout)?;
    /// let id = parked.expect("its check is never true");
    ///
    /// assert_eq!(fetches.cancel(id, "connection closed"), ReachResult::Reached(()));
    /// let closed = CancelReason::Requested("connection closed".into());
    /// assert_eq!(outcomes.recv()?, Outcome::Cancelled(closed));
    /// assert_eq!(fetches.cancel(id, "connection closed"), ReachResult::Gone);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, id: OperationId, reason: impl Into<Reason>) -> ReachResult {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.handle.table.clone().end(id, cancelled)
    }

    /// Cancels all operations parked under `key` with this reason; returns how many this call
    /// ended.
    ///
    /// The callback of each runs with [`Cancelled`](Outcome::Cancelled). A cancel of an operation
    /// under check is recorded; the operation still ends as Completed if that check comes true. The
    /// set of operations is fixed before any callback runs, so operations parked by callbacks are
    /// not cancelled. This is not an event: operations that other threads park meanwhile may stay.
    ///
    /// This does not reach an operation that has expired: its callback may still run after this
    /// returns, with [`Expired`](Outcome::Expired) ([how to guard against
    /// it](crate::guide::recipes::sessions)).
    ///
    /// O(n) for n watches of the key.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{CancelReason, Outcome, Purgatory, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let (sender, outcomes) = mpsc::channel();
    /// for keys in [["orders-0", "orders-1"], ["orders-1", "orders-2"]] {
    ///     let sender = sender.clone();
    ///     let fetch = when(|| false, move |outcome| sender.send(outcome).unwrap());
    ///     fetches.try_complete_else_watch(fetch, &keys, Duration::from_secs(30))?;
    /// }
    /// assert_eq!(fetches.cancel_for_key(&"orders-2", "no longer the leader"), 1);
    /// let reason = CancelReason::Requested("no longer the leader".into());
    /// assert_eq!(outcomes.recv()?, Outcome::Cancelled(reason));
    /// assert_eq!((fetches.len(), fetches.waiters(&"orders-1")), (1, 1)); // off its other key, too
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn cancel_for_key<Q: KeyRef<K> + ?Sized>(
        &self,
        key: &Q,
        reason: impl Into<Reason>,
    ) -> usize {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.handle.table.end_for_key(key, &cancelled)
    }

    /// Cancels all parked operations with this reason; returns how many this call ended. The
    /// purgatory is then empty, except for operations under check. It stays open and can be used
    /// again, unlike after [`shutdown`](Self::shutdown).
    ///
    /// Each operation is cancelled as by [`cancel_for_key`](Self::cancel_for_key). This does not
    /// reach an operation that has expired: its callback may still run after this returns, with
    /// [`Expired`](Outcome::Expired) ([how to guard against it](crate::guide::recipes::sessions)).
    ///
    /// O(parked + shards), with memory for all operations until their callbacks run. Shards are
    /// locked one after another, for 64 operations at a time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, Outcome, Purgatory, when};
    ///
    /// let fetches = Purgatory::new("fetch")?;
    /// let gone = Outcome::Cancelled(CancelReason::Requested("not the leader".into()));
    /// let fetch = when(|| false, move |outcome| assert_eq!(outcome, gone));
    /// fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_secs(30))?;
    /// assert_eq!((fetches.cancel_all("not the leader"), fetches.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_all(&self, reason: impl Into<Reason>) -> usize {
        let cancelled = Outcome::Cancelled(CancelReason::Requested(reason.into()));
        self.handle.table.clone().end_all(&cancelled)
    }
}

/// Completing without a check.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Completes one operation without a check, unless it has ended. See [`ReachResult`].
    ///
    /// A [`wait`](Purgatory::wait) needs a value, so its condition is evaluated once more, on the
    /// thread on which a callback would run. If the condition gives no value, the wait ends with an
    /// error that says so. Costs as much as [`cancel`](Self::cancel).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, Purgatory, ReachResult, when};
    ///
    /// let openings = Purgatory::new("openings")?;
    /// let timeout = Duration::from_secs(30);
    /// let (sender, outcomes) = mpsc::channel();
    /// let visitor = when(|| false, move |outcome| sender.send(outcome).unwrap());
    /// let parked = openings.try_complete_else_watch(visitor, &["door"], timeout)?;
    /// let id = parked.expect("its check is never true");
    /// assert_eq!(openings.complete(id), ReachResult::Reached(()));
    /// assert_eq!(outcomes.recv()?, Outcome::Completed);
    ///
    /// let ticket = openings.wait(&["door"], timeout, || None::<u32>);
    /// let id = ticket.id().expect("it has no value yet");
    /// assert_eq!(openings.complete(id), ReachResult::Reached(()));
    /// let error = ticket.wait_blocking().unwrap_err();
    /// assert_eq!(error.to_string(), "cancelled: completed without a value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete(&self, id: OperationId) -> ReachResult {
        self.handle.table.clone().end(id, Outcome::Completed)
    }

    /// Completes all operations parked under `key` without a check; returns how many this call
    /// ended. Use it when the event *is* the condition: a door has opened, a log was closed.
    ///
    /// The set of operations is fixed before any callback runs, as for
    /// [`cancel_for_key`](Self::cancel_for_key). This is not an event: an operation that another
    /// thread is parking meanwhile may stay, unless its check sees the condition. O(n) for n
    /// watches of the key, with memory for all of them.
    ///
    /// The condition of a [`wait`](Purgatory::wait) is evaluated once more, as by
    /// [`complete`](Self::complete).
    ///
    /// ```
    /// use purgatory::{Purgatory, Timeout, when};
    ///
    /// let openings = Purgatory::<&str>::new("openings")?;
    /// for door in ["front", "front", "back"] {
    ///     let waits = when(|| false, |outcome| println!("go in: {outcome}"));
    ///     openings.try_complete_else_watch(waits, &[door], Timeout::Never)?;
    /// }
    /// assert_eq!((openings.complete_for_key(&"front"), openings.len()), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn complete_for_key<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> usize {
        self.handle.table.end_for_key(key, &Outcome::Completed)
    }

    /// Completes all parked operations without a check; returns how many this call ended. The
    /// purgatory stays open and can be used again, as after [`cancel_all`](Self::cancel_all).
    ///
    /// Each operation completes as by [`complete_for_key`](Self::complete_for_key). The set is fixed
    /// before any callback runs.
    ///
    /// O(parked + shards), with memory for all operations until their callbacks run. Shards are
    /// locked one after another, for 64 operations at a time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Outcome, Purgatory, when};
    ///
    /// let pulls = Purgatory::new("pulls")?;
    /// let pull = when(|| false, |outcome| assert_eq!(outcome, Outcome::Completed));
    /// pulls.try_complete_else_watch(pull, &["orders-0"], Duration::from_secs(30))?;
    /// assert_eq!((pulls.complete_all(), pulls.len()), (1, 0)); // a broker stops: answer them all
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete_all(&self) -> usize {
        self.handle.table.clone().end_all(&Outcome::Completed)
    }
}

/// Giving a new deadline.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Gives one operation a new timeout, counted from now: longer, shorter, or none. Returns false
    /// if the operation has ended or its end is decided.
    ///
    /// A timeout of zero, or a moment in the past, expires the operation at the next tick without
    /// another check, except for the [last check](crate::Builder::check_at_expiry). O(levels of the
    /// wheel).
    ///
    /// The new timeout counts from the start of the call. If several threads call this, the one
    /// that takes the lock last sets the deadline, so a thread that stalls before the lock may
    /// shorten a deadline that another has set meanwhile. Of the renewals of a
    /// [`Lease`](crate::Lease), the one that began last counts instead.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
    /// let (sender, outcomes) = mpsc::channel();
    /// let session = when(|| false, move |outcome| sender.send(outcome).unwrap());
    /// let timeout = Duration::from_secs(30);
    /// let parked = sessions.try_complete_else_watch(session, &["alice"], timeout)?;
    /// let id = parked.expect("its check is never true");
    ///
    /// timer.advance(Duration::from_secs(20));
    /// assert!(sessions.reschedule(id, Duration::from_secs(30))); // a heartbeat: until second 50
    /// timer.advance(Duration::from_secs(29));
    /// assert!(outcomes.try_recv().is_err());
    /// timer.advance(Duration::from_secs(1));
    /// assert_eq!(outcomes.try_recv(), Ok(Outcome::Expired));
    /// assert!(!sessions.reschedule(id, Duration::from_secs(30))); // too late
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reschedule(&self, id: OperationId, timeout: impl Into<Timeout>) -> bool {
        AnyForm::reschedule(&*self.handle.table, id, timeout.into())
    }

    /// Gives all operations parked under `key` a new timeout, counted from now, as
    /// [`reschedule`](Self::reschedule) does with one; returns how many got it. They share one
    /// deadline. Operations whose end is decided are left out.
    ///
    /// O(n) for n watches of the key, with memory for all of them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Timeout, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let leases = Purgatory::builder("leases").timer(&timer).build()?;
    /// let second = Duration::from_secs(1);
    /// for resource in ["disk", "port"] {
    ///     let lease = when(|| false, drop);
    ///     leases.try_complete_else_watch(lease, &["alice", resource], 10 * second)?;
    /// }
    /// timer.advance(9 * second);
    /// assert_eq!(leases.reschedule_for_key(&"alice", 10 * second), 2); // one heartbeat for both
    /// timer.advance(9 * second);
    /// assert_eq!(leases.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics.
    pub fn reschedule_for_key<Q: KeyRef<K> + ?Sized>(
        &self,
        key: &Q,
        timeout: impl Into<Timeout>,
    ) -> usize {
        let table = &self.handle.table;
        let arrival = table.arrival(timeout.into());
        let mut rescheduled = 0;
        if let Some(waited) = table.waited(key) {
            table.each_waiter(waited, |first_shard, handle| {
                rescheduled += usize::from(Core::reschedule_in(first_shard, handle, arrival));
            });
        }
        rescheduled
    }
}

/// Shutting down.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Cancels all parked operations ([`Shutdown`](CancelReason::Shutdown)), refuses later ones,
    /// even those that would end at once, and waits for the callbacks of the cancelled ones, for at
    /// most `limit`. To empty a purgatory and use it again, call [`cancel_all`](Self::cancel_all)
    /// or [`complete_all`](Self::complete_all) instead.
    ///
    /// Returns the number of operations that it did not wait for, zero if none: those under check,
    /// which [`len`](Self::len) counts from here on, and those that a shutdown ended and whose
    /// callback has not returned. Each of them still ends, once, when the check or callback that
    /// holds it up returns. A shutdown does not wait for operations that had ended before, whose
    /// callbacks run on other threads or wait for the executor
    /// ([`callbacks_waiting`](crate::Stats::callbacks_waiting)), nor for the first check of an
    /// operation that is being parked.
    ///
    /// `limit` may be [`Duration::MAX`]; with zero this does not wait, and counts the operations
    /// that the executor has not called back yet, often all of them. A second call only waits.
    ///
    /// An operation under check is ended by the thread that checks it. Callbacks run on the
    /// executor, or here if the executor runs jobs in place (a
    /// [`ManualTimer`](timer_core::ManualTimer), an inline timer, or one that was shut down); the
    /// limit does not apply to callbacks that run here. The timer keeps running. This does not wait
    /// inside a check, a callback or a timer's task, nor in async code that it
    /// [would block](crate::WaitError::MustNotBlock).
    ///
    /// O(parked + shards). With a limit above zero this blocks: in async code, call it from
    /// `spawn_blocking`. A server whose requests are tasks calls `shutdown(Duration::ZERO)` in
    /// place, then awaits the tasks.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Purgatory, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let (release, blocked) = mpsc::channel::<()>();
    /// let stuck = when(|| false, move |_| _ = blocked.recv());
    /// purgatory.try_complete_else_watch(stuck, &["orders-0"], Duration::from_secs(30))?;
    ///
    /// let left = purgatory.shutdown(Duration::from_millis(10));
    /// assert_eq!((left, purgatory.len()), (1, 0)); // one callback, no check
    /// release.send(())?;
    /// assert_eq!(purgatory.shutdown(Duration::from_secs(60)), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> usize {
        self.handle.table.clone().shutdown(limit)
    }
}
