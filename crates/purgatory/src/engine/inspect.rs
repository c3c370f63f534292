//! Introspection: what waits, for what, since when, and what became of the rest, without stopping
//! anything.
//!
//! Shards are looked at one after the other, a bounded number of entries a lock hold (but all keys
//! of a shard in one), so a snapshot is exact when nothing moves and otherwise a smear over the time
//! it took.
//!
//! That an operation is *under check* shows in its entry, but since when would cost a clock reading
//! a check. So it is the snapshots that remember: one that finds a check under way marks the entry,
//! a check that ends wipes the mark, and a later snapshot that finds the mark knows that it is
//! looking at the same check still.

use std::{cmp, collections::HashMap, sync::atomic::Ordering::Relaxed, time::Duration};

use timer_core::TimerHandle;

use crate::{
    engine::{Core, Seen},
    operation::DelayedOperation,
    shard::{Shard, Timed},
    stats::{Parked, Snapshot, Stats, Times},
    watches::WatchKey,
};

/// Sorts by rank, highest first, and returns what is beyond the first `limit`.
fn keep_highest<T>(ranked: &mut Vec<(u64, T)>, limit: usize) -> Vec<(u64, T)> {
    ranked.sort_by_key(|&(rank, _)| cmp::Reverse(rank));
    ranked.split_off(limit.min(ranked.len()))
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(crate) fn snapshot(&self, limit: usize) -> Snapshot<K> {
        let now_ns = self.driver().now_ns();
        let (Seen { checks, labels }, oldest) = self.survey(limit, now_ns);
        let mut labels: Vec<_> = labels.into_iter().filter(|&(_, count)| count > 0).collect();
        labels.sort_by_key(|&(_, count)| cmp::Reverse(count));
        let age_ns = |since_ns: u64| now_ns.saturating_sub(since_ns);
        let mut longest = checks
            .iter()
            .map(|(&id, &since_ns)| (age_ns(since_ns), id))
            .collect();
        keep_highest(&mut longest, limit);
        let tell = |&(_, id): &(u64, TimerHandle)| {
            let parked = self.parked(id, now_ns)?;
            let known = checks
                .get(&id)
                .map(|&since_ns| Duration::from_micros(age_ns(since_ns) / 1000));
            Some(Parked {
                under_check: known.or(parked.under_check),
                ..parked
            })
        };
        Snapshot {
            name: self.settings.name.to_string(),
            oldest: oldest.iter().filter_map(tell).collect(),
            under_check: longest.iter().filter_map(tell).collect(),
            key_count: self.keys(),
            busiest: self.busiest(limit),
            quietest: self.quietest(limit),
            labels,
            times: self.times(),
            stats: self.stats(),
        }
    }

    /// Looks at everything parked, a bounded number under one lock hold. Returns the checks under
    /// way and how many have each label, and what has been parked for longest, with its
    /// nanoseconds.
    pub(crate) fn survey(&self, limit: usize, now_ns: u64) -> (Seen, Vec<(u64, TimerHandle)>) {
        let (before, mut oldest) = (self.counts.seen.lock().clone(), Vec::new());
        let labels = before.labels.into_keys().map(|label| (label, 0)).collect();
        let mut now = Seen {
            checks: HashMap::new(),
            labels,
        };
        let mut at = (0, 0);
        while let Some((mut shard, ids)) = self.next_parked(&mut at) {
            for id in ids {
                let Some(entry) = shard.get_mut(id) else {
                    continue;
                };
                oldest.push((entry.age_ns(now_ns), id));
                if let Some(seen) = entry.look() {
                    let since_ns = before.checks.get(&id).filter(|_| seen);
                    now.checks.insert(id, since_ns.copied().unwrap_or(now_ns));
                }
                if let Some(label) = entry.tag().label {
                    *now.labels.entry(label).or_default() += 1;
                }
            }
            drop(shard);
            keep_highest(&mut oldest, limit);
        }
        let mut seen = self.counts.seen.lock();
        seen.checks.clone_from(&now.checks);
        seen.labels.extend(&now.labels);
        (now, oldest)
    }

    /// What there is to tell of an operation, unless it is over.
    pub(crate) fn parked(&self, id: TimerHandle, now_ns: u64) -> Option<Parked<K>> {
        let mut first_shard = self.first_shard_of(id);
        let entry = first_shard.get_mut(id)?;
        let deadline = entry.deadline;
        let (age_ns, label) = (entry.age_ns(now_ns), entry.tag().label);
        let under_check = entry.is_held().then_some(Duration::ZERO);
        let mut last_secondary = entry.last_secondary;
        let first = first_shard.first_key(id);
        drop(first_shard);
        let mut keys = Vec::new();
        while let Some(secondary) = last_secondary {
            let of = self
                .shards
                .lock(secondary.shard as usize)
                .further_key(secondary, id);
            let (key, before) = of.unwrap_or_default(); // of an operation that ended meanwhile
            keys.extend(key);
            last_secondary = before;
        }
        keys.extend(first);
        keys.reverse(); // as they were given
        let expires_ns = self.driver().tick.start_ns(deadline).saturating_sub(now_ns);
        Some(Parked {
            id: self.id(id),
            label,
            keys,
            age: Duration::from_micros(age_ns / 1000),
            expires_in: (deadline != u64::MAX).then_some(Duration::from_nanos(expires_ns)),
            under_check,
        })
    }

    fn busiest(&self, limit: usize) -> Vec<(K, usize)> {
        let busiest = self.highest(limit, |shard, rank| {
            shard
                .waiters_by_key()
                .for_each(|(key, waiters)| rank(key, waiters as u64));
        });
        busiest
            .map(|(waiters, key)| (key, waiters as usize))
            .collect()
    }

    /// The keys that have had waiters and no event for longest. Events do not check what
    /// [`Replies`](crate::Replies) parks, so its keys are none.
    pub(crate) fn quietest(&self, limit: usize) -> Vec<(K, Duration)> {
        if !O::CHECKED {
            return Vec::new();
        }
        let quietest = self.highest(limit, |shard, rank| {
            let now_ns = self.driver().now_ns(); // under the lock: no other look was later
            let now_ms = ((now_ns / 1_000_000) as u32).wrapping_add(1).max(1); // 49 days, and again
            shard.quiet(now_ms, |key, quiet_ms| rank(key, quiet_ms.into()));
        });
        quietest
            .map(|(ms, key)| (key, Duration::from_millis(ms)))
            .collect()
    }

    /// The keys that `look` ranks highest, over all shards.
    fn highest(
        &self,
        limit: usize,
        look: impl Fn(&mut Shard<K, O>, &mut dyn FnMut(&K, u64)),
    ) -> impl Iterator<Item = (u64, K)> {
        let (mut highest, mut gone) = (Vec::new(), Vec::new());
        for shard in 0..self.shards.count() {
            let rank = &mut |key: &K, rank| highest.push((rank, key.clone()));
            look(&mut self.shards.lock(shard), rank);
            gone.extend(keep_highest(&mut highest, limit)); // dropped with nothing locked
        }
        highest.into_iter()
    }

    /// Keys that have waiters. O(shards).
    pub(crate) fn keys(&self) -> usize {
        self.shards.sum(|shard| shard.key_count())
    }

    /// Adds up what was counted.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = *self.counts.rare.lock();
        (0..self.shards.count()).for_each(|shard| self.shards.lock(shard).add_to(&mut stats));
        stats.weight = self
            .settings
            .weights
            .as_ref()
            .map_or(0, |weights| weights.taken());
        stats.ended_at_once = self.counts.ended_at_once.load(Relaxed);
        stats.checks += if O::CHECKED { stats.ended_at_once } else { 0 };
        stats.callbacks_waiting = self.counts.callbacks_waiting.load(Relaxed);
        stats.events = self.versions.events();
        stats
    }

    /// Adds up what the shards have timed; those that have not begun begin now.
    pub(crate) fn times(&self) -> Times {
        let (mut times, tick) = (Times::default(), self.driver().tick);
        self.timed.store(true, Relaxed);
        for shard in 0..self.shards.count() {
            let mut shard = self.shards.lock(shard);
            let begin = || {
                Box::new(Timed {
                    times: Times::default(),
                    tick,
                })
            };
            times.add(&shard.timed.get_or_insert_with(begin).times);
        }
        times.callback_delay = self.counts.callback_delay.lock().clone();
        times
    }
}
