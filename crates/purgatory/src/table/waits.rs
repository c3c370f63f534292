//! The waits of an engine: they are parked, followed to where they have moved, and finished. And what
//! is the user's and is left of any form's.

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
    /// Runs the user's code as [`Frame::call`] does. Inside another call that is left to the
    /// outermost one, as of a wait that has ended.
    pub(crate) fn call_in_turn(
        self: &Arc<Self>,
        call: &Call<'_>,
        code: impl FnOnce() + Send + 'static,
    ) {
        call.in_turn(self, |table| table.frame.call(code));
    }

    /// Drops a key that nothing needs any more, in turn: it may hold what ends the next wait.
    pub(crate) fn drop_key(self: &Arc<Self>, call: &Call<'_>, key: E::Key) {
        if needs_drop::<E::Key>() {
            self.call_in_turn(call, || drop(key));
        }
    }

    /// Drops values of the user's in turn. A panic of one reaches no other: two in one drop are an
    /// abort.
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
    /// Locks the shards of two hashes, in the order of their numbers, so that two such calls do not
    /// wait for each other. The second is `None` if it is the first.
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

    /// Locks the shard in which a wait is that may have moved; returns its name there, too.
    pub(super) fn lock_moved(&self, at: TimerHandle) -> (LockedShard<'_, E>, TimerHandle) {
        self.follow(self.lock(at.shard()), at)
    }

    /// Locks the shard to which a wait has moved on from this one, if it has; returns its name there,
    /// too.
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

    /// Locks the shard in which a wait is that has moved; returns its name there, too. It looks again
    /// for each move that comes in between.
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

    /// Reads the clock for a wait before the lock is taken, if it is the user's: no code of the
    /// user's runs under a lock. A clock of ours is read once the wait has to wait.
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

    /// Takes a place for a wait that comes to a shard, unless there is none. `record` finds or makes
    /// what it is to be parked under, or refuses it, before the place is taken.
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

    /// Parks a wait that was [admitted](Self::admit), and that is made where it lies. O(levels of the
    /// wheel).
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

    /// Finishes a wait that has ended, with nothing locked: its task is woken, then what is left of
    /// it goes. [In turn](Call::in_turn), but without a closure, whose call costs a permit 15
    /// instructions.
    #[inline(always)]
    pub(crate) fn finish(self: &Arc<Self>, call: &Call<'_>, ended: Ended<E>) {
        if call.is_nested() {
            self.finish_later(ended);
        } else {
            self.finish_now(ended);
        }
    }

    /// Leaves a wait that has ended to the outermost call. A callback takes a place until it begins:
    /// that call may leave it to the executor.
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
