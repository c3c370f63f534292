//! Introspection: what waits, for what, since when, and how the others ended. Shards are locked one
//! after another, so a snapshot is exact when idle.

use std::time::Duration;

use timer_core::TimerHandle;

use crate::{
    stats::{Parked, Snapshot, Stats, Times},
    table::{
        Engine, Table,
        highest::{Highest, busiest},
        tour::Tour,
    },
};

impl<E: Engine> Table<E> {
    /// Returns the number of waits. O(shards).
    pub(crate) fn waiting(&self) -> usize {
        let mut waiting = 0;
        for number in self.shards.made() {
            waiting += self.lock(number).waiting();
        }
        waiting
    }

    /// Returns true once the form or its timer was shut down. O(1), without a lock.
    pub(crate) fn is_closed(&self) -> bool {
        self.shards.is_closed()
    }

    /// Returns the bound on what waits, if there is one.
    pub(crate) fn max_parked(&self) -> Option<u64> {
        self.max_parked.as_ref().map(|limit| limit.max() as u64)
    }

    /// Adds up all counts. O(shards).
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.frame.shared_stats();
        for number in self.shards.made() {
            self.lock(number).add_to(&mut stats);
        }
        stats
    }

    /// Adds up the times of all shards. From the first call on ends are timed.
    pub(crate) fn times(&self) -> Times {
        let mut times = self.frame.shared_times();
        for number in self.shards.made() {
            self.lock(number).add_times_to(&mut times);
        }
        times
    }

    /// Returns the number of keys that have waiters. O(shards).
    pub(crate) fn key_count(&self) -> usize {
        let mut count = 0;
        for number in self.shards.made() {
            count += E::key_count(&self.lock(number));
        }
        count
    }

    /// Visits all waits, with the nanosecond of their parking. O(waits).
    fn each(&self, visit: &mut dyn FnMut(u64, TimerHandle)) {
        let mut tour = Tour::default();
        while let Some((shard, handles)) = tour.next(&self.shards) {
            for handle in handles {
                let entry = shard.wheel.get(handle.id());
                if let Some(entry) = entry.filter(|entry| entry.wait().is_some_and(E::is_wait)) {
                    visit(entry.since_ns, handle);
                }
            }
        }
    }

    /// Returns how long the oldest wait has waited. O(waits).
    #[cfg(feature = "metrics")]
    pub(crate) fn oldest_age_ns(&self) -> u64 {
        let now_ns = self.frame.driver().now_ns();
        let mut oldest_ns = now_ns;
        self.each(&mut |since_ns, _| oldest_ns = oldest_ns.min(since_ns));
        now_ns - oldest_ns
    }

    /// Describes a wait, unless it has ended.
    fn parked(&self, handle: TimerHandle, now_ns: u64) -> Option<Parked<E::Key>> {
        let tick = self.frame.driver().config.tick;
        let shard = self.lock(handle.shard());
        let entry = shard.wheel.get(handle.id())?;
        let age_ns = now_ns.saturating_sub(entry.since_ns);
        let key = E::key_of(&shard.records, entry.wait()?);
        let expires_in = shard.expires_in_ns(handle.id(), now_ns, tick);
        Some(Parked {
            id: self.frame.id(handle),
            label: None,
            keys: vec![key],
            age: Duration::from_micros(age_ns / 1000),
            expires_in: expires_in.map(Duration::from_nanos),
            under_check: None,
        })
    }

    /// Returns the keys with the most waiters. O(keys).
    fn busiest(&self, limit: usize) -> Vec<(E::Key, usize)> {
        busiest(limit, self.shards.made(), |number, rank| {
            E::each_key(&self.lock(number).records, rank);
        })
    }

    pub(crate) fn snapshot(&self, limit: usize) -> Snapshot<E::Key> {
        let now_ns = self.frame.driver().now_ns();
        let mut oldest = Highest::new(limit);
        self.each(&mut |since_ns, handle| {
            oldest.offer(u64::MAX - since_ns, || handle);
        });
        let oldest = oldest.into_sorted().into_iter();
        Snapshot {
            name: self.frame.name.to_string(),
            oldest: oldest
                .filter_map(|(_, handle)| self.parked(handle, now_ns))
                .collect(),
            under_check: Vec::new(),
            key_count: self.key_count(),
            busiest: self.busiest(limit),
            labels: Vec::new(),
            times: self.times(),
            stats: self.stats(),
        }
    }
}
