//! Compares timer algorithms, from a plain list to the hierarchical wheel, as the number of pending
//! timers grows from a thousand to a million.
//!
//! `cargo run --release -p purgatory-benches --bin schemes -- --quick` for a first look, without
//! `--quick` for figures to quote, on a quiet machine.
//!
//! It measures a start, a stop, a tick in which nothing is due, and, per timer, all ticks until the
//! last timer has fired: medians over rounds in which all schemes take turns. Every trial checks
//! that each timer ended exactly once and none early; otherwise the run fails. Only the structures
//! are measured, on one thread, without a clock, a lock or callbacks; `peers` measures whole
//! timers.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod algorithms;
mod trial;

use std::collections::BTreeMap;

use clap::Parser;
use purgatory_benches::{grouped, markdown, median, number};

use crate::{algorithms::ALL, trial::Plan};

/// Numbers of pending timers.
const PENDING: [usize; 3] = [1_000, 100_000, 1_000_000];

/// The measures, each with its subject.
const MEASURES: [(&str, &str); 4] = [
    ("start", "one timer more"),
    ("stop", "a random pending timer"),
    ("tick", "one tick, nothing due"),
    ("expire", "all ticks until the last has fired, a timer"),
];

/// Nanoseconds by measure, scheme and number of pending timers, one value per round.
type Results = BTreeMap<(usize, &'static str, usize), Vec<f64>>;

/// Measures what a timer costs in each of the classic algorithms, among a thousand to a million
/// pending ones.
///
/// Prints a table for each measure: medians beside the claimed cost; less is better. A full run
/// takes some minutes, and some 200 MB of memory.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Fewer rounds and shorter samples: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let results = measure(args.quick)?;
    for measure in 0..MEASURES.len() {
        println!("\n{}", table(&results, measure));
    }
    Ok(())
}

/// Measures the schemes with more and more pending timers, in rounds in which they take turns.
fn measure(quick: bool) -> anyhow::Result<Results> {
    let [rounds, batches] = if quick { [3, 5] } else { [5, 50] };
    let mut results = Results::new();
    for pending in PENDING {
        for seed in 0..rounds {
            let plan = Plan {
                pending,
                batches,
                seed: seed as u64,
            };
            for scheme in &ALL {
                for (measure, cost) in (scheme.trial)(plan)?.into_iter().enumerate() {
                    let values = results.entry((measure, scheme.name, pending)).or_default();
                    values.extend(cost);
                }
            }
        }
    }
    Ok(results)
}

/// Formats the medians of one measure: a row for each scheme, a column for each number of timers.
fn table(results: &Results, measure: usize) -> String {
    let (name, about) = MEASURES[measure];
    let mut head = vec![format!("{name}, ns: {about}"), "claim".to_owned()];
    head.extend(PENDING.map(|pending| grouped(pending as u64)));

    let mut rows = Vec::new();
    for scheme in &ALL {
        let mut row = vec![scheme.name.to_owned(), scheme.claim[measure].to_owned()];
        for pending in PENDING {
            let values = &results[&(measure, scheme.name, pending)];
            row.push(if values.is_empty() {
                "–".to_owned()
            } else {
                number(median(values))
            });
        }
        rows.push(row);
    }
    markdown(&head, &rows)
}
