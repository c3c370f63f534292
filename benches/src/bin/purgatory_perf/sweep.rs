//! Timers and profiles at rising rates, each run in a process of its own, so that one's memory is
//! not the next one's.

use std::{env, path::Path, process::Command, slice};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use purgatory_benches::{
    chart::{IntoLogRange, Line, from_zero, panel, svg, values},
    check_writable, make_folder, name, progress, write, write_json,
};
use serde::Serialize;

use crate::{Args, Profile, run::Measured, waits::TimerKind};

/// Requests a second; 0 for as many as there can be.
const RATES: [u64; 7] = [10_000, 25_000, 50_000, 105_000, 250_000, 500_000, 0];
const QUICK_RATES: [u64; 3] = [25_000, 105_000, 0];

/// One run of the sweep.
#[derive(Serialize)]
struct Point {
    profile: Profile,
    timer: TimerKind,
    rate_asked: u64,
    measured: Measured,
}

/// What is late is in milliseconds.
const HEAD: [&str; 2] = [
    "                             rate  us a request  expired %       completed late   expired late      peak",
    "profile   rate    timer   reached           CPU    all    due     p50     p99     p50     p99       MiB",
];

impl Point {
    fn line(&self) -> String {
        let Point { profile, timer, rate_asked, measured } = self;
        let rate = if *rate_asked == 0 { "max".to_owned() } else { rate_asked.to_string() };
        let share = |count: u64| 100.0 * count as f64 / measured.num as f64;
        let (all, due) = (share(measured.expired), share(measured.expired_due));
        let [completed_p50, completed_p99, _] = measured.completed_late_ms;
        let [expired_p50, expired_p99, _] = measured.expired_late_ms;
        format!(
            "{:>7}{rate:>7}{:>9}{:>10.0}{:>14.2}{all:>7.2}{due:>7.2}{completed_p50:>8.2}\
             {completed_p99:>8.2}{expired_p50:>8.2}{expired_p99:>8.2}{:>10.1}",
            name(profile),
            name(timer),
            measured.rate,
            measured.cpu_us,
            measured.peak_mib.unwrap_or(0.0),
        )
    }
}

pub(crate) fn sweep(args: &Args) -> anyhow::Result<()> {
    args.workload()?; // refused before anything is started
    check_writable(args.json.as_deref())?;
    args.plot.as_deref().map_or(Ok(()), make_folder)?;
    let rates: &[u64] = if args.quick { &QUICK_RATES } else { &RATES };
    let rates = args.rate.as_ref().map_or(rates, slice::from_ref);
    let profiles = args.profile.as_ref().map_or(Profile::value_variants(), slice::from_ref);
    let timers = args.timer.as_ref().map_or(TimerKind::value_variants(), slice::from_ref);
    let progress = progress(profiles.len() * rates.len() * timers.len());
    let say = |line: &str| {
        if args.json.as_deref() != Some(Path::new("-")) {
            progress.suspend(|| println!("{line}"));
        }
    };
    HEAD.into_iter().for_each(say);
    let mut points = Vec::new();
    for &profile in profiles {
        for &rate_asked in rates {
            for &timer in timers {
                progress.set_message(format!("{} {rate_asked} {}", name(&profile), name(&timer)));
                let measured = child(profile, rate_asked, timer)?;
                let point = Point { profile, timer, rate_asked, measured };
                say(&point.line());
                progress.inc(1);
                points.push(point);
            }
        }
        if let Some(dir) = &args.plot {
            plot(dir, profile, &points)?;
        }
    }
    progress.finish_and_clear();
    write_json(args.json.as_deref(), &serde_json::to_value(points)?)
}

/// Runs one point in a process of its own; of two arguments that differ the later one counts.
fn child(profile: Profile, rate: u64, timer: TimerKind) -> anyhow::Result<Measured> {
    let (profile, timer, rate) = (name(&profile), name(&timer), rate.to_string());
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).args(["--one", "--json", "-", "--rate", &rate]);
    let output = command.args(["--profile", &profile, "--timer", &timer]).output();
    let output = output.context("cannot start a run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{profile} at {rate} over {timer}: {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Two charts for a profile: processor time and memory against the rate reached.
fn plot(dir: &Path, profile: Profile, points: &[Point]) -> anyhow::Result<()> {
    // What the generator's noise makes negative is nothing.
    let cpu_us: fn(&Measured) -> f64 = |measured| measured.cpu_us.max(0.0);
    for (what, title, value) in [
        ("cpu", "processor time a request, generator taken off [µs]", cpu_us),
        ("memory", "most memory [MiB]", |measured| measured.peak_mib.unwrap_or(0.0)),
    ] {
        let line = |timer: &TimerKind| -> Line {
            let of = points.iter().filter(|of| (of.profile, of.timer) == (profile, *timer));
            (name(timer), of.map(|of| (of.measured.rate, value(&of.measured))).collect())
        };
        let lines: Vec<_> = TimerKind::value_variants().iter().map(line).collect();
        let slowest = values(&lines, |point| point.0).fold(f64::MAX, f64::min);
        let fastest = values(&lines, |point| point.0).fold(1.0, f64::max);
        let title = format!("{title}, profile {}", name(&profile));
        let chart = svg((820, 480), (1, 1), |_, area| {
            let x = (slowest * 0.8..fastest * 1.25).log_scale();
            panel(area, &title, ("requests a second, reached", x), from_zero(&lines), &lines)
        })?;
        write(&dir.join(format!("purgatory_perf-{}-{what}.svg", name(&profile))), &chart)?;
    }
    Ok(())
}
