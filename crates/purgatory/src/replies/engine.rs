//! The engine of [`Replies`](super::Replies): a shard's table finds a request by its key, and the
//! entry of the request has everything else, the key included. A request is never taken out of its
//! entry to be examined. It waits until one call ends it, under the lock of its shard.
//!
//! - **One waiter**: a shard's table has a key once, until its request ends.
//! - **Before**: a request keeps the number of `fail_all` calls before it, read under its shard's
//!   lock. A `fail_all` counts itself first and then goes from shard to shard, so it can tell
//!   earlier requests from later ones.

use std::{
    marker::PhantomData,
    sync::{Arc, atomic},
};

use timer_core::{TaskId, TimerHandle};

use crate::{
    error::{Refused, WaitError},
    operation::{CancelReason, Outcome, Timeout},
    replies::{
        many::Buffer,
        member::{Member, Members},
    },
    sync::{AtomicU64, Ordering},
    table::{
        Arrival, Batch, Ended, EndedAt, Engine, FormShard, LockedShard, Parts, Table,
        future::Yields,
        handle::Handle,
        keys::Numbers,
        shard::{LISTED, Shard},
    },
    wait::WaitFuture,
    watches::{KeyRef, WatchKey},
};

/// The engine of replies: the state that all shards share.
pub(crate) struct Requests<K, V> {
    /// The number of `fail_all` calls.
    failures: AtomicU64,
    /// The number of scopes ever made.
    pub(super) scopes: atomic::AtomicU64,
    of: PhantomData<fn() -> (K, V)>,
}

/// A request that waits for its reply.
pub(crate) struct Expected<K, V> {
    pub(super) key: K,
    /// Half of the hash by which it is found.
    pub(super) hash: u32,
    /// The number of `fail_all` calls before it.
    pub(super) failures: u64,
    /// Its place on the list of its scope, if it has one.
    pub(super) member: Option<Member>,
    /// Its replies except the last, if it may have several.
    pub(super) buffer: Option<Arc<Buffer<V>>>,
}

/// The rest of a request that has ended, to be dropped unlocked.
pub(crate) struct Left<K, V> {
    _key: K,
    _buffer: Option<Arc<Buffer<V>>>,
}

/// The table of requests.
pub(super) type Requested<K, V> = Table<Requests<K, V>>;
/// A shard of requests, under its lock.
pub(super) type Locked<'a, K, V> = LockedShard<'a, Requests<K, V>>;

impl<K, V> Default for Requests<K, V> {
    fn default() -> Self {
        Requests {
            failures: AtomicU64::new(0),
            scopes: atomic::AtomicU64::new(0),
            of: PhantomData,
        }
    }
}

impl<K, V> Parts for Requests<K, V> {
    type Records = Numbers;
    type Wait = Expected<K, V>;
    type Answer = V;
    type Left = Left<K, V>;
}

impl<K: WatchKey, V: Send + 'static> Engine for Requests<K, V> {
    type Key = K;

    fn leave(
        &self,
        shard: &mut Shard<Self>,
        id: TaskId,
        wait: Expected<K, V>,
        _: &Outcome,
        _: &mut Batch<Self>,
    ) -> Left<K, V> {
        shard.records.remove(wait.hash, id.index());
        take_off_scope(shard, wait)
    }

    fn key_of(_: &Numbers, wait: &Expected<K, V>) -> K {
        wait.key.clone()
    }

    fn key_count(shard: &Shard<Self>) -> usize {
        shard.waiting()
    }

    /// Visits no key: each has one waiter, so none is busier than another.
    fn each_key(_: &Numbers, _: &mut dyn FnMut(&K, usize)) {}
}

impl<K: WatchKey, V: Send + 'static> Yields<V> for Requests<K, V> {
    fn yielded(_: &Arc<Table<Self>>, _: TimerHandle, answer: V) -> V {
        answer
    }
}

impl<K: WatchKey, V: Send + 'static> Members for Shard<Requests<K, V>> {
    fn member_mut(&mut self, index: u32) -> &mut Member {
        let member = self.wait_mut(index).member.as_mut();
        member.expect("In order: a list names requests of its scope")
    }
}

/// Removes a request that has ended, and is off the table, from the list of its scope. O(1).
#[inline]
fn take_off_scope<K: WatchKey, V: Send + 'static>(
    shard: &mut Shard<Requests<K, V>>,
    wait: Expected<K, V>,
) -> Left<K, V> {
    let Expected {
        key,
        member,
        buffer,
        ..
    } = wait;
    if let Some(member) = member {
        member.leave_list(shard);
    }
    Left {
        _key: key,
        _buffer: buffer,
    }
}

impl<K: WatchKey, V: Send + 'static> Handle<Requests<K, V>> {
    /// Expects a reply under this key.
    #[inline(never)]
    pub(super) fn expect(
        &self,
        key: K,
        timeout: Timeout,
        buffer: impl FnOnce() -> Option<Arc<Buffer<V>>>,
    ) -> Result<WaitFuture<V>, Refused<K>> {
        // 1. Run the key's `Hash` and read the clock with nothing locked.
        let table = &self.table;
        let hash = table.hash(&key);
        let arrival = table.arrival(timeout);
        let mut shard = table.shard_of(hash);
        // 2. A key has one waiter: a second is refused, even if it has no time to wait.
        let hash = hash as u32;
        let is_taken = !shard.closed && find(&shard, hash, |_, of| *of == key).is_some();
        let admitted = match is_taken {
            true => Err(WaitError::AlreadyExpected),
            false => table.admit(&mut shard, arrival, |_| Ok(())),
        };
        if let Err(reason) = admitted {
            drop(shard);
            return table.turn_away(key, reason);
        }
        // 3. Park it.
        let request = |failures| Expected {
            key,
            hash,
            failures,
            member: None,
            buffer: buffer(),
        };
        let at = table.park_request(&mut shard, arrival, hash, request);
        drop(shard);
        Ok(self.future(at))
    }
}

impl<K: WatchKey, V: Send + 'static> Table<Requests<K, V>> {
    /// Ends a request that had no time, and refuses any other.
    #[cold]
    fn turn_away(&self, key: K, reason: WaitError) -> Result<WaitFuture<V>, Refused<K>> {
        if let WaitError::Expired = reason {
            return Ok(WaitFuture::ready(Err(reason)));
        }
        self.frame.report_refusal(&reason);
        Err(Refused::new(key, reason))
    }

    /// Parks a request that has taken its place, under a key that has no waiter. The request is
    /// made in its entry.
    #[inline(always)]
    pub(super) fn park_request(
        &self,
        shard: &mut Locked<'_, K, V>,
        arrival: Arrival,
        hash: u32,
        request: impl FnOnce(u64) -> Expected<K, V>,
    ) -> TimerHandle {
        let failures = self.engine.failures.load(Ordering::Acquire);
        let at = self.park(shard, arrival, || request(failures));
        shard.records.insert(hash, at.index());
        at
    }

    /// Delivers a value to the waiter of a key; hands it back if there is no waiter.
    pub(super) fn deliver<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        value: V,
    ) -> Result<(), V> {
        let hash = self.hash(key);
        let ended_at = self.frame.ending_at();
        let shard = self.shard_of(hash);
        let is_it = |_, key_of: &K| key.is(key_of);
        self.hand_over(shard, hash as u32, is_it, value, ended_at)
    }

    /// Hands a value to the request of this hash that `is_it` accepts by its index and key, and
    /// wakes its task. Hands the value back if there is no such request. O(1).
    #[inline(always)]
    pub(super) fn hand_over<'a>(
        self: &'a Arc<Self>,
        mut shard: Locked<'a, K, V>,
        hash: u32,
        is_it: impl Fn(u32, &K) -> bool,
        value: V,
        ended_at: EndedAt,
    ) -> Result<(), V> {
        if failpoint!(HandsOverInTwoHolds) {
            let is_there = find(&shard, hash, &is_it).is_some();
            let number = shard.number();
            drop(shard);
            shard = self.lock(number);
            if is_there && find(&shard, hash, &is_it).is_none() {
                return Ok(());
            }
        }
        // 1. Find the request. The same search takes it off the table, unless it waits for more
        //    replies: then the value goes into its buffer.
        let mut value = Some(value);
        let mut shard = shard; // after `value`, which is dropped unlocked if the key's `Eq` panics
        let Shard { wheel, records, .. } = &mut *shard;
        let request = |index| wheel.at(index).wait().expect(LISTED);
        let is_last = |index| match &request(index).buffer {
            Some(buffer) => buffer.keep_unless_last(&mut value),
            None => true,
        };
        let found = records.take_if(hash, |index| is_it(index, &request(index).key), is_last);
        let Some(index) = found else {
            return value.map_or(Ok(()), Err);
        };
        // 2. A request that waits for more replies stays parked.
        let Some(value) = value else {
            let waker = shard.wheel.at_mut(index).waker_mut().and_then(Option::take);
            drop(shard);
            if let Some(waker) = waker {
                self.call_in_turn(&self.frame.enter(), || waker.wake());
            }
            return Ok(());
        };
        // 3. Otherwise the value is the answer. Leave it in the entry, where the future finds it.
        let taken = shard.answer(index, || Ok(value), &Outcome::Completed, ended_at);
        let left = take_off_scope(&mut shard, taken.wait);
        drop(shard);
        let waker = taken.waker;
        self.finish(&self.frame.enter(), Ended { waker, left });
        Ok(())
    }

    /// Sets the deadline of this arrival for the request of this hash that `is_it` accepts. Returns
    /// false if there is no such request. O(levels of the wheel).
    pub(super) fn reschedule_request(
        mut shard: Locked<'_, K, V>,
        hash: u32,
        is_it: impl Fn(u32, &K) -> bool,
        arrival: Arrival,
    ) -> bool {
        let Some(index) = find(&shard, hash, is_it) else {
            return false;
        };
        let at = shard.handle(shard.wheel.id_at(index));
        Self::schedule(&mut shard, at, arrival);
        true
    }

    /// Fails the requests that came before this call.
    pub(super) fn fail_all(self: &Arc<Self>, reason: CancelReason) -> usize {
        let before = self.engine.failures.fetch_add(1, Ordering::AcqRel);
        self.cancel_all(reason, |expected| {
            expected.failures <= before || failpoint!(FailsWhatCameAfter)
        })
    }
}

/// Finds the request of this hash that `is_it` accepts by its index and key. O(1).
#[inline(always)]
pub(super) fn find<K: WatchKey, V: Send + 'static>(
    shard: &Shard<Requests<K, V>>,
    hash: u32,
    is_it: impl Fn(u32, &K) -> bool,
) -> Option<u32> {
    let is_it = |index| is_it(index, &shard.wait(index).key);
    shard.records.find(hash, is_it)
}
