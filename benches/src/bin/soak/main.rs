//! A soak: parks operations at a steady rate for any length of time, with faults mixed in, and
//! checks that none is lost, doubled or early and that memory does not grow.
//!
//! `cargo run --release -p purgatory-benches --bin soak -- --seconds 60`
//!
//! Two worlds, each a timer with everything in which operations can be parked, share a clock that
//! jumps. One world lasts, the other is closed and replaced now and then. Drivers park in every
//! way, and act on what was parked before: they complete it, signal its key, cancel it, reschedule
//! it, drop its future, or leave it to its timeout. Short-lived threads do the same. One thread
//! makes faults: executors stall, the clock jumps, a world ends. Checks and callbacks panic. Each
//! operation has a number and one outcome in the books. At a standstill everything ends: no
//! operation may remain, and memory must be what it was.
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

/// Parks operations at a steady rate with faults mixed in, and checks that none is lost, doubled or
/// early and that memory does not grow. Ctrl-C ends it with its table. It fails with exit code 1
/// when something went wrong.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Args {
    /// The length of the run; without it until Ctrl-C.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Operations per second. The rate that was reached is printed.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 200_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=10_000_000))]
    rate: u64,
    /// The seed of operations and faults; a random one by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds between two lines of progress on the standard error; 0 for none.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    progress: u64,
    /// Plants a mistake in the books, to see that it is noticed.
    #[arg(long, hide = true)]
    plant: Option<Plant>,
}

impl Args {
    /// Returns the seconds between two standstills: 30, or a sixth of the run.
    fn standstill(&self) -> u64 {
        let seconds = self.seconds.unwrap_or(u64::MAX);
        (seconds / 6).clamp(1, 30)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    // Ctrl-C ends the run with its table.
    let stop = Stop::default();
    let on_ctrl_c = stop.clone();
    ctrlc::set_handler(move || on_ctrl_c.set()).context("cannot listen for Ctrl-C")?;
    eprintln!("{}", machine());
    eprintln!("seed {seed}, {} a second", args.rate);
    if run::run(&args, seed, &stop)? {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
