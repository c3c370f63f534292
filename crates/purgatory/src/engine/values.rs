//! Values of keys, which the shards keep, and the waits for them.
//!
//! A wait for one key compares and parks under one lock. An advance stores the value and takes the
//! waits that it reaches under one lock. So neither misses the other, and nothing is checked. Only
//! a quorum is ever held: by its parker, until all of its keys are watched.
//!
//! A quorum waits under several keys, in several shards. It is *judged* each time one of its
//! members changes its place: the states of all members are read, one lock after the other, and the
//! quorum ends if that decides it. A change comes before the reading that follows it. So of several
//! concurrent changes the last reading sees all.
//!
//! - **Taken back**: a value only rises, but for a new epoch and a removal. Each of these counts a
//!   *take-back* under its shard's lock, and members that were read as met while one came are read
//!   again. So members that complete a quorum were all met at one time.

use std::{borrow::ToOwned, hash::Hash, mem, sync::Arc};

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::{
    engine::{
        Core, LockedShard,
        places::PlaceGuard,
        trampoline::Call,
        walk::{MET_BATCH, Unfinished},
    },
    error::{Refused, RefusedReason},
    operation::{
        Answering, CancelReason, DelayedOperation, OperationId, Outcome, ParkResult, Timeout,
        Verdict,
    },
    shard::{
        AllEnded, Ended, EndedAt, ParkOptions,
        values::{ChangedValue, Member, MetWait, MetWaits},
    },
    sync::Ordering,
    watches::WatchKey,
};

/// The states of a quorum's members, in the order of its keys.
pub(super) type Members = SmallVec<[Member; 8]>;

/// An operation that waits for values, and has no check of its own.
pub(crate) trait ValueWait: DelayedOperation {
    /// Meets a wait for one key, whose threshold this value has reached. One that a future waits
    /// for turns into its answer; any other is called back. Runs under a lock.
    fn meet(&mut self, value: u64) -> Answering;

    /// Returns true when it yields a value, which only an advance gives.
    fn needs_value(&self) -> bool;

    /// Returns true when it waits for several keys.
    fn is_quorum(&self) -> bool;

    /// Decides what the states of a quorum's members mean, and stores the values that meet it.
    fn judge(&mut self, members: &[Member]) -> Judgement;
}

/// A wait for a key's value, as it was parked or not.
pub(crate) enum ForValue<O> {
    Parked(OperationId),
    /// It ended at once, and its outcome is still to be reported.
    AtOnce(O, Outcome),
}

/// Quorums that lost a member, still to be judged. Dropped, as when a key's `Eq` panics, it judges
/// them.
struct Unjudged<'a, K: WatchKey, O: ValueWait> {
    core: &'a Arc<Core<K, O>>,
    call: &'a Call<'a>,
    quorums: Vec<TimerHandle>,
}

impl<K: WatchKey, O: ValueWait> Unjudged<'_, K, O> {
    /// Judges them now; returns how many ended.
    fn judge(&mut self) -> usize {
        let quorums = mem::take(&mut self.quorums);
        self.core.judge_all_ended(self.call, quorums)
    }
}

impl<K: WatchKey, O: ValueWait> Drop for Unjudged<'_, K, O> {
    fn drop(&mut self) {
        self.judge();
    }
}

/// The state of a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It waits on.
    Waits,
    /// Enough members are met.
    Met,
    /// Too few remain.
    Lost {
        /// The number of members that remain.
        remaining: usize,
        /// The number of members that are needed.
        needed: usize,
    },
}

impl<K: WatchKey, O: ValueWait> Core<K, O> {
    /// Returns the key's value. O(1).
    pub(crate) fn value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<u64> {
        let hash = self.versions.hash(key);
        let shard = self.shard_of(hash);
        let record = shard.find(key, hash)?;
        shard.value(record)
    }

    /// Returns the epoch of the key's value.
    pub(crate) fn epoch<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<u64> {
        let hash = self.versions.hash(key);
        let shard = self.shard_of(hash);
        let record = shard.find(key, hash)?;
        shard.value(record)?;
        Some(shard.epoch(record))
    }

    /// Returns the lowest threshold above the key's value that an operation waits for.
    pub(crate) fn lowest_waiting<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<u64> {
        let hash = self.versions.hash(key);
        self.shard_of(hash).lowest_unmet(key, hash)
    }

    /// Replaces the key's value by `to` of it, and completes the waits that it reaches; returns how
    /// many. A missing value is 0. At most `keys_max` keys have one. With an epoch, only if that is
    /// the key's.
    pub(crate) fn change_value<Q>(
        self: &Arc<Self>,
        key: &Q,
        keys_max: usize,
        epoch: Option<u64>,
        to: impl Fn(u64) -> u64,
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. The key's present epoch, if one is asked for. The clock is read before the lock is
        //    taken.
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();
        let mut shard = self.shard_of(hash);
        let mut found = shard.find(key, hash);
        if let Some(epoch) = epoch {
            let present = found.map_or(0, |record| shard.epoch(record));
            if epoch != present {
                return Err(RefusedReason::OtherEpoch { present });
            }
        }
        if failpoint!(EpochComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.find(key, hash);
        }

        // 2. The new value. The first one counts against `keys_max`.
        let changed = match found.and_then(|record| shard.change_value(record, &to)) {
            Some(changed) => changed,
            None => {
                let (locked_again, record) =
                    self.record_for_value(shard, found, key, hash, keys_max)?;
                shard = locked_again;
                shard.set_value(record, to(0))
            }
        };
        self.versions.count_event(hash);

        // 3. The waits that it reaches.
        if !changed.meets_watches {
            return Ok(0);
        }
        Ok(self.complete_met(shard, hash, changed, now_ns))
    }

    /// Begins an epoch of a key with this value; returns how many waits that completed or, with a
    /// reason, how many it ended: the waits for more are cancelled then.
    pub(crate) fn begin_epoch<Q>(
        self: &Arc<Self>,
        key: &Q,
        keys_max: usize,
        epoch: u64,
        value: u64,
        cancel: Option<&CancelReason>,
    ) -> Result<usize, RefusedReason>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. An epoch is begun once.
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();
        let shard = self.shard_of(hash);
        let found = shard.find(key, hash);
        let present = found.map_or(0, |record| shard.epoch(record));
        if epoch <= present {
            return Err(RefusedReason::OtherEpoch { present });
        }

        // 2. The new value. Unless waits are cancelled, this is an advance from here on.
        let (mut shard, record) = match found {
            Some(record) if shard.value(record).is_some() => (shard, record),
            _ => self.record_for_value(shard, found, key, hash, keys_max)?,
        };
        self.versions.count_event(hash);
        self.count_take_back();
        let changed = shard.begin_epoch(record, epoch, value);
        let Some(reason) = cancel else {
            if !changed.meets_watches {
                return Ok(0);
            }
            return Ok(self.complete_met(shard, hash, changed, now_ns));
        };

        // 3. Take the met waits first, which are not for more, then find the others, in the same
        //    lock hold.
        let mut met = MetWaits::new();
        let meet = |wait: &mut O| wait.meet(value);
        shard.take_met(record, value, usize::MAX, now_ns, &mut met, meet);
        self.return_met_places(&met);
        let unmet = shard.unmet(record);

        // 4. Finish what ended, and cancel the others.
        let call = Call::enter(&self.job_executor);
        let mut unfinished = Unfinished::new(self, &call);
        let met_waits = met.waits.into_iter().map(MetWait::into_ended);
        unfinished.ended.extend(met_waits);
        let outcome = Outcome::Cancelled(reason.clone());
        self.each_taken(shard, &unmet, |first_shard, handle| {
            let claimed = self.claim_in(first_shard, handle, &outcome, now_ns);
            unfinished.ended.extend(claimed);
        });
        let ended = unfinished.ended.len();
        unfinished.finish();
        Ok(ended + self.judge_all_ended(&call, met.quorums))
    }

    /// Counts a key that is to get its first value against `keys_max`. Returns its
    /// record.
    #[inline(never)]
    fn record_for_value<'a, Q>(
        &self,
        mut shard: LockedShard<'a, K, O>,
        found: Option<u32>,
        key: &Q,
        hash: u64,
        keys_max: usize,
    ) -> Result<(LockedShard<'a, K, O>, u32), RefusedReason>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        // The key's `Clone` may panic: it runs before anything is changed.
        let copy = match found {
            Some(_) => None,
            None => Some(key.to_owned()),
        };
        if !self.valued_keys.acquire(1, keys_max as u64) {
            drop(shard);
            drop(copy); // with nothing locked
            return Err(RefusedReason::TooManyKeys { limit: keys_max });
        }
        let record = match (found, copy) {
            (None, Some(copy)) => shard.add_key(copy, hash),
            (Some(record), _) => record,
            (None, None) => unreachable!("a key without a record was copied"),
        };

        Ok((shard, record))
    }

    /// Completes the waits of a key that its new value reaches, some under one lock hold; returns
    /// how many, or 0 inside a callback.
    fn complete_met<'a>(
        self: &'a Arc<Self>,
        mut shard: LockedShard<'a, K, O>,
        hash: u64,
        mut changed: ChangedValue,
        now_ns: EndedAt,
    ) -> usize {
        let call = Call::enter(&self.job_executor);
        let mut completed = 0;
        loop {
            // 1. Take some off the key.
            let ChangedValue { record, value, .. } = changed;
            let mut met = MetWaits::new();
            let meet = |wait: &mut O| wait.meet(value);
            let more = shard.take_met(record, value, MET_BATCH, now_ns, &mut met, meet);
            self.unlock_met(shard, &met);

            // 2. Finish them. A wait for less that a callback asks for is over at once, so this
            //    ends.
            completed += met.waits.len();
            for wait in met.waits.drain(..) {
                self.finish_met(&call, wait);
            }
            if !met.quorums.is_empty() {
                completed += self.judge_all(&call, met.quorums);
            }
            if !more {
                break;
            }

            // 3. Go on with the rest, unless the value has gone back meanwhile, or another thread
            //    takes it. The key's `Eq` may panic, so it is not asked again: another key of this
            //    hash may be found, whose rest is met just as well.
            shard = self.shard_of(hash);
            changed = match shard.find_met(hash) {
                Some(rest) => rest,
                None => break,
            };
        }
        if call.is_nested() { 0 } else { completed }
    }

    /// Removes the key's value, takes the key out of every quorum and cancels the other waits for
    /// it; returns how many waits this call ended.
    pub(crate) fn remove_value<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        reason: &CancelReason,
    ) -> usize {
        let call = Call::enter(&self.job_executor);
        let hash = self.versions.hash(key);
        let now_ns = self.ending_at();

        // 1. The value.
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return 0;
        };
        let (value, emptied_key) = shard.take_value(record);
        if !failpoint!(RemovalTakesNothingBack) {
            self.count_take_back();
        }
        drop(shard);
        if value.is_some() {
            self.valued_keys.release(1);
        }
        drop(emptied_key); // with nothing locked

        // 2. The watches. A quorum waits on without this one, if it can.
        let mut unfinished = Unfinished::new(self, &call);
        let mut unjudged = Unjudged {
            core: self,
            call: &call,
            quorums: Vec::new(),
        };
        let ended = &mut unfinished.ended;
        let outcome = Outcome::Cancelled(reason.clone());
        self.claim_unmet(key, hash, &mut |first_shard, handle| {
            let Some(entry) = first_shard.get_mut(handle) else {
                return; // it has ended
            };
            // Only a quorum is ever held, by its parker.
            if entry.payload().is_none_or(O::is_quorum) {
                unjudged.quorums.push(handle);
            } else {
                ended.extend(self.claim_in(first_shard, handle, &outcome, now_ns));
            }
        });
        let cancelled = unfinished.ended.len();
        unfinished.finish();
        if failpoint!(RemovalJudgesNothing) {
            unjudged.quorums.clear();
        }
        cancelled + unjudged.judge()
    }

    /// Judges quorums; returns how many completed.
    fn judge_all(self: &Arc<Self>, call: &Call<'_>, quorums: Vec<TimerHandle>) -> usize {
        let mut completed = 0;
        for quorum in quorums {
            if let Some(ended) = self.judge(quorum) {
                completed += self.finish(call, ended);
            }
        }
        completed
    }

    /// Judges quorums; returns how many ended.
    fn judge_all_ended(self: &Arc<Self>, call: &Call<'_>, quorums: Vec<TimerHandle>) -> usize {
        let mut all = AllEnded::new();
        all.extend(quorums.into_iter().filter_map(|quorum| self.judge(quorum)));
        let ended = all.len();
        self.finish_all(call, &mut all);
        ended
    }

    /// Reads the states of a quorum's members, and ends it if they decide it. O(members) for each
    /// reading.
    ///
    /// Members that were read as met complete it only if no take-back came meanwhile; otherwise all
    /// are read again. This call cannot leave that to the thread that took a value back: a new
    /// epoch, or the removal of another quorum's key, judges this quorum not. The loop ends: no
    /// take-back waits for a judgement, so each further reading means that a call of another thread
    /// has made its change, and a reading without such a change is the last.
    ///
    /// The other judgements hold though a take-back came. A removed member stays removed. And where
    /// too few are met, the quorum waits on: each thread that meets or removes a member judges
    /// after that, and the last of them reads each member that stays met as met.
    pub(super) fn judge(&self, quorum: TimerHandle) -> Option<Ended<K, O>> {
        let now_ns = self.ending_at();
        loop {
            // 1. The members, one lock after the other.
            let take_backs = self.take_backs();
            let members = self.read_members(quorum)?;

            // 2. The decision. Take-backs are counted in the lock hold that ends the quorum: one
            //    that came before another thread found the quorum waiting is never missed.
            let mut first_shard = self.first_shard_of(quorum);
            let judgement = first_shard.get_mut(quorum)?.payload_mut()?.judge(&members);
            let is_torn =
                self.take_backs() != take_backs && !failpoint!(JudgementTrustsTornReading);
            let outcome = match judgement {
                Judgement::Waits => return None,
                Judgement::Met if is_torn => continue,
                Judgement::Met => Outcome::Completed,
                Judgement::Lost { remaining, needed } => {
                    Outcome::Cancelled(CancelReason::QuorumLost {
                        left: remaining,
                        needed,
                    })
                }
            };
            return self.claim_in(&mut first_shard, quorum, &outcome, now_ns);
        }
    }

    /// Reads the states of a quorum's members. `None` when it has ended, or its parker holds it,
    /// which judges it once all keys are watched.
    fn read_members(&self, quorum: TimerHandle) -> Option<Members> {
        // 1. The first member, whose watch lies in the entry.
        let mut first_shard = self.first_shard_of(quorum);
        let first = first_shard.first_member(quorum)?;
        first_shard.get_mut(quorum)?.payload()?;
        drop(first_shard);

        // 2. The others: each names the one before it.
        let mut members = Members::new();
        let mut next = first.before;
        while let Some(secondary) = next {
            let shard = self.shards.lock(secondary.shard as usize);
            let watch = shard.secondary_member(secondary, quorum)?;
            members.push(watch.member);
            next = watch.before;
        }
        members.push(first.member);
        members.reverse();
        Some(members)
    }

    /// Parks a wait for a key's value, unless it ends at once.
    #[inline]
    pub(crate) fn park_for_value<Q>(
        &self,
        key: &Q,
        threshold: u64,
        timeout: Timeout,
        mut operation: O,
    ) -> Result<ForValue<O>, Refused<O>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        // 1. Compare, and stay under the lock. The deadline counts from the call.
        let now_ns = self.driver().now_ns();
        let hash = self.versions.hash(key);
        let mut shard = self.shard_of(hash);
        let (mut found, value) = shard.find_value(key, hash);
        if failpoint!(ValueComparedUnlocked) {
            drop(shard);
            shard = self.shard_of(hash);
            found = shard.find(key, hash);
        }

        // 2. It may be over.
        let is_met = if value >= threshold {
            operation.meet(value);
            Verdict::Satisfied
        } else {
            Verdict::Unsatisfied
        };
        if let Some(outcome) = timeout.at_once(is_met, now_ns) {
            drop(shard);
            self.counts.ended_at_once.fetch_add(1, Ordering::Relaxed);
            return Ok(ForValue::AtOnce(operation, outcome));
        }

        // 3. Take a place, and park.
        if let Some(reason) = shard.refuses() {
            drop(shard);
            return Err(self.refuse(operation, reason));
        }
        let place = match self.take_place(&operation) {
            Ok(place) => place,
            Err(full) => {
                drop(shard);
                return Err(self.refuse(operation, full));
            }
        };
        let options = self.value_options(now_ns, timeout, &operation, &place);
        // The key's `Clone` may panic: nothing is parked yet.
        let record = found.unwrap_or_else(|| shard.add_key(key.to_owned(), hash));
        let inserted = shard.park_for_value(record, threshold, &options, self.follows(), operation);
        Self::work_at(&mut shard, &options, inserted.due);
        mem::forget(place); // the ending returns it
        Ok(ForValue::Parked(self.id(inserted.handle)))
    }

    /// Hands a wait that is refused back, counted and traced. With nothing locked.
    #[cold]
    pub(super) fn refuse(&self, operation: O, reason: RefusedReason) -> Refused<O> {
        self.report_refusal(reason);
        Refused::new(operation, reason)
    }

    /// The options of a wait for values that has a place.
    #[inline]
    pub(super) fn value_options(
        &self,
        now_ns: u64,
        timeout: Timeout,
        operation: &O,
        place: &PlaceGuard<'_, K, O>,
    ) -> ParkOptions {
        let mut options = self.park_options(now_ns, timeout);
        options.needs_value = operation.needs_value();
        options.info.weight = place.weight;
        options
    }

    /// Calls back an operation that was never parked.
    pub(crate) fn call_at_once(self: &Arc<Self>, operation: O, outcome: Outcome) -> ParkResult {
        let call = Call::enter(&self.job_executor);
        self.end_parking(&call, Ended::at_once(operation, outcome))
    }
}
