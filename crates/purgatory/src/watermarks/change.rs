//! Changes of values: advances, epochs, removals, and the waits that end with them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    error::WaitError,
    operation::{CancelReason, Outcome},
    reason::Reason,
    table::{BUDGET, EndedAt, LockedShard, Table, call::Call},
    watches::{KeyRef, ToKey, WatchKey},
    watermarks::engine::{
        Beside, Mark, Tells, Valued, Values, end_listed, go_if_gone, record_of, tell_observers,
    },
};

/// The number of waits that end together without an allocation.
const AT_ONCE: usize = 8;

/// How an epoch begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// The waits of the last epoch are cancelled, since the new value is not theirs.
    Anew,
    /// The waits of the last epoch go on in the new one.
    KeepsWaits,
    /// Anew, but another process leads the epoch. If it has begun here already, this process stops
    /// leading it.
    Elsewhere,
}

impl<B: Beside> Mark<B> {
    /// Refuses a closed key.
    fn check_open(mark: Option<&Self>) -> Result<(), WaitError> {
        match mark.and_then(Mark::closed) {
            Some(_) => Err(WaitError::KeyClosed),
            None => Ok(()),
        }
    }

    /// Refuses an epoch that has begun already.
    fn check_next(mark: Option<&Self>, named: u64, how: Begins) -> Result<(), WaitError> {
        match Self::present_epoch(mark) {
            Some(present) if named == present && how == Begins::Elsewhere => Ok(()),
            Some(present) if named <= present => Err(WaitError::OtherEpoch { named, present }),
            _ => Ok(()),
        }
    }
}

impl<K: WatchKey, B: Beside> Table<Values<K, B>> {
    /// Replaces the key's value by `to` of it, and finishes the waits that the new value reaches;
    /// returns how many, or 0 inside a callback. If an epoch is named, it must be the key's present
    /// one. O(r log n) if r of n waits are reached.
    #[inline]
    pub(crate) fn change<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        epoch: Option<u64>,
        to: impl FnOnce(u64) -> u64,
    ) -> Result<usize, WaitError> {
        // 1. Find the key, in its epoch. The clock is read before the lock is taken.
        let hash = self.hash(key);
        let ended_at = self.frame.ending_at();
        let shard = self.shard_of(hash);
        let found = shard.records.find(key, hash);
        let mark = found.map(|record| shard.records.at(record));
        Mark::check_open(mark)?;
        Mark::check_epoch(mark, epoch)?;
        if epoch.is_some() && failpoint!(EpochComparedUnlocked) {
            drop(shard);
            return self.change(key, None, to);
        }

        // 2. Change its value. The first value counts against `keys_max`.
        let (mut shard, record) = self.record_with_value(shard, found, key, hash)?;
        let valued = shard.records.at_mut(record).valued.get_or_insert_default();
        valued.value = to(valued.value);
        Ok(self.finish_met(shard, record, ended_at))
    }

    /// Changes the data beside a key's value, and sets the value to the result of `change`, which
    /// is not lower. Otherwise like [`change`](Self::change). A key without a value is not a group.
    #[inline]
    pub(crate) fn change_beside<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        named: u64,
        change: impl FnOnce(&mut B, u64) -> Result<u64, WaitError>,
    ) -> Result<usize, WaitError> {
        let mut looked = None;
        if failpoint!(ReportEpochComparedUnlocked) {
            looked = self.look(key, |mark| Some(mark.valued.as_ref()?.epoch));
        }
        let hash = self.hash(key);
        let ended_at = self.frame.ending_at();
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.records.find(key, hash) else {
            return Err(WaitError::NoGroup);
        };
        let mark = shard.records.at_mut(record);
        Mark::check_open(Some(mark))?;
        let valued = mark.valued.as_mut().ok_or(WaitError::NoGroup)?;
        let present = looked.unwrap_or(valued.epoch);
        if named != present {
            return Err(WaitError::OtherEpoch { named, present });
        }
        let value = change(&mut valued.beside, valued.value)?;
        if value == valued.value {
            return Ok(0); // Unmet
        }
        if failpoint!(ReportAdvancesUnlocked) {
            drop(shard);
            return self.change(key, None, |before| before.max(value));
        }
        valued.value = value;
        Ok(self.finish_met(shard, record, ended_at))
    }

    /// Finishes the waits that a key's new value reaches, as [`change`](Self::change) says.
    #[inline]
    fn finish_met(
        self: &Arc<Self>,
        mut shard: LockedShard<'_, Values<K, B>>,
        record: u32,
        ended_at: EndedAt,
    ) -> usize {
        shard.events += 1;
        if !shard.records.at(record).is_behind() {
            return 0;
        }
        let call = self.frame.enter();
        let met = self.end_waits(&call, shard, record, &Outcome::Completed, BUDGET, ended_at);
        if call.is_nested() { 0 } else { met }
    }

    /// Returns the record of a key that has a value, or gets its first value in this lock hold.
    #[inline(always)]
    fn record_with_value<'a, Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        shard: LockedShard<'a, Values<K, B>>,
        found: Option<u32>,
        key: &Q,
        hash: u64,
    ) -> Result<(LockedShard<'a, Values<K, B>>, u32), WaitError> {
        match found {
            Some(record) if shard.records.at(record).valued.is_some() => Ok((shard, record)),
            _ => self.record_for_value(shard, found, key, hash),
        }
    }

    /// Counts a key that is to get its first value against `keys_max`. Returns its record.
    #[inline(never)]
    fn record_for_value<'a, Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        mut shard: LockedShard<'a, Values<K, B>>,
        found: Option<u32>,
        key: &Q,
        hash: u64,
    ) -> Result<(LockedShard<'a, Values<K, B>>, u32), WaitError> {
        // The key's `ToOwned` may panic: it runs before anything is counted.
        let record = record_of(&mut shard, found, key, hash);
        let valued_keys = &self.engine.valued_keys;
        if valued_keys.acquire() {
            return Ok((shard, record));
        }
        let emptied_key = go_if_gone(&mut shard, record);
        drop(shard);
        if let Some(key) = emptied_key {
            self.drop_key(&self.frame.enter(), key);
        }
        let limit = valued_keys.max();
        Err(WaitError::TooManyKeys { limit })
    }

    /// Begins an epoch of a key. `value` makes its value from the new data beside it, the data
    /// there now, and the last value. Finishes the waits that this ends; returns how many. O(n)
    /// under the lock for n waits.
    pub(crate) fn begin_epoch<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        number: u64,
        how: Begins,
        mut beside: B,
        value: impl FnOnce(&mut B, Option<&B>, u64) -> Result<u64, WaitError>,
    ) -> Result<usize, WaitError> {
        // 1. An epoch begins once. The data beside a refused epoch, or the last one, is dropped
        //    unlocked.
        let replaced;
        let call = self.frame.enter();
        let hash = self.hash(key);
        let mut ended_at = self.frame.ending_at();
        let (mut shard, mut found, met) = self.find_unmet(&call, key, hash, &mut ended_at);
        let mark = found.map(|record| shard.records.at(record));
        Mark::check_open(mark)?;
        Mark::check_next(mark, number, how)?;
        let last = mark.and_then(|mark| mark.valued.as_ref());
        let reached = last.map_or(0, |last| last.value);
        let value = value(&mut beside, last.map(|last| &last.beside), reached)?;
        if failpoint!(SetChangedInCopy) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.records.find(key, hash);
        }
        let (mut shard, record) = self.record_with_value(shard, found, key, hash)?;

        // 2. Store the epoch and its value.
        shard.events += 1;
        let begun = Valued {
            value,
            epoch: number,
            beside,
        };
        replaced = shard.records.at_mut(record).valued.replace(begun);
        let epoch = replaced.as_ref().map_or(0, |last| last.epoch);

        // 3. The value may reach waits that are kept. Other waits belong to the epoch that is over,
        //    and end in the same lock hold.
        let mut outcome = Outcome::Cancelled(CancelReason::EpochOver {
            epoch,
            present: number,
        });
        let mut limit = usize::MAX;
        if how == Begins::KeepsWaits || failpoint!(EpochAnswersLast) {
            outcome = Outcome::Completed;
            limit = BUDGET;
        }
        Ok(met + self.end_waits_out_of_line(&call, shard, record, &outcome, limit, ended_at))
    }

    /// Removes the key's value, its epoch and the data beside it, and cancels its waits; returns
    /// how many. O(n log n) for n waits.
    pub(crate) fn remove_key<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        reason: &CancelReason,
    ) -> usize {
        // Removed parts are dropped unlocked: a reason may own a value of the user's, whose drop
        // may remove another key.
        let mut removed = None;
        let mut closed = None;
        let count = self.cancel_key(key, |mark| {
            removed = mark.valued.take();
            if removed.is_some() {
                self.engine.valued_keys.release();
            }
            if let Some(rare) = &mut mark.rare {
                closed = rare.closed.take();
            }
            Some(reason.clone())
        });
        self.call_in_turn(&self.frame.enter(), || drop(closed));
        count
    }

    /// Cancels the waits of a key if `reason` returns a reason, in the lock hold in which `reason`
    /// has changed the record; returns how many. O(n log n) for n waits.
    pub(crate) fn cancel_key<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        reason: impl FnOnce(&mut Mark<B>) -> Option<CancelReason>,
    ) -> usize {
        let call = self.frame.enter();
        let hash = self.hash(key);
        let mut ended_at = self.frame.ending_at();
        let (mut shard, found, met) = self.find_unmet(&call, key, hash, &mut ended_at);
        let Some(record) = found else {
            return met;
        };
        let Some(reason) = reason(shard.records.at_mut(record)) else {
            return met;
        };
        if failpoint!(RemovalCancelsUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            if shard.records.find(key, hash) != Some(record) {
                return met;
            }
        }
        let outcome = Outcome::Cancelled(reason);
        met + self.end_waits_out_of_line(&call, shard, record, &outcome, usize::MAX, ended_at)
    }

    /// Closes a key: cancels its waits, and refuses later waits with the same reason. Returns how
    /// many waits this ended.
    pub(crate) fn close_key<Q: ToKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        reason: &Reason,
    ) -> usize {
        let call = self.frame.enter();
        let hash = self.hash(key);
        let mut ended_at = self.frame.ending_at();
        let (mut shard, found, met) = self.find_unmet(&call, key, hash, &mut ended_at);
        let record = record_of(&mut shard, found, key, hash);
        let rare = shard.records.at_mut(record).rare.get_or_insert_default();
        let closed = rare.closed.get_or_insert_with(|| reason.clone()).clone();
        let outcome = Outcome::Cancelled(CancelReason::Closed(closed));
        met + self.end_waits_out_of_line(&call, shard, record, &outcome, BUDGET, ended_at)
    }

    /// Finds a key's record and restores Unmet: completes first the waits that an advance under way
    /// has reached but not yet taken, so that no later change of the key ends them otherwise.
    /// Returns the record, and how many waits this completed; `ended_at` is then a time after their
    /// callbacks.
    fn find_unmet<'a, Q: KeyRef<K> + ?Sized>(
        self: &'a Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        ended_at: &mut EndedAt,
    ) -> (LockedShard<'a, Values<K, B>>, Option<u32>, usize) {
        let mut met = 0;
        loop {
            let shard = self.shard_of(hash);
            let found = shard.records.find(key, hash);
            let is_behind = |record: &u32| shard.records.at(*record).is_behind();
            let Some(record) = found.filter(is_behind) else {
                return (shard, found, met);
            };
            let completed = &Outcome::Completed;
            met += self.end_waits_out_of_line(call, shard, record, completed, BUDGET, *ended_at);
            *ended_at = self.frame.ending_at(); // callbacks have taken time
        }
    }

    /// Ends the waits of a key as [`end_waits`](Self::end_waits) does, for rare calls.
    #[inline(never)]
    fn end_waits_out_of_line<'a>(
        self: &'a Arc<Self>,
        call: &Call<'_>,
        shard: LockedShard<'a, Values<K, B>>,
        record: u32,
        outcome: &Outcome,
        limit: usize,
        ended_at: EndedAt,
    ) -> usize {
        self.end_waits(call, shard, record, outcome, limit, ended_at)
    }

    /// Ends the waits of a key, lowest threshold first: as Completed, the waits that its value
    /// reaches; otherwise all. Ends at most `limit` in one lock hold, and finishes these with
    /// nothing locked. Returns how many ended.
    #[inline(always)] // an advance, whose outcome is known, takes half the steps
    fn end_waits<'a>(
        self: &'a Arc<Self>,
        call: &Call<'_>,
        mut shard: LockedShard<'a, Values<K, B>>,
        record: u32,
        outcome: &Outcome,
        limit: usize,
        mut ended_at: EndedAt,
    ) -> usize {
        let mut ended = 0;
        loop {
            // 1. Take some waits off the key. If there are more, the serial tells its record later
            //    from another record with the same number.
            let mut told: SmallVec<[Tells; AT_ONCE]> = SmallVec::new();
            let value = shard.records.at(record).reached();
            let up_to = match outcome {
                Outcome::Completed => value,
                _ => u64::MAX,
            };
            for _ in 0..limit {
                let Some(id) = shard.records.at_mut(record).queue.pop_up_to(up_to) else {
                    break;
                };
                let keep = |one| told.push(one);
                end_listed(&mut shard, id, outcome, value, ended_at, keep);
            }
            ended += told.len();
            let serial = shard.records.at(record).serial;
            let has_more = shard.records.at(record).meets(up_to);
            let mut emptied_key = None;
            tell_observers(&mut shard, record, ended_at, |observer| told.push(observer));
            if !has_more {
                emptied_key = go_if_gone(&mut shard, record);
            }
            let number = shard.number();
            drop(shard);

            // 2. Finish them. A wait that a callback parks for a reached value is over at once, so
            //    this loop ends.
            for told in told.drain(..) {
                if call.is_nested() {
                    self.finish(call, told.ended(outcome, value));
                } else {
                    told.tell(self, outcome, value);
                }
            }
            if !has_more {
                if let Some(key) = emptied_key {
                    self.drop_key(call, key);
                }
                return ended;
            }

            // 3. Go on with the rest, unless the record was removed meanwhile. If another thread
            //    took the rest, nothing is left to take. Read the clock again: callbacks have taken
            //    time.
            ended_at = self.frame.ending_at();
            shard = self.lock(number);
            if shard
                .records
                .get(record)
                .is_none_or(|mark| mark.serial != serial)
            {
                return ended;
            }
        }
    }
}
