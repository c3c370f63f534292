//! Publishing through the `metrics` facade (feature `metrics`). No wait touches a metric: a scrape
//! handler calls [`Waits::publish`](crate::Waits::publish), which adds the shards' counts up.

use std::sync::{Arc, Weak};

use timer_core::driver::{Publishes, Sample, SourceName};

use crate::{
    samples,
    table::{Engine, Table},
};

impl<E: Engine> Publishes for Table<E> {
    fn publish(&self) {
        Table::publish(self);
    }
}

impl<E: Engine> Table<E> {
    /// Has this published with its timer.
    pub(crate) fn publish_with_timer(self: &Arc<Self>) {
        let form: Weak<dyn Publishes> = Arc::downgrade(self) as _;
        self.driver().forms.add(form);
    }

    pub(crate) fn publish(&self) {
        let published = &self.cold().published;
        published.publish(&self.source(), || self.samples());
    }

    pub(crate) fn publish_in_detail(&self) {
        let published = &self.cold().published;
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
        samples.extend(samples::present(&self.stats(), self.key_count()));
        if let Some(max_parked) = &self.max_parked {
            samples.push(samples::max_parked(max_parked.max()));
        }
        samples.push(samples::oldest_age(self.oldest_age_ns()));
        samples
    }

    /// Publishes counters and times for the last time, and takes the gauges away. Its timer
    /// publishes it no more, though a future may keep it.
    pub(crate) fn withdraw(&self) {
        self.cold().published.withdraw(|| self.total_samples());
    }

    /// Counters and histograms, which stay when the form is gone.
    fn total_samples(&self) -> Vec<Sample> {
        let mut samples = samples::totals(&self.stats());
        // The first call begins to time.
        samples.extend(samples::times(self.times()));
        samples
    }
}
