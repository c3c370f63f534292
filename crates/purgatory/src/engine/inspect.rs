//! Introspection: what waits, for what, since when, and how the others ended.
//!
//! Shards are locked one after another, for a bounded number of entries at a time (but all keys of
//! a shard at once). So a snapshot is not atomic: it is exact when idle.
//!
//! An entry shows that an operation is *under check*, but not since when: that would cost a clock
//! reading a check. So the first snapshot that finds a check under way notes the time in the entry,
//! and a check that ends removes it.

use std::{cmp::Reverse, sync::atomic::Ordering::Relaxed, time::Duration};

use timer_core::TimerHandle;

use crate::{
    engine::{Core, Tour, under_lock::must_be_unlocked},
    operation::DelayedOperation,
    stats::{Labels, Parked, Snapshot, Stats, Times},
    table::highest::{Highest, busiest},
    watches::WatchKey,
};

/// An operation that a look at everything parked finds.
pub(super) struct Surveyed {
    handle: TimerHandle,
    /// The time since it was parked, in nanoseconds.
    pub(super) age_ns: u64,
    /// The time for which its check is known to be under way.
    pub(super) check_ns: Option<u64>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn snapshot(&self, limit: usize) -> Snapshot<K> {
        let now_ns = self.frame.driver().now_ns();
        let mut by_age = Highest::new(limit);
        let mut by_check = Highest::new(limit);
        let mut labels = self.survey(now_ns, &mut |surveyed| {
            by_age.offer(surveyed.age_ns, || surveyed.handle);
            if let Some(check_ns) = surveyed.check_ns {
                by_check.offer(check_ns, || surveyed.handle);
            }
        });
        let mut oldest = Vec::new();
        for (_, handle) in by_age.into_sorted() {
            oldest.extend(self.parked(handle, now_ns));
        }
        let mut under_check = Vec::new();
        for (known_ns, handle) in by_check.into_sorted() {
            if let Some(mut parked) = self.parked(handle, now_ns) {
                parked.under_check = Some(Duration::from_micros(known_ns / 1000));
                under_check.push(parked);
            }
        }
        // The labels in use, the most frequent first.
        labels.retain(|&(_, count)| count > 0);
        labels.sort_by_key(|&(_, count)| Reverse(count));
        Snapshot {
            name: self.frame.name.to_string(),
            oldest,
            under_check,
            key_count: self.keys(),
            busiest: self.busiest(limit),
            labels,
            times: self.times(),
            stats: self.stats(),
        }
    }

    /// Visits everything parked, a bounded number under one lock hold. Returns every label so far,
    /// with the number parked under it: a gauge that was set is set again.
    pub(super) fn survey(
        &self,
        now_ns: u64,
        visit: &mut dyn FnMut(Surveyed),
    ) -> Vec<(&'static str, usize)> {
        let mut labels = Labels::default();
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            // One lock hold: bounded.
            for handle in handles {
                let Some(entry) = shard.get_mut(handle) else {
                    continue;
                };
                let seen_ns = entry.check_seen_ns(now_ns);
                visit(Surveyed {
                    handle,
                    age_ns: entry.age_ns(now_ns),
                    check_ns: seen_ns.map(|seen_ns| now_ns.saturating_sub(seen_ns)),
                });
                if let Some(label) = entry.label() {
                    labels.add(label, 1);
                }
            }
        }
        // A label that was seen once is reported from then on, with 0 if need be.
        let mut seen = self.cold().labels.lock();
        for &(label, _) in &labels.0 {
            seen.add(label, 0);
        }
        for &(label, _) in &seen.0 {
            labels.add(label, 0);
        }
        labels.0
    }

    /// Describes an operation, unless it has ended.
    pub(crate) fn parked(&self, handle: TimerHandle, now_ns: u64) -> Option<Parked<K>> {
        // 1. What the entry has.
        let mut first_shard = self.first_shard_of(handle);
        let entry = first_shard.get_mut(handle)?;
        let age_ns = entry.age_ns(now_ns);
        let label = entry.label();
        let check_seen_ns = entry.check_seen_ns(now_ns);
        let tick = self.frame.driver().config.tick;
        let expires_in = first_shard.expires_in_ns(handle, now_ns, tick);
        drop(first_shard);

        // 2. Its keys.
        let keys = self.keys_of(handle)?;
        let known = |seen_ns| Duration::from_micros(now_ns.saturating_sub(seen_ns) / 1000);
        Some(Parked {
            id: self.frame.id(handle),
            label,
            keys,
            age: Duration::from_micros(age_ns / 1000),
            expires_in: expires_in.map(Duration::from_nanos),
            under_check: check_seen_ns.map(known),
        })
    }

    /// The keys of an operation as they were given, each cloned in its shard, one lock after the
    /// other. `None` if it has ended.
    pub(crate) fn keys_of(&self, handle: TimerHandle) -> Option<Vec<K>> {
        // 1. The first.
        let mut first_shard = self.first_shard_of(handle);
        let (entry, first_key) = first_shard.show(handle)?;
        let mut last_secondary = entry.last_secondary;
        let first_key = first_key.clone();
        drop(first_shard);
        // 2. The others, the last first.
        let mut keys = Vec::new();
        while let Some(secondary) = last_secondary {
            let shard = self.shards.lock(secondary.shard as usize);
            let Some((key, before)) = shard.secondary_key(secondary, handle) else {
                break; // the operation ended meanwhile
            };
            keys.push(key);
            last_secondary = before;
        }
        keys.push(first_key);
        keys.reverse();
        Some(keys)
    }

    /// The keys with the most waiters.
    fn busiest(&self, limit: usize) -> Vec<(K, usize)> {
        busiest(limit, self.shards.made(), |number, rank| {
            for (key, waiters) in self.shards.lock(number).waiters_by_key() {
                rank(key, waiters);
            }
        })
    }

    /// The number of keys that have waiters. O(shards).
    pub(crate) fn keys(&self) -> usize {
        self.sum_over_shards(|shard| shard.key_count())
    }

    /// Adds up all counts. O(shards).
    pub(crate) fn stats(&self) -> Stats {
        must_be_unlocked();
        // 1. The counts of the shards, one after the other.
        let mut stats = self.frame.shared_stats();
        for shard in self.shards.made() {
            self.shards.lock(shard).add_to(&mut stats);
        }
        // 2. The others. Each operation that ended at once was checked once.
        stats.ended_at_once = self.ended_at_once.load(Relaxed);
        stats.checks += stats.ended_at_once;
        stats.events = self.versions.events();
        stats
    }

    /// Adds up the times of all shards. From the first call on ends are timed.
    pub(crate) fn times(&self) -> Times {
        must_be_unlocked();
        let mut times = self.frame.shared_times();
        for number in self.shards.made() {
            if let Some(of_shard) = self.shards.lock(number).times() {
                times.add(of_shard);
            }
        }
        times
    }
}
