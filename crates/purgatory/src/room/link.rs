//! Links: what ties a watch to its key's record, and where in the record it is. Only their form;
//! the lists that they make up are in [`lists`](super::lists) and
//! [`watermarks`](super::watermarks).

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
    /// The one before on the list, or the position among those not met.
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
    Unmet(Unmet),
}

impl WatchList {
    fn bits(self) -> u32 {
        match self {
            WatchList::Plain => 0,
            WatchList::Met => 1,
            WatchList::Unmet(Unmet::Run) => 2,
            WatchList::Unmet(Unmet::Heap) => 3,
        }
    }
}

impl Link {
    /// Of a watch that is nowhere.
    pub(crate) const NOWHERE: Link = Link { prev: NONE, next: NONE, of: NONE };

    pub(super) fn new(place: WatchList, record: u32) -> Self {
        Link { of: record << 2 | place.bits(), ..Link::NOWHERE }
    }

    pub(super) fn record(&self) -> u32 {
        self.of >> 2
    }

    pub(super) fn place(&self) -> WatchList {
        match self.of & 3 {
            0 => WatchList::Plain,
            1 => WatchList::Met,
            2 => WatchList::Unmet(Unmet::Run),
            _ => WatchList::Unmet(Unmet::Heap),
        }
    }
}

/// Where a watch that is not met is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    Run,
    Heap,
}
