//! The tables: one for each number of pending timers while the program runs, and in the end one for
//! each measure, in which the growth is seen.

use std::fmt::Write as _;

use crate::{
    algorithms::{CALENDAR_SLOTS, CLOCK_SLOTS, Contender},
    numbers::{grouped, time},
    results::{Measure, Results, Stopped},
    trial::DAY,
};

const STOPPED: &str = "stopped";

/// What was measured among `pending` timers.
pub(crate) fn block(results: &Results, wanted: &[&Contender], pending: usize) -> String {
    let mut text = format!("\n{:<22}", format!("{} pending", grouped(pending as u64)));
    Measure::ALL.iter().for_each(|measure| text += &format!("{:>17}", measure.name()));
    for contender in wanted {
        text += &format!("\n  {:<20}", contender.name);
        for measure in Measure::ALL {
            let point = results.get(contender.name, measure, pending);
            let cell = point.map_or(STOPPED.into(), |point| {
                format!("{} ±{}", time(point.median()), percent(point.spread()))
            });
            text += &format!("{cell:>17}");
        }
    }
    text.push('\n');
    for line in results.stops(pending).map(Stopped::line) {
        text += &format!("  {line}\n");
    }
    text
}

/// The medians of one measure, as the pending timers grow.
pub(crate) fn growth(
    results: &Results,
    wanted: &[&Contender],
    measure: Measure,
    sizes: &[usize],
) -> String {
    let mut text = format!("\n{}: {}\n", measure.name(), measure.about());
    text += &format!("{:<16}{:<11}", "", "claim");
    sizes.iter().for_each(|&pending| text += &format!("{:>11}", grouped(pending as u64)));
    for contender in wanted {
        text += &format!("\n{:<16}{:<11}", contender.name, measure.claim(contender.claim));
        for &pending in sizes {
            let point = results.get(contender.name, measure, pending);
            let cell = point.map_or(STOPPED.into(), |point| time(point.median()));
            text += &format!("{cell:>11}");
        }
    }
    text.push('\n');
    text
}

/// The lists that each scheme keeps, and what the clock saves.
pub(crate) fn space(results: &Results, wanted: &[&Contender]) -> String {
    let mut text = String::from("\nspace: lists kept, for delays of up to a day in seconds\n");
    for contender in wanted {
        let slots = results.slots(contender.name).map_or("-".into(), |slots| grouped(slots as u64));
        writeln!(text, "{:<16}{slots:>11}", contender.name).expect("a string");
    }
    let sum = |slots: &[u64]| slots.iter().map(u64::to_string).collect::<Vec<_>>().join(" + ");
    let (clock, calendar) = (sum(&CLOCK_SLOTS), sum(&CALENDAR_SLOTS));
    let day = CLOCK_SLOTS.iter().sum::<u64>();
    let month = day + CALENDAR_SLOTS.iter().sum::<u64>();
    let (slots, all) = (grouped(DAY), grouped(30 * DAY));
    writeln!(text, "a day of seconds: {clock} = {day} slots of a clock tell {slots} apart")
        .expect("a string");
    writeln!(text, "a month of them: with {calendar} more, {month} tell {all} apart")
        .expect("a string");
    text
}

/// A share; ten times and more is out of all proportion.
fn percent(share: f64) -> String {
    if share < 9.995 { format!("{:>3.0} %", 100.0 * share) } else { ">999 %".into() }
}
