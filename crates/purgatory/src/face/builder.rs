//! What a [`Purgatory`] is built from.

use std::{fmt, marker::PhantomData, sync::Arc};

use timer_core::{BuildError, Executor, MAX_SHARDS, SystemTimer, Timer, driver::Driver};

use crate::{
    face::{boxed::BoxedOperation, purgatory::Purgatory},
    paths::{
        core::{Core, Settings},
        missed::OnMissed,
        trampoline::Offload,
    },
    sync::default_rooms,
    words::{
        watches::WatchKey,
        {missed::MissedEvent, operation::DelayedOperation},
    },
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
    name: String,
    driver: Option<Arc<Driver>>,
    executor: Option<Arc<dyn Executor>>,
    callbacks_on_executor: bool,
    max_parked: Option<usize>,
    rooms: usize,
    last_checks: Option<OnMissed<K>>,
    builds: PhantomData<fn() -> (K, O)>,
}

impl<K, O> Builder<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    pub(crate) fn new(name: String) -> Self {
        Builder {
            name,
            driver: None,
            executor: None,
            callbacks_on_executor: false,
            max_parked: None,
            rooms: default_rooms(),
            last_checks: None,
            builds: PhantomData,
        }
    }

    /// Shares a timer, instead of starting one: any number of purgatories, one reaper.
    pub fn timer(mut self, timer: &impl Timer) -> Self {
        self.driver = Some(timer.driver());
        self
    }

    /// Runs what this purgatory's expired operations call back, and whatever else is not for the
    /// calling thread, on this executor instead of the timer's: deferred events, looks at an
    /// operation that many events asked for, and what is beyond the first 1024 callbacks queued
    /// behind one call.
    ///
    /// [`Workers`](timer_core::Workers) is one. [`execute`](Executor::execute) is called with
    /// nothing locked; a panic in it is contained, and a job that it drops runs on the dropping
    /// thread.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Runs every callback on the executor: the timer's, or the purgatory's own. By default only
    /// those of expired operations run there, and the others on the thread that completed or
    /// cancelled. For callbacks too slow for the threads that raise events; costs a hand-over each.
    pub fn callbacks_on_executor(mut self) -> Self {
        self.callbacks_on_executor = true;
        self
    }

    /// How many operations there may be at most: parked, and over with their callback still to
    /// come. One more that would have to wait is refused and handed back (its first check runs
    /// before). The place of one that is over comes free just before its callback, so of several
    /// that one event ends the first callbacks may still find none, and an executor that falls
    /// behind makes for refusals, not for memory. No limit by default; with one, all threads share
    /// a counter.
    pub fn max_parked(mut self, max: usize) -> Self {
        self.max_parked = Some(max);
        self
    }

    /// Into how many rooms its keys are parted by their hash, each with a lock: a power of two up
    /// to [`MAX_SHARDS`]. More rooms keep more threads out of each other's way; each takes half a
    /// kilobyte when empty. By default 64 for each processor, at least 64 and at most 256.
    pub fn rooms(mut self, count: usize) -> Self {
        self.rooms = count;
        self
    }

    /// Checks each operation once more when its time is up, and finds the events that nobody
    /// raised. When that check comes true the operation ends as Completed, and unless an event was
    /// on its way that is a *missed event*: a condition that came true without one, so that a
    /// request waited out its time. It is counted ([`missed_events`](crate::Stats::missed_events),
    /// `purgatory_missed_events_total`), and told as a `tracing` warning that names the keys
    /// (feature `tracing`), and to the hook of [`on_missed_event`](Self::on_missed_event).
    ///
    /// The check runs on the executor, where the callback of what expired runs; until then the
    /// operation counts as under check, and its end is decided: cancelling it, or a shutdown,
    /// changes nothing, and it ends as Expired, or as Completed if that check says so. One that
    /// panics, or whose job the executor drops, ends as Expired. An operation that a thread is
    /// checking when its time is up has its last check there; one that never had time to wait has
    /// only its first.
    ///
    /// No miss, but a race between an event and the time-out, is a check that came true while an
    /// event on one of the keys was under way, or noted, or raised the key's version, or while any
    /// event was [deferred](Purgatory::defer). What cannot be told from a miss is an event that its
    /// thread is just about to raise, so look at the rate: a trigger that was forgotten is missed
    /// again and again.
    ///
    /// Costs nothing where nothing expires, but for two additions an event; a check and a box for
    /// each operation that does.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{BoxedOperation, Purgatory, when};
    /// use purgatory::timer_core::ManualTimer;
    ///
    /// let timer = ManualTimer::new();
    /// let fetches = Purgatory::builder("fetch").timer(&timer).check_at_expiry().build()?;
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
    pub fn check_at_expiry(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.last_checks.get_or_insert_default().text = Some(|keys| format!("{keys:?}"));
        self
    }

    /// The same without the keys' text.
    pub(crate) fn check_at_expiry_untold(mut self) -> Self {
        self.last_checks.get_or_insert_default();
        self
    }

    /// Calls `hook` for each missed event, on the executor and with nothing locked, before the
    /// callback of its operation. A panic in it is contained and counted, so it fails no test:
    /// assert that [`Stats::missed_events`](crate::Stats::missed_events) is 0. Turns
    /// [`check_at_expiry`](Self::check_at_expiry) on.
    ///
    /// ```
    /// use purgatory::{BoxedOperation, Purgatory};
    ///
    /// let fetches: Purgatory<String, BoxedOperation> = Purgatory::builder("fetch")
    ///     .on_missed_event(|missed| eprintln!("no event: {:?}", missed.keys))
    ///     .build()?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn on_missed_event(self, hook: impl Fn(&MissedEvent<K>) + Send + Sync + 'static) -> Self
    where
        K: fmt::Debug,
    {
        let mut builder = self.check_at_expiry();
        builder.last_checks.get_or_insert_default().hook = Some(Box::new(hook));
        builder
    }

    /// Builds the purgatory, with a timer of its own unless one is shared.
    ///
    /// # Errors
    /// [`BuildError`] when the shared timer was shut down, or no thread can be had for an own one;
    /// [`BuildError::Shards`] for a number of [`rooms`](Self::rooms) that is out of bounds.
    pub fn build(self) -> Result<Purgatory<K, O>, BuildError> {
        if !self.rooms.is_power_of_two() || self.rooms > MAX_SHARDS {
            return Err(BuildError::Shards(self.rooms));
        }
        let (driver, own_timer) = match self.driver {
            Some(driver) => (driver, None),
            None => {
                let timer = SystemTimer::builder().name(&*self.name).build()?;
                (timer.driver(), Some(timer))
            }
        };
        let core = Core::new(Settings {
            name: self.name.into(),
            offload: Offload { driver, executor: self.executor },
            offload_all: self.callbacks_on_executor,
            own_timer,
            max_parked: self.max_parked,
            rooms: self.rooms,
            last_checks: self.last_checks,
        })?;
        Ok(Purgatory::handle_of(core))
    }
}

/// Making one.
impl<K, O> Purgatory<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    /// A purgatory with a [`SystemTimer`] of its own (two threads). A program with several shares
    /// one timer: see [`builder`](Self::builder).
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system gives no thread.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// A purgatory to be configured; `name` labels its metrics.
    pub fn builder(name: impl Into<String>) -> Builder<K, O> {
        Builder::new(name.into())
    }
}

impl<K, O> fmt::Debug for Builder<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
