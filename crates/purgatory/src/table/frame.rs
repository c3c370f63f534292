//! The frame of a form: what each has whatever its engine, and no shard's lock guards. Its name, its
//! executor, the user's code that it runs, and the counts of what is rare.

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

/// The present, if ends are timed. Read before the lock under which a wait ends.
pub(crate) type EndedAt = Option<u64>;

/// State that all handles of a form share, whatever its engine.
pub(crate) struct Frame {
    pub(crate) name: Box<str>,
    /// Distinguishes the ids of its operations from those of other forms, the last 2³² at least.
    number: u32,
    driver: Arc<Driver>,
    /// The form's own executor, or without one the timer's, for work that the calling thread is not
    /// to do.
    pub(crate) executor: Arc<Executors>,
    /// Set once the program has asked for times.
    timed: AtomicBool,
    /// The part of this form in the recorder's series, withdrawn as the last handle goes.
    #[cfg(feature = "metrics")]
    pub(crate) published: timer_core::driver::Published,
    /// Not the model's atomic: nothing depends on it.
    callbacks_waiting: Count,
    /// Operations that a shutdown ended, or whose holders it left a request to: until they are
    /// called back.
    pub(crate) closing: Latch,
    /// What a shutdown ended besides: entries that were no waits, keys.
    pub(crate) closing_others: Latch,
    cold: OnceLock<Box<ColdParts>>,
}

/// The parts that most forms do not use, made when the first one is.
#[derive(Debug, Default)]
struct ColdParts {
    /// The times that callbacks waited for the executor.
    callback_delay: plain::Mutex<TimeHistogram>,
    /// Rare counts: panics, missed events, refusals.
    rare: plain::Mutex<Stats>,
    /// A blocking wait on a runtime's thread was warned of, in debug builds.
    has_warned: AtomicBool,
    /// Every label that a snapshot has seen.
    labels: plain::Mutex<Labels>,
}

impl Frame {
    /// Makes the frame of a form that is to be attached to this driver.
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

    /// The public name of an operation.
    pub(crate) fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId::new(handle, self.number)
    }

    /// The operation of a public name, unless it is another form's.
    pub(crate) fn handle(&self, id: OperationId) -> Option<TimerHandle> {
        (id.purgatory() == self.number).then(|| id.handle())
    }

    /// Enters a call: callbacks that it brings about run on this thread, by its outermost call.
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

    /// Runs what nearly each wait has of the user's code, as [`call`](Self::call) does.
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

    /// Counts a refusal and tells a subscriber, with nothing locked. A wait that had no time has ended,
    /// and was not refused.
    #[cold]
    pub(crate) fn report_refusal(&self, reason: &WaitError) {
        if !matches!(reason, WaitError::Expired) {
            self.count_rare(|rare| rare.refused(reason));
            trace::refused(&self.name, reason);
        }
    }

    /// Counts what is rare.
    #[cold]
    pub(crate) fn count_rare(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.cold().rare.lock());
    }

    /// The present, if ends are timed. Read it before the lock is taken: a clock is user code.
    #[inline]
    pub(crate) fn ending_at(&self) -> EndedAt {
        if self.timed.load(Relaxed) {
            self.timed_end()
        } else {
            None
        }
    }

    /// The present as it was read for something else, if ends are timed.
    pub(crate) fn timed_at(&self, now_ns: u64) -> EndedAt {
        self.timed.load(Relaxed).then_some(now_ns)
    }

    /// Reads the clock for an end or its callback. A panic of it is contained and reported: that end
    /// is not timed.
    #[cold]
    pub(crate) fn timed_end(&self) -> EndedAt {
        let mut now_ns = None;
        self.call(|| now_ns = Some(self.driver().now_ns()));
        now_ns
    }

    /// Counts callbacks that are left to the executor; returns the present, if that is timed.
    pub(crate) fn callbacks_queued(&self, count: usize) -> EndedAt {
        self.callbacks_waiting.fetch_add(count as u64, Relaxed);
        self.ending_at()
    }

    /// Runs what was left to the executor and counted as one callback, inside a call. A shutdown may
    /// have it under way until its callback is over.
    pub(crate) fn run_queued(
        &self,
        queued_ns: EndedAt,
        under_way: Option<UnderWay>,
        run: impl FnOnce(&Call<'_>),
    ) {
        self.callbacks_waiting.fetch_sub(1, Relaxed);
        // A panic of the clock is contained: that delay is not recorded.
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

    /// Returns true where a blocking wait might wait for the calling thread. In debug builds, warns
    /// where it would block a runtime's tasks.
    pub(crate) fn wait_must_not_block(&self) -> bool {
        let must_not = must_not_block(&self.executor);
        if cfg!(debug_assertions) && !must_not {
            trace::blocks_runtime(&self.name, &self.cold().has_warned);
        }
        must_not
    }

    /// Returns how long a shutdown may wait on this thread: not at all where the executor may need
    /// the thread.
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

    /// Adds every label that was seen before: one is reported from then on, with 0 if need be.
    pub(crate) fn add_seen(&self, labels: &mut Labels) {
        let mut seen = self.cold().labels.lock();
        for &(label, _) in &labels.0 {
            seen.add(label, 0);
        }
        for &(label, _) in &seen.0 {
            labels.add(label, 0);
        }
    }

    /// Returns the cold parts, to be used.
    #[cold]
    fn cold(&self) -> &ColdParts {
        self.cold.get_or_init(Box::default)
    }
}
