//! State with waits: [`Monitor`].
//!
//! The state's lock is held while a closure runs, and by nothing else: events are raised after it
//! was let go. Which keys have waiters stands under a lock of its own, so that a wait can end
//! inside a closure (its future dropped there, say), where the state is locked.

use std::{borrow::Borrow, fmt, hash::Hash, panic::resume_unwind, sync::Arc};

use timer_core::{BuildError, driver::Apart};

use crate::{
    face::{
        boxed::BoxedOperation,
        purgatory::Purgatory,
        state::{Looks, Shared},
        wait::{Condition, WaitError, WaitFuture, must_not_block, yielded},
    },
    words::{
        operation::{DelayedOperation, Outcome, ParkResult, Refused, Timeout},
        watches::{WatchKey, Watches},
    },
};

/// A state and those who wait for it, in one: what the field calls a *monitor*.
///
/// The state is reached by closures only. [`update`](Self::update) changes it and then, with its
/// lock let go, raises the event of every key that somebody waits under. [`wait`](Self::wait)
/// checks it. So the condition comes before its event, and no event is raised under the lock,
/// without anybody thinking of it. A handle: clones are the same monitor, and dropping the last one
/// ends what waits as Cancelled.
///
/// ```
/// use std::{collections::VecDeque, time::Duration};
/// use purgatory::Monitor;
///
/// let queue = Monitor::new("queue", VecDeque::new())?;
/// let job = queue.wait(&["jobs"], Duration::from_secs(30), |jobs| jobs.pop_front());
/// queue.update(|jobs| jobs.push_back("a job"));
/// assert_eq!(job.block(), Ok("a job"));
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
///
/// # Keys
/// A key says what part of the state a wait is about, so that a change need not check everything:
/// [`update_key`](Self::update_key) and [`update_keys`](Self::update_keys) raise only the keys they
/// name. With one key for everything, every change checks every wait.
///
/// # Locks
/// The closures run under the monitor's lock: `update`'s, `read`'s, and the conditions of waits.
/// **They must be short.** They may use other things, but a lock that another thread holds while it
/// calls this monitor is a deadlock, as with any two locks; other monitors count as locks, too.
/// Callbacks, hooks and wakers run with nothing locked. A key's `Hash`, `Eq` and `Clone` run under
/// a lock and must not call back.
///
/// # Panics
/// A call of the same monitor inside a closure would wait for itself. It panics instead, and says
/// so; in a condition that ends the wait as [`Panicked`](crate::CancelReason::Panicked), as any
/// panic there does. After a closure's panic the lock is free, and the state is as the closure left
/// it. What the state drops counts as inside, too: an item whose `Drop` calls the monitor panics,
/// and two of them in one closure end the process. Move such items out of it.
pub struct Monitor<K, S>
where
    K: WatchKey + Send,
    S: Send + 'static,
{
    shared: Arc<Shared<K, S>>,
}

/// A wait that ends in a callback.
struct Calls<L, T, F> {
    looks: L,
    value: Option<T>,
    then: F,
}

impl<L, T, F> DelayedOperation for Calls<L, T, F>
where
    L: Condition<T>,
    T: Send + 'static,
    F: FnOnce(Result<T, WaitError>) + Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        self.value = self.looks.check();
        self.value.is_some()
    }

    fn on_complete(self, outcome: Outcome) {
        let Self { looks, value, then, .. } = self;
        let (looks, value) = (Apart::new(looks), Apart::new(value));
        then(yielded(outcome, || value.take().or_else(|| looks.take().completed())));
    }
}

impl<K, S> Monitor<K, S>
where
    K: WatchKey + Send,
    S: Send + 'static,
{
    /// A monitor of this state, with a timer of its own; `name` labels its metrics. Waits whose
    /// time is up look once more, so that a key which [`update_key`](Self::update_key) or
    /// [`update_keys`](Self::update_keys) forgets is counted as a [missed
    /// event](crate::Builder::check_at_expiry); [`with`](Self::with) has it told by name.
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>, state: S) -> Result<Self, BuildError> {
        let purgatory = Purgatory::builder(name).check_at_expiry_untold().build()?;
        Ok(Monitor::with(purgatory, state))
    }

    /// Over a purgatory that was configured otherwise: a shared timer, an executor, a bound. It is
    /// then the monitor's alone.
    pub fn with(purgatory: Purgatory<K, BoxedOperation>, state: S) -> Self {
        Monitor { shared: Shared::new(purgatory, state) }
    }

    /// Where the waits are parked: for metrics, snapshots, [`cancel_all`](Purgatory::cancel_all) or
    /// [`shutdown_timeout`](Purgatory::shutdown_timeout), not to raise events. Raised inside a
    /// closure, they would have conditions checked under the monitor's lock, which panics them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::Monitor;
    ///
    /// let jobs = Monitor::new("jobs", 0)?;
    /// let any = |jobs: &mut u32| (*jobs > 0).then_some(());
    /// let wait = jobs.wait(&["jobs"], Duration::from_secs(30), any);
    /// assert_eq!(jobs.purgatory().snapshot(1).busiest[0].waiters, 1);
    /// # drop(wait);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn purgatory(&self) -> &Purgatory<K, BoxedOperation> {
        &self.shared.purgatory
    }

    /// Changes the state, then raises every key that has waiters, in no order; returns what the
    /// closure returned. When this returns, each wait that the change fulfils has ended or is under
    /// check by another thread, which ends it; inside a check or callback, that is so when the
    /// outermost call on this thread returns. O(keys that have waiters + their waits).
    ///
    /// # Panics
    /// With the closure's panic, after the events: it may have changed something. And when called
    /// inside a closure of this monitor.
    pub fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        self.shared.update("Monitor::update called", change)
    }

    /// As [`update`](Self::update), for a change that concerns one key only: raises that one.
    /// O(its waits).
    ///
    /// # Panics
    /// As [`update`](Self::update).
    pub fn update_key<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut S) -> R,
    ) -> R
    where
        K: Borrow<Q>,
    {
        let _announced = self.shared.purgatory.announce();
        let changed = self.shared.change("Monitor::update_key called", change);
        self.shared.purgatory.check_and_complete(key);
        changed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// As [`update_key`](Self::update_key), for a change that can fulfil one wait only, one more
    /// job say: [looks](Purgatory::check_and_complete_one) at the key's waits in their order until
    /// one has its value, and at no other. O(those it comes by).
    ///
    /// For waits under this key alone whose conditions take what they wait for. Where a future may
    /// be dropped with what it took, wait by [`wait_taking`](Self::wait_taking), which puts it
    /// back.
    ///
    /// ```
    /// use std::{collections::VecDeque, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let queue = Monitor::new("queue", VecDeque::new())?;
    /// let take = || queue.wait(&["jobs"], Duration::from_secs(30), |jobs| jobs.pop_front());
    /// let (first, _second) = (take(), take());
    /// queue.update_one(&"jobs", |jobs| jobs.push_back("a job"));
    /// assert_eq!((first.block(), queue.waiting()), (Ok("a job"), 1));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// As [`update`](Self::update); then all that wait for the key are looked at.
    pub fn update_one<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut S) -> R,
    ) -> R
    where
        K: Borrow<Q>,
    {
        let _announced = self.shared.purgatory.announce();
        match self.shared.change("Monitor::update_one called", change) {
            Ok(result) => {
                self.shared.purgatory.check_and_complete_one(key);
                result
            }
            Err(panic) => {
                self.shared.purgatory.check_and_complete(key);
                resume_unwind(panic)
            }
        }
    }

    /// As [`update`](Self::update), for a closure that knows which keys it changed: raises those
    /// that it returns, in their order, and all that have waiters when it panics. O(their waits).
    ///
    /// ```
    /// use std::{collections::BTreeMap, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let log_ends = Monitor::new("log ends", BTreeMap::from([("orders", 0), ("users", 0)]))?;
    /// let (timeout, enough) = (Duration::from_secs(30), |end: &u32| (*end >= 2).then_some(*end));
    /// let orders = log_ends.wait(&["orders"], timeout, move |ends| enough(&ends["orders"]));
    /// let appended = log_ends.update_keys(|ends| {
    ///     let appended = ["orders", "users"];
    ///     appended.iter().for_each(|log| *ends.get_mut(log).unwrap() += 2);
    ///     (appended.len(), appended)
    /// });
    /// assert_eq!((appended, orders.block()), (2, Ok(2)));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// As [`update`](Self::update).
    pub fn update_keys<R, I>(&self, change: impl FnOnce(&mut S) -> (R, I)) -> R
    where
        I: IntoIterator<Item = K>,
    {
        let _announced = self.shared.purgatory.announce();
        match self.shared.change("Monitor::update_keys called", change) {
            Ok((result, keys)) => {
                self.shared.raise(keys);
                result
            }
            Err(panic) => {
                self.shared.raise(self.shared.keys_with_waits());
                resume_unwind(panic)
            }
        }
    }

    /// Looks at the state. Raises nothing. O(1).
    ///
    /// Readers exclude each other. For a long read keep the state in an `Arc`, and take a clone of
    /// it: then nobody waits, and a change meanwhile works on a copy.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use purgatory::Monitor;
    ///
    /// let routes: Monitor<&str, _> = Monitor::new("routes", Arc::new(vec!["a"]))?;
    /// let seen = routes.read(Arc::clone); // the lock is free again
    /// routes.update(|routes| Arc::make_mut(routes).push("b"));
    /// assert_eq!((seen.len(), routes.read(|routes| routes.len())), (1, 2));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// With the closure's panic, and when called inside a closure of this monitor.
    pub fn read<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.shared.enter("Monitor::read called"))
    }

    /// Waits until `condition` yields a value: now, or after a change of one of the keys. It is
    /// checked and parked by this call, not by the first poll; the time counts from here. On any
    /// runtime, or none. O(keys). Cancel safety: see [`WaitFuture`].
    ///
    /// The condition may take its value out of the state. Nothing is raised then: when others wait
    /// for what it leaves behind (for room in a queue), or the value must not be lost with a
    /// dropped future, use [`wait_taking`](Self::wait_taking).
    ///
    /// # Errors
    /// The future yields a [`WaitError`]: time ran out, cancelled, or refused. A condition that
    /// panics cancels.
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn wait<T: Send + 'static>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        condition: impl FnMut(&mut S) -> Option<T> + Send + 'static,
    ) -> WaitFuture<T> {
        self.shared.must_be_outside("Monitor::wait called");
        let looks = Looks::new(&self.shared, keys, &[], condition);
        self.shared.purgatory.wait_with(Watches::keys(keys), timeout.into(), looks, None)
    }

    /// As [`wait`](Self::wait), for a condition that takes something out of the state. Raises
    /// `changes` when it has, and gives back what nobody takes any more, because the future was
    /// dropped: then `put_back` runs as an [`update`](Self::update).
    ///
    /// ```
    /// use std::{collections::VecDeque, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let queue = Monitor::new("queue", VecDeque::from(["first"]))?; // with room for one
    /// let timeout = Duration::from_secs(30);
    /// let push = queue.wait(&["room"], timeout, |jobs| {
    ///     jobs.is_empty().then(|| jobs.push_back("second"))
    /// });
    /// let take = |jobs: &mut VecDeque<_>| jobs.pop_front();
    /// let first = queue.wait_taking(&["jobs"], timeout, &["room"], take, VecDeque::push_front);
    /// assert_eq!((first.block(), push.block()), (Ok("first"), Ok(()))); // its place was free
    ///
    /// let gone = queue.wait_taking(&["jobs"], timeout, &["room"], take, VecDeque::push_front);
    /// drop(gone); // it had taken the second
    /// assert_eq!(queue.read(|jobs| jobs.front().copied()), Some("second"));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// `put_back` runs where the future is dropped, or where the condition was checked. A future
    /// that is dropped inside a closure of this monitor loses its value, and the panic of the call
    /// is counted. A key of `changes` that panics as it is raised is counted, too, and
    /// loses nothing.
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn wait_taking<T: Send + 'static>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        changes: &[K],
        condition: impl FnMut(&mut S) -> Option<T> + Send + 'static,
        put_back: impl Fn(&mut S, T) + Send + Sync + 'static,
    ) -> WaitFuture<T> {
        self.shared.must_be_outside("Monitor::wait_taking called");
        let looks = Looks::new(&self.shared, keys, changes, condition);
        let monitor = Arc::downgrade(&self.shared);
        let unclaimed = move |value| {
            if let Some(monitor) = monitor.upgrade() {
                monitor.update("a value put back", |state| put_back(state, value));
            }
        };
        let unclaimed = Some(Arc::new(unclaimed) as _);
        self.shared.purgatory.wait_with(Watches::keys(keys), timeout.into(), looks, unclaimed)
    }

    /// Blocks this thread until `condition` yields a value, as [`wait`](Self::wait) does for a
    /// task.
    ///
    /// # Errors
    /// [`WaitError`], at once [`InsideCallback`](WaitError::InsideCallback) when called inside a
    /// check, a callback or a timer's task.
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn wait_blocking<T: Send + 'static>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        condition: impl FnMut(&mut S) -> Option<T> + Send + 'static,
    ) -> Result<T, WaitError> {
        self.shared.must_be_outside("Monitor::wait_blocking called");
        if must_not_block() {
            return Err(WaitError::InsideCallback); // before anything is parked
        }
        Self::wait(self, keys, timeout, condition).block()
    }

    /// Calls `then` with the value once `condition` yields one, or with why it did not; where the
    /// callback of an operation runs, with nothing locked. O(keys).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let high_watermark = Monitor::new("high watermark", 0)?;
    /// let (told, answers) = mpsc::channel();
    /// let reached = |high_watermark: &mut u64| (*high_watermark >= 3).then_some(*high_watermark);
    /// let then = move |reached| told.send(reached).unwrap();
    /// high_watermark.park(&["orders-0"], Duration::from_secs(30), reached, then)?;
    /// high_watermark.update(|high_watermark| *high_watermark = 4);
    /// assert_eq!(answers.recv()?, Ok(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Purgatory::try_complete_else_watch`]; `then` is not called.
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn park<T: Send + 'static>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        condition: impl FnMut(&mut S) -> Option<T> + Send + 'static,
        then: impl FnOnce(Result<T, WaitError>) + Send + 'static,
    ) -> Result<ParkResult, Refused<BoxedOperation>> {
        self.shared.must_be_outside("Monitor::park called");
        let looks = Looks::new(&self.shared, keys, &[], condition);
        let operation = BoxedOperation::new(Calls { looks, value: None, then });
        self.shared.purgatory.try_complete_else_watch(operation, keys, timeout)
    }

    /// How many wait. Exact when nothing moves. O(rooms).
    pub fn waiting(&self) -> usize {
        self.shared.purgatory.len()
    }

    /// Ends all that wait as Cancelled and refuses what would have to wait later; the state can
    /// still be used. See [`Purgatory::shutdown`].
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn shutdown(&self) {
        self.shared.must_be_outside("Monitor::shutdown called");
        self.shared.purgatory.shutdown();
    }
}

impl<K, S> Clone for Monitor<K, S>
where
    K: WatchKey + Send,
    S: Send + 'static,
{
    fn clone(&self) -> Self {
        Monitor { shared: self.shared.clone() }
    }
}

impl<K, S> fmt::Debug for Monitor<K, S>
where
    K: WatchKey + Send,
    S: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("purgatory", &self.shared.purgatory).finish_non_exhaustive()
    }
}
