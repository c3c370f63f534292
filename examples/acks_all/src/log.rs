//! One replica's log of one partition: appended at its end, read from any offset it still has, cut
//! at its start when every replica holds a prefix and the audit has seen it. So memory follows what
//! is not replicated yet, not the length of the run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// One entry of a log: whose record it is, its place in that producer's sequence, and the line it
/// carries, by its number in the [`Text`](crate::text::Text).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The producer, from 0.
    pub producer: u16,
    /// The line.
    pub line: u32,
    /// The place in the producer's sequence, from 0.
    pub sequence: u64,
}

/// Records in order; the offset of a record is its number since the log began.
#[derive(Debug, Default)]
pub struct Log {
    start: u64,
    records: VecDeque<Record>,
}

impl Log {
    /// The log start offset: the first that is kept.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The log end offset: the one the next record gets.
    pub fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    /// Appends one record; returns the new log end offset.
    pub fn push(&mut self, record: Record) -> u64 {
        self.records.push_back(record);
        self.end()
    }

    /// Copies the records from offset `from` on to the end of `into`, at most `max` of them.
    ///
    /// # Panics
    /// When `from` was cut off, or lies beyond the end.
    pub fn read(&self, from: u64, max: usize, into: &mut Vec<Record>) {
        let skip = (from - self.start) as usize;
        let taken = max.min(self.records.len() - skip);
        into.extend(self.records.range(skip..skip + taken));
    }

    /// Gives back what lies below `offset`.
    pub fn cut_below(&mut self, offset: u64) {
        let cut = offset.min(self.end()).saturating_sub(self.start);
        self.records.drain(..cut as usize);
        self.start += cut;
    }
}

/// A follower's copy of a log, with its end where others can see it without the lock.
#[derive(Debug, Default)]
pub struct FollowerLog {
    log: Mutex<Log>,
    end: AtomicU64,
}

impl FollowerLog {
    /// The log end offset; what lies below it is in the log.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Appends what was fetched.
    pub fn append(&self, records: &[Record]) {
        let mut log = self.log.lock();
        log.records.extend(records);
        self.end.store(log.end(), Ordering::Release);
    }

    /// Looks at the log under its lock.
    pub fn with<R>(&self, look: impl FnOnce(&mut Log) -> R) -> R {
        look(&mut self.log.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_from_any_offset_that_is_not_cut_off() {
        let record = |sequence| Record { producer: 0, line: 0, sequence };
        let mut log = Log::default();
        for n in 0..10 {
            assert_eq!(log.push(record(n)), n + 1);
        }
        log.cut_below(4);
        for (from, max) in [(4, usize::MAX), (5, 3), (9, 9), (10, 9)] {
            let mut read = Vec::new();
            log.read(from, max, &mut read);
            assert_eq!(read, (from..10).take(max).map(record).collect::<Vec<_>>());
        }
        log.cut_below(u64::MAX);
        assert_eq!((log.start(), log.end(), log.push(record(9))), (10, 10, 11));
    }
}
