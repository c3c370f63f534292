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
    num::NonZeroU32,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crossbeam_utils::CachePadded;

use crate::{
    stats::WheelTally,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, Unparker, planted},
    timer::Driver,
    wheel::{DueTask, Full, MAX_TASKS, TaskId, TimingWheel, Turn},
};

/// The most shards an owner's wheels can have.
pub const MAX_SHARDS: usize = 64;

/// A count that no lock goes with.
pub type Count = std::sync::atomic::AtomicU64;

const INDEX_BITS: u32 = MAX_TASKS.trailing_zeros();

/// Names a task on sharded wheels: shard, index and generation in 64 bits. Never reused by those
/// wheels, and meaningless to any others: there it may name a task of theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerHandle {
    /// One above the generation, so that an `Option` of a handle costs nothing.
    generation: NonZeroU32,
    shard_and_index: u32,
}

impl TimerHandle {
    #[inline]
    fn new(shard: usize, id: TaskId) -> Self {
        let shard_and_index = (shard as u32) << INDEX_BITS | id.index();
        TimerHandle { generation: NonZeroU32::MIN.saturating_add(id.generation()), shard_and_index }
    }

    /// The shard that keeps the task.
    #[inline]
    pub fn shard(self) -> usize {
        (self.shard_and_index >> INDEX_BITS) as usize
    }

    /// The task's name on that shard's wheel.
    #[inline]
    pub fn id(self) -> TaskId {
        TaskId::from_parts(self.shard_and_index & (MAX_TASKS - 1), self.generation.get() - 1)
    }

    /// The handle as a number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.shard_and_index)
    }
}

impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerHandle({}:{:?})", self.shard(), self.id())
    }
}

/// How wheels tell their timer that one of them has work earlier than it knows of.
#[derive(Debug)]
pub struct Bell {
    /// A bit for each shard.
    rung: AtomicU64,
    reaper: Option<Unparker>,
    /// The timer's: what wheels that are gone had cancelled.
    cancelled: Arc<Count>,
}

impl Bell {
    /// A bell that wakes `reaper`, or nobody; wheels that are dropped leave to `cancelled` how many tasks
    /// were cancelled on them.
    pub fn new(reaper: Option<Unparker>, cancelled: Arc<Count>) -> Self {
        Bell { rung: AtomicU64::new(0), reaper, cancelled }
    }

    fn ring(&self, shard: usize) {
        self.rung.fetch_or(1 << shard, Ordering::Release);
        if let Some(reaper) = &self.reaper {
            reaper.unpark();
        }
    }

    /// The shards rung since the last call, a bit each.
    pub(crate) fn take(&self) -> u64 {
        self.rung.swap(0, Ordering::Acquire)
    }
}

/// Sharded wheels of tasks `T`, with a state `S` of the owner's under each shard's lock.
pub struct Shards<T, S> {
    shards: Box<[Padded<T, S>]>,
    bell: Arc<Bell>,
    in_order: bool,
}

impl<T, S> fmt::Debug for Shards<T, S> {
    /// How many there are: what is on them may be the user's, and would be printed under the locks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("count", &self.shards.len()).finish_non_exhaustive()
    }
}

type Padded<T, S> = CachePadded<Mutex<Shard<T, S>>>;

/// One wheel, what its owner keeps beside it, and when the timer means to come by.
#[derive(Debug)]
pub struct Shard<T, S> {
    wheel: TimingWheel<T>,
    /// The owner's.
    pub state: S,
    /// Wake before: see the module.
    wake_before: u64,
}

impl<T, S: Default> Shards<T, S> {
    /// Wheels for `driver`, still to be [attached](Driver::attach) by their owner.
    pub fn new(driver: &dyn Driver) -> Self {
        let count = driver.shards();
        let size = driver.wheel_size();
        let now = driver.tick().round_down(driver.now_ns());
        let shard = |number: usize| {
            let phase = phase(size.slots() as u64, number as u64, count as u64);
            let wheel = TimingWheel::with_phase(size, now, phase);
            CachePadded::new(Mutex::new(Shard {
                wheel,
                state: S::default(),
                wake_before: u64::MAX,
            }))
        };
        Shards {
            shards: (0..count).map(shard).collect(),
            bell: driver.bell(),
            in_order: driver.in_order(),
        }
    }
}

/// How far a shard's coarse buckets are shifted: a fraction of a bucket of levels 1 to 3 each (at 1 ms
/// and 64 slots: of 64 ms, 4 s and 4 min), so that the shards hand theirs down one after the other.
fn phase(slots: u64, number: u64, count: u64) -> u64 {
    let spans = std::iter::successors(Some(slots), |span| span.checked_mul(slots)).take(3);
    spans.map(|span| span / count * number + span % count * number / count).sum()
}

impl<T, S> Shards<T, S> {
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
    pub fn lock(&self, shard: usize) -> ShardGuard<'_, T, S> {
        let shard = shard & (self.shards.len() - 1);
        ShardGuard {
            guard: self.shards[shard].lock(),
            ringer: Ringer { bell: &self.bell, shard, ring: false },
        }
    }

    /// Sums `count` over the shards, locking one after the other. Exact when nothing moves.
    pub fn sum(&self, count: impl Fn(&Shard<T, S>) -> usize) -> usize {
        self.shards.iter().map(|shard| count(&shard.lock())).sum()
    }

    /// Adds what these wheels hold at `now`, and have cancelled. O(shards × buckets).
    pub fn tally(&self, now: u64, tally: &mut WheelTally) {
        for shard in &self.shards {
            shard.lock().wheel.tally(now, tally);
        }
    }

    /// Turns a shard's wheel to `now` with `budget` units of work under one lock: calls `sink` for
    /// each due task and returns what it gave. `sink` is called under the lock.
    pub fn turn<R>(
        &self,
        shard: usize,
        now: u64,
        budget: usize,
        mut sink: impl FnMut(TimerHandle, DueTask<'_, T>, &mut S) -> Option<R>,
    ) -> Turned<R> {
        let mut due = Vec::new();
        let mut order = Vec::new();
        let in_order = self.in_order;
        let budget = if in_order { usize::MAX } else { budget }; // order needs the whole tick
        let mut guard = self.lock(shard);
        let number = guard.number();
        let Shard { wheel, state, wake_before } = &mut *guard.guard;
        let newest = wheel.sequence();
        let turn = wheel.advance(now, budget, |task| {
            let (deadline, sequence) = (task.deadline(), task.sequence());
            let handle = TimerHandle::new(number, task.id());
            if let Some(result) = sink(handle, task, state) {
                if in_order {
                    order.push((deadline, sequence, due.len()));
                }
                due.push(result);
            }
        });
        if !planted("a turn leaves wake-before as it was") {
            *wake_before = turn.next_due.unwrap_or(u64::MAX);
        }
        drop(guard);
        if in_order {
            due = sorted(due, order, newest);
        }
        Turned { due, turn }
    }
}

/// Puts `due` into the order of (deadline, insertion), which triples with the position tell.
/// Sequences wrap, so they are counted back from the newest.
fn sorted<R>(due: Vec<R>, mut order: Vec<(u64, u32, usize)>, newest: u32) -> Vec<R> {
    let back = |sequence| std::cmp::Reverse(newest.wrapping_sub(sequence));
    order.sort_by_key(|&(deadline, sequence, _)| (deadline, back(sequence)));
    let mut due: Vec<_> = due.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(.., position)| due[position].take()).collect()
}

/// What a turn of one shard gave.
#[derive(Debug)]
pub struct Turned<R> {
    /// What the sink returned for each due task.
    pub due: Vec<R>,
    /// What the wheel did, and when it next has work; already due when the budget ran out.
    pub turn: Turn,
}

impl<T, S> Drop for Shards<T, S> {
    fn drop(&mut self) {
        let cancelled = self.shards.iter().map(|shard| shard.lock().wheel.cancelled()).sum();
        self.bell.cancelled.fetch_add(cancelled, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A locked shard. Unlocks when dropped, and then rings if it was given earlier work.
#[derive(Debug)]
pub struct ShardGuard<'a, T, S> {
    // In this order: the lock is released before the bell is rung.
    guard: MutexGuard<'a, Shard<T, S>>,
    ringer: Ringer<'a>,
}

#[derive(Debug)]
struct Ringer<'a> {
    bell: &'a Bell,
    shard: usize,
    ring: bool,
}

impl Drop for Ringer<'_> {
    fn drop(&mut self) {
        if self.ring && !planted("nobody rings") {
            self.bell.ring(self.shard);
        }
    }
}

impl<T, S> Deref for ShardGuard<'_, T, S> {
    type Target = Shard<T, S>;

    fn deref(&self) -> &Shard<T, S> {
        &self.guard
    }
}

impl<T, S> DerefMut for ShardGuard<'_, T, S> {
    fn deref_mut(&mut self) -> &mut Shard<T, S> {
        &mut self.guard
    }
}

impl<T, S> Shard<T, S> {
    /// The wheel.
    pub fn wheel(&self) -> &TimingWheel<T> {
        &self.wheel
    }

    /// The task of a handle of this shard. O(1).
    #[inline]
    pub fn get_mut(&mut self, handle: TimerHandle) -> Option<&mut T> {
        self.wheel.get_mut(handle.id())
    }

    /// Removes a task. O(1).
    #[inline]
    pub fn remove(&mut self, handle: TimerHandle) -> Option<T> {
        self.wheel.cancel(handle.id())
    }
}

impl<T, S> ShardGuard<'_, T, S> {
    /// This shard's number.
    pub fn number(&self) -> usize {
        self.ringer.shard
    }

    /// Adds a task due at `deadline` ticks (`None`: never), `now` being the present. O(levels).
    ///
    /// # Errors
    /// [`Full`] hands the task back.
    #[inline]
    pub fn insert(
        &mut self,
        now: u64,
        deadline: Option<u64>,
        task: T,
    ) -> Result<TimerHandle, Full<T>> {
        let shard = &mut *self.guard;
        shard.wheel.catch_up(now);
        let id = match deadline {
            None => shard.wheel.insert_unscheduled(task)?,
            Some(deadline) => {
                let scheduled = shard.wheel.insert(deadline, task)?;
                if scheduled.due < shard.wake_before {
                    shard.wake_before = scheduled.due;
                    self.ringer.ring = true;
                }
                scheduled.id
            }
        };
        Ok(TimerHandle::new(self.ringer.shard, id))
    }

    /// Gives a task another deadline (`None`: never), `now` being the present; false if it is gone.
    /// O(levels).
    pub fn reschedule(&mut self, now: u64, handle: TimerHandle, deadline: Option<u64>) -> bool {
        let shard = &mut *self.guard;
        shard.wheel.catch_up(now);
        let Some(deadline) = deadline else { return shard.wheel.unschedule(handle.id()) };
        let Some(due) = shard.wheel.reschedule(handle.id(), deadline) else { return false };
        if due < shard.wake_before {
            shard.wake_before = due;
            self.ringer.ring = true;
        }
        true
    }

    /// The first task at or after an index, to visit all in bounded steps.
    pub fn first_from(&self, index: u32) -> Option<TimerHandle> {
        self.wheel.first_from(index).map(|id| TimerHandle::new(self.ringer.shard, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_shard_index_and_generation_apart() {
        let id = TaskId::from_parts(MAX_TASKS - 1, u32::MAX - 1); // the last one used
        let handle = TimerHandle::new(MAX_SHARDS - 1, id);
        assert_eq!((handle.shard(), handle.id()), (63, id));
        assert_eq!(handle.to_bits(), u64::MAX);
    }

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

    #[test]
    fn what_fell_due_is_put_into_the_order_of_insertion_even_when_the_count_wraps() {
        let order = vec![(7, 1, 0), (7, u32::MAX, 1), (7, 0, 2), (6, 2, 3)];
        assert_eq!(sorted(vec!['d', 'b', 'c', 'a'], order, 5), ['a', 'b', 'c', 'd']);
    }
}
