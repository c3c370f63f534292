//! Events: attempt to complete what waits for a key; and cancelling, which takes the same walks.
//!
//! An event walks the key's waiters in the order they were parked, a chunk at a time. It takes the
//! payloads of the chunk out of their entries (that is the claim; what is out already gets a note),
//! checks them with nothing locked, and gives them back. Then the callbacks of what ended run. The
//! entries of most are in the key's own shard: they are taken out in the lock hold that finds them.
//!
//! A rise of a key's watermark first takes the watches it meets off the key, and *the thread that
//! takes a watch counts it down*, with no code of the user's in between. Then it walks those that
//! were met and wait for their check, as an event does.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::Shards};

use crate::{
    engine::{
        Core,
        nested::{Call, enqueue},
    },
    operation::{DelayedOperation, Outcome, Verdict},
    shard::{
        AllEnded, Batch, CheckedIn, CheckedOut, Ended, Entries, Next, Shard, Waiter, WatchList,
    },
    sync::CHECK_BATCH,
    watches::WatchKey,
};

/// How many waiters are found under one lock hold where nothing is checked.
pub(super) const CHUNK: usize = 128;

/// Watermark watches that are taken, and counted down, under one lock hold.
const MET_BATCH: usize = 64;

/// Operations that a call ends and has still to finish. Dropped, as when a key's `Eq` panics, it
/// finishes them.
pub(super) struct Unfinished<'a, K: WatchKey, O: DelayedOperation> {
    pub(super) core: &'a Arc<Core<K, O>>,
    pub(super) call: &'a Call<'a>,
    pub(super) ended: AllEnded<K, O>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for Unfinished<'_, K, O> {
    fn drop(&mut self) {
        self.core.finish_all(self.call, &mut self.ended);
    }
}

/// The event that is raised on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// For all that wait.
    All,
    /// For the first that it completes.
    One,
    /// Its value is this now.
    Advance(u64),
}

/// A walk over waiters of one key, in the order they were parked: those present when it began,
/// but for those that have left before it came by. Nothing is locked between steps.
pub(super) struct Walk<'a, K: Eq + Clone, O> {
    pub(super) shards: &'a Shards<Shard<K, O>>,
    pub(super) shard: usize,
    pub(super) on: Option<u64>,
}

impl<K: Eq + Clone, O> Walk<'_, K, O> {
    /// Tells of the next waiters, at most this many; false at the end.
    pub(super) fn next(
        &mut self,
        limit: usize,
        found: impl FnMut(&mut Entries<O>, Waiter),
    ) -> bool {
        let Some(number) = self.on else { return false };
        self.on = self.shards.lock(self.shard).walk_on(number, limit, found);
        true
    }
}

impl<K: Eq + Clone, O> Drop for Walk<'_, K, O> {
    fn drop(&mut self) {
        if let Some(number) = self.on {
            self.shards.lock(self.shard).end_walk(number);
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Raises an event; returns how many this call ended as Completed. Inside a callback it waits
    /// for the outermost call.
    #[inline]
    pub(crate) fn raise<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        event: Event,
    ) -> usize {
        let call = Call::enter(&self.offload);
        let hash = self.versions.hash(key);
        if call.is_nested() {
            self.queue_event(key, hash, event);
            return 0;
        }
        self.event(&call, key, hash, event)
    }

    /// An event inside a check or callback: it is raised when the outermost call gets to it, or at
    /// once if nothing waits for its key.
    #[cold]
    fn queue_event<Q: Equivalent<K> + ?Sized>(self: &Arc<Self>, key: &Q, hash: u64, event: Event) {
        let shard = self.shard_of(hash);
        let Some(key) = shard.stored(key, hash) else {
            return self.versions.raise(hash);
        };
        drop(shard);
        let core = self.clone();
        enqueue(move || {
            let call = Call::enter(&core.offload);
            core.event::<K>(&call, &key, hash, event);
        });
    }

    #[inline]
    fn event<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        event: Event,
    ) -> usize {
        self.warn_stuck_checks();
        let together = match event {
            Event::Advance(value) => return self.rise(call, key, hash, value),
            Event::All => CHECK_BATCH,
            Event::One => 1,
        };
        let mut shard = self.shard_of(hash);
        self.versions.raise(hash);
        let record = if O::CHECKED {
            shard.find(key, hash)
        } else {
            None
        };
        let Some(record) = record else { return 0 };
        shard.raised(record);
        let mut batch = Batch::new();
        let on = shard.walk(record, WatchList::Plain, together, batch.finding());
        let mut walk = Walk {
            shards: &self.shards,
            shard: shard.number(),
            on,
        };
        drop(shard);
        match event {
            Event::One => usize::from(self.attempt_until_one(call, &mut walk, &mut batch)),
            _ => self.attempt_rest(call, &mut walk, &mut batch),
        }
    }

    fn rise<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        value: u64,
    ) -> usize {
        let mut met_last = Unfinished {
            core: self,
            call,
            ended: AllEnded::new(),
        };
        let mut check = Vec::new();
        let at = self.ending_at();
        let (mut walk, mut met) = self.pop_up_to(key, hash, Some(value), |first_shard, id| {
            let Some(entry) = first_shard.get_mut(id) else {
                return;
            };
            if entry.count_down() {
                met_last
                    .ended
                    .extend(first_shard.claim(id, Outcome::Completed, at));
            } else {
                check.push(id);
            }
        });
        let mut completed = self.finish_all(call, &mut met_last.ended);
        let mut batch = Batch::new();
        if check.len() > 1 {
            let mut known = HashSet::new();
            check.retain(|&id| known.insert(id)); // for several of its watermarks once
        }
        for ids in check.chunks(CHECK_BATCH) {
            batch.foreign.extend(ids.iter().map(|&id| (0, id)));
            completed += self.attempt(call, &mut batch);
        }
        completed + self.attempt_rest(call, &mut walk, &mut met)
    }

    /// Takes the watermark watches off the key that `value` meets, or all, some at a time, for
    /// `act` to apply in the first shards of their operations. Returns the walk over those that are
    /// met and stay, the first of them checked out if nothing was taken: otherwise callbacks come
    /// first, and nothing is held meanwhile. No user code runs in between: what it parks would be
    /// taken, too.
    pub(super) fn pop_up_to<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        value: Option<u64>,
        mut act: impl FnMut(&mut Shard<K, O>, TimerHandle),
    ) -> (Walk<'_, K, O>, Batch<O>) {
        let mut taken = SmallVec::<[TimerHandle; MET_BATCH]>::new();
        let (all, value) = (value.is_none(), value.unwrap_or(u64::MAX));
        let mut walk = Walk {
            shards: &self.shards,
            shard: 0,
            on: None,
        };
        let mut batch = Batch::new();
        for step in 0.. {
            let mut shard = self.shard_of(hash);
            walk.shard = shard.number();
            if step == 0 && !all {
                self.versions.raise(hash);
            }
            let Some(record) = shard.find(key, hash) else {
                break;
            };
            if !all {
                shard.raised(record);
            }
            taken.clear();
            let took = shard.pop_up_to(record, value, all, MET_BATCH, |id| taken.push(id));
            if took.all && took.left.is_none() && !all {
                let together = if step == 0 && taken.is_empty() {
                    CHECK_BATCH
                } else {
                    0
                };
                walk.on = shard.walk(record, WatchList::Met, together, batch.finding());
            }
            if taken.iter().all(|id| id.shard() == walk.shard) {
                taken.iter().for_each(|&id| act(&mut shard, id));
                drop(shard);
            } else {
                drop(shard);
                self.each_in_first_shard(taken.iter().copied(), |&id| id, &mut act);
            }
            if took.all {
                break; // the key left is dropped after the unlock
            }
        }
        (walk, batch)
    }

    /// Attempts a batch and then each waiter of a walk.
    #[inline]
    fn attempt_rest(
        self: &Arc<Self>,
        call: &Call<'_>,
        walk: &mut Walk<'_, K, O>,
        batch: &mut Batch<O>,
    ) -> usize {
        let mut completed = self.attempt(call, batch);
        while walk.next(CHECK_BATCH, batch.finding()) {
            completed += self.attempt(call, batch);
        }
        completed
    }

    /// The same, one waiter after the other, until a check of this call has come true.
    fn attempt_until_one(
        self: &Arc<Self>,
        call: &Call<'_>,
        walk: &mut Walk<'_, K, O>,
        batch: &mut Batch<O>,
    ) -> bool {
        loop {
            self.check_out_foreign(batch);
            if let Some(held) = batch.held.pop() {
                let (verdict, ended) = self.check_until_in_with_verdict(held);
                ended.map(|ended| self.finish(call, ended));
                // One that another thread completed meanwhile has not used the event up.
                if verdict == Verdict::Satisfied {
                    return true;
                }
            }
            if !walk.next(1, batch.finding()) {
                return false;
            }
        }
    }

    /// Checks the waiters of a batch, in order, and finishes those that are over. Leaves it empty.
    #[inline]
    fn attempt(self: &Arc<Self>, call: &Call<'_>, batch: &mut Batch<O>) -> usize {
        if !batch.foreign.is_empty() {
            self.check_out_foreign(batch);
        }
        if batch.held.len() > 1 {
            return self.attempt_all(call, batch);
        }
        let ended = batch.held.pop().and_then(|held| self.check_until_in(held));
        ended.map_or(0, |ended| self.finish(call, ended))
    }

    /// Checks out those whose first key is in another shard.
    fn check_out_foreign(&self, batch: &mut Batch<O>) {
        let Batch { held, foreign, .. } = batch;
        let mut added = 0;
        self.each_in_first_shard(
            foreign.drain(..),
            |&(_, id)| id,
            |first_shard, (before, id)| {
                if let Some(one) = first_shard.check_out(id) {
                    held.insert(before + added, one);
                    added += 1;
                }
            },
        );
    }

    /// Of many each shard is locked once for a run of them, and the checks run with all their
    /// payloads out.
    fn attempt_all(self: &Arc<Self>, call: &Call<'_>, batch: &mut Batch<O>) -> usize {
        batch
            .held
            .iter_mut()
            .for_each(|held| held.verdict = self.check(&mut held.payload));
        let (mut again, mut ended) = (Vec::new(), AllEnded::new());
        let at = self.ending_at();
        self.each_in_first_shard(
            batch.held.drain(..),
            |held| held.id,
            |first_shard, held| match first_shard.check_in(held, at) {
                Next::Parked => {}
                Next::CheckAgain(held) => again.push(held),
                Next::Ended(over) => ended.push(over),
            },
        );
        ended.extend(
            again
                .into_iter()
                .filter_map(|held| self.check_until_in(held)),
        );
        self.finish_all(call, &mut ended)
    }

    /// Checks an operation until it is parked or over.
    #[inline]
    pub(crate) fn check_until_in(&self, held: CheckedOut<O>) -> Option<Ended<K, O>> {
        self.check_until_in_with_verdict(held).1
    }

    /// The end of what was given back, after further checks if events came by.
    pub(super) fn finish_check_in(&self, checked_in: CheckedIn<K, O>) -> Option<Ended<K, O>> {
        match checked_in {
            Next::Parked => None,
            Next::CheckAgain(held) => self.check_until_in(held),
            Next::Ended(ended) => Some(ended),
        }
    }

    /// As [`settle`](Self::settle), with what the last check found.
    #[inline]
    fn check_until_in_with_verdict(
        &self,
        mut held: CheckedOut<O>,
    ) -> (Verdict, Option<Ended<K, O>>) {
        loop {
            let verdict = self.check(&mut held.payload);
            held.verdict = verdict;
            let at = self.ending_at();
            let checked_in = self.first_shard_of(held.id).check_in(held, at);
            match checked_in {
                Next::Parked => return (verdict, None),
                Next::Ended(ended) => return (verdict, Some(ended)),
                Next::CheckAgain(again) => held = again,
            }
        }
    }
}
