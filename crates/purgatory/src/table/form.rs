//! A form as a whole, whatever its inside: which waits are parked, under which keys, since when;
//! how the others ended; the end of all waits.
//!
//! Shards are locked one at a time. A lock hold visits a bounded number of entries, or all keys of
//! the shard. So a snapshot is not atomic; it is exact when idle.
//!
//! An entry shows that an operation is *under check*, but not since when: that would cost a clock
//! reading for each check. So the first snapshot that finds a check under way notes the time in the
//! entry, and the check's end removes it. The clock is read again after the look, because the check
//! may have begun after the first reading.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use timer_core::{Clock, SystemClock, TimerHandle, driver::Driver};

use crate::{
    operation::{CancelReason, OperationId, Outcome, ReachResult, Timeout},
    stats::{Labels, Parked, Snapshot, Stats, Times},
    table::{
        AnyTable, FormShard, Inside, Look,
        highest::{Highest, busiest},
        tour::Tour,
    },
};

/// A form, whatever its inside.
pub(crate) trait AnyForm<K>: Send + Sync {
    fn name(&self) -> &str;

    fn driver(&self) -> &Arc<Driver>;

    /// Returns the number of waits. O(shards).
    fn waiting(&self) -> usize;

    /// Returns true once the form or its timer was shut down. O(1), without a lock.
    fn is_closed(&self) -> bool;

    /// Returns the number of keys that have waiters. O(shards), or O(keys) if the engine keeps no
    /// count.
    fn key_count(&self) -> usize;

    /// Returns the bound on the number of waits, if there is one.
    fn max_parked(&self) -> Option<u64>;

    /// Adds up all counts. O(shards).
    fn stats(&self) -> Stats;

    /// Adds up the times of all shards. From the first call on ends are timed.
    fn times(&self) -> Times;

    fn snapshot(&self, limit: usize) -> Snapshot<K>;

    #[cfg(feature = "metrics")]
    fn publishes(&self) -> &dyn timer_core::driver::Publishes;

    /// Ends one wait.
    fn end(self: Arc<Self>, id: OperationId, outcome: Outcome) -> ReachResult;

    /// Ends all waits; returns how many this call ended, without those under check. All of them end
    /// before the first callback runs, so waits that callbacks park stay.
    fn end_all(self: Arc<Self>, outcome: &Outcome) -> usize;

    /// Sets a wait's new deadline, counted from now; false if it has ended.
    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool;

    /// Shuts down, and waits at most `limit` until all callbacks have run and all checks are over.
    /// Returns the number of operations left.
    fn shutdown(self: Arc<Self>, limit: Duration) -> usize;
}

impl<E: Inside> AnyForm<E::Key> for AnyTable<E> {
    fn name(&self) -> &str {
        &self.frame.name
    }

    fn driver(&self) -> &Arc<Driver> {
        self.frame.driver()
    }

    fn waiting(&self) -> usize {
        self.sum(E::Shard::waiting)
    }

    fn is_closed(&self) -> bool {
        self.shards.is_closed()
    }

    fn key_count(&self) -> usize {
        self.sum(E::Shard::key_count)
    }

    fn max_parked(&self) -> Option<u64> {
        let max_parked = self.common.max_parked.as_ref();
        max_parked.map(|limit| limit.max() as u64)
    }

    fn stats(&self) -> Stats {
        let mut stats = self.frame.shared_stats();
        for number in self.shards.made() {
            self.lock(number).add_to(&mut stats);
        }
        self.engine.add_to(&mut stats);
        stats
    }

    fn times(&self) -> Times {
        let mut times = self.frame.shared_times();
        for number in self.shards.made() {
            if let Some(of_shard) = self.lock(number).times() {
                times.add(of_shard);
            }
        }
        times
    }

    fn snapshot(&self, limit: usize) -> Snapshot<E::Key> {
        let now_ns = self.frame.driver().now_ns();
        let mut by_age = Highest::new(limit);
        let mut by_check = Highest::new(limit);
        let mut labels = self.survey(now_ns, &mut |handle, look| {
            by_age.offer(look.age_ns, || handle);
            if let Some(check_ns) = look.check_ns {
                by_check.offer(check_ns, || handle);
            }
        });
        let mut oldest = Vec::new();
        for (_, handle) in by_age.into_sorted() {
            oldest.extend(self.parked(handle, now_ns));
        }
        let mut under_check = Vec::new();
        for (_, handle) in by_check.into_sorted() {
            let parked = self.parked(handle, now_ns);
            under_check.extend(parked.filter(|parked| parked.under_check.is_some()));
        }
        // The labels in use, the most frequent first.
        labels.retain(|&(_, count)| count > 0);
        labels.sort_by_key(|&(_, count)| Reverse(count));
        Snapshot {
            name: self.frame.name.to_string(),
            oldest,
            under_check,
            key_count: self.key_count(),
            busiest: busiest(limit, self.shards.made(), |number, rank| {
                self.lock(number).each_key(rank);
            }),
            labels,
            times: self.times(),
            stats: self.stats(),
        }
    }

    #[cfg(feature = "metrics")]
    fn publishes(&self) -> &dyn timer_core::driver::Publishes {
        self
    }

    fn end(self: Arc<Self>, id: OperationId, outcome: Outcome) -> ReachResult {
        match self.frame.handle(id) {
            Some(handle) => E::end(&self, handle, outcome),
            None => ReachResult::Gone,
        }
    }

    fn end_all(self: Arc<Self>, outcome: &Outcome) -> usize {
        let call = self.frame.enter();
        let (ended, count) = E::end_all(&self, outcome);
        E::finish_all(&self, &call, ended);
        count
    }

    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        match self.frame.handle(id) {
            Some(handle) => E::reschedule(self, handle, timeout),
            None => false,
        }
    }

    fn shutdown(self: Arc<Self>, limit: Duration) -> usize {
        let clock = SystemClock::new();
        let limit = self.frame.shutdown_limit(limit);
        let remaining = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));

        self.close_on_executor(CancelReason::Shutdown);

        let left = self.frame.closing.wait(remaining());
        self.frame.closing_others.wait(remaining());
        left
    }
}

impl<E: Inside> AnyTable<E> {
    /// Visits all waits, a bounded number under one lock hold. Returns every label seen so far,
    /// with the number of waits parked under it: a gauge that was set once must be set again.
    pub(super) fn survey(
        &self,
        now_ns: u64,
        visit: &mut dyn FnMut(TimerHandle, &Look),
    ) -> Vec<(&'static str, usize)> {
        let tick = self.frame.driver().config.tick;
        let mut labels = Labels::default();
        let mut found = Vec::new();
        let mut tour = Tour::default();
        // 1. Look at all waits.
        while let Some((mut shard, handles)) = tour.next(&self.shards) {
            // One lock hold: bounded.
            for handle in handles {
                let Some(look) = shard.look(handle.id(), now_ns, tick) else {
                    continue;
                };
                visit(handle, &look);
                if look.check_ns == Some(0) {
                    found.push(handle);
                }
                if let Some(label) = look.label {
                    labels.add(label, 1);
                }
            }
        }
        self.frame.add_seen(&mut labels);
        // 2. The time of each check that was found counts from here on.
        if !found.is_empty() {
            let since_ns = self.frame.driver().now_ns();
            for handle in found {
                let mut shard = self.lock(handle.shard());
                shard.note_check(handle.id(), now_ns, since_ns);
            }
        }
        labels.0
    }

    /// Describes a wait, unless it has ended.
    pub(crate) fn parked(&self, handle: TimerHandle, now_ns: u64) -> Option<Parked<E::Key>> {
        // 1. The fields of the entry.
        let tick = self.frame.driver().config.tick;
        let mut shard = self.lock(handle.shard());
        let look = shard.look(handle.id(), now_ns, tick)?;
        drop(shard);
        let expires_in = |due_ns: u64| Duration::from_nanos(due_ns.saturating_sub(now_ns));

        // 2. Its keys.
        let micros = |ns| Duration::from_micros(ns / 1000);
        Some(Parked {
            id: self.frame.id(handle),
            label: look.label,
            keys: E::keys_of(self, handle)?,
            age: micros(look.age_ns),
            expires_in: look.due_ns.map(expires_in),
            under_check: look.check_ns.map(micros),
        })
    }
}
