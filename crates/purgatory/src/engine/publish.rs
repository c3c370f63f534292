//! Publishing through the `metrics` facade (feature `metrics`), as
//! [every form](crate::table::publish) does.

use timer_core::driver::{Published, Publishes, Sample, SourceName};

use crate::{engine::Core, operation::DelayedOperation, samples, watches::WatchKey};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Publishes counters and times for the last time, and takes the gauges away. The timer
    /// publishes this no more, though a future may keep it.
    pub(crate) fn withdraw(&self) {
        self.frame.withdraw(&|| self.totals());
    }
}

impl<K: WatchKey, O: DelayedOperation> Publishes for Core<K, O> {
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
        let max_parked = self
            .max_parked
            .as_ref()
            .map(|max_parked| max_parked.max() as u64);
        let mut samples = samples::present(&self.stats(), self.keys(), max_parked);
        // 1. The largest of each, as the survey finds them.
        let mut oldest_ns = 0;
        let mut check_ns = 0;
        let labels = self.survey(self.frame.driver().now_ns(), &mut |surveyed| {
            oldest_ns = oldest_ns.max(surveyed.age_ns);
            check_ns = check_ns.max(surveyed.check_ns.unwrap_or(0));
        });
        samples.push(samples::oldest_age(oldest_ns));
        samples.push(samples::longest_check(check_ns));
        // 2. The labels, 0 of each included that is in use no more: a gauge keeps what it was set
        // to.
        samples.extend(samples::by_label(&labels));
        samples
    }
}
