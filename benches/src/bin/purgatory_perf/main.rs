//! Kafka's load test for its purgatory, with its parameters and its workload, over this project's
//! purgatory, over the same with a heap for a timer, and over the shape of Kafka's first purgatory.
//!
//! `cargo run --release -p purgatory-benches --bin purgatory_perf` runs all three timers with both
//! published profiles at rising rates, each in a process of its own (`--quick`: under 40 s on two
//! cores). `--profile low --rate 105000 --timer wheel` picks one.
//!
//! Each request waits under the same keys, drawn once. One whose latency is below the timeout is
//! completed at its latency by a thread of its own, the others expire. The processor time is the
//! whole process's; what the generator and the completing thread cost without a purgatory is
//! measured first and taken off. Every run checks that each request ended once, and that the share
//! of those that expired fits the distribution.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod books;
mod run;
mod sweep;
mod waits;
mod workload;

use std::{path::PathBuf, time::Duration};

use anyhow::ensure;
use clap::{Parser, ValueEnum, value_parser};
use purgatory_benches::write_json;
use serde::Serialize;

use crate::{
    waits::{Key, TimerKind},
    workload::Workload,
};

/// Kafka's load test for its purgatory: requests arrive at a rate, wait under some keys, and are
/// completed at their latency or expire. Runs all timers and both profiles at rising rates, one
/// process each, unless some are picked.
#[derive(Clone, Debug, Parser)]
#[command(version, args_override_self = true)]
struct Args {
    /// Requests a second; 0 for as many as the generator manages.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// How many requests. By default four seconds of them, and 1 000 000 when unthrottled.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    num: Option<u64>,
    /// One of the published profiles.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// The median latency, in milliseconds, instead of the profile's.
    #[arg(long, value_name = "MS", requires = "profile")]
    pct50: Option<u64>,
    /// The upper quartile of the latencies, in milliseconds, instead of the profile's.
    #[arg(long, value_name = "MS", requires = "profile")]
    pct75: Option<u64>,
    /// How long a request may wait, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    timeout: u64,
    /// Keys that every request watches.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    keys: u16,
    /// Keys there are, to draw these from.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    key_space_size: Key,
    /// What times the requests out.
    #[arg(long, value_enum)]
    timer: Option<TimerKind>,
    /// With `--timer first`: how many are parked between two purges. Kafka's default was 10 000 at
    /// first.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    purge: u32,
    /// Makes the samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fewer rates and requests, under 40 s on two cores.
    #[arg(long)]
    quick: bool,
    /// Writes what was measured (more than the table shows) to a file; `-` for the
    /// standard output, and no table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes charts of processor time and memory against the rate, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// One run, in this process, which a sweep has started.
    #[arg(long, hide = true)]
    one: bool,
}

/// Published in 2015 with a timeout of 200 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Profile {
    /// Median 20 ms, upper quartile 60 ms.
    Low,
    /// Median 200 ms, upper quartile 400 ms.
    High,
}

impl Profile {
    fn quartiles(self) -> (u64, u64) {
        match self {
            Profile::Low => (20, 60),
            Profile::High => (200, 400),
        }
    }
}

impl Args {
    fn workload(&self) -> anyhow::Result<Workload> {
        let (p50_ms, p75_ms) = self.profile.unwrap_or(Profile::Low).quartiles();
        let (p50_ms, p75_ms) = (self.pct50.unwrap_or(p50_ms), self.pct75.unwrap_or(p75_ms));
        ensure!(p50_ms > 0, "--pct50 {p50_ms}: the median is 1 ms at least");
        ensure!(p75_ms > p50_ms, "--pct75 {p75_ms}: must be above --pct50 {p50_ms}");
        let (rate, timeout) = (self.rate.unwrap_or(0), Duration::from_millis(self.timeout));
        Ok(Workload { rate, p50_ms, p75_ms, timeout })
    }

    fn num(&self) -> u64 {
        self.num.unwrap_or(match (self.rate.unwrap_or(0), self.quick) {
            (0, false) => 1_000_000,
            (0, true) => 200_000,
            (rate, false) => rate.saturating_mul(4),
            (rate, true) => (rate / 4).max(1).saturating_mul(3),
        })
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.one {
        return write_json(args.json.as_deref(), &serde_json::to_value(run::run(&args)?)?);
    }
    sweep::sweep(&args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_named() {
        let parsed = |args: &[&str]| {
            Args::try_parse_from(["purgatory_perf", "--profile", "low"].iter().chain(args))
        };
        let wrong = |args: &[&str]| parsed(args).unwrap().workload().unwrap_err().to_string();
        assert_eq!(wrong(&["--pct50", "9", "--pct75", "8"]), "--pct75 8: must be above --pct50 9");
        assert_eq!(wrong(&["--pct75", "20"]), "--pct75 20: must be above --pct50 20");
        assert_eq!(wrong(&["--pct50", "0"]), "--pct50 0: the median is 1 ms at least");
        for nothing in ["--keys", "--num", "--timeout"] {
            assert!(parsed(&[nothing, "0"]).is_err(), "{nothing}");
        }
    }
}
