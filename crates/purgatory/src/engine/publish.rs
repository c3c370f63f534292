//! Publishing through the `metrics` facade (feature `metrics`).
//!
//! No operation touches a metric: a scrape handler calls
//! [`Purgatory::publish`](crate::Purgatory::publish), which adds the shards' counts up and hands
//! the differences to the installed recorder. How purgatories of one name share their series:
//! [`Published`](timer_core::driver::Published).

use std::sync::{Arc, Weak};

use timer_core::driver::{Publishes, Sample, SourceName};

use crate::{
    engine::{Core, inspect::Survey},
    operation::DelayedOperation,
    samples,
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> Publishes for Core<K, O> {
    fn publish(&self) {
        Core::publish(self);
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Has this published with its timer.
    pub(crate) fn publish_with_timer(self: &Arc<Self>) {
        let form: Weak<dyn Publishes> = Arc::downgrade(self) as _;
        self.driver().forms.add(form);
    }

    pub(crate) fn publish(&self) {
        let published = &self.counts.cold().published;
        published.publish(&self.source(), || self.samples());
    }

    pub(crate) fn publish_in_detail(&self) {
        let published = &self.counts.cold().published;
        published.publish_in_detail(&self.source(), || self.samples());
    }

    fn source(&self) -> SourceName {
        SourceName {
            label: "purgatory",
            name: Arc::from(&*self.name),
        }
    }

    /// Everything, details included.
    fn samples(&self) -> Vec<Sample> {
        let mut samples = self.total_samples();
        self.add_gauges(&mut samples);
        samples
    }

    /// Publishes counters and times for the last time, and takes the gauges away. Its timer
    /// publishes it no more, though a future may keep it.
    pub(crate) fn withdraw(&self) {
        let cold = self.counts.cold();
        cold.published.withdraw(|| self.total_samples());
    }

    /// Counters and histograms, which stay when the purgatory is gone.
    fn total_samples(&self) -> Vec<Sample> {
        let mut samples = samples::totals(&self.stats());
        // The first call begins to time.
        samples.extend(samples::times(self.times()));
        samples
    }

    /// The present: of several purgatories of one name, numbers add up, and of ages the largest is
    /// shown.
    fn add_gauges(&self, samples: &mut Vec<Sample>) {
        let stats = self.stats();
        samples.extend(samples::present(&stats, self.keys()));
        // The bounds add up as the numbers do that they bound.
        if let Some(max_parked) = &self.max_parked {
            samples.push(samples::max_parked(max_parked.max()));
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
        samples.extend([
            samples::oldest_age(age_ns),
            Sample::largest(
                "purgatory_longest_check_seconds",
                "How long the longest check has been under way, from the first scrape that found it.",
                check_ns as f64 / 1e9,
            ),
        ]);
        // 2. The labels, 0 of each included that is in use no more: a gauge keeps what it was set
        // to.
        for (label, count) in seen.labels {
            let parked = Sample::sum(
                "purgatory_parked_by_label",
                "Operations that are parked now, by their label.",
                count as f64,
            );
            samples.push(parked.labelled("label", label));
        }
    }
}
