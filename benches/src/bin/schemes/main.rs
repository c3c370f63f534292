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

use std::path::PathBuf;

use clap::Parser;
use purgatory_benches::{machine, make_folder, progress, write};

use crate::{
    algorithms::ALL,
    results::{Measure, Results},
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
    /// Writes one log-log chart for each measure into a directory, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.plot.as_deref().map_or(Ok(()), make_folder)?;
    let (mode, sizes) = if args.quick { ("quick", Sizes::QUICK) } else { ("full", Sizes::FULL) };
    println!("{mode} mode on {}", machine());

    let trials = sizes.pending.len() * sizes.rounds * ALL.len();
    let progress = progress(trials);
    let at = |who: String| {
        progress.set_message(who);
        progress.inc(1);
    };
    let results = measure(sizes, at)?;
    progress.finish_and_clear();

    for measure in Measure::ALL {
        print!("{}", results.table(measure, sizes.pending));
        if let Some(dir) = &args.plot {
            let file = dir.join(format!("{}.svg", measure.name()));
            write(&file, &results.chart(measure)?)?;
        }
    }
    Ok(())
}

/// Measures the schemes among ever more pending timers, in rounds in which they take turns. `at` is
/// told of each trial.
fn measure(sizes: Sizes, at: impl Fn(String)) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for &pending in sizes.pending {
        for round in 0..sizes.rounds {
            for scheme in &ALL {
                at(format!("{} among {pending}, round {}", scheme.name, round + 1));
                if results.is_stopped(scheme.name, Measure::Start) {
                    continue;
                }
                let expire = !results.is_stopped(scheme.name, Measure::Expire);
                let costs = (scheme.trial)(&Plan { sizes, pending, seed: round as u64, expire })?;
                results.add(scheme.name, pending, costs);
            }
        }
    }
    Ok(results)
}
