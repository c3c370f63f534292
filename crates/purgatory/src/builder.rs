//! Building a [`Purgatory`], and shutting it down.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use timer_core::{
    BuildError, Clock, Executor, MAX_SHARDS, SystemClock, Timer, driver::sync::Latch,
};

use crate::{
    boxed::BoxedOperation,
    engine::{Core, Settings},
    operation::{CancelReason, DelayedOperation, opaque},
    purgatory::Purgatory,
    stats::Parked,
    sync::{Limit, default_shards},
    watches::WatchKey,
};

/// Configures a [`Purgatory`].
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
pub struct Builder<K, O = BoxedOperation> {
    settings: Settings<K>,
    builds: PhantomData<fn() -> (K, O)>,
}

impl<K: WatchKey, O: DelayedOperation> Builder<K, O> {
    /// Shares a timer, instead of starting one: any number of purgatories, one reaper. On a
    /// [`ManualTimer`](timer_core::ManualTimer) that is never turned nothing expires: the time-outs
    /// are the caller's.
    pub fn timer(mut self, timer: &impl Timer) -> Self {
        self.settings.driver = Some(timer.driver());
        self
    }

    /// Runs what this purgatory's expired operations call back, and whatever else is not for the
    /// calling thread, on this executor instead of the timer's: rechecks and last checks, and what
    /// is beyond the first 1024 callbacks queued behind one call.
    ///
    /// [`Workers`](timer_core::Workers) is one. [`execute`](Executor::execute) is called with
    /// nothing locked; a panic in it is contained, and a job that it drops runs on the dropping
    /// thread.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.settings.executor = Some(Arc::new(executor));
        self
    }

    /// Runs every callback on the executor: the timer's, or the purgatory's own. By default only
    /// those of expired operations run there, and the others on the thread that completed or
    /// cancelled. For callbacks too slow for the threads that raise events; costs a hand-over each.
    pub fn callbacks_on_executor(mut self) -> Self {
        self.settings.callbacks_on_executor = true;
        self
    }

    /// How many operations there may be at most: parked, and over with their callback still to
    /// come. One more that would have to wait is refused and handed back (its first check runs
    /// before). The place of one that is over comes free just before its callback, so of several
    /// that one event ends the first callbacks may still find none, and an executor that falls
    /// behind makes for refusals, not for memory. No limit by default; with one, all threads share
    /// a counter.
    pub fn max_parked(mut self, max: usize) -> Self {
        self.settings.permits = Some(Limit::new(max as u64));
        self
    }

    /// How heavy the operations may be together that [`max_parked`](Self::max_parked) counts, in
    /// whatever [`weight`](DelayedOperation::weight) counts: bytes, for a bound on memory. One more
    /// that would have to wait and does not fit is refused and handed back
    /// ([`TooHeavy`](crate::RefusedReason::TooHeavy)), before anything is parked; a lighter one may
    /// still be taken. Exact on any number of threads, which share a counter then. No limit by
    /// default; then no weight is asked for.
    ///
    /// A wait, a closure and an expected reply weigh 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{DelayedOperation, Outcome, Purgatory, RefusedReason};
    ///
    /// struct Produce(Vec<u8>);
    /// impl DelayedOperation for Produce {
    ///     fn try_complete(&mut self) -> bool { false }
    ///     fn on_complete(self, _: Outcome) {}
    ///     fn weight(&self) -> u64 { self.0.len() as u64 }
    /// }
    ///
    /// let produces = Purgatory::builder("produce").max_weight(1000).build()?;
    /// let timeout = Duration::from_secs(30);
    /// produces.try_complete_else_watch(Produce(vec![0; 900]), &["orders-0"], timeout)?;
    /// let large = produces.try_complete_else_watch(Produce(vec![0; 200]), &["orders-1"], timeout);
    /// let reason = RefusedReason::TooHeavy { weight: 200, limit: 1000 };
    /// assert_eq!(large.unwrap_err().reason, reason);
    /// produces.try_complete_else_watch(Produce(vec![0; 100]), &["orders-0"], timeout)?;
    /// assert_eq!(produces.stats().weight, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_weight(mut self, max: u64) -> Self {
        self.settings.weights = Some(Limit::new(max));
        self
    }

    /// Into how many shards its keys are parted by their hash, each with a lock: a power of two up
    /// to [`MAX_SHARDS`]. More shards keep more threads out of each other's way; each takes half a
    /// kilobyte when empty. By default 64 for each processor, at least 64 and at most 256.
    pub fn shards(mut self, count: usize) -> Self {
        self.settings.shards = count;
        self
    }

    /// Checks each operation once more when its time is up, and finds the events that were never
    /// raised. An operation whose last check comes true ends as Completed. Unless an event was
    /// noted meanwhile, that is a *missed event*: its condition came true without one, so it waited
    /// out its time. It is counted ([`missed_events`](crate::Stats::missed_events),
    /// `purgatory_missed_events_total`) and told to `hook`, on the executor, with nothing locked,
    /// before the operation's callback. A panic in the hook is contained and counted, so it fails
    /// no test: assert that the count is 0.
    ///
    /// An event that races the time-out may count as missed: look at the rate. A trigger that was
    /// forgotten is missed again and again.
    ///
    /// The check runs on the executor, where the callback of what expired runs; until then the
    /// operation counts as under check, and its end is decided: cancelling it, or a shutdown,
    /// changes nothing, and it ends as Expired, or as Completed if that check says so. One that
    /// panics ends as Expired; if the executor drops the job, the check runs on the dropping
    /// thread. An operation that a thread is checking when its time is up has its last check there;
    /// one with a timeout of zero has only its first.
    ///
    /// Costs nothing where nothing expires; a check and a box for each operation that does.
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
        self.settings.on_missed = Some(Box::new(hook));
        self
    }

    /// Checks each operation that waits for longer than `every` once each `every`, so that an event
    /// that was forgotten costs at most that, and not the whole time-out: an operation whose
    /// condition has come true ends as Completed, and unless an event was noted meanwhile, that is
    /// a missed event, counted and told as by [`check_at_expiry`](Self::check_at_expiry). Without
    /// that there is no hook, and no check when time is up. Off by default.
    ///
    /// The check runs on the executor, with nothing locked. Until then the operation waits on:
    /// events, cancels and its deadline come as ever. `every` rounds up to a tick, at least one,
    /// and counts from parking, the last recheck, or a new deadline. (An executor that falls behind
    /// delays a check; a second is not queued.) If a thread is checking the operation just then, that
    /// thread checks it once more. One that panics ends its operation as
    /// [`Panicked`](crate::CancelReason::Panicked). Not for [`Replies`](crate::Replies) and
    /// [`next_event`](Purgatory::next_event), which have nothing to check.
    ///
    /// Costs nothing to operations that end before; a check and a place on the wheel each time.
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
        self.settings.recheck_every = Some(every);
        self
    }

    /// Builds the purgatory, with a timer of its own unless one is shared.
    ///
    /// # Errors
    /// [`BuildError`] when the shared timer was shut down, or no thread can be had for an own one;
    /// [`BuildError::Shards`] for a number of [`shards`](Self::shards) that is out of bounds.
    pub fn build(self) -> Result<Purgatory<K, O>, BuildError> {
        let shards = self.settings.shards;
        if !shards.is_power_of_two() || shards > MAX_SHARDS {
            return Err(BuildError::Shards(shards));
        }
        Core::new(self.settings).map(Purgatory::handle_of)
    }
}

/// Making one.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// A purgatory with a [timer](timer_core::SystemTimer) of its own (two threads). A program with
    /// several shares one timer: see [`builder`](Self::builder).
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system gives no thread.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// A purgatory to be configured; `name` labels its metrics.
    pub fn builder(name: impl Into<String>) -> Builder<K, O> {
        let settings = Settings {
            name: name.into().into(),
            driver: None,
            executor: None,
            callbacks_on_executor: false,
            permits: None,
            weights: None,
            shards: default_shards(),
            recheck_every: None,
            on_missed: None,
        };
        Builder {
            settings,
            builds: PhantomData,
        }
    }
}

opaque!([K, O] Builder<K, O>, name: settings.name);

/// The operations that a [`shutdown`](Purgatory::shutdown) left. They end by themselves, once the
/// checks or callbacks that hold them up return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownLeft {
    /// Operations still under check: each ends as that is over, on the thread that checks it.
    pub under_check: usize,
    /// Callbacks of what shutdowns ended that are not over. Those of what had expired before are
    /// not among them: [`Stats::callbacks_waiting`](crate::Stats::callbacks_waiting) has what
    /// waits.
    pub callbacks: usize,
    /// Threads of the purgatory's own timer that have not ended.
    pub threads: usize,
}

impl ShutdownLeft {
    /// True when none of these was left.
    pub fn is_nothing(&self) -> bool {
        *self == ShutdownLeft::default()
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Ends all that is parked as Cancelled ([`Shutdown`](crate::CancelReason::Shutdown)), refuses
    /// what would have to wait from now on, and waits at most `limit` until checks and callbacks
    /// are over; says what was left. The rest still ends, once and as it would have. `limit`
    /// may be [`Duration::MAX`]; zero waits for nothing. Again: only the wait.
    ///
    /// An operation under check is ended by the thread that checks it. Callbacks run on the
    /// executor, or here if that runs jobs in place (a [`ManualTimer`](timer_core::ManualTimer), an
    /// inline timer, or one that was shut down): for them the limit does not hold. A timer of the
    /// purgatory's own is shut down, too; a shared one goes on. Inside a check, a callback or a
    /// timer's task this waits for nothing, nor in async code that it [would
    /// hold up](crate::WaitError::InsideCallback).
    ///
    /// O(parked + shards). It blocks: in async code, call it from `spawn_blocking`.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Purgatory, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let (release, blocked) = mpsc::channel::<()>();
    /// let stuck = when(|| false, move |_| _ = blocked.recv());
    /// purgatory.try_complete_else_watch(stuck, &["orders-0"], Duration::from_secs(30))?;
    ///
    /// let left = purgatory.shutdown(Duration::from_millis(10));
    /// assert_eq!((left.callbacks, left.under_check), (1, 0));
    /// assert!(left.threads >= 1); // the one that runs it
    /// release.send(())?;
    /// assert!(purgatory.shutdown(Duration::from_secs(60)).is_nothing());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> ShutdownLeft {
        let (clock, pause) = (SystemClock::new(), Latch::default());
        let limit = if self.core.executors.must_not_block() {
            Duration::ZERO
        } else {
            limit
        };
        let left = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));
        self.core.close_on_executor(CancelReason::Shutdown);
        self.core.closing.wait(left());
        let _under_way = pause.begin();
        while !self.is_empty() && !left().is_zero() {
            // For checks: nothing tells when one is over.
            pause.wait(left().min(Duration::from_millis(1)));
        }
        let own_timer = self.core.own_timer.as_ref();
        let threads = own_timer.map_or(0, |timer| timer.shutdown(left()).threads);
        let callbacks = self.core.closing.wait(Duration::ZERO);
        ShutdownLeft {
            under_check: self.len(),
            callbacks,
            threads,
        }
    }
}
