//! Publishing through the `metrics` facade (feature `metrics`). No operation touches a metric: a
//! scrape handler calls [`Purgatory::publish`](crate::Purgatory::publish) or
//! [`Waits::publish`](crate::Waits::publish), which adds the shards' counts up and hands the
//! differences to the installed recorder. How forms of one name share their series:
//! [`Published`](timer_core::driver::Published).

use std::sync::Arc;

use timer_core::driver::{Sample, SourceName};

use crate::{
    samples,
    stats::{Stats, Times},
    table::{Engine, Table, frame::Frame},
};

/// A form, as it is published.
pub(crate) trait PublishedForm {
    fn frame(&self) -> &Frame;
    fn stats(&self) -> Stats;
    /// The first call begins to time.
    fn times(&self) -> Times;
    /// The present. Of several forms of one name, numbers add up, and of ages the largest is shown.
    fn gauges(&self) -> Vec<Sample>;

    fn publish(&self) {
        if let Some(published) = self.frame().published() {
            published.publish(&self.source(), || self.samples());
        }
    }

    fn publish_in_detail(&self) {
        if let Some(published) = self.frame().published() {
            published.publish_in_detail(&self.source(), || self.samples());
        }
    }

    /// Publishes counters and times for the last time, and takes the gauges away. Its timer
    /// publishes it no more, though a future may keep it.
    fn withdraw(&self) {
        if let Some(published) = self.frame().withdraw() {
            published.withdraw(|| self.totals());
        }
    }

    fn source(&self) -> SourceName {
        SourceName {
            label: "purgatory",
            name: Arc::from(&*self.frame().name),
        }
    }

    /// Everything, details included.
    fn samples(&self) -> Vec<Sample> {
        let mut samples = self.totals();
        samples.extend(self.gauges());
        samples
    }

    /// Counters and histograms, which stay when the form is gone.
    fn totals(&self) -> Vec<Sample> {
        let mut samples = samples::totals(&self.stats());
        samples.extend(samples::times(self.times()));
        samples
    }
}

impl<E: Engine> PublishedForm for Table<E> {
    fn frame(&self) -> &Frame {
        &self.frame
    }

    fn stats(&self) -> Stats {
        Table::stats(self)
    }

    fn times(&self) -> Times {
        Table::times(self)
    }

    fn gauges(&self) -> Vec<Sample> {
        let mut samples = samples::present(&self.stats(), self.key_count());
        if let Some(max_parked) = self.max_parked() {
            samples.push(samples::max_parked(max_parked));
        }
        samples.push(samples::oldest_age(self.oldest_age_ns()));
        samples
    }
}
