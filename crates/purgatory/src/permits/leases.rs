//! Leases: permits with a time to live.
//!
//! An entry on the wheel holds the permits. The guard names that entry, and has lost the lease once
//! the entry is gone. There is no other state, so nothing can disagree: the entry is removed once,
//! by the guard's drop, by expiry or by a shutdown, and its permits return under the same lock.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use timer_core::{TaskId, TimerHandle};

use crate::{
    operation::{Outcome, Timeout, opaque},
    permits::{
        entry::{Granted, Guard, Holder, Semaphores, Wait, Watchers},
        serve::give_back,
    },
    table::{Inside, Table, shard::Shard},
    watches::WatchKey,
};

/// Permits of a key with a time to live: when it has passed, the wheel hands them to the next in
/// line. Made by [`Permits::lease`](crate::Permits::lease) and
/// [`lease_for`](crate::Permits::lease_for). A lease returns its permits when it is dropped.
///
/// The holder must [renew](Self::renew) the lease in time. A holder that stalls, or whose machine
/// stalls, *loses* it: the permits go to the next in line, at the deadline and under one lock. The
/// holder learns of the loss by [`lost`](Self::lost), by [`is_lost`](Self::is_lost), or when it
/// renews. It may act before it has learned, so each lease has a [fencing number](Self::fencing).
///
/// A lease does not keep its [`Permits`](crate::Permits) open. It is lost when the last handle is
/// dropped, and at a [shutdown](crate::Waits::shutdown): nothing watches its time after that. A
/// [`close`](crate::Permits::close) does not end it.
///
/// ```
/// use std::time::Duration;
/// use purgatory::Permits;
/// use purgatory::timer_core::ManualTimer;
///
/// let timer = ManualTimer::new();
/// let shards = Permits::<&str>::keyed_builder("shards").timer(&timer).build()?;
/// let second = Duration::from_secs(1);
/// let minute = 60 * second;
///
/// let first = shards.lease_for(&"s7", 1, 10 * second, minute).wait_blocking()?;
/// let next = shards.lease_for(&"s7", 1, 10 * second, minute);
/// timer.advance(9 * second);
/// assert!(first.renew(10 * second));
/// timer.advance(10 * second); // the first holder stalls, and the next has it
/// assert!(first.is_lost() && !first.renew(10 * second));
/// let second = next.wait_blocking()?;
/// assert!(second.fencing() > first.fencing());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Locks
/// Each call locks the shard of its key. Wakers run with nothing locked.
#[must_use = "dropped, it returns the permits"]
pub struct Lease<K: WatchKey = ()> {
    table: Arc<Table<Semaphores<K>>>,
    holder: TimerHandle,
    weight: u64,
    fence: u64,
}

opaque!([K: WatchKey] Lease<K>, fencing: fence);

/// A task's wait for the end of a lease.
struct Lost<K: WatchKey> {
    table: Arc<Table<Semaphores<K>>>,
    holder: TimerHandle,
    /// Its number among the watchers, once it has been polled.
    number: Option<u64>,
}

impl<K: WatchKey> Guard<K> for Lease<K> {
    fn of(table: &Arc<Table<Semaphores<K>>>, shard: usize, granted: Granted) -> Self {
        let Granted::Lease(lease) = granted else {
            panic!("a request with a time to live is granted a lease");
        };
        Lease {
            table: table.clone(),
            holder: TimerHandle::new(shard, lease.holder),
            weight: lease.weight,
            fence: lease.fence,
        }
    }

    fn begin(&self, time_to_live: Duration) {
        _ = self.renew(time_to_live); // it was taken just now
    }
}

impl<K: WatchKey> Lease<K> {
    /// Returns the number of permits that it holds.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns the fencing number of this lease: higher than that of any earlier lease of its key,
    /// and never given out again. O(1), without a lock.
    ///
    /// Send the number with each write, and let the store refuse a write whose number is lower than
    /// one it has seen. Then a holder that has lost its lease, and does not know yet, changes
    /// nothing. This is for a limit of 1: of several holders at a time, such a store refuses all
    /// but the newest. The numbers start again with each new [`Permits`](crate::Permits): across
    /// processes, put a number that rises with each start before it.
    ///
    /// Source: M. Kleppmann, *How to do distributed locking*, 2016.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    ///
    /// let log = Permits::new("log", 1)?;
    /// let lease = || log.lease(1, Duration::from_secs(10), Duration::from_secs(30));
    /// let before = lease().wait_blocking()?.fencing();
    /// assert!(lease().wait_blocking()?.fencing() > before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fencing(&self) -> u64 {
        self.fence
    }

    /// Sets a new time to live, counted from now; with zero, the lease is lost at the next tick.
    /// Returns false if the lease is lost; it stays lost then. If several threads renew it, the
    /// renewal that began last counts, even if a thread stalls. O(levels of the wheel), with one
    /// lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Permits;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let log = Permits::builder("log").limit(1).timer(&timer).build()?;
    /// let second = Duration::from_secs(1);
    /// let lease = log.lease(1, second, second).wait_blocking()?;
    /// assert!(lease.renew(5 * second));
    /// timer.advance(5 * second);
    /// assert!(!lease.renew(5 * second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "false: the lease is lost"]
    pub fn renew(&self, time_to_live: Duration) -> bool {
        set_deadline(&self.table, self.holder, time_to_live, false)
    }

    /// Returns true once the lease is lost: its time has passed, or nothing watches it any more.
    /// Another holder may have the permits then. O(1), with one lock.
    ///
    /// A result of false may be outdated as soon as this returns; [fence](Self::fencing) what you
    /// write.
    pub fn is_lost(&self) -> bool {
        let shard = self.table.lock(self.holder.shard());
        shard.get(self.holder.id()).is_none()
    }

    /// Returns a future that is ready once the lease has ended: lost, or returned. It borrows
    /// nothing, so any task may await it, and any number of tasks may each have one.
    ///
    /// # Cancel safety
    /// A future that is dropped leaves nothing behind.
    ///
    /// ```
    /// use std::{thread, time::Duration};
    /// use purgatory::Permits;
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let timer = ManualTimer::new();
    /// let log = Permits::builder("log").limit(1).timer(&timer).build()?;
    /// let second = Duration::from_secs(1);
    /// let lease = log.lease(1, second, second).await?;
    /// let time = thread::spawn(move || timer.advance(second));
    /// lease.lost().await; // in a program: beside the work, in a `select!`
    /// assert!(lease.is_lost());
    /// # time.join().unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<K> {
        Lost {
            table: self.table.clone(),
            holder: self.holder,
            number: None,
        }
    }
}

impl<K: WatchKey> Drop for Lease<K> {
    fn drop(&mut self) {
        if failpoint!(LostLeaseReturns) && self.is_lost() {
            let number = self.holder.shard();
            let mut shard = self.table.lock(number);
            let held = shard.records.heavy.hold::<K>(number, 0, self.weight);
            drop(shard);
            give_back(&self.table, held);
        }
        let _ = Semaphores::end(&self.table, self.holder, Outcome::Completed);
    }
}

impl<K: WatchKey> Future for Lost<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A waker is cloned and dropped with nothing locked.
        let waker = context.waker().clone();
        let table = self.table.clone();
        let mut shard = table.lock(self.holder.shard());
        let Some(holder) = holder_mut(&mut shard, self.holder.id()) else {
            drop(shard);
            table.frame.call(|| drop(waker));
            return Poll::Ready(());
        };
        let watchers = holder.watchers.get_or_insert_default();
        let before = watchers.put(&mut self.number, waker);
        drop(shard);
        table.frame.call(|| drop(before));
        Poll::Pending
    }
}

impl<K: WatchKey> Drop for Lost<K> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return; // it was never polled
        };
        let call = self.table.frame.enter();
        let mut shard = self.table.lock(self.holder.shard());
        let mut waker = None;
        if let Some(holder) = holder_mut(&mut shard, self.holder.id()) {
            if let Some(watchers) = &mut holder.watchers {
                waker = watchers.wakers.remove(&number);
            }
        }
        drop(shard);
        self.table.call_in_turn(&call, || drop(waker)); // the waker may own another such future
    }
}

/// Returns the holder of this id, unless the lease has ended.
fn holder_mut<K: WatchKey>(shard: &mut Shard<Semaphores<K>>, id: TaskId) -> Option<&mut Holder> {
    match shard.get_mut(id)? {
        Wait::Holds(holder) => Some(holder),
        Wait::Waits(_) => None,
    }
}

/// Counts a lease's time to live from now. Returns false if the lease has ended. The deadline stays
/// if the lease was renewed later or, with `begins`, if it was renewed since the hand-over.
fn set_deadline<K: WatchKey>(
    table: &Table<Semaphores<K>>,
    at: TimerHandle,
    time_to_live: Duration,
    begins: bool,
) -> bool {
    // A clock is user code: it is read before the lock is taken.
    let arrival = table.arrival(Timeout::After(time_to_live));
    let mut shard = table.lock(at.shard());
    let Some(holder) = holder_mut(&mut shard, at.id()) else {
        return false;
    };
    let has_begun = mem::replace(&mut holder.has_begun, true);
    // A renewal that read the clock later got the lock first.
    let is_overtaken = arrival.now_ns < holder.renewed_ns;
    if !(is_overtaken || begins && has_begun) || failpoint!(BeginOverridesRenewal) {
        // The hand-over precedes each renewal, whatever time its thread reads.
        if !begins {
            holder.renewed_ns = arrival.now_ns;
        }
        Table::schedule(&mut shard, at, arrival);
    }
    true
}

/// Begins the time to live of a lease that was handed over, unless it was renewed meanwhile. With
/// nothing locked.
pub(super) fn begin<K: WatchKey>(
    table: &Table<Semaphores<K>>,
    at: TimerHandle,
    time_to_live: Duration,
) {
    // A panic of the clock is contained: the lease has no deadline then, until it is renewed.
    let begin = || _ = set_deadline(table, at, time_to_live, true);
    table.frame.call(begin);
}

/// Wakes the tasks that wait for the end of a lease, with nothing locked.
pub(super) fn wake_all<K: WatchKey>(table: &Table<Semaphores<K>>, watchers: Watchers) {
    for waker in watchers.wakers.into_values() {
        table.frame.call(|| waker.wake());
    }
}
