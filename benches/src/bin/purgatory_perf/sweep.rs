//! All timers and both profiles at rising rates, each run in a process of its own, so that one's
//! memory is not the next one's.

use std::{path::Path, process::Command, slice};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use plotters::prelude::*;
use purgatory_benches::{check_writable, make_folder, progress, write_json};
use serde_json::{Value, json};

use crate::{
    Args, Profile, name,
    run::{Measured, from_json},
    waits::TimerKind,
};

/// Requests a second; 0 for as many as there can be.
const RATES: [u64; 7] = [10_000, 25_000, 50_000, 105_000, 250_000, 500_000, 0];
const QUICK_RATES: [u64; 3] = [25_000, 105_000, 0];

/// One run of the sweep.
struct Point {
    profile: Profile,
    timer: TimerKind,
    rate: u64,
    measured: Measured,
}

/// The table's columns: two lines of head, and the width. What is late is in milliseconds.
const COLUMNS: [(&str, &str, usize); 12] = [
    ("", "profile", 7),
    ("", "rate", 8),
    ("", "timer", 7),
    ("rate", "reached", 9),
    ("us a request", "CPU", 13),
    ("expired %", "all", 11),
    ("", "due", 7),
    ("completed late", "p50", 16),
    ("", "p99", 9),
    ("expired late", "p50", 14),
    ("", "p99", 9),
    ("peak", "MiB", 8),
];

/// A line of the table, from one cell for each column.
fn line<C: std::fmt::Display>(cells: [C; COLUMNS.len()]) -> String {
    let aligned = cells.iter().zip(COLUMNS).map(|(cell, (.., width))| format!("{cell:>width$}"));
    aligned.collect()
}

impl Point {
    fn cells(&self) -> [String; COLUMNS.len()] {
        let Point { profile, timer, rate, measured } = self;
        let two = |value: f64| format!("{value:.2}");
        let share = |count: u64| two(100.0 * count as f64 / measured.num as f64);
        let [completed_p50, completed_p99, _] = measured.completed_late.map(two);
        let [expired_p50, expired_p99, _] = measured.expired_late.map(two);
        [
            name(profile),
            if *rate == 0 { "max".to_owned() } else { rate.to_string() },
            name(timer),
            format!("{:.0}", measured.rate),
            two(measured.cpu_us),
            share(measured.expired),
            share(measured.expired_due),
            completed_p50,
            completed_p99,
            expired_p50,
            expired_p99,
            format!("{:.1}", measured.peak_mib.unwrap_or(0.0)),
        ]
    }
}

pub(crate) fn sweep(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.num.is_none() && args.pct50.is_none() && args.pct75.is_none(),
        "--num, --pct50 and --pct75 go with --rate"
    );
    check_writable(args.json.as_deref())?;
    args.plot.as_deref().map_or(Ok(()), make_folder)?;
    let rates: &[u64] = if args.quick { &QUICK_RATES } else { &RATES };
    let profiles = args.profile.as_ref().map_or(Profile::value_variants(), slice::from_ref);
    let timers = args.timer.as_ref().map_or(TimerKind::value_variants(), slice::from_ref);
    let runs: Vec<_> = profiles
        .iter()
        .flat_map(|profile| rates.iter().map(move |rate| (*profile, *rate)))
        .flat_map(|(profile, rate)| timers.iter().map(move |timer| (profile, rate, *timer)))
        .collect();
    let progress = progress(runs.len());
    let say = |line: String| {
        if !args.to_stdout() {
            progress.suspend(|| println!("{line}"));
        }
    };
    say(line(COLUMNS.map(|(above, ..)| above)));
    say(line(COLUMNS.map(|(_, name, _)| name)));
    let mut points = Vec::new();
    for (profile, rate, timer) in runs {
        progress.set_message(format!("{} {rate} {}", name(&profile), name(&timer)));
        let measured = child(args, profile, rate, timer)?;
        progress.inc(1);
        let point = Point { profile, timer, rate, measured };
        say(line(point.cells()));
        points.push(point);
    }
    progress.finish_and_clear();
    if let Some(dir) = &args.plot {
        plot(dir, &points)?;
    }
    let told = points.iter().map(|point| {
        json!({
            "profile": name(&point.profile), "timer": name(&point.timer), "rate_asked": point.rate,
            "measured": point.measured.json(),
        })
    });
    write_json(args.json.as_deref(), &Value::Array(told.collect()))
}

/// Runs one point in a process of its own.
fn child(args: &Args, profile: Profile, rate: u64, timer: TimerKind) -> anyhow::Result<Measured> {
    let (profile, timer) = (name(&profile), name(&timer));
    let quick_num = match rate {
        0 => 200_000,
        rate => rate * 3 / 4,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--rate", &rate.to_string(), "--profile", &profile, "--timer", &timer]);
    command.args(["--timeout", &args.timeout.to_string(), "--keys", &args.keys.to_string()]);
    command.args(["--key-space-size", &args.key_space_size.to_string()]);
    command.args(["--purge", &args.purge.to_string(), "--seed", &args.seed.to_string()]);
    command.args(["--json", "-"]);
    if args.quick {
        command.args(["--num", &quick_num.to_string()]);
    }
    let output = command.output().context("cannot start a run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{profile} at {rate} over {timer}: {said}");
    from_json(&serde_json::from_slice(&output.stdout)?)
}

/// Two charts for each profile: processor time and memory against the rate reached.
fn plot(dir: &Path, points: &[Point]) -> anyhow::Result<()> {
    for profile in Profile::value_variants() {
        let points: Vec<_> = points.iter().filter(|point| point.profile == *profile).collect();
        if points.is_empty() {
            continue;
        }
        let file = |what: &str| dir.join(format!("purgatory_perf-{}-{what}.svg", name(profile)));
        let title = |what: &str| format!("{what}, profile {}", name(profile));
        let cpu = title("processor time a request, generator taken off [µs]");
        chart(&file("cpu"), &cpu, &points, |measured| measured.cpu_us)?;
        let memory = title("most memory [MiB]");
        chart(&file("memory"), &memory, &points, |measured| measured.peak_mib.unwrap_or(0.0))?;
    }
    Ok(())
}

fn chart(
    path: &Path,
    title: &str,
    points: &[&Point],
    value: impl Fn(&Measured) -> f64,
) -> anyhow::Result<()> {
    let area = SVGBackend::new(path, (820, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let rates = points.iter().map(|point| point.measured.rate);
    let (slowest, fastest) =
        rates.fold((f64::MAX, 1.0_f64), |(low, high), rate| (rate.min(low), rate.max(high)));
    // What the generator's noise makes negative is nothing.
    let at = |point: &Point| (point.measured.rate, value(&point.measured).max(0.0));
    let most = points.iter().map(|point| at(point).1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((slowest * 0.8..fastest * 1.25).log_scale(), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("requests a second, reached")
        .x_label_formatter(&|rate| format!("{:.0} 000", rate / 1000.0))
        .draw()?;
    let colors = [RGBColor(31, 119, 180), RGBColor(255, 152, 64), RGBColor(120, 120, 120)];
    for (timer, color) in TimerKind::value_variants().iter().zip(colors) {
        let of = points.iter().filter(|point| point.timer == *timer);
        let line: Vec<_> = of.map(|point| at(point)).collect();
        let marks = line.iter().map(|&at| Circle::new(at, 4, color.filled()));
        chart.draw_series(marks)?;
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(name(timer))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
