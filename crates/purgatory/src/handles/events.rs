//! Raising events: something may have come true that operations wait for.

use std::{borrow::Borrow, hash::Hash};

use crate::{
    engine::event::Event,
    handles::purgatory::Purgatory,
    operation::{DelayedOperation, watches::WatchKey},
};

/// Raising events.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// The event: something that operations parked under `key` wait for may have come true. Checks
    /// them in the order they were parked and returns how many this call completed. (One that
    /// another thread is checking right now is left to that thread, which checks it again.) An
    /// operation whose deadline has passed completes, too, until the reaper has come by.
    ///
    /// Checks and callbacks run here, with nothing locked: do not hold a lock that a check needs. A
    /// thread that holds one [collects the keys and raises them
    /// after](crate::guide::recipes#raise-after-unlock). Inside a check or callback this returns 0,
    /// and what waits for the key now is checked when the outermost call returns.
    ///
    /// Watermark watches of the key are not touched: those are
    /// [`complete_up_to`](Self::complete_up_to)'s.
    ///
    /// `key` is any borrowed form of the keys, as in a `HashMap`: no `String` is made to raise an
    /// event. So it is wherever a key is only looked up.
    ///
    /// ```
    /// use purgatory::{Purgatory, Timeout, when};
    ///
    /// let fetches = Purgatory::<String>::new("fetch")?;
    /// let fetch = when(|| false, drop);
    /// fetches.try_complete_else_watch(fetch, &["orders-0".to_owned()], Timeout::Never)?;
    /// assert_eq!((fetches.check_and_complete("orders-0"), fetches.waiters("orders-0")), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// O(plain waiters of the key); without them one lock.
    ///
    /// # Panics
    /// Only with a panic of the key's own `Hash`, `Eq` or `Clone`. Those of checks and callbacks
    /// are contained, and the walk goes on.
    pub fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.raise(key, Event::All)
    }

    /// As [`check_and_complete`](Self::check_and_complete), for a change that can complete one
    /// operation only: one more job, one lease that is free again. Checks what waits, in the order
    /// it was parked, one after the other, until a check comes true; true if one did. (What another
    /// thread is checking right now is left to that thread, and the next is checked.)
    ///
    /// So of many that wait for the same thing one is checked and not all. That is right for
    /// operations that wait under this key alone, whose checks *take* what they wait for, and which
    /// nothing else completes; for others raise the event for all: an operation that is not checked
    /// waits on, until the next event or the end of its time. A future that is dropped while it
    /// waits or is checked passes its turn on. It may be dropped with what it took: make that a
    /// [guard that gives itself back](crate::guide::recipes#leases) and raises the event again.
    /// Inside a check or callback this returns false, and the first is completed when the outermost
    /// call returns.
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use purgatory::Purgatory;
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("jobs")?;
    /// let jobs = Arc::new(Mutex::new(Vec::new()));
    /// let take = || {
    ///     let jobs = jobs.clone();
    ///     waits.wait(&["job"], Duration::from_secs(30), move || jobs.lock().unwrap().pop())
    /// };
    /// let (first, second) = (take(), take());
    /// jobs.lock().unwrap().push("a job");
    /// assert!(waits.check_and_complete_one(&"job"));
    /// assert_eq!((first.wait_blocking(), waits.len()), (Ok("a job"), 1));
    /// # drop(second);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// O(the waiters it checks); without waiters one lock.
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn check_and_complete_one<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.core.raise(key, Event::One) > 0
    }

    /// The event of a watermark: the key's value, which only rises, is now at least `value`.
    /// Completes the operations whose last watermark that meets, checks those that it meets
    /// otherwise (and those met before that still wait for their check), and returns how many this
    /// call completed. What waits for a higher value is not looked at, and a value lower than
    /// before meets nothing new.
    ///
    /// First come those that complete, then those to be checked that wait for other watermarks,
    /// too, then the met ones in the check form; within each, those newly met go by (threshold,
    /// order of parking). As with every event, the value that the operations' own checks read
    /// changes first, and inside a check or callback this returns 0, and what waits for the key now
    /// is taken when the outermost call returns.
    ///
    /// O(met), times the log of how many came below others of the key for those that did; when none
    /// is met one lock. It goes on for as long as other threads keep parking at or below `value`;
    /// what the callbacks park is not taken.
    ///
    /// # Panics
    /// As [`check_and_complete`](Self::check_and_complete).
    pub fn complete_up_to<Q: Hash + Eq + ?Sized>(&self, key: &Q, value: u64) -> usize
    where
        K: Borrow<Q>,
    {
        self.core.raise(key, Event::Rise(value))
    }
}
