//! Compares timer algorithms, from a plain list to the hierarchical wheel, as the number of pending
//! timers grows from ten to a million.
//!
//! `cargo run --release -p purgatory-benches --bin schemes -- --quick` for a first look (under 40
//! s), without `--quick` for figures to quote, on a quiet machine.
//!
//! It measures a start, a stop, a tick in which nothing is due, and, per timer, all ticks until the
//! last has fired: medians over rounds in which all schemes take turns. A scheme that takes too
//! long is stopped there, and the table says so. Every trial checks that each timer ended exactly
//! once and none early; if not, the run fails. The structures alone are measured, on one thread,
//! without a clock, a lock or callbacks; `peers` measures whole timers.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod algorithms;
mod results;
mod trial;

use clap::Parser;
use purgatory_benches::machine;

use crate::{
    algorithms::ALL,
    results::{MEASURES, Results},
    trial::{Plan, Sizes},
};

/// Measures what a timer costs in each of the classic algorithms, among ten to a million pending
/// ones.
///
/// Prints a table for each measure: medians beside the claimed cost; less is better. A full run
/// takes some minutes, one with --quick under 40 s, and some 200 MB of memory.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Fewer rounds, shorter samples, less patience: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let sizes = if args.quick {
        Sizes::QUICK
    } else {
        Sizes::FULL
    };
    let mode = if args.quick { "quick" } else { "full" };
    println!("{mode} mode on {}", machine());

    // Tables come at the end, as each has a column for every size.
    let results = measure(sizes)?;
    for measure in 0..MEASURES.len() {
        println!("\n{}", results.table(measure, sizes.pending));
    }
    Ok(())
}

/// Measures the schemes among more and more pending timers, in rounds in which they take turns.
fn measure(sizes: Sizes) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for &pending in sizes.pending {
        for round in 0..sizes.rounds {
            for scheme in &ALL {
                // A scheme that could not be filled in time cannot be with more timers.
                if results.is_stopped(scheme.name, 0) {
                    continue;
                }
                let expire = !results.is_stopped(scheme.name, 3);
                let costs = (scheme.trial)(&Plan {
                    sizes,
                    pending,
                    seed: round as u64,
                    expire,
                })?;
                results.add(scheme.name, pending, costs);
            }
        }
    }
    Ok(results)
}
