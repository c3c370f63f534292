//! Wheels for many threads: several [`TimingWheel`]s, each under its own lock, in its own cache
//! lines, with one bell for all.
//!
//! A thread that starts a timer takes the shard it is given and nothing else, so threads do not
//! write to the same memory. What the reaper needs to know is under the same lock:
//!
//! - **Wake before**: each shard holds the tick by which its timer means to come by. A thread that
//!   gives the shard earlier work lowers it and, after unlocking, rings. So there is no moment at
//!   which an earlier arrival is missed, and no ring for a later one. When tasks are cancelled the
//!   tick stays, and costs at most one needless visit.

use std::{
    fmt,
    num::NonZeroU32,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crossbeam_utils::CachePadded;

use crate::{
    driver::{driver::Driver, owner::WheelCounts, reaper::Bell},
    sync::{Mutex, MutexGuard, failpoints::failpoint},
    wheel::{node::TaskId, timing_wheel::TimingWheel},
};

/// A shard, under its lock: a wheel, and what its owner keeps beside it.
pub trait ShardState {
    /// The wheel's.
    fn counts(&self) -> WheelCounts;
}

impl<T> ShardState for TimingWheel<T> {
    fn counts(&self) -> WheelCounts {
        WheelCounts::of(self)
    }
}

/// Sharded wheels: an `S`, which has a wheel, under each shard's lock.
pub struct Shards<S: ShardState> {
    shards: Box<[CachePadded<Mutex<Shard<S>>>]>,
    bell: Arc<Bell>,
}

impl<S: ShardState> fmt::Debug for Shards<S> {
    /// How many there are: what is on them may be the user's, and would be printed under the locks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("count", &self.shards.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shard<S> {
    state: S,
    /// Wake before: see the module.
    wake_before_tick: u64,
}

impl<S: ShardState> Shards<S> {
    /// So many shards (a power of two), made by number, for `driver`: still to be
    /// [attached](Driver::attach) by their owner.
    pub fn new(driver: &Driver, count: usize, make: impl Fn(usize) -> S) -> Self {
        let shard = |number| Shard { state: make(number), wake_before_tick: u64::MAX };
        let locked = |number| CachePadded::new(Mutex::new(shard(number)));
        Shards { shards: (0..count).map(locked).collect(), bell: driver.bell(count) }
    }

    /// How many shards there are: a power of two.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// The bell to attach these wheels with.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Locks a shard; numbers beyond the last wrap around.
    #[inline]
    pub fn lock(&self, shard: usize) -> ShardGuard<'_, S> {
        let shard = shard & (self.shards.len() - 1);
        ShardGuard {
            guard: self.shards[shard].lock(),
            ringer: Ringer { bell: &self.bell, shard, ring: false },
        }
    }

    /// Sums `count` over the shards, locking one after the other. Exact when nothing moves.
    pub fn sum(&self, count: impl Fn(&S) -> usize) -> usize {
        self.shards.iter().map(|shard| count(&shard.lock().state)).sum()
    }

    /// The sum over the wheels. O(shards).
    pub fn counts(&self) -> WheelCounts {
        self.shards.iter().map(|shard| shard.lock().state.counts()).sum()
    }
}

impl<S: ShardState> Drop for Shards<S> {
    fn drop(&mut self) {
        self.bell.leave_cancelled(self.counts().cancelled);
    }
}

/// A locked shard. Unlocks when dropped, and then rings if it was given earlier work.
#[derive(Debug)]
#[must_use = "dropped at once, it unlocks at once"]
pub struct ShardGuard<'a, S> {
    // In this order: the lock is released before the bell is rung.
    guard: MutexGuard<'a, Shard<S>>,
    ringer: Ringer<'a>,
}

#[derive(Debug)]
struct Ringer<'a> {
    bell: &'a Bell,
    shard: usize,
    ring: bool,
}

impl Drop for Ringer<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.ring && !failpoint!(NobodyRings) {
            self.bell.ring(self.shard);
        }
    }
}

impl<S> Deref for ShardGuard<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.guard.state
    }
}

impl<S> DerefMut for ShardGuard<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.guard.state
    }
}

impl<S> ShardGuard<'_, S> {
    /// This shard's number.
    #[inline]
    pub fn number(&self) -> usize {
        self.ringer.shard
    }

    /// The public name of a task on this shard's wheel.
    #[inline]
    pub fn handle(&self, id: TaskId) -> TimerHandle {
        TimerHandle::new(self.ringer.shard, id)
    }

    /// The wheel was given work that is due at this tick.
    #[inline]
    pub fn work_at(&mut self, due_tick: u64) {
        if due_tick < self.guard.wake_before_tick {
            self.guard.wake_before_tick = due_tick;
            self.ringer.ring = true;
        }
    }

    /// The wheel was turned, for the timer, and next has work at this tick.
    pub fn advanced(&mut self, next_due_tick: Option<u64>) {
        if !failpoint!(TurnLeavesWakeBefore) {
            self.guard.wake_before_tick = next_due_tick.unwrap_or(u64::MAX);
        }
    }
}

/// The most shards an owner's wheels can have.
pub const MAX_SHARDS: usize = 256;

/// Where the shard begins in a handle's upper word.
const SHARD_AT: u32 = 24;

/// Names a task on sharded wheels: shard, index and sequence in 96 bits. Never reused by those
/// wheels, and meaningless to any others: there it may name a task of theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerHandle {
    /// The shard in 8 bits, and the 24 upper ones of the sequence's 56: they last for 228 years at
    /// ten million tasks a second.
    high: u32,
    /// The 32 lower bits of the sequence.
    low: u32,
    /// One above the index: so an `Option` of a handle costs nothing.
    above: NonZeroU32,
}

impl TimerHandle {
    /// The public name of a task on a shard's wheel.
    #[inline]
    pub fn new(shard: usize, id: TaskId) -> Self {
        TimerHandle {
            high: (shard as u32) << SHARD_AT | (id.sequence() >> 32) as u32,
            low: id.sequence() as u32,
            above: NonZeroU32::MIN.saturating_add(id.index()),
        }
    }

    /// The shard that keeps the task.
    #[inline]
    pub fn shard(self) -> usize {
        (self.high >> SHARD_AT) as usize
    }

    /// The task's name on that shard's wheel.
    #[inline]
    pub fn id(self) -> TaskId {
        let upper = self.high & ((1 << SHARD_AT) - 1);
        let sequence = u64::from(upper) << 32 | u64::from(self.low);
        TaskId::from_parts(self.above.get() - 1, sequence)
    }

    /// The handle as a number. From the top: shard (8 bits), sequence (56), and one above the index
    /// (32).
    pub fn to_bits(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low) << 32 | u128::from(self.above.get())
    }
}

impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerHandle({}:{:?})", self.shard(), self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::node::MAX_TASKS;

    #[test]
    fn a_handle_keeps_shard_index_and_sequence_apart() {
        const { assert!(MAX_SHARDS <= 256) };
        for index in [0, 1, 2, 3, 4, MAX_TASKS / 2 + 1, MAX_TASKS - 1] {
            for sequence in [0, 1, 1 << 32, (1 << 56) - 1] {
                for shard in [0, 1, MAX_SHARDS - 1, 255] {
                    let id = TaskId::from_parts(index, sequence);
                    let handle = TimerHandle::new(shard, id);
                    assert_eq!((handle.shard(), handle.id()), (shard, id));
                }
            }
        }
        assert_eq!(size_of::<Option<TimerHandle>>(), 12);
    }
}
