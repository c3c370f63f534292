//! Looking at a purgatory as a whole: its counts, times and snapshots.

use timer_core::Timer;

use crate::{
    operation::DelayedOperation,
    purgatory::Purgatory,
    shard::Shard,
    stats::{Snapshot, Stats, Times},
    table::form::AnyForm,
    watches::{KeyRef, WatchKey},
};

/// Counts, times and snapshots.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Returns the timer that the purgatory is on, as [`Waits::timer`](crate::Waits::timer) does
    /// for the other forms.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Timeout};
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("waits")?;
    /// let timer = waits.timer();
    /// let until = Timeout::At(timer.now() + Duration::from_millis(5)); // one for several waits
    /// for key in ["a", "b"] {
    ///     assert!(waits.wait(&[key], until, || false).wait_blocking().is_err());
    /// }
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn timer(&self) -> Timer {
        self.handle.table.driver().timer()
    }

    /// Returns the number of operations parked now. Exact when idle. O(shards). Do not use it to
    /// decide [whether to signal a key](Self::waiters).
    pub fn len(&self) -> usize {
        self.handle.table.waiting()
    }

    /// Returns true when no operation is parked. O(shards). Do not use it to decide [whether to
    /// signal a key](Self::waiters).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true once a shutdown of the purgatory or its timer has begun. Every operation is
    /// refused then, even one that would end at once, except one that comes just as the shutdown
    /// begins. O(1), without a lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Purgatory;
    ///
    /// let waits = Purgatory::new("waits")?;
    /// assert!(!waits.is_closed());
    /// waits.shutdown(Duration::ZERO);
    /// assert!(waits.is_closed());
    /// let late = waits.wait(&["key"], Duration::from_secs(30), || true);
    /// assert!(late.wait_blocking().unwrap_err().is_shutdown());
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.handle.table.is_closed()
    }

    /// Returns the number of watches of the operations parked now: one for each key of an
    /// operation, until the operation ends. Exact when idle. O(shards).
    pub fn watched(&self) -> usize {
        self.handle.table.sum(Shard::watched)
    }

    /// Returns the number of watches on `key`. O(1).
    ///
    /// Do not use it to decide whether to signal the key: a thread that has checked its operation
    /// and does not watch the key yet is not counted, and would miss the event.
    pub fn waiters<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> usize {
        let hash = self.handle.table.hash(key);
        let shard = self.handle.table.shard_of(hash);
        shard
            .find(key, hash)
            .map_or(0, |record| shard.waiters(record))
    }

    /// Returns the number of keys that have waiters now. Exact when idle. O(shards).
    pub fn keys(&self) -> usize {
        self.handle.table.key_count()
    }

    /// Returns the bound on parked operations, if [one](crate::Builder::max_parked) was set. O(1).
    ///
    /// ```
    /// use purgatory::Purgatory;
    ///
    /// let polls: Purgatory<u64> = Purgatory::builder("polls").max_parked(1000).build()?;
    /// assert_eq!(polls.max_parked(), Some(1000));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn max_parked(&self) -> Option<u64> {
        self.handle.table.max_parked()
    }

    /// Returns the counts of the purgatory. O(shards); shards are locked one after another.
    pub fn stats(&self) -> Stats {
        self.handle.table.stats()
    }

    /// Returns how long operations waited, by outcome, and how late they expired. O(shards).
    ///
    /// Timing begins with the first call of this, [`snapshot`](Self::snapshot) or `publish`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let fetches = Purgatory::builder("fetch").timer(&timer).build()?;
    /// fetches.times(); // timing begins
    /// let timeout = Duration::from_secs(2);
    /// fetches.try_complete_else_watch(when(|| false, drop), &["orders-0"], timeout)?;
    /// timer.advance(timeout);
    /// let expired = fetches.times().expired;
    /// assert_eq!((expired.count(), expired.sum_s()), (1, 2.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn times(&self) -> Times {
        self.handle.table.times()
    }

    /// Takes a snapshot of the parked operations, for a debug page, a health check or a test that
    /// hangs.
    ///
    /// It holds up to `limit` of each: the keys with the most waiters, the operations parked for
    /// longest, and the operations under check.
    ///
    /// The snapshot is not atomic: shards are locked one after another, for up to 64 operations or
    /// the keys of one shard, so counts may disagree by all that changes meanwhile. A check's
    /// duration counts from the first snapshot that found it: two snapshots a second apart
    /// distinguish a stuck check from a short one. Keys are cloned under a lock.
    ///
    /// O(parked + keys).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watches, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let waits = when(|| false, drop);
    /// let timeout = Duration::from_secs(30);
    /// purgatory.try_complete_else_watch(waits, &["orders-0", "orders-1"], timeout)?;
    ///
    /// let snapshot = purgatory.snapshot(10);
    /// assert_eq!((snapshot.stats.parked, snapshot.key_count), (1, 2));
    /// assert_eq!(snapshot.busiest[0].1, 1);
    /// assert_eq!(snapshot.oldest[0].keys, ["orders-0", "orders-1"]);
    /// assert!(snapshot.oldest[0].expires_in > Some(Duration::from_secs(29)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, limit: usize) -> Snapshot<K> {
        self.handle.table.snapshot(limit)
    }

    /// Publishes counts and times to the installed `metrics` recorder, labelled with the
    /// purgatory's name. (Feature `metrics`.) `docs/METRICS.md` lists them. The timer's
    /// [`publish`](timer_core::Timer::publish) does this for every form on it.
    ///
    /// Call it once at start-up, which enables timing, then before each scrape, always from one
    /// place. Nothing else publishes, and no operation touches a shared metric. Each wait is
    /// recorded in a histogram once, by the recorder that is installed then.
    ///
    /// O(parked + keys + shards + e) for e endings since the last call: it searches for the oldest
    /// operation.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.handle.table.publishes().publish(false);
    }

    /// Publishes in detail, and makes every later [`publish`](Self::publish) of this purgatory and
    /// its timer do the same. (Feature `metrics`.) The details are how long operations waited that
    /// expired or were cancelled (`purgatory_wait_seconds`), not only those that completed: two
    /// more histograms for this purgatory's name. `docs/METRICS.md` counts their series.
    ///
    /// Call it once at start-up. A recorder that is installed later also gets the details. Costs as
    /// much as `publish`.
    ///
    /// ```
    /// use purgatory::Purgatory;
    ///
    /// let fetches: Purgatory<&str> = Purgatory::new("fetch")?;
    /// fetches.publish_in_detail(); // at start-up
    /// let scrape = || fetches.publish(); // with the details
    /// # scrape();
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish_in_detail(&self) {
        self.handle.table.publishes().publish(true);
    }

    /// Asserts the invariants of every shard, for models. O(parked + keys).
    #[doc(hidden)]
    pub fn assert_valid(&self) {
        for number in self.handle.table.shards.made() {
            self.handle.table.shards.lock(number).assert_valid();
        }
    }
}
