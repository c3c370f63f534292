//! Publishing a purgatory's counts through the `metrics` facade (feature `metrics`).
//!
//! Nothing here is on the path of an operation: a scrape handler calls
//! [`Purgatory::publish`](crate::Purgatory::publish), which adds the shards' counts up and hands
//! the sums to whatever recorder is installed.

use std::sync::Arc;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::stats::Stats;

/// Hands `stats` to the recorder, labelled with the purgatory's name.
pub(crate) fn publish(name: &Arc<str>, stats: &Stats) {
    describe();
    let label = [("purgatory", name.to_string())];
    gauge!("purgatory_parked", &label).set(stats.parked as f64);
    gauge!("purgatory_watched", &label).set(stats.watched as f64);
    counter!("purgatory_parked_total", &label).absolute(stats.parked_total);
    let ended = [
        ("completed", stats.completed),
        ("expired", stats.expired),
        ("cancelled", stats.cancelled),
    ];
    for (outcome, count) in ended {
        let labels = [("purgatory", name.to_string()), ("outcome", outcome.to_owned())];
        counter!("purgatory_ended_total", &labels).absolute(count);
    }
    counter!("purgatory_ended_at_once_total", &label).absolute(stats.ended_at_once);
    counter!("purgatory_panics_total", &label).absolute(stats.panics);
}

fn describe() {
    describe_gauge!("purgatory_parked", Unit::Count, "Operations parked now");
    describe_gauge!("purgatory_watched", Unit::Count, "Watches of parked operations now");
    describe_counter!("purgatory_parked_total", Unit::Count, "Operations ever parked");
    describe_counter!(
        "purgatory_ended_total",
        Unit::Count,
        "Parked operations that ended, by outcome"
    );
    describe_counter!(
        "purgatory_ended_at_once_total",
        Unit::Count,
        "Operations that ended at their first check, without being parked"
    );
    describe_counter!("purgatory_panics_total", Unit::Count, "Checks and callbacks that panicked");
}
