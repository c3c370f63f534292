//! One partition: the leader's log, the followers' logs, and the high watermark that follows from
//! them.
//!
//! As in Kafka, a fetch from an offset says that the follower has everything below it. Both
//! followers stay in the in-sync set (in the example `broker` one that lags leaves it).
//!
//! A log is its end and a digest of every record below it, so that a run of any length can be
//! audited. The leader keeps the records that a follower still has to fetch. Its lock covers its
//! log and what it knows of the followers. The high watermark is read without it: that is the
//! condition of a waiting produce, and a check must not need a lock that the thread signalling the
//! key might hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::VecDeque, fmt};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// How many followers a partition has, numbered from 0; the leader comes on top.
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
    /// The log end offset; every record below it is in the log.
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
struct Leader {
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
    leader: CachePadded<Mutex<Leader>>,
    high_watermark: CachePadded<AtomicU64>,
}

impl Partition {
    /// A partition with empty logs.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            key: PartitionKey(number),
            ..Self::default()
        }
    }

    /// The offset below which every replica has every record.
    pub(crate) fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Appends a record to the leader's log. Returns the high watermark that acknowledges it.
    pub(crate) fn append(&self, record: Record) -> u64 {
        // The record is kept until every follower has fetched it.
        let mut leader = self.leader.lock();
        leader.kept.push_back(record);
        self.log.append(&[record]);
        self.log.end()
    }

    /// Serves a follower's fetch: it has everything below `log_end`, and gets what comes next.
    /// Returns the high watermark, the smallest log end, if that advanced it.
    pub(crate) fn fetch(
        &self,
        follower: usize,
        log_end: u64,
        into: &mut Vec<Record>,
    ) -> Option<u64> {
        let leader = &mut *self.leader.lock();
        leader.log_ends[follower] = log_end;

        // The high watermark follows the slowest follower.
        let lowest = leader.log_ends.into_iter().fold(u64::MAX, u64::min);
        let before = self.high_watermark.swap(lowest, Ordering::AcqRel);

        // Records that every follower has are not kept; the others begin at the high watermark.
        leader.kept.drain(..(lowest - before) as usize);
        let skip = (log_end - lowest) as usize;
        let end = leader.kept.len().min(skip + FETCH_MAX);
        into.extend(leader.kept.range(skip..end));
        if lowest > before { Some(lowest) } else { None }
    }
}
