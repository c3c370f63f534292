//! Compares timers and waits of this project with what a Rust program would use or write instead.
//! Contenders take turns in one run, round by round.
//!
//! `cargo run --release -p purgatory-benches --bin peers -- --quick` for a first look, without
//! `--quick` for figures to quote, on a quiet machine.
//!
//! Less is better everywhere. Each measure is printed with its spread as soon as it is made; the
//! medians follow at the end, as the Markdown tables of `docs/BENCHMARKS.md`. Every loop counts how
//! its timers and requests ended, and a wrong count ends the run. Rows of bytes and allocations
//! need `--features count-allocations`, whose allocator slows every row.
//!
//! `benches/instructions.py` counts the instructions of an operation with `--operations`, and
//! `benches/lines.py` the cache lines of a call with `--calls`. With `--features tracing` the
//! purgatory's events are compiled in and a subscriber receives them.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod callbacks;
mod calls;
mod contender;
mod heap;
mod request;
mod results;
mod rows;
mod sink;
mod sizes;
mod sweep;
mod timers;
mod waits;
mod wakers;

use anyhow::ensure;
use clap::Parser;

use crate::{
    results::Results,
    rows::{row::Run, rows},
    sizes::Sizes,
};

/// Compares timers and waits of this project with what a Rust program would use or write instead.
///
/// Prints each measure, then Markdown tables of the medians; less is better. A full run takes some
/// minutes and about 3 GB of memory, one with --quick less than a minute.
#[derive(Debug, Parser)]
#[command(version, allow_negative_numbers = true)]
struct Args {
    /// A tenth of the sizes and one round: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// As little as shows that every row runs and passes its own check: no figures.
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// The number of rounds of every row, instead of the row's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// The number of operations of a round and thread, instead of the mode's own. With --rounds the
    /// work is exact, for a profiler that counts: see benches/instructions.py.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    operations: Option<u32>,
    /// Only rows and measures whose name contains this, such as `replies` or
    /// `park-complete-1key-future`. May be given more than once; --list shows the rows.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only contenders whose name contains this, such as `ours`, for a profiler. May be given more
    /// than once.
    #[arg(long, value_name = "PATTERN")]
    contender: Vec<String>,
    /// Makes the commonest calls, N of each kind, each with a mark, for benches/lines.py; by itself
    /// that shows nothing.
    #[arg(long, value_name = "N")]
    calls: Option<u64>,
    /// Lists the rows, each with the question that it answers.
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Returns whether a pattern names the row or one of its measures, whose names begin with the
    /// row's.
    fn wants(&self, row: &str) -> bool {
        let named = |pattern: &String| row.contains(pattern) || pattern.starts_with(row);
        self.only.is_empty() || self.only.iter().any(named)
    }

    fn sizes(&self) -> Sizes {
        // Take the mode's sizes, except those that were given.
        let sizes = match (self.smoke, self.quick) {
            (true, _) => Sizes::SMOKE,
            (false, true) => Sizes::QUICK,
            (false, false) => Sizes::FULL,
        };
        Sizes {
            rounds: self.rounds.map_or(sizes.rounds, usize::from),
            operations: self.operations.map_or(sizes.operations, |n| n as usize),
            ..sizes
        }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        for row in rows() {
            println!("{:<29}{}", row.id, row.question);
        }
        return Ok(());
    }
    if let Some(calls) = args.calls {
        return calls::make(calls);
    }
    #[cfg(feature = "tracing")]
    tracing_subscriber::fmt().with_writer(std::io::sink).init();

    // A wrong pattern is an error, not an empty run.
    let wanted: Vec<_> = rows().filter(|row| args.wants(row.id)).collect();
    ensure!(
        !wanted.is_empty(),
        "no row contains {:?}; see --list, and build with --features count-allocations for bytes",
        args.only
    );
    let sizes = args.sizes();
    // Print each row's measures at once: a full run takes minutes.
    let mut results = Results::default();
    for row in &wanted {
        let before = results.measures.len();
        row.run(&mut Run {
            sizes,
            results: &mut results,
            measures: &args.only,
            contenders: &args.contender,
        })?;
        for measure in &results.measures[before..] {
            print!("{}", measure.block());
        }
    }
    ensure!(
        !results.measures.is_empty(),
        "no measure contains {:?}, or no contender {:?}",
        args.only,
        args.contender
    );

    print!("{}", results.tables());
    Ok(())
}
