//! [`TimerHandle`]: the name of a task on sharded wheels.

use std::num::NonZeroU32;

use crate::wheel::node::TaskId;

/// The bit at which the shard begins in a handle's upper word.
const SHARD_AT: u32 = 24;

/// Names a task on sharded wheels: shard, index and sequence in 96 bits. Never reused by those
/// wheels. On any other wheels it is meaningless, and may name a task of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerHandle {
    /// The shard in 8 bits, and the 24 upper bits of the sequence, which has 56: enough for 228
    /// years at ten million tasks a second.
    high: u32,
    /// The 32 lower bits of the sequence.
    low: u32,
    /// One above the index, so that an `Option` of a handle costs nothing.
    above_index: NonZeroU32,
}

impl TimerHandle {
    /// Makes the public name of a task on a shard's wheel.
    #[inline]
    pub fn new(shard: usize, id: TaskId) -> Self {
        TimerHandle {
            high: (shard as u32) << SHARD_AT | (id.sequence() >> 32) as u32,
            low: id.sequence() as u32,
            above_index: NonZeroU32::MIN.saturating_add(id.index()),
        }
    }

    /// Returns the shard that keeps the task.
    pub fn shard(self) -> usize {
        (self.high >> SHARD_AT) as usize
    }

    /// Returns the index of the task on that shard's wheel, as its [`id`](Self::id) has it.
    pub fn index(self) -> u32 {
        self.above_index.get() - 1
    }

    /// Returns the task's name on that shard's wheel.
    pub fn id(self) -> TaskId {
        // The sequence's 24 upper bits lie below the shard.
        let upper = self.high & ((1 << SHARD_AT) - 1);
        let sequence = u64::from(upper) << 32 | u64::from(self.low);
        TaskId::from_parts(self.index(), sequence)
    }

    /// Returns the handle as a number. From the top: shard (8 bits), sequence (56), and one above
    /// the index (32).
    pub fn to_bits(self) -> u128 {
        u128::from(self.high) << 64
            | u128::from(self.low) << 32
            | u128::from(self.above_index.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::shards::MAX_SHARDS, wheel::node::MAX_TASKS};

    #[test]
    fn a_handle_keeps_shard_index_and_sequence_apart() {
        const { assert!(MAX_SHARDS <= 256) };
        for index in [0, 1, 2, 3, 4, MAX_TASKS / 2 + 1, MAX_TASKS - 1] {
            for sequence in [0, 1, 1 << 32, (1 << 56) - 1] {
                for shard in [0, 1, MAX_SHARDS - 1, 255] {
                    let id = TaskId::from_parts(index, sequence);
                    let handle = TimerHandle::new(shard, id);
                    assert_eq!((handle.shard(), handle.id()), (shard, id));
                    assert_eq!(handle.index(), index);
                }
            }
        }
        assert_eq!(size_of::<Option<TimerHandle>>(), 12);
    }
}
