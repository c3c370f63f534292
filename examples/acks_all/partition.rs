//! One partition: the leader's log, the followers' logs, and the high watermark that follows from
//! them.
//!
//! As in Kafka, a fetch from an offset says that the follower has everything below it. The high
//! watermark follows the in-sync set: a follower may [fall out](Partition::falls_out) of it, and
//! does not come back (in the example `broker` one that has caught up does).
//!
//! A log is its end and a digest of every record below it, so that a run of any length can be
//! audited. The leader keeps the records that a follower still has to fetch. Its lock covers its
//! log and what it knows of the followers. The high watermark is read without it: that is the
//! condition of a waiting produce, and a check must not need a lock that the thread signalling the
//! key might hold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{collections::VecDeque, fmt};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// The number of followers of a partition, which are numbered from 0; the leader comes on top.
pub(crate) const FOLLOWERS: usize = 2;

/// The most records that one fetch brings.
const FETCH_MAX: usize = 16 * 1024;

/// The watch key of the purgatory: a produce waits under its partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey(pub(crate) u32);

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// An entry of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Its place among the records of all producers.
    pub(crate) number: u64,
    /// The line that it carries, by its number in the text.
    pub(crate) line: u32,
}

/// A replica's log. The replica's own thread appends, others read the end without a lock.
#[derive(Debug, Default)]
pub(crate) struct Log {
    end: AtomicU64,
    digest: AtomicU64,
}

impl Log {
    /// Returns the log end offset; every record below it is in the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Differs where a record, or the order of the records, does.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }

    pub(crate) fn append(&self, records: &[Record]) {
        let mut digest = self.digest();
        for record in records {
            let entry = record.number << 32 ^ u64::from(record.line);
            digest = (digest ^ entry)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        // The digest before the end: a thread that sees the end sees the digest of the records
        // below it.
        self.digest.store(digest, Ordering::Release);
        let end = self.end() + records.len() as u64;
        self.end.store(end, Ordering::Release);
    }
}

/// The records that the leader keeps, and what it knows of its followers.
#[derive(Debug, Default)]
struct LeaderState {
    kept: VecDeque<Record>,
    log_ends: [u64; FOLLOWERS],
}

/// A partition and all its replicas.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// The watch key of its produces.
    pub(crate) key: PartitionKey,
    /// The leader's log, written under its lock.
    pub(crate) log: Log,
    /// The followers' own logs.
    pub(crate) followers: [Log; FOLLOWERS],
    /// The followers that have fallen out of the in-sync set; written under the leader's lock.
    fallen_out: [AtomicBool; FOLLOWERS],
    leader: CachePadded<Mutex<LeaderState>>,
    high_watermark: CachePadded<AtomicU64>,
}

impl Partition {
    /// Makes a partition with empty logs.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            key: PartitionKey(number),
            ..Self::default()
        }
    }

    /// Returns the offset below which every in-sync replica has every record.
    pub(crate) fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Returns true if a follower is in the in-sync set. One that a high watermark did not count is
    /// out for every thread that has read that high watermark.
    pub(crate) fn is_in_sync(&self, follower: usize) -> bool {
        !self.fallen_out[follower].load(Ordering::Acquire)
    }

    /// Appends a record to the leader's log. Returns the high watermark that acknowledges it.
    pub(crate) fn append(&self, record: Record) -> u64 {
        // The record is kept until every in-sync follower has fetched it.
        let mut leader = self.leader.lock();
        leader.kept.push_back(record);
        self.log.append(&[record]);
        self.log.end()
    }

    /// Serves a follower's fetch: it has everything below `log_end`, and gets what comes next.
    /// Returns the high watermark, if that advanced it. The follower must be in sync.
    pub(crate) fn fetch(
        &self,
        follower: usize,
        log_end: u64,
        into: &mut Vec<Record>,
    ) -> Option<u64> {
        let leader = &mut *self.leader.lock();
        leader.log_ends[follower] = log_end;
        let advanced = self.advance(leader);

        // The kept records begin at the high watermark.
        let skip = (log_end - self.high_watermark()) as usize;
        let end = leader.kept.len().min(skip + FETCH_MAX);
        into.extend(leader.kept.range(skip..end));
        advanced
    }

    /// Takes a follower out of the in-sync set; it must not fetch any more. Returns the high
    /// watermark, if that advanced it.
    pub(crate) fn falls_out(&self, follower: usize) -> Option<u64> {
        let leader = &mut *self.leader.lock();
        // Before the high watermark that does not count it any more.
        self.fallen_out[follower].store(true, Ordering::Release);
        self.advance(leader)
    }

    /// Moves the high watermark to the smallest log end of the in-sync replicas, under the leader's
    /// lock. Returns it, if it advanced.
    fn advance(&self, leader: &mut LeaderState) -> Option<u64> {
        // The high watermark follows the slowest in-sync follower.
        let mut lowest = self.log.end();
        for (follower, &log_end) in leader.log_ends.iter().enumerate() {
            if self.is_in_sync(follower) {
                lowest = lowest.min(log_end);
            }
        }
        let before = self.high_watermark.swap(lowest, Ordering::AcqRel);

        // Records that every in-sync follower has are not kept.
        leader.kept.drain(..(lowest - before) as usize);
        if lowest > before { Some(lowest) } else { None }
    }
}
