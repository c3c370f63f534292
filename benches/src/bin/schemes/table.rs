//! The tables: one for each measure, in which the growth is seen.

use purgatory_benches::grouped;

use crate::{
    algorithms::ALL,
    numbers::time,
    results::{Measure, Results},
};

const STOPPED: &str = "stopped";

/// The medians of one measure, as the pending timers grow.
pub(crate) fn growth(results: &Results, measure: Measure, sizes: &[usize]) -> String {
    let mut text = format!("\n{}: {}\n", measure.name(), measure.about());
    text += &format!("{:<16}{:<11}", "", "claim");
    sizes.iter().for_each(|&pending| text += &format!("{:>11}", grouped(pending as u64)));
    for contender in ALL {
        text += &format!("\n{:<16}{:<11}", contender.name, measure.claim(contender.claim));
        for &pending in sizes {
            let point = results.get(contender.name, measure, pending);
            let cell = point.map_or(STOPPED.into(), |point| time(point.median()));
            text += &format!("{cell:>11}");
        }
    }
    text.push('\n');
    for line in results.stops(measure) {
        text += &format!("  {line}\n");
    }
    text
}
