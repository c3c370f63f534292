//! `TimerHandle`: a task's name on sharded wheels, in 64 bits.

use std::{fmt, num::NonZeroU32};

use crate::wheel::arena::{GENERATION_BITS, MAX_TASKS, TaskId};

/// The most shards an owner's wheels can have.
pub const MAX_SHARDS: usize = 256;

/// Where the shard begins in a handle's upper half, and where the index ends in its lower one.
const SHARD_AT: u32 = MAX_TASKS.trailing_zeros() + GENERATION_BITS - 32;
const INDEX_AT: u32 = GENERATION_BITS;

/// Names a task on sharded wheels: shard, index and generation in 64 bits. Never reused by those
/// wheels, and meaningless to any others: there it may name a task of theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerHandle {
    /// The shard in 8 bits, and the 24 upper bits of the index.
    high: u32,
    /// The 2 lower bits of the index, and one above the generation in 30: so it is never zero, and
    /// an `Option` of a handle costs nothing.
    low: NonZeroU32,
}

impl TimerHandle {
    /// The public name of a task on a shard's wheel.
    #[inline]
    pub fn new(shard: usize, id: TaskId) -> Self {
        TimerHandle {
            high: (shard as u32) << SHARD_AT | id.index() >> (32 - INDEX_AT),
            low: NonZeroU32::MIN.saturating_add(id.index() << INDEX_AT | id.generation()),
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
        let index = self.high << (32 - INDEX_AT) | self.low.get() >> INDEX_AT;
        let above = self.low.get() & ((1 << INDEX_AT) - 1);
        TaskId::from_parts(index & (MAX_TASKS - 1), above - 1)
    }

    /// The handle as a number. From the top: shard (8 bits), index (26), and one above the
    /// generation (30).
    pub fn to_bits(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low.get())
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
    use crate::wheel::arena::GENERATIONS;

    #[test]
    fn a_handle_keeps_shard_index_and_generation_apart() {
        const { assert!(MAX_SHARDS <= 256) };
        for index in [0, 1, 2, 3, 4, MAX_TASKS / 2 + 1, MAX_TASKS - 1] {
            for generation in [0, 1, GENERATIONS / 2, GENERATIONS - 1] {
                for shard in [0, 1, MAX_SHARDS - 1, 255] {
                    let id = TaskId::from_parts(index, generation);
                    let handle = TimerHandle::new(shard, id);
                    assert_eq!((handle.shard(), handle.id()), (shard, id));
                }
            }
        }
        let last = TimerHandle::new(255, TaskId::from_parts(MAX_TASKS - 1, GENERATIONS - 1));
        assert_eq!(last.to_bits(), u64::MAX);
        assert_eq!(size_of::<Option<TimerHandle>>(), 8);
    }
}
