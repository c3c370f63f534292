//! Permits that requests wait for in turn: [`Permits`], a semaphore for each key, and [`Lease`],
//! permits with a time to live.

mod acquire;
mod engine;
mod entry;
mod held;
mod leases;
mod lines;
mod permit;
mod serve;

use std::{hash::Hash, time::Duration};

use timer_core::{BuildError, Timer};

use self::{acquire::Request, entry::Semaphores, lines::Lines};
pub use self::{leases::Lease, permit::Permit};
use crate::{
    builder::Builder,
    operation::{Timeout, opaque},
    settings::{Form, Settings},
    table::handle::Handle,
    wait::WaitFuture,
    waits::Waits,
    watches::{KeyRef, ToKey, WatchKey},
};

/// A semaphore, or a semaphore for each key: a number of permits, and requests that wait for
/// permits in turn.
///
/// Requests are served in the order they arrive, whatever their size: a request for more permits
/// than are free keeps later requests waiting. A [`Permit`] returns its permits when it is dropped;
/// under the same lock, the requests that then fit are handed theirs. A future that is dropped
/// leaves the queue, and returns any permits it was given.
///
/// [`new`](Self::new) makes permits without keys. [`keyed`](Self::keyed) makes the same number of
/// permits for each key: a lock for each name, a quota for each client. A key is added at its first
/// use, and removed once none of its permits is taken and no request waits for any.
///
/// A [`Lease`] is permits with a time to live, for holders that may stall.
///
/// This is a handle: clones share the permits. Handles keep the semaphore open; permits and futures
/// do not. When the last handle is dropped, waits are cancelled as
/// [`Dropped`](crate::CancelReason::Dropped). Permits that are held stay valid; leases are lost.
///
/// ```
/// use std::time::Duration;
/// use purgatory::Permits;
///
/// let connections = Permits::new("connections", 2)?;
/// let timeout = Duration::from_secs(5);
/// let first = connections.acquire(1, timeout).wait_blocking()?;
/// let both = connections.acquire(2, timeout); // in a task: acquire(..).await
/// assert!(connections.try_acquire(1).is_none()); // one is free, but `both` is ahead
/// drop(first);
/// assert_eq!(both.wait_blocking()?.weight(), 2);
/// assert_eq!(connections.free(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Limit
/// A request for more permits than the limit is refused with both numbers
/// ([`TooHeavy`](crate::WaitError::TooHeavy)), either when it arrives or when the limit is lowered
/// below its weight. A limit of 0 is a pause: requests of any size wait, except that a request for
/// no permits is served once all permits have returned. Permits that are [used up](Permit::forget)
/// count as part of the limit here, since a [refill](Self::refill) brings them back.
///
/// # Locks
/// A call locks the key's shard once; a call that gets a free lease locks it twice, to begin the
/// lease's time to live. The only user code that runs under the lock is a key's `Eq` and `ToOwned`.
/// Wakers run with nothing locked, on the threads that return permits. A return takes O(1), plus
/// O(1) for each request that it serves.
#[derive(Clone)]
pub struct Permits<K: WatchKey = ()> {
    handle: Handle<Semaphores<K>>,
}

impl<K: WatchKey> Form for Permits<K> {
    /// The number of permits of each key.
    type Own = u64;

    fn build(mut settings: Settings, limit: u64) -> Result<Self, BuildError> {
        if Lines::<K>::IS_ONE {
            settings.shard_count(|| 1)?; // only one is used, but a wrong number is an error
            settings.shards = Some(1);
        }
        let handle = Handle::new(settings, Semaphores::new(limit))?;
        Ok(Permits { handle })
    }
}

/// Settings of [`Permits`].
impl<K: WatchKey> Builder<Permits<K>> {
    /// Sets the number of permits, for each key if there are keys. The default is 1: a lock.
    ///
    /// ```
    /// use purgatory::Permits;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let connections = Permits::builder("connections").limit(100).timer(&timer).build()?;
    /// assert_eq!(connections.free(), 100);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn limit(mut self, limit: u64) -> Self {
        self.own = limit;
        self
    }
}

/// Without keys.
// Functions that are not generic are `inline` here, so that only the program instantiates the
// engine without keys. When this crate did so as well, the engine was there twice, with 42 KB.
impl Permits {
    /// Makes `limit` permits on the timer that the process [shares](crate::Purgatory::new); `name`
    /// labels the metrics. With a limit of 0, requests wait until a [`resize`](Self::resize),
    /// [`add`](Self::add) or [`refill`](Self::refill).
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`](crate::Purgatory::new) does.
    pub fn new(name: impl Into<String>, limit: u64) -> Result<Self, BuildError> {
        Permits::builder(name).limit(limit).build()
    }

    /// Makes `limit` permits on `timer`, as [`new`](Self::new) does on the shared one. O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::Permits;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let connections = Permits::on(&timer, "connections", 100)?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>, limit: u64) -> Result<Self, BuildError> {
        Permits::builder(name).timer(timer).limit(limit).build()
    }

    /// Returns a builder of permits without keys, for other settings: a shared timer, an executor,
    /// a bound on the number of waits. The permits have one shard, whatever number
    /// [`shards`](Builder::shards) allows.
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        Self::keyed_builder(name)
    }

    /// Returns a future of `weight` permits. This call, not the first poll, takes the place in the
    /// queue, and the timeout counts from here. O(1), and no allocation.
    ///
    /// # Cancel safety
    /// A future that is dropped leaves the queue, and returns its permits if it had been given
    /// them. See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError): Cancelled as
    /// [`Closed`](crate::CancelReason::Closed) once the permits are [closed](Self::close);
    /// [`Closed`](crate::WaitError::Closed) after a [shutdown](Waits::shutdown);
    /// [`TooHeavy`](crate::WaitError::TooHeavy) if the weight is above the [limit](Self#limit);
    /// Expired; [`Full`](crate::WaitError::Full) if too many requests wait.
    pub fn acquire(&self, weight: u64, timeout: impl Into<Timeout>) -> WaitFuture<Permit> {
        self.acquire_for(&(), weight, timeout)
    }

    /// Takes `weight` permits if they are free and no request is waiting. O(1), and no allocation.
    /// After [`close`](Self::close) or a shutdown it takes none.
    #[must_use = "dropped, it returns the permits"]
    #[inline]
    pub fn try_acquire(&self, weight: u64) -> Option<Permit> {
        self.try_acquire_for(&(), weight)
    }

    /// Returns a future of a [`Lease`] of `weight` permits, as [`acquire`](Self::acquire) does. The
    /// lease lives for `time_to_live` unless it is renewed. That time counts from when the lease is
    /// handed over and its task woken, whether or not the task has polled: a lease that the task
    /// takes after that time is already lost. A cancel does not reach a lease that was handed over.
    /// With [`Duration::MAX`], a lease is a lock with a fencing number.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let leader = Permits::new("leader", 1)?;
    /// let lease = leader.lease(1, Duration::from_secs(10), Duration::from_secs(60));
    /// let lease = lease.wait_blocking()?;
    /// assert!(!lease.is_lost() && lease.renew(Duration::from_secs(10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`acquire`](Self::acquire).
    pub fn lease(
        &self,
        weight: u64,
        time_to_live: Duration,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Lease> {
        self.lease_for(&(), weight, time_to_live, timeout)
    }

    /// Returns the number of permits that are taken. It may exceed a limit that was lowered. O(1).
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken_for(&())
    }

    /// Returns the number of permits that are free. A request for more than that may be waiting.
    /// O(1).
    #[inline]
    pub fn free(&self) -> u64 {
        self.free_for(&())
    }

    /// Sets the number of free permits, then serves the requests that fit. Use it for a rate limit,
    /// where permits are [used up](Permit::forget) and each period brings new ones. If free permits
    /// and those in hand then exceed the limit, the limit is higher until the next refill. O(1),
    /// plus O(1) for each request that is served, and O(waits) if the refill lowers the limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let sends = Permits::new("sends", 2)?; // two a second
    /// for _ in 0..2 {
    ///     sends.try_acquire(1).expect("two are free").forget(); // used up by a send
    /// }
    /// let third = sends.acquire(1, Duration::from_secs(30));
    /// sends.refill(2); // at each second
    /// third.wait_blocking()?.forget();
    /// assert_eq!(sends.free(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn refill(&self, free: u64) {
        Semaphores::change(&self.handle.table, |lines, limit| {
            let own = limit.saturating_sub(lines.lent);
            let removed = lines.lent.saturating_sub(limit); // permits lent and removed since
            let present = lines.taken(&(), 0).saturating_add(free);
            let limit = own.max(present);
            lines.lent = (limit - own).saturating_add(removed);
            lines.used_up = limit - present;
            limit
        });
    }
}

/// With keys. Each key has the same number of permits.
///
/// `key` can be a borrowed form of the key type: `&str` for `String` keys.
impl<K: WatchKey> Permits<K> {
    /// Makes `limit` permits for each key, on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels the metrics.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let rows: Permits<String> = Permits::keyed("rows", 1)?; // a lock for each row
    /// let timeout = Duration::from_secs(5);
    /// let first = rows.acquire_for("a", 1, timeout).wait_blocking()?;
    /// let other = rows.acquire_for("b", 1, timeout).wait_blocking()?;
    /// assert!(rows.try_acquire_for("a", 1).is_none());
    /// drop((first, other)); // and nothing of "a" and "b" stays
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`](crate::Purgatory::new) does.
    pub fn keyed(name: impl Into<String>, limit: u64) -> Result<Self, BuildError> {
        Permits::keyed_builder(name).limit(limit).build()
    }

    /// Returns a builder of permits for each key, for other settings: a shared timer, an executor,
    /// a bound on the number of waits.
    ///
    /// ```
    /// use purgatory::Permits;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let rows = Permits::<u64>::keyed_builder("rows").timer(&timer).max_parked(1000).build()?;
    /// assert_eq!(rows.free_for(&7), 1);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn keyed_builder(name: impl Into<String>) -> Builder<Self> {
        Builder::new(name, 1)
    }

    /// Returns a future of `weight` permits of this key, as [`acquire`](Permits::acquire) does.
    /// O(1) on average; a new key may allocate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let rows = Permits::<u32>::keyed("rows", 1)?;
    /// let timeout = Duration::from_secs(5);
    /// let held = rows.acquire_for(&7, 1, timeout).wait_blocking()?;
    /// let next = rows.acquire_for(&7, 1, timeout);
    /// drop(held);
    /// let held = next.wait_blocking()?;
    /// assert_eq!(rows.taken_for(&7), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`acquire`](Permits::acquire).
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `ToOwned` panics. Then nothing was changed.
    pub fn acquire_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        weight: u64,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Permit<K>> {
        let request = self.request(key, weight, None);
        Semaphores::acquire(&self.handle, key, &request, timeout.into())
    }

    /// Takes `weight` permits of this key, as [`try_acquire`](Permits::try_acquire) does. O(1) on
    /// average.
    ///
    /// # Panics
    /// Same as [`acquire_for`](Self::acquire_for).
    ///
    /// ```
    /// use purgatory::Permits;
    ///
    /// let clients = Permits::<u32>::keyed("requests of a client", 2)?;
    /// let both = clients.try_acquire_for(&7, 2).expect("two are free");
    /// assert!(clients.try_acquire_for(&7, 1).is_none());
    /// assert!(clients.try_acquire_for(&8, 1).is_some());
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    #[must_use = "dropped, it returns the permits"]
    pub fn try_acquire_for<Q: ToKey<K> + ?Sized>(&self, key: &Q, weight: u64) -> Option<Permit<K>> {
        let request = self.request(key, weight, None);
        Semaphores::try_acquire(&self.handle.table, key, &request)
    }

    /// Returns a future of a [`Lease`] of `weight` permits of this key, as
    /// [`lease`](Permits::lease) does. [`Lease`] has an example.
    ///
    /// # Errors
    /// Same as [`acquire`](Permits::acquire).
    ///
    /// # Panics
    /// Same as [`acquire_for`](Self::acquire_for).
    pub fn lease_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        weight: u64,
        time_to_live: Duration,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<Lease<K>> {
        let request = self.request(key, weight, Some(time_to_live));
        Semaphores::acquire(&self.handle, key, &request, timeout.into())
    }

    /// Returns the number of a key's permits that are taken. O(1) on average.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics.
    pub fn taken_for<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> u64 {
        let hash = self.hash(key);
        let shard = self.handle.table.shard_of(hash);
        shard.records.taken(key, hash)
    }

    /// Returns the number of a key's permits that are free. A request for more than that may be
    /// waiting. O(1) on average.
    ///
    /// # Panics
    /// Same as [`taken_for`](Self::taken_for).
    pub fn free_for<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> u64 {
        let hash = self.hash(key);
        let table = &self.handle.table;
        let shard = table.shard_of(hash);
        let present = table.engine.present(&shard.records);
        present.saturating_sub(shard.records.taken(key, hash))
    }

    /// Returns the hash of a key. Runs the key's `Hash`, with nothing locked.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        if Lines::<K>::IS_ONE {
            return 0;
        }
        self.handle.table.hash(key)
    }

    /// Returns a request for permits of a key.
    fn request<Q>(&self, key: &Q, weight: u64, time_to_live: Option<Duration>) -> Request
    where
        Q: Hash + ?Sized,
    {
        Request {
            hash: self.hash(key),
            weight,
            time_to_live,
        }
    }
}

/// With keys or without.
impl<K: WatchKey> Permits<K> {
    /// Returns the number of permits, free or taken, for each key if there are keys. O(1).
    pub fn limit(&self) -> u64 {
        let table = &self.handle.table;
        table.engine.present(&table.lock(0).records)
    }

    /// Changes the number of permits, then serves the requests that fit and refuses those that
    /// [never will](Self#limit). Permits that are held stay valid: if they exceed a lowered limit,
    /// no permits are given out until enough have returned.
    ///
    /// If two threads each read the limit and set a new one, one change is lost: use
    /// [`add`](Self::add) and [`remove`](Self::remove).
    ///
    /// O(1) for each request that is served, O(waits) if the limit is lowered; with keys O(keys),
    /// and the shards are locked one at a time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let workers = Permits::new("workers", 1)?;
    /// let first = workers.try_acquire(1).expect("one is free");
    /// let second = workers.acquire(1, Duration::from_secs(30));
    /// workers.resize(2); // one more worker
    /// let second = second.wait_blocking()?;
    /// workers.resize(1); // one less: both go on, and the next waits for both
    /// assert_eq!((workers.taken(), workers.free()), (2, 0));
    /// # drop((first, second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, limit: u64) {
        Semaphores::change(&self.handle.table, |lines, _| {
            lines.used_up = 0;
            lines.lent = 0;
            limit
        });
    }

    /// Adds permits, to each key if there are keys, then serves the requests that fit. Changes by
    /// several threads add up; the limit stops at `u64::MAX`. Costs as [`resize`](Self::resize).
    ///
    /// ```
    /// use purgatory::Permits;
    ///
    /// let connections = Permits::new("connections", 4)?;
    /// connections.add(2); // the one controller: load
    /// assert_eq!(connections.remove(1), 1); // the other: a replica fails
    /// assert_eq!(connections.limit(), 5);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn add(&self, permits: u64) {
        let table = &self.handle.table;
        Semaphores::change(table, |_, limit| limit.saturating_add(permits));
    }

    /// Removes permits, from each key if there are keys, and returns how many were removed: no more
    /// than the [limit](Self::limit). Permits that are held stay valid, and requests that are now
    /// [too heavy](Self#limit) are refused. Costs as [`resize`](Self::resize).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Permits, WaitError};
    ///
    /// let disks = Permits::new("disks", 2)?;
    /// let held = disks.try_acquire(1).expect("two are free");
    /// let both = disks.acquire(2, Duration::from_secs(30));
    /// assert_eq!(disks.remove(1), 1); // a disk fails
    /// let refused = WaitError::TooHeavy { weight: 2, limit: 1 };
    /// assert_eq!(both.wait_blocking().unwrap_err(), refused);
    /// assert_eq!(disks.remove(7), 1);
    /// # drop(held);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn remove(&self, permits: u64) -> u64 {
        let mut removed = 0;
        Semaphores::change(&self.handle.table, |lines, limit| {
            removed = permits.min(limit.saturating_sub(lines.used_up));
            limit - removed
        });
        removed
    }

    /// Closes the semaphore for good: cancels the requests that wait and refuses later ones, all
    /// with the same error ([`Closed`](crate::CancelReason::Closed)). Permits and leases that are
    /// held stay valid. O(waits + shards).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, Permits, WaitError};
    ///
    /// let connections = Permits::new("connections", 1)?;
    /// let held = connections.try_acquire(1).expect("one is free");
    /// let waits = connections.acquire(1, Duration::from_secs(30));
    /// connections.close();
    /// let comes = connections.acquire(1, Duration::from_secs(30));
    /// let closed = WaitError::Cancelled(CancelReason::Closed("the permits were closed".into()));
    /// assert_eq!(waits.wait_blocking().unwrap_err(), closed);
    /// assert_eq!(comes.wait_blocking().unwrap_err(), closed);
    /// assert!(closed.is_shutdown() && connections.is_closed());
    /// drop(held); // returned, and given to nobody
    /// assert!(connections.try_acquire(1).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        Semaphores::close(&self.handle.table);
    }

    /// Returns true once the semaphore is [closed](Self::close) or its shutdown has begun: no
    /// request gets permits any more, except one that arrives just as the close or shutdown begins.
    /// O(1), without a lock.
    pub fn is_closed(&self) -> bool {
        let table = &self.handle.table;
        table.shards.is_closed() || table.engine.is_closed()
    }

    /// Returns the waits, for metrics and snapshots, to cancel waits, or to
    /// [shut down](Waits::shutdown). A held lease is not a wait. O(1).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let rows = Permits::<&str>::keyed("rows", 1)?;
    /// let held = rows.try_acquire_for(&"a", 1);
    /// let next = rows.acquire_for(&"a", 1, Duration::from_secs(30));
    /// assert_eq!(rows.waits().snapshot(10).busiest, [("a", 1)]);
    /// assert_eq!(rows.waits().cancel_all("deadlock"), 1);
    /// assert!(next.wait_blocking().is_err());
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn waits(&self) -> Waits<K> {
        self.handle.waits()
    }
}

opaque!([K: WatchKey] Permits<K>, waits: handle.table.frame.name);
