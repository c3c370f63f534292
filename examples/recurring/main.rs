//! Recurring tasks by cron expressions: "every day at 9", "every Tuesday at 9", "the 12th at 9".
//!
//! A timer knows delays, a calendar knows times. So a recurring task asks the calendar for its next
//! time, schedules itself for that time, and asks again when it has run: see [`schedule`]. By
//! default a year passes on a manual timer in no time at all, including its two clock changes;
//! `--live` runs on a real timer until Ctrl-C.
//!
//! `cargo run --release --example recurring -- --help`

mod schedule;

use std::io::{self, Write};
use std::sync::{Arc, OnceLock, mpsc};
use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Parser;
use croner::Cron;
use jiff::{SignedDuration, Timestamp, Unit, Zoned, civil::Date, tz::TimeZone};
use parking_lot::Mutex;
use timer_core::{Clock, ManualTimer, SystemTimer};

use schedule::{LOOK_EVERY, Recurring, WallClock};

const EXIT_CODES: &str = "\
The exit code is 0 when it ran, 1 when it cannot run, 2 when an argument is wrong.";

/// Recurring tasks on the timer, by cron expressions in a time zone.
#[derive(Debug, Parser)]
#[command(name = "recurring", version, after_help = EXIT_CODES, allow_negative_numbers = true)]
struct Args {
    /// Cron expressions, five fields or six with seconds [default: every day, every Tuesday and
    /// each 12th, at 9]
    #[arg(value_name = "CRON")]
    patterns: Vec<Cron>,

    /// The time zone whose days and hours count
    #[arg(long, value_name = "NAME", default_value = "Europe/Berlin", value_parser = TimeZone::get)]
    zone: TimeZone,

    /// The day on which the manual timer begins
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2026-01-01")]
    from: Date,

    /// How many months pass
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = months)]
    months: i32,

    /// Real time instead, until Ctrl-C [default CRON: every second]
    #[arg(long, conflicts_with_all = ["from", "months"])]
    live: bool,
}

/// Parses a number of months, at most a hundred years: a manual timer should go no further.
fn months(value: &str) -> Result<i32, String> {
    match value.parse() {
        Ok(months @ 1..=1200) => Ok(months),
        _ => Err("expected a number from 1 to 1200".to_owned()),
    }
}

/// Writes a line about a schedule to standard error.
fn report_to_stderr(line: &str) {
    // Standard error may be closed, and the schedule goes on all the same.
    let _ = writeln!(io::stderr(), "recurring: {line}");
}

/// The number of a pattern's runs, the first and the last, and those around each clock change.
#[derive(Default)]
struct Summary {
    count: u64,
    first: Option<Zoned>,
    last: Option<Zoned>,
    /// Pairs of consecutive runs with different offsets from UTC.
    changes: Vec<[Zoned; 2]>,
}

impl Summary {
    fn add(&mut self, time: &Zoned) {
        self.count += 1;
        self.first.get_or_insert_with(|| time.clone());
        let before = self.last.replace(time.clone());
        if let Some(before) = before.filter(|before| before.offset() != time.offset()) {
            self.changes.push([before, time.clone()]);
        }
    }
}

/// Advances a manual timer from `begin` to `end`; calls `note` with the time of each run.
fn pass(
    cron: &Cron,
    begin: &Zoned,
    end: &Zoned,
    note: impl Fn(&Zoned) + Send + Sync + 'static,
) -> Result<()> {
    // The wall clock follows the timer's clock, so the program controls both.
    let timer = ManualTimer::new();
    let clock = timer.clock();
    let origin = begin.timestamp();
    let wall: WallClock = Arc::new(move || {
        let passed = SignedDuration::try_from(Duration::from_nanos(clock.now_ns()));
        origin
            .checked_add(passed.unwrap_or(SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX)
    });

    // Set by the first run, if any, that does not come at its due time.
    let astray = Arc::new(OnceLock::new());
    let found = astray.clone();
    let seen = wall.clone();
    let task = move |due: &Zoned| {
        let came = seen();
        if came != due.timestamp() {
            found.get_or_init(|| format!("the run of {due} came at {came}"));
        }
        note(due);
    };
    let recurring = Recurring {
        cron: cron.clone(),
        zone: begin.time_zone().clone(),
        timer: timer.clone().into(),
        wall,
        // This wall clock is never set, so it is read less often.
        look_every: Duration::from_secs(3600),
        task: Box::new(task),
        report: Box::new(report_to_stderr),
    };
    recurring.start();

    // All of the time passes here.
    let passes = end.timestamp().duration_since(origin);
    timer.advance(Duration::try_from(passes).context("it ends before it begins")?);
    timer.shutdown(Duration::MAX);

    match astray.get() {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// Returns the summary of the runs from `begin` to `end`.
fn summary(cron: &Cron, begin: &Zoned, end: &Zoned) -> Result<Summary> {
    let summary = Arc::new(Mutex::new(Summary::default()));
    let adds = summary.clone();
    pass(cron, begin, end, move |time| adds.lock().add(time))?;
    Ok(std::mem::take(&mut *summary.lock()))
}

fn shown(at: &Zoned) -> String {
    at.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}

/// Writes the number of a pattern's runs, the first and the last, and how far apart the runs around
/// each clock change are.
fn report(to: &mut impl Write, cron: &Cron, ran: &Summary) -> Result<()> {
    writeln!(to, "{}  ({})", cron.pattern, cron.describe())?;
    // A pattern may name a day that never comes.
    let (Some(first), Some(last)) = (&ran.first, &ran.last) else {
        writeln!(to, "    never")?;
        return Ok(());
    };
    writeln!(
        to,
        "    {} times, from {} to {}",
        ran.count,
        shown(first),
        shown(last)
    )?;

    for [before, after] in &ran.changes {
        let apart = after.timestamp().since((Unit::Hour, before.timestamp()))?;
        writeln!(
            to,
            "    {} and {} are {apart:#} apart",
            shown(before),
            shown(after)
        )?;
    }
    Ok(())
}

/// Lets the months pass on a manual timer, for one pattern after the other.
fn run_manually(args: &Args, patterns: &[Cron]) -> Result<()> {
    let begin = args.from.to_zoned(args.zone.clone());
    let begin = begin.with_context(|| format!("--from {}: not in the calendar", args.from))?;
    let end = begin.checked_add(jiff::Span::new().months(args.months));
    let end = end.with_context(|| {
        let Args { from, months, .. } = args;
        format!(
            "--from {from} --months {months}: the calendar ends with {}",
            Date::MAX
        )
    })?;
    let mut out = io::stdout().lock();
    for cron in patterns {
        report(&mut out, cron, &summary(cron, &begin, &end)?)?;
    }
    Ok(())
}

/// Runs all patterns on a real timer until Ctrl-C.
fn run_live(args: &Args, patterns: &[Cron]) -> Result<()> {
    let (stop, stopped) = mpsc::channel();
    let ask_to_stop = move || {
        // The receiver is gone if the program is already ending.
        let _ = stop.send(());
    };
    ctrlc::set_handler(ask_to_stop).context("cannot listen for Ctrl-C")?;

    let timer = SystemTimer::new()?;
    for cron in patterns {
        let pattern = cron.pattern.to_string();
        let recurring = Recurring {
            cron: cron.clone(),
            zone: args.zone.clone(),
            timer: timer.clone().into(),
            wall: Arc::new(Timestamp::now),
            look_every: LOOK_EVERY,
            task: Box::new(move |due| print_run(&pattern, due)),
            report: Box::new(report_to_stderr),
        };
        recurring.start();
    }
    report_to_stderr("until Ctrl-C");

    stopped.recv().context("the signal handler is gone")?;
    timer.shutdown(Duration::MAX);
    Ok(())
}

/// Prints how late a live run was.
fn print_run(pattern: &str, due: &Zoned) {
    let late = Timestamp::now().duration_since(due.timestamp());
    let late_ms = late.as_secs_f64() * 1e3;
    let due = due.strftime("%H:%M:%S %Z");
    // Standard output may be closed, and the schedule goes on all the same.
    let _ = writeln!(
        io::stdout(),
        "{pattern}  due {due}, ran {late_ms:.1} ms after"
    );
}

fn run(args: &Args) -> Result<()> {
    // Patterns of the command line replace the default ones.
    let mut patterns = args.patterns.clone();
    if patterns.is_empty() {
        let defaults: &[&str] = if args.live {
            &["* * * * * *"]
        } else {
            &["0 9 * * *", "0 9 * * TUE", "0 9 12 * *"]
        };
        for pattern in defaults {
            patterns.push(pattern.parse()?);
        }
    }
    if args.live {
        run_live(args, &patterns)
    } else {
        run_manually(args, &patterns)
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report_to_stderr(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use jiff::civil::date;

    use super::*;

    /// Returns the start of 2026 in Berlin, and the time `months` later.
    fn span(months: i32) -> (Zoned, Zoned) {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let begin = date(2026, 1, 1).to_zoned(berlin).unwrap();
        let end = begin.checked_add(jiff::Span::new().months(months));
        (begin, end.unwrap())
    }

    fn run_for(pattern: &str, months: i32) -> Vec<Zoned> {
        let (begin, end) = span(months);
        let (note, times) = mpsc::channel();
        let note = move |time: &Zoned| note.send(time.clone()).unwrap();
        pass(&pattern.parse().unwrap(), &begin, &end, note).unwrap();
        times.iter().collect()
    }

    #[test]
    fn nine_is_nine_on_either_side_of_a_clock_change() {
        let ran = run_for("0 9 * * *", 12);
        assert_eq!(ran.len(), 365);
        assert!(ran.iter().all(|at| (at.hour(), at.minute()) == (9, 0)));
        let utc = |month, day| {
            let at = ran.iter().find(|at| at.date() == date(2026, month, day));
            at.unwrap().with_time_zone(TimeZone::UTC).hour()
        };
        // The clocks go forward in the first of these nights, and back in the second.
        assert_eq!([utc(3, 28), utc(3, 29)], [8, 7]);
        assert_eq!([utc(10, 24), utc(10, 25)], [7, 8]);
    }

    #[test]
    fn summary_keeps_the_ends_and_the_clock_changes_alone() {
        let (begin, end) = span(12);
        let ran = summary(&"0 * * * *".parse().unwrap(), &begin, &end).unwrap();
        assert_eq!((ran.count, ran.last), (365 * 24, Some(end)));
        let changes = ran.changes.iter().map(|[before, _]| before.date());
        assert!(changes.eq([date(2026, 3, 29), date(2026, 10, 25)]));
    }

    #[test]
    fn skipped_hour_is_made_up() {
        let ran = run_for("30 2 * * *", 3); // on the 29th of March there is no half past two
        assert_eq!(ran.len(), 31 + 28 + 31);
    }

    #[test]
    fn bad_arguments_are_refused_by_name() {
        for (argument, named) in [
            ("--months=0", "from 1 to 1200"),
            ("--months=1201", "from 1 to 1200"),
            ("--months=many", "from 1 to 1200"),
            ("--from=2026-02-30", "2026-02-30"),
            ("--zone=Nowhere/Land", "Nowhere/Land"),
            ("61 * * * *", "61 * * * *"),
            ("", "''"),
        ] {
            let refused = Args::try_parse_from(["recurring", argument]).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{argument}");
            assert!(refused.to_string().contains(named), "{refused}");
        }
    }

    #[test]
    fn calendar_ends_with_an_error_that_names_it() {
        for words in [
            ["--from=9999-12-01", "--zone=UTC"],
            ["--from=-009999-01-01", "--zone=Pacific/Kiritimati"],
        ] {
            let args = Args::try_parse_from(["recurring", words[0], words[1]]).unwrap();
            let error = format!("{:#}", run(&args).unwrap_err());
            assert!(
                error.contains(words[0].strip_prefix("--from=").unwrap()),
                "{error}"
            );
        }
    }
}
