//! `observed`: the cost of observing a purgatory. Operations are parked under one of 1000 keys and
//! completed, on one thread; the figure is that thread's processor time, over a second at least.
//! *ours* is not observed. *rechecked* looks four times a second for operations that have waited
//! that long; none has. *timed* times each wait. *scraped* publishes to a Prometheus recorder and
//! renders, four times a second. With `--features tracing` the events are compiled in and a
//! subscriber receives them.
//!
//! `publish`: the time to publish with nothing parked, after a million endings, and with a million
//! parked; and the time to render the million endings.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use purgatory::{DelayedOperation, Outcome, Purgatory};
use purgatory_benches::thread_cpu_ns;
use timer_core::{Clock, SystemClock, TimeHistogram};

use super::arena::{HOUR, KEYS, TIMEOUT};
use crate::{contender::Contender, results::OURS, rows::row::Run, sizes::Sizes};

/// The time between two scrapes, and between two sweeps of rechecks.
const SCRAPES: Duration = Duration::from_millis(250);

/// The ways to observe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Unobserved,
    Rechecked,
    Timed,
    Scraped,
}

/// An operation of 16 bytes that waits until the number in a cell has reached the required one.
struct Op {
    cell: &'static AtomicU64,
    required: u64,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.cell.load(Relaxed) >= self.required
    }

    fn on_complete(self, outcome: Outcome) {
        assert_eq!(outcome, Outcome::Completed);
    }
}

/// A purgatory, and a recorder to which it may be published.
struct Observed {
    purgatory: Purgatory<u64, Op>,
    recorder: PrometheusRecorder,
    done: &'static AtomicU64,
}

impl Observed {
    fn new(mode: Mode) -> Result<Self> {
        let mut builder = Purgatory::builder("bench");
        if mode == Mode::Rechecked {
            builder = builder.recheck_every(SCRAPES);
        }
        let purgatory = builder.build()?;
        // The first call of `times` starts the timing of waits.
        if matches!(mode, Mode::Timed | Mode::Scraped) {
            _ = purgatory.times();
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets(TimeHistogram::BOUNDS_S)?
            .build_recorder();
        Ok(Observed {
            purgatory,
            recorder,
            done: Box::leak(Box::default()),
        })
    }

    fn publish(&self) {
        metrics::with_local_recorder(&self.recorder, || self.purgatory.publish());
    }

    /// Publishes and renders four times a second, until `over` is set.
    fn scrape(&self, over: &AtomicBool) {
        while !over.load(Relaxed) {
            self.publish();
            std::hint::black_box(self.recorder.handle().render());
            thread::park_timeout(SCRAPES);
        }
    }

    /// Parks an operation that is not ready.
    fn park(&self, required: u64, key: u64, timeout: Duration) -> Result<()> {
        let cell = self.done;
        self.purgatory
            .try_complete_else_watch(Op { cell, required }, &[key], timeout)?;
        Ok(())
    }

    /// Parks operations, each under a random key, and completes each immediately.
    fn park_and_complete(&self, operations: u64) -> Result<()> {
        let first = self.done.load(Relaxed) + 1;
        let mut keys = fastrand::Rng::with_seed(first);
        let mut completed = 0;
        for required in first..first + operations {
            // Park it while its condition is false, then make the condition true and signal the
            // key.
            let key = keys.u64(..KEYS);
            self.park(required, key, TIMEOUT)?;
            self.done.store(required, Relaxed);
            completed += self.purgatory.check_and_complete(&key) as u64;
        }
        ensure!(completed == operations, "{completed} were completed");
        Ok(())
    }
}

/// Measures nanoseconds of this thread's CPU for parking and completing one operation.
fn observe(mode: Mode, sizes: Sizes) -> Result<f64> {
    let observed = Observed::new(mode)?;
    let over = AtomicBool::new(false);
    let spent_ns = thread::scope(|scope| {
        // Scrape beside the work, on a thread of its own.
        let scraper = if mode == Mode::Scraped {
            Some(scope.spawn(|| observed.scrape(&over)))
        } else {
            None
        };
        let work = || observed.park_and_complete(sizes.operations as u64);
        let measured = || {
            work()?; // warms up
            let clock = SystemClock::new();
            let begin_ns = thread_cpu_ns();
            let mut rounds = 0;
            while rounds == 0 || clock.now_ns() < sizes.observed.as_nanos() as u64 {
                work()?;
                rounds += 1;
            }
            anyhow::Ok((thread_cpu_ns() - begin_ns) / rounds)
        };
        let spent_ns = measured();
        // Stop the scraper even if the work failed.
        over.store(true, Relaxed);
        if let Some(scraper) = scraper {
            scraper.thread().unpark();
        }
        spent_ns
    })?;
    Ok(spent_ns as f64 / sizes.operations as f64)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> Result<()> {
    let contenders = [
        Contender::new(OURS, |sizes| observe(Mode::Unobserved, sizes)),
        Contender::new("rechecked", |sizes| observe(Mode::Rechecked, sizes)),
        Contender::new("timed", |sizes| observe(Mode::Timed, sizes)),
        Contender::new("scraped", |sizes| observe(Mode::Scraped, sizes)),
    ];
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns of CPU", &contenders, run.sizes)?;
    }
    Ok(())
}

/// Measures the milliseconds of this thread's CPU that `work` takes.
fn took_ms(work: impl FnOnce()) -> f64 {
    let begin_ns = thread_cpu_ns();
    work();
    (thread_cpu_ns() - begin_ns) as f64 / 1e6
}

pub(in crate::rows) fn publish(id: &'static str, run: &mut Run<'_>) -> Result<()> {
    let observed = Observed::new(Mode::Timed)?;
    let count = run.sizes.one_m as u64;
    let mut add = |what: &str, ms| run.add(&format!("{id}-{what}"), "ms", OURS, ms);

    // The first publication registers the metrics.
    observed.publish();
    add("nothing-parked", took_ms(|| observed.publish()));

    // Publish and render the endings since then.
    observed.park_and_complete(count)?;
    add("1m-ended", took_ms(|| observed.publish()));
    let mut page = String::new();
    let render = took_ms(|| page = observed.recorder.handle().render());
    add("render", render);
    let line = "purgatory_wait_seconds_count{purgatory=\"bench\",outcome=\"completed\"}";
    let right = page.contains(&format!("{line} {count}"));
    ensure!(right, "not {count} waits in\n{page}");

    // Publishing walks the parked operations.
    for number in 0..count {
        observed.park(u64::MAX, number % KEYS, HOUR)?;
    }
    add("1m-parked", took_ms(|| observed.publish()));

    // All of them must still be parked.
    observed.done.store(u64::MAX, Relaxed);
    let mut completed = 0;
    for key in 0..KEYS {
        completed += observed.purgatory.check_and_complete(&key) as u64;
    }
    ensure!(completed == count, "{completed} completed of {count}");
    Ok(())
}
