//! Links, which tie a watch to its key's record, and secondary watches.
//!
//! The lists that links make up are in [`watchers`](super::watchers) and
//! [`key_extras`](super::key_extras).

use std::num::NonZeroU32;

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

    #[cfg(test)]
    pub(super) fn is_empty(self) -> bool {
        (self.head, self.tail) == (NONE, NONE)
    }
}

/// Set in the number of a secondary watch's link; without it the number is an entry's index.
pub(super) const SLOT: u32 = 1 << 31;

/// The place of a watch among the others of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The link before on the list, and the link after.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The record's number above the three lowest bits, which are the [`WatchList`]; or [`NONE`].
    pub(super) list_of_record: u32,
}

/// The list of its key's record that a watch is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchList {
    /// Watches without a watermark.
    Plain,
    /// Watermark watches that were met and wait for their check to come true.
    Met,
    /// Watermark watches that are not met.
    Unmet,
    /// Watches of quorums' members that are met.
    MemberMet,
    /// Watches of operations that are checked in turn: the first one alone.
    InTurn,
}

/// The bits of a link that say its list. [`NONE`] is no list.
const LIST_BITS: u32 = 7;

impl Link {
    /// The link of a watch that is on no list.
    pub(super) const NOWHERE: Link = Link {
        prev: NONE,
        next: NONE,
        list_of_record: NONE,
    };

    pub(super) fn new(list: WatchList, record: u32) -> Self {
        Link {
            list_of_record: record << 3 | list as u32,
            ..Link::NOWHERE
        }
    }

    pub(super) fn is_nowhere(&self) -> bool {
        self.list_of_record == NONE
    }

    /// True for the first watch of a list in turn.
    #[inline]
    pub(super) fn is_head_in_turn(&self) -> bool {
        self.list_of_record & LIST_BITS == WatchList::InTurn as u32 && self.prev == NONE
    }

    /// Returns the link behind it on its list.
    pub(super) fn behind(&self) -> Option<u32> {
        if self.next == NONE {
            None
        } else {
            Some(self.next)
        }
    }

    /// True for a watch in turn that is not the first.
    pub(super) fn waits_behind(&self) -> bool {
        self.list_of_record & LIST_BITS == WatchList::InTurn as u32 && self.prev != NONE
    }

    /// True when it is on this list of this record.
    pub(super) fn is_on(&self, list: WatchList, record: u32) -> bool {
        self.list_of_record == Link::new(list, record).list_of_record
    }

    pub(super) fn record(&self) -> u32 {
        self.list_of_record >> 3
    }

    /// True for a watch without a watermark, as most are.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.list_of_record & LIST_BITS == WatchList::Plain as u32
    }

    /// Returns the list of a watch that is on one.
    pub(super) fn list(&self) -> WatchList {
        match self.list_of_record & LIST_BITS {
            0 => WatchList::Plain,
            1 => WatchList::Met,
            2 => WatchList::Unmet,
            3 => WatchList::MemberMet,
            4 => WatchList::InTurn,
            _ => unreachable!("nowhere is on no list"),
        }
    }
}

/// Names a secondary watch: its shard, and its slot there. So it is released without hashing or
/// comparing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondaryId {
    pub(crate) shard: u32,
    /// One above the slot: so an `Option` of this costs nothing.
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

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.above.get() - 1
    }
}

/// The watch of an operation under a key that is not its first. It keeps its slot until the
/// operation has ended, also when it was taken off its key.
#[derive(Debug)]
pub(super) struct SecondaryWatch {
    /// The operation; `None` while the slot is free.
    pub(super) handle: Option<TimerHandle>,
    pub(super) link: Link,
    /// The watch that was set before, unless that is the first key's.
    pub(super) before: Option<SecondaryId>,
}

/// The secondary watches of a shard.
pub(super) type SecondaryWatches = Pages<SecondaryWatch, 64>;

impl PageSlot for SecondaryWatch {
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        SecondaryWatch {
            handle: None,
            link: Link::NOWHERE,
            before: None,
        }
    }
}

/// Names a walk that is under way in a shard. Never reused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkId(pub(super) u64);

/// The rest of a walk that did not get to the end of its list in one step.
#[derive(Debug)]
pub(super) struct WalkCursor {
    pub(super) id: WalkId,
    /// The link to go on with; [`NONE`] when the rest has left the list.
    pub(super) next: u32,
    /// The last link of the walk.
    pub(super) last: u32,
}

/// The state of a key after some of its watermark watches were taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Popped<K> {
    /// The limit was used up, and more can be taken.
    More,
    /// No watch that is met remains.
    Done,
    /// No watch of the key remains: the key, to be dropped after the unlock.
    Emptied(K),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secondary_watch_costs_32_bytes() {
        assert_eq!(size_of::<SecondaryWatch>(), 32);
    }
}
