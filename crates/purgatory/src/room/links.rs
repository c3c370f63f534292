//! Links: what ties a watch to its key's record, and where in the record it is. Only their form;
//! the lists that they make up are in [`watchers`](super::watchers) and
//! [`watermark_queue`](super::watermark_queue).

use timer_core::MAX_SHARDS;

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

/// So many fit into the entry.
const FEW: usize = 3;

/// The watch slot of an operation in the room of a key that is not its first: gives it back without
/// hashing or comparing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) room: u32,
    pub(crate) slot: u32,
}

/// The watch slots of an operation, in the order of its keys: none if it has one key.
#[derive(Debug)]
pub(crate) enum Tickets {
    Few(Few),
    #[expect(clippy::box_collection, reason = "a thin pointer, so that all of it takes 16 bytes")]
    Many(Box<Vec<Ticket>>),
}

#[derive(Debug)]
pub(crate) struct Few {
    slots: [u32; FEW],
    rooms: [u8; FEW],
    count: Count,
}

/// How many there are. Its unused values tell the two forms of [`Tickets`] apart.
#[derive(Clone, Copy, Debug)]
enum Count {
    Zero,
    One,
    Two,
    Three,
}

const _: () = assert!(MAX_SHARDS <= 1 << u8::BITS, "a room's number fits in 8 bits");

impl Default for Tickets {
    fn default() -> Self {
        Tickets::Few(Few { slots: [0; FEW], rooms: [0; FEW], count: Count::Zero })
    }
}

impl Extend<Ticket> for Tickets {
    #[inline]
    fn extend<I: IntoIterator<Item = Ticket>>(&mut self, tickets: I) {
        tickets.into_iter().for_each(|ticket| self.push(ticket));
    }
}

impl Tickets {
    /// None yet, with room for this many.
    #[inline]
    pub(crate) fn with_capacity(count: usize) -> Self {
        match count {
            0..=FEW => Tickets::default(),
            _ => Tickets::Many(Box::new(Vec::with_capacity(count))),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Tickets::Few(few) => few.count as usize,
            Tickets::Many(many) => many.len(),
        }
    }

    #[inline]
    fn push(&mut self, ticket: Ticket) {
        let few = match self {
            Tickets::Few(few) => few,
            Tickets::Many(many) => return many.push(ticket),
        };
        let (at, count) = match few.count {
            Count::Zero => (0, Count::One),
            Count::One => (1, Count::Two),
            Count::Two => (2, Count::Three),
            Count::Three => {
                let many = self.iter().chain([ticket]).collect();
                *self = Tickets::Many(Box::new(many));
                return;
            }
        };
        (few.slots[at], few.rooms[at], few.count) = (ticket.slot, ticket.room as u8, count);
    }

    /// Takes the last `count` away, if there are many.
    pub(crate) fn take_last(&mut self, count: usize) -> Vec<Ticket> {
        match self {
            Tickets::Few(_) => Vec::new(),
            Tickets::Many(many) => many.split_off(many.len().saturating_sub(count)),
        }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Ticket> {
        (0..self.len()).map(move |at| match self {
            Tickets::Few(few) => Ticket { room: u32::from(few.rooms[at]), slot: few.slots[at] },
            Tickets::Many(many) => many[at],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_as_they_were_given_few_or_many() {
        let (mut tickets, mut given) = (Tickets::default(), Vec::new());
        for at in 0..9 {
            assert!(tickets.iter().eq(given.iter().copied()) && tickets.len() == given.len());
            assert_eq!(matches!(tickets, Tickets::Few(_)), at <= 3);
            let ticket = Ticket { room: (MAX_SHARDS - 1) as u32 - at, slot: u32::MAX - at };
            tickets.extend([ticket]);
            given.push(ticket);
        }
    }

    #[test]
    fn they_take_16_bytes() {
        assert_eq!(size_of::<Tickets>(), 16);
    }
}
