//! Permits that requests wait for in turn: [`Permits`], a semaphore.
//!
//! The counts lie under a lock of their own. A wait's condition takes its permits there; each
//! return changes the counts first and signals the key after that, as any state does.

use std::{
    any::Any,
    mem,
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use timer_core::BuildError;

use crate::{
    boxed::BoxedOperation,
    engine::{answer::Yields, signal::Event},
    error::WaitError,
    operation::{Answering, CancelReason, DelayedOperation, Kind, Outcome, Timeout, opaque},
    purgatory::Purgatory,
    sync::Mutex,
    wait::WaitFuture,
    watches::Watches,
};

/// A semaphore: a number of permits, and requests that wait for some of them in turn.
///
/// First come, first served, whatever a request's size: one that waits for more than are free keeps
/// later ones waiting, too, so it does not starve. A [`Permit`] returns what it holds when it is
/// dropped, and the requests that then fit are served on that thread. A future that is dropped
/// leaves the queue, and returns permits that it was given.
///
/// This is a handle: clones share the permits. A [`Permit`] keeps the semaphore open: waits are
/// cancelled only once the last handle and the last permit are dropped.
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
/// # Locks
/// No user code runs under a lock. Wakers run with nothing locked, on the threads that return
/// permits.
#[derive(Clone)]
pub struct Permits {
    shared: Arc<Shared>,
}

struct Shared {
    purgatory: Purgatory<(), PermitWait>,
    counts: Mutex<PermitCounts>,
}

#[derive(Clone, Copy)]
struct PermitCounts {
    limit: u64,
    /// More than the limit for a while, after it was lowered.
    taken: u64,
    /// True when none is given out any more. A closed purgatory still runs the first check of a new
    /// request, so this is kept where the permits are taken.
    is_closed: bool,
}

/// Holds permits, and returns them when dropped.
#[must_use = "dropped, it returns the permits"]
pub struct Permit {
    shared: Arc<Shared>,
    weight: u64,
}

/// A wait for permits, as the operation of a [`Permits`]' purgatory. It is opaque: only `Permits`
/// makes it and signals its key.
pub struct PermitWait(BoxedOperation);

// Each call goes on to the box; one that is left to its default would not.
#[deny(clippy::missing_trait_methods)]
impl DelayedOperation for PermitWait {
    const KIND: Kind = Kind::Permits;

    fn try_complete(&mut self) -> bool {
        self.0.try_complete()
    }

    fn try_complete_with(&mut self, event: &dyn Any) -> bool {
        self.0.try_complete_with(event)
    }

    fn check_without_event(&mut self) -> bool {
        self.0.check_without_event()
    }

    fn weight(&self) -> u64 {
        self.0.weight()
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        self.0.expiring(late);
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        self.0.waker()
    }

    fn make_answer(&mut self, outcome: &Outcome) {
        self.0.make_answer(outcome);
    }

    fn answer(&mut self, outcome: &Outcome) -> Answering {
        self.0.answer(outcome)
    }

    fn give_answer(self, to: &mut dyn Any) {
        self.0.give_answer(to);
    }

    fn detach(&mut self, back: Box<dyn FnOnce(Self) + Send>) {
        let back = move |boxed| back(PermitWait(boxed));
        self.0.detach(Box::new(back));
    }

    fn on_complete(self, outcome: Outcome) {
        self.0.on_complete(outcome);
    }
}

impl Yields<Permit> for PermitWait {
    fn into_answer(self) -> Result<Permit, WaitError> {
        self.0.into_answer()
    }
}

opaque!([] PermitWait);

impl Shared {
    /// Takes permits if they are free.
    fn take(self: &Arc<Self>, weight: u64) -> Option<Permit> {
        let mut counts = self.counts.lock();
        let taken = counts.taken.checked_add(weight)?;
        if taken > counts.limit || counts.is_closed {
            return None;
        }
        counts.taken = taken;
        drop(counts);
        Some(Permit {
            shared: self.clone(),
            weight,
        })
    }

    /// Changes the counts, then serves the waits that fit.
    fn change(&self, change: impl FnOnce(&mut PermitCounts)) {
        change(&mut self.counts.lock());
        self.purgatory.core.signal(&(), Event::All);
    }
}

impl Permits {
    /// Makes `limit` permits, with a timer of their own; `name` labels the metrics. With 0 none is
    /// free: requests wait until a [`resize`](Self::resize) or [`refill`](Self::refill).
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`] does.
    pub fn new(name: impl Into<String>, limit: u64) -> Result<Self, BuildError> {
        Purgatory::new(name).map(|purgatory| Permits::over(purgatory, limit))
    }

    /// Makes `limit` permits over a purgatory with other settings, such as a shared timer, an
    /// executor or a bound of what waits.
    ///
    /// ```
    /// use purgatory::{Permits, Purgatory};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let purgatory = Purgatory::builder("connections").timer(&timer).build()?;
    /// let connections = Permits::over(purgatory, 100);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn over(purgatory: Purgatory<(), PermitWait>, limit: u64) -> Self {
        let counts = PermitCounts {
            limit,
            taken: 0,
            is_closed: false,
        };
        Permits {
            shared: Arc::new(Shared {
                purgatory,
                counts: Mutex::new(counts),
            }),
        }
    }

    /// Returns the purgatory of the waits, for metrics and snapshots, to cancel waits, or to
    /// [shut down](Purgatory::shutdown). `len` is the number of requests that wait.
    ///
    /// To end the semaphore call [`close`](Self::close): with the purgatory shut down, permits that
    /// are free are still given out.
    pub fn purgatory(&self) -> &Purgatory<(), PermitWait> {
        &self.shared.purgatory
    }

    /// Returns a future of `weight` permits. This call, not the first poll, takes the place in the
    /// queue, and the timeout counts from here. O(1), and no allocation if they are free.
    ///
    /// More than the [limit](Self::limit) are not refused, since the limit may change: such a
    /// request waits, and those behind it, until its timeout.
    ///
    /// # Cancel safety
    /// A future that is dropped has left the queue, and returned its permits if it had them. See
    /// [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError): Expired, or Refused or Cancelled once
    /// the permits are [closed](Self::close).
    pub fn acquire(&self, weight: u64, timeout: impl Into<Timeout>) -> WaitFuture<Permit> {
        // 1. Usually they are free.
        if let Some(permit) = self.try_acquire(weight) {
            return WaitFuture::ready(Ok(permit));
        }
        // 2. Otherwise wait in turn. A wait keeps no permits open.
        let weak: Weak<Shared> = Arc::downgrade(&self.shared);
        let condition = move || weak.upgrade()?.take(weight);
        let watches = Watches::keys(&[()]).in_turn();
        self.shared
            .purgatory
            .await_end(watches, timeout.into(), condition, true, PermitWait)
    }

    /// Takes `weight` permits if they are free and no request is waiting. O(1), and no allocation.
    /// After [`close`](Self::close) it takes none.
    pub fn try_acquire(&self, weight: u64) -> Option<Permit> {
        if self.shared.purgatory.core.keeps_waiting(&()) {
            return None;
        }
        self.shared.take(weight)
    }

    /// Returns the number of permits, free or taken. O(1).
    pub fn limit(&self) -> u64 {
        self.shared.counts.lock().limit
    }

    /// Returns the number of permits that are taken. May exceed a limit that was lowered. O(1).
    pub fn taken(&self) -> u64 {
        self.shared.counts.lock().taken
    }

    /// Returns the number of permits that are free. A request for more of them may wait. O(1).
    pub fn free(&self) -> u64 {
        let counts = *self.shared.counts.lock();
        counts.limit.saturating_sub(counts.taken)
    }

    /// Changes the number of permits, then serves the requests that fit. Permits that are held stay
    /// valid: below a lowered limit, none is given out until enough have returned.
    ///
    /// O(1) plus the checks of the requests that are served.
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
        self.shared.change(|counts| counts.limit = limit);
    }

    /// Sets the number of free permits, then serves the requests that fit. Use it for a rate limit,
    /// where permits are [used up](Permit::forget) and each period brings new ones. O(1) plus those
    /// checks.
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
    pub fn refill(&self, free: u64) {
        self.shared
            .change(|counts| counts.limit = counts.taken.saturating_add(free));
    }

    /// Closes the semaphore for good: cancels the requests that wait and refuses later ones.
    /// Permits that are held stay valid. O(waits).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Permits, WaitError};
    ///
    /// let connections = Permits::new("connections", 1)?;
    /// let held = connections.try_acquire(1).expect("one is free");
    /// let waits = connections.acquire(1, Duration::from_secs(30));
    /// connections.close();
    /// assert!(matches!(waits.wait_blocking(), Err(WaitError::Cancelled(_))));
    /// drop(held); // returned, and given to nobody
    /// assert!(connections.try_acquire(1).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.shared.counts.lock().is_closed = true;
        let closed = CancelReason::Requested("the permits were closed".into());
        self.shared.purgatory.core.close(closed);
    }
}

impl Permit {
    /// Returns the number of permits that it holds.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Uses the permits up: they are not returned, and the [limit](Permits::limit) falls by as
    /// many. O(1). No request is served by it.
    ///
    /// ```
    /// use purgatory::Permits;
    ///
    /// let disks = Permits::new("disks", 2)?;
    /// let failed = disks.try_acquire(1).expect("two are free");
    /// failed.forget(); // a disk less
    /// assert_eq!((disks.limit(), disks.taken(), disks.free()), (1, 0, 1));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn forget(mut self) {
        let weight = mem::take(&mut self.weight);
        let mut counts = self.shared.counts.lock();
        counts.taken -= weight;
        counts.limit = counts.limit.saturating_sub(weight); // it may have been lowered since
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let weight = self.weight;
        if weight == 0 {
            return; // used up
        }
        self.shared.change(|counts| counts.taken -= weight);
    }
}

opaque!([] Permits, purgatory: shared.purgatory);
opaque!([] Permit, weight: weight);
