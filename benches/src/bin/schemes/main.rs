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
mod numbers;
mod plot;
mod results;
mod sizes;
mod table;
mod trial;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Parser;
use purgatory_benches::{machine, progress};

use crate::{
    algorithms::{ALL, Contender},
    results::{Measure, Results},
    sizes::Sizes,
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
    /// Only schemes whose name contains this. May be given more than once; --list shows the names.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Lists the schemes and ends.
    #[arg(long)]
    list: bool,
    /// Writes one log-log chart for each measure into a directory, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| name.contains(pattern))
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        ALL.iter().for_each(|scheme| println!("{:<18}{}", scheme.name, scheme.idea));
        return Ok(());
    }
    let wanted: Vec<_> = ALL.iter().filter(|scheme| args.wants(scheme.name)).collect();
    ensure!(!wanted.is_empty(), "no scheme contains {:?}; see --list", args.only);
    let sizes = if args.quick { Sizes::QUICK } else { Sizes::FULL };
    println!("{} mode on {}", sizes.name, machine());

    let trials = sizes.pending.len() * sizes.rounds * wanted.len();
    let progress = progress(trials);
    let at = |who: String| {
        progress.set_message(who);
        progress.inc(1);
    };
    let results = measure(sizes, &wanted, at)?;
    progress.finish_and_clear();

    for measure in Measure::ALL {
        print!("{}", table::growth(&results, &wanted, measure, sizes.pending));
    }
    if let Some(dir) = &args.plot {
        plot::write(dir, &ALL, &results)?;
    }
    Ok(())
}

/// Measures the schemes among ever more pending timers, in rounds in which they take turns. `at` is
/// told of each trial.
fn measure(sizes: Sizes, wanted: &[&Contender], at: impl Fn(String)) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for &pending in sizes.pending {
        for round in 0..sizes.rounds {
            for scheme in wanted {
                at(format!("{} among {pending}, round {}", scheme.name, round + 1));
                if results.is_stopped(scheme.name, Measure::Start) {
                    continue;
                }
                let expire = !results.is_stopped(scheme.name, Measure::Expire);
                let costs = (scheme.trial)(&sizes.plan(pending, round, expire))?;
                results.add(scheme.name, pending, &costs);
            }
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_pattern_picks_schemes() {
        let args = Args::parse_from(["schemes", "--only", "list", "--only", "timing"]);
        let picked: Vec<_> =
            ALL.iter().map(|one| one.name).filter(|name| args.wants(name)).collect();
        assert_eq!(picked, ["unsorted-list", "sorted-list", "timing-wheel"]);
    }

    #[test]
    fn every_scheme_is_measured_in_every_way() {
        let wanted: Vec<_> = ALL.iter().collect();
        let results = measure(Sizes::TINY, &wanted, |_| {}).unwrap();
        for measure in Measure::ALL {
            let text = table::growth(&results, &wanted, measure, Sizes::TINY.pending);
            assert_eq!((text.lines().count(), text.contains("stopped")), (3 + ALL.len(), false));
            for scheme in ALL {
                let series = results.series(scheme.name, measure);
                assert_eq!(series.len(), Sizes::TINY.pending.len());
                assert!(series.iter().all(|&(_, ns)| ns > 0.0), "{}", scheme.name);
            }
        }
    }
}
