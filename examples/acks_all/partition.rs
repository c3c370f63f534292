//! The logs of one partition: the leader's and the followers', and the records kept for followers.
//!
//! As in Kafka, a fetch from an offset says that the follower has every record below it. A leader
//! leads for an *epoch*. The next leader may have fewer records: every other replica [takes
//! back](Log::take_back) those that it lacks, a follower at its next fetch.
//!
//! A log consists of its end and a digest of the records below it, so a run of any length can be
//! audited. The leader keeps the records that a follower still has to fetch. The leader's lock
//! covers its log and its knowledge of the followers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::VecDeque, fmt};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::high_watermark::HighWatermark;

/// The number of followers of a partition, numbered from 0; the leader is not one of them.
pub(crate) const FOLLOWERS: usize = 2;

/// The follower that becomes the next leader; the previous leader takes its place.
pub(crate) const NEXT_LEADER: usize = 0;

/// The most records that one fetch returns.
const FETCH_MAX: usize = 16 * 1024;

/// The factor of the digest, and its inverse: their product is 1.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;
const TURN: u32 = 29;
const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);

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
    /// The record's place among the records of all producers.
    pub(crate) number: u64,
    /// The number of its line in the text.
    pub(crate) line: u32,
}

impl Record {
    fn entry(self) -> u64 {
        self.number << 32 ^ u64::from(self.line)
    }
}

/// A log's end in a leader's epoch. Within an epoch the record at an offset stays the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
}

/// A replica's log. One thread at a time appends; other threads read the end without a lock.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The epoch of the leader that the replica follows; its own epoch, if it leads.
    epoch: AtomicU64,
    end: AtomicU64,
    digest: AtomicU64,
}

impl Log {
    /// Returns the epoch of the log's leader.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the log end offset; every record below it is in the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Returns a digest of the records and their order.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }

    pub(crate) fn append(&self, records: &[Record]) {
        let mut digest = self.digest();
        for record in records {
            digest = (digest ^ record.entry())
                .wrapping_mul(MIX)
                .rotate_left(TURN);
        }
        // Store the digest before the end: a thread that sees the end sees the digest of the
        // records below it.
        self.digest.store(digest, Ordering::Release);
        let end = self.end() + records.len() as u64;
        self.end.store(end, Ordering::Release);
    }

    /// Returns the digest before the log's last records, which must be `records`; undoes each of
    /// them.
    fn digest_before<'a>(&self, records: impl DoubleEndedIterator<Item = &'a Record>) -> u64 {
        let undo = |digest: u64, record: &Record| {
            digest.rotate_right(TURN).wrapping_mul(UNMIX) ^ record.entry()
        };
        records.rev().fold(self.digest(), undo)
    }

    /// Takes back the log's last records, which must be `records`.
    pub(crate) fn take_back(&self, records: &[Record]) {
        let digest = self.digest_before(records.iter());
        let end = self.end() - records.len() as u64;
        self.end.store(end, Ordering::Release);
        self.digest.store(digest, Ordering::Release);
    }

    fn begin_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }
}

/// The records that the leader keeps, and what it knows of its followers.
#[derive(Debug, Default)]
struct LeaderState {
    epoch: u64,
    /// The leader's log end when its epoch began.
    epoch_start: u64,
    /// The records from the smallest log end of the followers on.
    kept: VecDeque<Record>,
    kept_from: u64,
    /// The followers' log ends, as their fetches report; `u64::MAX` for one that has left for good.
    log_ends: [u64; FOLLOWERS],
    /// The previous leader's records from the start of this epoch on, which this leader lacks.
    taken_back: Vec<Record>,
}

impl LeaderState {
    /// Drops the records that every follower has.
    fn trim(&mut self) {
        let lowest = self.log_ends.iter().min().copied().unwrap_or(u64::MAX);
        let had_by_all = lowest.saturating_sub(self.kept_from);
        let count = self.kept.len().min(had_by_all as usize);
        self.kept.drain(..count);
        self.kept_from += count as u64;
    }
}

/// A change of the leader.
#[derive(Debug)]
pub(crate) struct Change {
    /// The new leader's log end, at which its epoch starts.
    pub(crate) start: LogEnd,
    /// The number of records that the previous leader took back.
    pub(crate) taken_back: u64,
    /// The logs of both leaders are the same up to the start.
    pub(crate) alike: bool,
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
    /// The high watermark, kept for `--by kafka` only.
    pub(crate) high_watermark: CachePadded<HighWatermark>,
    /// The number of records ever appended by a leader.
    produced: AtomicU64,
    leader: CachePadded<Mutex<LeaderState>>,
}

impl Partition {
    /// Makes a partition with empty logs.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            key: PartitionKey(number),
            ..Self::default()
        }
    }

    /// Returns the number of records ever appended, including those that were taken back.
    pub(crate) fn produced(&self) -> u64 {
        self.produced.load(Ordering::Acquire)
    }

    /// Appends a record to the leader's log, and calls `appended` with the new end before a
    /// follower can fetch the record. Returns that end: the high watermark that acknowledges the
    /// record.
    pub(crate) fn append(&self, record: Record, appended: impl FnOnce(LogEnd)) -> LogEnd {
        // The record is kept until every follower has fetched it.
        let mut leader = self.leader.lock();
        leader.kept.push_back(record);
        self.log.append(&[record]);
        let produced = self.produced() + 1;
        self.produced.store(produced, Ordering::Release);
        let end = LogEnd {
            epoch: leader.epoch,
            offset: self.log.end(),
        };
        appended(end);
        end
    }

    /// Serves a fetch, on the follower's thread: adds the next records of the log to `into`.
    /// Returns the end of the follower's log, which has every record below it.
    pub(crate) fn fetch(&self, follower: usize, into: &mut Vec<Record>) -> LogEnd {
        let leader = &mut *self.leader.lock();
        let log = &self.followers[follower];

        // At its first fetch from a new leader, the follower takes back what that leader lacks.
        if log.epoch() != leader.epoch {
            let beyond = log.end().saturating_sub(leader.epoch_start);
            log.take_back(&leader.taken_back[..beyond as usize]);
            log.begin_epoch(leader.epoch);
        }

        // Note what the follower has, and return the records that come next.
        let offset = log.end();
        leader.log_ends[follower] = offset;
        leader.trim();
        let skip = (offset - leader.kept_from) as usize;
        let end = leader.kept.len().min(skip + FETCH_MAX);
        into.extend(leader.kept.range(skip..end));
        LogEnd {
            epoch: leader.epoch,
            offset,
        }
    }

    /// Makes [`NEXT_LEADER`] the leader, once in a run and on that follower's thread; the previous
    /// leader follows in its place. Calls `begin` with the start of the new epoch before anything
    /// is appended in it.
    pub(crate) fn change_leader(&self, begin: impl FnOnce(LogEnd)) -> Change {
        // 1. The epoch starts at the end of the new leader's log.
        let leader = &mut *self.leader.lock();
        let next = &self.followers[NEXT_LEADER];
        let start = LogEnd {
            epoch: leader.epoch + 1,
            offset: next.end(),
        };
        leader.epoch = start.epoch;
        leader.epoch_start = start.offset;
        begin(start);

        // 2. The records that the new leader lacks are taken back: by the previous leader here, by
        // the other follower at its next fetch.
        let remaining = (start.offset - leader.kept_from) as usize;
        leader.taken_back = leader.kept.split_off(remaining).into();
        self.log.take_back(&leader.taken_back);
        for log_end in &mut leader.log_ends {
            if *log_end < u64::MAX {
                *log_end = start.offset.min(*log_end);
            }
        }

        // 3. The two logs have the same end now: they change places.
        let alike = self.log.digest() == next.digest();
        let last_leaders = self.log.digest.swap(next.digest(), Ordering::AcqRel);
        next.digest.store(last_leaders, Ordering::Release);
        self.log.begin_epoch(start.epoch);
        next.begin_epoch(start.epoch);
        Change {
            start,
            taken_back: leader.taken_back.len() as u64,
            alike,
        }
    }

    /// Calls `call` with the current epoch under the leader's lock, so that neither the epoch nor
    /// the log changes meanwhile.
    pub(crate) fn in_order<R>(&self, call: impl FnOnce(u64) -> R) -> R {
        let leader = self.leader.lock();
        call(leader.epoch)
    }

    /// Returns the digest of the leader's log up to `end`; `None` if the log is shorter, or if the
    /// records after `end` are not kept, as for a follower that has left for good.
    pub(crate) fn digest_at(&self, end: u64) -> Option<u64> {
        let leader = self.leader.lock();
        let remaining = end.checked_sub(leader.kept_from)? as usize;
        if remaining > leader.kept.len() {
            return None;
        }
        Some(self.log.digest_before(leader.kept.range(remaining..)))
    }

    /// Stops keeping records for a follower that has left for good.
    pub(crate) fn forget(&self, follower: usize) {
        let mut leader = self.leader.lock();
        leader.log_ends[follower] = u64::MAX;
        leader.trim();
    }
}
