//! Introspection: what waits, for what, since when, and how the others ended.
//!
//! Shards are locked one after another, for a bounded number of entries at a time (but all keys of
//! a shard at once). So a snapshot is not atomic: it is exact when idle.
//!
//! An entry shows that an operation is *under check*, but not since when: that would cost a clock
//! reading a check. So the first snapshot that finds a check under way notes the time in the entry,
//! and a check that ends removes it.

use std::{cmp::Reverse, collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

use timer_core::TimerHandle;

use crate::{
    engine::{Core, Tour, under_lock::must_be_unlocked},
    operation::DelayedOperation,
    stats::{Parked, Snapshot, Stats, Times},
    table::highest::{Highest, busiest},
    watches::WatchKey,
};

/// Findings of a look at everything parked: operations by an age in nanoseconds, the oldest first.
pub(super) struct Survey {
    /// By the time since they were parked.
    pub(super) oldest: Vec<(u64, TimerHandle)>,
    /// By the time for which their checks are known to be under way.
    pub(super) under_check: Vec<(u64, TimerHandle)>,
    /// Every label so far, with the number parked under it: a gauge that was set is set again.
    pub(super) labels: BTreeMap<&'static str, usize>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn snapshot(&self, limit: usize) -> Snapshot<K> {
        let now_ns = self.frame.driver().now_ns();
        let survey = self.survey(limit, now_ns);
        let mut oldest = Vec::new();
        for (_, handle) in survey.oldest {
            oldest.extend(self.parked(handle, now_ns));
        }
        let mut under_check = Vec::new();
        for (known_ns, handle) in survey.under_check {
            if let Some(mut parked) = self.parked(handle, now_ns) {
                parked.under_check = Some(Duration::from_micros(known_ns / 1000));
                under_check.push(parked);
            }
        }
        // The labels in use, the most frequent first.
        let mut labels: Vec<_> = survey.labels.into_iter().collect();
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

    /// Visits everything parked, a bounded number under one lock hold: the checks under way, the
    /// labels, and the operations that have been parked for longest.
    pub(super) fn survey(&self, limit: usize, now_ns: u64) -> Survey {
        let mut oldest = Highest::new(limit);
        let mut under_check = Highest::new(limit);
        let mut labels = BTreeMap::new();
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            // One lock hold: bounded.
            for handle in handles {
                let Some(entry) = shard.get_mut(handle) else {
                    continue;
                };
                oldest.offer(entry.age_ns(now_ns), || handle);
                if let Some(seen_ns) = entry.check_seen_ns(now_ns) {
                    under_check.offer(now_ns.saturating_sub(seen_ns), || handle);
                }
                if let Some(label) = entry.label() {
                    *labels.entry(label).or_default() += 1;
                }
            }
        }
        // A label that was seen once is reported from then on, with 0 if need be.
        let mut seen = self.cold().labels.lock();
        seen.extend(labels.keys());
        for &label in seen.iter() {
            labels.entry(label).or_default();
        }
        Survey {
            oldest: oldest.into_sorted(),
            under_check: under_check.into_sorted(),
            labels,
        }
    }

    /// Describes an operation, unless it has ended.
    pub(super) fn parked(&self, handle: TimerHandle, now_ns: u64) -> Option<Parked<K>> {
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
