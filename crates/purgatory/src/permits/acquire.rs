//! Requests: they take permits that are free, or join the line of their key.

use std::{sync::Arc, time::Duration};

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::Timeout,
    permits::{
        entry::{CLOSED, Granted, Guard, Semaphores, Turn, Wait},
        serve::fits,
    },
    table::{Arrival, LockedShard, Table, handle::Handle, shard::Shard},
    wait::WaitFuture,
    watches::{ToKey, WatchKey},
};

/// A request that arrives.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) hash: u64,
    pub(super) weight: u64,
    /// `None` unless a lease is asked for.
    pub(super) time_to_live: Option<Duration>,
}

impl<K: WatchKey> Semaphores<K> {
    /// Takes permits of a line if they are free and no request waits.
    #[inline(always)]
    fn take(&self, shard: &mut Shard<Self>, line: u32, request: &Request) -> Option<Granted> {
        let weight = request.weight;
        let present = self.present(&shard.records);
        let is_open = !shard.closed && !self.is_closed();
        let in_line = shard.records.keys.at_mut(line);
        if in_line.waiting > 0 || !is_open {
            return None;
        }
        if !fits(present, in_line.taken, weight) {
            return None;
        }
        if request.time_to_live.is_some() {
            let lease = Self::lease(shard, line, weight)?;
            return Some(Granted::Lease(Box::new(lease)));
        }
        in_line.taken += weight;
        let number = shard.number();
        let held = shard.records.heavy.hold::<K>(number, line, weight);
        Some(Granted::Permits(held))
    }

    /// Makes the guard of permits that were taken at once, and begins its time to live, if it has
    /// one.
    #[inline(always)]
    fn guard<G: Guard<K>>(
        table: &Arc<Table<Self>>,
        shard: usize,
        granted: Granted,
        request: &Request,
    ) -> G {
        let guard = G::of(table, shard, granted);
        if let Some(time_to_live) = request.time_to_live {
            guard.begin(time_to_live);
        }
        guard
    }

    /// Unlocks a shard after a request has looked at a line, and returns the shard's number.
    /// Forgets the line if it is idle: the request took no permits, or permits of weight 0.
    #[inline(always)]
    fn unlock(table: &Arc<Table<Self>>, mut shard: LockedShard<'_, Self>, line: u32) -> usize {
        let idle = shard.records.forget_if_idle(line);
        let number = shard.number();
        drop(shard);
        if let Some(key) = idle {
            table.drop_key(&table.frame.enter(), key);
        }
        number
    }

    /// Takes permits if they are free and no request waits.
    pub(super) fn try_acquire<Q: ToKey<K> + ?Sized, G: Guard<K>>(
        table: &Arc<Table<Self>>,
        key: &Q,
        request: &Request,
    ) -> Option<G> {
        let mut shard = table.shard_of(request.hash);
        let line = shard.records.find_or_add(key, request.hash);
        let granted = table.engine.take(&mut shard, line, request);
        let number = Self::unlock(table, shard, line);
        Some(Self::guard(table, number, granted?, request))
    }

    /// Makes the future of permits: takes them if they are free, or joins their line.
    #[inline]
    pub(super) fn acquire<Q: ToKey<K> + ?Sized, G: Guard<K>>(
        handle: &Handle<Self>,
        key: &Q,
        request: &Request,
        timeout: Timeout,
    ) -> WaitFuture<G> {
        // 1. Free permits need no clock: our own clock is read under the lock, once the request has
        //    to wait; a user's clock is read before the lock is taken.
        let table = &handle.table;
        let early = table.early_arrival(timeout);
        let mut shard = table.shard_of(request.hash);
        let line = shard.records.find_or_add(key, request.hash);
        if let Some(granted) = table.engine.take(&mut shard, line, request) {
            let number = Self::unlock(table, shard, line);
            return WaitFuture::ready(Ok(Self::guard(table, number, granted, request)));
        }
        // 2. Join the line, unless it has no place for the request.
        if failpoint!(FreeComparedUnlocked) {
            drop(shard);
            shard = table.shard_of(request.hash);
        }
        let arrival = early.unwrap_or_else(|| table.arrival(timeout));
        let error = match Self::join(table, &mut shard, line, request, arrival) {
            Ok(at) => {
                drop(shard);
                return handle.future(at);
            }
            Err(error) => error,
        };
        // 3. Turn the request away.
        Self::unlock(table, shard, line);
        match &error {
            WaitError::Cancelled(_) => table.frame.report_refusal(&WaitError::Closed),
            refused => table.frame.report_refusal(refused),
        }
        WaitFuture::ready(Err(error))
    }

    /// Joins a line whose permits are not free, unless the line has no place for the request.
    #[inline(always)]
    fn join(
        table: &Table<Self>,
        shard: &mut LockedShard<'_, Self>,
        line: u32,
        request: &Request,
        arrival: Arrival,
    ) -> Result<TimerHandle, WaitError> {
        let weight = request.weight;
        let limit = table.engine.limit();
        if table.engine.is_closed() && !failpoint!(ClosedIsJoined) {
            return Err(WaitError::Cancelled(CLOSED));
        }
        if shard.closed {
            return Err(WaitError::Closed);
        }
        if table.engine.is_too_heavy(weight) {
            return Err(WaitError::TooHeavy { weight, limit });
        }
        table.admit(shard, arrival, |_| Ok(()))?;
        let last = shard.records.keys.at(line).tail;
        let turn = || Wait::Waits(Turn::new(weight, line, last, request.time_to_live));
        let at = table.park(shard, arrival, turn);
        shard.enter(line, at.index());
        Ok(at)
    }
}
