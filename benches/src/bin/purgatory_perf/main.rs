//! Kafka's load test for its purgatory, with its parameters and its workload, over this project's
//! purgatory, over the same with a heap for a timer, and over the shape of Kafka's first purgatory.
//!
//! `cargo run --release -p purgatory-benches --bin purgatory_perf -- --profile low --rate 105000`
//! runs one; without a rate it runs all three timers at rising rates, each in a process of its own
//! (`--quick`: under 40 s on two cores).
//!
//! Each request waits under the same keys, drawn once. One whose latency is below the timeout is
//! completed at its latency by a thread of its own, the others expire. The processor time is the
//! whole process's; what the generator and the completing thread cost without a purgatory is
//! measured first and taken off. Every run checks that each request ended once, and that the share
//! of those that expired fits the distribution.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod books;
mod delays;
mod run;
mod sweep;
mod waits;
mod workload;

use std::{path::PathBuf, time::Duration};

use anyhow::ensure;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use purgatory_benches::{check_writable, write_json};

use crate::{
    run::{Measured, Plan},
    waits::{TimerKind, wait::Key},
    workload::Workload,
};

/// Kafka's load test for its purgatory: requests arrive at a rate, wait under some keys, and are
/// completed at their latency or expire.
///
/// With --rate: one run. Without: all timers and both profiles at rising rates, one process each.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Args {
    /// Requests a second; 0 for as many as the generator manages.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// How many requests. By default four seconds of them, and 1 000 000 when unthrottled.
    #[arg(long)]
    num: Option<u64>,
    /// One of the published profiles.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// The median latency, in milliseconds, instead of the profile's.
    #[arg(long, value_name = "MS")]
    pct50: Option<u64>,
    /// The upper quartile of the latencies, in milliseconds, instead of the profile's.
    #[arg(long, value_name = "MS")]
    pct75: Option<u64>,
    /// How long a request may wait, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    timeout: u64,
    /// Keys that every request watches.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    keys: u16,
    /// Keys there are, to draw these from.
    #[arg(
        long, value_name = "KEYS", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    key_space_size: u32,
    /// What times the requests out. Without --rate: only this one.
    #[arg(long, value_enum)]
    timer: Option<TimerKind>,
    /// With `--timer first`: how many are parked between two purges. Kafka's default was 10 000 at
    /// first.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    purge: u32,
    /// Makes the samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Without --rate: fewer rates and requests, under 40 s on two cores.
    #[arg(long)]
    quick: bool,
    /// Writes what was measured to a file; `-` for the standard output, and no table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Without --rate: writes charts of processor time and memory against the rate, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Published in 2015 with a timeout of 200 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// How the command line calls it.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Args {
    fn plan(&self, rate: u64) -> anyhow::Result<Plan> {
        let (p50_ms, p75_ms) = self.profile.unwrap_or(Profile::Low).quartiles();
        let workload = Workload {
            rate,
            p50_ms: self.pct50.unwrap_or(p50_ms),
            p75_ms: self.pct75.unwrap_or(p75_ms),
            timeout: Duration::from_millis(self.timeout),
        };
        workload.check()?;
        let num = self.num.unwrap_or(if rate == 0 { 1_000_000 } else { rate.saturating_mul(4) });
        ensure!(num > 0, "--num 0: nothing to do");
        Ok(Plan {
            workload,
            num,
            keys: run::draw_keys(self.keys.into(), self.key_space_size as Key, self.seed),
            timer: self.timer.unwrap_or(TimerKind::Wheel),
            purge: self.purge as usize,
            seed: self.seed,
        })
    }

    fn to_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(|file| file.as_os_str() == "-")
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let Some(rate) = args.rate else { return sweep::sweep(&args) };
    ensure!(args.plot.is_none(), "--plot shows several rates: leave --rate out");
    check_writable(args.json.as_deref())?;
    let plan = args.plan(rate)?;
    // Hidden unless stderr is a terminal.
    let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:20} {percent} % {msg}")?;
    let progress = ProgressBar::new(1).with_style(style);
    let measured = run::run(&plan, &progress)?;
    progress.finish_and_clear();
    if !args.to_stdout() {
        print(&measured);
    }
    write_json(args.json.as_deref(), &measured.json())
}

fn print(measured: &Measured) {
    let Measured { waited, completed_late, expired_late, .. } = measured;
    let three = |[p50, p99, max]: &[f64; 3]| format!("{p50:>9.2} {p99:>9.2} {max:>9.2}");
    let share = |count: u64| 100.0 * count as f64 / measured.num as f64;
    println!("requests                     {:>12}", measured.num);
    println!("rate reached, a second       {:>12.0}", measured.rate);
    println!("processor time a request     {:>12.2} us", measured.cpu_us);
    println!("  the generator's, taken off {:>12.2} us", measured.generator_us);
    println!("processors busy, all in all  {:>12.2}", measured.cores);
    let of_all = |count: u64| format!("{count:>12} ({:.2} %)", share(count));
    println!("expired                      {}", of_all(measured.expired));
    println!("expired due, by latency      {}", of_all(measured.expired_due));
    let peak = measured.peak_mib.map_or("unknown".to_owned(), |mib| format!("{mib:.1} MiB"));
    println!("most memory                  {peak:>12}");
    println!("ms                                 p50       p99       max");
    println!("waited until completed       {}", three(waited));
    println!("completed after its latency  {}", three(completed_late));
    println!("expired after its timeout    {}", three(expired_late));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_named() {
        let wrong = |args: &[&str]| {
            let args = Args::parse_from(["purgatory_perf"].iter().chain(args));
            args.plan(1000).unwrap_err().to_string()
        };
        assert_eq!(wrong(&["--num", "0"]), "--num 0: nothing to do");
        assert_eq!(wrong(&["--timeout", "0"]), "--timeout 0: nothing would wait");
        assert_eq!(wrong(&["--pct50", "9", "--pct75", "8"]), "--pct75 8: must be above --pct50 9");
        assert!(Args::try_parse_from(["purgatory_perf", "--keys", "0"]).is_err());
    }
}
