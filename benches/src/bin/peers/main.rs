//! Timers and waits side by side: ours against what a Rust program would take or write instead, in
//! one run, round by round.
//!
//! `cargo run --release -p purgatory-benches --bin peers -- --quick` for a first look, without
//! `--quick` for figures to quote, on a quiet machine.
//!
//! Less is better everywhere. While it runs, each measure is printed with its spread; at the end
//! come the medians as the Markdown tables that `docs/BENCHMARKS.md` has. Every loop counts what
//! came of its timers and requests, and a wrong count ends the run. Allocations are counted by
//! thread while the `bytes-per-…` rows ask for it; at other times the allocator looks at a
//! thread-local or two for each, a few nanoseconds.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod contender;
mod produces;
mod request;
mod results;
mod rows;
mod sink;
mod sizes;
mod timers;
mod waits;

use anyhow::ensure;
use clap::Parser;
use purgatory_benches::machine;

use crate::{
    results::Results,
    rows::{ROWS, row::Run},
    sizes::Sizes,
};

/// Timer and purgatory work by ours and by what a Rust program would take or write instead, side by
/// side.
///
/// Prints each measure, then Markdown tables of the medians; less is better. Takes some minutes and
/// about 3 GB of memory in full, less than a minute with --quick.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// A tenth of the sizes and one round: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// The number of rounds of every row, instead of the row's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Only rows whose name contains this. May be given more than once; --list shows the names.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only contenders whose name contains this, such as `ours`: to look at one with a profiler.
    /// May be given more than once.
    #[arg(long, value_name = "PATTERN")]
    contender: Vec<String>,
    /// Lists the rows, each with the question that it answers, and ends.
    #[arg(long)]
    list: bool,
}

impl Args {
    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| id.contains(pattern))
    }

    fn sizes(&self) -> Sizes {
        let sizes = if self.quick {
            Sizes::QUICK
        } else {
            Sizes::FULL
        };
        Sizes {
            rounds: self.rounds.map_or(sizes.rounds, usize::from),
            ..sizes
        }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        ROWS.iter()
            .for_each(|row| println!("{:<29}{}", row.id, row.question));
        return Ok(());
    }
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.wants(row.id)).collect();
    ensure!(
        !wanted.is_empty(),
        "no row contains {:?}; see --list",
        args.only
    );
    let sizes = args.sizes();
    println!(
        "{} mode on {}",
        if args.quick { "quick" } else { "full" },
        machine()
    );
    let mut results = Results::default();
    for row in &wanted {
        let before = results.measures.len();
        row.run(&mut Run {
            sizes,
            results: &mut results,
            only: &args.contender,
        })?;
        results.measures[before..]
            .iter()
            .for_each(|measure| print!("{}", measure.block()));
    }
    print!("{}", results.tables());
    Ok(())
}
