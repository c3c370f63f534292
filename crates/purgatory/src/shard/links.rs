//! Links, each of which ties a watch to its key's record, and secondary watches.
//!
//! The lists that links form are in [`watchers`](super::watchers).

use std::num::NonZeroU32;

use smallvec::SmallVec;
use timer_core::{
    TimerHandle,
    driver::{PageSlot, Pages},
};

/// The most secondary watches that one shard can have, and the most keys.
pub(crate) const WAITERS_MAX: usize = 1 << 28;

/// No link.
pub(super) const NONE: u32 = u32::MAX;

/// The ends of a list of watches: its first and its last link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends {
        head: NONE,
        tail: NONE,
    };
}

/// The data in the record of a key that has waiters.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) waiters: u32,
    /// Its watches, in the order in which they were set.
    pub(super) watches: Ends,
}

impl Waited {
    /// The data of a new key, which gets a waiter in the same lock hold.
    pub(super) const NEW: Waited = Waited {
        waiters: 0,
        watches: Ends::EMPTY,
    };
}

/// Set in the number of a secondary watch's link; without it the number is an entry's index.
pub(super) const SLOT: u32 = 1 << 31;

/// The place of a watch among the others of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The links before and after it on the list.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The number of its key's record.
    record: u32,
}

impl Link {
    /// Makes the link of a watch that is put behind `prev` on the list of a record.
    #[inline(always)]
    pub(super) fn new(record: u32, prev: u32) -> Self {
        Link {
            prev,
            next: NONE,
            record,
        }
    }

    pub(super) fn record(&self) -> u32 {
        self.record
    }
}

/// Names a secondary watch by its shard and its slot there, so that it is released without hashing
/// or comparing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondaryId {
    pub(crate) shard: u32,
    /// One more than the slot, so that an `Option` of this costs nothing.
    above: NonZeroU32,
}

impl SecondaryId {
    #[inline]
    pub(super) fn new(shard: u32, slot: u32) -> Self {
        SecondaryId {
            shard,
            above: NonZeroU32::MIN.saturating_add(slot),
        }
    }

    pub(super) fn slot(self) -> u32 {
        self.above.get() - 1
    }
}

/// The watch of an operation under a key that is not its first. It keeps its slot until the
/// operation has ended.
#[derive(Debug)]
pub(super) struct SecondaryWatch {
    /// The operation; `None` while the slot is free.
    pub(super) handle: Option<TimerHandle>,
    pub(super) link: Link,
    /// The watch that was set before this one, unless that is the first key's.
    pub(super) before: Option<SecondaryId>,
}

/// The secondary watches of a shard.
pub(super) type SecondaryWatches = Pages<SecondaryWatch, 64>;

impl PageSlot for SecondaryWatch {
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        SecondaryWatch {
            handle: None,
            link: Link::new(NONE, NONE),
            before: None,
        }
    }
}

/// Waiters that a walk has found. Most keys have one.
pub(crate) type Waiters = SmallVec<[TimerHandle; 4]>;

/// Names a walk that is under way in a shard. It is never reused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkId(pub(super) u64);

/// The rest of a walk that did not reach the end of its list in one step.
#[derive(Debug)]
pub(super) struct WalkCursor {
    pub(super) id: WalkId,
    /// The link from which to go on; [`NONE`] if the rest has left the list.
    pub(super) next: u32,
    /// The last link of the walk.
    pub(super) last: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secondary_watch_costs_32_bytes() {
        assert_eq!(size_of::<SecondaryWatch>(), 32);
    }
}
