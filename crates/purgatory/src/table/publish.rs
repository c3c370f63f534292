//! Publishing through the `metrics` facade (feature `metrics`). No wait touches a metric: a scrape
//! handler calls [`Waits::publish`](crate::Waits::publish), which adds the shards' counts up.

use timer_core::driver::{Sample, SourceName};

use crate::{
    samples,
    table::{Engine, Table},
};

impl<E: Engine> Table<E> {
    pub(crate) fn publish(&self) {
        let source = SourceName {
            label: "purgatory",
            name: self.name.clone(),
        };
        self.cold().published.publish(&source, || {
            let mut samples = self.total_samples();
            samples.extend(samples::present(&self.stats(), self.key_count()));
            if let Some(max_parked) = &self.max_parked {
                samples.push(samples::max_parked(max_parked.max()));
            }
            samples.push(samples::oldest_age(self.oldest_age_ns()));
            samples
        });
    }

    /// Publishes counters and times for the last time, and takes the gauges away.
    pub(crate) fn withdraw(&self) {
        if let Some(cold) = self.cold.get() {
            cold.published.withdraw(|| self.total_samples());
        }
    }

    /// Counters and histograms, which stay when the form is gone.
    fn total_samples(&self) -> Vec<Sample> {
        let mut samples = samples::totals(&self.stats());
        // The first call begins to time.
        samples.extend(samples::times(self.times()));
        samples
    }
}
