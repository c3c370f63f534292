//! The waits of an engine: parking them, following them to other shards, and finishing them. Also,
//! for every form, the drops of the user's keys and values.

use std::{cmp::Ordering, mem::needs_drop, sync::Arc, task::Waker};

use timer_core::{Moment, TimerHandle};

use crate::{
    error::WaitError,
    operation::Timeout,
    table::{
        AnyTable, Arrival, Batch, Ended, Engine, Inside, LockedShard, Table,
        call::{Call, enqueue},
        forwarding::Forwarding,
        full,
        shard::Shard,
        shard_number,
    },
};

impl<E: Inside> AnyTable<E> {
    /// Runs the user's code as [`Frame::call`] does, but in a nested call leaves it to the
    /// outermost one.
    pub(crate) fn call_in_turn(
        self: &Arc<Self>,
        call: &Call<'_>,
        code: impl FnOnce() + Send + 'static,
    ) {
        call.in_turn(self, |table| table.frame.call(code));
    }

    /// Drops a key that nothing needs any more, in turn: its drop may end the next wait.
    pub(crate) fn drop_key(self: &Arc<Self>, call: &Call<'_>, key: E::Key) {
        if needs_drop::<E::Key>() {
            self.call_in_turn(call, || drop(key));
        }
    }

    /// Drops values of the user's in turn. A panic in one drop does not reach the next: two in one
    /// drop would abort.
    pub(crate) fn drop_each<T>(self: &Arc<Self>, call: &Call<'_>, values: Vec<T>)
    where
        T: Send + 'static,
    {
        call.in_turn(self, |table| {
            for value in values {
                table.frame.call(|| drop(value));
            }
        });
    }
}

impl<E: Engine> Table<E> {
    /// Locks the shards of two hashes, in the order of their numbers, so that two such calls cannot
    /// deadlock. The second is `None` if both hashes have the same shard.
    pub(crate) fn lock_two(
        &self,
        one: u64,
        other: u64,
    ) -> (LockedShard<'_, E>, Option<LockedShard<'_, E>>) {
        // Numbers beyond the last wrap around.
        let last = self.shards.count() - 1;
        let one = shard_number(one) & last;
        let other = shard_number(other) & last;
        let lower = self.lock(one.min(other));
        match one.cmp(&other) {
            Ordering::Equal => (lower, None),
            Ordering::Less => (lower, Some(self.lock(other))),
            Ordering::Greater => (self.lock(one), Some(lower)),
        }
    }

    /// Locks the present shard of a wait that may have moved; returns it and the wait's name there.
    pub(super) fn lock_moved(&self, at: TimerHandle) -> (LockedShard<'_, E>, TimerHandle) {
        self.follow(self.lock(at.shard()), at)
    }

    /// Locks the shard to which a wait has moved on from this one, if it has; returns the shard and
    /// the wait's name there.
    pub(super) fn follow<'a>(
        &'a self,
        shard: LockedShard<'a, E>,
        at: TimerHandle,
    ) -> (LockedShard<'a, E>, TimerHandle) {
        let Some(forwarding) = shard.forwarding(at.id()).cloned() else {
            return (shard, at);
        };
        drop(shard);
        self.lock_forwarded(&forwarding)
    }

    /// Locks the present shard of a wait that has moved; returns it and the wait's name there.
    /// Looks again for each move that comes in between.
    pub(super) fn lock_forwarded(
        &self,
        forwarding: &Forwarding,
    ) -> (LockedShard<'_, E>, TimerHandle) {
        loop {
            let at = forwarding.place();
            let shard = self.lock(at.shard());
            if forwarding.place() == at || failpoint!(MovedIsLookedForOnce) {
                return (shard, at);
            }
        }
    }

    /// Reads the clock for a wait before the lock is taken if the clock is the user's: no user code
    /// runs under a lock. A built-in clock is read only once the wait must be parked.
    pub(crate) fn early_arrival(&self, timeout: Timeout) -> Option<Arrival> {
        if self.frame.driver().has_own_clock() {
            None
        } else {
            Some(self.arrival(timeout))
        }
    }

    /// Returns a timeout whose deadline counts from this call, for several waits.
    pub(crate) fn counted_from_now(&self, timeout: Timeout) -> Timeout {
        match timeout {
            Timeout::After(delay) => {
                let now = Moment::from_nanos(self.frame.driver().now_ns());
                Timeout::At(now + delay)
            }
            other => other,
        }
    }

    /// Takes a place for a wait that is about to be parked in a shard, or refuses it. Before it
    /// takes the place, `record` finds or makes the wait's record, or refuses the wait.
    #[inline(always)]
    pub(crate) fn admit<R>(
        &self,
        shard: &mut LockedShard<'_, E>,
        arrival: Arrival,
        record: impl FnOnce(&mut Shard<E>) -> Result<R, WaitError>,
    ) -> Result<R, WaitError> {
        if shard.closed {
            return Err(WaitError::Closed);
        }
        if arrival.is_over {
            shard.ended_at_once += 1;
            return Err(WaitError::Expired);
        }
        if let Some(full) = full(shard.wheel.len()) {
            return Err(full);
        }
        let record = record(shard)?;
        match self.common.take_place() {
            Some(full) => Err(full),
            None => Ok(record),
        }
    }

    /// Parks a wait that was [admitted](Self::admit). The closure makes it in its place. O(levels
    /// of the wheel).
    #[inline(always)]
    pub(crate) fn park(
        &self,
        shard: &mut LockedShard<'_, E>,
        arrival: Arrival,
        wait: impl FnOnce() -> E::Wait,
    ) -> TimerHandle {
        let state = &mut **shard;
        state.wheel.catch_up(arrival.now_tick);
        state.counts.parked += 1;
        let scheduled = state.insert(arrival.deadline_tick, arrival.now_ns, wait);
        if arrival.deadline_tick.is_some() {
            shard.work_at(scheduled.due);
        }
        shard.handle(scheduled.id)
    }

    /// Wakes a task, with nothing locked.
    pub(crate) fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.frame.call_here(|| waker.wake());
        }
    }

    /// Finishes a wait that has ended, with nothing locked: wakes its task, then deals with the
    /// rest. Runs [in turn](Call::in_turn), but without a closure, whose call costs a permit 15
    /// instructions.
    #[inline(always)]
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, ended: Ended<E>) {
        if call.is_nested() {
            self.finish_later(ended);
        } else {
            self.finish_now(ended);
        }
    }

    /// Leaves a wait that has ended to the outermost call. A callback takes a place until it
    /// begins, since that call may leave it to the executor.
    #[inline(never)]
    fn finish_later(self: &Arc<Self>, ended: Ended<E>) {
        let table = self.clone();
        let is_called_back = E::is_called_back(&ended.left);
        if is_called_back {
            table.common.take_callbacks_place();
        }
        enqueue(move || {
            if is_called_back {
                table.common.return_place();
            }
            table.finish_now(ended);
        });
    }

    #[inline(always)]
    fn finish_now(self: &Arc<Self>, ended: Ended<E>) {
        self.wake(ended.waker);
        E::finish(self, ended.left);
    }

    /// Makes a batch of waits that end now.
    pub(crate) fn batch(&self) -> Batch<E> {
        Batch::at(self.frame.ending_at())
    }

    /// Finishes waits that have ended, in order.
    pub(crate) fn finish_all(self: &Arc<Self>, call: &Call<'_>, batch: Batch<E>) {
        for ended in batch {
            self.finish(call, ended);
        }
    }
}
