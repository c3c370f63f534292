//! The engine of [`Watermarks`](crate::Watermarks): values by key that only rise, and the waits for
//! them.
//!
//! A key's record has its value, its epoch and its waits by threshold. A wait compares and parks in
//! one lock hold. An advance stores the value and answers the waits that it reaches, at most 64 in
//! each lock hold, the first of them in the hold that stores the value. So neither misses the
//! other, and no check is needed.
//!
//! - **Unmet**: once an advance has returned, no listed wait is for the key's value or less. Until
//!   then, no caller is told that such a wait is there, and a call that begins an epoch, removes or
//!   closes the key, or cancels below a floor completes the wait first.
//! - **Of this epoch**: a listed wait belongs to the key's present epoch. A new epoch ends the
//!   waits of the last one, or takes them over, in the lock hold in which it begins.
//! - **Gone**: a key that has no value, waits or observers, and is not closed, has no record.
//!
//! A layer above may keep data of its own beside a key's value, under the same lock: [`Beside`]. A
//! key without a value has neither such data nor an epoch.

use std::{
    marker::PhantomData,
    mem,
    sync::{Arc, Weak},
    task::Waker,
};

use timer_core::{TaskId, TimerHandle};

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome},
    reason::Reason,
    sync::Limit,
    table::{
        Batch, Ended, EndedAt, Engine, Parts, Table, future::Yields, keys::Keys, shard::Shard,
    },
    watches::{KeyRef, ToKey, WatchKey},
    watermarks::{queue::Queue, value::WatermarkValue},
};

/// A callback of [`Watermarks::park`](crate::Watermarks::park).
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// The data that a layer above keeps beside a key's value.
pub(crate) trait Beside: Default + Send + 'static {
    /// Returns false if the key's epoch has no waits here, since another process makes its values.
    /// If the default is led, a key is in epoch 0 before it has a value. Otherwise epoch 0 has to
    /// begin like any other.
    fn is_led(&self) -> bool;

    /// Returns the gauges of the data beside keys that are not closed; `each` visits it.
    #[cfg(feature = "metrics")]
    fn gauges(_each: impl FnOnce(&mut dyn FnMut(&Self))) -> Vec<timer_core::driver::Sample> {
        Vec::new()
    }
}

/// [`Watermarks`](crate::Watermarks) keep nothing beside a value.
impl Beside for () {
    fn is_led(&self) -> bool {
        true
    }
}

/// The engine of values whose keys are `K`, with a `B` beside each.
pub(crate) struct Values<K, B = ()> {
    /// Counts the keys that have a value.
    pub(crate) valued_keys: Limit,
    of: PhantomData<fn() -> (K, B)>,
}

/// A key's record.
#[derive(Debug, Default)]
pub(crate) struct Mark<B> {
    /// The number of waits that had been parked in its shard when it was made. It distinguishes a
    /// record with waits from later records with the same number.
    pub(super) serial: u32,
    /// `None` for a key without a value.
    pub(crate) valued: Option<Valued<B>>,
    pub(super) queue: Queue,
    /// `None` once it is empty.
    pub(super) rare: Option<Box<Rare>>,
}

/// The value of a key, its epoch, and the data beside it.
#[derive(Debug, Default)]
pub(crate) struct Valued<B> {
    pub(super) value: u64,
    pub(super) epoch: u64,
    pub(crate) beside: B,
}

/// The parts of a record that few keys have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Set once the key is closed.
    pub(super) closed: Option<Reason>,
    /// The entries that wait for each change, in the order of parking: all thresholds are 0.
    observers: [Queue; 2],
}

impl Rare {
    /// Returns the entries that wait for a change.
    pub(super) fn observers(&mut self, observed: Observed) -> &mut Queue {
        &mut self.observers[observed as usize]
    }

    /// Returns the number of entries that wait for a change.
    fn observing(&self) -> usize {
        self.observers.iter().map(Queue::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.closed.is_none() && self.observers.iter().all(Queue::is_empty)
    }
}

/// The change that an observer of a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// An operation waits for more than the value.
    Wanted,
    /// No operation does.
    Unwanted,
}

/// A wait.
pub(crate) struct Wait {
    pub(super) record: u32,
    pub(super) wants: Wants,
    pub(super) tells: Tells,
}

/// The subject of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Wants {
    Value(u64),
    Observed(Observed),
}

/// The receiver of the end of a wait.
pub(crate) enum Tells {
    /// A future, which finds the answer in the entry.
    Future,
    /// The task that polled a future last, once its wait has ended.
    Task(Waker),
    Callback(Callback),
    /// A wait for several keys, and the number of this part of it. Not a struct of both: a wait is
    /// moved often, and would be 8 bytes larger.
    Each(Weak<dyn Cell>, u32),
}

/// The state of a wait for several keys, whatever they are.
pub(crate) trait Cell: Send + Sync {
    /// Records the end of the part with this number, with nothing locked.
    fn ended(&self, number: u32, outcome: Outcome, value: u64);
}

/// The rest of a wait that has ended.
pub(crate) struct Left<K> {
    /// The key, if its record was removed.
    pub(super) emptied_key: Option<K>,
    pub(super) tells: Tells,
    pub(super) outcome: Outcome,
    /// The value that met it.
    pub(super) value: u64,
}

/// The handle of a wait that was parked; or the result of a wait that was not, and its receiver.
pub(crate) type Waiting = Result<TimerHandle, (Result<u64, WaitError>, Tells)>;

impl<K, B> Values<K, B> {
    pub(crate) fn new(keys_max: usize) -> Self {
        Values {
            valued_keys: Limit::new(keys_max),
            of: PhantomData,
        }
    }
}

impl<B: Beside> Mark<B> {
    /// Refuses a named epoch, unless it is the key's present one and is led here. `mark` is the
    /// key's record, if there is one.
    pub(super) fn check_epoch(mark: Option<&Self>, named: Option<u64>) -> Result<(), WaitError> {
        let Some(named) = named else {
            return Ok(());
        };
        let present = Self::present_epoch(mark).ok_or(WaitError::NoGroup)?;
        if named != present {
            return Err(WaitError::OtherEpoch { named, present });
        }
        let valued = mark.and_then(|mark| mark.valued.as_ref());
        if valued.is_some_and(|valued| !valued.beside.is_led()) {
            return Err(WaitError::NoGroup);
        }
        Ok(())
    }

    /// Returns the epoch of the key with this record, if it has one; `None` before the first epoch.
    pub(super) fn present_epoch(mark: Option<&Self>) -> Option<u64> {
        let first = B::default().is_led().then_some(0);
        mark.and_then(Mark::epoch).or(first)
    }
}

impl<B> Mark<B> {
    /// Returns the value of a key that has one.
    pub(crate) fn value(&self) -> Option<u64> {
        Some(self.valued.as_ref()?.value)
    }

    /// Returns the epoch of a key with a value.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.valued.as_ref()?.epoch)
    }

    /// Returns the rank that the key counts as: a missing value counts as the lowest.
    pub(super) fn reached(&self) -> u64 {
        self.value().unwrap_or(0)
    }

    #[inline]
    pub(super) fn meets(&self, value: u64) -> bool {
        self.queue.lowest().is_some_and(|lowest| lowest <= value)
    }

    /// Returns true while an advance has not taken all waits that its value reaches.
    pub(super) fn is_behind(&self) -> bool {
        self.meets(self.reached())
    }

    fn is_gone(&self) -> bool {
        self.valued.is_none() && self.queue.is_empty() && self.rare.is_none()
    }

    pub(crate) fn closed(&self) -> Option<&Reason> {
        self.rare.as_ref()?.closed.as_ref()
    }

    /// Returns the lowest threshold that the key has not reached.
    pub(crate) fn lowest_waiting(&self) -> Option<u64> {
        self.queue.lowest_above(self.reached())
    }

    /// Returns the number of its waits and observers. O(1).
    fn waiting(&self) -> usize {
        let observers = self.rare.as_ref().map_or(0, |rare| rare.observing());
        self.queue.len() + observers
    }

    /// Removes the first observer that waits for this change.
    fn pop_observer(&mut self, observed: Observed) -> Option<TaskId> {
        self.rare.as_mut()?.observers(observed).pop_up_to(0)
    }

    /// Returns why a wait ends unmet, if its key is closed: no value follows, and the key is never
    /// wanted.
    #[inline]
    pub(super) fn closed_to(mark: Option<&Self>, wants: Wants) -> Option<CancelReason> {
        let reason = mark?.closed()?;
        match wants {
            Wants::Observed(Observed::Unwanted) => None,
            Wants::Value(_) | Wants::Observed(Observed::Wanted) => {
                Some(CancelReason::Closed(reason.clone()))
            }
        }
    }

    /// Returns the value with which a wait is met; `None` if it has to wait.
    #[inline]
    pub(super) fn met(mark: Option<&Self>, wants: Wants) -> Option<u64> {
        let reached = mark.map_or(0, Mark::reached);
        match wants {
            Wants::Value(threshold) => (reached >= threshold).then_some(reached),
            Wants::Observed(observed) => {
                let is_wanted = mark.is_some_and(|mark| mark.queue.has_above(reached));
                if is_wanted != (observed == Observed::Wanted) {
                    return None;
                }
                Some(mark.and_then(Mark::lowest_waiting).unwrap_or(0))
            }
        }
    }
}

impl<K, B> Parts for Values<K, B> {
    type Records = Keys<K, Mark<B>>;
    type Wait = Wait;
    type Answer = u64;
    type Left = Left<K>;
}

impl<K: WatchKey, B: Beside> Engine for Values<K, B> {
    type Key = K;

    fn is_awaited(wait: &Wait) -> bool {
        matches!(wait.tells, Tells::Future)
    }

    fn is_called_back(left: &Left<K>) -> bool {
        matches!(left.tells, Tells::Callback(_))
    }

    fn leave(
        &self,
        shard: &mut Shard<Self>,
        id: TaskId,
        wait: Wait,
        outcome: &Outcome,
        also: &mut Batch<Self>,
    ) -> Left<K> {
        let mark = shard.records.at_mut(wait.record);
        match wait.wants {
            Wants::Value(threshold) => mark.queue.remove(threshold, id),
            Wants::Observed(observed) => {
                if let Some(rare) = &mut mark.rare {
                    rare.observers(observed).remove(0, id);
                }
            }
        }
        tell_observers(shard, wait.record, also.ended_at, |told| {
            also.ended.push(told.ended(&Outcome::Completed, 0));
        });
        Left {
            emptied_key: go_if_gone(shard, wait.record),
            tells: wait.tells,
            outcome: outcome.clone(),
            value: 0,
        }
    }

    fn finish(table: &Arc<Table<Self>>, left: Left<K>) {
        left.tells.tell(table, &left.outcome, left.value);
        if let Some(key) = left.emptied_key {
            table.frame.call(|| drop(key));
        }
        if let Outcome::Cancelled(reason) = left.outcome {
            table.frame.call(|| drop(reason)); // its last copy may be this one
        }
    }

    fn key_of(records: &Keys<K, Mark<B>>, wait: &Wait) -> K {
        records.key(wait.record).clone()
    }

    fn each_key(records: &Keys<K, Mark<B>>, visit: &mut dyn FnMut(&K, usize)) {
        for (key, mark) in records.iter() {
            let waiting = mark.waiting();
            if waiting > 0 {
                visit(key, waiting);
            }
        }
    }

    #[cfg(feature = "metrics")]
    fn own_gauges(table: &Table<Self>) -> Vec<timer_core::driver::Sample> {
        B::gauges(|visit| {
            let visit_open = |mark: &Mark<B>| {
                if let (Some(valued), None) = (&mark.valued, mark.closed()) {
                    visit(&valued.beside);
                }
            };
            // After a shutdown no operation waits in any of them.
            if !table.shards.is_closed() {
                table.each_record(|marks| marks, visit_open);
            }
        })
    }
}

impl<K: WatchKey, B: Beside, V: WatermarkValue> Yields<V> for Values<K, B> {
    fn yielded(_: &Arc<Table<Self>>, _: TimerHandle, rank: u64) -> V {
        V::from_rank(rank)
    }
}

/// An observer that yields nothing.
impl<K: WatchKey, B: Beside> Yields<()> for Values<K, B> {
    fn yielded(_: &Arc<Table<Self>>, _: TimerHandle, _: u64) {}
}

impl Tells {
    /// Returns the callback of a wait that has one.
    pub(crate) fn into_callback(self) -> Callback {
        match self {
            Tells::Callback(then) => then,
            Tells::Future | Tells::Task(_) | Tells::Each(..) => Box::new(drop),
        }
    }

    /// Makes an end for the table to finish.
    #[inline(always)]
    pub(super) fn ended<K: WatchKey, B: Beside>(
        self,
        outcome: &Outcome,
        value: u64,
    ) -> Ended<Values<K, B>> {
        let left = Left {
            emptied_key: None,
            tells: self,
            outcome: outcome.clone(),
            value,
        };
        Ended { waker: None, left }
    }

    /// Tells the receiver of an end, with nothing locked. A future finds its answer in the entry.
    #[inline(always)] // most have nothing to do
    pub(super) fn tell<K: WatchKey, B: Beside>(
        self,
        table: &Table<Values<K, B>>,
        outcome: &Outcome,
        value: u64,
    ) {
        match self {
            Tells::Future => {}
            Tells::Task(waker) => table.wake(Some(waker)),
            Tells::Callback(then) => match outcome {
                // Most callers know this outcome; copying an unknown one takes ten steps.
                Outcome::Completed => table.frame.call_here(|| then(Outcome::Completed)),
                other => table.frame.call(|| then(other.clone())),
            },
            Tells::Each(cell, number) => table.frame.call(|| {
                if let Some(cell) = cell.upgrade() {
                    cell.ended(number, outcome.clone(), value);
                }
            }),
        }
    }
}

impl<K: WatchKey, B: Beside> Table<Values<K, B>> {
    /// Returns the result of `of` for a key's record; `None` if there is no record. `of` must not
    /// change the data from which the value follows.
    pub(crate) fn look<Q: KeyRef<K> + ?Sized, R>(
        &self,
        key: &Q,
        of: impl FnOnce(&mut Mark<B>) -> Option<R>,
    ) -> Option<R> {
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash);
        let record = shard.records.find(key, hash)?;
        of(shard.records.at_mut(record))
    }
}

/// Ends a wait that was taken off its key's queue or its observers.
#[inline(always)]
pub(super) fn end_listed<K: WatchKey, B: Beside>(
    shard: &mut Shard<Values<K, B>>,
    id: TaskId,
    outcome: &Outcome,
    value: u64,
    ended_at: EndedAt,
    told: impl FnOnce(Tells),
) {
    let answer = || match outcome {
        Outcome::Completed => Ok(value),
        other => Err(WaitError::of(other.clone())),
    };
    shard.end_listed(id, answer, outcome, ended_at, |wait, waker| {
        told(match waker.take() {
            Some(waker) => Tells::Task(waker),
            None => mem::replace(&mut wait.tells, Tells::Future),
        });
    });
}

/// Answers the observers of a key whose change has come, or never will: a closed key is never
/// wanted again. Their wakers go to `told`. Frees the record's rare parts if they are empty then.
pub(super) fn tell_observers<K: WatchKey, B: Beside>(
    shard: &mut Shard<Values<K, B>>,
    record: u32,
    ended_at: EndedAt,
    mut told: impl FnMut(Tells),
) {
    if shard.records.at(record).rare.is_some() {
        tell_rare_observers(shard, record, ended_at, &mut told);
    }
}

#[cold]
fn tell_rare_observers<K: WatchKey, B: Beside>(
    shard: &mut Shard<Values<K, B>>,
    record: u32,
    ended_at: EndedAt,
    told: &mut dyn FnMut(Tells),
) {
    for observed in [Observed::Wanted, Observed::Unwanted] {
        // The lowest threshold is sought beyond the waits that an advance under way has yet to
        // take.
        let mark = shard.records.at_mut(record);
        let rare = mark.rare.as_mut();
        if rare.is_none_or(|rare| rare.observers(observed).is_empty()) {
            continue;
        }
        let wants = Wants::Observed(observed);
        let (outcome, lowest) = match Mark::closed_to(Some(mark), wants) {
            Some(closed) => (Outcome::Cancelled(closed), 0),
            None => match Mark::met(Some(mark), wants) {
                Some(lowest) => (Outcome::Completed, lowest),
                None => continue,
            },
        };
        while let Some(id) = shard.records.at_mut(record).pop_observer(observed) {
            end_listed(shard, id, &outcome, lowest, ended_at, &mut *told);
        }
    }
    let rare = &mut shard.records.at_mut(record).rare;
    if rare.as_ref().is_some_and(|rare| rare.is_empty()) {
        *rare = None;
    }
}

/// Returns the record of a key. If none was found, makes it, which runs the key's `ToOwned`.
#[inline(always)] // a wait on a key that has a value takes 44 instructions more with a call
pub(super) fn record_of<K: WatchKey, B: Beside, Q: ToKey<K> + ?Sized>(
    shard: &mut Shard<Values<K, B>>,
    found: Option<u32>,
    key: &Q,
    hash: u64,
) -> u32 {
    match found {
        Some(record) => record,
        None => add_mark(shard, key.to_key(), hash),
    }
}

/// Adds a record for a key that has none.
#[inline(never)]
fn add_mark<K: WatchKey, B: Beside>(shard: &mut Shard<Values<K, B>>, key: K, hash: u64) -> u32 {
    let mark = Mark {
        serial: shard.counts.parked as u32,
        ..Mark::default()
    };
    shard.records.add(key, hash, mark)
}

/// Removes a key's record if nothing needs it. Returns the key, to be dropped unlocked.
#[inline]
pub(super) fn go_if_gone<K: WatchKey, B: Beside>(
    shard: &mut Shard<Values<K, B>>,
    record: u32,
) -> Option<K> {
    if shard.records.at(record).is_gone() {
        Some(shard.records.remove(record))
    } else {
        None
    }
}
