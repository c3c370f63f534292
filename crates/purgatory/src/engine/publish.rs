//! Publishing through the `metrics` facade (feature `metrics`).
//!
//! Nothing here is on the path of an operation: a scrape handler calls
//! [`Purgatory::publish`](crate::Purgatory::publish), which adds the shards' counts up and hands
//! the sums to whatever recorder is installed.

use std::time::Duration;

use ::metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use timer_core::TimeHistogram;

use crate::{
    engine::{Core, inspect::Survey},
    operation::DelayedOperation,
    stats::{Stats, Times},
    watches::WatchKey,
};

const CANCELLED: &str = "Parked operations that were cancelled, by reason";
const DELAY: &str = "How long callbacks waited for the executor";
const ENDED: &str = "Parked operations that ended, by outcome";
const LATENESS: &str = "How long after its deadline what expired was taken off the wheel";
const REFUSED: &str = "Operations handed back instead of being parked, by reason";

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn publish(&self) {
        let of = [Label::new("purgatory", self.settings.name.clone())];
        // Each wait is handed over once: another call, further up this stack maybe, may be at it.
        if let Some(mut published) = self.counts.published.try_lock() {
            publish_times(&of, self.times(), &mut published);
        }
        let stats = self.stats();
        publish_counts(&of, &stats);
        let now_ns = self.driver().now_ns();
        let Survey { seen, oldest } = self.survey(1, now_ns);
        let age_ns = oldest.first().map_or(0, |&(age_ns, _)| age_ns);
        let since_ns = seen.checks.into_values().min().unwrap_or(now_ns);
        let quiet = self
            .quietest(1)
            .pop()
            .map_or_else(Duration::default, |(_, quiet)| quiet);
        let gauge = |name, help, value| set(&of, name, help, value);
        gauge(
            "purgatory_parked",
            "Operations parked now",
            stats.parked as f64,
        );
        gauge(
            "purgatory_watched",
            "Watches of parked operations now",
            stats.watched as f64,
        );
        gauge(
            "purgatory_keys",
            "Keys that operations wait for now",
            self.keys() as f64,
        );
        gauge(
            "purgatory_callbacks_waiting",
            "Callbacks not begun",
            stats.callbacks_waiting as f64,
        );
        gauge(
            "purgatory_oldest_age_seconds",
            "Age of the oldest operation",
            age_ns as f64 / 1e9,
        );
        let check_ns = now_ns.saturating_sub(since_ns);
        gauge(
            "purgatory_longest_check_seconds",
            "Longest check under way",
            check_ns as f64 / 1e9,
        );
        gauge(
            "purgatory_quietest_key_seconds",
            "Longest quiet of a key",
            quiet.as_secs_f64(),
        );
        if let Some(permits) = &self.settings.permits {
            gauge(
                "purgatory_max_parked",
                "Bound on operations",
                permits.max() as f64,
            );
        }
        if let Some(weights) = &self.settings.weights {
            gauge(
                "purgatory_weight",
                "Weight of operations now",
                stats.weight as f64,
            );
            gauge(
                "purgatory_max_weight",
                "Bound on weight",
                weights.max() as f64,
            );
        }
        for (label, count) in seen.labels {
            let labels = [of[0].clone(), Label::new("label", label)];
            set(
                &labels,
                "purgatory_parked_by_label",
                "Operations parked, by label",
                count as f64,
            );
        }
    }
}

fn set(labels: &[Label], name: &'static str, help: &'static str, value: f64) {
    let unit = if name.ends_with("_seconds") {
        Unit::Seconds
    } else {
        Unit::Count
    };
    describe_gauge!(name, unit, help);
    gauge!(name, labels.iter()).set(value);
}

fn publish_counts(of: &[Label; 1], stats: &Stats) {
    let count = |name, help, label: Option<(&'static str, &'static str)>, count| {
        let labels = label.map(|(label, value)| Label::new(label, value));
        let labels: Vec<_> = of.iter().cloned().chain(labels).collect();
        describe_counter!(name, Unit::Count, help);
        counter!(name, labels).absolute(count);
    };
    count(
        "purgatory_parked_total",
        "Operations ever parked",
        None,
        stats.parked_total,
    );
    count(
        "purgatory_ended_at_once_total",
        "Operations never parked",
        None,
        stats.ended_at_once,
    );
    count("purgatory_checks_total", "Checks", None, stats.checks);
    count(
        "purgatory_events_total",
        "Events raised",
        None,
        stats.events,
    );
    count(
        "purgatory_panics_total",
        "Checks and callbacks that panicked",
        None,
        stats.panics,
    );
    count(
        "purgatory_missed_events_total",
        "Missed events",
        None,
        stats.missed_events,
    );
    let ended = |outcome, of| {
        count(
            "purgatory_ended_total",
            ENDED,
            Some(("outcome", outcome)),
            of,
        )
    };
    ended("completed", stats.completed);
    ended("expired", stats.expired);
    ended("cancelled", stats.cancelled);
    let reason = |name, help, reason, of| count(name, help, Some(("reason", reason)), of);
    let cancelled = |why, of| reason("purgatory_cancelled_total", CANCELLED, why, of);
    cancelled("shutdown", stats.cancelled_by_shutdown);
    cancelled("dropped", stats.cancelled_by_drop);
    cancelled("panicked", stats.cancelled_by_panic);
    let by_itself =
        stats.cancelled_by_shutdown + stats.cancelled_by_drop + stats.cancelled_by_panic;
    cancelled("requested", stats.cancelled - by_itself);
    let refused = |why, of| reason("purgatory_refused_total", REFUSED, why, of);
    refused("no_keys", stats.refused_no_keys);
    refused("closed", stats.refused_closed);
    refused("full", stats.refused_full);
    refused("too_heavy", stats.refused_too_heavy);
    refused("too_many_watermarks", stats.refused_too_many_watermarks);
}

fn publish_times(of: &[Label; 1], times: Times, published: &mut Times) {
    let publish = |name, help, labels: &[Label], times: TimeHistogram, before: &mut _| {
        describe_histogram!(name, Unit::Seconds, help);
        times.hand_over(before, &histogram!(name, labels.iter()));
    };
    let waited = |outcome, times, before: &mut _| {
        let labels = [of[0].clone(), Label::new("outcome", outcome)];
        publish(
            "purgatory_wait_seconds",
            "Time parked, by outcome",
            &labels,
            times,
            before,
        );
    };
    waited("completed", times.completed, &mut published.completed);
    waited("expired", times.expired, &mut published.expired);
    waited("cancelled", times.cancelled, &mut published.cancelled);
    let Times {
        lateness,
        callback_delay,
        ..
    } = published;
    publish(
        "purgatory_expiry_lateness_seconds",
        LATENESS,
        of,
        times.lateness,
        lateness,
    );
    publish(
        "purgatory_callback_delay_seconds",
        DELAY,
        of,
        times.callback_delay,
        callback_delay,
    );
}
