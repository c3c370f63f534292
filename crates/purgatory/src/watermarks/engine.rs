//! The engine of [`Watermarks`](crate::Watermarks): values by key that only rise, and the waits for
//! them.
//!
//! A key's record has its value, its epoch and its waits by threshold. A wait compares and parks
//! under one lock. An advance stores the value and answers the waits that it reaches under one
//! lock. So neither misses the other, and there is no check.
//!
//! - **Unmet**: a listed wait is for more than the key's value, when the shard is unlocked by the
//!   thread that takes the met ones off.
//! - **Of this epoch**: a listed wait belongs to the key's present epoch. A new one ends the waits
//!   of the last, or takes them over, in the lock hold in which it begins.
//! - **Gone**: a key without a value, waits and observers has no record.

use std::{hash::Hash, marker::PhantomData, sync::Arc};

use hashbrown::Equivalent;
use timer_core::{TaskId, TimerHandle};

use crate::{
    error::RefusedReason,
    operation::{CancelReason, Outcome, Timeout},
    reason::Reason,
    sync::Places,
    table::{
        Arrival, BUDGET, Batch, Ended, EndedAt, Engine, LockedShard, Table,
        future::Yields,
        keys::Keys,
        shard::{Shard, Taken},
    },
    watches::WatchKey,
    watermarks::{part::Part, queue::Queue, value::WatermarkValue},
};

/// A callback of [`Watermarks::park`](crate::Watermarks::park).
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// The engine of values whose keys are `K`.
pub(crate) struct Values<K> {
    /// The keys that have a value.
    pub(crate) valued_keys: Places,
    pub(crate) keys_max: usize,
    of: PhantomData<fn() -> K>,
}

/// A key's record.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    value: Option<u64>,
    epoch: u64,
    queue: Queue,
    rare: Option<Box<Rare>>,
}

/// The parts of a record that few keys have.
#[derive(Debug, Default)]
struct Rare {
    /// Set once the key is closed.
    closed: Option<Reason>,
    /// The entries that wait until a wait comes, or until none is left.
    observers: Vec<(Observed, TaskId)>,
}

/// The change that an observer of a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// A wait for more than the value.
    Wanted,
    /// No such wait.
    Unwanted,
}

/// A wait.
pub(crate) struct Wait {
    record: u32,
    wants: Wants,
    tells: Tells,
}

/// The subject of a wait.
#[derive(Clone, Copy)]
enum Wants {
    Value(u64),
    Observed(Observed),
}

/// The receiver of the end of a wait.
pub(crate) enum Tells {
    /// A future, which finds the answer in the entry.
    Future,
    Callback(Callback),
    /// A wait for each of several keys.
    Each(Part),
}

/// The rest of a wait that has ended.
pub(crate) struct Left<K> {
    /// The key, if its record went.
    emptied_key: Option<K>,
    report: Option<Report>,
}

/// The report of an end to its receiver.
enum Report {
    Callback(Callback, Outcome),
    Each(Part, Outcome, u64),
}

/// A wait as it was parked, or not.
pub(crate) enum ForValue {
    Parked(TimerHandle),
    /// The value was reached before.
    Met(u64, Tells),
    /// It ended at once otherwise.
    Ended(Outcome, Tells),
    Refused(RefusedReason, Tells),
}

impl<K> Values<K> {
    pub(crate) fn new(keys_max: usize) -> Self {
        Values {
            valued_keys: Places::new(),
            keys_max,
            of: PhantomData,
        }
    }
}

impl Mark {
    /// The rank that the key counts as: a missing value is the lowest.
    #[inline]
    fn reached(&self) -> u64 {
        self.value.unwrap_or(0)
    }

    #[inline]
    fn meets(&self, value: u64) -> bool {
        self.queue.lowest().is_some_and(|lowest| lowest <= value)
    }

    fn is_gone(&self) -> bool {
        let observed = |rare: &Rare| rare.closed.is_some() || !rare.observers.is_empty();
        self.value.is_none()
            && self.queue.is_empty()
            && !self.rare.as_ref().is_some_and(|rare| observed(rare))
    }

    fn closed(&self) -> Option<&Reason> {
        self.rare.as_ref()?.closed.as_ref()
    }

    /// Returns what holds of the key now.
    fn observed(&self) -> Observed {
        if self.queue.is_empty() {
            Observed::Unwanted
        } else {
            Observed::Wanted
        }
    }
}

impl<K: WatchKey> Engine for Values<K> {
    type Key = K;
    type Records = Keys<K, Mark>;
    type Wait = Wait;
    type Answer = u64;
    type Left = Left<K>;

    #[inline]
    fn is_awaited(wait: &Wait) -> bool {
        matches!(wait.tells, Tells::Future)
    }

    fn leave(
        &self,
        shard: &mut Shard<Self>,
        id: TaskId,
        wait: Wait,
        outcome: &Outcome,
        now_ns: EndedAt,
        also: &mut Batch<Self>,
    ) -> Left<K> {
        let mark = shard.records.at_mut(wait.record);
        match wait.wants {
            Wants::Value(threshold) => {
                mark.queue.remove(threshold, id);
                tell_observers(shard, wait.record, now_ns, also);
            }
            Wants::Observed(_) => {
                if let Some(rare) = &mut mark.rare {
                    rare.observers.retain(|(_, observer)| *observer != id);
                }
            }
        }
        Left {
            emptied_key: go_if_gone(shard, wait.record),
            report: wait.tells.report(outcome.clone(), 0),
        }
    }

    #[inline]
    fn finish(table: &Arc<Table<Self>>, left: Left<K>) {
        if let Some(report) = left.report {
            report.send(table);
        }
        if let Some(key) = left.emptied_key {
            table.call(|| drop(key));
        }
    }

    fn key_of(records: &Keys<K, Mark>, wait: &Wait) -> K {
        records.key(wait.record).clone()
    }

    fn key_count(shard: &Shard<Self>) -> usize {
        let waited_for = |(_, mark): &(&K, &Mark)| !mark.queue.is_empty();
        shard.records.iter().filter(waited_for).count()
    }

    fn each_key(records: &Keys<K, Mark>, visit: &mut dyn FnMut(&K, usize)) {
        for (key, mark) in records.iter() {
            if !mark.queue.is_empty() {
                visit(key, mark.queue.len());
            }
        }
    }
}

impl<K: WatchKey, V: WatermarkValue> Yields<V> for Values<K> {
    #[inline]
    fn yielded(_: &Arc<Table<Self>>, _: TimerHandle, rank: u64) -> V {
        V::from_rank(rank)
    }
}

/// An observer that yields nothing.
impl<K: WatchKey> Yields<()> for Values<K> {
    fn yielded(_: &Arc<Table<Self>>, _: TimerHandle, _: u64) {}
}

impl Tells {
    /// Returns the callback of a wait that has one.
    pub(crate) fn into_callback(self) -> Callback {
        match self {
            Tells::Callback(then) => then,
            Tells::Future | Tells::Each(_) => Box::new(drop),
        }
    }

    /// Makes the report of an end; `None` for a future, which finds its answer.
    #[inline]
    fn report(self, outcome: Outcome, value: u64) -> Option<Report> {
        match self {
            Tells::Future => None,
            Tells::Callback(then) => Some(Report::Callback(then, outcome)),
            Tells::Each(part) => Some(Report::Each(part, outcome, value)),
        }
    }
}

impl Report {
    /// Reports, with nothing locked.
    fn send<K: WatchKey>(self, table: &Arc<Table<Values<K>>>) {
        match self {
            Report::Callback(then, outcome) => table.call(|| then(outcome)),
            Report::Each(part, outcome, value) => table.call(|| part.ended(outcome, value)),
        }
    }
}

impl<K: WatchKey> Table<Values<K>> {
    /// Reports the end of a wait that was never parked.
    pub(crate) fn report_at_once(self: &Arc<Self>, tells: Tells, outcome: Outcome, value: u64) {
        let left = Left {
            emptied_key: None,
            report: tells.report(outcome, value),
        };
        self.finish(&self.enter(), Ended { waker: None, left });
    }

    /// Parks a wait for a key's value, unless it ends at once. In an epoch, if one is named, that
    /// must be the key's. O(log n) for n waits of the key.
    #[inline(always)]
    pub(crate) fn wait<Q>(
        self: &Arc<Self>,
        key: &Q,
        epoch: Option<u64>,
        threshold: u64,
        timeout: Timeout,
        tells: Tells,
    ) -> ForValue
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. Compare. A value that is reached needs no clock: a clock of ours is read below, under
        //    the lock; the user's is read before it.
        let hash = self.hash(key);
        let early = self.early_arrival(timeout);
        let mut shard = self.shard_of(hash);
        let mut found = shard.records.find(key, hash);
        let mut reached = 0;
        let mut present = 0;
        if let Some(record) = found {
            let mark = shard.records.at(record);
            reached = mark.reached();
            present = mark.epoch;
            if let Some(reason) = mark.closed() {
                let closed = CancelReason::Closed(reason.clone());
                shard.count_at_once();
                return ForValue::Ended(Outcome::Cancelled(closed), tells);
            }
        }
        if let Some(named) = epoch.filter(|named| *named != present) {
            return ForValue::Refused(RefusedReason::OtherEpoch { named, present }, tells);
        }
        if reached >= threshold {
            shard.count_at_once();
            return ForValue::Met(reached, tells);
        }
        if failpoint!(ValueComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.records.find(key, hash);
        }

        if failpoint!(ValueComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.records.find(key, hash);
        }

        // 2. It has to wait, if there is time and room.
        let arrival = early.unwrap_or_else(|| self.arrival(timeout));
        if arrival.is_over {
            shard.count_at_once();
            return ForValue::Ended(Outcome::Expired, tells);
        }
        let wants = Wants::Value(threshold);
        self.park_under(shard, found, (key, hash), arrival, wants, tells)
    }

    /// Parks a wait under a key, whose record is made if it has none.
    #[inline]
    fn park_under<Q>(
        self: &Arc<Self>,
        mut shard: LockedShard<'_, Values<K>>,
        found: Option<u32>,
        (key, hash): (&Q, u64),
        arrival: Arrival,
        wants: Wants,
        tells: Tells,
    ) -> ForValue
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        if let Some(reason) = shard.refuses() {
            drop(shard);
            self.report_refusal(reason);
            return ForValue::Refused(reason, tells);
        }
        // The key's `Clone` may panic: nothing is parked yet.
        let record = match found {
            Some(record) => record,
            None => shard.records.add(key.to_owned(), hash, Mark::default()),
        };
        let wait = Wait {
            record,
            wants,
            tells,
        };
        let handle = match self.park(&mut shard, arrival, wait) {
            Ok(handle) => handle,
            Err((wait, full)) => {
                let emptied_key = go_if_gone(&mut shard, record);
                drop(shard);
                drop(emptied_key);
                self.report_refusal(full);
                return ForValue::Refused(full, wait.tells);
            }
        };
        // Listed, in the same lock hold.
        let mark = shard.records.at_mut(record);
        match wants {
            Wants::Value(threshold) => mark.queue.push(threshold, handle.id()),
            Wants::Observed(observed) => {
                let rare = mark.rare.get_or_insert_default();
                rare.observers.push((observed, handle.id()));
            }
        }
        if mark.rare.is_some() {
            self.unlock_observed(shard, record);
        }
        ForValue::Parked(handle)
    }

    /// Ends the waits of a key's observers, then unlocks its shard.
    #[cold]
    fn unlock_observed(self: &Arc<Self>, mut shard: LockedShard<'_, Values<K>>, record: u32) {
        let mut batch = Batch::new();
        tell_observers(&mut shard, record, None, &mut batch);
        drop(shard);
        self.finish_all(&self.enter(), batch);
    }

    /// Parks an observer of a key, unless what it waits for holds.
    pub(crate) fn observe<Q>(
        self: &Arc<Self>,
        key: &Q,
        observed: Observed,
        timeout: Timeout,
    ) -> ForValue
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hash(key);
        let arrival = self.arrival(timeout);
        let mut shard = self.shard_of(hash);
        let found = shard.records.find(key, hash);
        let now = found.map_or(Observed::Unwanted, |record| {
            shard.records.at(record).observed()
        });
        if now == observed {
            let lowest = found.and_then(|record| shard.records.at(record).queue.lowest());
            shard.count_at_once();
            return ForValue::Met(lowest.unwrap_or(0), Tells::Future);
        }
        if arrival.is_over {
            shard.count_at_once();
            return ForValue::Ended(Outcome::Expired, Tells::Future);
        }
        let wants = Wants::Observed(observed);
        self.park_under(shard, found, (key, hash), arrival, wants, Tells::Future)
    }

    /// Replaces the key's value by `to` of it, and finishes the waits that it reaches; returns how
    /// many, or 0 inside a callback. In an epoch, if one is named, that must be the key's.
    #[inline]
    pub(crate) fn change<Q>(
        self: &Arc<Self>,
        key: &Q,
        epoch: Option<u64>,
        to: impl Fn(u64) -> u64,
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let call = self.enter();
        let now_ns = self.ending_at();
        let finish = |batch| self.finish_all(&call, batch);
        let answered = self.change_unfinished(key, epoch, now_ns, to, finish)?;
        Ok(if call.is_nested() { 0 } else { answered })
    }

    /// Replaces the key's value by `to` of it, and ends the waits that it reaches; returns how
    /// many. They go to `ended`, some at a time, with no shard locked. O(r log n) for r reached of
    /// n.
    ///
    /// The clock is read before any lock is taken, the caller's included: `now_ns`.
    #[inline]
    pub(crate) fn change_unfinished<Q>(
        &self,
        key: &Q,
        epoch: Option<u64>,
        now_ns: EndedAt,
        to: impl Fn(u64) -> u64,
        ended: impl FnMut(Batch<Values<K>>),
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. The key, in its epoch.
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash);
        let mut found = shard.records.find(key, hash);
        self.check_epoch(&shard, found, epoch)?;
        if failpoint!(EpochComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.records.find(key, hash);
        }

        // 2. Its value. The first one counts against `keys_max`.
        let record = match found {
            Some(record) if shard.records.at(record).value.is_some() => record,
            _ => {
                let (locked, record) = self.record_for_value(shard, found, key, hash)?;
                shard = locked;
                record
            }
        };
        shard.events += 1;
        let mark = shard.records.at_mut(record);
        let value = to(mark.reached());
        mark.value = Some(value);

        // 3. The waits that it reaches.
        if !mark.meets(value) {
            return Ok(0);
        }
        Ok(self.answer_met(shard, record, now_ns, ended))
    }

    /// Refuses another epoch than the key's, and a closed key.
    #[inline]
    fn check_epoch(
        &self,
        shard: &LockedShard<'_, Values<K>>,
        found: Option<u32>,
        epoch: Option<u64>,
    ) -> Result<(), RefusedReason> {
        let mut present = 0;
        if let Some(record) = found {
            let mark = shard.records.at(record);
            present = mark.epoch;
            if mark.closed().is_some() {
                return Err(RefusedReason::KeyClosed);
            }
        }
        match epoch {
            Some(named) if named != present => Err(RefusedReason::OtherEpoch { named, present }),
            _ => Ok(()),
        }
    }

    /// Counts a key that is to get its first value against `keys_max`. Returns its record.
    #[inline(never)]
    fn record_for_value<'a, Q>(
        &self,
        mut shard: LockedShard<'a, Values<K>>,
        found: Option<u32>,
        key: &Q,
        hash: u64,
    ) -> Result<(LockedShard<'a, Values<K>>, u32), RefusedReason>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        // The key's `Clone` may panic: it runs before anything is changed.
        let mut copy = None;
        if found.is_none() {
            copy = Some(key.to_owned());
        }
        let limit = self.engine.keys_max;
        if !self.engine.valued_keys.acquire(1, limit as u64) {
            drop(shard);
            drop(copy); // with nothing locked
            return Err(RefusedReason::TooManyKeys { limit });
        }
        let record = match (found, copy) {
            (None, Some(copy)) => shard.records.add(copy, hash, Mark::default()),
            (found, _) => found.expect("a key without a record was copied"),
        };
        Ok((shard, record))
    }

    /// Ends the waits of a key that its value reaches, some in one lock hold; returns how many.
    /// They go to `ended` with no shard locked.
    fn answer_met<'a>(
        &'a self,
        mut shard: LockedShard<'a, Values<K>>,
        mut record: u32,
        now_ns: EndedAt,
        mut ended: impl FnMut(Batch<Values<K>>),
    ) -> usize {
        let mut answered = 0;
        loop {
            // 1. Take some off the key. If there are more, its record is looked up again by a name
            //    that no other record has.
            let mut batch = Batch::new();
            let value = shard.records.at(record).reached();
            take_met(&mut shard, record, value, BUDGET, now_ns, &mut batch);
            answered += batch.len();
            let name = shard.records.name(record);
            let has_more = shard.records.at(record).meets(value);
            if !has_more {
                tell_observers(&mut shard, record, now_ns, &mut batch);
            }
            let number = shard.number();
            drop(shard);

            // 2. Finish them. A wait for less that a callback asks for is over at once, so this
            //    ends.
            ended(batch);
            if !has_more {
                return answered;
            }

            // 3. Go on with the rest, unless the key went meanwhile. If another thread took the
            //    rest, there is nothing left to take.
            shard = self.lock(number);
            match shard.records.named(name) {
                Some(same) => record = same,
                None => return answered,
            }
        }
    }

    /// Begins an epoch of a key with this value, and finishes the waits that this ends; returns how
    /// many, or 0 inside a callback.
    pub(crate) fn begin_epoch<Q>(
        self: &Arc<Self>,
        key: &Q,
        epoch: u64,
        value: u64,
        kept: bool,
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let call = self.enter();
        let now_ns = self.ending_at();
        let finish = |batch| self.finish_all(&call, batch);
        let ended = self.begin_unfinished(key, epoch, value, kept, now_ns, finish)?;
        Ok(if call.is_nested() { 0 } else { ended })
    }

    /// Begins an epoch of a key with this value; returns how many waits this ended, which go to
    /// `ended` with no shard locked. All are cancelled, since the value is one of the new epoch,
    /// unless they are to be `kept`. O(n) under the lock for n waits.
    pub(crate) fn begin_unfinished<Q>(
        &self,
        key: &Q,
        epoch: u64,
        value: u64,
        kept: bool,
        now_ns: EndedAt,
        ended: impl FnMut(Batch<Values<K>>),
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. An epoch is begun once.
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash);
        let found = shard.records.find(key, hash);
        self.check_epoch(&shard, found, None)?;
        let present = found.map_or(0, |record| shard.records.at(record).epoch);
        if epoch <= present {
            let named = epoch;
            return Err(RefusedReason::OtherEpoch { named, present });
        }
        let record = match found {
            Some(record) if shard.records.at(record).value.is_some() => record,
            _ => {
                let (locked, record) = self.record_for_value(shard, found, key, hash)?;
                shard = locked;
                record
            }
        };

        // 2. The epoch and its value. Waits that are kept may be reached by it.
        shard.events += 1;
        let mark = shard.records.at_mut(record);
        mark.epoch = epoch;
        mark.value = Some(value);
        if kept {
            return Ok(self.answer_met(shard, record, now_ns, ended));
        }

        // 3. Others belong to the epoch that is over, and end in the same lock hold.
        let over = CancelReason::EpochOver {
            epoch: present,
            present: epoch,
        };
        let over = Outcome::Cancelled(over);
        Ok(self.end_epoch(shard, record, &over, now_ns, ended))
    }

    /// Ends all waits of a key in one lock hold as `over` says.
    fn end_epoch(
        &self,
        mut shard: LockedShard<'_, Values<K>>,
        record: u32,
        over: &Outcome,
        now_ns: EndedAt,
        mut ended: impl FnMut(Batch<Values<K>>),
    ) -> usize {
        let mut batch = Batch::new();
        if failpoint!(EpochAnswersLast) {
            let value = shard.records.at(record).reached();
            take_met(&mut shard, record, value, usize::MAX, now_ns, &mut batch);
        }
        while let Some(index) = shard.records.at_mut(record).queue.pop_up_to(u64::MAX) {
            batch.push(end_listed(&mut shard, index, over, 0, now_ns));
        }
        let count = batch.len();
        tell_observers(&mut shard, record, now_ns, &mut batch);
        drop(shard);
        ended(batch);
        count
    }

    /// Removes the key's value and its epoch, and cancels its waits; returns how many. They go to
    /// `ended`, some at a time, with no shard locked. Another thread's waits may come meanwhile.
    pub(crate) fn remove_unfinished<Q>(
        &self,
        key: &Q,
        reason: &CancelReason,
        now_ns: EndedAt,
        ended: impl FnMut(Batch<Values<K>>),
    ) -> usize
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.records.find(key, hash) else {
            return 0;
        };
        let mark = shard.records.at_mut(record);
        mark.epoch = 0;
        if mark.value.take().is_some() {
            self.engine.valued_keys.release(1);
        }
        if let Some(rare) = &mut mark.rare {
            rare.closed = None;
        }
        let outcome = Outcome::Cancelled(reason.clone());
        self.cancel_waits(shard, record, &outcome, now_ns, ended)
    }

    /// Closes a key: cancels its waits, and refuses later ones with the same reason. Returns how
    /// many this ended.
    pub(crate) fn close_key<Q>(self: &Arc<Self>, key: &Q, reason: &Reason) -> usize
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let call = self.enter();
        let hash = self.hash(key);
        let now_ns = self.ending_at();
        let mut shard = self.shard_of(hash);
        let record = match shard.records.find(key, hash) {
            Some(record) => record,
            None => shard.records.add(key.to_owned(), hash, Mark::default()),
        };
        let rare = shard.records.at_mut(record).rare.get_or_insert_default();
        let closed = rare.closed.get_or_insert_with(|| reason.clone()).clone();
        let outcome = Outcome::Cancelled(CancelReason::Closed(closed));
        let finish = |batch| self.finish_all(&call, batch);
        self.cancel_waits(shard, record, &outcome, now_ns, finish)
    }

    /// Ends the waits of a key, some in one lock hold; returns how many.
    fn cancel_waits<'a>(
        &'a self,
        mut shard: LockedShard<'a, Values<K>>,
        mut record: u32,
        outcome: &Outcome,
        now_ns: EndedAt,
        mut ended: impl FnMut(Batch<Values<K>>),
    ) -> usize {
        let mut cancelled = 0;
        loop {
            // 1. Take some off.
            let mut batch = Batch::new();
            while batch.len() < BUDGET {
                let Some(index) = shard.records.at_mut(record).queue.pop_up_to(u64::MAX) else {
                    break;
                };
                batch.push(end_listed(&mut shard, index, outcome, 0, now_ns));
            }
            cancelled += batch.len();
            let has_more = !shard.records.at(record).queue.is_empty();
            if !has_more {
                tell_observers(&mut shard, record, now_ns, &mut batch);
            }
            // 2. Leave the record, which may go.
            let name = shard.records.name(record);
            let number = shard.number();
            if let Some(emptied_key) = go_if_gone(&mut shard, record) {
                batch.push(Ended::of_key(emptied_key));
            }
            drop(shard);
            ended(batch);
            if !has_more {
                return cancelled;
            }
            // 3. Go on with the rest, unless the key went meanwhile.
            shard = self.lock(number);
            match shard.records.named(name) {
                Some(same) => record = same,
                None => return cancelled,
            }
        }
    }

    /// Returns what `of` says of a key's record; `None` if there is none.
    pub(crate) fn look<Q, R>(&self, key: &Q, of: impl FnOnce(&Mark) -> Option<R>) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        let shard = self.shard_of(hash);
        let record = shard.records.find(key, hash)?;
        of(shard.records.at(record))
    }
}

impl Mark {
    pub(crate) fn value(&self) -> Option<u64> {
        self.value
    }

    /// Returns the epoch of a key with a value.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.value.map(|_| self.epoch)
    }

    pub(crate) fn lowest_waiting(&self) -> Option<u64> {
        self.queue.lowest()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed().is_some()
    }
}

impl<K: WatchKey> Ended<Values<K>> {
    /// A key whose record went, to be dropped unlocked.
    fn of_key(emptied_key: K) -> Self {
        Ended {
            waker: None,
            left: Left {
                emptied_key: Some(emptied_key),
                report: None,
            },
        }
    }
}

/// Ends a wait that was taken off its key's queue.
#[inline(always)]
fn end_listed<K: WatchKey>(
    shard: &mut Shard<Values<K>>,
    index: u32,
    outcome: &Outcome,
    value: u64,
    now_ns: EndedAt,
) -> Ended<Values<K>> {
    // 1. One that a future waits for is answered in its entry.
    let Taken { wait, waker } = match (&shard.wait(index).tells, outcome) {
        (Tells::Future, Outcome::Completed) => shard.answer(index, Ok(value), outcome, now_ns),
        (Tells::Future, _) => {
            let error = crate::error::WaitError::of(outcome.clone());
            shard.answer(index, Err(error), outcome, now_ns)
        }
        _ => {
            let id = shard.wheel.id_at(index);
            let removed = shard.remove(id, outcome, now_ns);
            removed.expect("Listed: it waits")
        }
    };
    // 2. Any other is told once the shard is unlocked.
    let left = Left {
        emptied_key: None,
        report: wait.tells.report(outcome.clone(), value),
    };
    Ended { waker, left }
}

/// Takes up to `limit` waits that `value` meets off a key, lowest threshold first, and ends them as
/// Completed.
#[inline]
fn take_met<K: WatchKey>(
    shard: &mut Shard<Values<K>>,
    record: u32,
    value: u64,
    limit: usize,
    now_ns: EndedAt,
    batch: &mut Batch<Values<K>>,
) {
    for _ in 0..limit {
        let Some(index) = shard.records.at_mut(record).queue.pop_up_to(value) else {
            return;
        };
        batch.push(end_listed(shard, index, &Outcome::Completed, value, now_ns));
    }
}

/// Answers the observers of a key that wait for what holds of it now.
#[inline]
fn tell_observers<K: WatchKey>(
    shard: &mut Shard<Values<K>>,
    record: u32,
    now_ns: EndedAt,
    batch: &mut Batch<Values<K>>,
) {
    let mark = shard.records.at_mut(record);
    let now = mark.observed();
    let lowest = mark.queue.lowest().unwrap_or(0);
    let Some(rare) = &mut mark.rare else {
        return;
    };
    let mut told = Vec::new();
    rare.observers.retain(|(observed, id)| {
        if *observed == now {
            told.push(id.index());
        }
        *observed != now
    });
    for index in told {
        batch.push(end_listed(
            shard,
            index,
            &Outcome::Completed,
            lowest,
            now_ns,
        ));
    }
}

/// Removes a key's record if nothing needs it. Returns the key, to be dropped unlocked.
fn go_if_gone<K: WatchKey>(shard: &mut Shard<Values<K>>, record: u32) -> Option<K> {
    if shard.records.at(record).is_gone() {
        Some(shard.records.remove(record))
    } else {
        None
    }
}
