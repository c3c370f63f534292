//! What a log holds: a record is an id and the line of the text that it carries.

use std::fmt;

const SEQUENCE_BITS: u32 = 48;

/// Names one record: its producer and its place in that producer's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordId(u64);

impl RecordId {
    /// The id of a producer's record number `sequence`.
    pub fn new(producer: u16, sequence: u64) -> Self {
        debug_assert!(sequence < 1 << SEQUENCE_BITS);
        Self((u64::from(producer) << SEQUENCE_BITS) | sequence)
    }

    /// The producer, from 0.
    pub fn producer(self) -> usize {
        (self.0 >> SEQUENCE_BITS) as usize
    }

    /// The place in the producer's sequence, from 0.
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }

    /// The partition it belongs to: each producer deals its records round, starting at a partition
    /// of its own.
    pub fn partition(self, partitions: u32) -> u32 {
        let turn = self.sequence() + self.producer() as u64;
        (turn % u64::from(partitions)) as u32
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.producer(), self.sequence())
    }
}

/// One entry of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Which record it is.
    pub id: RecordId,
    /// The line it carries, by its number in the [`Text`](crate::text::Text).
    pub line: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_gives_back_its_parts() {
        let id = RecordId::new(u16::MAX, (1 << SEQUENCE_BITS) - 1);
        assert_eq!(id.producer(), usize::from(u16::MAX));
        assert_eq!(id.sequence(), (1 << SEQUENCE_BITS) - 1);
        assert_eq!(RecordId::new(3, 42).to_string(), "3-42");
    }

    #[test]
    fn a_producer_goes_round_all_partitions() {
        let hit: Vec<u32> =
            (0..6).map(|sequence| RecordId::new(1, sequence).partition(3)).collect();
        assert_eq!(hit, [1, 2, 0, 1, 2, 0]);
    }
}
