//! Shared state that requests wait on: [`Monitor`].
//!
//! A closure runs under the state's lock; keys are signalled after the lock is released. *All keys*
//! are signalled in two steps: the count `signalled_all` goes up, then every key that has waiters
//! is signalled. A wait reads the count before its first check and again once it is parked. If the
//! count changed, the walk over the keys may have come before the watch, so the wait signals its
//! own keys.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, atomic},
    thread,
};

use timer_core::{BuildError, Timer};

use crate::{
    operation::{CancelReason, Timeout, opaque},
    purgatory::Purgatory,
    sync::{AtomicU64, Mutex, Ordering, thread_local},
    table::FormShard,
    wait::{IntoAnswer, WaitFuture},
    watches::{KeyRef, WatchKey},
};

/// Shared state that requests wait on: a *monitor*, or a condition variable for async code.
///
/// Closures access the state. [`wait`](Self::wait) checks it. [`update`](Self::update) changes it
/// and then, with the lock released, signals every key that has waiters. So a change always comes
/// before its event, and no key is signalled under the lock.
///
/// A monitor is a handle: clones share the state. Dropping the last handle cancels all waits.
///
/// ```
/// use std::{collections::VecDeque, time::Duration};
/// use purgatory::Monitor;
///
/// let queue = Monitor::new("queue", VecDeque::new())?;
/// let job = queue.wait(&["jobs"], Duration::from_secs(30), |jobs| jobs.pop_front());
/// queue.update(|jobs| jobs.push_back("a job"));
/// assert_eq!(job.wait_blocking(), Ok("a job"));
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
///
/// (When a task is dropped, the job that its condition has taken is lost, unless the job is a
/// [guard](crate::guide::recipes::queue).)
///
/// # Keys
/// A key names the part of the state that a wait depends on: [`update_key`](Self::update_key) and
/// [`update_keys`](Self::update_keys) check only the waits of the keys they name. With a waiter
/// under each of 1000 keys `update_key` runs one check, `update` 1000.
///
/// A condition that takes something, such as a job, also changes the state: signal the key of the
/// waits that need this change. A future may be dropped with its value: make the value a guard.
///
/// # Locks
/// All closures run under the monitor's lock: those of `update` and `read`, and the conditions of
/// waits. **They must be short**: for long reads keep the state in an `Arc`. A closure deadlocks if
/// it takes a lock that another thread holds while that thread calls this monitor; another monitor
/// also counts as a lock. Wakers run with nothing locked.
///
/// # Panics
/// Calling the same monitor inside a closure would deadlock, so it panics. A panic in a condition
/// ends its wait as [`Panicked`](crate::CancelReason::Panicked). After a closure's panic the lock
/// is free, and the state is as the closure left it.
pub struct Monitor<K: WatchKey, S: Send + 'static> {
    shared: Arc<Shared<K, S>>,
}

struct Shared<K: WatchKey, S> {
    purgatory: Purgatory<K>,
    state: Mutex<S>,
    /// The number of the thread whose closure has the state locked; 0 for none. Never the model's
    /// atomic: a thread only compares it with its own number.
    inside: atomic::AtomicU64,
    /// The number of times that all keys were signalled.
    signalled_all: AtomicU64,
}

thread_local! {
    /// A static whose address numbers this thread. It is never 0.
    #[allow(clippy::missing_const_for_thread_local, reason = "a model's cannot be")]
    static THREAD: u8 = 0;
}

impl<K: WatchKey, S> Shared<K, S> {
    /// Returns this thread's number. Panics if a closure of this thread has the state locked, since
    /// `call` would wait for itself.
    fn must_be_outside(&self, call: &str) -> u64 {
        let thread = THREAD.with(|here| std::ptr::from_ref(here).addr() as u64);
        // Only this thread writes its own number there.
        if self.inside.load(Ordering::Relaxed) == thread {
            panic!("{call} inside a closure of the same monitor");
        }
        thread
    }

    /// Runs a closure on the state. Returns its panic, with the lock free.
    fn enter<R>(&self, call: &str, act: impl FnOnce(&mut S) -> R) -> thread::Result<R> {
        let thread = self.must_be_outside(call);
        let mut state = self.state.lock();
        self.inside.store(thread, Ordering::Relaxed);
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut state)));
        self.inside.store(0, Ordering::Relaxed);
        result
    }

    /// Runs a closure that looks at the state, or a condition; a condition's panic ends its own
    /// wait.
    fn look<R>(&self, call: &str, act: impl FnOnce(&mut S) -> R) -> R {
        let result = self.enter(call, act);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs a closure that changes the state. If it panics, it may have changed something before,
    /// so every key is signalled.
    fn change<R>(&self, call: &str, act: impl FnOnce(&mut S) -> R) -> R {
        let result = self.enter(call, act);
        result.unwrap_or_else(|panic| {
            self.signal_all();
            resume_unwind(panic)
        })
    }

    /// Signals every key that has waiters.
    fn signal_all(&self) {
        self.signalled_all.fetch_add(1, Ordering::AcqRel);
        let table = &self.purgatory.handle.table;
        let mut keys = Vec::new();
        for number in table.shards.made() {
            let keep = &mut |key: &K, _| keys.push(key.clone());
            table.lock(number).each_key(keep);
        }
        table.signal_several(keys);
    }
}

impl<K: WatchKey, S> Drop for Shared<K, S> {
    /// Ends all waits: a clone of the purgatory may live on, but a condition without its state
    /// never comes true.
    fn drop(&mut self) {
        self.purgatory.handle.table.close(CancelReason::Dropped);
    }
}

impl<K: WatchKey, S: Send + 'static> Monitor<K, S> {
    /// Makes a monitor of this state on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels its metrics.
    ///
    /// Waits have a [last check](crate::Builder::check_at_expiry) when their timeout fires, so a
    /// key that [`update_key`](Self::update_key) or [`update_keys`](Self::update_keys) forgets is
    /// counted as a missed event.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`] does.
    pub fn new(name: impl Into<String>, state: S) -> Result<Self, BuildError> {
        let purgatory = Purgatory::new(name)?;
        Ok(Monitor::over(purgatory, state))
    }

    /// Makes a monitor of this state on `timer`, as [`new`](Self::new) does on the shared one. O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::Monitor;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let queue: Monitor<&str, Vec<u32>> = Monitor::on(&timer, "queue", Vec::new())?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>, state: S) -> Result<Self, BuildError> {
        Ok(Monitor::over(Purgatory::on(timer, name)?, state))
    }

    /// Makes a monitor over a purgatory with other settings, such as a shared timer, an executor or
    /// a bound. Nothing else may use that purgatory.
    ///
    /// ```
    /// use purgatory::{Monitor, Purgatory};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let purgatory = Purgatory::builder("queue").timer(&timer).max_parked(100).build()?;
    /// let queue: Monitor<&str, Vec<u32>> = Monitor::over(purgatory, Vec::new());
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn over(purgatory: Purgatory<K>, state: S) -> Self {
        let shared = Shared {
            purgatory,
            state: Mutex::new(state),
            inside: atomic::AtomicU64::new(0),
            signalled_all: AtomicU64::new(0),
        };
        Monitor {
            shared: Arc::new(shared),
        }
    }

    /// Returns the purgatory of the waits, for metrics, snapshots,
    /// [`cancel_all`](Purgatory::cancel_all) or [`shutdown`](Purgatory::shutdown).
    ///
    /// Do not signal its keys: inside a closure, a signal would check conditions under the
    /// monitor's lock, where they panic.
    pub fn purgatory(&self) -> &Purgatory<K> {
        &self.shared.purgatory
    }

    /// Changes the state, then signals every key that has waiters, in no particular order. Returns
    /// the closure's result.
    ///
    /// When this returns, each wait that the change fulfils has ended or is under check by another
    /// thread, which ends it. Inside a check or callback, waits are checked behind the
    /// [outermost call](crate::guide::your_code). A wait is checked once, however many keys it has.
    /// O(shards + k + w) for k keys with waiters and their w watches.
    ///
    /// # Panics
    /// Resumes a panic of the closure, after signalling all keys, since the closure may have
    /// changed something. Passes on a panic of a key's `Hash`, `Eq` or `Clone`. Panics when called
    /// inside a closure of this monitor.
    pub fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let result = self.shared.change("Monitor::update called", change);
        self.shared.signal_all();
        result
    }

    /// Changes the state, then signals one key, for a change that concerns only that key. Otherwise
    /// like [`update`](Self::update). O(w) for w waits of the key.
    ///
    /// # Panics
    /// Panics as [`update`](Self::update) does.
    pub fn update_key<Q: KeyRef<K> + ?Sized, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut S) -> R,
    ) -> R {
        let result = self.shared.change("Monitor::update_key called", change);
        self.shared.purgatory.check_and_complete(key);
        result
    }

    /// Changes the state, then [checks](Purgatory::check_and_complete_one) the key's waits in the
    /// order of parking until one has its value, for a change that can fulfil one wait only, such
    /// as one more job. Otherwise like [`update`](Self::update). O(c) for c checks.
    ///
    /// Use it for waits under this key alone whose conditions take what they wait for. A future
    /// that is dropped drops the value it took: make the value a [guard that is returned on
    /// drop](crate::guide::recipes::deadline).
    ///
    /// ```
    /// use std::{collections::VecDeque, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let queue = Monitor::new("queue", VecDeque::new())?;
    /// let take = || queue.wait(&["jobs"], Duration::from_secs(30), |jobs| jobs.pop_front());
    /// let first = take();
    /// let _second = take();
    /// queue.update_one(&"jobs", |jobs| jobs.push_back("a job"));
    /// assert_eq!((first.wait_blocking(), queue.purgatory().len()), (Ok("a job"), 1));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`update`](Self::update) does.
    pub fn update_one<Q: KeyRef<K> + ?Sized, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut S) -> R,
    ) -> R {
        let result = self.shared.change("Monitor::update_one called", change);
        self.shared.purgatory.check_and_complete_one(key);
        result
    }

    /// Changes the state, then signals the keys that the closure returns, in their order. Otherwise
    /// like [`update`](Self::update). O(w) for w waits of those keys.
    ///
    /// ```
    /// use std::{collections::BTreeMap, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let log_ends = Monitor::new("log ends", BTreeMap::from([("orders", 0), ("users", 0)]))?;
    /// let timeout = Duration::from_secs(30);
    /// let orders = log_ends.wait(&["orders"], timeout, |ends| ends["orders"] >= 2);
    /// let appended = log_ends.update_keys(|ends| {
    ///     let appended = vec!["orders", "users"];
    ///     for log in &appended {
    ///         *ends.get_mut(log).unwrap() += 2;
    ///     }
    ///     (appended.len(), appended)
    /// });
    /// assert_eq!((appended, orders.wait_blocking()), (2, Ok(())));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`update`](Self::update) does.
    pub fn update_keys<R>(&self, change: impl FnOnce(&mut S) -> (R, Vec<K>)) -> R {
        let (result, keys) = self.shared.change("Monitor::update_keys called", change);
        let table = &self.shared.purgatory.handle.table;
        table.signal_several(keys);
        result
    }

    /// Reads the state and signals nothing. O(1).
    ///
    /// Readers exclude each other. For a long read, keep the state in an `Arc` and clone that: the
    /// lock is then free at once, and a change meanwhile works on a copy.
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
    /// Resumes a panic of the closure. Panics when called inside a closure of this monitor.
    pub fn read<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        self.shared
            .look("Monitor::read called", |state| look(state))
    }

    /// Waits until `condition` gives a value or `true`: now, or after a change of one of the keys.
    ///
    /// This call, not the first poll, evaluates the condition and parks the wait; the timeout
    /// counts from here. The future works on any runtime, or none; a thread waits with
    /// [`WaitFuture::wait_blocking`]. O(keys).
    ///
    /// The condition may take its value out of the state. That signals nothing: if other waits need
    /// the space that it leaves, in a queue for example, signal their key with
    /// [`update_key`](Self::update_key) once the value has arrived.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError) if the wait expired, was cancelled or
    /// was refused, or if the condition panicked.
    ///
    /// # Panics
    /// Panics when called inside a closure of this monitor.
    pub fn wait<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        mut condition: impl FnMut(&mut S) -> R + Send + 'static,
    ) -> WaitFuture<R::Answer> {
        self.shared.must_be_outside("Monitor::wait called");
        let before = self.shared.signalled_all.load(Ordering::Acquire);

        // Check the condition under the state's lock, and park. A wait keeps no monitor open.
        let weak = Arc::downgrade(&self.shared);
        let checked = move || {
            let shared = weak.upgrade()?;
            let result = shared.look("a condition checked", &mut condition);
            result.into_answer()
        };
        let wait = self.shared.purgatory.wait(keys, timeout, checked);

        // A walk over all keys may have passed these keys before the wait watched them.
        let walked = self.shared.signalled_all.load(Ordering::Acquire) != before;
        if walked && !failpoint!(WaitTrustsEarlierWalk) {
            let table = &self.shared.purgatory.handle.table;
            table.signal_several(keys.to_vec());
        }
        wait
    }
}

impl<K: WatchKey, S: Send + 'static> Clone for Monitor<K, S> {
    fn clone(&self) -> Self {
        Monitor {
            shared: self.shared.clone(),
        }
    }
}

opaque!([K: WatchKey, S: Send + 'static] Monitor<K, S>, purgatory: shared.purgatory);
