//! The timer algorithms, from a plain list to the hierarchical wheel, as the pending timers grow
//! from ten to a million.
//!
//! `cargo run --release -p purgatory-benches --bin schemes -- --quick` for a first look (under 40
//! s), without `--quick` for figures to quote, on a quiet machine.
//!
//! Measured are a start, a stop, a tick in which nothing is due, and, a timer, all ticks until the
//! last has fired: medians over rounds in which all schemes take turns. A scheme that takes too
//! long is stopped there, and the table says so. Every trial checks that each timer ended exactly
//! once and none early; if not, the run fails. Structures alone are measured, on one thread,
//! without a clock, a lock or callbacks: `peers` has whole timers.
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

/// What a timer costs by each of the classic algorithms, among ten to a million pending ones.
///
/// Prints a table for each measure: medians beside the cost that is claimed. Less is better. Takes
/// some minutes in full, under 40 s with --quick, and some 200 MB of memory.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Fewer rounds, shorter samples, less patience: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (mode, sizes) = if args.quick {
        ("quick", Sizes::QUICK)
    } else {
        ("full", Sizes::FULL)
    };
    println!("{mode} mode on {}", machine());

    let results = measure(sizes)?;
    for measure in 0..MEASURES.len() {
        println!("\n{}", results.table(measure, sizes.pending));
    }
    Ok(())
}

/// Measures the schemes among ever more pending timers, in rounds in which they take turns.
fn measure(sizes: Sizes) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for &pending in sizes.pending {
        for round in 0..sizes.rounds {
            for scheme in &ALL {
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
