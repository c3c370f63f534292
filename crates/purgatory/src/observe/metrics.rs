//! Publishing through the `metrics` facade (feature `metrics`).
//!
//! Nothing here is on the path of an operation: a scrape handler calls
//! [`Purgatory::publish`](crate::Purgatory::publish), which adds the rooms' counts up and hands
//! the sums to whatever recorder is installed.

use ::metrics::{
    SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::{
    engine::core::Core,
    operation::{
        DelayedOperation,
        stats::{Stats, Times},
        watches::WatchKey,
    },
    sync::Limit,
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn publish(&self) {
        self.publish_times();
        let stats = self.stats();
        self.publish_counts(&stats);
        self.publish_by_label(&stats);
        let now_ns = self.driver().now_ns();
        let survey = self.survey(1, now_ns);
        let quietest = self.quietest(1).first().map_or(0.0, |(_, quiet)| quiet.as_secs_f64());
        let seconds = |most: &[(u64, _)]| most.first().map_or(0.0, |&(us, _)| us as f64 / 1e6);
        let ages = [
            (
                "purgatory_oldest_age_seconds",
                "How long the oldest operation has been parked",
                seconds(&survey.oldest),
            ),
            (
                "purgatory_longest_check_seconds",
                "Longest time that a check is known to be under way",
                seconds(&survey.longest),
            ),
            (
                "purgatory_quietest_key_seconds",
                "Longest time that a key is known to have had waiters and no event",
                quietest,
            ),
        ];
        for (name, help, value) in ages {
            describe_gauge!(name, Unit::Seconds, help);
            gauge!(name, &self.label()).set(value);
        }
        let name = "purgatory_parked_by_label";
        describe_gauge!(name, Unit::Count, "Operations parked now, by the label of their watches");
        for (label, count) in survey.labels {
            gauge!(name, &self.labels("label", label)).set(count as f64);
        }
    }

    fn publish_counts(&self, stats: &Stats) {
        let gauges = [
            ("purgatory_parked", "Operations parked now", stats.parked),
            ("purgatory_watched", "Watches of parked operations now", stats.watched),
            ("purgatory_keys", "Keys that operations wait for now", self.keys() as u64),
            (
                "purgatory_callbacks_waiting",
                "Callbacks handed to the executor that have not begun",
                stats.callbacks_waiting,
            ),
        ];
        let max = |limit: &Option<Limit>| limit.as_ref().map(|limit| limit.max() as u64);
        let limits = [
            ("purgatory_max_parked", "Bound on operations", max(&self.settings.permits)),
            (
                "purgatory_weight",
                "Weight of operations now",
                max(&self.settings.weights).map(|_| stats.weight),
            ),
            ("purgatory_max_weight", "Bound on weight", max(&self.settings.weights)),
        ];
        let limits = limits.into_iter().filter_map(|(name, help, of)| Some((name, help, of?)));
        for (name, help, value) in gauges.into_iter().chain(limits) {
            describe_gauge!(name, Unit::Count, help);
            gauge!(name, &self.label()).set(value as f64);
        }
        let counters = [
            ("purgatory_parked_total", "Operations ever parked", stats.parked_total),
            (
                "purgatory_ended_at_once_total",
                "Operations that ended without being parked",
                stats.ended_at_once,
            ),
            ("purgatory_checks_total", "Checks", stats.checks),
            ("purgatory_events_total", "Events raised", stats.events),
            ("purgatory_panics_total", "Checks and callbacks that panicked", stats.panics),
            (
                "purgatory_missed_events_total",
                "Conditions that came true without an event",
                stats.missed_events,
            ),
        ];
        for (name, help, value) in counters {
            describe_counter!(name, Unit::Count, help);
            counter!(name, &self.label()).absolute(value);
        }
    }

    /// What ended and what was refused, by how and why.
    fn publish_by_label(&self, stats: &Stats) {
        self.by(
            "purgatory_ended_total",
            "Parked operations that ended, by outcome",
            "outcome",
            [
                ("completed", stats.completed),
                ("expired", stats.expired),
                ("cancelled", stats.cancelled),
            ],
        );
        let Stats { cancelled_by_shutdown, cancelled_by_drop, cancelled_by_panic, .. } = *stats;
        let requested =
            stats.cancelled - cancelled_by_shutdown - cancelled_by_drop - cancelled_by_panic;
        self.by(
            "purgatory_cancelled_total",
            "Parked operations that were cancelled, by reason",
            "reason",
            [
                ("requested", requested),
                ("shutdown", cancelled_by_shutdown),
                ("dropped", cancelled_by_drop),
                ("panicked", cancelled_by_panic),
            ],
        );
        self.by(
            "purgatory_refused_total",
            "Operations handed back instead of being parked, by reason",
            "reason",
            [
                ("no_keys", stats.refused_no_keys),
                ("closed", stats.refused_closed),
                ("full", stats.refused_full),
                ("too_heavy", stats.refused_too_heavy),
                ("too_many_watermarks", stats.refused_too_many_watermarks),
            ],
        );
    }

    fn publish_times(&self) {
        // Each wait is handed over once. Who is doing so, further up this stack maybe, does it for
        // us.
        let Some(mut published) = self.published.try_lock() else { return };
        let published = &mut *published;
        let Times { completed, expired, cancelled, lateness, callback_delay } = self.times();
        const WAIT: &str = "purgatory_wait_seconds";
        describe_histogram!(WAIT, Unit::Seconds, "How long operations were parked, by outcome");
        let waits = [
            ("completed", completed, &mut published.completed),
            ("expired", expired, &mut published.expired),
            ("cancelled", cancelled, &mut published.cancelled),
        ];
        for (outcome, waits, published) in waits {
            let labels = self.labels("outcome", outcome);
            waits.hand_over(published, &histogram!(WAIT, &labels));
        }
        let others = [
            (
                "purgatory_expiry_lateness_seconds",
                "How long after its deadline what expired was taken off the wheel",
                lateness,
                &mut published.lateness,
            ),
            (
                "purgatory_callback_delay_seconds",
                "How long callbacks waited for the executor",
                callback_delay,
                &mut published.callback_delay,
            ),
        ];
        for (name, help, times, published) in others {
            describe_histogram!(name, Unit::Seconds, help);
            times.hand_over(published, &histogram!(name, &self.label()));
        }
    }

    /// Counters of one name, told apart by a label.
    fn by<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        counts: [(&'static str, u64); N],
    ) {
        describe_counter!(name, Unit::Count, help);
        for (value, count) in counts {
            counter!(name, &self.labels(label, value)).absolute(count);
        }
    }

    fn label(&self) -> [(SharedString, SharedString); 1] {
        [("purgatory".into(), self.settings.name.clone().into())]
    }

    fn labels(
        &self,
        label: &'static str,
        value: &'static str,
    ) -> [(SharedString, SharedString); 2] {
        let [name] = self.label();
        [name, (label.into(), value.into())]
    }
}
