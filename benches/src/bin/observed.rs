//! The cost of watching a purgatory. Operations are parked and completed unobserved, with rechecks
//! that none waits for, with timed waits, and while a Prometheus recorder is published to and
//! rendered four times a second. The last table has the cost of publishing itself.
//!
//! `cargo run --release -p purgatory-benches --bin observed` (append `-- --quick` for a first
//! look). The ways take turns, and each figure is the median of its rounds. With `--features
//! tracing` the purgatory's events are compiled in and a subscriber takes them. With `--only WAY`
//! one way runs by itself, for a tool that counts instructions.

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

/// What watching a purgatory costs its operations, and what publishing takes.
#[derive(Parser)]
#[command(name = "observed")]
struct Args {
    /// A few short rounds: everything runs and checks itself, the figures mean little
    #[arg(long)]
    quick: bool,

    /// One way by itself, in one round, without a figure
    #[arg(long, value_enum)]
    only: Option<Way>,

    /// Operations a round
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    operations: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Nothing asks for metrics
    Unobserved,
    /// The same, and each operation would be rechecked after ten seconds
    Rechecked,
    /// Waits are timed
    Timed,
    /// Published and rendered four times a second, to a Prometheus recorder
    Scraped,
}

/// An operation of 16 bytes: waits for a number in a cell to reach another.
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

/// A way, warmed up.
struct Watched {
    way: Way,
    purgatory: Purgatory<u64, Op>,
    recorder: PrometheusRecorder,
    done: &'static AtomicU64,
    ns: Vec<f64>,
}

impl Watched {
    fn new(way: Way) -> Result<Self> {
        let builder = Purgatory::builder("bench");
        let purgatory = match way {
            Way::Rechecked => builder.recheck_every(TIMEOUT / 3).build()?,
            _ => builder.build()?,
        };
        if matches!(way, Way::Timed | Way::Scraped) {
            purgatory.times();
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets(TimeHistogram::BOUNDS_S)?
            .build_recorder();
        Ok(Watched {
            way,
            purgatory,
            recorder,
            done: Box::leak(Box::default()),
            ns: Vec::new(),
        })
    }

    /// Nanoseconds of this thread's CPU for parking and completing one operation.
    fn round(&self, operations: u64) -> Result<f64> {
        let begun = thread_cpu();
        self.work(operations)?;
        Ok((thread_cpu() - begun).as_nanos() as f64 / operations as f64)
    }

    fn work(&self, operations: u64) -> Result<()> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            if self.way == Way::Scraped {
                let (purgatory, recorder, over) = (&self.purgatory, &self.recorder, &over);
                scope.spawn(move || {
                    while !over.load(Relaxed) {
                        metrics::with_local_recorder(recorder, || purgatory.publish());
                        std::hint::black_box(recorder.handle().render());
                        thread::park_timeout(SCRAPES);
                    }
                });
            }
            let first = self.done.load(Relaxed) + 1;
            let mut keys = fastrand::Rng::with_seed(first);
            let mut completed = 0;
            for number in first..first + operations {
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
            over.store(true, Relaxed);
            ensure!(
                completed == operations,
                "{completed} of {operations} completed"
            );
            Ok(())
        })
    }
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn took_ms(work: impl FnOnce()) -> f64 {
    let begun = thread_cpu();
    work();
    (thread_cpu() - begun).as_secs_f64() * 1e3
}

/// Milliseconds that publishing takes after `count` endings, and with `count` parked.
fn publishing(count: u64) -> Result<Vec<Vec<String>>> {
    let watched = Watched::new(Way::Timed)?;
    let Watched {
        purgatory,
        recorder,
        ..
    } = &watched;
    let publish = || metrics::with_local_recorder(recorder, || purgatory.publish());
    publish();
    let mut rows = Vec::new();
    let mut row = |what: &str, ms: f64| rows.push(vec![what.to_owned(), number(ms)]);
    row("publish, nothing parked", took_ms(publish));
    watched.round(count)?;
    row(
        &format!("publish after {} endings", grouped(count)),
        took_ms(publish),
    );
    let mut page = String::new();
    row(
        "and rendering that",
        took_ms(|| page = recorder.handle().render()),
    );
    let line = "purgatory_wait_seconds_count{purgatory=\"bench\",outcome=\"completed\"}";
    ensure!(
        page.contains(&format!("{line} {count}")),
        "not {count} waits in\n{page}"
    );
    for number in 0..count {
        let operation = Op {
            cell: watched.done,
            required: u64::MAX,
        };
        purgatory.try_complete_else_watch(operation, &[number % KEYS], Timeout::Never)?;
    }
    row(
        &format!("publish with {} parked", grouped(count)),
        took_ms(publish),
    );
    watched.done.store(u64::MAX, Relaxed);
    (0..KEYS).for_each(|key| _ = purgatory.check_and_complete(&key));
    ensure!(purgatory.is_empty(), "{} left", purgatory.len());
    Ok(rows)
}

/// Nanoseconds of CPU an operation, and of the first way, as medians over rounds.
fn watching(rounds: usize, operations: u64) -> Result<Vec<Vec<String>>> {
    let ways = Way::value_variants().iter().map(|&way| Watched::new(way));
    let mut ways = ways.collect::<Result<Vec<_>>>()?;
    for round in 0..=rounds {
        for watched in &mut ways {
            let ns = watched.round(operations)?;
            if round > 0 {
                watched.ns.push(ns); // the first one warms up
            }
        }
    }
    let row = |watched: &Watched| {
        let pairs = watched.ns.iter().zip(&ways[0].ns);
        let against: Vec<_> = pairs.map(|(ns, base)| ns / base).collect();
        vec![
            name(&watched.way),
            number(median(&watched.ns)),
            number(median(&against)),
        ]
    };
    Ok(ways.iter().map(row).collect())
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() -> Result<()> {
    let args = Args::parse();
    #[cfg(feature = "tracing")]
    tracing_subscriber::fmt().with_writer(std::io::sink).init();
    if let Some(way) = args.only {
        return Watched::new(way)?.work(args.operations);
    }
    let (rounds, operations) = if args.quick {
        (3, 20_000)
    } else {
        (31, args.operations)
    };
    let tracing = if cfg!(feature = "tracing") {
        "on"
    } else {
        "off"
    };
    println!("{}; tracing {tracing}\n", machine());
    let rows = watching(rounds, operations)?;
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
