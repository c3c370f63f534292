//! The watches of an operation's further keys, by the slots that they have: up to three lie in the
//! operation's entry, so that up to four keys need no allocation for them; more have a block of
//! their own.

use timer_core::MAX_SHARDS;

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
    /// None yet, with room for so many.
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
        (0..self.len()).map(|at| match self {
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
