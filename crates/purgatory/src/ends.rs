//! Completing and rescheduling several operations: all of a key, or all.

use std::{borrow::Borrow, hash::Hash};

use crate::{
    operation::{DelayedOperation, Timeout},
    purgatory::Purgatory,
    watches::WatchKey,
};

/// Completing and rescheduling several.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Completes all operations parked under `key` without a check; returns how many this call
    /// ended. Use it for an event that *is* the condition: a door that is open, a log that was
    /// closed.
    ///
    /// The set is fixed before any callback runs, as for
    /// [`cancel_for_key`](Self::cancel_for_key). This is not an event: an operation that another
    /// thread is parking meanwhile may stay, unless its check sees the condition. O(n log n) for n
    /// watches of the key, with memory for all of them; the key's shard is locked while its
    /// watermark watches are copied.
    ///
    /// A [`wait`](Purgatory::wait) needs a value, so its condition is checked here, after the
    /// callbacks of the others. If that gives none, the wait goes on and is not counted, as with
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
    pub fn complete_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner completes them") };
        self.core.complete_for_key(key)
    }

    /// Completes all parked operations without a check; returns how many this call ended. The
    /// purgatory stays open, to be used again, as after [`cancel_all`](Self::cancel_all).
    ///
    /// Each operation completes as by [`complete_for_key`](Self::complete_for_key): a
    /// [`wait`](Purgatory::wait) whose condition gives no value goes on. The set is fixed before
    /// any callback runs.
    ///
    /// O(parked + shards), with memory for all operations until their callbacks run. Shards are
    /// locked one after another, for 64 operations each time.
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
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner completes them") };
        self.core.complete_all()
    }

    /// Reschedules all operations parked under `key`: a new timeout, counted from now, as
    /// [`reschedule`](Self::reschedule) does with one; returns how many got it. They share one
    /// deadline. Operations whose end is decided are not among them.
    ///
    /// O(n log n) for n watches of the key, with memory for all of them.
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
    pub fn reschedule_for_key<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        timeout: impl Into<Timeout>,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.reschedule_for_key(key, timeout.into())
    }
}
