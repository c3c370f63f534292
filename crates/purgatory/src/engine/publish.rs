//! Publishing through the `metrics` facade (feature `metrics`), as
//! [every form](crate::table::publish) does.

use timer_core::driver::Sample;

use crate::{
    engine::Core,
    operation::DelayedOperation,
    samples,
    stats::{Stats, Times},
    table::{frame::Frame, publish::PublishedForm},
    watches::WatchKey,
};

impl<K: WatchKey, O: DelayedOperation> PublishedForm for Core<K, O> {
    fn frame(&self) -> &Frame {
        &self.frame
    }

    fn stats(&self) -> Stats {
        Core::stats(self)
    }

    fn times(&self) -> Times {
        Core::times(self)
    }

    fn gauges(&self) -> Vec<Sample> {
        let mut samples = samples::present(&Core::stats(self), self.keys());
        // The bounds add up as the numbers do that they bound.
        if let Some(max_parked) = &self.max_parked {
            samples.push(samples::max_parked(max_parked.max() as u64));
        }
        // 1. The largest of each, as the survey finds them.
        let now_ns = self.frame.driver().now_ns();
        let survey = self.survey(1, now_ns);
        let largest = |ranked: &[(u64, _)]| ranked.first().map_or(0, |&(age_ns, _)| age_ns);
        let check_ns = largest(&survey.under_check);
        samples.extend([
            samples::oldest_age(largest(&survey.oldest)),
            Sample::largest(
                "purgatory_longest_check_seconds",
                "How long the longest check has been under way, from the first scrape that found it.",
                check_ns as f64 / 1e9,
            ),
        ]);
        // 2. The labels, 0 of each included that is in use no more: a gauge keeps what it was set
        // to.
        for (label, count) in survey.labels {
            let parked = Sample::sum(
                "purgatory_parked_by_label",
                "Operations that are parked now, by their label.",
                count as f64,
            );
            samples.push(parked.labelled("label", label));
        }
        samples
    }
}
