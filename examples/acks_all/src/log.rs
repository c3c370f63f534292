//! One replica's log of one partition: appended at its end, read from any offset it still has, cut
//! at its start.
//!
//! Records lie in segments, so that a prefix that every replica holds and the audit has seen can be
//! given back: memory follows what is not replicated yet, not the length of the run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::record::Record;

const SEGMENT: usize = 512;

/// Records in order; the offset of a record is its number since the log began.
#[derive(Debug, Default)]
pub struct Log {
    start: u64,
    end: u64,
    segments: VecDeque<Vec<Record>>,
}

impl Log {
    /// The log start offset: the first that is kept.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The log end offset: the one the next record gets.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends one record; returns the new log end offset.
    pub fn push(&mut self, record: Record) -> u64 {
        match self.segments.back_mut().filter(|last| last.len() < SEGMENT) {
            Some(last) => last.push(record),
            // It grows with what is in it: a topic may have thousands of partitions with little in
            // each.
            None => self.segments.push_back(vec![record]),
        }
        self.end += 1;
        self.end
    }

    /// Copies the records from offset `from` on to the end of `into`, at most `max` of them.
    ///
    /// # Panics
    /// When `from` was cut off, or lies beyond the end.
    pub fn read(&self, from: u64, max: usize, into: &mut Vec<Record>) {
        assert!(
            (self.start..=self.end).contains(&from),
            "offset {from} is not in {}..={}",
            self.start,
            self.end
        );
        let skip = (from - self.start) as usize;
        let mut left = max.min((self.end - from) as usize);
        let (mut segment, mut place) = (skip / SEGMENT, skip % SEGMENT);
        while left > 0 {
            let records = &self.segments[segment][place..];
            let taken = left.min(records.len());
            into.extend_from_slice(&records[..taken]);
            left -= taken;
            (segment, place) = (segment + 1, 0);
        }
    }

    /// Gives back the whole segments that lie below `offset`.
    pub fn cut_below(&mut self, offset: u64) {
        while self.start + SEGMENT as u64 <= offset.min(self.end) {
            self.segments.pop_front();
            self.start += SEGMENT as u64;
        }
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
        for record in records {
            log.push(*record);
        }
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
    use crate::record::RecordId;

    fn record(n: u64) -> Record {
        Record { id: RecordId::new(0, n), line: n as u32 }
    }

    #[test]
    fn reads_across_segments_what_was_appended() {
        let mut log = Log::default();
        let length = 3 * SEGMENT as u64 + 5;
        for n in 0..length {
            assert_eq!(log.push(record(n)), n + 1);
        }
        for (from, max) in [(0, usize::MAX), (SEGMENT as u64 - 1, 3), (length - 1, 9), (length, 9)]
        {
            let mut read = Vec::new();
            log.read(from, max, &mut read);
            let expected: Vec<Record> = (from..length).take(max).map(record).collect();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn cutting_gives_back_whole_segments_below_the_offset() {
        let mut log = Log::default();
        for n in 0..2 * SEGMENT as u64 {
            log.push(record(n));
        }
        log.cut_below(SEGMENT as u64 - 1);
        assert_eq!(log.start(), 0);
        log.cut_below(SEGMENT as u64 + 7);
        assert_eq!((log.start(), log.segments.len()), (SEGMENT as u64, 1));
        let mut read = Vec::new();
        log.read(SEGMENT as u64 + 1, 1, &mut read);
        assert_eq!(read, [record(SEGMENT as u64 + 1)]);
        log.cut_below(u64::MAX);
        assert_eq!((log.start(), log.end(), log.segments.len()), (log.end, log.end, 0));
        log.push(record(9));
        assert_eq!(log.end(), 2 * SEGMENT as u64 + 1);
    }

    #[test]
    fn a_follower_shows_its_end() {
        let follower = FollowerLog::default();
        follower.append(&[record(0), record(1)]);
        assert_eq!(follower.end(), 2);
        assert_eq!(follower.with(|log| log.end()), 2);
    }
}
