//! Timers and waits side by side: ours against what a Rust program would take or write instead, in
//! one run, round by round, with what the primitives alone cost beside it.
//!
//! `cargo run --release -p purgatory-benches --bin peers -- --quick` for a first look (under 40 s
//! on two cores), without `--quick` for figures to quote, on a quiet machine.
//!
//! Less is better everywhere. `RATIO <measure> <peer> <ours> <theirs> <ours/theirs>` and `FLOOR
//! <measure> <ours> <floor> <ours/floor>` are medians over the rounds. Every loop counts what came
//! of its timers and requests, and a wrong count ends the run. Allocations are counted by thread
//! while the `bytes-per-…` rows ask for it; at other times the allocator looks at a thread-local or
//! two for each, a few nanoseconds, which the floors pay too.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod contender;
mod floor;
mod produces;
mod request;
mod results;
mod rows;
mod sink;
mod sizes;
mod timers;
mod waits;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Parser;
use purgatory_benches::{check_writable, machine, progress, write_json};
use serde_json::json;

use crate::{
    results::Results,
    rows::{ROWS, row::Run},
    sizes::Sizes,
};

/// Timer and purgatory work by ours and by what a Rust program would take or write instead, side by
/// side.
///
/// Prints a table, then RATIO lines (`RATIO <measure> <peer> <ours> <theirs> <ours/theirs>`) and
/// FLOOR lines (`FLOOR <measure> <ours> <floor> <ours/floor>`); less is better. Takes some minutes
/// and about 3 GB of memory in full, under 40 s with --quick.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Smaller sizes and fewer rounds: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// So many rounds of every row, instead of what the row takes by itself.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Only rows whose name contains this. May be given more than once; --list shows the names.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only contenders whose name contains this, such as `ours`: to look at one with a profiler.
    /// May be given more than once.
    #[arg(long, value_name = "PATTERN")]
    contender: Vec<String>,
    /// Lists the rows and ends.
    #[arg(long)]
    list: bool,
    /// Writes everything measured, each round of it, to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Args {
    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| id.contains(pattern))
    }

    fn sizes(&self) -> Sizes {
        let sizes = if self.quick { Sizes::QUICK } else { Sizes::FULL };
        let Some(rounds) = self.rounds.map(usize::from) else { return sizes };
        Sizes { rounds, real_time_rounds: rounds, short_rounds: rounds, ..sizes }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        ROWS.iter().for_each(|row| println!("{:<37}{}", row.id, row.about));
        return Ok(());
    }
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.wants(row.id)).collect();
    ensure!(!wanted.is_empty(), "no row contains {:?}; see --list", args.only);
    check_writable(args.json.as_deref())?;
    let sizes = args.sizes();
    let (mode, machine) = (if args.quick { "quick" } else { "full" }, machine());
    println!("{mode} mode on {machine}");
    if args.quick {
        let (one_m, hundred_k) = (sizes.one_m, sizes.hundred_k);
        println!("quick: `1m` stands for {one_m} and `100k` for {hundred_k}");
    }

    let progress = progress(wanted.len());
    let mut results = Results::default();
    for row in &wanted {
        let before = results.measures.len();
        let (results, progress, only) = (&mut results, &progress, &args.contender[..]);
        row.run(&mut Run { sizes, results, progress, only })?;
        progress.inc(1);
        let tables = results.measures[before..].iter().map(results::Measure::table);
        progress.suspend(|| tables.for_each(|table| print!("{table}")));
    }
    progress.finish_and_clear();

    println!();
    let lines = results.measures.iter().flat_map(results::Measure::lines);
    lines.for_each(|line| println!("{line}"));
    let measures: Vec<_> = results.measures.iter().map(results::Measure::json).collect();
    let all = json!({ "machine": machine, "mode": mode, "measures": measures });
    write_json(args.json.as_deref(), &all)?;
    for part in &args.contender {
        ensure!(results.has_contender(part), "no contender of these rows contains {part:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_picks_rows() {
        let args = Args::parse_from(["peers", "--only", "cancel-2t", "--only", "burst"]);
        let picked: Vec<_> = ROWS.iter().map(|row| row.id).filter(|id| args.wants(id)).collect();
        assert_eq!(picked, ["schedule-cancel-2t-100k", "burst-1m"]);
    }
}
