//! Measures what one operation more costs among many, on one thread and on two.
//!
//! `cargo run --release -p purgatory-benches --bin scale` (append `-- --quick` for a first look). A
//! million requests wait under random ones of 100 000 keys, under one key each or under three. Each
//! operation completes a random one and parks another in its place: by its id (`scale-id-…`), or by
//! an event of one of its keys, which also checks all others under that key (`scale-event-…`). Two
//! threads have half of the requests each, under the same keys.
//!
//! The figure is processor time of the whole process, its timers' threads included, for one
//! operation. Contenders take turns, round by round. Each round counts how its requests ended, and
//! a wrong count ends the run. For a tool that counts, run it twice, with `--operations` of a round
//! that differ, and subtract.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod arena;
mod contenders;
mod request;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, ensure};
use clap::{Parser, value_parser};
use purgatory_benches::{machine, markdown, median, number};

use crate::{
    arena::{Arena, Rounds},
    contenders::{Hand, Ours},
};

/// Measures what one operation more costs among a million that are parked under 100 000 keys, on
/// one thread and on two, beside a hand-written map.
///
/// Prints nanoseconds of processor time for completing one and parking another; less is better. A
/// full run takes three minutes and 1 GB of memory, one with --quick some seconds. Ctrl-C ends it
/// with a table of the rows that are complete.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// A tenth of the sizes and one round: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this, such as `id-3keys`. May be given more than once; --list
    /// shows the rows.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only contenders whose name contains this, such as `ours`. May be given more than once.
    #[arg(long, value_name = "PATTERN")]
    contender: Vec<String>,
    /// The number of parked requests. [default: 1 000 000, or 100 000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..=100_000_000))]
    parked: Option<u32>,
    /// The number of keys. [default: 100 000, or 10 000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    keys: Option<u32>,
    /// Operations per round, of all threads together. [default: 200 000, or 20 000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    operations: Option<u32>,
    /// The number of rounds that are measured, after one that warms up. [default: 5, or 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Lists the rows.
    #[arg(long)]
    list: bool,
}

/// The operations that one row makes.
#[derive(Clone, Copy, Debug)]
struct Row {
    by: By,
    /// The number of keys under which a request waits: one or three.
    keys: usize,
    threads: usize,
}

/// The way in which a request is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Id,
    Event,
}

impl Row {
    /// All rows, in the order of the table.
    fn all() -> Vec<Row> {
        let mut rows = Vec::new();
        for by in [By::Id, By::Event] {
            for keys in [1, 3] {
                for threads in [1, 2] {
                    rows.push(Row { by, keys, threads });
                }
            }
        }
        rows
    }

    fn name(self) -> String {
        let by = match self.by {
            By::Id => "id",
            By::Event => "event",
        };
        let keys = if self.keys == 1 { "1key" } else { "3keys" };
        format!("scale-{by}-{keys}-{}t", self.threads)
    }
}

/// The sizes of one run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    parked: u32,
    keys: u32,
    operations: u32,
    rounds: u16,
}

impl Args {
    fn sizes(&self) -> Sizes {
        // A mode, with what was given in its place.
        let share = if self.quick { 10 } else { 1 };
        let operations = if self.quick { 20_000 } else { 200_000 };
        let rounds = if self.quick { 1 } else { 5 };
        Sizes {
            parked: self.parked.unwrap_or(1_000_000 / share),
            keys: self.keys.unwrap_or(100_000 / share),
            operations: self.operations.unwrap_or(operations),
            rounds: self.rounds.unwrap_or(rounds),
        }
    }

    /// Whether a contender of this name takes part.
    fn takes(&self, name: &str) -> bool {
        self.contender.is_empty() || self.contender.iter().any(|part| name.contains(part))
    }
}

/// Set by Ctrl-C.
pub(crate) type Stop = Arc<AtomicBool>;

/// Measures a row: one list of values for each contender that takes part. `None` once stopped.
fn measure(row: Row, args: &Args, stop: &Stop) -> anyhow::Result<Option<Vec<Vec<f64>>>> {
    let mut contenders: Vec<Box<dyn Rounds>> = Vec::new();
    let sizes = args.sizes();
    for name in names(args) {
        eprintln!("{}: {name} parks {}", row.name(), sizes.parked);
        contenders.push(match name {
            Ours::NAME => Box::new(Arena::open(Ours::start()?, row, sizes, stop)?),
            _ => Box::new(Arena::open(Hand::start()?, row, sizes, stop)?),
        });
    }

    // The contenders take turns. Their first round warms up.
    let mut values = vec![Vec::new(); contenders.len()];
    for round in 0..=sizes.rounds {
        eprintln!("{}: round {round} of {}", row.name(), sizes.rounds);
        for (at, contender) in contenders.iter_mut().enumerate() {
            let cpu_ns = contender.round(stop)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if round > 0 {
                values[at].push(cpu_ns);
            }
        }
    }
    Ok(Some(values))
}

/// The names of the contenders that take part.
fn names(args: &Args) -> Vec<&'static str> {
    let all = [Ours::NAME, Hand::NAME];
    all.into_iter().filter(|name| args.takes(name)).collect()
}

/// Formats the medians of a row as cells of the table, each with its least and greatest value.
fn cells(row: Row, values: &[Vec<f64>]) -> Vec<String> {
    let cell = |values: &Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let median = number(median(values));
        format!("{median} ({} to {})", number(least), number(most))
    };
    let mut cells = vec![row.name(), "ns of CPU".to_owned()];
    cells.extend(values.iter().map(cell));
    cells
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let rows = Row::all();
    if args.list {
        for row in rows {
            println!("{}", row.name());
        }
        return Ok(());
    }

    // A wrong pattern is an error, not an empty run.
    let wants = |row: &Row| {
        let name = row.name();
        args.only.is_empty() || args.only.iter().any(|part| name.contains(part))
    };
    let wanted: Vec<_> = rows.into_iter().filter(wants).collect();
    ensure!(
        !wanted.is_empty(),
        "no row contains {:?}; see --list",
        args.only
    );
    let names = names(&args);
    ensure!(!names.is_empty(), "no contender: {:?}", args.contender);

    // Ctrl-C ends the run after the row before.
    let stop = Stop::default();
    let on_ctrl_c = stop.clone();
    ctrlc::set_handler(move || on_ctrl_c.store(true, Ordering::Relaxed))
        .context("cannot listen for Ctrl-C")?;

    // Print each row as soon as it is known.
    println!("{}\n", machine());
    let head: Vec<_> = ["row", "unit"].into_iter().chain(names).collect();
    print!("{}", markdown(&head, &[]));
    for row in wanted {
        let Some(values) = measure(row, &args, &stop)? else {
            eprintln!("stopped: {} and what follows is missing", row.name());
            break;
        };
        println!("| {} |", cells(row, &values).join(" | "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_measures_each_contender() {
        let args = [
            "scale",
            "--parked",
            "100",
            "--keys",
            "10",
            "--operations",
            "200",
        ];
        let args = Args::parse_from(args.into_iter().chain(["--rounds", "2"]));
        for row in Row::all() {
            let values = measure(row, &args, &Stop::default()).expect("counts are right");
            let rounds: Vec<_> = values.expect("not stopped").iter().map(Vec::len).collect();
            assert_eq!(rounds, [2, 2], "{}", row.name());
        }
    }

    #[test]
    fn a_stopped_row_has_no_values() {
        let args = Args::parse_from(["scale", "--parked", "100", "--keys", "10"]);
        let stop = Stop::new(AtomicBool::new(true));
        let values = measure(Row::all()[0], &args, &stop).expect("a clean end");
        assert!(values.is_none());
    }
}
