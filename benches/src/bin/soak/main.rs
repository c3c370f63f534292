//! A soak: parks operations at a steady rate for as long as wished, with faults mixed in, and shows
//! that none is lost, doubled or early and that memory stays as it is.
//!
//! `cargo run --release -p purgatory-benches --bin soak -- --seconds 60`
//!
//! Two worlds, each a timer with all that can be parked in on it, share a clock that jumps: one
//! lasts, the other is closed and made anew now and then. Drivers park in every way there is, and
//! do something to what was parked before: complete it, raise its event, cancel, reschedule, drop
//! its future, leave it to its time. Other threads live for a moment. One makes faults: executors
//! stall, the clock jumps, a world ends. Checks and callbacks panic. Each operation has a number
//! and one outcome in the books. At a standstill everything ends; no operation may be left, and
//! memory must be what it was.
//!
//! All choices come from a seed. Threads race, so the same seed makes the same kind of run, not the
//! same run.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod books;
mod driver;
mod inject;
mod park;
mod run;
mod world;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, value_parser};
use purgatory_benches::machine;

use crate::{books::Plant, driver::Stop};

/// Parks operations at a steady rate with faults mixed in, and shows that none is lost, doubled or
/// early and that memory stays as it is. Ctrl-C ends it with its table. Fails (exit code 1) when
/// something is not as it should be.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Args {
    /// How long; without it until Ctrl-C.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Operations a second. What was reached is printed.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 200_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=10_000_000))]
    rate: u64,
    /// Makes the operations and the faults; another one each time without it.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds between two lines of progress, on the standard error; 0 for none.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    progress: u64,
    /// Makes a mistake in the books, to see that it is noticed.
    #[arg(long, hide = true)]
    plant: Option<Plant>,
}

impl Args {
    /// Seconds between two standstills: 30, or a sixth of the run. The warm-up is two of them and a
    /// quarter of the run, or ten minutes.
    fn standstill(&self) -> u64 {
        self.seconds
            .map_or(30, |seconds| (seconds / 6).clamp(1, 30))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let stop = Stop::default();
    let raise = stop.clone();
    ctrlc::set_handler(move || raise.raise()).context("cannot listen for Ctrl-C")?;
    eprintln!("{}", machine());
    eprintln!("seed {seed}, {} a second", args.rate);
    Ok(if run::run(&args, seed, &stop)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
