//! State with waits: [`Monitor`].
//!
//! A closure runs under the state's lock; events are raised after the lock is released. *All keys*
//! are raised in two steps: the count `raised_all` goes up, then every key that has waiters is
//! raised. A wait reads the count before its first check and again once it is parked. If the count
//! moved, the walk may have come before the watch, so the wait raises its own keys.

use std::{
    borrow::Borrow,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use timer_core::BuildError;

use crate::{
    boxed::BoxedOperation,
    operation::{Timeout, opaque},
    purgatory::Purgatory,
    sync::{AtomicU64, Mutex, Ordering, thread_local},
    wait::{IntoAnswer, WaitFuture},
    watches::WatchKey,
};

/// A state and the waits for it in one: what the field calls a *monitor*, or a condition variable
/// that async code can wait on.
///
/// Closures reach the state. [`update`](Self::update) changes it and then, with the lock released,
/// raises the event of every key that has waiters. [`wait`](Self::wait) checks it. So the condition
/// always comes before its event, and no event is raised under the lock. A handle: clones are the
/// same monitor, and dropping the last one ends what waits as Cancelled.
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
/// # Keys
/// A key says what part of the state a wait is about, so that a change need not check everything:
/// [`update_key`](Self::update_key) and [`update_keys`](Self::update_keys) raise only the keys they
/// name. With one key for everything, every change checks every wait.
///
/// # Locks
/// The closures run under the monitor's lock: `update`'s, `read`'s, and the conditions of waits.
/// **They must be short.** A lock that another thread holds while it calls this monitor is a
/// deadlock inside them, as with any two locks; another monitor counts as a lock, too. Wakers run
/// with nothing locked.
///
/// # Panics
/// A call of the same monitor inside a closure would wait for itself. It panics instead, and says
/// so; in a condition this ends the wait as [`Panicked`](crate::CancelReason::Panicked), as any
/// panic there does. After a closure's panic the lock is free, and the state is as the closure left
/// it.
pub struct Monitor<K: WatchKey, S: Send + 'static> {
    shared: Arc<Shared<K, S>>,
}

struct Shared<K: WatchKey, S> {
    purgatory: Purgatory<K, BoxedOperation>,
    state: Mutex<S>,
    /// The thread whose closure has the state locked; 0 for none.
    inside: AtomicU64,
    /// How many times all keys were raised.
    raised_all: AtomicU64,
}

thread_local! {
    /// Its address is a number for this thread, never 0.
    #[allow(clippy::missing_const_for_thread_local, reason = "a model's cannot be")]
    static THREAD: u8 = 0;
}

impl<K: WatchKey, S> Shared<K, S> {
    /// Panics on the thread whose closure has the state locked: it would wait for itself.
    fn must_be_outside(&self, call: &str) -> u64 {
        let thread = THREAD.with(|here| std::ptr::from_ref(here).addr() as u64);
        // Only this thread writes its own number there.
        if self.inside.load(Ordering::Relaxed) == thread {
            panic!("{call} inside a closure of the same monitor");
        }
        thread
    }

    /// Runs a closure on the state. After a panic in one that `changes` it, all keys are raised: it
    /// may have changed something.
    fn enter<R>(&self, call: &str, changes: bool, act: impl FnOnce(&mut S) -> R) -> R {
        let thread = self.must_be_outside(call);
        let mut state = self.state.lock();
        self.inside.store(thread, Ordering::Relaxed);
        let acted = catch_unwind(AssertUnwindSafe(|| act(&mut state)));
        self.inside.store(0, Ordering::Relaxed);
        drop(state);
        acted.unwrap_or_else(|panic| {
            if changes {
                self.raise_all();
            }
            resume_unwind(panic)
        })
    }

    fn raise_all(&self) {
        self.raised_all.fetch_add(1, Ordering::AcqRel);
        let shards = &self.purgatory.core.shards;
        for at in 0..shards.count() {
            let keys: Vec<_> = shards
                .lock(at)
                .waiters_by_key()
                .map(|(key, _)| key.clone())
                .collect();
            self.raise(&keys);
        }
    }

    fn raise(&self, keys: &[K]) {
        keys.iter()
            .for_each(|key| _ = self.purgatory.check_and_complete(key));
    }
}

impl<K: WatchKey, S: Send + 'static> Monitor<K, S> {
    /// A monitor of this state, with a timer of its own; `name` labels its metrics. Waits whose
    /// time is up look once more, so that a key which [`update_key`](Self::update_key) or
    /// [`update_keys`](Self::update_keys) forgets is counted as a [missed
    /// event](crate::Builder::check_at_expiry).
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>, state: S) -> Result<Self, BuildError> {
        let purgatory = Purgatory::builder(name).check_at_expiry(|_| ()).build()?;
        Ok(Monitor::with(purgatory, state))
    }

    /// Over a purgatory that was configured otherwise: a shared timer, an executor, a bound. It is
    /// then the monitor's alone.
    pub fn with(purgatory: Purgatory<K, BoxedOperation>, state: S) -> Self {
        let (inside, raised_all) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared {
            purgatory,
            state: Mutex::new(state),
            inside,
            raised_all,
        };
        Monitor {
            shared: Arc::new(shared),
        }
    }

    /// Where the waits are parked: for metrics, snapshots, [`cancel_all`](Purgatory::cancel_all) or
    /// [`shutdown`](Purgatory::shutdown), not to raise events. Raised inside a closure, they would
    /// have conditions checked under the monitor's lock, which panics them.
    pub fn purgatory(&self) -> &Purgatory<K, BoxedOperation> {
        &self.shared.purgatory
    }

    /// Changes the state, then raises every key that has waiters, in no order; returns what the
    /// closure returned. When this returns, each wait that the change fulfils has ended or is under
    /// check by another thread, which ends it; inside a check or callback, that is so when the
    /// outermost call on this thread returns. O(shards + keys that have waiters + their waits).
    ///
    /// # Panics
    /// With the closure's panic, after the events: it may have changed something. And when called
    /// inside a closure of this monitor.
    pub fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let result = self.shared.enter("Monitor::update called", true, change);
        self.shared.raise_all();
        result
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
        let result = self
            .shared
            .enter("Monitor::update_key called", true, change);
        self.shared.purgatory.check_and_complete(key);
        result
    }

    /// As [`update_key`](Self::update_key), for a change that can fulfil one wait only, one more
    /// job say: [looks](Purgatory::check_and_complete_one) at the key's waits in their order until
    /// one has its value, and at no other. O(the waits it looks at).
    ///
    /// For waits under this key alone whose conditions take what they wait for. A future that is
    /// dropped drops the value it took: make the value a [guard that gives itself
    /// back](crate::guide::recipes#leases).
    ///
    /// ```
    /// use std::{collections::VecDeque, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let queue = Monitor::new("queue", VecDeque::new())?;
    /// let take = || queue.wait(&["jobs"], Duration::from_secs(30), |jobs| jobs.pop_front());
    /// let (first, _second) = (take(), take());
    /// queue.update_one(&"jobs", |jobs| jobs.push_back("a job"));
    /// assert_eq!((first.wait_blocking(), queue.purgatory().len()), (Ok("a job"), 1));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// As [`update`](Self::update).
    pub fn update_one<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut S) -> R,
    ) -> R
    where
        K: Borrow<Q>,
    {
        let result = self
            .shared
            .enter("Monitor::update_one called", true, change);
        self.shared.purgatory.check_and_complete_one(key);
        result
    }

    /// As [`update`](Self::update), for a closure that knows which keys it changed: raises those
    /// that it returns, in their order. O(their waits).
    ///
    /// ```
    /// use std::{collections::BTreeMap, time::Duration};
    /// use purgatory::Monitor;
    ///
    /// let log_ends = Monitor::new("log ends", BTreeMap::from([("orders", 0), ("users", 0)]))?;
    /// let (timeout, enough) = (Duration::from_secs(30), |end: &u32| (*end >= 2).then_some(*end));
    /// let orders = log_ends.wait(&["orders"], timeout, move |ends| enough(&ends["orders"]));
    /// let appended = log_ends.update_keys(|ends| {
    ///     let appended = vec!["orders", "users"];
    ///     appended.iter().for_each(|log| *ends.get_mut(log).unwrap() += 2);
    ///     (appended.len(), appended)
    /// });
    /// assert_eq!((appended, orders.wait_blocking()), (2, Ok(2)));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// As [`update`](Self::update).
    pub fn update_keys<R>(&self, change: impl FnOnce(&mut S) -> (R, Vec<K>)) -> R {
        let (result, keys) = self
            .shared
            .enter("Monitor::update_keys called", true, change);
        self.shared.raise(&keys);
        result
    }

    /// Looks at the state. Raises nothing. O(1).
    ///
    /// Readers exclude each other. For a long read keep the state in an `Arc`, and take a clone of
    /// it: then the lock is free at once, and a change meanwhile works on a copy.
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
        self.shared
            .enter("Monitor::read called", false, |state| look(state))
    }

    /// Waits until `condition` gives a value or `true`: now, or after a change of one of the keys.
    /// It is checked and parked by this call, not by the first poll; the time counts from here. On
    /// any runtime, or none; a thread waits with [`WaitFuture::wait_blocking`]. O(keys). Cancel
    /// safety: see [`WaitFuture`].
    ///
    /// The condition may take its value out of the state. Nothing is raised then: when others wait
    /// for what it leaves behind (for room in a queue), raise their key by
    /// [`update_key`](Self::update_key) when the value is there.
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError): time ran out, cancelled, or refused. A
    /// condition that panics cancels.
    ///
    /// # Panics
    /// When called inside a closure of this monitor.
    pub fn wait<R: IntoAnswer<Answer: Send + 'static>>(
        &self,
        keys: &[K],
        timeout: impl Into<Timeout>,
        mut condition: impl FnMut(&mut S) -> R + Send + 'static,
    ) -> WaitFuture<R::Answer> {
        self.shared.must_be_outside("Monitor::wait called");
        let before = self.shared.raised_all.load(Ordering::Acquire);
        let weak = Arc::downgrade(&self.shared); // a wait does not keep the monitor open
        let looks = move || {
            weak.upgrade()?
                .enter("a condition checked", false, &mut condition)
                .into_answer()
        };
        let wait = self.shared.purgatory.wait(keys, timeout, looks);
        let unmoved = self.shared.raised_all.load(Ordering::Acquire) == before;
        if !unmoved && !failpoint!(WaitTrustsEarlierWalk) {
            self.shared.raise(keys);
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
