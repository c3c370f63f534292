//! Links: what ties a watch to its key's record, and where in the record it is. Only their form;
//! the lists that they make up are in [`watchers`](super::watchers) and
//! [`watermark_queue`](super::watermark_queue).

use std::num::NonZeroU32;

use timer_core::{TimerHandle, driver::PageSlot};

/// The value that a watermark watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watermark {
    /// Met by a value of at least this.
    pub(crate) threshold: u64,
    /// Count form: taken when met. Otherwise it stays, met, until its operation ends.
    pub(crate) counted: bool,
}

/// How many further keys are watched in one room at most.
pub(crate) const WAITERS_MAX: usize = 1 << 30;

/// Set in the number of a slot's link; without it the number is an entry's index.
pub(super) const SLOT: u32 = 1 << 31;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The ends of a list of watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends { head: NONE, tail: NONE };

    #[cfg(test)]
    pub(super) fn is_empty(self) -> bool {
        (self.head, self.tail) == (NONE, NONE)
    }
}

/// A watch's place among others of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The one before on the list, and the one after.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The record's number above, the [`WatchList`] in the two lowest bits; or [`NONE`].
    pub(super) of: u32,
}

/// Where in its record a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchList {
    Plain,
    Met,
    Unmet,
}

impl Link {
    /// Of a watch that is nowhere.
    pub(crate) const NOWHERE: Link = Link { prev: NONE, next: NONE, of: NONE };

    pub(super) fn new(place: WatchList, record: u32) -> Self {
        Link { of: record << 2 | place as u32, ..Link::NOWHERE }
    }

    pub(super) fn record(&self) -> u32 {
        self.of >> 2
    }

    pub(super) fn place(&self) -> WatchList {
        match self.of & 3 {
            0 => WatchList::Plain,
            1 => WatchList::Met,
            _ => WatchList::Unmet,
        }
    }
}

/// A key to be watched: what the key's own code had to say, so that the rest cannot panic.
#[derive(Debug)]
pub(crate) enum Known<K> {
    Record(u32),
    New(K),
}

/// The watch slot of an operation in the room of a key that is not its first: gives it back without
/// hashing or comparing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) room: u32,
    /// One above the slot: so an `Option` of a ticket costs nothing.
    above: NonZeroU32,
}

impl Ticket {
    #[inline]
    pub(super) fn new(room: u32, slot: u32) -> Self {
        Ticket { room, above: NonZeroU32::MIN.saturating_add(slot) }
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.above.get() - 1
    }
}

/// The watch of an operation under a key that is not its first. It keeps its slot until the
/// operation has ended, also when it was taken off its key.
#[derive(Debug)]
pub(super) struct Further {
    pub(super) id: Option<TimerHandle>,
    pub(super) link: Link,
    /// The watch that was set before, unless that is the first key's.
    pub(super) before: Option<Ticket>,
}

impl PageSlot for Further {
    const PAGE_BITS: u32 = 4;
    const MAX: u32 = WAITERS_MAX as u32;

    fn vacant() -> Self {
        Further { id: None, link: Link::NOWHERE, before: None }
    }
}

/// A walk that did not get to the end of its list in one go.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) number: u64,
    pub(super) next: u32,
    pub(super) last: u32,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkOn {
    /// The list's end was reached.
    Done,
    /// There is more: call `walk_on` with this number, or `end_walk`.
    Walk(u64),
}

/// What taking met watermark watches came to.
#[derive(Debug)]
pub(crate) struct Popped<K> {
    /// None at or below the value is left.
    pub(crate) all: bool,
    /// The key, if nobody waits for it any more.
    pub(crate) left: Option<K>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_watch_costs_32_bytes() {
        assert_eq!(size_of::<Further>(), 32);
    }
}
