//! Entries reserved ahead: one in each shard, for the next operation with several keys.
//!
//! A watch names its operation's entry. So an operation with several keys needs that name before it
//! watches the first of them, though it is put in last. The shard that puts one in reserves an
//! entry for the next, and leaves its name here. A parker takes the name without the shard's lock.
//!
//! - **One taker**: a name is taken by a swap. The shard leaves another one only once the entry of
//!   that name has its operation, or is removed. So nobody writes while a taker still reads.

use timer_core::{TaskId, TimerHandle};

use crate::sync::{AtomicU64, Ordering};

/// The names of reserved entries, by shard.
#[derive(Debug)]
pub(crate) struct Reserves {
    /// None are kept where parking has to lock the shard first.
    shards: Box<[Reserve]>,
}

/// The name of one entry, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Reserve {
    /// One above the entry's index; 0 when it was taken.
    above: AtomicU64,
    /// Written before the index, and read after it.
    sequence: AtomicU64,
}

impl Reserves {
    /// Makes room for this many shards.
    pub(crate) fn new(shards: usize) -> Self {
        Reserves {
            shards: std::iter::repeat_with(Reserve::default)
                .take(shards)
                .collect(),
        }
    }

    /// Returns true if shards are to leave names here.
    pub(crate) fn are_kept(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Takes the name of a shard's reserved entry, if there is one.
    #[inline]
    pub(crate) fn take(&self, shard: usize) -> Option<TimerHandle> {
        let reserve = self.shards.get(shard)?;
        let above = if failpoint!(ReserveTakenTwice) {
            reserve.above.load(Ordering::Acquire)
        } else {
            reserve.above.swap(0, Ordering::Acquire)
        };
        let index = above.checked_sub(1)?;
        let sequence = reserve.sequence.load(Ordering::Relaxed);
        let id = TaskId::from_parts(index as u32, sequence);
        Some(TimerHandle::new(shard, id))
    }

    /// Leaves the name of a reserved entry. The caller holds its shard's lock, and the last name
    /// was taken and used.
    #[inline]
    pub(crate) fn leave(&self, handle: TimerHandle) {
        let reserve = &self.shards[handle.shard()];
        let above = u64::from(handle.id().index()) + 1;
        if failpoint!(ReserveNamedEarly) {
            reserve.above.store(above, Ordering::Release);
        }
        let sequence = handle.id().sequence();
        reserve.sequence.store(sequence, Ordering::Relaxed);
        reserve.above.store(above, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once() {
        let reserves = Reserves::new(2);
        let handle = TimerHandle::new(1, TaskId::from_parts(0, 1 << 40));
        reserves.leave(handle);
        let taken = [0, 1, 1].map(|shard| reserves.take(shard));
        assert_eq!(taken, [None, Some(handle), None]);
    }
}
