//! Kafka's load test for its purgatory, with its profiles and its workload, over this project's
//! purgatory and over the shape of Kafka's first.
//!
//! `cargo run --release -p purgatory-benches --bin purgatory_perf` runs both with both published
//! profiles at two rates; `--profile low --rate 105000 --timer wheel` picks one. Prints a
//! Markdown table.
//!
//! Each request waits under the same keys, drawn once. A request whose latency is below the timeout
//! is completed at its latency by a separate thread; the others expire. The processor time is that
//! of the whole process, generator included. Every run checks that each request ended once.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod run;
mod waits;
mod workload;

use std::{slice, time::Duration};

use clap::{Parser, ValueEnum, value_parser};
use purgatory_benches::{grouped, machine, markdown, name};

use crate::{
    run::{Measured, run},
    waits::{Key, TimerKind},
    workload::Workload,
};

/// Requests per second: what Kafka's purgatory held in 2015, and 0 for as many as possible.
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
/// completed at their latency or expire. Runs both purgatories and both profiles at two rates,
/// unless some are picked.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Args {
    /// Requests per second; 0 for as many as the generator manages.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// The number of requests. By default four seconds of them, and 1 000 000 when unthrottled.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    num: Option<u64>,
    /// One of the published profiles.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// The timeout of a request, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    timeout: u64,
    /// The number of keys that every request watches.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    keys: u16,
    /// The number of keys from which these are drawn.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    key_space_size: Key,
    /// The purgatory in which the requests wait.
    #[arg(long, value_enum)]
    timer: Option<TimerKind>,
    /// Fewer requests.
    #[arg(long)]
    quick: bool,
}

/// A profile of latencies, published in 2015 with a timeout of 200 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Median 20 ms, upper quartile 60 ms.
    Low,
    /// Median 200 ms, upper quartile 400 ms.
    High,
}

impl Args {
    fn workload(&self, profile: Profile, rate: u64) -> Workload {
        // The quartiles define a log-normal distribution.
        let [p50_ms, p75_ms] = match profile {
            Profile::Low => [20, 60],
            Profile::High => [200, 400],
        };
        Workload {
            rate,
            p50_ms,
            p75_ms,
            timeout: Duration::from_millis(self.timeout),
        }
    }

    /// Returns the number of requests at this rate.
    fn num(&self, rate: u64) -> u64 {
        // Four seconds of requests, or three quarters of a second when quick.
        self.num.unwrap_or(match (rate, self.quick) {
            (0, false) => 1_000_000,
            (0, true) => 200_000,
            (rate, false) => rate.saturating_mul(4),
            (rate, true) => (rate / 4).max(1).saturating_mul(3),
        })
    }
}

/// Formats one run as cells of the table.
fn row(profile: Profile, rate: u64, timer: TimerKind, measured: &Measured) -> Vec<String> {
    vec![
        name(&profile),
        if rate == 0 {
            "max".to_owned()
        } else {
            grouped(rate)
        },
        name(&timer),
        grouped(measured.rate as u64),
        format!("{:.2}", measured.cpu_us),
        format!("{:.2}", measured.completed_late_ms),
        format!("{:.2}", measured.expired_late_ms),
    ]
}

fn main() -> anyhow::Result<()> {
    // One of each if it is given, else all.
    let args = Args::parse();
    let rates = args.rate.as_ref().map_or(&RATES[..], slice::from_ref);
    let profiles = args
        .profile
        .as_ref()
        .map_or(Profile::value_variants(), slice::from_ref);
    let timers = args
        .timer
        .as_ref()
        .map_or(TimerKind::value_variants(), slice::from_ref);

    // Print each line as soon as it is known.
    println!("{}\n", machine());
    print!("{}", markdown(&HEAD, &[]));
    for &profile in profiles {
        for &rate in rates {
            let workload = args.workload(profile, rate);
            for &timer in timers {
                let measured = run(&args, &workload, timer)?;
                println!("| {} |", row(profile, rate, timer, &measured).join(" | "));
            }
        }
    }
    Ok(())
}
