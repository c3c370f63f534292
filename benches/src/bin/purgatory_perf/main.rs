//! Kafka's load test for its purgatory, with its profiles and its workload, applied to this
//! project's purgatory and to one built like Kafka's first.
//!
//! `cargo run --release -p purgatory-benches --bin purgatory_perf` runs both with both published
//! profiles at two rates, and prints a Markdown table.
//!
//! All requests wait under the same keys, drawn once. A request whose latency is below the timeout
//! is completed at its latency by a separate thread; the others expire. The processor time is that
//! of the whole process, generator included. Every run checks that each request ended once.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod run;
mod waits;
mod workload;

use clap::Parser;
use purgatory::Purgatory;
use purgatory_benches::{grouped, markdown};

use crate::{
    run::{Load, Measured, run},
    waits::{First, Request},
    workload::PROFILES,
};

/// Requests per second: the rate that Kafka's purgatory sustained in 2015, and 0 for as many as
/// possible.
const RATES: [u64; 2] = [105_000, 0];

const HEAD: [&str; 7] = [
    "profile",
    "asked, 1/s",
    "timer",
    "reached, 1/s",
    "CPU, µs each",
    "completed late p99, ms",
    "expired late p99, ms",
];

/// Kafka's load test for its purgatory: requests arrive at a rate, wait under some keys, and are
/// completed at their latency or expire. Runs both purgatories and both profiles at two rates.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Args {
    /// Fewer requests.
    #[arg(long)]
    quick: bool,
}

/// Returns the number of requests at a rate.
fn requests(rate: u64, quick: bool) -> u64 {
    // Four seconds of requests, or three quarters of a second when quick.
    match (rate, quick) {
        (0, false) => 1_000_000,
        (0, true) => 50_000,
        (rate, false) => rate * 4,
        (rate, true) => rate / 4 * 3,
    }
}

/// Prints one run as a line of the table.
fn print(load: &Load, timer: &str, measured: &Measured) {
    let asked = if load.rate == 0 {
        "max".to_owned()
    } else {
        grouped(load.rate)
    };
    println!(
        "| {} | {asked} | {timer} | {} | {:.2} | {:.2} | {:.2} |",
        load.profile.name,
        grouped(measured.rate as u64),
        measured.cpu_us,
        measured.completed_late_ms,
        measured.expired_late_ms,
    );
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Print each line as soon as it is measured.
    print!("{}", markdown(&HEAD, &[]));
    for profile in PROFILES {
        for rate in RATES {
            let load = Load {
                profile,
                rate,
                requests: requests(rate, args.quick),
            };
            print(&load, "wheel", &run::<Purgatory<u32, Request>>(&load)?);
            print(&load, "first", &run::<First>(&load)?);
        }
    }
    Ok(())
}
