//! Recurring tasks by cron expressions: "every day at 9", "every Tuesday at 9", "the 12th at 9".
//!
//! A timer knows delays, a calendar knows when; so a recurring task asks the calendar for its next
//! time, schedules itself for then, and when it has run asks again. By default a year passes on a
//! hand-turned timer in no time at all, with its two changes of the clocks; `--live` runs on a real
//! one until Ctrl-C.
//!
//! `cargo run --release --example recurring -- --help`

use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use croner::Cron;
use jiff::{Timestamp, Unit, Zoned, civil::Date, tz::TimeZone};
use parking_lot::Mutex;
use timer_core::{Clock, ManualTimer, SystemTimer, Timer};

/// The wall clock can be set while a task waits, so it is read again at least this often.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// Recurring tasks on the timer, by cron expressions in a time zone.
#[derive(Debug, Parser)]
#[command(name = "recurring", version)]
struct Args {
    /// Cron expressions, five fields or six with seconds [default: every day, every Tuesday and
    /// each 12th, at 9]
    #[arg(value_name = "CRON")]
    patterns: Vec<Cron>,

    /// The time zone whose days and hours count
    #[arg(long, value_name = "NAME", default_value = "Europe/Berlin", value_parser = TimeZone::get)]
    zone: TimeZone,

    /// The day on which hand-turned time begins
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2026-01-01")]
    from: Date,

    /// How many months pass
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..=1200))]
    months: i32,

    /// Real time instead, until Ctrl-C [default CRON: every second]
    #[arg(long, conflicts_with_all = ["from", "months"])]
    live: bool,
}

/// What tells the wall clock's time.
type Wall = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A task that recurs, and what it does each time: it is told when it was due.
struct Recurring<T> {
    cron: Cron,
    zone: TimeZone,
    timer: T,
    wall: Wall,
    task: Box<dyn Fn(&Zoned) + Send + Sync>,
}

impl<T: Timer> Recurring<T> {
    /// Schedules the next time after now; there may be none, as for the 30th of February.
    fn start(self: Arc<Self>) {
        let now = (self.wall)().to_zoned(self.zone.clone());
        if let Ok(next) = self.cron.find_next_occurrence(&now, false) {
            self.wait_for(next);
        }
    }

    fn wait_for(self: Arc<Self>, next: Zoned) {
        let left = Duration::try_from(next.timestamp() - (self.wall)()).unwrap_or_default();
        if left.is_zero() {
            (self.task)(&next);
            return self.start();
        }
        let timer = self.timer.clone();
        let again = move || self.wait_for(next);
        // Refused only after shutdown, when there is no next time.
        let _ = timer.schedule(left.min(LOOK_AGAIN), again);
    }
}

fn start<T: Timer>(
    cron: &Cron,
    zone: &TimeZone,
    timer: &T,
    wall: &Wall,
    task: impl Fn(&Zoned) + Send + Sync + 'static,
) {
    let (cron, zone, timer) = (cron.clone(), zone.clone(), timer.clone());
    Arc::new(Recurring {
        cron,
        zone,
        timer,
        wall: wall.clone(),
        task: Box::new(task),
    })
    .start();
}

/// The times at which a pattern ran, in hand-turned time.
fn times(cron: &Cron, begin: &Zoned, end: &Zoned) -> Result<Vec<Zoned>> {
    let timer = ManualTimer::new();
    let (clock, origin) = (timer.clock(), begin.timestamp());
    let wall: Wall = Arc::new(move || origin + Duration::from_nanos(clock.now_ns()));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (running, told) = (ran.clone(), wall.clone());
    start(cron, begin.time_zone(), &timer, &wall, move |due| {
        assert_eq!(told(), due.timestamp(), "not when it was due");
        running.lock().push(due.clone());
    });
    timer
        .advance(Duration::try_from(end.timestamp() - origin).context("it ends before it begins")?);
    timer.shutdown(Duration::MAX);
    let ran = std::mem::take(&mut *ran.lock());
    Ok(ran)
}

/// What a pattern did: how often it ran, when first and last, and how the change of the clocks
/// moved it.
fn report(to: &mut impl Write, cron: &Cron, ran: &[Zoned]) -> Result<()> {
    let shown = |at: &Zoned| at.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
    writeln!(to, "{}  ({})", cron.pattern, cron.describe())?;
    let (Some(first), Some(last)) = (ran.first(), ran.last()) else {
        writeln!(to, "    never")?;
        return Ok(());
    };
    writeln!(
        to,
        "    {} times, from {} to {}",
        ran.len(),
        shown(first),
        shown(last)
    )?;
    for pair in ran
        .windows(2)
        .filter(|pair| pair[0].offset() != pair[1].offset())
    {
        let apart = pair[1]
            .timestamp()
            .since((Unit::Hour, pair[0].timestamp()))?;
        writeln!(
            to,
            "    {} and {} are {apart:#} apart",
            shown(&pair[0]),
            shown(&pair[1])
        )?;
    }
    Ok(())
}

fn by_hand(args: &Args, patterns: &[Cron]) -> Result<()> {
    let begin = args.from.to_zoned(args.zone.clone())?;
    let end = begin
        .checked_add(jiff::Span::new().months(args.months))
        .context("beyond the calendar")?;
    let mut out = io::stdout().lock();
    for cron in patterns {
        report(&mut out, cron, &times(cron, &begin, &end)?)?;
    }
    Ok(())
}

fn live(args: &Args, patterns: &[Cron]) -> Result<()> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || _ = stop.send(())).context("cannot listen for Ctrl-C")?;
    let timer = SystemTimer::new()?;
    let wall: Wall = Arc::new(Timestamp::now);
    for cron in patterns {
        let pattern = cron.pattern.to_string();
        start(cron, &args.zone, &timer, &wall, move |due| {
            let late = Timestamp::now().as_nanosecond() - due.timestamp().as_nanosecond();
            let due = due.strftime("%H:%M:%S %Z");
            let _ = writeln!(
                io::stdout(),
                "{pattern}  due {due}, ran {:.1} ms after",
                late as f64 / 1e6
            );
        });
    }
    eprintln!("until Ctrl-C");
    stopped.recv().context("the signal handler is gone")?;
    timer.shutdown(Duration::MAX);
    Ok(())
}

fn run(args: &Args) -> Result<()> {
    let default: &[&str] = if args.live {
        &["* * * * * *"]
    } else {
        &["0 9 * * *", "0 9 * * TUE", "0 9 12 * *"]
    };
    let patterns = match &*args.patterns {
        [] => default
            .iter()
            .map(|pattern| pattern.parse())
            .collect::<Result<_, _>>()?,
        patterns => patterns.to_vec(),
    };
    if args.live {
        live(args, &patterns)
    } else {
        by_hand(args, &patterns)
    }
}

fn main() -> ExitCode {
    let ran = run(&Args::parse()).inspect_err(|error| eprintln!("recurring: {error:#}"));
    if ran.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use jiff::civil::date;

    use super::*;

    fn year(pattern: &str) -> Vec<Zoned> {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let begin = date(2026, 1, 1).to_zoned(berlin.clone()).unwrap();
        times(
            &pattern.parse().unwrap(),
            &begin,
            &date(2027, 1, 1).to_zoned(berlin).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn nine_is_nine_on_either_side_of_a_clock_change() {
        let ran = year("0 9 * * *");
        assert_eq!(ran.len(), 365);
        assert!(ran.iter().all(|at| (at.hour(), at.minute()) == (9, 0)));
        let utc = |at: &Zoned| at.with_time_zone(TimeZone::UTC).hour();
        let day = |month, day| {
            ran.iter()
                .find(|at| at.date() == date(2026, month, day))
                .unwrap()
        };
        // The clocks go forward in the night.
        assert_eq!([utc(day(3, 28)), utc(day(3, 29))], [8, 7]);
        assert_eq!([utc(day(10, 24)), utc(day(10, 25))], [7, 8]);
    }

    #[test]
    fn a_skipped_hour_is_made_up_and_no_day_never_comes() {
        let ran = year("30 2 * * *"); // on the 29th of March there is no half past two
        assert_eq!(ran.len(), 365);
        assert!(year("0 9 30 2 *").is_empty());
    }
}
