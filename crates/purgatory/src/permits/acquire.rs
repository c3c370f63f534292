//! Requests: they take permits that are free, or join the line of their key.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crate::{
    error::WaitError,
    operation::Timeout,
    permits::{
        entry::{CLOSED, Granted, Guard, Holder, Leased, Semaphores, Turn, Wait},
        lines::Lines,
    },
    table::{Arrival, LockedShard, Table, handle::Handle},
    wait::WaitFuture,
    watches::WatchKey,
};

/// A request that comes.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) hash: u64,
    pub(super) weight: u64,
    /// `None` unless a lease is asked for.
    pub(super) time_to_live: Option<Duration>,
}

impl<K: WatchKey> Semaphores<K> {
    /// Takes permits of a line if they are free and nobody waits.
    #[inline(always)]
    fn take(
        table: &Table<Self>,
        shard: &mut LockedShard<'_, Self>,
        line: u32,
        request: &Request,
        lives: Option<Arrival>,
    ) -> Option<Granted> {
        let weight = request.weight;
        if shard.closed || !shard.records.take(line, weight) {
            return None;
        }
        match lives {
            None => Some(Granted::Permits { weight, line }),
            Some(lives) => Self::lease(table, shard, line, weight, lives),
        }
    }

    /// Makes a lease of permits that were taken; returns them if no entry is free for it.
    #[cold]
    fn lease(
        table: &Table<Self>,
        shard: &mut LockedShard<'_, Self>,
        line: u32,
        weight: u64,
        lives: Arrival,
    ) -> Option<Granted> {
        let holder = Wait::Holds(Holder::new(weight, line, None));
        let Some(holder) = table.hold(shard, lives, holder) else {
            shard.records.at_mut(line).taken -= weight; // no entry is free
            return None;
        };
        let fence = shard.records.next_fence();
        Some(Granted::Lease(Box::new(Leased {
            weight,
            holder,
            fence,
        })))
    }

    /// Takes permits if they are free and nobody waits. `line` finds their line, under the lock.
    #[inline]
    pub(super) fn try_acquire<G: Guard<K>>(
        table: &Arc<Table<Self>>,
        request: &Request,
        line: impl Fn(&mut Lines<K>) -> u32,
    ) -> Option<G> {
        // 1. A clock is user code: it is read before the lock is taken.
        let lives = lives(table, request);
        // 2. Take them. A key whose permits were not taken, or weigh nothing, may be idle.
        let mut shard = table.shard_of(request.hash);
        table.begin(&mut shard.records);
        let line = line(&mut shard.records);
        let granted = Self::take(table, &mut shard, line, request, lives);
        let idle = shard.records.forget_if_idle(line);
        let number = shard.number();
        drop(shard);
        if let Some(key) = idle {
            table.frame.call(|| drop(key));
        }
        Some(G::of(table, number, granted?))
    }

    /// Makes the future of permits: takes them if they are free, or joins their line.
    #[inline]
    pub(super) fn acquire<G: Guard<K>>(
        handle: &Handle<Self>,
        request: &Request,
        timeout: Timeout,
        line: impl Fn(&mut Lines<K>) -> u32,
    ) -> WaitFuture<G> {
        if !handle.table.engine.is_crowded.load(Relaxed) {
            if let Some(guard) = Self::try_acquire(&handle.table, request, &line) {
                return WaitFuture::ready(Ok(guard));
            }
        }
        Self::join(handle, request, timeout, line)
    }

    /// Leaves the hint for the next request. It is written when it changes.
    #[inline]
    fn note_crowded(table: &Table<Self>, waits: bool) {
        let is_crowded = &table.engine.is_crowded;
        if is_crowded.load(Relaxed) != waits {
            is_crowded.store(waits, Relaxed);
        }
    }

    /// Joins a line, unless the permits have come free meanwhile.
    #[inline(never)] // free permits are taken without its steps
    fn join<G: Guard<K>>(
        handle: &Handle<Self>,
        request: &Request,
        timeout: Timeout,
        line: impl Fn(&mut Lines<K>) -> u32,
    ) -> WaitFuture<G> {
        // 1. The clock, before the lock is taken.
        let table = &handle.table;
        let lives = lives(table, request);
        let arrival = table.arrival(timeout);
        let mut shard = table.shard_of(request.hash);
        table.begin(&mut shard.records);
        let line = line(&mut shard.records);

        // 2. A last look; then a place in the line.
        let weight = request.weight;
        let limit = shard.records.limit;
        let error = if shard.records.is_closed && !failpoint!(ClosedIsJoined) {
            WaitError::Cancelled(CLOSED)
        } else if shard.records.is_too_heavy(weight) {
            WaitError::TooHeavy { weight, limit }
        } else if let Some(granted) = Self::look_again(table, &mut shard, line, request, lives) {
            let idle = shard.records.forget_if_idle(line);
            let number = shard.number();
            drop(shard);
            Self::note_crowded(table, false);
            if let Some(key) = idle {
                table.frame.call(|| drop(key));
            }
            return WaitFuture::ready(Ok(G::of(table, number, granted)));
        } else if arrival.is_over && !shard.closed {
            shard.count_at_once();
            WaitError::Expired
        } else if let Some(refused) = shard.refuses().or_else(|| table.take_place()) {
            refused
        } else {
            let last = shard.records.at(line).tail;
            let turn = || Wait::Waits(Turn::new(weight, line, last, request.time_to_live));
            let at = table.park_in_place(&mut shard, arrival, turn);
            shard.enter(line, at.index());
            drop(shard);
            Self::note_crowded(table, true);
            return WaitFuture::at(handle.share(), table.frame.id(at));
        };

        // 3. Neither.
        let idle = shard.records.forget_if_idle(line);
        drop(shard);
        Self::turned_away(table, &error, idle);
        WaitFuture::ready(Err(error))
    }

    /// Takes permits that came free between two looks.
    fn look_again(
        table: &Table<Self>,
        shard: &mut LockedShard<'_, Self>,
        line: u32,
        request: &Request,
        lives: Option<Arrival>,
    ) -> Option<Granted> {
        if failpoint!(ReleaseBetweenLooksIsLost) {
            return None;
        }
        Self::take(table, shard, line, request, lives)
    }

    /// Counts a request that neither has permits nor waits, with nothing locked.
    #[cold]
    fn turned_away(table: &Table<Self>, error: &WaitError, idle: Option<K>) {
        match error {
            WaitError::Cancelled(_) => table.report_refusal(&WaitError::Closed),
            WaitError::Expired | WaitError::MustNotBlock => {}
            refused => table.report_refusal(refused),
        }
        if let Some(key) = idle {
            table.frame.call(|| drop(key));
        }
    }
}

/// Reads the clock for a lease that is taken at once.
#[inline]
fn lives<K: WatchKey>(table: &Table<Semaphores<K>>, request: &Request) -> Option<Arrival> {
    let time_to_live = request.time_to_live?;
    Some(table.arrival(Timeout::After(time_to_live)))
}
