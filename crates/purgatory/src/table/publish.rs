//! Publishing through the `metrics` facade (feature `metrics`). No operation touches a metric: a
//! scrape handler calls [`Purgatory::publish`](crate::Purgatory::publish) or
//! [`Waits::publish`](crate::Waits::publish), which adds the shards' counts up and hands the
//! differences to the installed recorder. How forms of one name share their series:
//! [`Published`](timer_core::driver::Published).

use timer_core::driver::{Published, Publishes, Sample, ShardState, SourceName};

use crate::{
    samples,
    table::{AnyTable, BUDGET, Engine, Inside, Table, TableOf, form::AnyForm, keys::Keys},
};

impl<E: Inside> AnyTable<E> {
    /// Publishes counters and times, and takes the gauges away, as the last handle goes. The timer
    /// publishes this no more, though a future may keep it.
    pub(super) fn withdraw(&self) {
        self.frame.published.withdraw(&|| self.totals());
    }
}

impl<E, S: ShardState, J> Drop for TableOf<E, S, J> {
    /// Publishes what was counted after the last handle had gone: an operation was under check then,
    /// or the executor had its callback. Each of those keeps the table until it is over.
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
        // 1. The largest of each, as the survey finds them.
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
        // 2. The labels, 0 of each included that is in use no more: a gauge keeps what it was set
        // to.
        samples.extend(samples::by_label(&labels));
        // 3. What this form alone has.
        samples.extend(E::own_gauges(self));
        samples
    }
}

impl<E: Engine> Table<E> {
    /// Visits what is kept for each key, a bounded number under one lock hold.
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
