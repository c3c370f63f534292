//! Arriving waits: compared and parked under one lock.

use std::sync::Arc;

use crate::{
    error::{Refused, WaitError},
    operation::{OperationId, Outcome, Timeout},
    table::{Arrival, Batch, EndedAt, LockedShard, Table, future::Yields, handle::Handle},
    wait::WaitFuture,
    watches::{ToKey, WatchKey},
    watermarks::{
        engine::{
            Beside, Callback, Mark, Tells, Values, Wait, Waiting, Wants, go_if_gone, record_of,
            tell_observers,
        },
        value::{WatermarkValue, rank},
    },
};

impl<K: WatchKey, B: Beside> Handle<Values<K, B>> {
    /// Parks a wait in the named epoch, or in the present one; returns its future.
    #[inline]
    pub(crate) fn wait_for<Q: ToKey<K> + ?Sized, V: WatermarkValue>(
        &self,
        key: &Q,
        epoch: Option<u64>,
        threshold: V,
        timeout: Timeout,
    ) -> WaitFuture<V> {
        let wants = Wants::Value(rank(threshold));
        let parked = self.table.wait(key, epoch, wants, timeout, Tells::Future);
        self.future_of(parked, V::from_rank)
    }

    /// Makes the future of a wait, whether it was parked or not.
    #[inline]
    pub(crate) fn future_of<T>(
        &self,
        parked: Waiting,
        of_rank: impl FnOnce(u64) -> T,
    ) -> WaitFuture<T>
    where
        Values<K, B>: Yields<T>,
    {
        match parked {
            Ok(at) => self.future(at),
            Err((at_once, _future)) => WaitFuture::ready(at_once.map(of_rank)),
        }
    }

    /// Parks a wait in the named epoch, or in the present one, that calls `then`.
    #[inline(always)] // a call costs 48 instructions
    pub(crate) fn call_at<Q: ToKey<K> + ?Sized, V: WatermarkValue>(
        &self,
        key: &Q,
        epoch: Option<u64>,
        threshold: V,
        timeout: Timeout,
        then: Callback,
    ) -> Result<Option<OperationId>, Refused<Callback>> {
        let table = &self.table;
        let tells = Tells::Callback(then);
        let wants = Wants::Value(rank(threshold));
        let parked = table.wait(key, epoch, wants, timeout, tells);
        let (at_once, tells) = match parked {
            Ok(handle) => return Ok(Some(table.frame.id(handle))),
            Err(at_once) => at_once,
        };
        // The wait is refused, or called back like any other.
        let outcome = match at_once {
            Ok(_) => Outcome::Completed,
            Err(WaitError::Expired) => Outcome::Expired,
            Err(WaitError::Cancelled(reason)) => Outcome::Cancelled(reason),
            Err(refused) => return Err(Refused::new(tells.into_callback(), refused)),
        };
        table.finish(&table.frame.enter(), tells.ended(&outcome, 0));
        Ok(None)
    }
}

impl<K: WatchKey, B: Beside> Table<Values<K, B>> {
    /// Parks a wait for a key's value, or an observer of it, unless it ends at once. If an epoch is
    /// named, it must be the key's present one. O(log n) for n waits of the key.
    #[inline(always)]
    pub(crate) fn wait<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        epoch: Option<u64>,
        wants: Wants,
        timeout: Timeout,
        tells: Tells,
    ) -> Waiting {
        // 1. Compare. A value that is reached needs no clock: our own clock is read below, under
        //    the lock; a user's clock is read before the lock is taken.
        let hash = self.hash(key);
        let early = self.early_arrival(timeout);
        let mut shard = self.shard_of(hash);
        if shard.closed {
            drop(shard);
            return self.refuse_closed(tells);
        }
        let mut found = shard.records.find(key, hash);
        let mark = found.map(|record| shard.records.at(record));
        if let Some(closed) = Mark::closed_to(mark, wants) {
            shard.ended_at_once += 1;
            return Err((Err(WaitError::Cancelled(closed)), tells));
        }
        if let Err(refused) = Mark::check_epoch(mark, epoch) {
            return Err((Err(refused), tells));
        }
        if let Some(value) = Mark::met(mark, wants) {
            shard.ended_at_once += 1;
            return Err((Ok(value), tells));
        }
        if failpoint!(ValueComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.records.find(key, hash);
        }

        // 2. Park the wait, if there is time and room.
        let arrival = early.unwrap_or_else(|| self.arrival(timeout));
        self.park_under(tells, shard, found, (key, hash), arrival, wants)
    }

    /// Refuses a wait of a form that was shut down, even if its value is reached, so that a loop of
    /// waits that are met at once ends.
    #[cold]
    fn refuse_closed(&self, tells: Tells) -> Waiting {
        self.frame.report_refusal(&WaitError::Closed);
        Err((Err(WaitError::Closed), tells))
    }

    /// Parks a wait under a key, and makes the key's record if it has none, unless there is no time
    /// or room for the wait. The first argument is dropped last: if the key panics, the shard is
    /// unlocked before a callback is dropped.
    #[inline(always)] // a call moves seven arguments through memory
    fn park_under<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        tells: Tells,
        mut shard: LockedShard<'_, Values<K, B>>,
        found: Option<u32>,
        (key, hash): (&Q, u64),
        arrival: Arrival,
        wants: Wants,
    ) -> Waiting {
        // 1. The key's `Clone` may panic, so it runs before a place is taken.
        let admitted = self.admit(&mut shard, arrival, |shard| {
            Ok(record_of(shard, found, key, hash))
        });
        let record = match admitted {
            Ok(record) => record,
            Err(reason) => return Err((Err(self.turn_away(shard, (key, hash), reason)), tells)),
        };
        // 2. Park and list the wait in the same lock hold.
        let wait = Wait {
            record,
            wants,
            tells,
        };
        let handle = self.park(&mut shard, arrival, || wait);
        let mark = shard.records.at_mut(record);
        let mut is_observed = false;
        match wants {
            Wants::Value(threshold) => {
                mark.queue.push(threshold, handle.id());
                is_observed = mark.rare.is_some();
            }
            Wants::Observed(observed) => {
                let rare = mark.rare.get_or_insert_default();
                rare.observers(observed).push(0, handle.id());
            }
        }
        if is_observed {
            self.unlock_observed(shard, record, self.frame.timed_at(arrival.now_ns));
        }
        Ok(handle)
    }

    /// Unlocks the shard that did not admit a wait, and removes a record that was made for it.
    #[cold]
    fn turn_away<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        mut shard: LockedShard<'_, Values<K, B>>,
        (key, hash): (&Q, u64),
        reason: WaitError,
    ) -> WaitError {
        let found = shard.records.find(key, hash);
        let emptied_key = found.and_then(|record| go_if_gone(&mut shard, record));
        drop(shard);
        if let Some(key) = emptied_key {
            self.drop_key(&self.frame.enter(), key);
        }
        self.frame.report_refusal(&reason);
        reason
    }

    /// Ends the waits of a key's observers, then unlocks its shard.
    #[cold]
    fn unlock_observed(
        self: &Arc<Self>,
        mut shard: LockedShard<'_, Values<K, B>>,
        record: u32,
        ended_at: EndedAt,
    ) {
        let mut batch = Batch::at(ended_at);
        tell_observers(&mut shard, record, ended_at, |told| {
            batch.ended.push(told.ended(&Outcome::Completed, 0));
        });
        drop(shard);
        self.finish_all(&self.frame.enter(), batch);
    }
}
