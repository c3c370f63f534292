//! The frame of a form: the parts that every form has, whatever its engine, and that no shard's
//! lock guards. They are its name, its executor, the calls of user code, and the counts of rare
//! events.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64 as Count, Ordering::Relaxed},
    },
    time::Duration,
};

use timer_core::{
    Executor, TimeHistogram, TimerHandle,
    driver::{
        Driver, Executors, contain, contain_here,
        sync::{Latch, UnderWay},
    },
};

use crate::{
    error::WaitError,
    operation::OperationId,
    stats::{Labels, Stats, Times},
    sync::plain,
    table::{
        call::{Call, enqueue, must_not_block},
        trace,
    },
};

/// The present time, if ends are timed. Read before the lock under which a wait ends.
pub(crate) type EndedAt = Option<u64>;

/// State that all handles of a form share, whatever its engine.
pub(crate) struct Frame {
    pub(crate) name: Box<str>,
    /// Distinguishes the ids of its operations from those of other forms, of the last 2³² at least.
    number: u32,
    driver: Arc<Driver>,
    /// Runs work that the calling thread must not do: the form's own executor, or else the timer's.
    pub(crate) executor: Arc<Executors>,
    /// Set once the program has asked for times.
    timed: AtomicBool,
    /// This form's part of the recorder's series, withdrawn when the last handle is dropped.
    #[cfg(feature = "metrics")]
    pub(crate) published: timer_core::driver::Published,
    /// Not the model's atomic: nothing depends on it.
    callbacks_waiting: Count,
    /// Operations that a shutdown ended, or to whose holders it left a request; each until it is
    /// called back.
    pub(crate) closing: Latch,
    /// Other things that a shutdown ended: entries that were no waits, and keys.
    pub(crate) closing_others: Latch,
    cold: OnceLock<Box<ColdParts>>,
}

/// The parts that most forms do not use, made when the first of them is needed.
#[derive(Debug, Default)]
struct ColdParts {
    /// The times that callbacks waited for the executor.
    callback_delay: plain::Mutex<TimeHistogram>,
    /// Rare counts: panics, missed events, refusals.
    rare: plain::Mutex<Stats>,
    /// True once this form has warned, in debug builds, of a blocking wait on a runtime's thread.
    has_warned: AtomicBool,
    /// Every label that a snapshot has seen.
    labels: plain::Mutex<Labels>,
}

impl Frame {
    /// Makes the frame of a form that will be attached to this driver.
    pub(crate) fn new(
        name: Box<str>,
        driver: Arc<Driver>,
        executor: Option<Arc<dyn Executor>>,
    ) -> Self {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let executor = match executor {
            Some(own) => Arc::new(driver.executors.with_own(own)),
            None => driver.executors.clone(),
        };
        Frame {
            name,
            number: NUMBERS.fetch_add(1, Relaxed),
            driver,
            executor,
            timed: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            published: timer_core::driver::Published::default(),
            callbacks_waiting: Count::new(0),
            closing: Latch::default(),
            closing_others: Latch::default(),
            cold: OnceLock::new(),
        }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Returns the public name of an operation.
    pub(crate) fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId::new(handle, self.number)
    }

    /// Returns the operation of a public name, unless it is another form's.
    pub(crate) fn handle(&self, id: OperationId) -> Option<TimerHandle> {
        (id.purgatory() == self.number).then(|| id.handle())
    }

    /// Enters a call: callbacks that result from it run on this thread, in its outermost call.
    #[inline]
    pub(crate) fn enter(&self) -> Call<'_> {
        Call::enter(&self.executor)
    }

    /// Runs the user's code, with nothing locked. A panic in it is contained, counted and reported.
    #[inline(always)]
    pub(crate) fn call(&self, code: impl FnOnce()) {
        if let Err(panicked) = contain(code) {
            self.report_panic(&panicked);
        }
    }

    /// Runs the user code that nearly every wait has, as [`call`](Self::call) does.
    #[inline(always)]
    pub(crate) fn call_here(&self, code: impl FnOnce()) {
        if let Err(panicked) = contain_here(code) {
            self.report_panic(&panicked);
        }
    }

    /// Counts a contained panic of the user's code, and calls the timer's hook.
    #[cold]
    pub(crate) fn report_panic(&self, panicked: &str) {
        self.count_rare(|rare| rare.panics += 1);
        trace::panicked(&self.name, panicked);
        self.driver().report_panic(panicked);
    }

    /// Counts a refusal and tells a subscriber, with nothing locked. A wait with no time left is
    /// not a refusal: it has ended.
    #[cold]
    pub(crate) fn report_refusal(&self, reason: &WaitError) {
        if !matches!(reason, WaitError::Expired) {
            self.count_rare(|rare| rare.refused(reason));
            trace::refused(&self.name, reason);
        }
    }

    /// Changes the rare counts.
    #[cold]
    pub(crate) fn count_rare(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.cold().rare.lock());
    }

    /// Returns the present time if ends are timed. Call it before a lock is taken: a clock is user
    /// code.
    #[inline]
    pub(crate) fn ending_at(&self) -> EndedAt {
        if self.timed.load(Relaxed) {
            self.timed_end()
        } else {
            None
        }
    }

    /// Returns the present time, already read for another purpose, if ends are timed.
    pub(crate) fn timed_at(&self, now_ns: u64) -> EndedAt {
        self.timed.load(Relaxed).then_some(now_ns)
    }

    /// Reads the clock for an end or its callback. If the clock panics, that is contained and
    /// reported, and the end is not timed.
    #[cold]
    pub(crate) fn timed_end(&self) -> EndedAt {
        let mut now_ns = None;
        self.call(|| now_ns = Some(self.driver().now_ns()));
        now_ns
    }

    /// Counts callbacks that are left to the executor; returns the present time if delays are
    /// timed.
    pub(crate) fn callbacks_queued(&self, count: usize) -> EndedAt {
        self.callbacks_waiting.fetch_add(count as u64, Relaxed);
        self.ending_at()
    }

    /// Runs, inside a call, work that was left to the executor and counted as one callback. With
    /// `under_way`, a shutdown waits for it until its callback is over.
    pub(crate) fn run_queued(
        &self,
        queued_ns: EndedAt,
        under_way: Option<UnderWay>,
        run: impl FnOnce(&Call<'_>),
    ) {
        self.callbacks_waiting.fetch_sub(1, Relaxed);
        // If the clock panics, that is contained, and the delay is not recorded.
        if let (Some(queued_ns), Some(now_ns)) = (queued_ns, self.ending_at()) {
            let mut delays = self.cold().callback_delay.lock();
            delays.record(now_ns.saturating_sub(queued_ns));
        }
        let now_ns = || self.timed_end();
        trace::slow(&self.name, now_ns, || {
            let call = self.enter();
            run(&call);
            if call.is_nested() {
                enqueue(move || drop(under_way)); // behind the callback
            } else {
                drop(under_way); // before what the callback has queued
            }
        });
    }

    /// Returns true if a blocking wait might wait for the calling thread itself. In debug builds,
    /// warns if it would block a runtime's tasks.
    pub(crate) fn wait_must_not_block(&self) -> bool {
        let must_not = must_not_block(&self.executor);
        if cfg!(debug_assertions) && !must_not {
            trace::blocks_runtime(&self.name, &self.cold().has_warned);
        }
        must_not
    }

    /// Returns how long a shutdown may wait on this thread: not at all if the executor may need the
    /// thread.
    pub(crate) fn shutdown_limit(&self, limit: Duration) -> Duration {
        match must_not_block(&self.executor) {
            true => Duration::ZERO,
            false => limit,
        }
    }

    /// Returns the counts that no shard has.
    pub(crate) fn shared_stats(&self) -> Stats {
        let mut stats = match self.cold.get() {
            Some(cold) => *cold.rare.lock(),
            None => Stats::default(),
        };
        stats.callbacks_waiting = self.callbacks_waiting.load(Relaxed);
        stats
    }

    /// Begins to time ends, and returns the times that no shard has.
    pub(crate) fn shared_times(&self) -> Times {
        self.timed.store(true, Relaxed);
        let mut times = Times::default();
        if let Some(cold) = self.cold.get() {
            times.callback_delay = cold.callback_delay.lock().clone();
        }
        times
    }

    /// Adds every label that was seen before: once seen, a label is always reported, with 0 if need
    /// be.
    pub(crate) fn add_seen(&self, labels: &mut Labels) {
        let mut seen = self.cold().labels.lock();
        for &(label, _) in &labels.0 {
            seen.add(label, 0);
        }
        for &(label, _) in &seen.0 {
            labels.add(label, 0);
        }
    }

    /// Returns the cold parts, made on first use.
    #[cold]
    fn cold(&self) -> &ColdParts {
        self.cold.get_or_init(Box::default)
    }
}
