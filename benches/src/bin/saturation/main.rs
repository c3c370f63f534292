//! Saturation: what is too much for a purgatory, and what that looks like. Four kinds of load rise
//! step by step until something cannot keep up; then the same load once more, with the advice of
//! `docs/METRICS.md` followed.
//!
//! `cargo run --release -p purgatory-benches --bin saturation` (append `-- --quick` for a first
//! look, `-- --plot FILE` for the chart).
//!
//! The ways take turns, and each figure is the median of its rounds. A step lasts a fraction of a
//! second; a backlog grows for as long as the load lasts. Expiries are parked before the first is
//! due, so that the thread that parks takes nothing away. *Late* is from the deadline asked for
//! until the callback begins, of an event from the moment it was to be raised until its last waiter
//! was checked. *Achieved* is from the first deadline until the last callback begins.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a table; loads take time")]

mod kinds;
mod load;
mod plot;

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use purgatory_benches::{check_writable, machine, median, write};

use crate::kinds::{KINDS, Kind, WINDOW};

/// Raises four kinds of load until something cannot keep up, and shows which metric tells.
#[derive(Parser)]
#[command(name = "saturation", version)]
struct Args {
    /// Two short steps of each: everything runs and checks itself, the figures mean little
    #[arg(long)]
    quick: bool,
    /// Writes a chart, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What a step of the load came to: offered and achieved, a second; late at the median and the 99th
/// percentile, in ms; the value of the kind's metric.
type Step = [f64; 5];

/// A step from how late each was, in nanoseconds, in the order they were due, evenly over `window`.
fn step(window: Duration, late_ns: &[u64], shown: f64) -> Step {
    let (count, each_s) = (late_ns.len() as f64, window.as_secs_f64() / late_ns.len() as f64);
    let late = late_ns.iter().enumerate();
    let ends_s = late.map(|(at, &late)| at as f64 * each_s + late as f64 / 1e9);
    let mut sorted = late_ns.to_vec();
    sorted.sort_unstable();
    let late_ms = |share: f64| sorted[(count * share) as usize] as f64 / 1e6;
    let achieved = count / ends_s.fold(window.as_secs_f64(), f64::max);
    [1.0 / each_s, achieved, late_ms(0.5), late_ms(0.99), shown]
}

/// A kind's steps, each way.
type Curves = Vec<Vec<Step>>;

fn curves(kind: &Kind, quick: bool) -> anyhow::Result<Curves> {
    let (rounds, window) = if quick { (1, WINDOW / 5) } else { (3, WINDOW) };
    let rates = if quick { &kind.rates[3..] } else { &kind.rates[..] };
    let mut ways = vec![vec![Vec::new(); rates.len()]; kind.ways.len()];
    for _ in 0..rounds {
        for (at, &rate) in rates.iter().enumerate() {
            for (steps, (_, load)) in ways.iter_mut().zip(kind.ways) {
                steps[at].push(load.step(rate, window, kind.shown)?);
            }
        }
    }
    let of = |rounds: &[Step], at| median(&rounds.iter().map(|s| s[at]).collect::<Vec<_>>());
    let medians = |rounds: &Vec<Step>| std::array::from_fn(|at| of(rounds, at));
    Ok(ways.iter().map(|steps| steps.iter().map(medians).collect()).collect())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    check_writable(args.plot.as_deref())?;
    println!("{}. Offered and achieved a second, late in ms.", machine());
    let mut all = Vec::new();
    for kind in &KINDS {
        let ways = curves(kind, args.quick)?;
        for (steps, (way, _)) in ways.iter().zip(kind.ways) {
            println!("\n{}: {}; {way}", kind.name, kind.about);
            println!("   offered  achieved  late p50  late p99     metric   ({})", kind.metric);
            for [offered, achieved, p50, p99, shown] in steps {
                println!("{offered:>10.0}{achieved:>10.0}{p50:>10.1}{p99:>10.1}{shown:>11.2}");
            }
        }
        all.push(ways);
    }
    args.plot.map_or(Ok(()), |file| write(&file, &plot::chart(&all)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_ends_late_has_achieved_less() {
        let late = step(Duration::from_secs(1), &[0, 0, 0, 1_250_000_000], 7.0);
        assert_eq!(late, [4.0, 2.0, 0.0, 1250.0, 7.0]);
        let in_time = step(Duration::from_secs(1), &[1_000_000; 4], 0.0);
        assert_eq!(in_time, [4.0, 4.0, 1.0, 1.0, 0.0]);
    }
}
