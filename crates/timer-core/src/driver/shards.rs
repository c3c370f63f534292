//! Wheels for many threads: several [`TimingWheel`]s, each under its own lock, in its own cache
//! lines, with one bell for all.
//!
//! A thread that starts a timer takes the shard it is given and nothing else, so threads do not
//! write to the same memory. What the reaper needs to know is under the same lock:
//!
//! - **Wake before**: each shard holds the tick by which its timer means to come by. Whoever
//!   gives the shard work earlier than that lowers it and, after unlocking, rings. So there is no
//!   moment at which an earlier arrival is missed, and no ring for a later one. When tasks are
//!   cancelled the tick stays, and costs at most one needless visit.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crossbeam_utils::CachePadded;

use crate::{
    driver::{
        bell::Bell,
        handle::TimerHandle,
        spi::{Driver, WheelCounts},
    },
    sync::{Mutex, MutexGuard, failpoints::failpoint},
    wheel::{node::TaskId, timing_wheel::TimingWheel},
};

/// What is under a shard's lock: a wheel, and what its owner keeps beside it.
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
    pub fn new(driver: &dyn Driver, count: usize, make: impl Fn(usize) -> S) -> Self {
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

/// A wheel for one of `count` shards of `driver`. Its coarse buckets are shifted by a fraction of a
/// bucket of levels 1 to 3 each (at 1 ms and 64 slots: of 64 ms, 4 s and 4 min), so that the shards
/// hand theirs down one after the other; but not where order matters.
pub fn wheel_for<T>(driver: &dyn Driver, number: usize, count: usize) -> TimingWheel<T> {
    let size = driver.settings().wheel_size;
    let now_tick = driver.settings().tick.round_down(driver.now_ns());
    let shifted = if driver.settings().in_order { 0 } else { number as u64 };
    let phase = phase(size.slots() as u64, shifted, count as u64);
    TimingWheel::with_phase(size, now_tick, phase).handing_down_early()
}

fn phase(slots: u64, number: u64, count: u64) -> u64 {
    let spans = std::iter::successors(Some(slots), |span| span.checked_mul(slots)).take(3);
    spans.map(|span| span / count * number + span % count * number / count).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_timer_hand_down_each_levels_buckets_at_different_ticks() {
        for (slots, count) in [(64, 16), (20, 8), (64, 64)] {
            for level in 1..=3 {
                let span = u64::pow(slots, level);
                let mut at: Vec<_> = (0..count).map(|n| phase(slots, n, count) % span).collect();
                at.sort_unstable();
                at.dedup();
                let distinct = count.min(span) as usize;
                assert_eq!(at.len(), distinct, "level {level} of {slots} slots, {count} shards");
                let widest = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
                assert!(widest <= 2 * span / count + 1, "bunched on level {level}: {at:?}");
            }
        }
    }
}
