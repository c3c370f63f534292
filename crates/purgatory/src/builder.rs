//! Building a [`Purgatory`], or another form.

use std::{sync::Arc, time::Duration};

use timer_core::{BuildError, Executor, Timer};

use crate::{
    engine::{Core, Rules},
    operation::{DelayedOperation, opaque},
    purgatory::Purgatory,
    settings::{Form, Settings},
    stats::Parked,
    sync::Limit,
    table::handle::HandleOf,
    watches::WatchKey,
};

/// Configures a [`Purgatory`], or another form: [`Watermarks`](crate::Watermarks),
/// [`ReplicaSets`](crate::ReplicaSets), [`Replies`](crate::Replies),
/// [`ReplyScope`](crate::ReplyScope), [`Permits`](crate::Permits). All forms have the settings of
/// the first part; settings of a single form follow.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{DelayedOperation, Outcome, Purgatory};
/// use timer_core::ManualTimer;
/// # struct Request;
/// # impl DelayedOperation for Request {
/// #     fn try_complete(&mut self) -> bool { false }
/// #     fn on_complete(self, outcome: Outcome) { assert_eq!(outcome, Outcome::Expired) }
/// # }
///
/// let timer = ManualTimer::new(); // in a program: a SystemTimer, shared by all its purgatories
/// let fetches = Purgatory::builder("fetch").timer(&timer).build()?;
/// fetches.try_complete_else_watch(Request, &[1], Duration::from_millis(20))?;
/// timer.advance(Duration::from_millis(20));
/// assert!(fetches.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it builds nothing by itself"]
pub struct Builder<F: Form> {
    settings: Settings,
    pub(crate) own: F::Own,
}

impl<F: Form> Builder<F> {
    /// Begins with the default settings.
    pub(crate) fn new(name: impl Into<String>, own: F::Own) -> Self {
        Builder {
            settings: Settings::new(name),
            own,
        }
    }

    /// Sets a timer other than the [one that the process shares](timer_core::Timer::shared). Any
    /// number of purgatories can be on it; a slow callback of one then delays only the callbacks of
    /// these purgatories.
    ///
    /// The timer lives as long as one of its handles or purgatories, so the program may drop its
    /// own handle. The timer's [shutdown](timer_core::Timer::shutdown) shuts its purgatories down,
    /// with one limit for all; the shutdown of a purgatory leaves its timer as it is.
    ///
    /// If you never advance a [`ManualTimer`](timer_core::ManualTimer), nothing expires.
    pub fn timer(mut self, timer: &Timer) -> Self {
        self.settings.driver = Some(timer.driver());
        self
    }

    /// Runs callbacks of expiries and of a shutdown, rechecks, last checks and queue overflow on
    /// `executor` instead of the timer's executor. Queue overflow is all callbacks and events beyond
    /// the first 1024 that are queued behind one call.
    ///
    /// [`Workers`](timer_core::Workers) is an executor. [`execute`](Executor::execute) is called
    /// with nothing locked. A panic in it is contained, and a job that it drops runs on the
    /// dropping thread.
    ///
    /// ```
    /// use purgatory::Purgatory;
    /// use purgatory::timer_core::{SystemTimer, Workers};
    ///
    /// let timer = SystemTimer::new()?;
    /// // Its slow callbacks delay no other purgatory of this timer.
    /// let workers = Workers::start("reports", 4)?;
    /// let reports: Purgatory<u64> =
    ///     Purgatory::builder("reports").timer(&timer).executor(workers).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.settings.executor = Some(Arc::new(executor));
        self
    }

    /// Limits the number of parked operations plus those whose callback is pending. Off by default.
    ///
    /// An operation beyond the limit still gets its first check. If it would have to wait, it is
    /// refused and handed back ([`Full`](crate::WaitError::Full)).
    ///
    /// An operation frees its place just before its callback runs, or before its future is ready.
    /// When one event ends several operations, their first callbacks may therefore find the
    /// purgatory still full. An executor that falls behind leads to refusals, not to memory use.
    /// (Two kinds of operation take a place without asking while their callback is queued, behind a
    /// call or for the executor: a wait of another form, which frees its own place as it ends, and
    /// an operation that ended at once. These may exceed the limit.) With a limit, all threads
    /// share a counter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, WaitError, when};
    ///
    /// let polls = Purgatory::builder("polls").max_parked(1).build()?;
    /// let timeout = Duration::from_secs(30);
    /// polls.try_complete_else_watch(when(|| false, drop), &["orders"], timeout)?;
    /// let second = polls.try_complete_else_watch(when(|| false, drop), &["orders"], timeout);
    /// let refused = second.expect_err("one is parked");
    /// assert_eq!(refused.reason, WaitError::Full { limit: 1 });
    /// let poll = refused.into_inner(); // answer it: try again later
    /// # drop(poll);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_parked(mut self, max: usize) -> Self {
        self.settings.max_parked = Some(Limit::new(max));
        self
    }

    /// Sets the number of shards, a power of two up to 256. The default is 64 on a manual timer,
    /// otherwise 64 for each processor, at least 64 and at most 256.
    ///
    /// A key's hash chooses its shard. Each shard has a lock, so more shards reduce contention
    /// between threads. A shard is made when it is first used, and takes about 700 bytes with keys
    /// of 8 bytes. Once one shard is used, each unused one takes 48 bytes.
    ///
    /// ```
    /// use purgatory::Purgatory;
    /// use purgatory::timer_core::SystemTimer;
    ///
    /// let timer = SystemTimer::new()?;
    /// // One of thousands: a purgatory for each tenant.
    /// let tenant: Purgatory<u64> = Purgatory::builder("tenant").timer(&timer).shards(1).build()?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn shards(mut self, count: usize) -> Self {
        self.settings.shards = Some(count);
        self
    }

    /// Builds the form, on the timer that the process shares unless another was set.
    ///
    /// # Errors
    /// - [`BuildError::Closed`] if the timer was shut down,
    /// - [`BuildError::Forked`] if this process was forked since the timer was built,
    /// - [`BuildError::Thread`] if no thread can be spawned for the shared timer, which the first
    ///   form starts,
    /// - [`BuildError::Shards`] if the number of [`shards`](Self::shards) is out of bounds.
    pub fn build(self) -> Result<F, BuildError> {
        F::build(self.settings, self.own)
    }
}

/// Settings of a [`Purgatory`].
impl<K: WatchKey, O: DelayedOperation> Builder<Purgatory<K, O>> {
    /// Runs every callback on the executor: the timer's, or the purgatory's own. Use it when
    /// callbacks are too slow for the threads that signal keys.
    ///
    /// By default only callbacks of expiries and of a shutdown run there; the others run on the thread
    /// that completed or cancelled the operation. Costs one hand-over for each callback.
    pub fn callbacks_on_executor(mut self) -> Self {
        self.own.callbacks_on_executor = true;
        self
    }

    /// Checks each operation once more when its timeout fires, to find events that no code
    /// signalled, and reports them to `hook`.
    ///
    /// Waits with a condition ([`wait`](Purgatory::wait), [`Monitor`](crate::Monitor)) have this
    /// *last check* by default, other operations only with this setting.
    ///
    /// An operation whose last check comes true ends as Completed. Unless an event came meanwhile,
    /// that is a *missed event*: it is counted ([`missed_events`](crate::Stats::missed_events)) and
    /// reported to `hook`, on the same thread, with nothing locked, before the operation's callback. A
    /// panic in the hook is contained and counted. An event that races the timeout may count as
    /// missed, so look at the rate.
    ///
    /// The last check runs on the executor, or on the thread that has the operation under check or
    /// drops the job. Until it has run, the operation counts as under check and its end is decided:
    /// Completed if the check comes true, otherwise Expired, even if the check panics or a cancel
    /// comes. An operation with a timeout of zero has only its first check.
    ///
    /// Costs nothing while nothing expires. For each operation that reaches its deadline it costs a
    /// check, a lock and an allocation.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let fetches = Purgatory::builder("fetch")
    ///     .timer(&timer)
    ///     .check_at_expiry(|missed| eprintln!("no event: {:?}", missed.keys))
    ///     .build()?;
    /// let appended = Arc::new(AtomicBool::new(false));
    /// let seen = appended.clone();
    /// let fetch = when(move || seen.load(SeqCst), |outcome| println!("fetch: {outcome}"));
    /// fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_millis(500))?;
    ///
    /// appended.store(true, SeqCst); // and no check_and_complete(&"orders-0")
    /// timer.advance(Duration::from_millis(500));
    /// let stats = fetches.stats();
    /// assert_eq!((stats.completed, stats.expired, stats.missed_events), (1, 0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_at_expiry(mut self, hook: impl Fn(&Parked<K>) + Send + Sync + 'static) -> Self {
        self.own.on_missed = Some(Box::new(move |core, handle| {
            let now_ns = core.frame.driver().now_ns();
            if let Some(parked) = core.parked(handle, now_ns) {
                core.frame.call(|| hook(&parked)); // contained, so that the keys are dropped next
                core.drop_each(&core.frame.enter(), parked.keys);
            }
        }));
        self
    }

    /// Checks each operation again once it has been parked for an interval of `every`, then once in
    /// each interval, so that a missed event costs at most two intervals. Off by default.
    ///
    /// A *sweep* checks each operation that has been parked for an interval once, whatever its
    /// keys, in each shard in the order of parking. The first sweep comes an interval after an
    /// operation was parked, then one comes each interval as long as any operation is parked. So an
    /// operation is rechecked one to two intervals after it was parked, then each interval. While
    /// nothing is parked, there are no sweeps, and no thread wakes for one.
    ///
    /// An operation whose *recheck* comes true ends as Completed. Unless an event came meanwhile,
    /// that is a missed event, counted and reported as by
    /// [`check_at_expiry`](Self::check_at_expiry). Without `check_at_expiry` there is no hook and
    /// no last check. An event that races a sweep may count as missed.
    ///
    /// A sweep runs on the executor, with nothing locked, at most 64 operations a job. Until it
    /// comes to an operation, events, cancels and the deadline act on that operation as usual.
    /// `every` is rounded up to a tick, at least one. A late executor and the length of a sweep
    /// delay rechecks; after a sweep that takes longer than an interval, the next begins an
    /// interval after its end, so two never run at a time. If another thread is checking an
    /// operation when the sweep comes to it, that thread checks it once more, and a condition found
    /// true by that check does not count as missed. A recheck that panics ends its operation as
    /// [`Panicked`](crate::CancelReason::Panicked). [`Replies`](crate::Replies) and
    /// [`next_event`](Purgatory::next_event) have no condition and so no rechecks.
    ///
    /// An operation that ends before its first recheck costs next to nothing: each sweep only looks
    /// at it. A recheck costs a check, a share of two locks, and 12 to 24 bytes for each operation
    /// of a shard while the shard is swept (with a [`ManualTimer`](timer_core::ManualTimer), of all
    /// shards).
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let second = Duration::from_secs(1);
    /// let fetches = Purgatory::builder("fetch").timer(&timer).recheck_every(second).build()?;
    /// let appended = Arc::new(AtomicBool::new(false));
    /// let seen = appended.clone();
    /// let fetch = when(move || seen.load(SeqCst), |outcome| println!("fetch: {outcome}"));
    /// fetches.try_complete_else_watch(fetch, &["orders-0"], 30 * second)?;
    ///
    /// appended.store(true, SeqCst); // and no check_and_complete(&"orders-0")
    /// timer.advance(second);
    /// let stats = fetches.stats();
    /// assert_eq!((stats.completed, stats.missed_events, fetches.len()), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recheck_every(mut self, every: Duration) -> Self {
        self.own.sweeps = Some(Box::new(move |core| core.plan_sweeps(every)));
        self
    }
}

impl<K: WatchKey, O: DelayedOperation> Form for Purgatory<K, O> {
    type Own = Rules<K, O>;

    fn build(settings: Settings, rules: Rules<K, O>) -> Result<Self, BuildError> {
        let handle = HandleOf::of(Core::of(settings, rules)?);
        Ok(Purgatory { handle })
    }
}

/// Construction.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Makes a purgatory on the timer that the process [shares](timer_core::Timer::shared): the
    /// first form of a process starts its two threads, which sleep while nothing is due.
    ///
    /// Expiry callbacks of all forms on that timer run on one worker, so a slow one delays the
    /// others: give such a form a [timer](Builder::timer) or an [executor](Builder::executor) of
    /// its own. A [`shutdown`](Self::shutdown) of this purgatory leaves the timer as it is.
    ///
    /// A purgatory takes 0.5 KB until it is first used. Then it has 64 [shards](Builder::shards)
    /// for each processor: on two processors 128 shards, which take 6 KB, and 700 bytes more for
    /// each shard that is used.
    ///
    /// # Errors
    /// [`BuildError::Thread`] if no thread can be spawned for the shared timer. The next call tries
    /// again.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes a purgatory on `timer`, as [`new`](Self::new) does on the shared one. O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::Purgatory;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let fetches: Purgatory<u32> = Purgatory::on(&timer, "fetch")?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).timer(timer).build()
    }

    /// Returns a builder with the default settings; `name` labels the purgatory's metrics.
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        let rules = Rules {
            callbacks_on_executor: false,
            sweeps: None,
            on_missed: None,
        };
        Builder::new(name, rules)
    }
}

opaque!([F: Form] Builder<F>, name: settings.name);
