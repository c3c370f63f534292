//! Publishing through the `metrics` facade (feature `metrics`).
//!
//! No operation touches a metric: a scrape handler calls
//! [`Purgatory::publish`](crate::Purgatory::publish), which adds the shards' counts up and hands
//! the differences to the installed recorder. How purgatories of one name share their series:
//! [`Published`](timer_core::driver::Published).

use timer_core::driver::{Sample, SourceName};

use crate::{
    engine::{Core, inspect::Survey},
    operation::DelayedOperation,
    stats::Stats,
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn publish(&self) {
        let source = SourceName {
            label: "purgatory",
            name: self.settings.name.clone(),
        };
        self.counts.cold().published.publish(&source, || {
            let mut samples = self.total_samples();
            self.add_gauges(&mut samples);
            samples
        });
    }

    /// Publishes counters and times for the last time, and takes the gauges away.
    pub(crate) fn withdraw(&self) {
        if let Some(cold) = self.counts.cold_if_used() {
            cold.published.withdraw(|| self.total_samples());
        }
    }

    /// Counters and histograms, which stay when the purgatory is gone.
    fn total_samples(&self) -> Vec<Sample> {
        // 1. Counters.
        let stats = self.stats();
        let mut samples = counters(&stats);
        samples.extend(endings(&stats));
        // 2. Histograms. The first call begins to time.
        let times = self.times();
        for (outcome, waited) in [
            ("completed", times.completed),
            ("expired", times.expired),
            ("cancelled", times.cancelled),
        ] {
            let waits = Sample::times("purgatory_wait_seconds", "Time parked, by outcome", waited);
            samples.push(waits.labelled("outcome", outcome));
        }
        samples.push(Sample::times(
            "purgatory_expiry_lateness_seconds",
            "How long after its deadline what expired was taken off the wheel",
            times.lateness,
        ));
        samples.push(Sample::times(
            "purgatory_callback_delay_seconds",
            "How long callbacks waited for the executor",
            times.callback_delay,
        ));
        samples
    }

    /// The present: of several purgatories of one name, numbers add up, and of ages the largest is
    /// shown.
    fn add_gauges(&self, samples: &mut Vec<Sample>) {
        let stats = self.stats();
        let mut sum = |metric, help, value| samples.push(Sample::sum(metric, help, value));
        sum(
            "purgatory_parked",
            "Operations parked now",
            stats.parked as f64,
        );
        sum(
            "purgatory_watched",
            "Watches of parked operations now",
            stats.watched as f64,
        );
        sum(
            "purgatory_keys",
            "Keys that operations wait for now",
            self.keys() as f64,
        );
        sum(
            "purgatory_callbacks_waiting",
            "Callbacks not begun",
            stats.callbacks_waiting as f64,
        );
        // The bounds add up as the numbers do that they bound.
        if let Some(max_parked) = &self.settings.max_parked {
            sum(
                "purgatory_max_parked",
                "Bound on operations",
                max_parked.max() as f64,
            );
        }
        if let Some(max_weight) = &self.settings.max_weight {
            sum(
                "purgatory_weight",
                "Weight of operations now",
                stats.weight as f64,
            );
            sum(
                "purgatory_max_weight",
                "Bound on weight",
                max_weight.max() as f64,
            );
        }
        self.add_surveyed(samples);
    }

    /// Gauges that take a look at each operation and each key.
    fn add_surveyed(&self, samples: &mut Vec<Sample>) {
        // 1. The largest of each, as the survey finds them.
        let now_ns = self.driver().now_ns();
        let Survey { seen, oldest } = self.survey(1, now_ns);
        let age_ns = oldest.first().map_or(0, |&(age_ns, _)| age_ns);
        let check_since_ns = seen.checks.into_values().min().unwrap_or(now_ns);
        let check_ns = now_ns.saturating_sub(check_since_ns);
        let quietest = self.quietest(1).pop();
        let quiet_s = quietest.map_or(0.0, |(_, quiet)| quiet.as_secs_f64());
        samples.extend([
            Sample::largest(
                "purgatory_oldest_age_seconds",
                "Age of the oldest operation",
                age_ns as f64 / 1e9,
            ),
            Sample::largest(
                "purgatory_longest_check_seconds",
                "Longest check under way",
                check_ns as f64 / 1e9,
            ),
            Sample::largest(
                "purgatory_quietest_key_seconds",
                "Longest quiet of a key",
                quiet_s,
            ),
        ]);
        // 2. The labels, 0 of each included that is in use no more: a gauge keeps what it was set
        // to.
        for (label, count) in seen.labels {
            let parked = Sample::sum(
                "purgatory_parked_by_label",
                "Operations parked, by label",
                count as f64,
            );
            samples.push(parked.labelled("label", label));
        }
    }
}

/// Counters without a further label.
fn counters(stats: &Stats) -> Vec<Sample> {
    [
        (
            "purgatory_parked_total",
            "Operations ever parked",
            stats.parked_total,
        ),
        (
            "purgatory_ended_at_once_total",
            "Operations never parked",
            stats.ended_at_once,
        ),
        (
            "purgatory_taken_total",
            "Operations handed to the caller",
            stats.taken,
        ),
        ("purgatory_checks_total", "Checks", stats.checks),
        ("purgatory_events_total", "Signals of keys", stats.events),
        (
            "purgatory_panics_total",
            "Checks and callbacks that panicked",
            stats.panics,
        ),
        (
            "purgatory_missed_events_total",
            "Missed events",
            stats.missed_events,
        ),
    ]
    .map(|(metric, help, count)| Sample::counter(metric, help, count))
    .into()
}

/// Counters of endings and refusals, by outcome or reason.
fn endings(stats: &Stats) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |metric, help, label, by: &[(&'static str, u64)]| {
        for &(value, count) in by {
            samples.push(Sample::counter(metric, help, count).labelled(label, value));
        }
    };
    add(
        "purgatory_ended_total",
        "Parked operations that ended, by outcome",
        "outcome",
        &[
            ("completed", stats.completed),
            ("expired", stats.expired),
            ("cancelled", stats.cancelled),
        ],
    );
    // The others were cancelled on request, or are quorums that were lost.
    let by_itself = stats.cancelled_by_future_drop
        + stats.cancelled_by_shutdown
        + stats.cancelled_by_drop
        + stats.cancelled_by_panic;
    add(
        "purgatory_cancelled_total",
        "Parked operations that were cancelled, by reason",
        "reason",
        &[
            ("future_dropped", stats.cancelled_by_future_drop),
            ("shutdown", stats.cancelled_by_shutdown),
            ("dropped", stats.cancelled_by_drop),
            ("panicked", stats.cancelled_by_panic),
            ("requested", stats.cancelled - by_itself),
        ],
    );
    add(
        "purgatory_refused_total",
        "Operations handed back instead of being parked, by reason",
        "reason",
        &[
            ("no_keys", stats.refused_no_keys),
            ("closed", stats.refused_closed),
            ("full", stats.refused_full),
            ("too_heavy", stats.refused_too_heavy),
            ("too_many_watermarks", stats.refused_too_many_watermarks),
        ],
    );
    samples
}
