//! Publishing through the `metrics` facade (feature `metrics`). No operation touches a metric: a
//! scrape handler calls [`Purgatory::publish`](crate::Purgatory::publish) or
//! [`Waits::publish`](crate::Waits::publish), which adds the shards' counts up and hands the
//! differences to the installed recorder. How forms of one name share their series:
//! [`Published`](timer_core::driver::Published).

use timer_core::driver::{Published, Publishes, Sample, SourceName};

use crate::{
    samples,
    table::{Engine, Table},
};

impl<E: Engine> Table<E> {
    /// Publishes counters and times for the last time, and takes the gauges away. The timer
    /// publishes this no more, though a future may keep it.
    pub(super) fn withdraw(&self) {
        self.frame.withdraw(&|| self.totals());
    }
}

impl<E: Engine> Publishes for Table<E> {
    fn published(&self) -> Option<&Published> {
        self.frame.published()
    }

    fn source(&self) -> SourceName {
        self.frame.source()
    }

    fn totals(&self) -> Vec<Sample> {
        samples::totals(&self.stats(), self.times())
    }

    fn gauges(&self) -> Vec<Sample> {
        let mut samples = samples::present(&self.stats(), self.key_count(), self.max_parked());
        samples.push(samples::oldest_age(self.oldest_age_ns()));
        samples
    }
}
