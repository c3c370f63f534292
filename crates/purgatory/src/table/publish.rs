//! Publishing through the `metrics` facade (feature `metrics`). No operation touches a metric: a
//! scrape handler calls [`Purgatory::publish`](crate::Purgatory::publish) or
//! [`Waits::publish`](crate::Waits::publish), which adds up the shards' counts and hands the
//! differences to the installed recorder. [`Published`](timer_core::driver::Published) tells how
//! forms of one name share their series.

use timer_core::driver::{Published, Publishes, Sample, ShardState, SourceName};

use crate::{
    samples,
    table::{AnyTable, BUDGET, Engine, Inside, Table, TableOf, form::AnyForm, keys::Keys},
};

impl<E: Inside> AnyTable<E> {
    /// Publishes counters and times, and withdraws the gauges, as the last handle is dropped. From
    /// then on the timer does not publish this table, though a future may keep it.
    pub(super) fn withdraw(&self) {
        self.frame.published.withdraw(&|| self.totals());
    }
}

impl<E, S: ShardState, J> Drop for TableOf<E, S, J> {
    /// Publishes the counts made after the last handle was dropped: an operation was still under
    /// check, or its callback was with the executor. Either keeps the table until it is over.
    fn drop(&mut self) {
        (self.withdraw)(self);
    }
}

impl<E: Inside> Publishes for AnyTable<E> {
    fn published(&self) -> &Published {
        &self.frame.published
    }

    fn source(&self) -> SourceName {
        SourceName {
            label: "purgatory",
            name: self.frame.name.as_ref().into(),
        }
    }

    fn totals(&self) -> Vec<Sample> {
        samples::totals(&self.stats(), self.times())
    }

    fn gauges(&self) -> Vec<Sample> {
        let mut samples = samples::present(&self.stats(), self.key_count(), self.max_parked());
        // 1. Add the largest age and check time that the survey finds.
        let mut oldest_ns = 0;
        let mut check_ns = 0;
        let labels = self.survey(self.frame.driver().now_ns(), &mut |_, look| {
            oldest_ns = oldest_ns.max(look.age_ns);
            check_ns = check_ns.max(look.check_ns.unwrap_or(0));
        });
        samples.push(samples::oldest_age(oldest_ns));
        if E::HAS_CHECKS {
            samples.push(samples::longest_check(check_ns));
        }
        // 2. Add the labels, with 0 for those no longer in use: a gauge keeps its last value.
        samples.extend(samples::by_label(&labels));
        // 3. Add the gauges that this form alone has.
        samples.extend(E::own_gauges(self));
        samples
    }
}

impl<E: Engine> Table<E> {
    /// Visits the data of each key, a bounded number under one lock hold.
    pub(crate) fn each_record<K, R>(
        &self,
        keys_of: impl Fn(&E::Records) -> &Keys<K, R>,
        mut visit: impl FnMut(&R),
    ) {
        for shard in self.shards.made() {
            let mut next = Some(0);
            while let Some(from) = next {
                let shard = self.lock(shard);
                let keys = keys_of(&shard.records);
                let mut numbers = keys.numbers_from(from);
                for number in numbers.by_ref().take(BUDGET) {
                    visit(keys.at(number));
                }
                next = numbers.next();
            }
        }
    }
}
