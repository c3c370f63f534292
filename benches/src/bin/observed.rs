//! Measures the cost of observing a purgatory. Operations are parked and completed unobserved, with
//! rechecks that never come due, with timed waits, and while metrics are published to a Prometheus
//! recorder and rendered four times a second. The last table has the cost of publishing itself.
//!
//! `cargo run --release -p purgatory-benches --bin observed` (append `-- --quick` for a first
//! impression). The modes take turns, and each figure is the median of its rounds. With
//! `--features tracing` the purgatory's events are compiled in and a subscriber receives them. With
//! `--only MODE` one mode runs by itself, for a tool that counts instructions.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout};
use purgatory_benches::{grouped, machine, markdown, median, name, number};
use rustix::time::{ClockId, clock_gettime};
use timer_core::TimeHistogram;

const KEYS: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(30);
const SCRAPES: Duration = Duration::from_millis(250);

/// Measures what observing a purgatory costs its operations, and the time that publishing takes.
#[derive(Parser)]
#[command(name = "observed")]
struct Args {
    /// A few short rounds: everything runs and checks itself, the figures mean little
    #[arg(long)]
    quick: bool,

    /// One mode by itself, in one round, without a figure
    #[arg(long, value_enum)]
    only: Option<Mode>,

    /// Operations per round
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    operations: u64,
}

/// The way in which the purgatory is observed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// No metrics are asked for
    Unobserved,
    /// Unobserved, with a recheck of each operation after ten seconds, which none waits for
    Rechecked,
    /// Waits are timed
    Timed,
    /// Published and rendered four times a second, to a Prometheus recorder
    Scraped,
}

/// An operation of 16 bytes that waits until the number in a cell has reached another.
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

/// A purgatory observed in one mode.
struct Observed {
    mode: Mode,
    purgatory: Purgatory<u64, Op>,
    recorder: PrometheusRecorder,
    done: &'static AtomicU64,
    ns: Vec<f64>,
}

impl Observed {
    fn new(mode: Mode) -> Result<Self> {
        let builder = Purgatory::builder("bench");
        let purgatory = match mode {
            Mode::Rechecked => builder.recheck_every(TIMEOUT / 3).build()?,
            _ => builder.build()?,
        };
        // The first question for times starts the timing of waits.
        if matches!(mode, Mode::Timed | Mode::Scraped) {
            _ = purgatory.times();
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets(TimeHistogram::BOUNDS_S)?
            .build_recorder();
        Ok(Observed {
            mode,
            purgatory,
            recorder,
            done: Box::leak(Box::default()),
            ns: Vec::new(),
        })
    }

    /// Measures nanoseconds of this thread's CPU for parking and completing one operation.
    fn round(&self, operations: u64) -> Result<f64> {
        let begun = thread_cpu();
        self.work(operations)?;
        Ok((thread_cpu() - begun).as_nanos() as f64 / operations as f64)
    }

    /// Parks and completes operations, beside a thread that scrapes if the mode asks for it.
    fn work(&self, operations: u64) -> Result<()> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // Scrape beside the work, on a thread of its own.
            if self.mode == Mode::Scraped {
                scope.spawn(|| self.scrape(&over));
            }
            let completed = self.park_and_complete(operations);
            // The scraper stops whether that failed or not.
            over.store(true, Relaxed);
            ensure!(
                completed? == operations,
                "not all of {operations} were completed"
            );
            Ok(())
        })
    }

    /// Publishes and renders four times a second, until `over`.
    fn scrape(&self, over: &AtomicBool) {
        while !over.load(Relaxed) {
            metrics::with_local_recorder(&self.recorder, || self.purgatory.publish());
            std::hint::black_box(self.recorder.handle().render());
            thread::park_timeout(SCRAPES);
        }
    }

    /// Parks operations, each under a random key, and completes each at once. Returns how many were
    /// completed.
    fn park_and_complete(&self, operations: u64) -> Result<u64> {
        let first = self.done.load(Relaxed) + 1;
        let mut keys = fastrand::Rng::with_seed(first);
        let mut completed = 0;
        for number in first..first + operations {
            // Park it while its condition is false, then make that true and signal the key.
            let key = [keys.u64(..KEYS)];
            let operation = Op {
                cell: self.done,
                required: number,
            };
            self.purgatory
                .try_complete_else_watch(operation, &key, TIMEOUT)?;
            self.done.store(number, Relaxed);
            completed += self.purgatory.check_and_complete(&key[0]) as u64;
        }
        Ok(completed)
    }
}

/// Returns the processor time of this thread.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Measures the milliseconds of processor time that `work` takes.
fn took_ms(work: impl FnOnce()) -> f64 {
    let begun = thread_cpu();
    work();
    (thread_cpu() - begun).as_secs_f64() * 1e3
}

/// Measures the milliseconds that publishing takes after `count` endings, and with `count` parked.
fn publishing(count: u64) -> Result<Vec<Vec<String>>> {
    let observed = Observed::new(Mode::Timed)?;
    let purgatory = &observed.purgatory;
    let publish = || metrics::with_local_recorder(&observed.recorder, || purgatory.publish());
    let row = |what: &str, ms: f64| vec![what.to_owned(), number(ms)];
    let mut rows = Vec::new();

    // The first publication registers the metrics.
    publish();
    rows.push(row("publish, nothing parked", took_ms(publish)));

    // Publish and render what has ended since.
    observed.round(count)?;
    let what = format!("publish after {} endings", grouped(count));
    rows.push(row(&what, took_ms(publish)));
    let mut page = String::new();
    let ms = took_ms(|| page = observed.recorder.handle().render());
    rows.push(row("and rendering that", ms));
    let line = "purgatory_wait_seconds_count{purgatory=\"bench\",outcome=\"completed\"}";
    ensure!(
        page.contains(&format!("{line} {count}")),
        "not {count} waits in\n{page}"
    );

    // Parked operations are walked.
    for number in 0..count {
        let operation = Op {
            cell: observed.done,
            required: u64::MAX,
        };
        purgatory.try_complete_else_watch(operation, &[number % KEYS], Timeout::Never)?;
    }
    let what = format!("publish with {} parked", grouped(count));
    rows.push(row(&what, took_ms(publish)));

    // All of them must still be there.
    observed.done.store(u64::MAX, Relaxed);
    let mut completed = 0;
    for key in 0..KEYS {
        completed += purgatory.check_and_complete(&key) as u64;
    }
    ensure!(
        completed == count && purgatory.is_empty(),
        "{completed} completed of {count}"
    );
    Ok(rows)
}

/// Measures nanoseconds of CPU per operation, and their ratio to the first mode, as medians over
/// rounds.
fn observing(rounds: usize, operations: u64) -> Result<Vec<Vec<String>>> {
    let mut modes = Vec::new();
    for &mode in Mode::value_variants() {
        modes.push(Observed::new(mode)?);
    }

    // The modes take turns. Their first round warms up.
    for round in 0..=rounds {
        for observed in &mut modes {
            let ns = observed.round(operations)?;
            if round > 0 {
                observed.ns.push(ns);
            }
        }
    }

    // A ratio is taken within a round, as the machine drifts.
    let row = |observed: &Observed| {
        let pairs = observed.ns.iter().zip(&modes[0].ns);
        let ratios: Vec<_> = pairs.map(|(ns, base)| ns / base).collect();
        vec![
            name(&observed.mode),
            number(median(&observed.ns)),
            number(median(&ratios)),
        ]
    };
    Ok(modes.iter().map(row).collect())
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() -> Result<()> {
    let args = Args::parse();
    #[cfg(feature = "tracing")]
    tracing_subscriber::fmt().with_writer(std::io::sink).init();
    // One mode by itself has no table.
    if let Some(mode) = args.only {
        return Observed::new(mode)?.work(args.operations);
    }

    let tracing = if cfg!(feature = "tracing") {
        "on"
    } else {
        "off"
    };
    println!("{}; tracing {tracing}\n", machine());

    // The modes first, then publishing by itself.
    let rows = if args.quick {
        observing(3, 20_000)?
    } else {
        observing(31, args.operations)?
    };
    println!(
        "{}",
        markdown(&["park and complete", "ns of CPU", "of the first"], &rows)
    );
    let rows = publishing(if args.quick { 20_000 } else { 1_000_000 })?;
    print!(
        "{}",
        markdown(&["on the thread that publishes", "ms"], &rows)
    );
    Ok(())
}
