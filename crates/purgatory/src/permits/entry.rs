//! The entries of permits: requests that wait, and leases.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc, task::Waker, time::Duration};

use timer_core::{TaskId, TimerHandle};

use crate::{
    operation::CancelReason,
    permits::held::Held,
    reason::Reason,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering::Relaxed},
    table::Table,
    watches::WatchKey,
};

/// The reason for which requests are cancelled once the permits are closed.
pub(super) const CLOSED: CancelReason =
    CancelReason::Closed(Reason::text("the permits were closed"));

/// No link.
pub(super) const NONE: u32 = u32::MAX;

/// The engine of [`Permits`](crate::Permits).
pub(crate) struct Semaphores<K> {
    /// Held while the limit changes and the shards are served one at a time, so that two changes do
    /// not interleave.
    pub(super) changing: Mutex<()>,
    /// The number of permits of each key: free, taken or used up. It is read under a shard's lock.
    /// A change writes it, then locks each shard; a shard that is not yet made then sees the new
    /// limit, too (Seen, in `driver/shards`).
    pub(super) limit: AtomicU64,
    /// True once the permits are closed: written and read as the limit is.
    pub(super) closed: AtomicBool,
    of: PhantomData<fn() -> K>,
}

/// An entry: a request that waits, or a lease.
pub(crate) enum Wait {
    Waits(Turn),
    Holds(Holder),
}

/// A request in its line.
pub(crate) struct Turn {
    pub(super) weight: u64,
    pub(super) line: u32,
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The time to live of the lease that it asks for; `None` if it asks for permits.
    pub(super) time_to_live: Option<Box<Duration>>,
}

/// Permits that were handed over, for a future to take.
pub(crate) enum Granted {
    Permits(Held),
    /// Boxed, since most requests are not for leases.
    Lease(Box<Leased>),
}

/// A lease that was handed over.
pub(crate) struct Leased {
    pub(super) weight: u64,
    pub(super) holder: TaskId,
    pub(super) fence: u64,
}

/// The remains of an entry that has ended.
pub(crate) enum Left<K> {
    Nothing,
    /// The key of a line that was idle.
    Key(K),
    /// A lease was handed over: its time to live begins.
    Leased(TimerHandle, Duration),
    /// A lease has ended. These tasks, if there are any, wait for its end.
    Lost(Option<Box<Watchers>>),
}

/// A guard of permits, as its future yields it.
pub(crate) trait Guard<K: WatchKey> {
    /// Makes the guard of permits of this shard.
    fn of(table: &Arc<Table<Semaphores<K>>>, shard: usize, granted: Granted) -> Self;

    /// Begins the time to live of permits that were taken at once, if they have one.
    fn begin(&self, _time_to_live: Duration) {}
}

/// The entry of a lease.
pub(crate) struct Holder {
    pub(super) weight: u64,
    pub(super) line: u32,
    /// True once its time to live has begun.
    pub(super) has_begun: bool,
    /// The moment of the latest renewal; 0 before the first one.
    pub(super) renewed_ns: u64,
    /// `None` until a task waits for the end of the lease.
    pub(super) watchers: Option<Box<Watchers>>,
}

/// The tasks that wait for the end of a lease.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The number of the next watcher.
    next: u64,
    pub(super) wakers: BTreeMap<u64, Waker>,
}

impl Turn {
    /// Makes the last place of a line, behind `prev`.
    #[inline]
    pub(super) fn new(weight: u64, line: u32, prev: u32, time_to_live: Option<Duration>) -> Self {
        Turn {
            weight,
            line,
            prev,
            next: NONE,
            time_to_live: time_to_live.map(Box::new),
        }
    }
}

impl Watchers {
    /// Puts a waker in the place of this number; a first poll gets a number. Returns the waker of
    /// the poll before. O(log watchers).
    pub(super) fn put(&mut self, number: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.wakers.insert(number, waker)
    }
}

impl<K: WatchKey> Semaphores<K> {
    pub(super) fn new(limit: u64) -> Self {
        Semaphores {
            changing: Mutex::new(()),
            limit: AtomicU64::new(limit),
            closed: AtomicBool::new(false),
            of: PhantomData,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Returns true if a request of this weight never fits under the limit. A limit of 0 is a
    /// pause.
    pub(super) fn is_too_heavy(&self, weight: u64) -> bool {
        let limit = self.limit();
        weight > limit && limit > 0
    }
}
